//! Who looks, and which clusters they see.
//!
//! Entry point: [`Visitor`]. Invariant: a cluster is seen with the visitor's credentials and no others.

use std::sync::Arc;

use futures::future::join_all;

use super::address::Asked;
use super::cluster::{Cluster, Settings};
use crate::inspect::failure::Failure;

/// Who looks.
pub(super) struct Visitor {
    pub(super) clusters: Vec<Arc<Cluster>>,
    /// What the forms of their pages hold.
    pub(super) form: String,
}

impl Visitor {
    pub(super) fn new(clusters: Vec<Settings>, form: String) -> Self {
        Self {
            clusters: clusters.into_iter().map(|settings| Arc::new(Cluster::new(settings))).collect(),
            form,
        }
    }

    /// Begins to follow the clusters.
    pub(super) async fn begin(&self) {
        join_all(self.clusters.iter().map(|cluster| cluster.begin())).await;
    }

    /// The cluster that is asked for; the only one, where none is named.
    pub(super) fn cluster(&self, asked: &Asked) -> Result<&Arc<Cluster>, Failure> {
        let named = asked.get("cluster");
        let found = match (named, self.clusters.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), clusters) => clusters.iter().find(|cluster| cluster.name == name),
        };
        found.ok_or_else(|| Failure::Named("this address names no cluster of this page".to_owned()))
    }

    /// The clusters that are asked for: one, or all.
    pub(super) fn asked<'v>(&'v self, asked: &'v Asked) -> impl Iterator<Item = &'v Arc<Cluster>> {
        let named = asked.get("cluster");
        self.clusters.iter().filter(move |cluster| named.is_none_or(|name| name == cluster.name))
    }

    /// Whether there are several, so that each has to be named.
    pub(super) fn has_several(&self) -> bool {
        self.clusters.len() > 1
    }
}
