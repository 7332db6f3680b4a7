//! Creates and deletes GuardedReleases with their releases, writes their statuses, and passes the orders in their specs
//! to the loop.
//!
//! A status is written only when its content changes, and at most once per `PAUSE`. What the loop has seen is the
//! exception: it is written first, without a wait, and before the guard ends, since no other process may know it. Only
//! the leader writes. Each watch covers the releases of its own namespace, so a broken one stops no status of another
//! namespace. A missing CustomResourceDefinition is logged once and has no other effect.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::summary::{StatusContext, summary};
pub use self::suspension_recorder::{SuspensionRecorder, SuspensionSeen};
use crate::LiveCluster;
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::guarded::{self, GuardedReleases};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::watch::ObjectEvent;
use kubemoor_cluster::mirror::policies::ActivePolicies;
use kubemoor_cluster::mirror::{ChangeQueue, GuardedWatch, until};
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::packed::Compressed;
use kubemoor_policy::guarded::{
    GuardedRelease, GuardedReleaseStatus, LeaseReference, OrderAnswer, OrderResult, SuspendedReleases,
    Suspension,
};
use kubemoor_policy::signing::{CONFIRMED_BY, SigningKey, Ticket, TicketOrder};
use kubemoor_reconcile::event::LoopOrder;
use kubemoor_reconcile::waits::backoff_delay;
use kubemoor_runtime::metrics::{NoticeMetrics, StatusWrite};
use kubemoor_runtime::telemetry::FailureLog;

mod summary;
mod suspension_recorder;

const PAUSE: Duration = Duration::from_secs(2);

/// The time in which agreements of one release are collected before they are written.
const COLLECTED: Duration = Duration::from_millis(100);

/// How long a stopping guard may write pending agreements.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// After an empty listing, the time in which a watch is established if the definition exists.
const GRACE: Duration = Duration::from_secs(5);

/// The pause after a failed write; each further failure makes it longer, up to [`LONGEST`].
const AGAIN: Duration = Duration::from_secs(10);

const LONGEST: Duration = Duration::from_secs(300);

pub struct Statuses {
    pub guarded: GuardedReleases,
    pub cluster: Arc<LiveCluster>,
    pub in_force: Arc<ActivePolicies>,
    pub commands: mpsc::Sender<LoopOrder>,
    /// The releases whose repairs are suspended from the start.
    pub suspended: SuspendedReleases,
    pub leadership: Leadership,
    pub metrics: NoticeMetrics,
    pub key: SigningKey,
    /// The Lease that this guard renews, which shows readers that statuses are maintained.
    pub lease: Option<LeaseReference>,
    /// Publishes the number of statuses that still have to be compared, and written if they differ.
    pub due: watch::Sender<usize>,
    /// Leads to the [`SuspensionRecorder`], which records suspensions that no review reported.
    pub seen: mpsc::Sender<Vec<SuspensionSeen>>,
}

impl Statuses {
    /// Maintains GuardedReleases until `stop`, which the end of the loop triggers; then writes the last agreements.
    pub async fn run(self, stop: CancellationToken) {
        let mut known = StatusKnowledge { suspended: self.suspended.clone(), ..StatusKnowledge::default() };
        let agreements = self.cluster.state.agreements();
        self.keep(&mut known, &agreements, &stop).await;
        if tokio::time::timeout(LAST_WRITES, self.write_last(&mut known, &agreements)).await.is_err() {
            tracing::warn!(
                "stopping before all statuses are written: objects that change while no guard runs may become Unconfirmed"
            );
        }
    }

    async fn write_last(&self, known: &mut StatusKnowledge, agreements: &ChangeQueue<ReleaseId>) {
        loop {
            while let Some(release) = agreements.take() {
                known.due.schedule_check_first(release, Duration::ZERO);
            }
            let Some(release) = known.due.pop_of(true) else { return };
            self.reconcile_guarded_release(known, &release, true).await;
        }
    }

