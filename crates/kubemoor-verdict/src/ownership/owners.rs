//! The managers of one object and what each owns.
//!
//! Entry point: [`Owners::of`]. Invariant: unchanged entries are written back exactly as they were
//! read, including entries that cannot be read. Must not judge.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::fieldset::FieldSet;
use kubemoor_declare::model::RELEASE_NAME;
use kubemoor_declare::path::{Path, Segment};

/// The most entries of one object that are read. The API server merges all but ten of the managers
/// that update; managers that apply are few.
pub(super) const MAX_ENTRIES: usize = 1000;

/// Who wrote: what tells one entry of `managedFields` from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manager {
    /// The name, such as `helm` or `kubectl-set`.
    #[serde(rename = "manager")]
    pub name: String,
    /// How it wrote.
    pub operation: Operation,
    /// The subresource through which it wrote, such as `scale`; empty for the
    /// object itself, and on API servers that keep no such note (before 1.21).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// How a field manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By create, update or patch.
    Update,
}

/// The managers of one object and what each owns.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    entries: Vec<Slot>,
}

/// An entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its place in `managedFields`.
    pub index: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

#[derive(Clone, Debug)]
enum Slot {
    Entry(Box<Entry>),
    Odd(Value, &'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    pub(super) since: Option<Timestamp>,
    pub(super) owned: FieldSet,
    /// The entry as it came, without its fields.
    head: Value,
}

impl Owners {
    /// The managers of a live object.
    pub fn of(object: &Value) -> Self {
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        let read = |(index, entry): (usize, &Value)| {
            if index >= MAX_ENTRIES {
                return Slot::Odd(entry.clone(), "there are too many entries");
            }
            match Entry::read(entry) {
                Ok(entry) => Slot::Entry(Box::new(entry)),
                Err(reason) => Slot::Odd(entry.clone(), reason),
            }
        };
        Self { entries: entries.into_iter().flatten().enumerate().map(read).collect() }
    }

    /// The entries that cannot be read.
    pub fn skipped(&self) -> Vec<Skipped> {
        let odd = |(index, slot): (usize, &Slot)| match slot {
            Slot::Odd(_, reason) => Some(Skipped { index, reason }),
            Slot::Entry(_) => None,
        };
        self.entries.iter().enumerate().filter_map(odd).collect()
    }

    /// The owners of the value at `path`, or of a parent as one value.
    pub fn of_path(&self, path: &Path) -> Vec<&Manager> {
        self.read().filter(|entry| entry.owned.owns(path)).map(|entry| &entry.manager).collect()
    }

    /// Whether Helm owns the value at `path`, by the manager that owns its annotation.
    pub(crate) fn are_helms(&self, path: &Path) -> bool {
        let annotation = annotation();
        self.read().any(|entry| entry.owned.owns(&annotation) && entry.owned.owns(path))
    }

    /// Whether Helm is the only owner of the value at `path`.
    pub(crate) fn are_helms_alone(&self, path: &Path) -> bool {
        let owning = || self.read().filter(|entry| entry.owned.owns(path));
        owning().next().is_some() && owning().all(|entry| entry.owned.owns(&annotation()))
    }

    /// Whether the object tells of no manager.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether all updates used this version of the kind. Updates in another version may have other
    /// paths.
    pub(crate) fn are_of(&self, api_version: &Value) -> bool {
        let main = |entry: &&Entry| {
            entry.manager.operation == Operation::Update && entry.manager.subresource.is_empty()
        };
        self.read()
            .filter(main)
            .all(|entry| entry.head.get("apiVersion").is_none_or(|own| own == api_version))
    }

    pub(super) fn read(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter_map(|slot| match slot {
            Slot::Entry(entry) => Some(&**entry),
            Slot::Odd(..) => None,
        })
    }

    pub(super) fn read_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter_map(|slot| match slot {
            Slot::Entry(entry) => Some(&mut **entry),
            Slot::Odd(..) => None,
        })
    }

    pub(super) fn entry(&self, manager: &Manager) -> Option<&Entry> {
        self.read().find(|entry| entry.manager == *manager)
    }

    /// The `managedFields` with these entries, without entries that own nothing.
    pub(super) fn value(&self) -> Value {
        let written = |slot: &Slot| match slot {
            Slot::Odd(value, _) => Some(value.clone()),
            Slot::Entry(entry) if entry.owned.is_empty() => None,
            Slot::Entry(entry) => {
                let mut value = entry.head.clone();
                if let Value::Object(map) = &mut value {
                    map.insert("fieldsV1".to_owned(), entry.owned.value());
                }
                Some(value)
            }
        };
        self.entries.iter().filter_map(written).collect()
    }

    /// Gives the declared `path` to Helm: other managers that update lose it, Helm's entry gains
    /// it.
    pub(super) fn give(&mut self, helm: Option<&Manager>, path: &Path) {
        // Helm sends texts that the API server moves into `data`. Applied from
        // there, Helm would find `data` dropped by its next manifest.
        let texts = stands_for_text(path);
        for entry in self.read_mut() {
            if helm == Some(&entry.manager) {
                if texts.as_ref().is_none_or(|texts| !entry.owned.owns(texts)) {
                    entry.owned.add(path);
                }
            } else if entry.manager.operation == Operation::Update {
                entry.owned.remove(path);
            }
        }
    }

    /// Restores the owners of `path` from `old`.
    pub(super) fn as_in(&mut self, old: &Self, path: &Path) {
        for entry in self.read_mut() {
            entry.owned.remove(path);
        }
        for before in old.read() {
            let Some(owned) = before.owned.at(path) else { continue };
            if self.entry(&before.manager).is_none() {
                let lost = Entry { owned: FieldSet::default(), ..before.clone() };
                self.entries.push(Slot::Entry(Box::new(lost)));
            }
            for entry in self.read_mut().filter(|entry| entry.manager == before.manager) {
                entry.owned.put(path, owned.clone());
            }
        }
    }
}

impl Entry {
    fn read(entry: &Value) -> Result<Self, &'static str> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let operation = match text("operation") {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err("its operation is neither Apply nor Update"),
        };
        if text("fieldsType").is_some_and(|kind| kind != "FieldsV1") {
            return Err("its fieldsType is not FieldsV1");
        }
        let mut head = entry.clone();
        let fields = head.as_object_mut().and_then(|map| map.remove("fieldsV1"));
        let Some(Value::Object(fields)) = fields else { return Err("it has no fieldsV1") };
        let manager = Manager {
            name: text("manager").unwrap_or_default().to_owned(),
            operation,
            subresource: text("subresource").unwrap_or_default().to_owned(),
        };
        // Times in managedFields come from clients and may be invalid.
        let since = text("time").and_then(|time| time.parse().ok());
        Ok(Self { manager, since, owned: FieldSet::new(fields), head })
    }
}

/// For a key of a Secret's `data`: the path of the key if the manifest spells the value as text.
pub(super) fn stands_for_text(path: &Path) -> Option<Path> {
    match &*path.0 {
        [Segment::Field(data), key] if data == "data" => {
            Some(Path([Segment::Field("stringData".to_owned()), key.clone()].into()))
        }
        _ => None,
    }
}

/// The annotation that tells Helm's manager.
fn annotation() -> Path {
    let names = ["metadata", "annotations", RELEASE_NAME];
    Path(names.iter().map(|name| Segment::Field((*name).to_owned())).collect())
}
