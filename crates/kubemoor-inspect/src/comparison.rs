//! Compares the live objects of a release with their declarations, for `kubemoor diff`, `forecast` and the page. Also
//! finds the conflicts of the next Helm upgrade, and what earlier ones left behind. No report shows a Secret's values.

use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use json_patch::Patch;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;

use super::failure::describe_release;
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
    HealthFacts, ObjectFacts, ObjectState, RecordHealth, ReleaseHealth, RepairControl, ReportedHealth,
};
use kubemoor_verdict::owners::{FieldManager, HelmManagerTally, Owners};
use kubemoor_verdict::ownership::{self, Effect, FieldConflict, NextUpgrade, TakenFields};
use kubemoor_verdict::shown::{Difference, Shown};

const OBJECTS_AT_ONCE: usize = 8;

const PATHS: usize = 5;

/// The comparison of one release.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseDiff {
    #[serde(flatten)]
    pub release: ReleaseId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Why the latest record is invalid; the last valid one is used instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Why the release could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The status that the guard reports for the release; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<ReportedHealth>,
    /// The state of the release by this comparison.
    #[serde(skip)]
    pub health: Option<ReleaseHealth>,
    /// Sources that could not be read and might allow some of the differences, or declare other values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread_sources: Vec<String>,
    /// How many objects were compared.
    pub compared: usize,
    /// How many of them drifted.
    pub drifted: usize,
    /// The other objects, by state.
    pub counts: ObjectCounts,
    /// The objects that are not in sync, or could not be compared.
    pub objects: Vec<ObjectDiff>,
    /// The Secret keys that earlier upgrades left behind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehindKey>,
    /// The conflicts of the next upgrade, as `kubemoor forecast` lists them.
    #[serde(skip)]
    pub conflicts: Vec<ObjectConflict>,
    /// Helm's own field manager; omitted if no object has one.
    #[serde(skip)]
    pub manager: Option<String>,
}

/// The comparison of one object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDiff {
    #[serde(flatten)]
    pub object: ObjectId,
    pub state: ObjectDiffState,
    /// Why it could not be compared, or why a dry run gave no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the guard does not repair it, as the guard reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_repaired: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDiff>,
    /// The patch from the live object to the declared one, as far as it is certain. Omitted for Secrets,
    /// because it would show their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// The same patch, as hunks of a unified diff.
    #[serde(skip)]
    pub hunks: Option<String>,
}

/// The state of an object that is not in sync, or was not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub enum ObjectDiffState {
    /// Some fields differ from the manifest.
    Drifted,
    /// It does not exist.
    Missing,
    /// Some fields may differ from the manifest.
    InDoubt,
    /// Its fields match, but another field manager owns some of them.
    Ownership,
    /// A running Helm operation will create it.
    Awaited,
    /// The failed Helm operation did not create it.
    NotCreated,
    /// It does not exist, and an exception or its TTL allows that.
    Allowed,
    /// It differs, and an exception allows that.
    AllowedToDiffer,
    /// Another release owns it.
    Foreign,
    /// The manifest excludes it from the guard.
    OptedOut,
    /// It is being deleted.
    BeingDeleted,
    /// The API server does not serve its kind.
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
            Self::Awaited | Self::NotCreated => ObjectState::NotCreated,
            Self::Allowed | Self::AllowedToDiffer => ObjectState::Allowed,
            Self::Foreign => ObjectState::Foreign,
            Self::OptedOut => ObjectState::OptedOut,
            Self::BeingDeleted => ObjectState::Deleting,
            Self::Unread => ObjectState::Unread,
        }
    }
}

/// A declared field that differs, or may differ, from the manifest.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldDiff {
    pub path: String,
    pub what: FieldDiffKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Shown>,
    /// For long or nested values, the first place where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Box<Difference>>,
    pub in_doubt: bool,
    /// The field managers that own it.
    #[serde(skip)]
    pub owners: Vec<String>,
    /// The effect of the next Helm upgrade on it.
    #[serde(skip)]
    pub next_upgrade: Effect,
    /// The chart values that probably set it, if they were searched for.
    #[serde(skip)]
    pub chart_values: Vec<Candidate>,
}

/// How a field differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FieldDiffKind {
    /// Its value differs.
    Changed,
    /// It is absent.
    Removed,
    /// The list has no element with that key.
    ElementRemoved,
    /// The keys of the element were changed.
    ElementMoved,
    /// The list has several elements with that key.
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
            in_doubt: field.agreement == FieldAgreement::Doubt,
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

    /// The declared and the live value as text; for long values, only the part that differs.
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

