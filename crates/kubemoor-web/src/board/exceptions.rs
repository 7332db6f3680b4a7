//! What is known of the exceptions of a cluster.
//!
//! Entry points: [`Exceptions::take`] for what a watch brings, [`Exceptions::all`]. Invariant: what may not be read any more is
//! forgotten at once; nothing is told that the watch may have missed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use kubemoor_cluster::client::watch::{Event, Form};
use kubemoor_policy::resource::DriftAllowance;

/// A namespace and a name.
type Place = (String, String);

/// What is known of the exceptions.
#[derive(Default)]
pub(super) struct Exceptions {
    /// None where one cannot be read.
    objects: BTreeMap<Place, Option<Box<DriftAllowance>>>,
    /// What the listing under way has named.
    listed: BTreeSet<Place>,
    /// Whether all are known.
    is_whole: bool,
    /// How often those of a namespace have changed.
    changes: HashMap<String, u64>,
    /// How often those of all namespaces may have changed: by the right to them, or before they were listed anew.
    all_changes: u64,
}

/// An exception as a watch brings it.
pub(super) struct Wire {
    version: String,
    place: Place,
    object: Option<Box<DriftAllowance>>,
}

impl Form for Wire {
    type Wire = Value;
    const PAGE: u32 = 250;
    const METADATA: bool = false;

    fn read(mut wire: Value) -> Self {
        let text =
            |pointer: &str| wire.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let place = (text("/metadata/namespace"), text("/metadata/name"));
        let version = text("/metadata/resourceVersion");
        // Whoever may create exceptions chooses how long these are, and no page shows them.
        if let Some(metadata) = wire.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !matches!(&**name, "annotations" | "labels" | "managedFields"));
        }
        Self { version, place, object: serde_json::from_value(wire).ok() }
    }

    fn version(&self) -> &str {
        &self.version
    }
}

impl Exceptions {
    /// All of them; `None` where the watch does not know them at this moment.
    pub(super) fn all(&self) -> Option<Vec<DriftAllowance>> {
        // Why one cannot be read, says who asks for it.
        self.objects
            .values()
            .map(|object| object.as_deref().cloned())
            .collect::<Option<_>>()
            .filter(|_| self.is_whole)
    }

    /// How often those of these namespaces may have changed.
    pub(super) fn changes<'n>(&self, namespaces: impl IntoIterator<Item = &'n String>) -> u64 {
        let own = namespaces.into_iter().filter_map(|namespace| self.changes.get(namespace));
        own.fold(self.all_changes, |sum, changes| sum.wrapping_add(*changes))
    }

    /// The right to them has begun or ended. They are listed anew where it goes on.
    pub(super) fn forget(&mut self) {
        let (changes, all_changes) = (std::mem::take(&mut self.changes), self.all_changes.wrapping_add(1));
        *self = Self { changes, all_changes, ..Self::default() };
    }

    /// Takes what the watch brings. Whether that is a change.
    pub(super) fn take(&mut self, event: Event<Wire>) -> bool {
        match event {
            Event::Relisting => self.listed.clear(),
            Event::Listed(Wire { place, object, .. }) => {
                self.listed.insert(place.clone());
                self.objects.insert(place, object);
            }
            Event::Synced => {
                let listed = std::mem::take(&mut self.listed);
                self.objects.retain(|place, _| listed.contains(place));
                (self.is_whole, self.all_changes) = (true, self.all_changes.wrapping_add(1));
                return true;
            }
            Event::Applied(Wire { place, object, .. }) => {
                self.note_change(&place.0);
                self.objects.insert(place, object);
                return true;
            }
            Event::Deleted(Wire { place, .. }) => {
                self.note_change(&place.0);
                self.objects.remove(&place);
                return true;
            }
            Event::Watching => {}
            // Until they are listed again, a page asks for them, and says why it gets no answer.
            Event::Broken(_) => self.is_whole = false,
        }
        false
    }

    fn note_change(&mut self, namespace: &str) {
        let changes = self.changes.entry(namespace.to_owned()).or_default();
        *changes = changes.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kubemoor_cluster::client::call::CallError;

    fn exception(namespace: &str, name: &str) -> Wire {
        Wire::read(json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data"], "until": "2099-01-01T00:00:00Z"},
        }))
    }

    fn names(exceptions: &Exceptions) -> Option<Vec<String>> {
        let name = |object: DriftAllowance| object.metadata.name.unwrap();
        exceptions.all().map(|all| all.into_iter().map(name).collect())
    }

    #[test]
    fn exceptions_are_told_only_while_all_of_them_are_known() {
        let mut known = Exceptions::default();
        let broken = || Event::Broken(CallError::Unreachable { reason: "away".to_owned() });
        let steps = [
            (Event::Relisting, false, None),
            (Event::Listed(exception("shop", "a")), false, None),
            (Event::Listed(exception("shop", "b")), false, None),
            (Event::Synced, true, Some(vec!["a", "b"])),
            (Event::Watching, false, Some(vec!["a", "b"])),
            (Event::Applied(exception("shop", "c")), true, Some(vec!["a", "b", "c"])),
            (Event::Deleted(exception("shop", "a")), true, Some(vec!["b", "c"])),
            (broken(), false, None),
            (Event::Relisting, false, None),
            (Event::Listed(exception("shop", "c")), false, None),
            (Event::Synced, true, Some(vec!["c"])),
        ];
        for (step, (event, is_change, expected)) in steps.into_iter().enumerate() {
            assert_eq!(known.take(event), is_change, "step {step}");
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(names(&known), expected, "step {step}");
        }
        known.take(Event::Applied(Wire::read(json!({"metadata": {"name": "odd"}, "spec": 7}))));
        assert_eq!(names(&known), None, "one cannot be read");
        known.forget();
        assert_eq!(names(&known), None, "the right has ended");
    }

    #[test]
    fn what_no_page_shows_of_an_exception_is_not_kept() {
        let long = json!({"note": "x".repeat(1000)});
        let wire = json!({
            "metadata": {"namespace": "shop", "name": "a", "annotations": long, "labels": long},
            "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data"], "until": "2099-01-01T00:00:00Z"},
        });
        let mut known = Exceptions::default();
        for event in [Event::Listed(Wire::read(wire)), Event::Synced] {
            known.take(event);
        }
        let kept = serde_json::to_string(&known.all().unwrap()).unwrap();
        assert!(kept.len() < 400, "{kept}");
    }

    #[test]
    fn change_counts_for_its_namespace_alone() {
        let mut known = Exceptions::default();
        let of = |known: &Exceptions, names: &[&str]| {
            known.changes(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let before = (of(&known, &["shop"]), of(&known, &["shop", "bank"]));
        known.take(Event::Applied(exception("bank", "a")));
        let after = (of(&known, &["shop"]), of(&known, &["shop", "bank"]));
        assert_eq!(after.0, before.0);
        assert_ne!(after.1, before.1);
        known.take(Event::Synced);
        assert_ne!(of(&known, &["shop"]), after.0, "some may have been missed");
    }
}
