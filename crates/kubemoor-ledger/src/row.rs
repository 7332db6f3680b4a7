//! One row of the ledger, as the parts of the program create it. Values in a row are [`Shown`], so that no plain
//! value of a Secret can be in it.

use jiff::Timestamp;
use strum::{IntoStaticStr, VariantNames};

use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_policy::allowance::Allowance;
use kubemoor_verdict::diff::ChangedField;
use kubemoor_verdict::edit::{FieldFinding, Verdict};
#[cfg(doc)]
use kubemoor_verdict::replay;
use kubemoor_verdict::shown::{Difference, Shown};

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum RowKind {
    Verdict,
    /// A release's latest record reached another status or revision.
    Record,
    /// The loop repaired an object, tried to, or reported its drift.
    Repair,
    /// An allowance was opened or closed.
    Allowance,
    /// An [`Act`]: a user's command to the guard, or an action of the guard on itself.
    Act,
}

/// An edit, from its admission review or from a watch event.
#[derive(Clone, Debug)]
pub struct ReviewedEdit {
    pub object: ObjectId,
    pub operation: Option<Operation>,
    pub actor: Actor,
    /// The uid of the admission request; may be empty.
    pub uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub enum Repaired {
    /// A missing object was created again.
    Recreated,
    /// Fields were reverted to their declared values.
    Restored,
    /// A re-created object was deleted again, because its release no longer declares it.
    TakenBack,
    /// The API server refused, or did not answer.
    Failed,
    /// The object may not be repaired; its drift was reported.
    Reported,
    /// The drift ended without a repair by the guard.
    Ended,
}

/// Whether an allowance begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub enum ExceptionEvent {
    Opened,
    /// It expired, was deleted or was changed.
    Closed,
}

/// One row, before it is sealed.
#[derive(Clone, Debug)]
pub struct LedgerRow {
    pub time: Timestamp,
    pub kind: RowKind,
    /// `None` if the request was not read far enough to know its release.
    pub release: Option<(ReleaseId, u64)>,
    pub object: ObjectId,
    pub operation: Option<Operation>,
    /// The user; empty for events without a user.
    pub actor: Actor,
    /// The outcome in one word: of an edit `Allow`, `Record`, `Warn`, `Revert` or `Deny`, or `Error` if `failurePolicy`
    /// decided; of a record its status; of repairs, allowances and acts their own.
    pub verdict: &'static str,
    pub reason: &'static str,
    /// A sentence for a person; may be empty.
    pub detail: String,
    /// The declared fields that decided the outcome.
    pub fields: RowChanges,
    /// The changes of an edit, in the form of [`replay::text`], so that other policies can judge them.
    pub facts: Option<String>,
    /// The uid of the admission request; may be empty.
    pub uid: String,
    /// For an event that every guard of a cluster sees: a key under which it is stored only once.
    pub same: Option<String>,
    /// Whether it may use only half of the queue, because such rows can come in large numbers: requests that
    /// were not read, and edits that pass.
    pub is_low_priority: bool,
}

impl ReviewedEdit {
    /// An edit that only a watch event reported: its user is known only to the API server's audit log.
    pub fn watched(object: ObjectId, operation: Option<Operation>) -> Self {
        Self { object, operation, actor: Actor::default(), uid: String::new() }
    }
}

impl LedgerRow {
    /// A row about an object, with nothing else filled in.
    fn about(time: Timestamp, kind: RowKind, object: ObjectId) -> Self {
        Self {
            time,
            kind,
            release: None,
            object,
            operation: None,
            actor: Actor::default(),
            verdict: "",
            reason: "",
            detail: String::new(),
            fields: RowChanges::default(),
            facts: None,
            uid: String::new(),
            same: None,
            is_low_priority: false,
        }
    }

    fn about_edit(time: Timestamp, kind: RowKind, edit: ReviewedEdit) -> Self {
        let ReviewedEdit { object, operation, actor, uid } = edit;
        Self { operation, actor, uid, ..Self::about(time, kind, object) }
    }

