//! One look at all that concerns a release: suspects are read and judged, then
//! drifts are put right or reported, one object after the other in Helm's
//! order.
//!
//! Entry point: [`pass`]. Invariant: while an operation is under way nothing is
//! read or written; a replica that does not lead reads and never writes.

mod ordered;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::observe::{Source, observe};
use super::repair::{AGAIN, Astray, Done, Task, Towards, attempt};
use super::{Shared, report};
use crate::cluster::call::CallError;
use crate::cluster::objects::Target;
use crate::helm::record::Status;
use crate::helm::release::Release;
use crate::helm::state;
use crate::model::{DriftMode, ObjectId, ReleaseId};
use crate::reconcile::drifts::{Drifts, Suspect};
use crate::reconcile::install_order;
use crate::reconcile::live::Live;
use crate::verdict::drift::{self, Subject};
use crate::verdict::edit::Evidence;

/// How long a failed attempt waits for the next.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// How long the guard waits where it lacks the right to read: a watch tells when it has it.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// How long the guard waits for a kind that nobody serves: it may be on its way.
pub(super) const UNSERVED: Duration = Duration::from_secs(15);

/// Looks at all that concerns `id` and says it. Gives the time after which to
/// look again, if any.
pub(super) async fn pass(shared: &Arc<Shared>, id: &ReleaseId) -> Option<Duration> {
    let again = work(shared, id).await;
    report::publish(shared, id);
    again
}

async fn work(shared: &Arc<Shared>, id: &ReleaseId) -> Option<Duration> {
    let release = shared.release(id)?;
    ordered::answer_at_once(shared, &release);
    if release.state.status.is_pending() || release.state.status == Status::Uninstalling {
        return until_locked(shared, &release);
    }
    let mut wish = shared.asked.lock().take(id);
    let mut unfinished = HashSet::new();
    let mut again: Option<Duration> = None;
    let mut later = |done: Done| {
        if let Done::Later(delay) = done {
            again = Some(again.map_or(delay, |again| again.min(delay)));
        }
    };
    let suspects = shared.drifts.lock().suspects(id);
    for (object, suspect) in in_order(suspects) {
        if shared.stop.is_cancelled() {
            return None;
        }
        let done = look(shared, &release, &object, suspect).await;
        // What may not be read is said of the release, and holds up no order.
        let is_open = matches!(done, Done::Later(delay) if delay < FORBIDDEN);
        if is_open && wish.as_ref().is_some_and(|wish| wish.means(&object)) {
            unfinished.insert(object);
        }
        later(done);
    }
    let towards = match &wish {
        Some(wish) if release.state.status == Status::Failed => match Towards::of(shared, &release).await {
            Ok(towards) => Some(towards),
            Err(Astray::Nowhere(why)) => {
                ordered::refuse(shared, &release, &wish.at, &why);
                return again;
            }
            Err(Astray::Unread(why)) => {
                ordered::postpone(shared, &release, wish.clone(), &why);
                return Some(again.map_or(RETRY, |again| again.min(RETRY)));
            }
        },
        _ => None,
    };
    let drifts = shared.drifts.lock().of(id);
    for (object, _) in in_order(drifts) {
        if shared.stop.is_cancelled() || !shared.leads() {
            return None;
        }
        let asked = wish.as_ref().is_some_and(|wish| wish.means(&object));
        let ticket = wish.as_ref().and_then(|wish| wish.ticket.clone());
        let (ticket, towards) = (ticket.as_deref(), towards.as_ref().filter(|_| asked));
        let done = attempt(&Task { shared, id, object: &object, asked, ticket, towards }).await;
        // What has failed was done once, as it was asked for.
        let failed = {
            let mut drifts = shared.drifts.lock();
            drifts.get_mut(id, &object).is_some_and(|it| it.repaired.is_some())
        };
        if asked && !failed && matches!(done, Done::Later(_)) {
            unfinished.insert(object);
        } else if let Some(wish) = wish.as_mut().filter(|_| asked && matches!(done, Done::Repaired)) {
            wish.repaired.insert(object);
        }
        later(done);
    }
    if let Some(wish) = wish {
        ordered::carried_out(shared, &release, wish, unfinished, towards.as_ref()).await;
    }
    again
}

