//! The result of a comparison, ready to be printed.
//!
//! Entry point: [`compare`]. Invariant: no report shows a Secret's values.

pub mod chart_values;
mod hunks;
pub mod object;

use futures::StreamExt;
use jiff::Timestamp;
use json_patch::Patch;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use self::object::{FieldReport, State};
use super::failure::spoken;
use super::forecast::{self, LeftBehind, ObjectConflict};
use super::reading::{Found, Reader, Surroundings};
use kubemoor_cluster::mirror::arbiter::ArbiterError;
use kubemoor_declare::compare::Move;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::{FieldChange, Fields};
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::record::{ApplyMethod, Status};
use kubemoor_helm::release::Release;
use kubemoor_helm::state;
use kubemoor_policy::Policy;
use kubemoor_policy::guarded::{DriftedObject, ObjectCounts};
use kubemoor_verdict::deletion;
use kubemoor_verdict::drift::{self, Drift, Live};
use kubemoor_verdict::edit::{Evidence, Owner};
use kubemoor_verdict::health::reported::ReportedHealth;
use kubemoor_verdict::health::{Control, Facts, Health, ObjectFacts, ObjectState, RecordFacts};
use kubemoor_verdict::ownership::{self, Conflict, Manager, NextUpgrade, Owners, Taken, Votes};
use kubemoor_verdict::shown::Shown;

/// Objects of one release that are read at once.
const OBJECTS_AT_ONCE: usize = 8;

/// Paths of one object that a reason names.
const PATHS: usize = 5;

/// One release.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseReport {
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
    pub health: Option<Health>,
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
    pub objects: Vec<ObjectReport>,
    /// What earlier upgrades left behind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehind>,
    /// The conflicts of the next upgrade, as `kubemoor forecast` lists them.
    #[serde(skip)]
    pub conflicts: Vec<ObjectConflict>,
}

/// One object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    #[serde(flatten)]
    pub object: ObjectId,
    pub state: State,
    /// Why it could not be compared, or its doubt not be settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the guard does not repair it, in the guard's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_repaired: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldReport>,
    /// What would make the live object as declared, as far as that is certain.
    /// Left out for Secrets: it would show their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// The same as hunks of a unified diff.
    #[serde(skip)]
    pub hunks: Option<String>,
}

/// What all comparisons of a release share.
struct Subject<'a> {
    reader: &'a Reader,
    release: &'a Release,
    policy: &'a Policy,
    surroundings: &'a Surroundings,
    settle: bool,
    /// Whether drift is repaired: then lost ownership of fields counts as drift.
    is_repaired: bool,
    /// The field managers that may be Helm's.
    votes: &'a Mutex<Votes>,
    now: Timestamp,
}

/// Holds every object of a release against its declaration.
pub async fn compare(
    reader: &Reader,
    release: &Release,
    settle: bool,
    now: Timestamp,
    step: &(dyn Fn() + Sync),
) -> ReleaseReport {
    let surroundings = reader.surroundings(release).await;
    let policy = reader.resolver.of(&release.id);
    let mut not_considered = surroundings.unread.clone();
    let (guard, drifts) = match reader.pulses.of(&release.id).await {
        Ok(told) => told.unzip(),
        Err(error) => {
            not_considered.push(format!("what the guard says of the release: {error}"));
            (None, None)
        }
    };
    not_considered.extend(reader.pulses.notes().await);
    // The guard's own flags count too, and only the status shows them.
    let repair = format!("{:?}", DriftMode::Repair);
    let is_repaired = guard.as_ref().map_or(policy.drift == DriftMode::Repair, |guard| guard.drift == repair);
    let (method, votes) = (release.state.apply_method, Votes::new(release.state.apply_method).into());
    let surroundings = &surroundings;
    let subject =
        Subject { reader, release, policy: &policy, surroundings, settle, is_repaired, votes: &votes, now };
    let looks: Vec<_> = release.objects.keys().map(|object| subject.object(object)).collect();
    let found: Vec<Look> = futures::stream::iter(looks)
        .buffer_unordered(OBJECTS_AT_ONCE)
        .inspect(|_| step())
        .filter_map(std::future::ready)
        .collect()
        .await;
    let compared = found.len();
    let helm = votes.lock().manager();
    let living = found.iter().filter_map(Look::living).collect();
    let left_behind = forecast::left_behind(reader, release, living).await;
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
    objects
        .sort_by(|left: &ObjectReport, right| (left.state, &left.object).cmp(&(right.state, &right.object)));
    conflicts.sort_by(|left, right| left.object.cmp(&right.object));
    if let Some(guard) = told {
        add_reasons(&mut objects, guard, &drifts, &release.id.namespace);
    }
    let facts = Facts {
        release: release.id.clone(),
        record: RecordFacts::of(release, policy.operation_timeout, now),
        control: Control::of(if is_repaired { DriftMode::Repair } else { DriftMode::Report }),
        declared: compared,
        objects: objects.iter().map(|it| ObjectFacts::new(it.object.clone(), it.state.health())).collect(),
        unwatched: Vec::new(),
    };
    let health = Health::of(&facts);
    ReleaseReport {
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
    }
}

