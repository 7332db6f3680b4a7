//! The last seen GuardedReleases of a cluster, compressed: there is one for each release, and each
//! is needed seldom.
//!
//! Entry point: [`StatusCache`]. Invariant: returns the stored objects unchanged, except for
//! `managedFields`, which are dropped. Must not decide anything.

use std::collections::HashMap;
use std::io;

use kubemoor_declare::compressed::Compressed;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::GuardedRelease;

/// The GuardedReleases, by release.
#[derive(Default)]
pub(super) struct StatusCache(HashMap<ReleaseId, Held>);

/// One of them, and its version where that is a number.
struct Held {
    version: Option<u64>,
    kept: Kept,
}

enum Kept {
    /// As compressed JSON.
    Small(Compressed),
    /// Uncompressed, where compression failed.
    Whole(Box<GuardedRelease>),
}

impl StatusCache {
    /// Stores the GuardedRelease of a release, in place of an earlier one.
    pub(super) fn put(&mut self, release: ReleaseId, mut guarded: Box<GuardedRelease>) {
        guarded.metadata.managed_fields = None;
        let version = version(&guarded);
        let kept = packed(&guarded).map_or_else(|_| Kept::Whole(guarded), Kept::Small);
        self.0.insert(release, Held { version, kept });
    }

    /// The same, unless a newer version is stored: an answer to a write comes before the news of the watch.
    pub(super) fn put_newer(&mut self, release: ReleaseId, guarded: Box<GuardedRelease>) {
        let is_older = |held: &Held| version(&guarded).zip(held.version).is_some_and(|(it, held)| it < held);
        if !self.0.get(&release).is_some_and(is_older) {
            self.put(release, guarded);
        }
    }

    /// Whether this version of a GuardedRelease is stored.
    pub(super) fn has(&self, release: &ReleaseId, guarded: &GuardedRelease) -> bool {
        let version = version(guarded);
        version.is_some() && self.0.get(release).is_some_and(|held| held.version == version)
    }

    /// The one of a release.
    pub(super) fn get(&self, release: &ReleaseId) -> Option<Box<GuardedRelease>> {
        self.0.get(release)?.kept.guarded()
    }

    /// Removes the one of a release.
    pub(super) fn remove(&mut self, release: &ReleaseId) {
        self.0.remove(release);
    }

    /// The releases that have one.
    pub(super) fn releases(&self) -> impl Iterator<Item = &ReleaseId> {
        self.0.keys()
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Box<GuardedRelease>> {
        self.0.values().filter_map(|held| held.kept.guarded())
    }
}

impl Kept {
    fn guarded(&self) -> Option<Box<GuardedRelease>> {
        match self {
            Self::Small(text) => serde_json::from_slice(&text.read().ok()?).ok(),
            Self::Whole(guarded) => Some(guarded.clone()),
        }
    }
}

fn version(guarded: &GuardedRelease) -> Option<u64> {
    guarded.metadata.resource_version.as_ref()?.parse().ok()
}

fn packed(guarded: &GuardedRelease) -> io::Result<Compressed> {
    Compressed::new(&serde_json::to_vec(guarded)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guarded_release_comes_out_as_it_went_in() {
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let drift = |number| {
            json!({
                "object": {"kind": "ConfigMap", "name": format!("config-{number}")}, "type": "Missing",
                "since": "2026-05-01T12:00:00Z",
            })
        };
        let mut guarded: Box<GuardedRelease> = serde_json::from_value(json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
                         "annotations": {"a": "b"}, "managedFields": [{"manager": "kubemoor"}]},
            "spec": {"suspend": true, "reconcileAt": "now"},
            "status": {"declared": 40, "drifted": 40, "drifts": (0..40).map(drift).collect::<Vec<_>>()},
        }))
        .unwrap();
        let mut shelf = StatusCache::default();
        shelf.put(release.clone(), guarded.clone());
        guarded.metadata.managed_fields = None;
        let text = |guarded: &GuardedRelease| serde_json::to_value(guarded).unwrap();
        assert_eq!(text(&shelf.get(&release).unwrap()), text(&guarded));
        for (version, expected) in [("6", "7"), ("8", "8")] {
            let mut other = guarded.clone();
            other.metadata.resource_version = Some(version.to_owned());
            shelf.put_newer(release.clone(), other);
            let held = shelf.get(&release).unwrap().metadata.resource_version;
            assert_eq!(held.as_deref(), Some(expected));
        }
        assert!(
            matches!(&shelf.0[&release].kept, Kept::Small(small) if small.size() * 3 < text(&guarded).to_string().len())
        );
        shelf.remove(&release);
        assert!(shelf.get(&release).is_none() && shelf.all().next().is_none());
    }
}