/// Reads one object and judges it.
async fn look(shared: &Arc<Shared>, release: &Release, object: &ObjectId, suspect: Suspect) -> Done {
    let Some(declared) = release.declared(object) else {
        shared.drifts.lock().is_undeclared(&release.id, object);
        return Done::Settled;
    };
    let unserved = || {
        // Nothing exists of a kind that stays away.
        if Timestamp::now().duration_since(suspect.since)
            >= SignedDuration::try_from(UNSERVED).unwrap_or_default()
        {
            is_gone(shared, release, object, suspect.since);
            return Done::Settled;
        }
        Done::Later(UNSERVED)
    };
    let Some(target) = shared.guard.kinds.target(object, &declared.version) else { return unserved() };
    match shared.guard.objects.read(&target).await {
        Ok(Some(live)) => {
            if !take_in(shared, &release.id, &live, &target.resource.version) {
                return Done::Later(AGAIN);
            }
            // Nobody's, by now.
            let mut drifts = shared.drifts.lock();
            if drifts.is_suspect(&release.id, object) {
                drifts.is_undeclared(&release.id, object);
            }
            Done::Settled
        }
        // Meanwhile a watch has told that it is there.
        Ok(None) if !shared.drifts.lock().is_suspect(&release.id, object) => Done::Settled,
        Ok(None) => {
            is_gone(shared, release, object, suspect.since);
            Done::Settled
        }
        Err(CallError::Unserved) => unserved(),
        Err(error) if error.is_forbidden() => Done::Later(FORBIDDEN),
        Err(_) => Done::Later(RETRY),
    }
}

/// Takes in an object that was read for a release, in `version`. Others whom it
/// concerns look as well. Gives whether it counts, or is known better by now.
pub(super) fn take_in(shared: &Arc<Shared>, id: &ReleaseId, live: &Live, version: &str) -> bool {
    let Some(concerned) = observe(shared, live, version, Source::Answer) else { return false };
    concerned.into_iter().filter(|other| other != id).for_each(|other| shared.attend(other));
    true
}

/// Notes that an object does not exist, if that is drift.
pub(super) fn is_gone(shared: &Shared, release: &Release, object: &ObjectId, since: Timestamp) {
    let (policy, now) = (shared.guard.book.of(&release.id), Timestamp::now());
    let standing = state::standing(release, object, policy.operation_timeout, now);
    let circumstances = shared.circumstances(release, object);
    let stands = standing.as_ref().filter(|_| policy.drift != DriftMode::Ignore).map(|standing| {
        let subject = Subject { object, standing, policy: &policy, circumstances: &circumstances, now };
        drift::compare(&subject, None, Evidence::None)
    });
    let mut drifts = shared.drifts.lock();
    // An earlier guard may have seen it under this seal, and this one has never seen it alive.
    if let Some(declared) = release.declared(object) {
        drifts.seal(object, policy.rules(object, declared).seal());
    }
    match stands {
        None | Some(drift::Live::OptedOut) => {
            drifts.is_undeclared(&release.id, object);
        }
        // What the failed operation alone declares was never there.
        Some(drift::Live::Awaited) if release.state.status == Status::Failed => {
            drifts.is_gone(&release.id, object, since);
            drifts.recovered(&release.id, object);
        }
        Some(stands) => {
            drifts.is_gone(&release.id, object, since);
            if let Some(drift) = drifts.get_mut(&release.id, object) {
                drift.allowed = matches!(stands, drift::Live::Allowed);
            }
        }
    }
}

/// The time until an operation counts as dead, plus a moment.
fn until_locked(shared: &Shared, release: &Release) -> Option<Duration> {
    let timeout = SignedDuration::try_from(shared.guard.book.of(&release.id).operation_timeout).ok()?;
    let left = timeout - Timestamp::now().duration_since(release.state.touched.max(release.state.created));
    let left = Duration::try_from(left).ok()?;
    Some(left + Duration::from_secs(1))
}

fn in_order<T>(mut objects: Vec<(ObjectId, T)>) -> Vec<(ObjectId, T)> {
    objects.sort_by(|(a, _), (b, _)| {
        (install_order::place(&a.kind), a).cmp(&(install_order::place(&b.kind), b))
    });
    objects
}

impl Shared {
    /// Where a declared object lives.
    pub(super) fn target(&self, release: &Release, object: &ObjectId) -> Option<Target> {
        self.guard.kinds.target(object, &release.declared(object)?.version)
    }

    /// Has a release's objects judged again, all that it declares.
    pub(super) fn suspect_all(&self, id: &ReleaseId) {
        let Some(release) = self.release(id) else { return };
        let mut drifts = self.drifts.lock();
        suspect_all(&mut drifts, &release);
    }
}

fn suspect_all(drifts: &mut Drifts, release: &Release) {
    for object in release.objects.keys() {
        drifts.suspect(&release.id, object.clone(), Timestamp::now());
    }
}
