//! Takes in what the watches of GuardedReleases tell.
//!
//! Entry point: `Statuses::take_in`. Invariant: each watch speaks for the releases of its own namespace, so one that is
//! broken stops no status of another. Must not write.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::known::Known;
use super::{Seen, Statuses};
use kubemoor_cluster::client::Event;
use kubemoor_cluster::client::call::CallError;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::GuardedRelease;

/// After an empty listing, the time in which a watch is established if the definition exists.
const GRACE: Duration = Duration::from_secs(5);

impl Statuses {
    /// Takes in an event of the watch of `namespace` (`None`: of all).
    pub(super) async fn take_in(
        &self,
        known: &mut Known,
        namespace: Option<Arc<str>>,
        event: Event<Box<GuardedRelease>>,
    ) {
        match event {
            Event::Relisting => known.following(&namespace).listing = Some(HashSet::new()),
            Event::Listed(guarded) => self.take_object(known, &namespace, guarded, true).await,
            Event::Applied(guarded) => self.take_object(known, &namespace, guarded, false).await,
            Event::Deleted(guarded) => {
                let Some(release) = guarded.release() else { return };
                self.resume(known, &release).await;
                known.live.remove(&release);
                known.due.look_at(release, Duration::ZERO);
            }
            Event::Synced => self.take_listing(known, &namespace).await,
            Event::Watching => {
                known.absent_at = None;
                known.writing.note_success();
                let following = known.following(&namespace);
                following.failures.note_success();
                // A watch that resumes where it ended has no news: it is opened again every few
                // minutes.
                if !std::mem::replace(&mut following.watched, true) {
                    self.look_at_all(known);
                }
            }
            Event::Broken(error) => note_broken(known, &namespace, &error),
        }
    }

    async fn take_object(
        &self,
        known: &mut Known,
        namespace: &Option<Arc<str>>,
        guarded: Box<GuardedRelease>,
        is_listed: bool,
    ) {
        let Some(release) = guarded.release() else { return };
        if let Some(listing) = &mut known.following(namespace).listing {
            listing.insert(release.clone());
        }
        // All are listed again every few minutes, and most are as they were.
        if is_listed && known.live.has(&release, &guarded) {
            return;
        }
        self.learn(&release, &guarded).await;
        self.obey(known, &release, &guarded).await;
        match is_listed {
            true => known.live.put(release.clone(), guarded),
            false => known.live.put_newer(release.clone(), guarded),
        }
        known.due.look_at(release, Duration::ZERO);
    }

    /// Takes in that a listing is whole.
    async fn take_listing(&self, known: &mut Known, namespace: &Option<Arc<str>>) {
        let is_here = |release: &ReleaseId| namespace.as_deref().is_none_or(|here| here == release.namespace);
        let listing = known.following(namespace).listing.take().unwrap_or_default();
        let held = known.live.releases().chain(known.suspended.keys());
        let gone: HashSet<_> =
            held.filter(|release| is_here(release) && !listing.contains(*release)).cloned().collect();
        for release in gone {
            self.resume(known, &release).await;
            known.live.remove(&release);
            known.due.look_at(release, Duration::ZERO);
        }
        if !std::mem::replace(&mut known.following(namespace).listed, true) {
            let here = known.live.all().filter(|guarded| guarded.release().as_ref().is_some_and(is_here));
            self.witness(here.map(|guarded| Seen::of(&guarded, false)).collect()).await;
        }
        if listing.is_empty() {
            known.following(namespace).watched = false;
            known.absent_at = Some(Instant::now() + GRACE);
        }
    }
}

fn note_broken(known: &mut Known, namespace: &Option<Arc<str>>, error: &CallError) {
    let following = known.following(namespace);
    following.watched = false;
    if following.failures.note_failure() {
        tracing::warn!("GuardedReleases cannot be watched, so their statuses are not kept: {error}");
    }
}
