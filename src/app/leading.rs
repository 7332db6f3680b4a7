//! Leader election among the replicas of a run.
//!
//! Entry points: [`LeaderSession::open`], [`LeaderSession::seek`] once this replica could act, and
//! [`LeaderSession::leave`] once all writers have ended. Invariant: a guard that does not know its own
//! namespace cannot hold a Lease, acts alone and logs that. A read-only guard never acts.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::callers::Callers;
use crate::client::lease::{CaBundle, Election, Leadership, OwnAuthority, Place};
use crate::config;
use crate::policy::guarded::LeaseReference;
use crate::tls::Certificates;

/// The lead of this replica, or its candidacy.
pub(super) struct LeaderSession {
    pub(super) leadership: Leadership,
    /// The identity of this process, unique among all candidates.
    pub(super) identity: String,
    /// The authorities that the API server has to trust while this replica leads.
    pub(super) trusted: CaBundle,
    /// The Lease that replicas share; `None` without an election.
    place: Option<Place>,
    /// The election, until this replica takes part in it.
    election: Option<Election>,
    standing: Option<(CancellationToken, JoinHandle<()>)>,
}

impl LeaderSession {
    /// Returns a session that knows whether there is an election. This replica is not a candidate yet.
    pub(super) fn open(
        client: &kube::Client,
        cluster: &config::Cluster,
        certificates: &Certificates,
        callers: Callers,
    ) -> Self {
        let host = hostname::get().unwrap_or_default();
        let started = jiff::Timestamp::now().as_nanosecond();
        let identity = format!("{}_{}_{started:x}", host.to_string_lossy(), std::process::id());
        let own = OwnAuthority { bundle: certificates.ca_bundle(), is_shared: certificates.is_shared() };
        let trusted = own.bundle.clone();
        let alone = |leadership, identity| Self {
            leadership,
            identity,
            trusted,
            place: None,
            election: None,
            standing: None,
        };
        if cluster.read_only {
            return alone(Leadership::never(), identity);
        }
        let Some(service) = &cluster.own_service else {
            tracing::info!(
                "no Service of its own is known (--service), so this guard looks for no other replica and acts alone"
            );
            return alone(Leadership::alone(), identity);
        };
        let place = Place { namespace: service.namespace.clone(), name: service.name.clone() };
        let election = Election::new(client.clone(), place.clone(), identity.clone(), own, callers);
        Self {
            leadership: election.leadership(),
            trusted: election.trusted(),
            identity,
            place: Some(place),
            election: Some(election),
            standing: None,
        }
    }

    /// The Lease that the leader renews; `None` where this guard acts alone.
    pub(super) fn place(&self) -> Option<LeaseReference> {
        let Place { namespace, name } = self.place.clone()?;
        Some(LeaseReference { namespace, name })
    }

    /// Takes part in the election, if there is one.
    pub(super) fn seek(&mut self) {
        if let Some(election) = self.election.take() {
            let stop = CancellationToken::new();
            self.standing = Some((stop.clone(), tokio::spawn(election.run(stop))));
        }
    }

    /// Gives the lead up.
    pub(super) async fn leave(self) {
        if let Some((stop, standing)) = self.standing {
            stop.cancel();
            // The election ends within its own time limits. A failed one no longer leads.
            let _ = standing.await;
        }
    }
}
