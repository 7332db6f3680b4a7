//! Compares the live objects of a release with their declarations, for `kubemoor diff`, `forecast` and the page; also what
//! the next Helm upgrade meets and what earlier ones left behind. No report shows a Secret's values.

use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use json_patch::Patch;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;

use super::failure::spoken;
use super::reading::{ClusterReader, FoundObject, ReleaseInputs, is_repaired};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_declare::compare::Move;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::chart_source::{self, is_secret};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_helm::release::Release;
use kubemoor_helm::state;
use kubemoor_helm::values::{self, Candidate, ValueQuestion};
use kubemoor_policy::Policy;
use kubemoor_policy::guarded::{DriftedObject, ObjectCounts};
use kubemoor_verdict::claims;
use kubemoor_verdict::drift::{self, LiveDrift, LiveVerdict};
use kubemoor_verdict::edit::{DryRunEvidence, FieldFinding, ObjectOwner};
use kubemoor_verdict::health::{
    Control, HealthFacts, ObjectFacts, ObjectState, RecordHealth, ReleaseHealth, ReportedHealth,
};
use kubemoor_verdict::owners::{FieldManager, Owners, Votes};
use kubemoor_verdict::ownership::{self, Effect, FieldConflict, NextUpgrade, TakenFields};
use kubemoor_verdict::shown::{Difference, Shown};

const OBJECTS_AT_ONCE: usize = 8;

const PATHS: usize = 5;

/// One release.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseDiff {
    #[serde(flatten)]
    pub release: ReleaseId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Why the latest record does not count; an earlier one does then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Why the release could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the guard says of the release; none where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<ReportedHealth>,
    /// How the release stands by this comparison.
    #[serde(skip)]
    pub health: Option<ReleaseHealth>,
    /// What could not be read and may spare some of what is reported, or declare otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_considered: Vec<String>,
    /// How many objects were compared.
    pub compared: usize,
    /// How many of them drifted.
    pub drifted: usize,
    /// How the others stand.
    pub counts: ObjectCounts,
    /// Those of them that are not in sync, and those that could not be compared.
    pub objects: Vec<ObjectDiff>,
    /// What earlier upgrades left behind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehindKey>,
    /// The conflicts of the next upgrade, as `kubemoor forecast` lists them.
    #[serde(skip)]
    pub conflicts: Vec<ObjectConflict>,
    /// Helm's own field manager; none where no object has one.
    #[serde(skip)]
    pub manager: Option<String>,
}

/// One object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDiff {
    #[serde(flatten)]
    pub object: ObjectId,
    pub state: ObjectDiffState,
    /// Why it could not be compared, or its doubt not be settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the guard does not repair it, in the guard's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_repaired: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDiff>,
    /// What would make the live object as declared, as far as that is certain.
    /// Left out for Secrets: it would show their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// The same as hunks of a unified diff.
    #[serde(skip)]
    pub hunks: Option<String>,
}

/// What is the matter with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub enum ObjectDiffState {
    /// Some fields are not as declared.
    Drifted,
    /// It does not exist.
    Missing,
    /// Some fields may not be as declared.
    InDoubt,
    /// Its fields match, and another field manager owns some of them.
    Ownership,
    /// A Helm operation under way will make it.
    Awaited,
    /// The operation that failed has not created it.
    NotCreated,
    /// It does not exist, as an exception or its own time to live allows.
    Allowed,
    /// It differs as an exception allows.
    AllowedToDiffer,
    /// Another release owns it.
    Foreign,
    /// The manifest opts it out.
    OptedOut,
    /// It is being deleted.
    BeingDeleted,
    /// The API server serves no such kind.
    NotServed,
    /// It could not be read.
    Unread,
}

impl ObjectDiffState {
    pub(crate) fn health(self) -> ObjectState {
        match self {
            Self::Drifted => ObjectState::Changed,
            // A kind that is not served has no objects.
            Self::Missing | Self::NotServed => ObjectState::Missing,
            Self::InDoubt => ObjectState::InDoubt,
            Self::Ownership => ObjectState::Ownership,
            Self::Awaited | Self::NotCreated => ObjectState::Awaited,
            Self::Allowed | Self::AllowedToDiffer => ObjectState::Allowed,
            Self::Foreign => ObjectState::Foreign,
            Self::OptedOut => ObjectState::OptedOut,
            Self::BeingDeleted => ObjectState::Deleting,
            Self::Unread => ObjectState::Unread,
        }
    }
}