    pub fn verdict(time: Timestamp, edit: ReviewedEdit, verdict: &Verdict) -> Self {
        let grounds = verdict.grounds.as_ref();
        Self {
            release: grounds.map(|grounds| (grounds.release.clone(), grounds.revision)),
            verdict: verdict.outcome.as_str(),
            reason: verdict.reason.as_str(),
            detail: grounds.map(|grounds| grounds.exceptions.join("; ")).unwrap_or_default(),
            fields: grounds
                .map(|grounds| RowChanges::first(grounds.fields.iter().map(RowChange::from)))
                .unwrap_or_default(),
            ..Self::about_edit(time, RowKind::Verdict, edit)
        }
    }

    /// An edit that could not be judged and was left to the webhook's
    /// `failurePolicy`.
    pub fn unreached(
        time: Timestamp,
        edit: ReviewedEdit,
        release: Option<(ReleaseId, u64)>,
        reason: &'static str,
    ) -> Self {
        Self { release, verdict: "Error", reason, ..Self::about_edit(time, RowKind::Verdict, edit) }
    }

    /// A release whose latest record has a new status or revision, or that has no record any more (`gone`).
    ///
    /// Its time is that of the record's last write, by the API server's clock; for a deleted record, `now`.
    pub fn transition(now: Timestamp, release: &Release, gone: bool) -> Self {
        let invalid = release.invalid.as_ref();
        let verdict = match (gone, invalid) {
            (true, _) => "gone",
            (false, Some(_)) => "record-invalid",
            (false, None) => release.latest.status.as_str(),
        };
        // The object is Helm's record, whatever the storage driver.
        let object = ObjectId::namespaced("", "Record", &release.storage, &release.latest.secret);
        Self {
            release: Some((release.id.clone(), release.latest.revision)),
            verdict,
            detail: invalid.map(|invalid| invalid.reason.clone()).unwrap_or_default(),
            same: Some(format!("{} {} {verdict}", release.latest.uid, release.latest.resource_version)),
            ..Self::about(if gone { now } else { release.latest.last_written }, RowKind::Record, object)
        }
    }

    /// The loop's action on an object. `detail` is the reason of a failure and must not quote values.
    pub fn repair(
        time: Timestamp,
        (release, revision): (&ReleaseId, u64),
        object: &ObjectId,
        repaired: Repaired,
        fields: Vec<RowChange>,
        detail: &str,
    ) -> Self {
        let operation = match repaired {
            Repaired::Recreated => Some(Operation::Create),
            Repaired::Restored => Some(Operation::Update),
            Repaired::TakenBack => Some(Operation::Delete),
            Repaired::Failed | Repaired::Reported | Repaired::Ended => None,
        };
        Self {
            release: Some((release.clone(), revision)),
            operation,
            verdict: repaired.into(),
            reason: "drift",
            detail: detail.to_owned(),
            fields: RowChanges { listed: fields, more: 0 },
            ..Self::about(time, RowKind::Repair, object.clone())
        }
    }

    pub fn act(time: Timestamp, edit: ReviewedEdit, release: Option<(ReleaseId, u64)>, act: Act) -> Self {
        Self { release, verdict: act.as_str(), ..Self::about_edit(time, RowKind::Act, edit) }
    }

