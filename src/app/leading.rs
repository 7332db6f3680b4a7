//! Who acts among the replicas of a run.
//!
//! Entry points: [`Office::seek`], and [`Office::leave`] once everything that
//! writes has ended. Invariant: a guard that knows no namespace of its own has
//! no place to meet others, acts alone and says so; one that is read-only never
//! acts.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::lease::{Election, Leadership, Place};
use crate::config;

/// The lead that this replica has or stands for.
pub(super) struct Office {
    pub(super) leadership: Leadership,
    /// What tells this process from all others.
    pub(super) identity: String,
    election: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Office {
    /// Stands for election, where there is one.
    pub(super) fn seek(client: &kube::Client, cluster: &config::Cluster) -> Self {
        let host = hostname::get().unwrap_or_default();
        let started = jiff::Timestamp::now().as_nanosecond();
        let identity = format!("{}_{}_{started:x}", host.to_string_lossy(), std::process::id());
        if cluster.read_only {
            return Self { leadership: Leadership::never(), identity, election: None };
        }
        let Some(service) = &cluster.own_service else {
            tracing::info!(
                "no Service of its own is known (--service), so this guard looks for no other replica and acts alone"
            );
            return Self { leadership: Leadership::alone(), identity, election: None };
        };
        let place = Place { namespace: service.namespace.clone(), name: service.name.clone() };
        let election = Election::new(client.clone(), place, identity.clone());
        let leadership = election.leadership();
        let stop = CancellationToken::new();
        let standing = tokio::spawn(election.run(stop.clone()));
        Self { leadership, identity, election: Some((stop, standing)) }
    }

    /// Gives the lead up.
    pub(super) async fn leave(self) {
        if let Some((stop, standing)) = self.election {
            stop.cancel();
            // It ends within its own time; one that broke down leads no more.
            let _ = standing.await;
        }
    }
}