/// A key that the chart dropped from a Secret's `stringData`, and that no upgrade removes.
#[derive(Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftBehindKey {
    pub object: ObjectId,
    /// The key, below `/data`.
    pub path: String,
    /// The last revision that declared it.
    pub revision: u64,
}

/// The inputs that all comparisons of a release share.
struct ReleaseObjects<'a> {
    reader: &'a ClusterReader,
    release: &'a Release,
    policy: &'a Policy,
    surroundings: &'a ReleaseInputs,
    settle: bool,
    /// Whether drift is repaired: then lost ownership of fields counts as drift.
    is_repaired: bool,
    /// The field managers that may be Helm's.
    votes: &'a Mutex<HelmManagerTally>,
    now: Timestamp,
}

/// Compares every object of a release with its declaration.
pub async fn compare(
    reader: &ClusterReader,
    release: &Release,
    settle: bool,
    now: Timestamp,
    step: &(dyn Fn() + Sync),
) -> ReleaseDiff {
    let surroundings = reader.release_inputs(release).await;
    let policy = reader.resolver.policy(&release.id);
    let mut unread_sources = surroundings.unread.clone();
    let (guard, drifts) = match reader.pulses.status(&release.id).await {
        Ok(told) => told.unzip(),
        Err(error) => {
            unread_sources.push(format!("the guard's status of the release: {error}"));
            (None, None)
        }
    };
    unread_sources.extend(reader.pulses.notes().await);
    let is_repaired = is_repaired(guard.as_ref(), &policy);
    let (method, votes) =
        (release.state.apply_method, HelmManagerTally::new(release.state.apply_method).into());
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
        control: RepairControl::by_mode(if is_repaired { DriftMode::Repair } else { DriftMode::Report }),
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
        unread_sources,
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

/// Marks an uncertain field as drifted if a dry run of the guard has shown the difference. The status names the first
/// fields with their live values: a field whose value has changed since then stays uncertain.
fn settle_by_status(objects: &mut [ObjectDiff], drifts: &[DriftedObject], home: &str) {
    let changed = ObjectState::Changed.as_str();
    for object in objects.iter_mut().filter(|object| object.state == ObjectDiffState::InDoubt) {
        let is_it =
            |drift: &&DriftedObject| drift.r#type == changed && drift.object.id(home) == object.object;
        let Some(drift) = drifts.iter().find(is_it) else { continue };
        for field in &mut object.fields {
            let live = field.live.as_ref().map(ToString::to_string);
            if drift.fields.iter().any(|known| known.path == field.path && known.live == live) {
                field.in_doubt = false;
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
    /// `None` if it is in sync.
    report: Option<ObjectDiff>,
    live: Option<Value>,
    /// Its fields that differ or may differ.
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

    /// The report of the object, with the effect of the next upgrade on each field, and the conflicts of that upgrade.
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
    /// Compares one object; `None` if it is not declared now.
    async fn object(&self, object: &ObjectId) -> Option<ComparedObject> {
        let report = |state, reason| ComparedObject::with_state(object, state, reason);
        let timeout = self.policy.operation_timeout;
        let standing = state::current_claim(self.release, object, timeout, self.now)?;
        let version = self.release.declared(object).map(|declared| declared.version.clone())?;
        let circumstances = self.surroundings.circumstances(self.release, object);
        let subject = drift::DriftContext {
            object,
            claim: &standing,
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
            let reason = format!("release {} owns it", describe_release(&owner));
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
            LiveVerdict::MatchesPrevious | LiveVerdict::Dropped => ComparedObject::in_sync(object),
            LiveVerdict::OptedOut => report(ObjectDiffState::OptedOut, None),
            LiveVerdict::BeingDeleted => report(ObjectDiffState::BeingDeleted, None),
            LiveVerdict::NotCreated if self.release.state.status == ReleaseStatus::Failed => {
                report(ObjectDiffState::NotCreated, None)
            }
            LiveVerdict::NotCreated => report(ObjectDiffState::Awaited, None),
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

    /// The result for an object that matches, except for fields where an exception permits a difference. Another field
    /// manager may own some of its fields.
    fn agreement(
        &self,
        subject: &drift::DriftContext<'_, '_>,
        live: Option<&Value>,
        permitted: Vec<FieldChange>,
    ) -> ComparedObject {
        let report = |state, reason| ComparedObject::with_state(subject.object, state, reason);
        let taken = live.filter(|_| self.is_repaired && self.release.state.status == ReleaseStatus::Deployed);
        let taken = taken.and_then(|live| {
            let declared = self.release.declared(subject.object)?;
            let spared = subject.exceptions(declared).mask(live);
            ownership::find_taken_fields(&declared.fields(), live, self.release.state.apply_method, &spared)
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

    /// The other release that owns a live object: the object's annotations name it, and it declares the object. The
    /// guard compares the object only with that release.
    async fn other_owner(&self, object: &ObjectId, live: Option<&Value>) -> Option<ReleaseId> {
        let owner = ObjectOwner::named_by(live?).release().filter(|owner| *owner != self.release.id)?;
        let other = self.reader.release(&owner).await.ok()?;
        other.declared(object).is_some().then_some(owner)
    }

    /// The verdict on an object. With `settle`, a dry run resolves uncertain differences; if it fails, its error is
    /// returned too.
    async fn settled<'r>(
        &self,
        subject: &drift::DriftContext<'_, 'r>,
        live: Option<&Value>,
    ) -> (LiveVerdict<'r>, Option<String>) {
        let stands = drift::compare(subject, live, DryRunEvidence::None);
        let in_doubt = matches!(&stands, LiveVerdict::Drifted(drift) if drift.has_doubt());
        let Some(found) = live.filter(|_| self.settle && in_doubt) else { return (stands, None) };
        match self.reader.canonical(self.release, subject.object, found).await {
            Ok(canonical) => (drift::compare(subject, live, DryRunEvidence::Canonical(&canonical)), None),
            Err(error) => {
                // If the API server rejects the declared object, the live object cannot already equal it.
                let mut stands = match error.is_refusal() {
                    true => drift::compare(subject, live, DryRunEvidence::Unavailable),
                    false => stands,
                };
                if let (LiveVerdict::Drifted(drift), ClusterError::BlockedByLiveObject { .. }) =
                    (&mut stands, &error)
                {
                    drift::settle_obstructed(&mut drift.changes);
                }
                let is_settled = matches!(&stands, LiveVerdict::Drifted(drift) if !drift.is_doubt());
                (stands, (!is_settled).then(|| error.to_string()))
            }
        }
    }
}

/// The live object with its certain differences reverted, and the JSON Patch for that; `None` if it changes nothing, or
/// would show a secret.
fn restored(
    subject: &drift::DriftContext<'_, '_>,
    drift: &LiveDrift<'_>,
    live: &Value,
) -> Option<(Value, Patch)> {
    let certain = || drift.changes.iter().filter(|field| field.agreement > FieldAgreement::Doubt);
    let mut restored = live.clone();
    let mask = subject.exceptions(drift.declared).mask(live);
    let mut moves = drift.declared.fields().moved(live);
    let is_undone = |it: &Move| !it.is_of_field() || certain().any(|field| it.concerns(&field.path));
    moves.retain(|it| !mask.covers(&it.live) && is_undone(it));
    DeclaredFields::undo_moves(&moves, &mut restored);
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

/// The limits of the search for chart values: the number of fields, and the time.
const FIELDS: usize = 100;
const BUDGET: Duration = Duration::from_millis(500);

/// Adds the likeliest chart values to each field, and a note to the report if some fields were skipped.
pub async fn add_chart_values(reader: &ClusterReader, release: &Release, report: &mut ReleaseDiff) {
    // Each field: its index in the report, and the path at which a long value differs.
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
    let sources = reader.sources(release, &mut report.unread_sources).await;
    // A large manifest would block an async worker thread.
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
            "too many fields drift to find the chart values of all: run kubemoor explain for one object";
        report.unread_sources.push(many.to_owned());
    }
}

/// The changes between two forms of an object as hunks of a unified diff; `None` if one of them cannot be written as
/// YAML. The caller makes sure that the object holds no secrets.
fn hunks_between(live: &Value, declared: &Value) -> Option<String> {
    let yaml = |object: &Value| {
        let mut object = object.clone();
        // Users do not edit `managedFields`, which are longer than the rest.
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        serde_saphyr::to_string(&object).ok()
    };
    let (live, declared) = (yaml(live)?, yaml(declared)?);
    Some(TextDiff::from_lines(&live, &declared).unified_diff().context_radius(3).to_string())
}

/// What upgrades left behind in these live objects. Earlier records are read only if a Secret holds a key that the
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
        chart_source::dropped_secret_keys(&sources, object, live)
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