    async fn keep(
        &self,
        known: &mut StatusKnowledge,
        agreements: &ChangeQueue<ReleaseId>,
        stop: &CancellationToken,
    ) {
        let mut watching = GuardedWatch::new(&self.guarded, &self.cluster.kinds);
        let (reports, records) = (self.cluster.state.changes(), self.cluster.releases.changes());
        let mut leading = self.leadership.watch();
        let mut policies = self.in_force.changes();
        loop {
            self.tell_due(known.due.times.len());
            let (due, absent) = (until(known.due.next()), until(known.absent_at));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                release = agreements.next() => known.due.schedule_check_first(release, COLLECTED),
                (namespace, event) = watching.next() => self.take_in(known, namespace, event).await,
                release = reports.next() => known.due.schedule_check(release, Duration::ZERO),
                release = records.next() => known.due.schedule_check(release, Duration::ZERO),
                changed = leading.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let leads = *leading.borrow_and_update();
                    self.metrics.leads(leads);
                    // The loop drops its orders whenever the lead ends, and loss and regain may arrive as one change.
                    // Passing on an order again that the loop still has is harmless.
                    known.reconciled.clear();
                    // Earlier writes and failures of this replica no longer count either.
                    known.written.clear();
                    known.due.failures.clear();
                    if leads {
                        self.remember(known).await;
                    }
                    self.look_at_all(known);
                }
                // Every status holds the modes for edits and drift.
                Ok(()) = policies.changed() => self.look_at_all(known),
                () = absent => {
                    known.absent_at = None;
                    tracing::warn!(
                        "the GuardedRelease CRD is missing, so no statuses of releases are written: apply the output of kubemoor manifests crds"
                    );
                }
                () = due => if let Some((release, is_first)) = known.due.pop() {
                    self.reconcile_guarded_release(known, &release, is_first).await;
                },
            }
        }
    }

    fn tell_due(&self, count: usize) {
        self.metrics.statuses_due(count);
        self.due.send_if_modified(|told| std::mem::replace(told, count) != count);
    }

    /// Adopts what dry runs of another guard have settled: a replica that does not lead judges by it.
    async fn learn(&self, release: &ReleaseId, guarded: &GuardedRelease) {
        for seen in guarded.status.iter().flat_map(|status| &status.seen) {
            let Some(settled) = seen.settled(&self.key, release) else { continue };
            let object = seen.object.id(&release.namespace);
            if self.cluster.settled.write().record(&object, settled.clone()) {
                self.command(LoopOrder::Settled(object, settled)).await;
            }
        }
    }

    async fn apply_spec(&self, known: &mut StatusKnowledge, release: &ReleaseId, guarded: &GuardedRelease) {
        let suspension = Suspension::from_spec(&guarded.spec);
        if suspension.as_ref() != known.suspended.get(release) {
            match &suspension {
                Some(suspension) => known.suspended.insert(release.clone(), suspension.clone()),
                None => known.suspended.remove(release),
            };
            self.command(LoopOrder::Suspend(release.clone(), suspension)).await;
            self.witness(vec![SuspensionSeen::now(guarded, true)]).await;
        }
        if let Some(wanted) = open_order(guarded)
            && known.reconciled.get(release) != Some(wanted)
            && self.leadership.is_leader()
        {
            self.order(known, release, wanted).await;
        }
    }

    /// Hands an order to the loop, unless it was carried out already: another replica may have done that while it
    /// led, and the watch may be behind. Only the leader acts on it, and records that in the status; otherwise the
    /// next leader does.
    async fn order(&self, known: &mut StatusKnowledge, release: &ReleaseId, wanted: &str) {
        let guarded = match guarded::get(&self.guarded.client(), release).await {
            Ok(guarded) => guarded.filter(|guarded| open_order(guarded).is_some_and(|at| at == wanted)),
            Err(error) => {
                if known.writing.note_failure() {
                    tracing::warn!(
                        "failed to read the repair order for release {release}; retrying: {error}"
                    );
                }
                return known.due.retry(release.clone());
            }
        };
        if let Some(guarded) = guarded {
            known.reconciled.insert(release.clone(), wanted.to_owned());
            let ticket = self.ticket(release, &guarded, wanted).map(Arc::new);
            let at = wanted.to_owned();
            self.command(LoopOrder::Reconcile { release: release.clone(), at, ticket }).await;
        }
    }

    /// The ticket of the repair order with this `at`, which says what its user may write; `None` without a valid
    /// ticket.
    fn ticket(&self, release: &ReleaseId, guarded: &GuardedRelease, at: &str) -> Option<Ticket> {
        let text = guarded.metadata.annotations.as_ref()?.get(CONFIRMED_BY)?;
        let order = TicketOrder { release, uid: guarded.metadata.uid.as_deref()?, at };
        match Ticket::read(text, &self.key, &order, Timestamp::now()) {
            Ok(ticket) => Some(ticket),
            Err(error) => {
                tracing::warn!(release.id = %release, "the annotation {CONFIRMED_BY} has no effect: {error}");
                None
            }
        }
    }

    async fn remember(&self, known: &StatusKnowledge) {
        for order in known.live.all().filter_map(|guarded| guarded::remembered(&guarded, &self.key)) {
            self.command(order).await;
        }
    }

    /// Resumes a release whose GuardedRelease is gone.
    async fn resume(&self, known: &mut StatusKnowledge, release: &ReleaseId) {
        known.reconciled.remove(release);
        if known.suspended.remove(release).is_some() {
            self.command(LoopOrder::Suspend(release.clone(), None)).await;
            // If the release is gone too, there is nothing to record.
            if let Some(guarded) = known.live.get(release).filter(|_| self.is_guarded(release)) {
                self.witness(vec![SuspensionSeen::removed(&guarded)]).await;
            }
        }
    }

    async fn witness(&self, seen: Vec<SuspensionSeen>) {
        drop(self.seen.send(seen).await);
    }

    async fn command(&self, command: LoopOrder) {
        // Without a loop there is no receiver, and the process is ending.
        drop(self.commands.send(command).await);
    }

    fn look_at_all(&self, known: &mut StatusKnowledge) {
        let releases: Vec<_> =
            self.cluster.releases.index().read().releases().map(|it| it.id.clone()).collect();
        let live: Vec<_> = known.live.releases().cloned().collect();
        for release in releases.into_iter().chain(live) {
            known.due.schedule_check(release, Duration::ZERO);
        }
    }

    /// Creates, removes or writes the GuardedRelease of a release, if necessary. `is_first`: it has agreements to
    /// write, which must not wait.
    async fn reconcile_guarded_release(
        &self,
        known: &mut StatusKnowledge,
        release: &ReleaseId,
        is_first: bool,
    ) {
        if !known.is_followed(release) || !self.leadership.is_leader() {
            return;
        }
        let live = known.live.get(release);
        if let Some(guarded) = &live {
            // A new leader acts on orders that the earlier one did not carry out.
            self.apply_spec(known, release, guarded).await;
        }
        let written = match (self.is_guarded(release), &live) {
            (false, None) => {
                known.written.remove(release);
                known.due.clear_failures(release);
                return;
            }
            (false, Some(guarded)) => {
                let uid = guarded.metadata.uid.clone().unwrap_or_default();
                self.guarded.remove(release, &uid).await.map(|()| None)
            }
            (true, None) => {
                let made = self.guarded.create(release).await;
                if let Ok(Some(_)) = &made {
                    known.due.schedule_check_first(release.clone(), Duration::ZERO);
                }
                made
            }
            (true, Some(guarded)) => {
                let Some(status) = self.status(release, guarded) else { return };
                if is_first && !has_new_agreements(guarded, &status) {
                    return known.due.schedule_check(release.clone(), Duration::ZERO);
                }
                let ready =
                    known.written.get(release).map(|at| *at + PAUSE).filter(|at| *at > Instant::now());
                if let Some(at) = ready.filter(|_| !is_first) {
                    known.due.schedule_check(release.clone(), at.duration_since(Instant::now()));
                    return;
                }
                known.written.insert(release.clone(), Instant::now());
                self.guarded.set_status(guarded, &status).await
            }
        };
        match written {
            Ok(stored) => {
                if let Some(guarded) = stored {
                    known.live.put_newer(release.clone(), guarded);
                }
                known.due.clear_failures(release);
                self.metrics.status(StatusWrite::Written);
            }
            Err(ClusterError::NotLeading) => {}
            Err(error) => {
                self.metrics.status(StatusWrite::Failed);
                if error.is_overtaken() && is_first {
                    return self.read_again(known, release).await;
                }
                // Another writer was faster, and the watch will show that, or the namespace is being deleted.
                let passes = error.is_overtaken() || error.is_terminating();
                if !passes && known.writing.note_failure() {
                    tracing::warn!(
                        "failed to write the GuardedRelease of release {release}; retrying: {error}"
                    );
                }
                match passes {
                    true => known.due.schedule_check(release.clone(), PAUSE),
                    false => known.due.retry(release.clone()),
                }
            }
        }
    }

    /// Reads a GuardedRelease again after a conflict, so that its agreements can be written to the current version.
    async fn read_again(&self, known: &mut StatusKnowledge, release: &ReleaseId) {
        match guarded::get(&self.guarded.client(), release).await {
            Ok(guarded) => {
                match guarded {
                    Some(guarded) => known.live.put(release.clone(), Box::new(guarded)),
                    None => known.live.remove(release),
                }
                known.due.schedule_check_first(release.clone(), COLLECTED);
            }
            Err(_) => known.due.retry(release.clone()),
        }
    }

    fn status(&self, release: &ReleaseId, guarded: &GuardedRelease) -> Option<GuardedReleaseStatus> {
        // This replica does not know another leader's decisions about drifts before it has led
        // itself.
        let report =
            self.cluster.state.report(release).filter(|report| report.leads || report.drifted.is_empty())?;
        let before = guarded.status.as_ref();
        let policy = self.in_force.resolver().policy(release);
        // Only an answer to the open order counts: an earlier one may date from before another replica led. An
        // unfinished answer leaves the order open.
        let is_open = |answer: &&OrderAnswer| {
            guarded.spec.reconcile_at.as_ref() == Some(&answer.at)
                && before.and_then(|before| before.last_reconcile_at.as_ref()) != Some(&answer.at)
        };
        let answer = report.answer.as_ref().filter(is_open).cloned();
        let order = answer.or_else(|| before.and_then(|before| before.order.clone()));
        let done = order.as_ref().filter(|order| order.result != OrderResult::Waiting);
        let context = StatusContext {
            spec: &guarded.spec,
            generation: guarded.metadata.generation,
            edits: policy.edits,
            drift: policy.drift,
            open: self.in_force.resolver().is_enforcement_disabled(),
            lease: self.lease.clone(),
            // The next leader carries out an order that is still open.
            reconciled: done
                .map(|order| order.at.clone())
                .or_else(|| before.and_then(|before| before.last_reconcile_at.clone())),
            order,
            key: &self.key,
            now: Timestamp::now(),
        };
        let status = summary(&report, before, context);
        (before != Some(&status)).then_some(status)
    }

    fn is_guarded(&self, release: &ReleaseId) -> bool {
        let index = self.cluster.releases.index().read();
        index.installed(release).is_some()
    }

    /// Handles an event of the watch of `namespace` (`None`: of all).
    async fn take_in(
        &self,
        known: &mut StatusKnowledge,
        namespace: Option<Arc<str>>,
        event: ObjectEvent<Box<GuardedRelease>>,
    ) {
        match event {
            ObjectEvent::Relisting => known.following(&namespace).listing = Some(HashSet::new()),
            ObjectEvent::Listed(guarded) => self.take_object(known, &namespace, guarded, true).await,
            ObjectEvent::Applied(guarded) => self.take_object(known, &namespace, guarded, false).await,
            ObjectEvent::Deleted(guarded) => {
                let Some(release) = guarded.release() else { return };
                self.resume(known, &release).await;
                known.live.remove(&release);
                known.due.schedule_check(release, Duration::ZERO);
            }
            ObjectEvent::Synced => self.take_listing(known, &namespace).await,
            ObjectEvent::Watching => {
                known.absent_at = None;
                known.writing.note_success();
                let following = known.following(&namespace);
                following.failures.note_success();
                // A watch that resumes where it ended missed nothing: it is reopened every few minutes.
                if !std::mem::replace(&mut following.watched, true) {
                    self.look_at_all(known);
                }
            }
            ObjectEvent::Broken(error) => note_broken(known, &namespace, &error),
        }
    }

    async fn take_object(
        &self,
        known: &mut StatusKnowledge,
        namespace: &Option<Arc<str>>,
        guarded: Box<GuardedRelease>,
        is_listed: bool,
    ) {
        let Some(release) = guarded.release() else { return };
        if let Some(listing) = &mut known.following(namespace).listing {
            listing.insert(release.clone());
        }
        // All are listed again every few minutes, and most are unchanged.
        if is_listed && known.live.has(&release, &guarded) {
            return;
        }
        self.learn(&release, &guarded).await;
        self.apply_spec(known, &release, &guarded).await;
        match is_listed {
            true => known.live.put(release.clone(), guarded),
            false => known.live.put_newer(release.clone(), guarded),
        }
        known.due.schedule_check(release, Duration::ZERO);
    }

    async fn take_listing(&self, known: &mut StatusKnowledge, namespace: &Option<Arc<str>>) {
        let is_here = |release: &ReleaseId| namespace.as_deref().is_none_or(|here| here == release.namespace);
        let listing = known.following(namespace).listing.take().unwrap_or_default();
        let held = known.live.releases().chain(known.suspended.keys());
        let gone: HashSet<_> =
            held.filter(|release| is_here(release) && !listing.contains(*release)).cloned().collect();
        for release in gone {
            self.resume(known, &release).await;
            known.live.remove(&release);
            known.due.schedule_check(release, Duration::ZERO);
        }
        if !std::mem::replace(&mut known.following(namespace).listed, true) {
            let here = known.live.all().filter(|guarded| guarded.release().as_ref().is_some_and(is_here));
            self.witness(here.map(|guarded| SuspensionSeen::now(&guarded, false)).collect()).await;
        }
        if listing.is_empty() {
            known.following(namespace).watched = false;
            known.absent_at = Some(Instant::now() + GRACE);
        }
    }
}