/// Counts as drift what is in doubt here and what a dry run of the guard has shown to differ. The status names the first
/// fields with their live values: a field that has another value since stays in doubt.
fn settle_by_status(objects: &mut [ObjectReport], drifts: &[DriftedObject], home: &str) {
    let changed = ObjectState::Changed.as_str();
    for object in objects.iter_mut().filter(|object| object.state == State::InDoubt) {
        let is_it =
            |drift: &&DriftedObject| drift.r#type == changed && drift.object.id(home) == object.object;
        let Some(drift) = drifts.iter().find(is_it) else { continue };
        for field in &mut object.fields {
            let live = field.live.as_ref().map(ToString::to_string);
            if drift.fields.iter().any(|known| known.path == field.path && known.live == live) {
                field.doubt = false;
                (object.state, object.reason) = (State::Drifted, None);
            }
        }
    }
}

/// Adds to objects that drift why the guard does not repair them. Its status names the first ones.
fn add_reasons(objects: &mut [ObjectReport], guard: &ReportedHealth, drifts: &[DriftedObject], home: &str) {
    let is_drift = |object: &&mut ObjectReport| object.state.health().is_drift();
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
        let by_mode = by_mode.filter(|_| object.state != State::NotServed);
        object.not_repaired = why.or_else(|| by_mode.map(str::to_owned));
    }
}

/// The facts about one object.
struct Look {
    object: ObjectId,
    /// `None` where it is in sync.
    report: Option<ObjectReport>,
    /// The live object, where it was read.
    live: Option<Value>,
    /// Its fields that differ, or may.
    changes: Vec<FieldChange>,
}

impl Look {
    fn in_sync(object: &ObjectId) -> Self {
        Self { object: object.clone(), report: None, live: None, changes: Vec::new() }
    }

    fn of(object: &ObjectId, state: State, reason: Option<String>) -> Self {
        let (fields, patch, hunks, not_repaired) = (Vec::new(), None, None, None);
        let report =
            ObjectReport { object: object.clone(), state, reason, not_repaired, fields, patch, hunks };
        Self { report: Some(report), ..Self::in_sync(object) }
    }

    fn living(&self) -> Option<(&ObjectId, &Value)> {
        Some((&self.object, self.live.as_ref()?))
    }

    /// The report of the object, which says what the next upgrade does to each field, and the conflicts that the upgrade
    /// meets in it.
    fn report(
        self,
        release: &Release,
        by: (Option<&Manager>, ApplyMethod),
    ) -> (Option<ObjectReport>, Vec<ObjectConflict>) {
        let Self { object, mut report, live, changes } = self;
        let (Some(declared), Some(live)) = (release.declared(&object), &live) else {
            return (report, Vec::new());
        };
        let next = NextUpgrade::of(&object, &declared.fields(), live, by);
        if let Some(report) = report.as_mut().filter(|_| !changes.is_empty()) {
            let owners = Owners::of(live);
            let field = |field| FieldReport::of(&object, field, &owners, &next);
            report.fields = changes.into_iter().map(field).collect();
        }
        let of_object =
            |conflict: &Conflict| ObjectConflict { object: object.clone(), conflict: conflict.clone() };
        let conflicts = next.conflicts().iter().map(of_object).collect();
        (report, conflicts)
    }
}

