//! The version of an object that an update changes.
//!
//! Entry points: [`Version::of`], [`Version::follows`]. Invariant: of all updates of one version at most one is stored,
//! so two reviews about versions with at most one change in between tell whether the first update was stored. Pure.

use kubemoor_declare::outline::Excerpt;
use kubemoor_declare::path::{Path, Segment};

/// The version of an object that an update changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::webhook) struct Version {
    uid: String,
    resource_version: String,
    /// The object's generation, where the update raises it: the API server counts the changes of the kind's `spec` so.
    /// Other updates raise the resourceVersion alone, which counts the writes to the whole database.
    generation: Option<i64>,
}

impl Version {
    /// The version that the update from `old` to `new` changes; `None` where the objects do not tell. `changed` are the
    /// fields by which updates are compared: if none of them raises the generation by itself, another change of them in
    /// between would not be counted.
    pub(in crate::webhook) fn of<'p>(
        old: &Excerpt<'_>,
        new: &Excerpt<'_>,
        changed: impl IntoIterator<Item = &'p Path>,
    ) -> Option<Self> {
        let generation = |object: &Excerpt<'_>| -> Option<i64> {
            serde_json::from_str(object.at(&["metadata", "generation"])?.get()).ok()
        };
        let [uid, resource_version] = old.texts(&["metadata"], ["uid", "resourceVersion"]);
        let is_given = |text: &String| !text.is_empty();
        let (uid, resource_version) = (uid.filter(is_given)?, resource_version.filter(is_given)?);
        let is_counted = changed.into_iter().any(raises_generation);
        let is_raised = |before: &i64| is_counted && generation(new).is_some_and(|now| now > *before);
        Some(Self { uid, resource_version, generation: generation(old).filter(is_raised) })
    }

    /// Whether the object has this version after `before`, with at most one change in between that `generation` counts,
    /// or exactly one of any kind.
    pub(super) fn follows(&self, before: &Self) -> bool {
        if self.uid != before.uid || self.resource_version == before.resource_version {
            return false;
        }
        match (before.generation, self.generation) {
            (Some(before), Some(now)) => now == before || before.checked_add(1) == Some(now),
            (None, None) => {
                let [before, now] = [before, self].map(|it| it.resource_version.parse::<u64>().ok());
                before.and_then(|before| before.checked_add(1)).is_some_and(|next| now == Some(next))
            }
            _ => false,
        }
    }

    #[cfg(test)]
    pub(super) fn sample(uid: &str, resource_version: &str, generation: Option<i64>) -> Self {
        Self { uid: uid.to_owned(), resource_version: resource_version.to_owned(), generation }
    }
}

/// Whether the API server may count changes of this field: it never counts those of metadata and status.
fn raises_generation(path: &Path) -> bool {
    !matches!(path.0.first(), Some(Segment::Field(name)) if name == "metadata" || name == "status")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generation_counts_only_where_a_compared_field_raises_it() {
        let version = |old: i64, new: i64, changed: &str| {
            let [old, new] = [(old, "7"), (new, "7")].map(|(generation, version)| {
                let metadata = json!({"uid": "u", "resourceVersion": version, "generation": generation});
                json!({"spec": {"replicas": generation}, "metadata": metadata}).to_string()
            });
            let changed: Path = changed.parse().unwrap();
            Version::of(&Excerpt::of(&old), &Excerpt::of(&new), [&changed])
        };
        assert_eq!(version(3, 4, "/spec/replicas"), Some(Version::sample("u", "7", Some(3))));
        assert_eq!(version(3, 3, "/spec/replicas"), Some(Version::sample("u", "7", None)));
        // The update raises it by another field, and a reset of the label alone would not.
        assert_eq!(version(3, 4, "/metadata/labels/tier"), Some(Version::sample("u", "7", None)));
        let bare = json!({"metadata": {"name": "web"}}).to_string();
        assert_eq!(Version::of(&Excerpt::of(&bare), &Excerpt::of(&bare), []), None);
    }
}