/// One declared field that is not, or may not be, as declared.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct FieldDiff {
    pub path: String,
    pub what: FieldDiffKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Shown>,
    /// Where both first differ, of long or nested values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Box<Difference>>,
    pub doubt: bool,
    /// The field managers that own it.
    #[serde(skip)]
    pub owners: Vec<String>,
    /// What the next Helm upgrade does to it.
    #[serde(skip)]
    pub next_upgrade: Effect,
    /// The chart values that probably set it, where they were looked for.
    #[serde(skip)]
    pub chart_values: Vec<Candidate>,
}

/// What is the matter with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FieldDiffKind {
    /// It has another value.
    Changed,
    /// It is absent.
    Removed,
    /// The list has no element of that key.
    ElementRemoved,
    /// The element was given other keys.
    ElementMoved,
    /// The list has several elements of that key.
    ElementRepeated,
}

impl FieldDiff {
    pub(crate) fn new(object: &ObjectId, field: FieldChange, owners: &Owners, next: &NextUpgrade) -> Self {
        let next_upgrade = next.effect(&field);
        let values = [field.declared.as_ref(), None, field.new.as_ref()];
        let FieldFinding { declared, new, difference, .. } = FieldFinding::new(object, &field.path, values);
        let what = match (field.path.0.last(), &field.new) {
            (Some(Segment::Element(_)), _) => FieldDiffKind::ElementRemoved,
            (Some(Segment::Key(_)), None) if field.declared.is_none() => FieldDiffKind::ElementRemoved,
            (Some(Segment::Key(_)), Some(Value::Object(_))) if field.declared.is_none() => {
                FieldDiffKind::ElementMoved
            }
            (Some(Segment::Key(_)), Some(_)) if field.declared.is_none() => FieldDiffKind::ElementRepeated,
            (_, None) => FieldDiffKind::Removed,
            (_, Some(_)) => FieldDiffKind::Changed,
        };
        Self {
            what,
            declared,
            live: new,
            difference,
            doubt: field.agreement == FieldAgreement::Doubt,
            owners: owners.of_path(&field.path).into_iter().map(|manager| manager.name.clone()).collect(),
            path: field.path.to_string(),
            next_upgrade,
            chart_values: Vec::new(),
        }
    }

    /// The place at which a long value differs.
    pub fn place(&self) -> Option<&Difference> {
        self.difference.as_deref().filter(|_| self.what == FieldDiffKind::Changed)
    }

    /// The declared and the live value as people read them; of long values what stands at the place.
    pub fn values(&self) -> [String; 2] {
        let shown =
            |value: &Option<Shown>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
        let (element, live) = ("one element".to_owned(), shown(&self.live));
        match (self.what, self.place()) {
            (_, Some(at)) => [shown(&at.declared), shown(&at.new)],
            (FieldDiffKind::Changed | FieldDiffKind::Removed, None) => [shown(&self.declared), live],
            (FieldDiffKind::ElementRemoved, None) => [element, "removed".to_owned()],
            (FieldDiffKind::ElementMoved, None) => [element, format!("moved: {live}")],
            (FieldDiffKind::ElementRepeated, None) => [element, format!("several: {live}")],
        }
    }
}

// A conflict of the next upgrade. Its documentation in the schema is that of the conflict.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectConflict {
    pub object: ObjectId,
    #[serde(flatten)]
    pub conflict: FieldConflict,
}

/// A key that a chart dropped from a Secret's `stringData`, and that no upgrade removes.
#[derive(Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftBehindKey {
    pub object: ObjectId,
    /// The key, below `/data`.
    pub path: String,
    /// The last revision that declared it.
    pub revision: u64,
}