/// Whether the agreements in `status` differ from those in the present status.
fn has_new_agreements(guarded: &GuardedRelease, status: &GuardedReleaseStatus) -> bool {
    guarded
        .status
        .as_ref()
        .is_none_or(|before| before.seen != status.seen || before.field_manager != status.field_manager)
}

/// The order that the status does not report as carried out.
fn open_order(guarded: &GuardedRelease) -> Option<&String> {
    let done = guarded.status.as_ref().and_then(|status| status.last_reconcile_at.as_ref());
    guarded.spec.reconcile_at.as_ref().filter(|wanted| done != Some(wanted))
}

fn note_broken(known: &mut StatusKnowledge, namespace: &Option<Arc<str>>, error: &ClusterError) {
    let following = known.following(namespace);
    following.watched = false;
    if following.failures.note_failure() {
        tracing::warn!("failed to watch GuardedReleases; their statuses are not updated: {error}");
    }
}

#[derive(Default)]
struct StatusKnowledge {
    live: StatusCache,
    /// How far each watch is: of one namespace, or of all.
    following: HashMap<Option<Arc<str>>, Following>,
    /// The time from which a missing CustomResourceDefinition is reported.
    absent_at: Option<Instant>,
    due: DueStatuses,
    written: HashMap<ReleaseId, Instant>,
    /// The spec.reconcileAt that was handed to the loop last.
    reconciled: HashMap<ReleaseId, String>,
    suspended: SuspendedReleases,
    writing: FailureLog,
}

