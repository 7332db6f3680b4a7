//! Who owns which declared field of a live object, by its `managedFields`.
//!
//! Entry points: [`Owners::of`] reads them, [`helms`] finds Helm's own manager
//! in them, [`conflicts`] says what the next upgrade will meet, [`returned`]
//! and [`undone`] give back to Helm what others took.
//!
//! Helm 4 applies server-side, without force: where another manager owns a
//! field and the manifest has another value for it, the upgrade fails. An equal
//! value is owned by both, so it costs nothing until a chart changes it.
//!
//! Invariant: `managedFields` are what clients sent. An entry that cannot be
//! read is skipped with a reason and written back as it is; walks follow
//! declared paths, never the depth of what was sent.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation};
use serde::Serialize;
use serde_json::Value;

use self::fieldset::FieldSet;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::Fields;
use crate::declaration::path::{Path, Segment};
use crate::helm::record::ApplyMethod;
use crate::model::{MANAGED_BY, RELEASE_NAME, RELEASE_NAMESPACE};

mod fieldset;

/// The name under which Flux's controller runs Helm. It always forces its
/// applies, so it meets no conflict.
const FLUX: &str = "helm-controller";

/// The entries of one object that are read. The API server merges all but ten
/// of the updating managers; appliers are few.
const MAX_ENTRIES: usize = 1000;

/// Who wrote: what tells one entry of `managedFields` from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// A declared field that somebody beside Helm owns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conflict {
    /// The field.
    #[serde(serialize_with = "displayed")]
    pub path: Path,
    /// Who owns it.
    #[serde(flatten)]
    pub manager: Manager,
    /// When that manager last wrote any field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Whether the field's value is not the declared one. Then every upgrade
    /// meets the conflict, else one that changes the field.
    pub differs: bool,
}

/// A path that an edit changed and that was set back.
#[derive(Clone, Debug, PartialEq)]
pub struct Back {
    /// The path.
    pub path: Path,
    /// The declared paths at and below it; none where the manifest declares
    /// nothing there.
    pub declared: Vec<Path>,
}

#[derive(Clone, Debug)]
enum Slot {
    Entry(Box<Entry>),
    Odd(Value, &'static str),
}

#[derive(Clone, Debug)]
struct Entry {
    manager: Manager,
    since: Option<Timestamp>,
    owned: FieldSet,
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

    /// Who owns what is at `path`, or an ancestor of it as one value.
    pub fn of_path(&self, path: &Path) -> Vec<&Manager> {
        self.read().filter(|entry| entry.owned.owns(path)).map(|entry| &entry.manager).collect()
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn read(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter_map(|slot| match slot {
            Slot::Entry(entry) => Some(&**entry),
            Slot::Odd(..) => None,
        })
    }

    fn read_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter_map(|slot| match slot {
            Slot::Entry(entry) => Some(&mut **entry),
            Slot::Odd(..) => None,
        })
    }

    fn entry(&self, manager: &Manager) -> Option<&Entry> {
        self.read().find(|entry| entry.manager == *manager)
    }