/// What all comparisons of a release share.
struct ReleaseObjects<'a> {
    reader: &'a ClusterReader,
    release: &'a Release,
    policy: &'a Policy,
    surroundings: &'a ReleaseInputs,
    settle: bool,
    /// Whether drift is repaired: then lost ownership of fields counts as drift.
    is_repaired: bool,
    /// The field managers that may be Helm's.
    votes: &'a Mutex<Votes>,
    now: Timestamp,
}

/// Holds every object of a release against its declaration.
pub async fn compare(
    reader: &ClusterReader,
    release: &Release,
    settle: bool,
    now: Timestamp,
    step: &(dyn Fn() + Sync),
) -> ReleaseDiff {
    let surroundings = reader.surroundings(release).await;
    let policy = reader.resolver.policy(&release.id);
    let mut not_considered = surroundings.unread.clone();
    let (guard, drifts) = match reader.pulses.status(&release.id).await {
        Ok(told) => told.unzip(),
        Err(error) => {
            not_considered.push(format!("what the guard says of the release: {error}"));
            (None, None)
        }
    };
    not_considered.extend(reader.pulses.notes().await);
    let is_repaired = is_repaired(guard.as_ref(), &policy);
    let (method, votes) = (release.state.apply_method, Votes::new(release.state.apply_method).into());
    let surroundings = &surroundings;
    let subject = ReleaseObjects {
        reader,
        release,
        policy: &policy,
        surroundings,
        settle,
        is_repaired,
        votes: &votes,
        now,
    };
    let looks: Vec<_> = release.objects.keys().map(|object| subject.object(object)).collect();
    let found: Vec<ComparedObject> = futures::stream::iter(looks)
        .buffer_unordered(OBJECTS_AT_ONCE)
        .inspect(|_| step())
        .filter_map(std::future::ready)
        .collect()
        .await;
    let compared = found.len();
    let helm = votes.lock().manager();
    let living = found.iter().filter_map(|it| Some((&it.object, it.live.as_ref()?))).collect();
    let left_behind = left_behind(reader, release, living).await;
    let (mut objects, mut conflicts) = (Vec::new(), Vec::new());
    for look in found {
        let (report, met) = look.report(release, (helm.as_ref(), method));
        objects.extend(report);
        conflicts.extend(met);
    }
    let drifts = drifts.unwrap_or_default();
    let told = guard.as_ref().filter(|guard| !guard.is_stale());
    if told.is_some_and(|guard| guard.revision == release.state.revision) {
        settle_by_status(&mut objects, &drifts, &release.id.namespace);
    }
    objects.sort_by(|left: &ObjectDiff, right| (left.state, &left.object).cmp(&(right.state, &right.object)));
    conflicts.sort_by(|left, right| left.object.cmp(&right.object));
    if let Some(guard) = told {
        add_reasons(&mut objects, guard, &drifts, &release.id.namespace);
    }
    let facts = HealthFacts {
        release: release.id.clone(),
        record: RecordHealth::new(release, policy.operation_timeout, now),
        control: Control::by_mode(if is_repaired { DriftMode::Repair } else { DriftMode::Report }),
        declared: compared,
        objects: objects.iter().map(|it| ObjectFacts::new(it.object.clone(), it.state.health())).collect(),
        unwatched: Vec::new(),
    };
    let health = ReleaseHealth::new(&facts);
    ReleaseDiff {
        release: release.id.clone(),
        revision: Some(release.state.revision),
        status: Some(release.state.status.to_string()),
        invalid: release.invalid.as_ref().map(|invalid| format!("{}: {}", invalid.secret, invalid.reason)),
        error: None,
        guard,
        not_considered,
        compared,
        drifted: health.counts.drifted,
        counts: health.counts.kept(),
        health: Some(health),
        objects,
        left_behind,
        conflicts,
        manager: helm.map(|manager| manager.name),
    }
}

