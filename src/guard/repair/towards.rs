//! Repairs of a release whose last operation failed, towards the revision that was
//! deployed before it.
//!
//! Entry points: [`Towards::of`], `Task::release`, `Task::return_ownership`. Invariant:
//! only an order leads here; what agrees with the failed manifest is left alone, and no
//! value is written that the live object was not seen with.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::super::Shared;
use super::restore::Round;
use super::{Done, LOOK, Task};
use crate::cluster::releases::DocumentError;
use crate::declaration::digest::Digest;
use crate::helm::record::Status;
use crate::helm::release::{Declared, Release};
use crate::model::{DriftMode, ObjectId};
use crate::reconcile::drifts::{Drift, Drifts};
use crate::reconcile::judge::{Standing, weigh};
use crate::reconcile::plan::Plan;
use crate::reconcile::report::DriftKind;
use crate::verdict::edit::Evidence;

/// The revision to repair towards.
pub(in super::super) struct Towards {
    /// The release as it stands.
    failed: Arc<Release>,
    /// The release as it was deployed last.
    deployed: Arc<Release>,
}

/// Why there is no revision to repair towards.
pub(in super::super) enum Astray {
    /// No revision was deployed before, or its record cannot be believed: why.
    Nowhere(String),
    /// The API server did not let it be read in time: why.
    Unread(String),
}

impl Towards {
    /// The revision that was deployed before the operation that failed.
    ///
    /// # Errors
    /// When no revision was deployed before, or its record cannot be read.
    pub(in super::super) async fn of(shared: &Shared, failed: &Arc<Release>) -> Result<Self, Astray> {
        let declares = |object: &&ObjectId| {
            failed.objects.get(*object).is_some_and(|declarations| declarations.baseline.is_some())
        };
        let none = || Astray::Nowhere("no revision was deployed before it".to_owned());
        let revision = failed.baseline.as_ref().ok_or_else(none)?.revision;
        let any = failed.objects.keys().find(declares).ok_or_else(none)?;
        let document = shared.guard.releases.document(&failed.id, revision, any, LOOK).await;
        let document = document.map_err(|error| match error {
            DocumentError::NoRecord { .. } | DocumentError::Unbelievable { .. } => {
                Astray::Nowhere(error.to_string())
            }
            error => Astray::Unread(error.to_string()),
        })?;
        let deployed = failed.before(document.apply_method, document.digest).ok_or_else(none)?;
        Ok(Self { failed: Arc::clone(failed), deployed: Arc::new(deployed) })
    }

    /// The revision.
    pub(in super::super) fn revision(&self) -> u64 {
        self.deployed.state.revision
    }

    /// Whether that revision declares an object.
    pub(in super::super) fn declares(&self, object: &ObjectId) -> bool {
        self.deployed.objects.contains_key(object)
    }

    /// The objects that it declares, in order.
    pub(in super::super) fn objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<_> = self.deployed.objects.keys().cloned().collect();
        objects.sort();
        objects
    }
}

impl Task<'_> {
    /// The release that the object is repaired for; none if it is gone, or has moved on
    /// since the order.
    pub(super) fn release(&self) -> Option<Arc<Release>> {
        let now = self.shared.release(self.id)?;
        match self.towards {
            None => Some(now),
            Some(towards) => Arc::ptr_eq(&now, &towards.failed).then(|| Arc::clone(&towards.deployed)),
        }
    }

    /// The digest of the manifest that was first seen of the revision to repair towards. Of
    /// one that was deployed before only the last is known: each value that is written was
    /// seen in the live object all the same.
    pub(super) fn first_digest(&self, release: &Release, drifts: &Drifts) -> Option<[u8; 32]> {
        let first = drifts.first(self.id, release.state.revision).map(|first| first.digest);
        first.or_else(|| self.towards.map(|_| release.state.digest))
    }

    /// Whether a manifest of this status may be written.
    pub(super) fn is_to_write(&self, status: Status) -> bool {
        status == Status::Deployed || (self.towards.is_some() && status == Status::Superseded)
    }

    /// Whether a document of the revision that was deployed last is another one than the
    /// release knows: its manifest was not compared with the first that was seen.
    pub(super) fn is_other(&self, document: Option<&Value>, declared: &Declared) -> bool {
        self.towards.is_some() && document.map(Digest::of) != Some(declared.digest)
    }

    /// Returns the fields to Helm that somebody else owns, with the values that they have
    /// in the revision that was deployed last. Gives whether there were any.
    pub(in super::super) async fn return_ownership(&self) -> bool {
        let Some(situation) = self.situation_of(Drift::new(DriftKind::Ownership, Timestamp::now())) else {
            return false;
        };
        if situation.plan != Plan::Repair {
            return false;
        }
        let Some(target) = self.shared.target(&situation.release, self.object) else { return false };
        let Ok(Some(live)) = self.shared.guard.objects.read(&target).await else { return false };
        let (policy, circumstances) = (&situation.policy, &situation.circumstances);
        let now = Timestamp::now();
        // Ownership is part of the declaration for whoever orders a repair.
        let mut policy = (**policy).clone();
        policy.drift = DriftMode::Repair;
        let stands = weigh(&situation.release, &live, &policy, circumstances, Evidence::None, now);
        let Standing::Taken(taken, _) = stands else { return false };
        let round = self.give_back(&situation, &target, &live, &taken).await;
        matches!(round, Round::Done(Done::Repaired))
    }
}