impl Subject<'_> {
    /// The facts about an object; `None` where it is not declared now.
    async fn object(&self, object: &ObjectId) -> Option<Look> {
        let report = |state, reason| Look::of(object, state, reason);
        let timeout = self.policy.operation_timeout;
        let standing = state::standing(self.release, object, timeout, self.now)?;
        let version = self.release.declared(object).map(|declared| declared.version.clone())?;
        let circumstances = self.surroundings.of(self.release, object);
        let subject = drift::Subject {
            object,
            standing: &standing,
            policy: self.policy,
            circumstances: &circumstances,
            now: self.now,
        };
        let found = match self.reader.live(object, &version).await {
            Found::Object(live) => Some(live),
            Found::Absent => None,
            Found::NotServed => {
                let reason =
                    format!("the API server serves no {} in the group {:?}", object.kind, object.group);
                return Some(report(State::NotServed, Some(reason)));
            }
            Found::Unread(reason) => return Some(report(State::Unread, Some(reason))),
        };
        if let Some(owner) = self.other_owner(object, found.as_ref()).await {
            let reason = format!("release {} owns it", spoken(&owner));
            return Some(Look { live: found, ..report(State::Foreign, Some(reason)) });
        }
        if let (Some(live), ApplyMethod::ServerSide) = (&found, self.release.state.apply_method) {
            self.votes.lock().add(&Owners::of(live));
        }
        let (stands, reason) = self.settled(&subject, found.as_ref()).await;
        let look = match stands {
            Live::AsDeclared(agreed) => {
                let permitted = agreed.map(|agreed| agreed.permitted).unwrap_or_default();
                self.agreement(&subject, found.as_ref(), permitted)
            }
            Live::AsBefore | Live::Dropped => Look::in_sync(object),
            Live::OptedOut => report(State::OptedOut, None),
            Live::BeingDeleted => report(State::BeingDeleted, None),
            Live::Awaited if self.release.state.status == Status::Failed => report(State::NotCreated, None),
            Live::Awaited => report(State::Awaited, None),
            Live::Allowed => report(State::Allowed, None),
            Live::Expired => {
                let reason = "its ttlSecondsAfterFinished removes it after it has finished";
                report(State::Allowed, Some(reason.to_owned()))
            }
            Live::Missing => report(State::Missing, None),
            Live::Drifted(drift) => {
                let state = if drift.is_doubt() { State::InDoubt } else { State::Drifted };
                // The guard does not repair an object that is being deleted.
                let is_going = found.as_ref().is_some_and(deletion::is_underway);
                let reason = reason.or_else(|| is_going.then(|| "it is being deleted".to_owned()));
                let repairable = found.as_ref().filter(|_| !is_going);
                let restored = repairable.and_then(|live| restored(&subject, &drift, live));
                let hunks = found.as_ref().zip(restored.as_ref());
                let hunks = hunks.and_then(|(live, (restored, _))| hunks::hunks(live, restored));
                let patch = restored.map(|(_, patch)| patch);
                let Look { report, .. } = report(state, reason);
                let report = report.map(|report| ObjectReport { patch, hunks, ..report });
                Look { report, changes: drift.changes, ..Look::in_sync(object) }
            }
        };
        Some(Look { live: found, ..look })
    }

    /// The facts about an object that matches its declaration, but for fields at which an allowance permits it to
    /// differ; another field manager may own some of its fields.
    fn agreement(
        &self,
        subject: &drift::Subject<'_, '_>,
        live: Option<&Value>,
        permitted: Vec<FieldChange>,
    ) -> Look {
        let report = |state, reason| Look::of(subject.object, state, reason);
        let look = match live.and_then(|live| self.taken(subject, live)) {
            Some(Taken { by, paths, .. }) => {
                let paths: Vec<_> = paths.iter().take(PATHS).map(ToString::to_string).collect();
                let reason = format!("field manager {by} owns {}", paths.join(", "));
                report(State::Ownership, Some(reason))
            }
            None if !permitted.is_empty() => report(State::AllowedToDiffer, None),
            None => Look::in_sync(subject.object),
        };
        Look { changes: permitted, ..look }
    }

    /// The fields that another field manager than Helm's owns, where that is drift.
    fn taken(&self, subject: &drift::Subject<'_, '_>, live: &Value) -> Option<Taken> {
        if !self.is_repaired || self.release.state.status != Status::Deployed {
            return None;
        }
        let declared = self.release.declared(subject.object)?;
        let spared = subject.exceptions(declared).mask(live);
        ownership::taken(&declared.fields(), live, self.release.state.apply_method, &spared)
    }

    /// The other release that owns a live object: its annotations name it, and it declares
    /// the object. The guard holds the object to that one alone.
    async fn other_owner(&self, object: &ObjectId, live: Option<&Value>) -> Option<ReleaseId> {
        let owner = Owner::of(live?).release().filter(|owner| *owner != self.release.id)?;
        let other = self.reader.release(&owner).await.ok()?;
        other.declared(object).is_some().then_some(owner)
    }

    /// The health of the object, with the API server's answer to doubts where it is to be asked; and the
    /// error if it could not be asked.
    async fn settled<'r>(
        &self,
        subject: &drift::Subject<'_, 'r>,
        live: Option<&Value>,
    ) -> (Live<'r>, Option<String>) {
        let stands = drift::compare(subject, live, Evidence::None);
        let in_doubt = matches!(&stands, Live::Drifted(drift) if drift.has_doubt());
        let Some(found) = live.filter(|_| self.settle && in_doubt) else { return (stands, None) };
        match self.reader.canonical(self.release, subject.object, found).await {
            Ok(canonical) => (drift::compare(subject, live, Evidence::Canonical(&canonical)), None),
            Err(error) => {
                // What the API server refuses to make of the object is not what it already is.
                let mut stands = match error.is_refusal() {
                    true => drift::compare(subject, live, Evidence::Unavailable),
                    false => stands,
                };
                if let (Live::Drifted(drift), ArbiterError::Obstructed { .. }) = (&mut stands, &error) {
                    drift::settle_obstructed(&mut drift.changes);
                }
                let is_settled = matches!(&stands, Live::Drifted(drift) if !drift.is_doubt());
                (stands, (!is_settled).then(|| error.to_string()))
            }
        }
    }
}