/// Counts as drift what is in doubt here and what a dry run of the guard has shown to differ. The status names the first
/// fields with their live values: a field that has another value since stays in doubt.
fn settle_by_status(objects: &mut [ObjectDiff], drifts: &[DriftedObject], home: &str) {
    let changed = ObjectState::Changed.as_str();
    for object in objects.iter_mut().filter(|object| object.state == ObjectDiffState::InDoubt) {
        let is_it =
            |drift: &&DriftedObject| drift.r#type == changed && drift.object.id(home) == object.object;
        let Some(drift) = drifts.iter().find(is_it) else { continue };
        for field in &mut object.fields {
            let live = field.live.as_ref().map(ToString::to_string);
            if drift.fields.iter().any(|known| known.path == field.path && known.live == live) {
                field.doubt = false;
                (object.state, object.reason) = (ObjectDiffState::Drifted, None);
            }
        }
    }
}

fn add_reasons(objects: &mut [ObjectDiff], guard: &ReportedHealth, drifts: &[DriftedObject], home: &str) {
    let is_drift = |object: &&mut ObjectDiff| object.state.health().is_drift();
    let [ignored, reported] = [DriftMode::Ignore, DriftMode::Report].map(|mode| format!("{mode:?}"));
    let by_mode = match &guard.drift {
        mode if *mode == ignored => Some("the policy ignores drift"),
        mode if *mode == reported => Some("drift is only reported"),
        _ => None,
    };
    for object in objects.iter_mut().filter(is_drift) {
        let drift = drifts.iter().find(|drift| drift.object.id(home) == object.object);
        let why = drift.and_then(|drift| drift.message.as_deref());
        let why = why.map(|why| why.strip_prefix("not repaired: ").unwrap_or(why).to_owned());
        let by_mode = by_mode.filter(|_| object.state != ObjectDiffState::NotServed);
        object.not_repaired = why.or_else(|| by_mode.map(str::to_owned));
    }
}

struct ComparedObject {
    object: ObjectId,
    /// `None` where it is in sync.
    report: Option<ObjectDiff>,
    live: Option<Value>,
    /// Its fields that differ, or may.
    changes: Vec<FieldChange>,
}

impl ComparedObject {
    fn in_sync(object: &ObjectId) -> Self {
        Self { object: object.clone(), report: None, live: None, changes: Vec::new() }
    }

    fn with_state(object: &ObjectId, state: ObjectDiffState, reason: Option<String>) -> Self {
        let (fields, patch, hunks, not_repaired) = (Vec::new(), None, None, None);
        let report = ObjectDiff { object: object.clone(), state, reason, not_repaired, fields, patch, hunks };
        Self { report: Some(report), ..Self::in_sync(object) }
    }

    /// The report of the object, which says what the next upgrade does to each field, and the conflicts that the upgrade
    /// meets in it.
    fn report(
        self,
        release: &Release,
        by: (Option<&FieldManager>, ApplyMethod),
    ) -> (Option<ObjectDiff>, Vec<ObjectConflict>) {
        let Self { object, mut report, live, changes } = self;
        let (Some(declared), Some(live)) = (release.declared(&object), &live) else {
            return (report, Vec::new());
        };
        let next = NextUpgrade::new(&object, &declared.fields(), live, by);
        if let Some(report) = report.as_mut().filter(|_| !changes.is_empty()) {
            let owners = Owners::from_object(live);
            let field = |field| FieldDiff::new(&object, field, &owners, &next);
            report.fields = changes.into_iter().map(field).collect();
        }
        let of_object =
            |conflict: &FieldConflict| ObjectConflict { object: object.clone(), conflict: conflict.clone() };
        let conflicts = next.conflicts().iter().map(of_object).collect();
        (report, conflicts)
    }
}

