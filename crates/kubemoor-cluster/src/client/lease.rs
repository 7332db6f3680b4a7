//! Leader election by a Lease: only the leader writes to the cluster. The Lease also holds the leader's description of
//! its guard, and the time at which a user withdrew the webhooks.
//!
//! By the leader's own clock, its leadership ends before another process may take the Lease. So a process that was
//! suspended and resumes no longer leads. A Lease expires for this process once it has seen it unchanged for the
//! Lease's duration, whatever other clocks say. kube has no leader election. The crates for it need older majors of
//! kube, and do not tell a process that resumes that it has lost the Lease.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::call::{self, ClusterError};
use kubemoor_declare::model::build;
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_verdict::health::GuardLeaseState;

/// How long a Lease is valid without a renewal.
const LIFE: Duration = Duration::from_secs(12);

/// How long the holder relies on a renewal, counted from the start of the request.
const LEADERSHIP_DURATION: Duration = Duration::from_secs(10);

const RENEWAL: Duration = Duration::from_secs(4);

/// The time limit for one attempt to read or write the Lease.
const ATTEMPT: Duration = Duration::from_secs(3);

const RETRY: Duration = Duration::from_secs(1);

/// The CA bundle of the guard's certificate, as PEM; `None` where the system's trust store is used.
pub type CaBundle = watch::Receiver<Option<Arc<str>>>;

/// Takes part in the election until it is told to stop.
pub struct Election {
    leases: Api<Lease>,
    place: LeaseReference,
    candidacy: Candidacy,
    leadership: Leadership,
    /// The CA bundle of this replica's certificate, which it publishes in the Lease while it leads.
    bundle: CaBundle,
    /// Until when no webhooks are registered, because a user withdrew them.
    withdrawn: watch::Sender<Option<Instant>>,
    hold: WithdrawalHold,
    lease: Option<Lease>,
    failures: FailureLog,
}

impl Election {
    /// An election for the Lease `place`, as `identity`, which must be unique among all processes.
    pub fn new(client: kube::Client, place: LeaseReference, identity: String, bundle: CaBundle) -> Self {
        Self {
            leases: Api::namespaced(client, &place.namespace),
            place,
            candidacy: Candidacy::new(identity),
            leadership: Leadership::never(),
            bundle,
            withdrawn: watch::Sender::new(None),
            hold: WithdrawalHold::default(),
            lease: None,
            failures: FailureLog::default(),
        }
    }

    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Until when no webhooks are registered because a user withdrew them, by the Lease; `None` if nobody did or if
    /// that is not known. A leader has always read it.
    pub fn withdrawn(&self) -> watch::Receiver<Option<Instant>> {
        self.withdrawn.subscribe()
    }

