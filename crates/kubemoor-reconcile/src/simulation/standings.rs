//! How releases stand by what really is, and stood.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::stored::{Field, Fields, Stored};
use super::world::{Change, Documents, World};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;

/// What a guard knows of a release.
pub(super) struct View<'v> {
    pub(super) release: &'v ReleaseId,
    /// The manifests in force: an object that agrees with one of them is right.
    pub(super) manifests: &'v [Arc<str>],
    /// The place of the log that the watch of objects has come to.
    pub(super) from: usize,
    /// The guard's policy ignores [`ignored`].
    pub(super) is_lenient: bool,
}

impl World {
    /// Whether each object that a manifest declares was as declared at some time from that place of the log
    /// on. Watches tell of the objects one after the other, so the times of two objects may differ.
    pub(super) fn was_in_sync(&self, view: &View<'_>) -> bool {
        let declared = self.declared_by(view);
        declared.iter().flat_map(|it| it.iter()).all(|(object, _)| {
            let mut states = self.states_of(object, view.from).into_iter();
            states.any(|it| self.is_right(object, it, &declared, view))
        })
    }

    /// Whether an object was missing at some time from that place of the log on, or, unless `is_missing`,
    /// otherwise than declared: an object that has gone since is looked at soon, and drifts until then as well.
    pub(super) fn was_drifting(&self, object: &ObjectId, is_missing: bool, view: &View<'_>) -> bool {
        let declared = self.declared_by(view);
        if declared.iter().all(|it| it.iter().all(|(other, _)| other != object)) {
            return false;
        }
        self.states_of(object, view.from).into_iter().any(|it| match it {
            None => !is_missing || !self.is_right(object, None, &declared, view),
            Some(_) => !is_missing && !self.is_right(object, it, &declared, view),
        })
    }

    /// What of the releases in force is not as declared.
    pub(super) fn drift(&self) -> Vec<String> {
        let told = |(id, name, faults): (&ReleaseId, String, Vec<String>)| {
            faults.into_iter().map(|fault| format!("{id}: {name} {fault}")).collect::<Vec<_>>()
        };
        self.faulty().into_iter().flat_map(told).collect()
    }

    /// The names of what drifts, of each release in force.
    pub(super) fn drifting(&self) -> BTreeMap<ReleaseId, BTreeSet<String>> {
        let mut found: BTreeMap<ReleaseId, BTreeSet<String>> = BTreeMap::new();
        for (id, name, _) in self.faulty() {
            found.entry(id.clone()).or_default().insert(name);
        }
        found
    }

    /// The objects of the releases in force that are not as declared, with their faults.
    fn faulty(&self) -> Vec<(&ReleaseId, String, Vec<String>)> {
        let mut found = Vec::new();
        for (id, records) in &self.records {
            let Some(latest) = records.last().filter(|it| it.status == ReleaseStatus::Deployed) else {
                continue;
            };
            for (object, declared) in self.documents(id, &latest.manifest).iter() {
                let faults = self.faults(declared, self.objects.get(object));
                if !faults.is_empty() {
                    found.push((id, object.name.to_string(), faults));
                }
            }
        }
        found
    }

    fn declared_by(&self, view: &View<'_>) -> Vec<Rc<Documents>> {
        view.manifests.iter().map(|manifest| self.documents(view.release, manifest)).collect()
    }

    /// Whether an object is as one of the manifests has it; a manifest that does not declare it has none.
    fn is_right(
        &self,
        object: &ObjectId,
        live: Option<&Stored>,
        declared: &[Rc<Documents>],
        view: &View<'_>,
    ) -> bool {
        declared.iter().any(|documents| {
            let found = documents.iter().find(|(other, _)| other == object);
            found.map_or(live.is_none(), |(_, fields)| self.is_as_declared(fields, live, view))
        })
    }

    /// How an object was from a place of the log on; none while it was not there.
    fn states_of(&self, object: &ObjectId, from: usize) -> Vec<Option<&Stored>> {
        let (before, since) = self.log.split_at(from.min(self.log.len()));
        let at_first = before.iter().rev().find_map(|change| state_after(change, object)).flatten();
        let since = since.iter().filter_map(|change| state_after(change, object));
        std::iter::once(at_first).chain(since).collect()
    }

    fn is_as_declared(&self, declared: &Fields, live: Option<&Stored>, view: &View<'_>) -> bool {
        if !view.is_lenient {
            return self.faults(declared, live).is_empty();
        }
        let (mut counted, mut live) = (declared.clone(), live.cloned());
        counted.remove(&ignored());
        if let Some(live) = &mut live {
            live.fields.remove(&ignored());
        }
        self.faults(&counted, live.as_ref()).is_empty()
    }

    /// What of an object is not as declared.
    fn faults(&self, declared: &Fields, live: Option<&Stored>) -> Vec<String> {
        let Some(live) = live else { return vec!["is missing".to_owned()] };
        let differs = |(field, value): &(&Field, &String)| {
            live.fields.get(*field).map(String::as_str) != Some(self.admitted(value))
        };
        let other = declared.iter().filter(differs).map(|(field, _)| format!("has another {field:?}"));
        let is_added =
            |field: &Field| field.0 == "data" && !declared.contains_key(field) && live.is_added(field);
        let more = (self.sealed && live.fields.keys().any(is_added)).then(|| "holds more".to_owned());
        other.chain(more).collect()
    }
}

/// The field that lenient policies ignore.
pub(super) fn ignored() -> Field {
    ("data", "b".to_owned())
}

/// How an object is after a change; none if the change is of something else.
fn state_after<'c>(change: &'c Change, of: &ObjectId) -> Option<Option<&'c Stored>> {
    match change {
        Change::Object { object, stored, .. } if object == of => Some(stored.as_deref()),
        _ => None,
    }
}
