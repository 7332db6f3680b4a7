//! The labels of namespaces, which policies select releases by.
//!
//! Entry point: [`Namespaces::run`]. All namespaces are watched, by their
//! metadata: it is one request, and a policy that comes to need their labels
//! has them at once. Invariant: keeps labels and nothing else, in the book.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::policies::InForce;
use super::progress::Progress;
use super::resource::{Meta, Resource};
use super::watch::{Event, MetadataWatch};
use crate::telemetry::FailureLog;

/// Follows the namespaces of a cluster.
pub struct Namespaces {
    client: kube::Client,
    in_force: Arc<InForce>,
    progress: watch::Sender<Progress>,
}

impl Namespaces {
    /// The namespaces of the cluster behind `client`, for `in_force`.
    pub fn new(client: kube::Client, in_force: Arc<InForce>) -> Self {
        Self { client, in_force, progress: watch::Sender::new(Progress::Listing) }
    }

    /// How far the first listing is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Follows them until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&self) {
        let resource = Resource::new("", "v1", "Namespace", "namespaces");
        let mut watch = MetadataWatch::new(self.client.clone(), &resource, None, None);
        let mut listed: HashSet<String> = HashSet::new();
        let mut failures = FailureLog::default();
        loop {
            match watch.next().await {
                Event::Relisting => listed.clear(),
                Event::Listed(meta) => {
                    listed.insert(meta.name.clone());
                    self.set(meta);
                }
                Event::Applied(meta) => self.set(meta),
                Event::Deleted(meta) => self.in_force.set_namespace(&meta.name, None),
                Event::Synced => {
                    let known = self.in_force.book().namespaces();
                    for gone in known.iter().filter(|name| !listed.contains(*name)) {
                        self.in_force.set_namespace(gone, None);
                    }
                    self.progress.send_replace(Progress::Listed);
                }
                Event::Watching => failures.note_success(),
                Event::Broken(error) => {
                    Progress::fail(&self.progress, "namespaces cannot be listed", &error);
                    if failures.note_failure() {
                        tracing::warn!(%error, "namespaces cannot be watched; policies go by the labels known last");
                    }
                }
            }
        }
    }

    fn set(&self, meta: Meta) {
        self.in_force.set_namespace(&meta.name, Some(meta.labels.unwrap_or_default()));
    }
}
