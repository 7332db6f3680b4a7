//! Leader election by a Lease: only the leader writes to the cluster.
//!
//! Entry points: [`Leadership`], checked before every write, and [`Election`], which acquires, renews and
//! releases the Lease. Invariant: by the leader's own clock, its leadership ends before another process may
//! take the Lease. So a process that was suspended and resumes no longer leads. A Lease counts as expired
//! after this process has seen it unchanged for its lifetime, whatever other clocks say. Must not know what
//! leaders do.
//!
//! kube has no leader election. The crates that add it build on older majors of kube, and do not tell a
//! process that wakes up that it has lost the Lease.

mod candidacy;
pub mod leader_info;
mod leadership;
pub mod pulse;
mod reading;
pub mod withdrawal;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::candidacy::{Candidacy, Step};
pub use self::leadership::Leadership;
use self::withdrawal::Hold;
use super::call::CallError;
use kubemoor_runtime::telemetry::FailureLog;

/// How long a Lease is valid without a renewal.
const LIFE: Duration = Duration::from_secs(12);

/// How long its holder relies on it, counted from the start of the request.
const BELIEF: Duration = Duration::from_secs(10);

/// How often it is renewed.
const RENEWAL: Duration = Duration::from_secs(4);

/// How long one attempt to write it may take.
const ATTEMPT: Duration = Duration::from_secs(3);

/// The pause after an attempt that failed.
const RETRY: Duration = Duration::from_secs(1);

/// The CA bundle of the guard's certificate, as PEM; `None` where the system's trust store is used.
pub type CaBundle = watch::Receiver<Option<Arc<str>>>;

/// The Lease that replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Takes part in the election until it is told to stop.
pub struct Election {
    leases: Api<Lease>,
    place: Place,
    candidacy: Candidacy,
    leadership: Leadership,
    /// The CA bundle of this replica's certificate, which the Lease tells of while it leads.
    bundle: CaBundle,
    /// Until when nothing is registered, because a person withdrew the webhooks.
    withdrawn: watch::Sender<Option<Instant>>,
    hold: Hold,
    /// The Lease as it was last seen.
    lease: Option<Lease>,
    failures: FailureLog,
}

impl Election {
    /// An election for the Lease at `place`, as `identity`, which no other process has.
    pub fn new(client: kube::Client, place: Place, identity: String, bundle: CaBundle) -> Self {
        Self {
            leases: Api::namespaced(client, &place.namespace),
            place,
            candidacy: Candidacy::new(identity),
            leadership: Leadership::never(),
            bundle,
            withdrawn: watch::Sender::new(None),
            hold: Hold::default(),
            lease: None,
            failures: FailureLog::default(),
        }
    }

    /// What this election decides.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Until when nothing is registered, because a person withdrew the webhooks, by the Lease; `None` if nobody did or
    /// that is not known. Whoever leads has read it.
    pub fn withdrawn(&self) -> watch::Receiver<Option<Instant>> {
        self.withdrawn.subscribe()
    }

    /// Takes part in the election until `stop`, then releases the Lease, so that another replica takes over
    /// at once. Stop it only after all writers.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.stand() => {}
        }
        self.resign().await;
    }

    async fn stand(&mut self) {
        let selected = watcher::Config::default().fields(&format!("metadata.name={}", self.place.name));
        // A broken watch only delays: a write based on an old state is refused by its resourceVersion, and
        // then the Lease is read again.
        let mut events = std::pin::pin!(watcher(self.leases.clone(), selected).default_backoff());
        loop {
            let now = Instant::now();
            if self.leadership.left() == Some(Duration::ZERO) {
                self.leadership.lose();
            }
            match self.candidacy.step(now) {
                Step::Wait(until) => {
                    let until = match self.leadership.left() {
                        Some(left) if !left.is_zero() => until.min(now + left),
                        _ => until,
                    };
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
                    let patience = self.leadership.left().filter(|left| !left.is_zero()).unwrap_or(ATTEMPT);
                    let outcome = match timeout(patience.min(ATTEMPT), self.act(step)).await {
                        Ok(outcome) => outcome,
                        Err(_) => Err(CallError::Late { within: patience.min(ATTEMPT) }),
                    };
                    match outcome {
                        Ok(()) => self.failures.note_success(),
                        Err(error) => {
                            if self.failures.note_failure() {
                                let Place { namespace, name } = &self.place;
                                tracing::warn!(
                                    "the Lease {name} in namespace {namespace} cannot be read or written, trying again: {error}"
                                );
                            }
                            self.candidacy.failed(Instant::now() + RETRY);
                        }
                    }
                }
            }
        }
    }

    async fn act(&mut self, step: Step) -> Result<(), CallError> {
        // The time before the request: the Lease starts no later than this.
        let asked = Instant::now();
        let written = match step {
            Step::Wait(_) => return Ok(()),
            Step::Read => {
                let lease = reading::read(&self.leases, &self.place.name).await?;
                self.see(lease);
                return Ok(());
            }
            Step::Create => self.leases.create(&PostParams::default(), &self.claim(true)).await,
            Step::Take => self.replace(true).await,
            Step::Renew => self.replace(false).await,
        };
        match written {
            Ok(lease) => {
                self.see(Some(lease));
                self.candidacy.renewed(asked);
                self.leadership.gain(asked + BELIEF);
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

    async fn replace(&self, takes: bool) -> kube::Result<Lease> {
        self.leases.replace(&self.place.name, &PostParams::default(), &self.claim(takes)).await
    }

    /// The Lease in this replica's name; `takes` it from another.
    fn claim(&self, takes: bool) -> Lease {
        let now = Some(MicroTime(Timestamp::now()));
        let mut lease = self.lease.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.place.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        leader_info::annotate(&mut lease.metadata, self.bundle.borrow().as_deref());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.candidacy.me().to_owned());
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
        let noted = lease.as_ref().and_then(|lease| withdrawal::seen(&lease.metadata));
        let withdrawn = self.hold.see(noted, (now, Timestamp::now()));
        self.withdrawn.send_if_modified(|known| std::mem::replace(known, withdrawn) != withdrawn);
        self.lease = lease;
        if !self.candidacy.is_holder() && self.leadership.holds() {
            self.leadership.lose();
        }
    }

    /// Gives the Lease up if it is this replica's: also one that it took
    /// without learning so.
    async fn resign(mut self) {
        self.leadership.lose();
        let give_up = async {
            let lease = reading::read(&self.leases, &self.place.name).await?;
            self.see(lease);
            if self.candidacy.is_holder() {
                let mut lease = self.claim(false);
                let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.leases.replace(&self.place.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, CallError>(())
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

#[cfg(test)]
mod tests;