    /// Takes part in the election until `stop`, then releases the Lease, so that another replica takes over
    /// at once. Stop it only after all writers.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.run_election()).await;
        self.resign().await;
    }

    async fn run_election(&mut self) {
        let selected = watcher::Config::default().fields(&format!("metadata.name={}", self.place.name));
        // A broken watch only delays: a write based on an old state is refused by its resourceVersion, and
        // then the Lease is read again.
        let mut events = std::pin::pin!(watcher(self.leases.clone(), selected).default_backoff());
        loop {
            let now = Instant::now();
            let left = self.leadership.remaining();
            if left.is_zero() {
                self.leadership.lose();
            }
            match self.candidacy.step(now) {
                ElectionStep::Wait(until) => {
                    let until = if left.is_zero() { until } else { until.min(now + left) };
                    tokio::select! {
                        () = sleep_until(until) => {}
                        event = events.next() => match event {
                            Some(Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease))) => self.see(Some(lease)),
                            Some(Ok(watcher::Event::Delete(_))) => self.see(None),
                            Some(Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_)) | None => {}
                        },
                    }
                }
                step => {
                    let within = if left.is_zero() { ATTEMPT } else { left.min(ATTEMPT) };
                    let outcome = timeout(within, self.act(step)).await;
                    let outcome = outcome.unwrap_or(Err(ClusterError::Late { within }));
                    match outcome {
                        Ok(()) => self.failures.note_success(),
                        Err(error) => {
                            if self.failures.note_failure() {
                                let LeaseReference { namespace, name } = &self.place;
                                tracing::warn!(
                                    "failed to read or write Lease {namespace}/{name}; retrying: {error}"
                                );
                            }
                            self.candidacy.failed(Instant::now() + RETRY);
                        }
                    }
                }
            }
        }
    }

    async fn act(&mut self, step: ElectionStep) -> Result<(), ClusterError> {
        // The time before the request: the Lease's duration starts no earlier than this.
        let asked = Instant::now();
        let written = match step {
            ElectionStep::Wait(_) => return Ok(()),
            ElectionStep::Read => {
                let lease = read_lease(&self.leases, &self.place.name).await?;
                self.see(lease);
                return Ok(());
            }
            step => {
                let (lease, parameters) = (self.claim(step == ElectionStep::Take), PostParams::default());
                match &self.lease {
                    Some(_) => self.leases.replace(&self.place.name, &parameters, &lease).await,
                    None => self.leases.create(&parameters, &lease).await,
                }
            }
        };
        match written {
            Ok(lease) => {
                self.see(Some(lease));
                self.candidacy.renewed(asked);
                self.leadership.gain(asked + LEADERSHIP_DURATION);
                Ok(())
            }
            // Another process was faster; what it wrote decides.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                self.candidacy.unknown();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The Lease with this replica as its holder; `takes` if it is not the holder yet.
    fn claim(&self, takes: bool) -> Lease {
        let now = Some(MicroTime(Timestamp::now()));
        let mut lease = self.lease.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.place.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        annotate(&mut lease.metadata, self.bundle.borrow().as_deref());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.candidacy.me.clone());
        spec.lease_duration_seconds = i32::try_from(LIFE.as_secs()).ok();
        spec.renew_time.clone_from(&now);
        if takes {
            spec.acquire_time = now;
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count.saturating_add(1)));
        }
        lease
    }

    fn see(&mut self, lease: Option<Lease>) {
        let now = Instant::now();
        self.candidacy.see(lease.as_ref(), now);
        let noted = lease.as_ref().and_then(|lease| withdrawn_at(&lease.metadata));
        let withdrawn = self.hold.see(noted, (now, Timestamp::now()));
        self.withdrawn.send_if_modified(|known| std::mem::replace(known, withdrawn) != withdrawn);
        self.lease = lease;
        if !self.candidacy.is_holder() && self.leadership.is_leader() {
            self.leadership.lose();
        }
    }

    /// Releases the Lease if this replica holds it, even if it never received the response to its write.
    async fn resign(mut self) {
        self.leadership.lose();
        let give_up = async {
            let lease = read_lease(&self.leases, &self.place.name).await?;
            self.see(lease);
            if self.candidacy.is_holder() {
                let mut lease = self.claim(false);
                let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.leases.replace(&self.place.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, ClusterError>(())
        };
        // If the release fails, the Lease expires.
        let _ = timeout(ATTEMPT, give_up).await;
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        self.leadership.lose();
    }
}

/// One candidate's view of the Lease, and its next step. A pure value: the caller passes the time.
struct Candidacy {
    me: String,
    view: LeaseView,
    /// When this candidate's own Lease is to be renewed.
    renew_at: Option<Instant>,
    not_before: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElectionStep {
    /// Nothing before this instant.
    Wait(Instant),
    Read,
    /// Create the Lease, or take it from another holder.
    Take,
    Renew,
}

enum LeaseView {
    Unknown,
    Absent,
    Lease { version: String, holder: String, life: Duration, since: Instant },
}

impl Candidacy {
    fn new(me: String) -> Self {
        Self { me, view: LeaseView::Unknown, renew_at: None, not_before: None }
    }

    fn step(&self, now: Instant) -> ElectionStep {
        if let Some(pause) = self.not_before.filter(|pause| *pause > now) {
            return ElectionStep::Wait(pause);
        }
        match &self.view {
            LeaseView::Unknown => ElectionStep::Read,
            LeaseView::Absent => ElectionStep::Take,
            LeaseView::Lease { holder, .. } if *holder == self.me => match self.renew_at {
                Some(at) if at > now => ElectionStep::Wait(at),
                _ => ElectionStep::Renew,
            },
            LeaseView::Lease { holder, life, since, .. } if holder.is_empty() || *since + *life <= now => {
                ElectionStep::Take
            }
            LeaseView::Lease { life, since, .. } => ElectionStep::Wait(*since + *life),
        }
    }

    /// Updates the view with the Lease, or with its absence.
    fn see(&mut self, lease: Option<&Lease>, now: Instant) {
        let Some(lease) = lease else {
            self.view = LeaseView::Absent;
            return;
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        if matches!(&self.view, LeaseView::Lease { version: known, .. } if *known == version) {
            return;
        }
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let life = seconds.filter(|seconds| *seconds > 0).map_or(LIFE, Duration::from_secs);
        let holder = spec.holder_identity.unwrap_or_default();
        self.view = LeaseView::Lease { version, holder, life, since: now };
    }

    /// Records that this candidate's own write succeeded; it was requested at `asked`.
    fn renewed(&mut self, asked: Instant) {
        self.renew_at = Some(asked + RENEWAL);
        self.not_before = None;
    }

    fn unknown(&mut self) {
        self.view = LeaseView::Unknown;
    }

    fn failed(&mut self, pause: Instant) {
        self.not_before = Some(pause);
    }

    fn is_holder(&self) -> bool {
        matches!(&self.view, LeaseView::Lease { holder, .. } if *holder == self.me)
    }
}

/// Whether this process leads. Cheap to clone; clones share the state.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<LeadershipState>);

#[derive(Debug)]
struct LeadershipState {
    /// Until when the process leads.
    until: RwLock<Option<Instant>>,
    told: watch::Sender<bool>,
}

/// How long a process leads that has no other replicas: longer than any process runs.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

impl Leadership {
    /// For a process without other replicas.
    pub fn alone() -> Self {
        Self::new(Some(Instant::now() + FOR_EVER))
    }

    /// For a process that must not write.
    pub fn never() -> Self {
        Self::new(None)
    }

    pub fn is_leader(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long this process certainly leads; zero if it does not lead.
    pub fn remaining(&self) -> Duration {
        let until = *self.0.until.read();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Reports when leadership is gained or lost. After a suspension of the process the report may be late, so writers
    /// check [`Leadership::remaining`].
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.told.subscribe()
    }

    /// For a process that leads until that time.
    #[cfg(test)]
    pub(crate) fn until(until: Instant) -> Self {
        Self::new(Some(until))
    }

    pub(crate) fn lose(&self) {
        *self.0.until.write() = None;
        if self.0.told.send_if_modified(std::mem::take) {
            tracing::info!("lost leadership; this replica only answers admission reviews");
        }
    }

    fn gain(&self, until: Instant) {
        // If leadership had ended, another process may have led since.
        let is_renewal = self.is_leader();
        *self.0.until.write() = Some(until);
        let is_news = |told: &mut bool| !std::mem::replace(told, true) || !is_renewal;
        if self.0.told.send_if_modified(is_news) {
            tracing::info!("became leader; this replica repairs, registers webhooks and writes statuses");
        }
    }

    fn new(until: Option<Instant>) -> Self {
        let told = watch::Sender::new(until.is_some());
        Self(Arc::new(LeadershipState { until: RwLock::new(until), told }))
    }
}

const VERSION_ANNOTATION: &str = "kubemoor.dev/version";
const COMMIT_ANNOTATION: &str = "kubemoor.dev/commit";
const CA_BUNDLE: &str = "kubemoor.dev/ca-bundle";

/// The maximum size of the CA bundle on a Lease, which is written every few seconds.
const CA_BUNDLE_CAP: usize = 16 << 10;

/// The leader's description of its guard on the Lease. Nothing here is secret, since every authenticated account may
/// read the Lease. Clients cannot get the CA bundle elsewhere: the certificate's Secret also holds its private key, and
/// the webhook configuration the token of the webhook's URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderInfo {
    /// The leader's identity; empty if there is no leader.
    pub holder: String,
    /// When it last renewed the Lease.
    pub renewed: Option<Timestamp>,
    /// The guard's version; `None` if the Lease does not name it.
    pub version: Option<String>,
    /// The commit that the guard was built from, if known.
    pub commit: Option<String>,
    /// The CA bundle of the guard's certificate, as PEM; `None` where the system's trust store is used.
    pub authority: Option<String>,
}

/// Sets the annotations that describe this process.
fn annotate(lease: &mut ObjectMeta, authority: Option<&str>) {
    let authority = authority.filter(|pem| pem.len() <= CA_BUNDLE_CAP);
    let annotations = lease.annotations.get_or_insert_default();
    let told = [
        (VERSION_ANNOTATION, Some(build::VERSION)),
        (COMMIT_ANNOTATION, build::commit()),
        (CA_BUNDLE, authority),
    ];
    for (name, value) in told {
        match value {
            Some(value) => annotations.insert(name.to_owned(), value.to_owned()),
            None => annotations.remove(name),
        };
    }
}

/// What the leader wrote into the Lease `place`; `None` without a Lease. Limited to the time of one attempt.
pub async fn read_leader_info(
    client: &kube::Client,
    place: &LeaseReference,
) -> Result<Option<LeaderInfo>, ClusterError> {
    let leases = Api::<Lease>::namespaced(client.clone(), &place.namespace);
    let late = |_| ClusterError::Late { within: ATTEMPT };
    let lease = timeout(ATTEMPT, read_lease(&leases, &place.name)).await.map_err(late)??;
    Ok(lease.map(describe))
}

fn describe(lease: Lease) -> LeaderInfo {
    let (spec, mut annotations) =
        (lease.spec.unwrap_or_default(), lease.metadata.annotations.unwrap_or_default());
    LeaderInfo {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|renewed| renewed.0),
        version: annotations.remove(VERSION_ANNOTATION),
        commit: annotations.remove(COMMIT_ANNOTATION),
        authority: annotations.remove(CA_BUNDLE),
    }
}

/// The Lease's annotation with the time at which the webhooks were withdrawn.
pub const WITHDRAWN: &str = "kubemoor.dev/withdrawn";

/// How long no guard registers webhooks after they were withdrawn: the time to uninstall it.
const WITHDRAWAL_HOLD: SignedDuration = SignedDuration::from_mins(10);

/// How often a conflicting write is tried: the leader renews the Lease meanwhile.
const NOTE_ATTEMPTS: usize = 5;

/// Until when this guard registers no webhooks. An annotation has effect for at most [`WITHDRAWAL_HOLD`] by this
/// guard's own clock, so that neither a forgotten one nor another clock leaves a cluster unguarded. It is deleted with
/// the Lease, which a new installation creates again.
#[derive(Default)]
struct WithdrawalHold {
    /// The annotation as last seen.
    noted: Option<Timestamp>,
    until: Option<Instant>,
}

/// Records on the Lease, if it exists, that the webhooks are withdrawn now.
pub async fn note_withdrawal(
    client: &kube::Client,
    place: &LeaseReference,
    now: Timestamp,
) -> Result<(), ClusterError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &place.namespace);
    let mut tries = 1;
    loop {
        let Some(mut lease) = read_lease(&leases, &place.name).await? else { return Ok(()) };
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(WITHDRAWN.to_owned(), now.to_string());
        match leases.replace(&place.name, &PostParams::default(), &lease).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) && tries < NOTE_ATTEMPTS => {
                tries += 1
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl WithdrawalHold {
    /// Reads the annotation, and returns until when no webhooks are registered. The time left is computed when an
    /// annotation is first seen: a later clock change does not prolong it, and a time far ahead never takes effect.
    fn see(&mut self, noted: Option<Timestamp>, (now, time): (Instant, Timestamp)) -> Option<Instant> {
        if std::mem::replace(&mut self.noted, noted) != noted {
            self.until = noted.and_then(|noted| hold_left(noted, time)).map(|left| now + left);
        }
        self.until
    }
}

/// When the webhooks were withdrawn, according to the Lease.
fn withdrawn_at(lease: &ObjectMeta) -> Option<Timestamp> {
    lease.annotations.as_ref()?.get(WITHDRAWN)?.parse().ok()
}

/// How long no guard registers webhooks, if they were withdrawn at this time.
fn hold_left(withdrawn: Timestamp, now: Timestamp) -> Option<Duration> {
    let passed = withdrawn.duration_until(now);
    // The time comes from another clock, which may be slightly ahead.
    if passed < -WITHDRAWAL_HOLD {
        return None;
    }
    Duration::try_from(WITHDRAWAL_HOLD - passed.max(SignedDuration::ZERO)).ok().filter(|left| !left.is_zero())
}

/// The Lease of this name, if it exists. Only the API server's own 404 counts as absence: one from a proxy ends neither
/// a leadership nor a withdrawal.
async fn read_lease(leases: &Api<Lease>, name: &str) -> Result<Option<Lease>, ClusterError> {
    call::found(leases.get(name).await.map_err(ClusterError::from))
}

pub async fn read_pulse(
    client: &kube::Client,
    lease: &LeaseReference,
) -> Result<GuardLeaseState, ClusterError> {
    Ok(match read_leader_info(client, lease).await? {
        None => GuardLeaseState::Gone,
        Some(info) => info.renewed.map_or(GuardLeaseState::Unknown, GuardLeaseState::Renewed),
    })
}

#[cfg(test)]
mod tests;
