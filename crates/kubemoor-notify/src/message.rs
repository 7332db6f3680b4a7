//! The messages that receivers get.
//!
//! Entry point: [`Message`]. Invariant: of values a message holds only findings,
//! which redact. Pure.

mod topic;

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

pub use self::topic::Topic;
pub(super) use self::topic::{Phase, Severity};
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
    /// Changes were denied.
    Denied,
    /// An operation of Helm does not come to its end.
    OperationStuck,
    /// It did, or another one began.
    OperationEnded,
    /// A person tries a receiver.
    Test,
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
    /// How many events this message sums up.
    pub count: u64,
    /// Tells one thing from another where release and object are the same.
    pub key: String,
    /// How many conditions of the same topic and release still last.
    pub remaining: usize,
}

/// The identity of a condition, from its first message to its last.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Condition {
    pub(super) topic: Topic,
    pub(super) release: Option<ReleaseId>,
    pub(super) namespace: Option<String>,
    pub(super) object: Option<ObjectId>,
    pub(super) key: String,
}

impl Subject {
    /// The kind of event.
    pub fn topic(self) -> Topic {
        match self {
            Self::Drifted | Self::Repaired | Self::NotRepaired | Self::DriftEnded => Topic::Drift,
            Self::Contested | Self::ContestEnded => Topic::Contest,
            Self::Braked | Self::BrakeReleased => Topic::Brake,
            Self::EmergencyOpened | Self::EmergencyClosed => Topic::Emergency,
            Self::ExceptionOpened | Self::ExceptionEnding | Self::ExceptionClosed => Topic::Exception,
            Self::Denied => Topic::Denial,
            Self::OperationStuck | Self::OperationEnded => Topic::Operation,
            Self::Test => Topic::Test,
        }
    }

    pub(super) fn phase(self) -> Phase {
        match self {
            Self::Drifted
            | Self::NotRepaired
            | Self::Contested
            | Self::Braked
            | Self::EmergencyOpened
            | Self::ExceptionOpened
            | Self::ExceptionEnding
            | Self::OperationStuck => Phase::Begins,
            Self::Repaired
            | Self::DriftEnded
            | Self::ContestEnded
            | Self::BrakeReleased
            | Self::EmergencyClosed
            | Self::ExceptionClosed
            | Self::OperationEnded => Phase::Ends,
            Self::Denied | Self::Test => Phase::Once,
        }
    }

    /// The type of its CloudEvent, below `dev.kubemoor.`; also its name in templates.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drifted => "drift.detected",
            Self::Repaired => "drift.repaired",
            Self::NotRepaired => "drift.not-repaired",
            Self::DriftEnded => "drift.ended",
            Self::Contested => "contest.detected",
            Self::ContestEnded => "contest.ended",
            Self::Braked => "brake.engaged",
            Self::BrakeReleased => "brake.released",
            Self::EmergencyOpened => "emergency.opened",
            Self::EmergencyClosed => "emergency.closed",
            Self::ExceptionOpened => "exception.opened",
            Self::ExceptionEnding => "exception.ending",
            Self::ExceptionClosed => "exception.closed",
            Self::Denied => "changes.denied",
            Self::OperationStuck => "operation.stuck",
            Self::OperationEnded => "operation.ended",
            Self::Test => "test",
        }
    }

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
            count: 1,
            key: String::new(),
            remaining: 0,
        }
    }

    /// The namespace of the message; `None` where it is about the cluster.
    pub(super) fn concerned(&self) -> Option<&str> {
        self.release.as_ref().map(|release| release.namespace.as_str()).or(self.namespace.as_deref())
    }

    /// Names what lasts from its first message to its last.
    pub(super) fn condition(&self) -> Condition {
        let topic = self.subject.topic();
        // An exception may outlive its release.
        let is_exception = topic == Topic::Exception;
        Condition {
            topic,
            release: self.release.clone().filter(|_| !is_exception),
            namespace: self.namespace.clone().filter(|_| !is_exception),
            object: self.object.clone(),
            key: self.key.clone(),
        }
    }

    /// The key of all conditions of the same topic and release, for receivers that group them.
    pub(super) fn incident(&self, source: &str) -> String {
        let Condition { topic, release, namespace, .. } = self.condition();
        let release = release.map(|release| release.to_string());
        let key = matches!(topic, Topic::Exception).then_some(&self.key);
        digest(&serde_json::json!([source, topic, release, namespace, key]).to_string())
    }

    /// Tells messages apart. Each drift is known from a time of its own: one that
    /// comes back after a repair is another.
    pub(super) fn fingerprint(&self) -> u64 {
        let Self { subject, release, revision, object, drift, fields, since, detail, .. } = self;
        let Self { namespace, until, key, at: _, by: _, count: _, remaining: _, .. } = self;
        let mut hasher = DefaultHasher::new();
        (subject, release, revision, object, drift, since, detail).hash(&mut hasher);
        (namespace, until, key).hash(&mut hasher);
        for field in fields {
            field.path.to_string().hash(&mut hasher);
            field.new.as_ref().map(ToString::to_string).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Sixteen bytes of the digest of a text, as hexadecimal digits.
pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
