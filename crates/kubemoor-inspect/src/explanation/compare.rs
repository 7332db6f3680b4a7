//! A comparison of an object with its manifest.
//!
//! Entry point: [`compare`]. Invariant: uses the same comparison and exceptions as the guard.

use std::sync::Arc;

use serde_json::Value;

use super::exceptions::Words;
use super::fields::{self, Field};
use kubemoor_helm::record::{ChartSource, Status};
use kubemoor_helm::release::{Declared, Release};
use kubemoor_policy::pattern::Pattern;
use kubemoor_verdict::drift::{self, Live};
use kubemoor_verdict::edit::Evidence;
use kubemoor_verdict::ownership::{self, NextUpgrade, Owners, Taken};

/// The state of an object that matches.
const AS_DECLARED: &str = "as declared";

/// The state of an object that an exception lets differ.
const ALLOWED_TO_DIFFER: &str = "differs, as an exception allows";

/// The state of an object that matches and that the next upgrade may fail on.
const TAKEN: &str = "as declared, but another field manager owns some of its fields";

/// The state of an object that should be there.
pub(crate) const MISSING: &str = "missing";

/// A comparison of an object with its manifest.
pub(crate) struct Comparison {
    pub(crate) state: &'static str,
    pub(crate) exceptions: Vec<String>,
    pub(crate) fields: Vec<Field>,
    /// The fields that another field manager than Helm's owns.
    pub(crate) taken: Option<Taken>,
}

/// The question about an object, and the facts about its release.
pub(crate) struct Asked<'a> {
    /// The requested fields; empty for all that differ from their declaration.
    pub(crate) patterns: &'a [Pattern],
    /// Whether the guard repairs drift of the release.
    pub(crate) is_repaired: bool,
    /// What its latest revisions were rendered from, newest first.
    pub(crate) sources: &'a [ChartSource],
}

/// Holds an object against its manifest.
pub(crate) fn compare(
    subject: &drift::Subject<'_, '_>,
    declared: &Arc<Declared>,
    live: Option<&Value>,
    Asked { patterns, is_repaired, sources }: Asked<'_>,
) -> Comparison {
    let release = subject.standing.release;
    let is_deployed = release.state.status == Status::Deployed;
    let exceptions = subject.exceptions(declared);
    let stands = drift::compare(subject, live, Evidence::None);
    let state = state_of(&stands, release);
    let is_held = is_repaired && is_deployed && matches!(stands, Live::AsDeclared(_));
    let taken = live.filter(|_| is_held).and_then(|live| {
        ownership::taken(&declared.fields(), live, release.state.apply_method, &exceptions.mask(live))
    });
    let words = Words { policy: subject.policy, object: subject.object, declared, now: subject.now };
    let asked = fields::Subject {
        object: subject.object,
        declared,
        live,
        exceptions: &exceptions,
        words,
        next_upgrade: live.map(|live| {
            // One object shows which field manager Helm uses.
            let method = release.state.apply_method;
            let helm = ownership::helms([&Owners::of(live)], method);
            NextUpgrade::of(subject.object, &declared.fields(), live, (helm.as_ref(), method))
        }),
        is_deployed,
        sources,
    };
    Comparison {
        state: if taken.is_some() { TAKEN } else { state },
        fields: asked.fields(patterns),
        exceptions: words.all(&exceptions),
        taken,
    }
}

impl Comparison {
    /// The comparison of an object without a declaration.
    pub(crate) fn of_nothing() -> Self {
        Self {
            state: "not managed, by the state of the record",
            exceptions: Vec::new(),
            fields: Vec::new(),
            taken: None,
        }
    }
}

/// The state of a live object of `release`, in a word.
fn state_of(live: &Live<'_>, release: &Release) -> &'static str {
    match live {
        Live::OptedOut => "opted out by its manifest",
        Live::BeingDeleted => "being deleted",
        Live::Awaited if release.state.status == Status::Failed => "not created: the Helm operation failed",
        Live::Awaited => "not there yet",
        Live::Dropped => "absent: the latest manifest does not declare it",
        Live::Allowed => "missing, as an exception allows",
        Live::Expired => "missing, as its ttlSecondsAfterFinished demands",
        Live::Missing => MISSING,
        Live::AsDeclared(Some(agreed)) if !agreed.permitted.is_empty() => ALLOWED_TO_DIFFER,
        Live::AsDeclared(_) => AS_DECLARED,
        Live::AsBefore => "as declared before the operation under way",
        Live::Drifted(drift) if drift.is_doubt() => "in doubt",
        Live::Drifted(_) => "drifted",
    }
}