#[derive(Default)]
struct Following {
    listing: Option<HashSet<ReleaseId>>,
    listed: bool,
    /// Whether a watch is established, which requires the CustomResourceDefinition.
    watched: bool,
    failures: FailureLog,
}

impl StatusKnowledge {
    /// How far the watch of `namespace` (`None`: of all) is.
    fn following(&mut self, namespace: &Option<Arc<str>>) -> &mut Following {
        self.following.entry(namespace.clone()).or_default()
    }

    /// Whether the GuardedRelease of this release is known, and its changes are watched.
    fn is_followed(&self, release: &ReleaseId) -> bool {
        let speaks = |namespace: &Option<Arc<str>>| {
            namespace.as_deref().is_none_or(|namespace| namespace == release.namespace)
        };
        self.following.iter().any(|(namespace, it)| speaks(namespace) && it.listed && it.watched)
    }
}

/// The releases to check, with the earliest time for each. Those with agreements to write come before all others: only the
/// guard that has seen them knows them.
#[derive(Default)]
struct DueStatuses {
    /// Each with whether it has agreements to write.
    times: HashMap<ReleaseId, (bool, Instant)>,
    first: BTreeSet<(Instant, ReleaseId)>,
    others: BTreeSet<(Instant, ReleaseId)>,
    failures: HashMap<ReleaseId, u32>,
}

