//! Collects the facts about an object, and the advice.
//!
//! Entry point: [`of`].

mod facts;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

pub use self::facts::{PolicyFacts, ReleaseFacts};
use super::super::reading::{Found, Reader};
use super::advice::{self, Answered};
use super::compare::{Asked, Comparison, compare};
use super::fields::Field;
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_declare::outline::Excerpt;
use kubemoor_helm::release::{Declared, Release};
use kubemoor_helm::state;
use kubemoor_policy::Policy;
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::Pattern;
use kubemoor_verdict::drift;
use kubemoor_verdict::health::reported::ReportedHealth;
use kubemoor_verdict::message::{LiveWriters, Owner, Upgrade};

/// What may not be read where a right is missing.
pub const GUARD: &str = "the guard's status of the release";

/// The answer.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub object: ObjectId,
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyFacts>,
    /// What the guard says of the release: its policies, its flags and the emergency
    /// switch together; none where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<ReportedHealth>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<String>,
    /// What is wrong with the manifest's own annotations, which then allow nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flaws: Vec<String>,
    pub fields: Vec<Field>,
    /// What to do.
    pub advice: Vec<String>,
    /// What could not be read, and may change the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// The question, and the data that was read for it.
pub(crate) struct Inquiry {
    pub(crate) object: ObjectId,
    /// None where it is absent.
    pub(crate) live: Option<Value>,
    /// The release that declares it.
    pub(crate) release: Option<Arc<Release>>,
    /// The requested fields; empty for all that differ from their declaration.
    pub(crate) patterns: Vec<Pattern>,
}

/// What is known of an object.
pub(crate) async fn of(reader: &Reader, inquiry: Inquiry, now: Timestamp) -> Report {
    match inquiry.release.clone() {
        Some(release) => of_declared(reader, inquiry, &release, now).await,
        None => of_undeclared(reader, inquiry),
    }
}

fn of_undeclared(reader: &Reader, inquiry: Inquiry) -> Report {
    let Inquiry { object, live, .. } = inquiry;
    Report {
        state: if live.is_some() {
            "not managed by a release"
        } else {
            "absent, and not managed by a release"
        },
        release: None,
        policy: None,
        guard: None,
        exceptions: Vec::new(),
        flaws: Vec::new(),
        fields: Vec::new(),
        advice: advice::of_undeclared(&object),
        unread: reader.unread_records(object.namespace.as_deref()),
        object,
    }
}

async fn of_declared(reader: &Reader, inquiry: Inquiry, release: &Release, now: Timestamp) -> Report {
    let surroundings = reader.surroundings(release).await;
    let policy = reader.resolver.of(&release.id);
    let Inquiry { object, live, patterns, .. } = inquiry;
    let declared = release.declared(&object);
    // An element may be named by its place, as in a JSON Pointer.
    let patterns = match declared {
        Some(declared) => Mask(patterns).placed(&declared.fields()).into_owned().0,
        None => patterns,
    };
    let live = match (live, declared) {
        (Some(_), Some(declared)) => as_declared(reader, &object, declared).await,
        (live, _) => live,
    };
    let rules = declared.map(|declared| policy.rules(&object, declared)).unwrap_or_default();
    let mut unread = surroundings.unread.clone();
    let guard = told(reader, &release.id, &mut unread).await;
    let sources = reader.sources(release, &mut unread).await;
    let circumstances = surroundings.of(release, &object);
    let standing = state::standing(release, &object, policy.operation_timeout, now);
    let comparison = match (&standing, declared) {
        (Some(standing), Some(declared)) => {
            let (object, policy, circumstances) = (&object, &*policy, &circumstances);
            let subject = drift::Subject { object, standing, policy, circumstances, now };
            let is_repaired = is_repaired(guard.as_ref(), policy);
            let asked = Asked { patterns: &patterns, is_repaired, sources: &sources };
            compare(&subject, declared, live.as_ref(), asked)
        }
        _ => Comparison::of_nothing(),
    };
    let text = live.as_ref().map(Value::to_string);
    let writers = || text.as_deref().map(|text| LiveWriters::of(&Excerpt::of(text))).unwrap_or_default();
    let record = Some(&*release.latest);
    let owner = declared.map_or(Owner::Helm, |declared| Owner::of(&declared.fields(), record, writers));
    let upgrade = Upgrade { release: release.id.clone(), owner, chart: release.state.chart.clone() };
    let answered = Answered { object: &object, upgrade: &upgrade, patterns: &patterns };
    Report {
        state: comparison.state,
        release: Some(ReleaseFacts::of(release, &policy, now)),
        policy: Some(PolicyFacts::of(&policy)),
        flaws: rules.flaws.iter().map(ToString::to_string).collect(),
        advice: answered.advice(&comparison, &rules.sealed, guard.is_some()),
        exceptions: comparison.exceptions,
        fields: comparison.fields,
        guard,
        unread,
        object,
    }
}

/// The live object in the version in which it is declared.
async fn as_declared(reader: &Reader, object: &ObjectId, declared: &Declared) -> Option<Value> {
    match reader.live(object, &declared.version).await {
        Found::Object(live) => Some(live),
        Found::Absent | Found::NotServed | Found::Unread(_) => None,
    }
}

/// The guard's status of a release. Adds the reason to `unread` if it cannot be read.
async fn told(reader: &Reader, release: &ReleaseId, unread: &mut Vec<String>) -> Option<ReportedHealth> {
    let told = reader.pulses.of(release).await.unwrap_or_else(|error| {
        unread.push(format!("{GUARD} cannot be read: {error}"));
        None
    });
    unread.extend(reader.pulses.notes().await);
    told.map(|(health, _)| health)
}

/// Whether the guard repairs drift of the release. The guard's own flags count too, and only its status shows
/// them.
fn is_repaired(guard: Option<&ReportedHealth>, policy: &Policy) -> bool {
    let repair = format!("{:?}", DriftMode::Repair);
    guard.map_or(policy.drift == DriftMode::Repair, |guard| guard.drift == repair)
}
