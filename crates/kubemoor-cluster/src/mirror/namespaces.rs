//! The labels of namespaces, which policies select releases by.
//!
//! Entry point: [`Namespaces::run`]. All namespaces are watched, by their
//! metadata: it is one request, and a policy that comes to need their labels
//! has them at once. Invariant: keeps labels and nothing else, in the resolver.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::policies::InForce;
use super::progress::{Listings, Progress};
use super::reflect::{Mirror, Reflector};
use crate::client::call::CallError;
use crate::client::resource::{Meta, Resource};
use crate::client::watch::MetadataWatch;

/// Follows the namespaces of a cluster.
pub struct Namespaces {
    client: kube::Client,
    in_force: Arc<InForce>,
    listings: Listings,
    /// Who keeps a history.
    keep: Box<dyn Fn(Relabelling) + Send + Sync>,
}

/// By its labels, other policies hold in a namespace than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relabelling {
    /// The namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// The version that the labels came with.
    pub resource_version: String,
    /// The policies that held before.
    pub before: Vec<String>,
    /// The policies that hold now.
    pub after: Vec<String>,
}

impl Namespaces {
    /// The namespaces of the cluster behind `client`, for `in_force`.
    pub fn new(client: kube::Client, in_force: Arc<InForce>) -> Self {
        Self { client, in_force, listings: Listings::of(&[]), keep: Box::new(drop) }
    }

    /// The same, telling `keep` when other policies hold in a namespace because its labels changed.
    #[must_use]
    pub fn keeping(self, keep: impl Fn(Relabelling) + Send + Sync + 'static) -> Self {
        Self { keep: Box::new(keep), ..self }
    }

    /// How far the first listing is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.listings.progress()
    }

    /// Follows them until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let resource = Resource::new("", "v1", "Namespace", "namespaces");
        let watch = MetadataWatch::new(self.client.clone(), &resource, None, None);
        tokio::select! {
            () = stop.cancelled() => {}
            () = Reflector::new(watch.into_events()).run(&mut self) => {}
        }
    }
}

impl Mirror for Namespaces {
    type Object = Meta;
    type Key = String;
    const OBJECTS: &'static str = "namespaces";

    fn set(&mut self, meta: Meta) -> Option<String> {
        let labels = meta.labels.unwrap_or_default();
        if let Some((before, after)) = self.in_force.changed_policies(&meta.name, &labels) {
            let (namespace, uid, resource_version) = (meta.name.clone(), meta.uid, meta.resource_version);
            (self.keep)(Relabelling { namespace, uid, resource_version, before, after });
        }
        self.in_force.set_namespace(&meta.name, Some(labels));
        Some(meta.name)
    }

    fn remove(&mut self, meta: Meta) {
        self.in_force.set_namespace(&meta.name, None);
    }

    fn retain(&mut self, listed: &HashSet<String>) {
        let known = self.in_force.resolver().namespaces();
        for gone in known.iter().filter(|name| !listed.contains(*name)) {
            self.in_force.set_namespace(gone, None);
        }
    }

    fn warn(&self, error: &CallError) {
        tracing::warn!(%error, "namespaces cannot be watched; policies go by the labels known last");
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.listings)
    }
}