/// The object with its certain differences restored, and the JSON Patch for that; `None` where it changes
/// nothing, or would show a secret.
fn restored(subject: &drift::Subject<'_, '_>, drift: &Drift<'_>, live: &Value) -> Option<(Value, Patch)> {
    let certain = || drift.changes.iter().filter(|field| field.agreement > Agreement::Doubt);
    let mut restored = live.clone();
    let mask = subject.exceptions(drift.declared).mask(live);
    let mut moves = drift.declared.fields().moved(live);
    let is_undone = |it: &Move| !it.is_of_field() || certain().any(|field| it.concerns(&field.path));
    moves.retain(|it| !mask.covers(&it.live) && is_undone(it));
    Fields::put_back(&moves, &mut restored);
    drift.declared.fields().restore(certain().map(|field| &field.path), live, &mut restored);
    mask.carry(live, &mut restored);
    let patch = json_patch::diff(live, &restored);
    let is_hidden = |value: &Value| Shown::of(subject.object, &Path::default(), value).is_masked();
    let is_hidden = is_hidden(&json!(patch)) || is_hidden(live) || is_hidden(&restored);
    (!is_hidden && !patch.0.is_empty()).then_some((restored, patch))
}

impl ReleaseReport {
    /// A release that could not be compared.
    pub fn unread(release: ReleaseId, error: String) -> Self {
        Self {
            release,
            revision: None,
            status: None,
            invalid: None,
            error: Some(error),
            guard: None,
            health: None,
            not_considered: Vec::new(),
            compared: 0,
            drifted: 0,
            counts: ObjectCounts::default(),
            objects: Vec::new(),
            left_behind: Vec::new(),
            conflicts: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
