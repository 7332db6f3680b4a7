//! One object as the simulated API server stores it: flat data, and who owns what
//! of it, as server-side apply keeps it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::event::{HelmManager, LiveObject, Sighting};
use kubemoor_declare::model::{MANAGED_BY, ObjectId, RELEASE_NAME, ReleaseId};

/// A field of an object: `data`, `labels` or `annotations`, and its key.
pub(super) type Field = (&'static str, String);

/// The values of an object's fields.
pub(super) type Fields = BTreeMap<Field, String>;

#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) id: ObjectId,
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) fields: Fields,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    manager: String,
    applies: bool,
    owns: BTreeSet<Field>,
    time: Timestamp,
}

impl Stored {
    pub(super) fn new(id: ObjectId, uid: String) -> Self {
        Self { id, uid, version: 0, fields: Fields::new(), entries: Vec::new() }
    }

    /// The release that its annotations name.
    pub(super) fn release(&self) -> Option<ReleaseId> {
        ReleaseId::from_annotations(|key| self.fields.get(&("annotations", key.to_owned())).cloned())
    }

    /// Whether watches by Helm's label show it.
    pub(super) fn is_labelled(&self) -> bool {
        self.fields.get(&("labels", MANAGED_BY.0.to_owned())).is_some_and(|value| value == MANAGED_BY.1)
    }

    /// Who owns which fields, and whether by applies.
    pub(super) fn owners(&self) -> BTreeSet<(String, bool, BTreeSet<Field>)> {
        let owner = |entry: &Entry| (entry.manager.clone(), entry.applies, entry.owns.clone());
        self.entries.iter().map(owner).collect()
    }

    /// A forced server-side apply.
    pub(super) fn apply(&mut self, manager: &str, wanted: &Fields, now: Timestamp) {
        let own = self.entry(manager, true, now);
        let before = std::mem::replace(&mut own.owns, wanted.keys().cloned().collect());
        for (field, value) in wanted {
            if self.fields.insert(field.clone(), value.clone()).as_ref() != Some(value) {
                self.disown(field, Some((manager, true)));
            }
        }
        for field in before.into_iter().filter(|field| !wanted.contains_key(field)) {
            if !self.entries.iter().any(|entry| entry.owns.contains(&field)) {
                self.fields.remove(&field);
            }
        }
        self.tidy();
    }

    /// What a manager has written by updates counts as applied by it from now on, as Helm does before it applies.
    pub(super) fn adopt(&mut self, manager: &str, now: Timestamp) {
        let is_own = |entry: &Entry| entry.manager == manager && !entry.applies;
        if let Some(place) = self.entries.iter().position(is_own) {
            let owns = self.entries.remove(place).owns;
            self.entry(manager, true, now).owns.extend(owns);
        }
    }

    /// An update or patch: these fields have these values from now on, or are gone.
    pub(super) fn update(
        &mut self,
        manager: &str,
        changes: &BTreeMap<Field, Option<String>>,
        now: Timestamp,
    ) {
        for (field, value) in changes {
            match value {
                Some(value) if self.fields.get(field) == Some(value) => {}
                Some(value) => {
                    self.fields.insert(field.clone(), value.clone());
                    self.disown(field, None);
                    self.entry(manager, false, now).owns.insert(field.clone());
                }
                None => {
                    self.fields.remove(field);
                    self.disown(field, None);
                }
            }
        }
        self.tidy();
    }

