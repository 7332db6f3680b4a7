//! What a comparison found, ready to be written.
//!
//! Entry point: [`compare`]. Invariant: a Secret's values stand in no report.

use futures::StreamExt;
use indicatif::ProgressBar;
use jiff::Timestamp;
use json_patch::Patch;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::reading::{Found, Reader, Surroundings};
use crate::cluster::call::CallError;
use crate::cluster::guarded;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::{FieldChange, Fields};
use crate::declaration::path::{Path, Segment};
use crate::helm::release::Release;
use crate::helm::state;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::Policy;
use crate::policy::resource::Condition;
use crate::verdict::drift::{self, Drift, Live};
use crate::verdict::edit::Evidence;
use crate::verdict::shown::Shown;

/// Objects of one release that are read at once.
const OBJECTS_AT_ONCE: usize = 8;

/// The reason of a GuardedRelease of which the guard writes not all.
const UNCONFIRMED: &str = "Unconfirmed";

/// All releases that were compared.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) releases: Vec<ReleaseReport>,
}

/// One release.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReleaseReport {
    #[serde(flatten)]
    pub(super) release: ReleaseId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    /// Why the latest record does not count; an earlier one does then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) invalid: Option<String>,
    /// Why the release could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// What holds up repairs by the guard's own words: it has never seen the live
    /// objects as they are declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unconfirmed: Option<String>,
    /// What could not be read and may spare some of what is reported, or declare otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) not_considered: Vec<String>,
    /// How many objects were compared.
    pub(super) compared: usize,
    /// Those of them that are not in sync, and those that could not be compared.
    pub(super) objects: Vec<ObjectReport>,
}

/// One object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReport {
    #[serde(flatten)]
    pub(super) object: ObjectId,
    pub(super) state: State,
    /// Why it could not be compared, or its doubt not be settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<FieldReport>,
    /// What would make the live object as declared, as far as that is certain.
    /// Left out for Secrets: it would show their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch: Option<Patch>,
}

/// What is the matter with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum State {
    /// Some fields are not as declared.
    Drifted,
    /// It does not exist.
    Missing,
    /// Some fields may not be as declared.
    InDoubt,
    /// A Helm operation under way will make it.
    Awaited,
    /// It does not exist, as an open allowance permits.
    Allowed,
    /// The manifest opts it out.
    OptedOut,
    /// It is being deleted.
    BeingDeleted,
    /// The API server serves no such kind.
    NotServed,
    /// It could not be read.
    Unread,
}

/// One declared field that is not, or may not be, as declared.
#[derive(Debug, Serialize)]
pub(super) struct FieldReport {
    pub(super) path: String,
    pub(super) what: What,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) live: Option<Shown>,
    pub(super) doubt: bool,
}

/// What is the matter with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum What {
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

/// Holds every object of a release against its declaration.
pub(super) async fn compare(
    reader: &Reader,
    release: &Release,
    settle: bool,
    now: Timestamp,
    bar: &ProgressBar,
) -> ReleaseReport {
    let surroundings = reader.surroundings(release).await;
    let policy = reader.book.of(&release.id);
    let subject = Subject { reader, release, policy: &policy, surroundings: &surroundings, settle, now };
    let mut reports: Vec<Option<ObjectReport>> = futures::stream::iter(release.objects.keys())
        .map(|object| subject.object(object))
        .buffer_unordered(OBJECTS_AT_ONCE)
        .inspect(|_| bar.inc(1))
        .filter_map(std::future::ready)
        .collect()
        .await;
    let compared = reports.len();
    let mut objects: Vec<ObjectReport> = reports.drain(..).flatten().collect();
    objects.sort_by(|left, right| (left.state, &left.object).cmp(&(right.state, &right.object)));
    let mut not_considered = surroundings.unread.clone();
    let unconfirmed = match objects.is_empty() {
        true => None,
        false => unconfirmed(reader, &release.id).await.unwrap_or_else(|error| {
            not_considered.push(format!("what the guard says of the release: {error}"));
            None
        }),
    };
    ReleaseReport {
        release: release.id.clone(),
        revision: Some(release.state.revision),
        status: Some(release.state.status.to_string()),
        invalid: release.invalid.as_ref().map(|invalid| format!("{}: {}", invalid.secret, invalid.reason)),
        error: None,
        unconfirmed,
        not_considered,
        compared,
        objects,
    }
}

/// What the guard says of a release whose declared values it has never seen.
async fn unconfirmed(reader: &Reader, release: &ReleaseId) -> Result<Option<String>, CallError> {
    let guarded = guarded::get(&reader.connection.client, release).await?;
    let conditions = guarded.and_then(|guarded| guarded.status).map(|status| status.conditions);
    let is_it = |condition: &Condition| condition.r#type == "Ready" && condition.reason == UNCONFIRMED;
    Ok(conditions.unwrap_or_default().into_iter().find(is_it).map(|condition| condition.message))
}

/// What all comparisons of a release share.
struct Subject<'a> {
    reader: &'a Reader,
    release: &'a Release,
    policy: &'a Policy,
    surroundings: &'a Surroundings,
    settle: bool,
    now: Timestamp,
}