impl DueStatuses {
    fn next(&self) -> Option<Instant> {
        [&self.first, &self.others].into_iter().filter_map(BTreeSet::first).map(|(at, _)| *at).min()
    }

    /// Removes and returns the release that is due first, and whether it has agreements to write.
    fn pop(&mut self) -> Option<(ReleaseId, bool)> {
        let is_first = self.first.first().is_some_and(|(at, _)| *at <= Instant::now());
        self.pop_of(is_first).map(|release| (release, is_first))
    }

    /// Removes and returns a release with agreements to write (`is_first`) or without, due or not.
    fn pop_of(&mut self, is_first: bool) -> Option<ReleaseId> {
        let (_, release) = self.queue(is_first).pop_first()?;
        self.times.remove(&release);
        if self.times.is_empty() {
            // At the start all releases are due at once.
            self.times.shrink_to_fit();
        }
        Some(release)
    }

    fn queue(&mut self, is_first: bool) -> &mut BTreeSet<(Instant, ReleaseId)> {
        if is_first { &mut self.first } else { &mut self.others }
    }

    fn schedule_check(&mut self, release: ReleaseId, pause: Duration) {
        self.add(release, false, pause);
    }

    fn schedule_check_first(&mut self, release: ReleaseId, pause: Duration) {
        self.add(release, true, pause);
    }