    /// A patch of who owns what, by what `managedFields` it sends.
    pub(super) fn own(&mut self, managed: &Value) {
        let read = |entry: &Value| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let mut owns = BTreeSet::new();
            for (part, pointer) in [
                ("data", "/fieldsV1/f:data"),
                ("labels", "/fieldsV1/f:metadata/f:labels"),
                ("annotations", "/fieldsV1/f:metadata/f:annotations"),
            ] {
                for key in entry.pointer(pointer).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
                    if let Some(key) = key.strip_prefix("f:") {
                        owns.insert((part, key.to_owned()));
                    }
                }
            }
            let time = text("time").parse().unwrap_or(Timestamp::UNIX_EPOCH);
            Entry { manager: text("manager"), applies: text("operation") == "Apply", owns, time }
        };
        self.entries = managed.as_array().into_iter().flatten().map(read).collect();
        self.tidy();
    }

    /// The object as a client reads it.
    pub(super) fn value(&self) -> Value {
        let part = |wanted: &str| -> Map<String, Value> {
            let own = self.fields.iter().filter(|((part, _), _)| *part == wanted);
            own.map(|((_, key), value)| (key.clone(), json!(value))).collect()
        };
        json!({
            "apiVersion": "v1", "kind": self.id.kind, "data": part("data"),
            "metadata": {
                "name": self.id.name, "namespace": self.id.namespace, "uid": self.uid,
                "resourceVersion": self.version.to_string(),
                "labels": part("labels"), "annotations": part("annotations"),
            },
        })
    }

    /// Whether somebody has added a field that nothing declares. What nobody owns a webhook has added, and
    /// what an applier owns, as Helm's applies do, is no addition either.
    pub(super) fn is_added(&self, field: &Field) -> bool {
        let owners = || self.entries.iter().filter(|entry| entry.owns.contains(field));
        owners().next().is_some() && owners().all(|entry| !entry.applies)
    }

    /// The object as a guard is told of it.
    pub(super) fn live(&self) -> LiveObject {
        let named = ("annotations", RELEASE_NAME.to_owned());
        let mut managers: Vec<HelmManager> = self
            .entries
            .iter()
            .filter(|entry| entry.owns.contains(&named))
            .map(|entry| HelmManager { name: entry.manager.clone(), applies: entry.applies })
            .collect();
        managers.sort_by_key(|manager| !manager.applies);
        let updaters = self.entries.iter().rev().filter(|entry| !entry.applies);
        let managed = serde_json::value::to_raw_value(&self.managed()).unwrap();
        LiveObject {
            sighting: Sighting {
                id: self.id.clone(),
                uid: self.uid.clone(),
                resource_version: self.version.to_string(),
                deleting: false,
                release: self.release(),
                managers,
                updaters: updaters.map(|entry| entry.manager.clone()).collect(),
                touched: self.entries.iter().map(|entry| entry.time).max(),
            },
            object: Some(self.value()),
            managed: Some(managed),
        }
    }

    fn entry(&mut self, manager: &str, applies: bool, now: Timestamp) -> &mut Entry {
        let is_own = |entry: &Entry| entry.manager == manager && entry.applies == applies;
        let place = self.entries.iter().position(is_own).unwrap_or_else(|| {
            let manager = manager.to_owned();
            self.entries.push(Entry { manager, applies, owns: BTreeSet::new(), time: now });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[place];
        entry.time = now;
        entry
    }

    fn disown(&mut self, field: &Field, but: Option<(&str, bool)>) {
        for entry in &mut self.entries {
            if but != Some((entry.manager.as_str(), entry.applies)) {
                entry.owns.remove(field);
            }
        }
    }

    fn tidy(&mut self) {
        self.entries.retain(|entry| !entry.owns.is_empty());
    }

    fn managed(&self) -> Value {
        let entry = |entry: &Entry| {
            let part = |wanted: &str| -> Map<String, Value> {
                let own = entry.owns.iter().filter(|(part, _)| *part == wanted);
                own.map(|(_, key)| (format!("f:{key}"), json!({}))).collect()
            };
            json!({
                "manager": entry.manager, "operation": if entry.applies { "Apply" } else { "Update" },
                "apiVersion": "v1", "fieldsType": "FieldsV1", "time": entry.time.to_string(),
                "fieldsV1": {
                    "f:data": part("data"),
                    "f:metadata": {"f:labels": part("labels"), "f:annotations": part("annotations")},
                },
            })
        };
        self.entries.iter().map(entry).collect()
    }
}

/// Reads the fields of a document.
pub(super) fn fields(document: &Value) -> Fields {
    let mut found = Fields::new();
    for (part, pointer) in
        [("data", "/data"), ("labels", "/metadata/labels"), ("annotations", "/metadata/annotations")]
    {
        for (key, value) in document.pointer(pointer).and_then(Value::as_object).into_iter().flatten() {
            found.insert((part, key.clone()), value.as_str().unwrap_or_default().to_owned());
        }
    }
    found
}
