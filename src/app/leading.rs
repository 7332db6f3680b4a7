//! Leader election among the replicas of a run.
//!
//! Entry points: [`LeaderSession::open`], [`LeaderSession::seek`] once this replica could act, and
//! [`LeaderSession::leave`] at the end. Invariant: the election is a part like the others, and ends after all
//! of them. A guard that does not know its own namespace cannot hold a Lease, acts alone and logs that. A
//! read-only guard never acts.

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::parts::Parts;
use kubemoor_cluster::client::lease::{Election, Leadership, Place};
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_runtime::config;
use kubemoor_runtime::tls::Certificates;

/// The lead of this replica, or its candidacy.
pub(super) struct LeaderSession {
    pub(super) leadership: Leadership,
    /// The identity of this process, unique among all candidates.
    pub(super) identity: String,
    /// Until when nothing is registered, because a person withdrew the webhooks.
    pub(super) withdrawn: watch::Receiver<Option<Instant>>,
    /// The Lease that replicas share; `None` without an election.
    place: Option<Place>,
    /// The election, until this replica takes part in it.
    election: Option<Election>,
    /// Ends the election, which gives the lead up.
    resign: CancellationToken,
}

impl LeaderSession {
    /// Returns a session that knows whether there is an election. This replica is not a candidate yet.
    pub(super) fn open(
        client: &kube::Client,
        cluster: &config::Cluster,
        certificates: &Certificates,
    ) -> Self {
        let host = hostname::get().unwrap_or_default();
        let started = jiff::Timestamp::now().as_nanosecond();
        let identity = format!("{}_{}_{started:x}", host.to_string_lossy(), std::process::id());
        let alone = |leadership, identity| Self {
            leadership,
            identity,
            withdrawn: watch::channel(None).1,
            place: None,
            election: None,
            resign: CancellationToken::new(),
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
        let election =
            Election::new(client.clone(), place.clone(), identity.clone(), certificates.ca_bundle());
        Self {
            leadership: election.leadership(),
            withdrawn: election.withdrawn(),
            identity,
            place: Some(place),
            election: Some(election),
            resign: CancellationToken::new(),
        }
    }

    /// The Lease that the leader renews; `None` where this guard acts alone.
    pub(super) fn place(&self) -> Option<LeaseReference> {
        let Place { namespace, name } = self.place.clone()?;
        Some(LeaseReference { namespace, name })
    }

    /// Takes part in the election, if there is one.
    pub(super) fn seek(&mut self, parts: &mut Parts) {
        if let Some(election) = self.election.take() {
            parts.spawn("the election", election.run(self.resign.clone()));
        }
    }

    /// Waits for all parts, which were told to stop. The election is the last of them, so that the next leader
    /// meets no write of this one; it ends within its own time limits.
    pub(super) async fn leave(self, parts: &mut Parts) {
        parts.all_but(1).await;
        self.resign.cancel();
        parts.all_but(0).await;
    }
}

#[cfg(test)]
mod tests;
