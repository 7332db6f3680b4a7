//! Holds what drifts against the brake.
//!
//! Entry points: `Task::waits` before a repair, [`ease`] when a person asks for
//! one. Invariant: what an operation of Helm's takes away, or never comes back,
//! does not count.

use std::time::Duration;

use jiff::Timestamp;

use super::super::Shared;
use super::super::pass::RETRY;
use super::Task;
use crate::helm::record::Status;
use crate::helm::release::Release;
use crate::model::{DriftMode, ObjectId, ReleaseId};
use crate::policy::agreement::Declaration;
use crate::reconcile::brake::{Drifting, Pull, Reach};
use crate::reconcile::drifts::Life;
use crate::reconcile::plan::never;
use crate::reconcile::report::DriftKind;

/// When the brake is looked at again that may be slipping.
const SLIPPING: Duration = Duration::from_secs(1);

/// Whether so much drifts at once that repairs of a release stop.
fn braked(shared: &Shared, release: &ReleaseId) -> Pull {
    let drifting = drifting(shared, None);
    let namespace = &release.namespace;
    let pull = shared.repairer.brake.lock().pull(namespace, &drifting, Timestamp::now());
    let (total, declared) = (drifting.total(), drifting.declared);
    match pull {
        Pull::Sets(Reach::Cluster) => tracing::error!(
            "{total} of {declared} declared objects drift at once: repairs stop until a person asks for one"
        ),
        Pull::Sets(Reach::Namespace) => {
            let there = drifting.of(namespace);
            tracing::error!(
                release.namespace = %namespace,
                "{there} of {declared} declared objects drift at once, all of releases in namespace {namespace}: their repairs stop until a person asks for one"
            );
        }
        Pull::Free | Pull::Slipping | Pull::On => {}
    }
    pull
}

/// A person asks for repairs of `release`: the brake goes off if that is most
/// of what drifts. Gives whether it does.
pub(in super::super) fn ease(shared: &Shared, release: &ReleaseId) -> bool {
    let drifting = drifting(shared, Some(release));
    let eased = shared.repairer.brake.lock().ease(&release.namespace, &drifting);
    if eased {
        tracing::info!(release.id = %release, "repairs go on");
    }
    eased
}

/// What drifts and could be repaired, but for one release. What a record alone says
/// must stop nobody's repairs.
fn drifting(shared: &Shared, but: Option<&ReleaseId>) -> Drifting {
    let index = shared.guard.releases.index().read();
    let is_confirmed = |release: &Release, object: &ObjectId, life: &Life| {
        let digest = release.declared(object).and_then(|declared| declared.digest.as_ref());
        let declaration =
            digest.map(|digest| Declaration { release: &release.id, object, digest, seal: None });
        let agreed = life.agreed.as_ref().zip(declaration);
        agreed
            .is_some_and(|(agreement, declaration)| life.is_with(&shared.guard.key, agreement, &declaration))
    };
    let counts = |id: &ReleaseId, object: &ObjectId, life: &Life| {
        let Some(release) = index.release(id).filter(|_| but != Some(id)) else { return false };
        let policy = shared.guard.book.of(id);
        let kind = if life.alive { DriftKind::Changed } else { DriftKind::Missing };
        release.state.status == Status::Deployed
            && policy.drift == DriftMode::Repair
            && release.declared(object).is_some_and(|declared| {
                !declared.opted_out && shared.guard.kinds.target(object, &declared.version).is_some()
            })
            && never(release, object, kind, policy.repair).is_none()
            && is_confirmed(release, object, life)
    };
    let by_namespace = shared.drifts.lock().count(counts);
    Drifting { by_namespace, declared: index.objects() }
}

impl Task<'_> {
    /// How long the object has to wait for its turn; none if it need not.
    pub(super) fn waits(&self) -> Option<Duration> {
        match braked(self.shared, self.id) {
            Pull::Free => {}
            Pull::Slipping => return Some(SLIPPING),
            Pull::Sets(_) | Pull::On => {
                self.keep(Some("so much drifts at once that repairs have stopped"));
                return Some(RETRY * 12);
            }
        }
        let (wait, contested) = {
            let (backoff, now) = (self.shared.repairer.backoff.lock(), Timestamp::now());
            (backoff.until(self.object, now), backoff.is_contested(self.object, now))
        };
        if wait.is_some() && contested {
            self.contest();
        }
        wait
    }

    /// Somebody undoes what was done, again and again.
    fn contest(&self) {
        let by = {
            let mut drifts = self.shared.drifts.lock();
            let Some(drift) = drifts.get_mut(self.id, self.object) else { return };
            if matches!(drift.repaired, Some(Err(_))) || std::mem::replace(&mut drift.contested, true) {
                return;
            }
            drift.by.clone()
        };
        let by = by.unwrap_or_else(|| "somebody who left no name".to_owned());
        tracing::warn!(
            release.id = %self.id, drift.object = %self.object, drift.by = by,
            "{} is changed back each time it is repaired, by {by}: the guard waits longer and longer",
            self.object
        );
    }
}
