//! Creates and removes GuardedReleases with their releases, keeps their statuses, and passes the
//! wishes in their specs to the loop.
//!
//! Entry point: [`Statuses::run`]. Invariant: a status is written only when its content changes,
//! each at most once in `PAUSE`, but for what the loop has seen: that is written first and without
//! a wait, and before the guard ends, since no other process may know it. Only the leader writes. A
//! cluster without the
//! CustomResourceDefinition is logged once and costs nothing else. Must not judge or repair
//! anything.

mod due;
mod follow;
mod known;
mod shelf;
mod summary;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::known::Known;
use self::summary::{Context, summary};
pub use self::witness::{Seen, Witness};
use super::orders::Command;
use super::state::State;
use super::until;
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::guarded::{self, GuardedReleases, Remembered};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::writer::SendError;
use kubemoor_cluster::mirror::Changes;
use kubemoor_cluster::mirror::guarded::Watching;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::Status;
use kubemoor_policy::guarded::{
    GuardedRelease, GuardedReleaseStatus, LeaseReference, OrderAnswer, OrderResult,
};
use kubemoor_policy::order::{CONFIRMED_BY, Order, Ticket};
use kubemoor_policy::settled::SettledValues;
use kubemoor_policy::signing::SigningKey;
use kubemoor_policy::suspension::{Suspended, Suspension};
use kubemoor_runtime::metrics::{NoticeMetrics, StatusWrite};

/// The shortest time between two writes of one status.
const PAUSE: Duration = Duration::from_secs(2);

/// The time in which agreements of one release are collected before they are written.
const COLLECTED: Duration = Duration::from_millis(100);

/// How long a guard that ends may write the agreements that wait.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// Keeps GuardedReleases.
pub struct Statuses {
    /// Where they are.
    pub guarded: GuardedReleases,
    /// The kinds that the cluster serves.
    pub kinds: Arc<Kinds>,
    /// The releases.
    pub releases: Arc<Releases>,
    /// What the loop knows of them.
    pub state: Arc<State>,
    /// The policies in force.
    pub in_force: Arc<InForce>,
    /// Where the loop takes commands.
    pub commands: mpsc::Sender<Command>,
    /// The releases that the loop leaves alone from the start.
    pub suspended: Suspended,
    /// Whether this replica writes.
    pub leadership: Leadership,
    /// Where writes are counted.
    pub metrics: NoticeMetrics,
    /// The key that signs tickets of orders.
    pub key: SigningKey,
    /// The Lease that this guard renews, by which readers know that statuses are kept.
    pub lease: Option<LeaseReference>,
    /// Values that dry runs have settled, here or in an earlier guard.
    pub settled: Arc<SettledValues>,
    /// Publishes the number of statuses that have still to be compared, and written where they
    /// differ.
    pub due: watch::Sender<usize>,
    /// Who keeps suspensions that no review told of.
    pub seen: mpsc::Sender<Vec<Seen>>,
}

impl Statuses {
    /// Keeps GuardedReleases until `stop`, which the end of the loop tells; then writes what it has seen last.
    pub async fn run(self, stop: CancellationToken) {
        let mut known = Known { suspended: self.suspended.clone(), ..Known::default() };
        let agreements = self.state.agreements();
        self.keep(&mut known, &agreements, &stop).await;
        if tokio::time::timeout(LAST_WRITES, self.write_last(&mut known, &agreements)).await.is_err() {
            tracing::warn!(
                "the guard ends before all statuses are written: objects that change while no guard runs may become Unconfirmed"
            );
        }
    }

    /// Writes the agreements that wait.
    async fn write_last(&self, known: &mut Known, agreements: &Changes<ReleaseId>) {
        loop {
            while let Some(release) = agreements.take() {
                known.due.look_at_first(release, Duration::ZERO);
            }
            let Some(release) = known.due.pop_first() else { return };
            self.attend(known, &release, true).await;
        }
    }

