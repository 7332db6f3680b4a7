//! The messages to receivers. They hold values only as findings, which are redacted.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_verdict::edit::FieldFinding;

/// The subjects of messages: each with the type of its CloudEvent below `dev.kubemoor.` (also its name in templates),
/// its topic, and whether a condition begins or ends.
macro_rules! subjects {
    ($($(#[$doc:meta])* $subject:ident => $name:literal, $topic:ident, $phase:ident;)*) => {
        /// What a message is about.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum NotificationSubject { $($(#[$doc])* $subject,)* }

        impl NotificationSubject {
            pub const ALL: [Self; [$(Self::$subject),*].len()] = [$(Self::$subject),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$subject => $name,)* }
            }

            pub(crate) fn topic(self) -> Topic {
                match self { $(Self::$subject => Topic::$topic,)* }
            }

            pub(crate) fn phase(self) -> ConditionPhase {
                match self { $(Self::$subject => ConditionPhase::$phase,)* }
            }
        }
    };
}

subjects! {
    /// An object does not match its release.
    Drifted => "drift.detected", Drift, Begins;
    Repaired => "drift.repaired", Drift, Ends;
    NotRepaired => "drift.not-repaired", Drift, Begins;
    /// The object matches again without a repair by the guard.
    DriftEnded => "drift.ended", Drift, Ends;
    /// Somebody changes an object back each time it is repaired.
    Contested => "contest.detected", Contest, Begins;
    ContestEnded => "contest.ended", Contest, Ends;
    /// Too much drifts at once, so repairs stop.
    Braked => "brake.engaged", Brake, Begins;
    BrakeReleased => "brake.released", Brake, Ends;
    EnforcementDisabled => "emergency.opened", Emergency, Begins;
    EnforcementEnabled => "emergency.closed", Emergency, Ends;
    ExceptionOpened => "exception.opened", Exception, Begins;
    ExceptionEnding => "exception.ending", Exception, Begins;
    ExceptionClosed => "exception.closed", Exception, Ends;
    Denied => "changes.denied", Denial, Once;
    /// A Helm operation does not finish.
    OperationStuck => "operation.stuck", Operation, Begins;
    /// The stuck operation finished, or another one began.
    OperationEnded => "operation.ended", Operation, Ends;
    /// A user tests a receiver.
    #[default]
    Test => "test", Test, Once;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Topic {
    Drift,
    Contest,
    Brake,
    Emergency,
    Exception,
    Denial,
    Operation,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionPhase {
    /// It lasts until a message says that it ended.
    Begins,
    Ends,
    Once,
}

/// The severity of a message, in the words that Alertmanager's users and PagerDuty share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Critical,
    Warning,
    Info,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notification {
    pub subject: NotificationSubject,
    pub at: Timestamp,
    pub since: Timestamp,
    pub release: Option<ReleaseId>,
    /// The revision that the object should match.
    pub revision: Option<u64>,
    pub object: Option<ObjectId>,
    /// The namespace of a message about a namespace without a release.
    pub namespace: Option<String>,
    /// What is wrong with the object, in one word.
    pub drift: Option<&'static str>,
    /// The object's fields that are not as declared.
    pub fields: Vec<FieldFinding>,
    /// The field manager or user that did it.
    pub by: Option<String>,
    /// When the condition ends, if known.
    pub until: Option<Timestamp>,
    /// The reason, or further details.
    pub detail: Option<String>,
    /// Distinguishes conditions that have the same release and object.
    pub key: String,
    /// How many conditions of the same topic and release still last.
    pub remaining: usize,
}

impl Topic {
    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::Brake | Self::Emergency => Severity::Critical,
            Self::Drift | Self::Contest | Self::Operation => Severity::Warning,
            Self::Exception | Self::Denial | Self::Test => Severity::Info,
        }
    }
}

impl Notification {
    /// A message without details: only the event and its time.
    pub fn new(subject: NotificationSubject, at: Timestamp) -> Self {
        Self { subject, at, since: at, ..Self::default() }
    }

    /// The namespace of the message; `None` if it is about the cluster.
    pub(crate) fn concerned(&self) -> Option<&str> {
        self.release.as_ref().map(|release| release.namespace.as_str()).or(self.namespace.as_deref())
    }

    /// One key for all conditions of the same topic and release, by which PagerDuty resolves an alert.
    pub(crate) fn dedup_key(&self, source: &str) -> String {
        let release = self.release.as_ref().map(ToString::to_string);
        digest(&json!([source, self.subject.topic(), release, self.namespace]).to_string())
    }

    /// Equal for repeated messages. A drift that comes back after a repair has another `since`. Denials of one user and
    /// release are equal, whatever the change.
    pub(crate) fn fingerprint(&self) -> u64 {
        let Self { subject, release, revision, object, drift, fields, since, detail, .. } = self;
        let Self { namespace, until, key, at: _, by: _, remaining: _, .. } = self;
        let mut hasher = DefaultHasher::new();
        (subject, release, key).hash(&mut hasher);
        if *subject != NotificationSubject::Denied {
            (revision, object, drift, since, detail, namespace, until).hash(&mut hasher);
            for field in fields {
                field.path.to_string().hash(&mut hasher);
                field.new.as_ref().map(ToString::to_string).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// Sixteen bytes of the digest of a text, as hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
