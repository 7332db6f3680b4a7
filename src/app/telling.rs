//! What tells of the loop: GuardedReleases, events and notifications.
//!
//! Entry point: [`Telling::start`]. Invariant: each is a task of its own, and
//! none can hold up the loop.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::leading::Office;
use super::parts::Parts;
use crate::cluster::call::CallError;
use crate::cluster::events::Events;
use crate::cluster::guarded::{self, GuardedReleases, Remembered};
use crate::cluster::identity;
use crate::cluster::kinds::Kinds;
use crate::cluster::lease::Leadership;
use crate::cluster::objects::Objects;
use crate::cluster::policies::InForce;
use crate::cluster::releases::Releases;
use crate::config;
use crate::guard::announce::Announcer;
use crate::guard::orders::Command;
use crate::guard::state::State;
use crate::guard::status::Statuses;
use crate::metrics::NoticeMetrics;
use crate::model::ReleaseId;
use crate::notify::Notifiers;
use crate::notify::file::Notifier;
use crate::policy::settled::SettledValues;
use crate::policy::signing::SigningKey;

/// Writes of GuardedReleases per second.
const WRITES: NonZeroU32 = match NonZeroU32::new(20) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

/// The pause between attempts to read what an earlier guard knew.
const RETRY: Duration = Duration::from_secs(5);

/// What telling takes.
pub(super) struct Telling {
    pub(super) client: kube::Client,
    pub(super) kinds: Arc<Kinds>,
    pub(super) releases: Arc<Releases>,
    pub(super) objects: Objects,
    pub(super) state: Arc<State>,
    pub(super) in_force: Arc<InForce>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) suspended: HashSet<ReleaseId>,
    pub(super) notifiers: Vec<Notifier>,
    pub(super) metrics: NoticeMetrics,
    pub(super) key: SigningKey,
    pub(super) settled: Arc<SettledValues>,
}

impl Telling {
    /// Starts all of it, as tasks of `parts`.
    pub(super) async fn start(
        self,
        cluster: &config::Cluster,
        office: &Office,
        parts: &mut Parts,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let Self {
            client,
            kinds,
            releases,
            objects,
            state,
            in_force,
            commands,
            suspended,
            notifiers,
            metrics,
            key,
            settled,
        } = self;
        let deliveries = TaskTracker::new();
        let source = match identity::cluster_uid(&client).await {
            Ok(Some(uid)) => format!("urn:kubemoor:{uid}"),
            // A receiver of several clusters cannot tell them apart then.
            Ok(None) | Err(_) => "urn:kubemoor:unknown".to_owned(),
        };
        let notifiers = Notifiers::start(notifiers, &source, &metrics, &deliveries, stop)?;
        deliveries.close();
        let stopped = stop.clone();
        parts.spawn("delivering notifications", async move {
            deliveries.wait().await;
            stopped.cancelled().await;
        });
        let leadership = office.leadership.clone();
        let (events, teller) = if cluster.read_only {
            (None, Leadership::alone())
        } else {
            (
                Some(Events::new(client.clone(), leadership.clone(), office.identity.clone())),
                leadership.clone(),
            )
        };
        let announcer = Announcer {
            state: Arc::clone(&state),
            events,
            notifiers,
            book: Arc::clone(in_force.book()),
            kinds: Arc::clone(&kinds),
            releases: Arc::clone(&releases),
            objects,
            leadership: teller,
            metrics: metrics.clone(),
        };
        parts.spawn("telling of drifts and repairs", announcer.run(stop.clone()));
        if !cluster.read_only {
            metrics.leads(leadership.holds());
            let statuses = Statuses {
                guarded: GuardedReleases::new(client, leadership.clone(), WRITES),
                kinds,
                releases,
                state,
                in_force,
                namespaces: cluster.namespaces.clone(),
                commands,
                suspended,
                leadership,
                metrics,
                key,
                lease: office.place(),
                settled,
            };
            let stop = stop.clone();
            // Before the loop has judged anything.
            let first = statuses.guarded.remembered(&statuses.key).await;
            parts.spawn("keeping GuardedReleases", async move {
                // Before any status is written over.
                if remember(&statuses, first, &stop).await {
                    statuses.run(stop).await;
                }
            });
        }
        Ok(())
    }
}

/// Tells the loop what an earlier guard knew; whether that was done before `stop`.
async fn remember(
    statuses: &Statuses,
    first: Result<Vec<Remembered>, CallError>,
    stop: &CancellationToken,
) -> bool {
    let (mut complained, mut read) = (false, first);
    let telling = async {
        loop {
            match read {
                Ok(remembered) => {
                    for remembered in remembered {
                        // Without a loop there is nobody to tell.
                        drop(statuses.commands.send(remembered.into()).await);
                    }
                    return;
                }
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(
                            "what an earlier guard knew of releases cannot be read, trying again: {error}"
                        );
                    }
                    tokio::time::sleep(RETRY).await;
                    read = statuses.guarded.remembered(&statuses.key).await;
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => false,
        () = telling => true,
    }
}

/// The releases that people have suspended, as soon as the API server says so.
/// Who may not look knows of none.
pub(super) async fn suspended(client: &kube::Client) -> HashSet<ReleaseId> {
    loop {
        match guarded::suspended(client).await {
            Ok(suspended) => return suspended,
            Err(CallError::Refused { code: 401 | 403, .. }) => return HashSet::new(),
            Err(error) => {
                tracing::debug!("which releases are suspended cannot be read, trying again: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
