//! The messages that receivers get. Of values a message holds only findings, which redact.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_verdict::edit::Finding;

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// An object does not match its release.
    Drifted,
    /// The guard repaired it.
    Repaired,
    /// A repair failed.
    NotRepaired,
    /// It matches again, and the guard did not repair it.
    DriftEnded,
    /// Somebody changes an object back each time it is repaired.
    Contested,
    /// Nobody does any more.
    ContestEnded,
    /// Too much drifts at once, so repairs stop.
    Braked,
    /// Repairs go on.
    BrakeReleased,
    /// The emergency switch is off.
    EmergencyOpened,
    /// The emergency switch is on again.
    EmergencyClosed,
    /// An exception begins.
    ExceptionOpened,
    /// An exception ends soon.
    ExceptionEnding,
    /// An exception has ended.
    ExceptionClosed,
    /// A change was denied.
    Denied,
    /// An operation of Helm does not come to its end.
    OperationStuck,
    /// It did, or another one began.
    OperationEnded,
    /// A person tries a receiver.
    Test,
}

/// The kinds of event.
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

/// Whether a condition begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It lasts until a message says that it ended.
    Begins,
    Ends,
    /// It does not last.
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

/// A message for receivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What it says.
    pub subject: Subject,
    /// When it happened.
    pub at: Timestamp,
    /// Since when it lasts.
    pub since: Timestamp,
    /// The release.
    pub release: Option<ReleaseId>,
    /// The revision that the object should match.
    pub revision: Option<u64>,
    /// The object.
    pub object: Option<ObjectId>,
    /// The namespace, where one is concerned and no release.
    pub namespace: Option<String>,
    /// What is wrong with the object, in one word.
    pub drift: Option<&'static str>,
    /// Its fields that are not as declared.
    pub fields: Vec<Finding>,
    /// The field manager or user that did it.
    pub by: Option<String>,
    /// Until when it lasts, where that is known.
    pub until: Option<Timestamp>,
    /// Why, or more about it.
    pub detail: Option<String>,
    /// Tells one thing from another where release and object are the same.
    pub key: String,
    /// How many conditions of the same topic and release still last.
    pub remaining: usize,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Drifted,
        Self::Repaired,
        Self::NotRepaired,
        Self::DriftEnded,
        Self::Contested,
        Self::ContestEnded,
        Self::Braked,
        Self::BrakeReleased,
        Self::EmergencyOpened,
        Self::EmergencyClosed,
        Self::ExceptionOpened,
        Self::ExceptionEnding,
        Self::ExceptionClosed,
        Self::Denied,
        Self::OperationStuck,
        Self::OperationEnded,
        Self::Test,
    ];

    fn properties(self) -> (&'static str, Topic, Phase) {
        use Phase::{Begins, Ends, Once};
        match self {
            Self::Drifted => ("drift.detected", Topic::Drift, Begins),
            Self::Repaired => ("drift.repaired", Topic::Drift, Ends),
            Self::NotRepaired => ("drift.not-repaired", Topic::Drift, Begins),
            Self::DriftEnded => ("drift.ended", Topic::Drift, Ends),
            Self::Contested => ("contest.detected", Topic::Contest, Begins),
            Self::ContestEnded => ("contest.ended", Topic::Contest, Ends),
            Self::Braked => ("brake.engaged", Topic::Brake, Begins),
            Self::BrakeReleased => ("brake.released", Topic::Brake, Ends),
            Self::EmergencyOpened => ("emergency.opened", Topic::Emergency, Begins),
            Self::EmergencyClosed => ("emergency.closed", Topic::Emergency, Ends),
            Self::ExceptionOpened => ("exception.opened", Topic::Exception, Begins),
            Self::ExceptionEnding => ("exception.ending", Topic::Exception, Begins),
            Self::ExceptionClosed => ("exception.closed", Topic::Exception, Ends),
            Self::Denied => ("changes.denied", Topic::Denial, Once),
            Self::OperationStuck => ("operation.stuck", Topic::Operation, Begins),
            Self::OperationEnded => ("operation.ended", Topic::Operation, Ends),
            Self::Test => ("test", Topic::Test, Once),
        }
    }

    /// The type of its CloudEvent, below `dev.kubemoor.`; also its name in templates.
    pub fn as_str(self) -> &'static str {
        self.properties().0
    }

    pub(crate) fn topic(self) -> Topic {
        self.properties().1
    }

    pub(crate) fn phase(self) -> Phase {
        self.properties().2
    }
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

impl Message {
    /// A message without details: only the event and its time.
    pub fn new(subject: Subject, at: Timestamp) -> Self {
        Self {
            subject,
            at,
            since: at,
            release: None,
            revision: None,
            object: None,
            namespace: None,
            drift: None,
            fields: Vec::new(),
            by: None,
            until: None,
            detail: None,
            key: String::new(),
            remaining: 0,
        }
    }

    /// The namespace of the message; `None` where it is about the cluster.
    pub(crate) fn concerned(&self) -> Option<&str> {
        self.release.as_ref().map(|release| release.namespace.as_str()).or(self.namespace.as_deref())
    }

    /// One key for all conditions of the same topic and release, by which PagerDuty resolves an alert. Alerts that an
    /// earlier version opened have the same.
    pub(crate) fn dedup_key(&self, source: &str) -> String {
        let release = self.release.as_ref().map(ToString::to_string);
        let no_key: Option<&str> = None;
        digest(&json!([source, self.subject.topic(), release, self.namespace, no_key]).to_string())
    }

    /// Tells messages apart. Each drift is known from a time of its own: one that comes back after a repair is
    /// another. Denials are the same for one user and release, whatever is tried.
    pub(crate) fn fingerprint(&self) -> u64 {
        let Self { subject, release, revision, object, drift, fields, since, detail, .. } = self;
        let Self { namespace, until, key, at: _, by: _, remaining: _, .. } = self;
        let mut hasher = DefaultHasher::new();
        (subject, release, key).hash(&mut hasher);
        if *subject != Subject::Denied {
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