impl ReleaseObjects<'_> {
    /// The facts about an object; `None` where it is not declared now.
    async fn object(&self, object: &ObjectId) -> Option<ComparedObject> {
        let report = |state, reason| ComparedObject::with_state(object, state, reason);
        let timeout = self.policy.operation_timeout;
        let standing = state::standing(self.release, object, timeout, self.now)?;
        let version = self.release.declared(object).map(|declared| declared.version.clone())?;
        let circumstances = self.surroundings.circumstances(self.release, object);
        let subject = drift::LiveSubject {
            object,
            standing: &standing,
            policy: self.policy,
            circumstances: &circumstances,
            now: self.now,
        };
        let found = match self.reader.live(object, &version).await {
            FoundObject::Object(live) => Some(live),
            FoundObject::Absent => None,
            FoundObject::NotServed => {
                let reason =
                    format!("the API server serves no {} in the group {:?}", object.kind, object.group);
                return Some(report(ObjectDiffState::NotServed, Some(reason)));
            }
            FoundObject::Unread(reason) => return Some(report(ObjectDiffState::Unread, Some(reason))),
        };
        if let Some(owner) = self.other_owner(object, found.as_ref()).await {
            let reason = format!("release {} owns it", spoken(&owner));
            return Some(ComparedObject { live: found, ..report(ObjectDiffState::Foreign, Some(reason)) });
        }
        if let Some(live) = &found {
            self.votes.lock().add(&Owners::from_object(live));
        }
        let (stands, reason) = self.settled(&subject, found.as_ref()).await;
        let look = match stands {
            LiveVerdict::AsDeclared(agreed) => {
                let permitted = agreed.map(|agreed| agreed.permitted).unwrap_or_default();
                self.agreement(&subject, found.as_ref(), permitted)
            }
            LiveVerdict::AsBefore | LiveVerdict::Dropped => ComparedObject::in_sync(object),
            LiveVerdict::OptedOut => report(ObjectDiffState::OptedOut, None),
            LiveVerdict::BeingDeleted => report(ObjectDiffState::BeingDeleted, None),
            LiveVerdict::Awaited if self.release.state.status == ReleaseStatus::Failed => {
                report(ObjectDiffState::NotCreated, None)
            }
            LiveVerdict::Awaited => report(ObjectDiffState::Awaited, None),
            LiveVerdict::Allowed => report(ObjectDiffState::Allowed, None),
            LiveVerdict::Expired => {
                let reason = "its ttlSecondsAfterFinished removes it after it has finished";
                report(ObjectDiffState::Allowed, Some(reason.to_owned()))
            }
            LiveVerdict::Missing => report(ObjectDiffState::Missing, None),
            LiveVerdict::Drifted(drift) => {
                let state =
                    if drift.is_doubt() { ObjectDiffState::InDoubt } else { ObjectDiffState::Drifted };
                // The guard does not repair an object that is being deleted.
                let is_going = found.as_ref().is_some_and(claims::is_being_deleted);
                let reason = reason.or_else(|| is_going.then(|| "it is being deleted".to_owned()));
                let repairable = found.as_ref().filter(|_| !is_going);
                let restored = repairable.and_then(|live| restored(&subject, &drift, live));
                let hunks = found.as_ref().zip(restored.as_ref());
                let hunks = hunks.and_then(|(live, (restored, _))| hunks_between(live, restored));
                let patch = restored.map(|(_, patch)| patch);
                let ComparedObject { report, .. } = report(state, reason);
                let report = report.map(|report| ObjectDiff { patch, hunks, ..report });
                ComparedObject { report, changes: drift.changes, ..ComparedObject::in_sync(object) }
            }
        };
        Some(ComparedObject { live: found, ..look })
    }

    /// An object that matches its declaration, but for fields at which an allowance permits it to differ; another field
    /// manager may own some of its fields.
    fn agreement(
        &self,
        subject: &drift::LiveSubject<'_, '_>,
        live: Option<&Value>,
        permitted: Vec<FieldChange>,
    ) -> ComparedObject {
        let report = |state, reason| ComparedObject::with_state(subject.object, state, reason);
        let taken = live.filter(|_| self.is_repaired && self.release.state.status == ReleaseStatus::Deployed);
        let taken = taken.and_then(|live| {
            let declared = self.release.declared(subject.object)?;
            let spared = subject.exceptions(declared).mask(live);
            ownership::taken(&declared.fields(), live, self.release.state.apply_method, &spared)
        });
        let look = match taken {
            Some(TakenFields { by, paths, .. }) => {
                let paths: Vec<_> = paths.iter().take(PATHS).map(ToString::to_string).collect();
                let reason = format!("field manager {by} owns {}", paths.join(", "));
                report(ObjectDiffState::Ownership, Some(reason))
            }
            None if !permitted.is_empty() => report(ObjectDiffState::AllowedToDiffer, None),
            None => ComparedObject::in_sync(subject.object),
        };
        ComparedObject { changes: permitted, ..look }
    }

    /// The other release that owns a live object: its annotations name it, and it declares
    /// the object. The guard holds the object to that one alone.
    async fn other_owner(&self, object: &ObjectId, live: Option<&Value>) -> Option<ReleaseId> {
        let owner = ObjectOwner::named_by(live?).release().filter(|owner| *owner != self.release.id)?;
        let other = self.reader.release(&owner).await.ok()?;
        other.declared(object).is_some().then_some(owner)
    }

    /// The health of the object, with the API server's answer to doubts where it is to be asked; and the
    /// error if it could not be asked.
    async fn settled<'r>(
        &self,
        subject: &drift::LiveSubject<'_, 'r>,
        live: Option<&Value>,
    ) -> (LiveVerdict<'r>, Option<String>) {
        let stands = drift::compare(subject, live, DryRunEvidence::None);
        let in_doubt = matches!(&stands, LiveVerdict::Drifted(drift) if drift.has_doubt());
        let Some(found) = live.filter(|_| self.settle && in_doubt) else { return (stands, None) };
        match self.reader.canonical(self.release, subject.object, found).await {
            Ok(canonical) => (drift::compare(subject, live, DryRunEvidence::Canonical(&canonical)), None),
            Err(error) => {
                // What the API server refuses to make of the object is not what it already is.
                let mut stands = match error.is_refusal() {
                    true => drift::compare(subject, live, DryRunEvidence::Unavailable),
                    false => stands,
                };
                if let (LiveVerdict::Drifted(drift), ClusterError::Obstructed { .. }) = (&mut stands, &error)
                {
                    drift::settle_obstructed(&mut drift.changes);
                }
                let is_settled = matches!(&stands, LiveVerdict::Drifted(drift) if !drift.is_doubt());
                (stands, (!is_settled).then(|| error.to_string()))
            }
        }
    }
}