    fn add(&mut self, release: ReleaseId, is_first: bool, pause: Duration) {
        let at = Instant::now() + pause;
        if let Some((was_first, due)) = self.times.get(&release).copied() {
            // Agreements are collected even if another check is due earlier; their write covers that too.
            if (was_first && !is_first) || (was_first == is_first && due <= at) {
                return;
            }
            self.queue(was_first).remove(&(due, release.clone()));
        }
        self.times.insert(release.clone(), (is_first, at));
        self.queue(is_first).insert((at, release));
    }

    /// Schedules another try after a failed write; each pause is longer than the last.
    fn retry(&mut self, release: ReleaseId) {
        let failures = self.failures.entry(release.clone()).or_default();
        let pause = backoff_delay(AGAIN, *failures, LONGEST, &release.name);
        *failures = failures.saturating_add(1);
        self.schedule_check(release, pause);
    }

    /// Forgets failed writes, because a write succeeded or the release is gone.
    fn clear_failures(&mut self, release: &ReleaseId) {
        self.failures.remove(release);
    }
}

#[derive(Default)]
struct StatusCache(HashMap<ReleaseId, CachedStatus>);

/// A compressed GuardedRelease, and its resource version if that is a number.
struct CachedStatus {
    version: Option<u64>,
    body: Compressed,
}

impl StatusCache {
    fn put(&mut self, release: ReleaseId, mut guarded: Box<GuardedRelease>) {
        guarded.metadata.managed_fields = None;
        let version = version(&guarded);
        if let Ok(body) = compressed(&guarded) {
            self.0.insert(release, CachedStatus { version, body });
        }
    }

    /// Like `put`, unless a newer version is stored: the response to a write comes before the watch event.
    fn put_newer(&mut self, release: ReleaseId, guarded: Box<GuardedRelease>) {
        let is_older =
            |held: &CachedStatus| version(&guarded).zip(held.version).is_some_and(|(it, held)| it < held);
        if !self.0.get(&release).is_some_and(is_older) {
            self.put(release, guarded);
        }
    }

    fn has(&self, release: &ReleaseId, guarded: &GuardedRelease) -> bool {
        let version = version(guarded);
        version.is_some() && self.0.get(release).is_some_and(|held| held.version == version)
    }

    fn get(&self, release: &ReleaseId) -> Option<Box<GuardedRelease>> {
        self.0.get(release)?.guarded()
    }

    fn remove(&mut self, release: &ReleaseId) {
        self.0.remove(release);
    }

    fn releases(&self) -> impl Iterator<Item = &ReleaseId> {
        self.0.keys()
    }

    fn all(&self) -> impl Iterator<Item = Box<GuardedRelease>> {
        self.0.values().filter_map(CachedStatus::guarded)
    }
}

impl CachedStatus {
    fn guarded(&self) -> Option<Box<GuardedRelease>> {
        serde_json::from_slice(&self.body.read().ok()?).ok()
    }
}

fn version(guarded: &GuardedRelease) -> Option<u64> {
    guarded.metadata.resource_version.as_ref()?.parse().ok()
}

fn compressed(guarded: &GuardedRelease) -> io::Result<Compressed> {
    Compressed::new(&serde_json::to_vec(guarded)?)
}

#[cfg(test)]
mod tests;