    async fn keep(&self, known: &mut Known, agreements: &Changes<ReleaseId>, stop: &CancellationToken) {
        let mut watching = Watching::new(&self.guarded, &self.kinds);
        let (reports, records) = (self.state.changes(), self.releases.changes());
        let mut leading = self.leadership.watch();
        let mut policies = self.in_force.changes();
        loop {
            self.tell_due(known.due.count());
            let (due, absent) = (until(known.due.next()), until(known.absent_at));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                release = agreements.next() => known.due.look_at_first(release, COLLECTED),
                (namespace, event) = watching.next() => self.take_in(known, namespace, event).await,
                release = reports.next() => known.due.look_at(release, Duration::ZERO),
                release = records.next() => known.due.look_at(release, Duration::ZERO),
                changed = leading.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let leads = *leading.borrow_and_update();
                    self.metrics.leads(leads);
                    // The loop drops its orders whenever the lead ends, and the end may be told together with the next
                    // beginning. An order that the loop still has is the same order.
                    known.reconciled.clear();
                    // Nor does it count what this replica wrote, or failed to write, when it led before.
                    known.written.clear();
                    known.due.forget_failures();
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
                        "there is no definition of GuardedRelease, so the cluster is not told how releases stand: apply what kubemoor manifests crds prints"
                    );
                }
                () = due => if let Some((release, is_first)) = known.due.pop() {
                    self.attend(known, &release, is_first).await;
                },
            }
        }
    }

    fn tell_due(&self, count: usize) {
        self.metrics.statuses_due(count);
        self.due.send_if_modified(|told| std::mem::replace(told, count) != count);
    }

    /// Takes in what dry runs of another guard have settled: a replica that does not lead judges by it.
    async fn learn(&self, release: &ReleaseId, guarded: &GuardedRelease) {
        for seen in guarded.status.iter().flat_map(|status| &status.seen) {
            let Some(settled) = seen.settled(&self.key, release) else { continue };
            let object = seen.object.id(&release.namespace);
            if self.settled.learn(&object, settled.clone()) {
                self.command(Command::Settled(object, settled)).await;
            }
        }
    }

    /// Hands what a person set to the loop.
    async fn obey(&self, known: &mut Known, release: &ReleaseId, guarded: &GuardedRelease) {
        let suspension = Suspension::of(&guarded.spec);
        if suspension.as_ref() != known.suspended.get(release) {
            match &suspension {
                Some(suspension) => known.suspended.insert(release.clone(), suspension.clone()),
                None => known.suspended.remove(release),
            };
            self.command(Command::Suspend(release.clone(), suspension)).await;
            self.witness(vec![Seen::of(guarded, true)]).await;
        }
        if let Some(wanted) = open_order(guarded)
            && known.reconciled.get(release) != Some(wanted)
            && self.leadership.holds()
        {
            self.order(known, release, wanted).await;
        }
    }

    /// Hands an order to the loop, unless it was carried out already: another replica may have done that while it
    /// led, and the watch may be behind. Only the leader acts on it, and records that in the status; otherwise the
    /// next leader does.
    async fn order(&self, known: &mut Known, release: &ReleaseId, wanted: &str) {
        let guarded = match guarded::get(&self.guarded.client(), release).await {
            Ok(guarded) => guarded.filter(|guarded| open_order(guarded).is_some_and(|at| at == wanted)),
            Err(error) => {
                if known.writing.note_failure() {
                    tracing::warn!(
                        "the repair order for release {release} cannot be read, trying again: {error}"
                    );
                }
                return known.due.retry(release.clone());
            }
        };
        if let Some(guarded) = guarded {
            known.reconciled.insert(release.clone(), wanted.to_owned());
            let ticket = self.ticket(release, &guarded, wanted).map(Arc::new);
            let at = wanted.to_owned();
            self.command(Command::Reconcile { release: release.clone(), at, ticket }).await;
        }
    }

    /// What the user who ordered a repair `at` that time may write themself; none where
    /// nobody has asked the API server.
    fn ticket(&self, release: &ReleaseId, guarded: &GuardedRelease, at: &str) -> Option<Ticket> {
        let text = guarded.metadata.annotations.as_ref()?.get(CONFIRMED_BY)?;
        let order = Order { release, uid: guarded.metadata.uid.as_deref()?, at };
        match Ticket::read(text, &self.key, &order, Timestamp::now()) {
            Ok(ticket) => Some(ticket),
            Err(error) => {
                tracing::warn!(release.id = %release, "the annotation {CONFIRMED_BY} has no effect: {error}");
                None
            }
        }
    }

    /// Takes over the knowledge of the earlier leader.
    async fn remember(&self, known: &Known) {
        for remembered in known.live.all().filter_map(|guarded| Remembered::of(&guarded, &self.key)) {
            self.command(remembered.into()).await;
        }
    }

    /// A release whose GuardedRelease is gone is not suspended any more.
    async fn resume(&self, known: &mut Known, release: &ReleaseId) {
        known.reconciled.remove(release);
        if known.suspended.remove(release).is_some() {
            self.command(Command::Suspend(release.clone(), None)).await;
            // With its release it ends by itself.
            if let Some(guarded) = known.live.get(release).filter(|_| self.is_guarded(release)) {
                self.witness(vec![Seen::of_removed(&guarded)]).await;
            }
        }
    }

    async fn witness(&self, seen: Vec<Seen>) {
        drop(self.seen.send(seen).await);
    }

    async fn command(&self, command: Command) {
        // Without a loop there is no receiver, and the process is ending.
        drop(self.commands.send(command).await);
    }

    fn look_at_all(&self, known: &mut Known) {
        let releases: Vec<_> = self.releases.index().read().releases().map(|it| it.id.clone()).collect();
        let live: Vec<_> = known.live.releases().cloned().collect();
        for release in releases.into_iter().chain(live) {
            known.due.look_at(release, Duration::ZERO);
        }
    }

    /// Creates, removes or writes the GuardedRelease of a release, if necessary. `is_first`: it has agreements to write,
    /// which wait for nothing.
    async fn attend(&self, known: &mut Known, release: &ReleaseId, is_first: bool) {
        if !known.is_followed(release) || !self.leadership.holds() {
            return;
        }
        let live = known.live.get(release);
        if let Some(guarded) = &live {
            // A new leader acts on orders that the earlier one did not carry out.
            self.obey(known, release, guarded).await;
        }
        let written = match (self.is_guarded(release), &live) {
            (false, None) => {
                known.written.remove(release);
                known.due.forgive(release);
                return;
            }
            (false, Some(guarded)) => {
                let uid = guarded.metadata.uid.clone().unwrap_or_default();
                self.guarded.remove(release, &uid).await.map(|()| None)
            }
            (true, None) => {
                let made = self.guarded.create(release).await;
                if let Ok(Some(_)) = &made {
                    known.due.look_at_first(release.clone(), Duration::ZERO);
                }
                made
            }
            (true, Some(guarded)) => {
                let Some(status) = self.status(release, guarded) else { return };
                if is_first && !has_new_agreements(guarded, &status) {
                    return known.due.look_at(release.clone(), Duration::ZERO);
                }
                let ready =
                    known.written.get(release).map(|at| *at + PAUSE).filter(|at| *at > Instant::now());
                if let Some(at) = ready.filter(|_| !is_first) {
                    known.due.look_at(release.clone(), at.duration_since(Instant::now()));
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
                known.due.forgive(release);
                self.metrics.status(StatusWrite::Written);
            }
            Err(SendError::NotLeading) => {}
            Err(error) => {
                self.metrics.status(StatusWrite::Failed);
                if error.is_overtaken() && is_first {
                    return self.read_again(known, release).await;
                }
                let passes = passes(&error);
                if !passes && known.writing.note_failure() {
                    tracing::warn!(
                        "the GuardedRelease of release {release} cannot be written, trying again: {error}"
                    );
                }
                match passes {
                    true => known.due.look_at(release.clone(), PAUSE),
                    false => known.due.retry(release.clone()),
                }
            }
        }
    }

    /// Reads a GuardedRelease that somebody else has written, so that its agreements can be written over that.
    async fn read_again(&self, known: &mut Known, release: &ReleaseId) {
        match guarded::get(&self.guarded.client(), release).await {
            Ok(guarded) => {
                match guarded {
                    Some(guarded) => known.live.put(release.clone(), Box::new(guarded)),
                    None => known.live.remove(release),
                }
                known.due.look_at_first(release.clone(), COLLECTED);
            }
            Err(_) => known.due.retry(release.clone()),
        }
    }

    /// The status to write; `None` if the present one is up to date.
    fn status(&self, release: &ReleaseId, guarded: &GuardedRelease) -> Option<GuardedReleaseStatus> {
        // This replica does not know another leader's decisions about drifts before it has led
        // itself.
        let report = self.state.of(release).filter(|report| report.leads || report.drifted.is_empty())?;
        let before = guarded.status.as_ref();
        let policy = self.in_force.resolver().of(release);
        // Answers of this process from before another one led have no effect, nor have unfinished
        // ones.
        let is_open = |answer: &&OrderAnswer| {
            guarded.spec.reconcile_at.as_ref() == Some(&answer.at)
                && before.and_then(|before| before.last_reconcile_at.as_ref()) != Some(&answer.at)
        };
        let answer = report.answer.as_ref().filter(is_open).cloned();
        let order = answer.or_else(|| before.and_then(|before| before.order.clone()));
        let done = order.as_ref().filter(|order| order.result != OrderResult::Waiting);
        let context = Context {
            spec: &guarded.spec,
            generation: guarded.metadata.generation,
            edits: policy.edits,
            drift: policy.drift,
            open: self.in_force.resolver().is_open(),
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

    /// Whether the release exists and is not uninstalled.
    fn is_guarded(&self, release: &ReleaseId) -> bool {
        let index = self.releases.index().read();
        index.release(release).is_some_and(|release| release.state.status != Status::Uninstalled)
    }
}

/// Whether a status holds something that the loop has seen and the present status does not hold.
fn has_new_agreements(guarded: &GuardedRelease, status: &GuardedReleaseStatus) -> bool {
    guarded
        .status
        .as_ref()
        .is_none_or(|before| before.seen != status.seen || before.field_manager != status.field_manager)
}

/// The order of which the status does not say that it was carried out.
fn open_order(guarded: &GuardedRelease) -> Option<&String> {
    let done = guarded.status.as_ref().and_then(|status| status.last_reconcile_at.as_ref());
    guarded.spec.reconcile_at.as_ref().filter(|wanted| done != Some(wanted))
}

/// Whether a refusal is expected: another writer was faster, and the watch will show that, or the
/// namespace is being deleted.
fn passes(error: &CallError) -> bool {
    error.is_overtaken() || error.is_terminating()
}