/// The object with its certain differences restored, and the JSON Patch for that; `None` where it changes
/// nothing, or would show a secret.
fn restored(
    subject: &drift::LiveSubject<'_, '_>,
    drift: &LiveDrift<'_>,
    live: &Value,
) -> Option<(Value, Patch)> {
    let certain = || drift.changes.iter().filter(|field| field.agreement > FieldAgreement::Doubt);
    let mut restored = live.clone();
    let mask = subject.exceptions(drift.declared).mask(live);
    let mut moves = drift.declared.fields().moved(live);
    let is_undone = |it: &Move| !it.is_of_field() || certain().any(|field| it.concerns(&field.path));
    moves.retain(|it| !mask.covers(&it.live) && is_undone(it));
    DeclaredFields::put_back(&moves, &mut restored);
    drift.declared.fields().restore(certain().map(|field| &field.path), live, &mut restored);
    mask.carry(live, &mut restored);
    let patch = json_patch::diff(live, &restored);
    let is_hidden = |value: &Value| Shown::new(subject.object, &Path::default(), value).is_masked();
    let is_hidden = is_hidden(&json!(patch)) || is_hidden(live) || is_hidden(&restored);
    (!is_hidden && !patch.0.is_empty()).then_some((restored, patch))
}

impl ReleaseDiff {
    pub fn unread(release: ReleaseId, error: String) -> Self {
        Self { release, error: Some(error), ..Self::default() }
    }
}

/// The most fields of a release whose values are looked for, and the most time to spend on them.
const FIELDS: usize = 100;
const BUDGET: Duration = Duration::from_millis(500);