impl Subject<'_> {
    /// What is the matter with an object: `None` where it is not declared now,
    /// `Some(None)` where it is in sync.
    async fn object(&self, object: &ObjectId) -> Option<Option<ObjectReport>> {
        let report = |state, reason| {
            let fields = Vec::new();
            Some(Some(ObjectReport { object: object.clone(), state, reason, fields, patch: None }))
        };
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
                return report(State::NotServed, Some(reason));
            }
            Found::Unread(reason) => return report(State::Unread, Some(reason)),
        };
        let (stands, reason) = self.settled(&subject, found.as_ref()).await;
        match stands {
            Live::AsDeclared(_) | Live::AsBefore => Some(None),
            Live::OptedOut => report(State::OptedOut, None),
            Live::BeingDeleted => report(State::BeingDeleted, None),
            Live::Awaited => report(State::Awaited, None),
            Live::Allowed => report(State::Allowed, None),
            Live::Missing => report(State::Missing, None),
            Live::Drifted(drift) => {
                let state = if drift.is_doubt() { State::InDoubt } else { State::Drifted };
                let patch = found.as_ref().and_then(|live| patch(&subject, &drift, live));
                let fields = drift.changes.into_iter().map(|field| FieldReport::of(object, field)).collect();
                Some(Some(ObjectReport { object: object.clone(), state, reason, fields, patch }))
            }
        }
    }

    /// How the object stands, with what the API server says of doubts where it
    /// is to be asked; and why it could not be.
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
            Err(reason) => (stands, Some(reason)),
        }
    }
}

/// The JSON Patch that sets back what differs for certain.
fn patch(subject: &drift::Subject<'_, '_>, drift: &Drift<'_>, live: &Value) -> Option<Patch> {
    let certain = drift.changes.iter().filter(|field| field.agreement > Agreement::Doubt);
    let mut restored = live.clone();
    let mask = subject.exceptions(drift.declared).mask(live);
    let mut moves = drift.declared.fields.moved(live);
    moves.retain(|it| !mask.covers(&it.live));
    Fields::put_back(&moves, &mut restored);
    drift.declared.fields.restore(certain.map(|field| &field.path), live, &mut restored);
    mask.carry(live, &mut restored);
    let patch = json_patch::diff(live, &restored);
    let is_hidden = Shown::of(subject.object, &Path::default(), &json!(patch)).is_masked();
    (!is_hidden && !patch.0.is_empty()).then_some(patch)
}

impl FieldReport {
    fn of(object: &ObjectId, field: FieldChange) -> Self {
        let shown = |value: &Option<Value>| value.as_ref().map(|value| Shown::of(object, &field.path, value));
        let what = match (field.path.0.last(), &field.new) {
            (Some(Segment::Element(_)), _) => What::ElementRemoved,
            (Some(Segment::Key(_)), None) if field.declared.is_none() => What::ElementRemoved,
            (Some(Segment::Key(_)), Some(Value::Object(_))) if field.declared.is_none() => What::ElementMoved,
            (Some(Segment::Key(_)), Some(_)) if field.declared.is_none() => What::ElementRepeated,
            (_, None) => What::Removed,
            (_, Some(_)) => What::Changed,
        };
        Self {
            what,
            declared: shown(&field.declared),
            live: shown(&field.new),
            doubt: field.agreement == Agreement::Doubt,
            path: field.path.to_string(),
        }
    }
}

impl ReleaseReport {
    /// A release that could not be compared.
    pub(super) fn unread(release: ReleaseId, error: String) -> Self {
        Self {
            release,
            revision: None,
            status: None,
            invalid: None,
            error: Some(error),
            unconfirmed: None,
            not_considered: Vec::new(),
            compared: 0,
            objects: Vec::new(),
        }
    }

    /// How many objects are in a state.
    pub(super) fn count(&self, state: State) -> usize {
        self.objects.iter().filter(|object| object.state == state).count()
    }

    /// How many objects have drifted or are missing.
    pub(super) fn drifted(&self) -> usize {
        self.count(State::Drifted) + self.count(State::Missing)
    }
}

impl Report {
    /// Whether anything has drifted.
    pub(super) fn has_drift(&self) -> bool {
        self.releases.iter().any(|release| release.drifted() > 0)
    }

    /// Whether it is in doubt of anything whether it has.
    pub(super) fn has_doubt(&self) -> bool {
        self.releases.iter().any(|release| release.count(State::InDoubt) > 0)
    }

    /// A sentence for each release and each object that could not be read, and
    /// each doubt that was to be settled and could not be.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        self.releases.iter().flat_map(|release| {
            let sentence = |object: &ObjectReport| {
                let reason = object.reason.as_deref()?;
                let what = match object.state {
                    State::Unread => "read",
                    State::Drifted | State::InDoubt => "settle the doubt about",
                    _ => return None,
                };
                Some(format!("cannot {what} {}: {reason}", object.object))
            };
            let objects: Vec<_> = release.objects.iter().filter_map(sentence).collect();
            release.error.clone().into_iter().chain(objects)
        })
    }
}
