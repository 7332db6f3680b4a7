//! Standing allowances: changes that a policy, or a chart by its annotations, allows without a
//! request.
//!
//! Entry points: [`Standing::open`], [`Standing::admits`], [`of_manifest`]. Invariant: an
//! annotation with a flaw has no effect. Must not read a clock.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::allowance::Request;
use super::flaw::Flaw;
use super::grant::Grant;
use super::schedule::Schedule;
use super::subject::Subject;
use kubemoor_declare::fields::Fields;
use kubemoor_declare::model::{ALLOW, Actor};
use kubemoor_helm::release::{AllowAnnotations, Declared};

/// A standing allowance.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its origin.
    pub origin: Origin,
    /// The changes that are allowed.
    pub grant: Grant,
    /// The times at which it applies; always if `None`.
    pub schedule: Option<Schedule>,
    /// Its end; never if `None`.
    pub until: Option<Timestamp>,
    /// The users who may make the changes; all users if empty.
    pub subjects: Vec<Subject>,
}

/// The origin of a standing allowance.
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
        /// The text of its `kubemoor.dev/allow-reason`.
        reason: Option<String>,
    },
}

impl Standing {
    /// Whether the allowance is open at `now`. The loop checks nothing else, because it does not
    /// know which user changed a field.
    pub fn open(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
            && self.schedule.as_ref().is_none_or(|schedule| schedule.open(now))
    }

    /// Whether the allowance applies to this actor.
    pub fn admits(&self, actor: &Actor) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|subject| subject.is(actor))
    }

    /// The time at which [`Standing::open`] next changes its answer, or at which to ask again;
    /// `None` if it never does.
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

/// The allowance of a manifest's own annotations; `None` without such annotations.
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

/// The allowance for one object, with keys in place of the positions of list elements.
pub(super) fn placed(standing: &Arc<Standing>, fields: &Fields) -> Arc<Standing> {
    let Cow::Owned(mask) = standing.grant.mask.placed(fields) else { return Arc::clone(standing) };
    let grant = Grant { mask, deletes: standing.grant.deletes };
    Arc::new(Standing { grant, ..Standing::clone(standing) })
}

#[cfg(test)]
mod tests;