/// Adds to each field the likeliest chart values; to the report, if some were not looked for.
pub async fn add_chart_values(reader: &ClusterReader, release: &Release, report: &mut ReleaseDiff) {
    // Each field with its place in the report, and where a long value differs.
    let mut asked = Vec::new();
    for (at, object) in report.objects.iter().enumerate() {
        for (place, field) in object.fields.iter().enumerate() {
            let Ok(path) = field.path.parse::<Path>() else { continue };
            let below = field.difference.as_deref().map(|difference| difference.path.clone());
            asked.push(((at, place), object.object.clone(), path, below));
        }
    }
    if asked.is_empty() {
        return;
    }
    let is_all = asked.len() <= FIELDS;
    asked.truncate(FIELDS);
    let sources = reader.sources(release, &mut report.not_considered).await;
    // A large manifest would hold up the answers to others.
    let looking = tokio::task::spawn_blocking(move || {
        let (began, mut found) = (Instant::now(), Vec::new());
        for (place, object, path, below) in asked {
            if began.elapsed() > BUDGET {
                return (found, false);
            }
            let question = ValueQuestion { object: &object, path: &path, place: below.as_deref(), new: None };
            found.push((place, values::likeliest(values::candidates(&sources, question))));
        }
        (found, true)
    });
    let (found, is_done) = looking.await.unwrap_or_default();
    for ((object, field), candidates) in found {
        let object = report.objects.get_mut(object);
        if let Some(field) = object.and_then(|object| object.fields.get_mut(field)) {
            field.chart_values = candidates;
        }
    }
    if !(is_all && is_done) {
        let many =
            "too many fields drift to look for the chart values of all: run kubemoor explain for an object";
        report.not_considered.push(many.to_owned());
    }
}

/// The changes between two forms of an object as hunks of a unified diff; `None` where one of them cannot be written as
/// YAML. The caller makes sure that nothing secret is in the object.
fn hunks_between(live: &Value, declared: &Value) -> Option<String> {
    let yaml = |object: &Value| {
        let mut object = object.clone();
        // Users do not change these, and they are longer than the rest.
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        serde_saphyr::to_string(&object).ok()
    };
    let (live, declared) = (yaml(live)?, yaml(declared)?);
    Some(TextDiff::from_lines(&live, &declared).unified_diff().context_radius(3).to_string())
}

/// What upgrades left behind in these live objects. Earlier records are read only where a Secret holds a key that the
/// release does not declare.
async fn left_behind(
    reader: &ClusterReader,
    release: &Release,
    living: Vec<(&ObjectId, &Value)>,
) -> Vec<LeftBehindKey> {
    let has_others = |(object, live): &(&ObjectId, &Value)| {
        let Some(declared) = release.declared(object).filter(|_| is_secret(object)) else { return false };
        let fields = declared.fields();
        let is_declared =
            |key: &str| ["data", "stringData"].into_iter().any(|map| fields.get(&[map, key]).is_some());
        let data = live.get("data").and_then(Value::as_object);
        data.is_some_and(|data| data.keys().any(|key| !is_declared(key)))
    };
    let secrets: Vec<_> = living.into_iter().filter(has_others).collect();
    if secrets.is_empty() || release.state.revision < 2 || release.state.status != ReleaseStatus::Deployed {
        return Vec::new();
    }
    let sources = reader.sources(release, &mut Vec::new()).await;
    let of_object = |(object, live): (&ObjectId, &Value)| {
        chart_source::left_behind(&sources, object, live)
            .into_iter()
            .map(|it| LeftBehindKey {
                object: object.clone(),
                path: it.path.to_string(),
                revision: it.revision,
            })
            .collect::<Vec<_>>()
    };
    let mut found: Vec<_> = secrets.into_iter().flat_map(of_object).collect();
    found.sort_by(|one, other| (&one.object, &one.path).cmp(&(&other.object, &other.path)));
    found
}

impl LeftBehindKey {
    /// The key in a sentence, and the command that removes it.
    pub fn text(&self) -> String {
        let Self { object, path, revision } = self;
        let place =
            object.namespace.as_ref().map_or_else(String::new, |namespace| format!(" -n {namespace}"));
        format!(
            "{object} still holds {path}, which revision {revision} set by `stringData` and the chart no longer declares: \
             no upgrade removes it. To remove it: kubectl patch secret {}{place} --type json -p \
             '[{{\"op\": \"remove\", \"path\": \"{path}\"}}]'",
            object.name,
        )
    }
}

#[cfg(test)]
mod tests;
