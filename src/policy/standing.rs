//! Standing allowances: what a policy, or a chart by its annotations, lets be
//! changed without asking.
//!
//! Entry points: [`Standing::open`], [`Standing::admits`], [`of_manifest`].
//! Invariant: an annotation with a flaw allows nothing.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::allowance::Request;
use super::flaw::Flaw;
use super::grant::Grant;
use super::schedule::Schedule;
use super::subject::Subject;
use crate::declaration::fields::Fields;
use crate::helm::release::{AllowAnnotations, Declared};
use crate::model::{ALLOW, Actor};

/// A standing allowance.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Who gives it.
    pub origin: Origin,
    /// What may be changed.
    pub grant: Grant,
    /// When; always, where there is none.
    pub schedule: Option<Schedule>,
    /// Until when; for good, where there is none.
    pub until: Option<Timestamp>,
    /// By whom; by anyone, where nobody is named.
    pub subjects: Vec<Subject>,
}

/// Who gives a standing allowance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A policy.
    Policy {
        /// Its name.
        policy: String,
        /// The name of its rule.
        name: String,
    },
    /// The manifest's own annotations.
    Manifest {
        /// What its `kubemoor.dev/allow-reason` says.
        reason: Option<String>,
    },
}

impl Standing {
    /// Whether the allowance holds at `now`. That is all the loop asks, which
    /// does not know who changed a field.
    pub fn open(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
            && self.schedule.as_ref().is_none_or(|schedule| schedule.open(now))
    }

    /// Whether the allowance is for this actor.
    pub fn admits(&self, actor: &Actor) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|subject| subject.is(actor))
    }

    /// When [`Standing::open`] changes its answer next, or a time by which to
    /// ask again; none if it never does.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        if self.until.is_some_and(|until| until <= now) {
            return None;
        }
        let scheduled = self.schedule.as_ref().and_then(|schedule| schedule.next_change(now));
        scheduled.into_iter().chain(self.until).min()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { policy, name } => write!(f, "allowance {name} of policy {policy}"),
            Self::Manifest { reason: Some(reason) } => {
                write!(f, "annotation {ALLOW} of the chart ({reason})")
            }
            Self::Manifest { reason: None } => write!(f, "annotation {ALLOW} of the chart"),
        }
    }
}

/// What a manifest allows by its own annotations; none where it says nothing.
///
/// # Errors
/// What is wrong with them; then they allow nothing.
pub fn of_manifest(declared: &Declared) -> Result<Option<Arc<Standing>>, Vec<Flaw>> {
    let Some(AllowAnnotations { allow: Some(allow), until, reason }) = declared.allow.as_deref() else {
        return Ok(None);
    };
    let Request { grant, until, reason } = Request::read(allow, until.as_deref(), reason.as_deref())?;
    let origin = Origin::Manifest { reason };
    Ok(Some(Arc::new(Standing { origin, grant, schedule: None, until, subjects: Vec::new() })))
}

/// The allowance for one object: with the elements that it names by their
/// places named by their keys.
pub(super) fn placed(standing: &Arc<Standing>, fields: &Fields) -> Arc<Standing> {
    let Cow::Owned(mask) = standing.grant.mask.placed(fields) else { return Arc::clone(standing) };
    let grant = Grant { mask, deletes: standing.grant.deletes };
    Arc::new(Standing { grant, ..Standing::clone(standing) })
}

#[cfg(test)]
mod tests;