    /// The `managedFields` that say this; entries that own nothing are left out.
    fn value(&self) -> Value {
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

    /// Makes the declared `path` Helm's: others that update lose it, Helm's
    /// entry gains it.
    fn give(&mut self, helm: Option<&Manager>, path: &Path) {
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

    /// Who owns what at `path`, as it was in `old`.
    fn as_in(&mut self, old: &Self, path: &Path) {
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
        // Times inside managedFields are whatever a client sent.
        let since = text("time").and_then(|time| time.parse().ok());
        Ok(Self { manager, since, owned: FieldSet::new(fields), head })
    }
}

/// Helm's own manager: the one that wrote Helm's label and annotations on most
/// of these objects of one release, in the way in which the release's record
/// says that Helm writes. Helm's manager is named for the program that runs it.
/// `None` if nobody did.
pub fn helms<'o>(objects: impl IntoIterator<Item = &'o Owners>, method: ApplyMethod) -> Option<Manager> {
    let operation = match method {
        ApplyMethod::ServerSide => Operation::Apply,
        ApplyMethod::ClientSide => Operation::Update,
    };
    let marks = [
        field(&["metadata", "annotations", RELEASE_NAME]),
        field(&["metadata", "annotations", RELEASE_NAMESPACE]),
        field(&["metadata", "labels", MANAGED_BY.0]),
    ];
    let mut votes: BTreeMap<&Manager, usize> = BTreeMap::new();
    for entry in objects.into_iter().flat_map(Owners::read) {
        let own = entry.manager.operation == operation && entry.manager.subresource.is_empty();
        let owned = marks.iter().filter(|mark| entry.owned.owns(mark)).count();
        if own && owned > 0 {
            *votes.entry(&entry.manager).or_default() += owned;
        }
    }
    // Somebody may have applied a manifest of Helm's by hand.
    let by_hand = |manager: &Manager| manager.name.starts_with("kubectl");
    let most =
        votes.into_iter().max_by_key(|(manager, votes)| (*votes, !by_hand(manager), Reverse(*manager)));
    most.map(|(manager, _)| manager.clone())
}

/// The declared fields on which the next upgrade of a release that Helm writes
/// by `method` will meet a conflict, or will as soon as it changes them: those
/// that somebody beside `helm` owns. None for client-side releases, and none
/// for Flux, which forces.
pub fn conflicts(
    fields: &Fields,
    live: &Value,
    owners: &Owners,
    helm: &Manager,
    method: ApplyMethod,
) -> Vec<Conflict> {
    if method == ApplyMethod::ClientSide || helm.name == FLUX {
        return Vec::new();
    }
    let drift = fields.drift(live);
    let differs =
        |path: &Path| drift.iter().any(|it| it.agreement == Agreement::Differs && is_within(path, &it.path));
    let own = owners.entry(helm);
    let mut found = Vec::new();
    for (path, declared) in fields.leaves() {
        let texts = stands_for_text(&path);
        let sent_as_text = texts.is_some_and(|texts| own.is_some_and(|own| own.owned.owns(&texts)));
        if declared.is_null() || sent_as_text {
            continue;
        }
        for entry in owners.read().filter(|entry| entry.manager != *helm && entry.owned.owns(&path)) {
            found.push(Conflict {
                path: path.clone(),
                manager: entry.manager.clone(),
                since: entry.since,
                differs: differs(&path),
            });
        }
    }
    found
}

/// The `managedFields` of `live` with which the declared `paths` belong to
/// `helm` and to no manager that updates. Appliers keep what they own: theirs
/// is a claim of its own. `None` if nothing has to change.
///
/// Meant for fields with their declared values; where the value is another one,
/// Helm's next apply sets it.
pub fn returned(live: &Value, helm: &Manager, paths: &[Path]) -> Option<Value> {
    let before = Owners::of(live);
    let mut owners = before.clone();
    for path in paths.iter().filter(|path| !path.get(live).is_empty()) {
        owners.give(Some(helm), path);
    }
    let value = owners.value();
    (live.pointer("/metadata/managedFields") != Some(&value)).then_some(value)
}

/// The patch that writes `managed_fields` to the object `live`, and nothing if
/// the object has changed meanwhile: the API server answers 409 then.
pub fn patch(live: &Value, managed_fields: Value) -> Patch {
    let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    Patch(vec![replace("managedFields", managed_fields), replace("resourceVersion", version)])
}

/// The `managedFields` that an edit from `old` to `new` has to leave when the
/// paths `back` were set back in `new`, which makes `result`.
///
/// What the edit changed there is as it was before; what the manifest declares
/// is Helm's, and no updating manager's. An old object without `managedFields`
/// (Kubernetes 1.20 sends it so) tells nothing: then `editor`, the manager that
/// the request names, loses the paths even if it applies. `None` if nothing has
/// to change, or nothing is known.
pub fn undone(
    old: &Value,
    new: &Value,
    result: &Value,
    back: &[Back],
    method: ApplyMethod,
    editor: &str,
) -> Option<Value> {
    let (before, mut owners) = (Owners::of(old), Owners::of(new));
    if owners.is_empty() {
        return None;
    }
    let known = !before.is_empty();
    let helm = helms([&before], method).or_else(|| helms([&owners], method));
    for Back { path, declared } in back {
        if known {
            owners.as_in(&before, path);
        } else {
            for entry in owners.read_mut().filter(|entry| Some(&entry.manager) != helm.as_ref()) {
                if entry.manager.operation == Operation::Update || entry.manager.name == editor {
                    entry.owned.remove(path);
                }
            }
        }
        for path in declared.iter().filter(|path| !path.get(result).is_empty()) {
            owners.give(helm.as_ref(), path);
        }
        // What the edit made only to hold it is gone as well.
        let mut above = path.clone();
        while above.0.pop().is_some() && above.0.len() > 1 && above.get(result).is_empty() {
            owners.read_mut().for_each(|entry| entry.owned.remove(&above));
        }
    }
    let value = owners.value();
    (new.pointer("/metadata/managedFields") != Some(&value)).then_some(value)
}

/// The operation that replaces a field of the metadata.
pub(super) fn replace(name: &str, value: Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path: PointerBuf::from_tokens(["metadata", name]), value })
}

/// For a key of a Secret's `data`: where Helm has it if the manifest spells it
/// as text.
fn stands_for_text(path: &Path) -> Option<Path> {
    match path.0.as_slice() {
        [Segment::Field(data), key] if data == "data" => {
            Some(Path(vec![Segment::Field("stringData".to_owned()), key.clone()]))
        }
        _ => None,
    }
}

fn field(names: &[&str]) -> Path {
    Path(names.iter().map(|name| Segment::Field((*name).to_owned())).collect())
}

fn is_within(path: &Path, other: &Path) -> bool {
    path.0.starts_with(&other.0)
}

fn displayed<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(path)
}

#[cfg(test)]
mod tests;