    /// An allowance for `object` that opened, or that ended by `now` because it expired, was deleted or was changed.
    /// The actor is the user who requested it.
    pub fn allowance(
        now: Timestamp,
        release: Option<(ReleaseId, u64)>,
        object: &ObjectId,
        allowance: &Allowance,
        permitted: ExceptionEvent,
    ) -> Self {
        let Allowance { grant, until, reason, by, version: (uid, generation), created, .. } = allowance;
        let ran_out = *until <= now;
        let verdict: &'static str = permitted.into();
        let (time, how) = match permitted {
            // The time of a later generation is not known.
            ExceptionEvent::Opened => (created.filter(|_| *generation <= 1).unwrap_or(now), "until"),
            ExceptionEvent::Closed if ran_out => (*until, "expired at"),
            ExceptionEvent::Closed => (now, "revoked or changed before"),
        };
        let mut words = vec![format!("{how} {until}")];
        words.extend((!reason.is_empty()).then(|| reason.clone()));
        let change = |path| RowChange { path, declared: None, old: None, new: None, difference: None };
        Self {
            release,
            actor: by.clone(),
            verdict,
            detail: words.join("; "),
            fields: RowChanges::first(grant.paths().collect::<Vec<_>>().into_iter().map(change)),
            same: Some(format!("{uid} {generation} {verdict}")),
            ..Self::about(time, RowKind::Allowance, object.clone())
        }
    }
}

impl RowKind {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A user's command to the guard, a user's change that affects it, or an action of the guard on itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub enum Act {
    Reconcile,
    /// Repairs of a release are suspended.
    Suspend,
    /// Repairs of a release are resumed.
    Resume,
    /// Enforcement is disabled (emergency).
    Open,
    /// Enforcement is enabled again.
    Close,
    CreatePolicy,
    ChangePolicy,
    DeletePolicy,
    /// Another user changed a webhook configuration that the guard maintains.
    ChangeWebhooks,
    /// Another user deleted a webhook configuration that the guard maintains.
    DeleteWebhooks,
    /// The guard serves another certificate, or creates the one that its replicas share.
    RenewCertificate,
    /// New labels of a namespace may select other policies.
    LabelNamespace,
    /// An autoscaler starts to set the replicas of a declared workload.
    StartAutoscaling,
    /// The autoscaler's range changes.
    ChangeAutoscaling,
    /// The autoscaler no longer sets the replicas, so they are guarded again.
    StopAutoscaling,
    /// A guard started, with these settings.
    Start,
    /// A guard was told to stop, or cannot continue.
    Stop,
    /// The guard stopped repairs, because too many objects drift.
    EngageBrake,
    /// A user resumed the repairs that the brake had stopped.
    ReleaseBrake,
    /// The guard puts repairs of a release on hold.
    HoldRepairs,
}

impl Act {
    /// The word in rows.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The maximum number of fields in a verdict's row, so that queued rows cannot fill the memory.
const FIELDS: usize = 100;

/// The first fields of a row, and how many more there are.
#[derive(Clone, Debug, Default)]
pub struct RowChanges {
    pub listed: Vec<RowChange>,
    pub more: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RowChange {
    pub path: String,
    /// The declared value; `None` if the manifest has none.
    pub declared: Option<Shown>,
    pub old: Option<Shown>,
    pub new: Option<Shown>,
    /// The first place at which long or nested values differ.
    pub difference: Option<Box<Difference>>,
}

impl RowChanges {
    /// The changes of a passing edit of `object`; only the first of many are kept.
    pub fn passing(object: &ObjectId, changes: &[ChangedField]) -> Self {
        let of = |ChangedField { change, .. }: &ChangedField| {
            let values = [&change.declared, &change.old, &change.new].map(Option::as_ref);
            RowChange::from(&FieldFinding::new(object, &change.path, values))
        };
        Self::first(changes.iter().map(of))
    }

    fn first(changes: impl ExactSizeIterator<Item = RowChange>) -> Self {
        let more = changes.len().saturating_sub(FIELDS);
        Self { listed: changes.take(FIELDS).collect(), more }
    }
}

impl From<&FieldFinding> for RowChange {
    fn from(finding: &FieldFinding) -> Self {
        let FieldFinding { path, declared, old, new, difference, in_doubt: _, added: _ } = finding;
        let (declared, old, new) = (declared.clone(), old.clone(), new.clone());
        Self { path: path.to_string(), declared, old, new, difference: difference.clone() }
    }
}
