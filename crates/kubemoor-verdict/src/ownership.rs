//! The owners of declared fields of a live object, by its `managedFields`.
//!
//! Entry points: [`Owners::of`] reads them, [`helms`] finds Helm's own manager in them,
//! [`conflicts`] predicts the conflicts of the next upgrade, [`NextUpgrade`] its effect on each
//! field, [`taken()`] finds matching fields that another manager holds, [`returned`] and [`undone`] return fields to Helm; [`replacements`]
//! finds what takes the place of declared elements and fields; [`abandons`] tells whether an apply would remove fields.
//!
//! Helm 4 applies server-side, without force: where another manager owns a
//! field and the manifest has another value for it, the upgrade fails. An equal
//! value is owned by both, so it costs nothing until a chart changes it.
//!
//! Invariant: `managedFields` come from clients. An entry that cannot be read is skipped with a
//! reason and written back unchanged; walks follow declared paths, never the depth of the input.
//! Must not write to a cluster.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation};
use serde::Serialize;
use serde_json::Value;

use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::Fields;
use kubemoor_declare::lookup::Lookup;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::ApplyMethod;

mod abandoned;
mod fieldset;
mod holdings;
mod moves;
mod next_upgrade;
mod owners;
mod taken;
mod votes;

pub use self::abandoned::abandons;
use self::fieldset::{Held, Prefix};
pub(super) use self::holdings::{Holding, Holdings};
pub use self::moves::{Replacement, replacements, set_beside};
pub use self::next_upgrade::{Effect, Inquiry, NextUpgrade, Standing};
use self::owners::{Entry, stands_for_text};
pub use self::owners::{Manager, Operation, Owners, Skipped};
pub use self::taken::{Taken, is_controller, taken};
pub use self::votes::{Votes, helms};

/// The name under which Flux's controller runs Helm. It always forces its
/// applies, so it meets no conflict.
const FLUX: &str = "helm-controller";

/// A declared field that somebody beside Helm owns.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Conflict {
    /// The field.
    #[serde(serialize_with = "displayed")]
    #[schemars(with = "String")]
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
    /// Where somebody gave a list element other keys, or set a field that excludes this one: the path of what is there.
    #[serde(serialize_with = "displayed_if_any", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub moved_to: Option<Path>,
}

/// A path that an edit changed and that was reverted.
#[derive(Clone, Debug, PartialEq)]
pub struct Back {
    /// The path.
    pub path: Path,
    /// The declared paths at and below it; empty where the manifest declares nothing there.
    pub declared: Vec<Path>,
}

/// An edit of which some paths are reverted.
#[derive(Clone, Copy)]
pub struct PartUndone<'a> {
    /// The object before.
    pub old: &'a Value,
    /// The object as the editor wants it.
    pub new: &'a Value,
    /// The object after the revert.
    pub result: &'a Value,
    /// The manager that the request names; empty if it names none.
    pub editor: &'a str,
}

/// The owners of paths, by the numbers of the paths: each entry is visited once.
struct Holders {
    /// The places of entries, and whether they own the path as one value.
    by_path: HashMap<u64, Vec<(usize, bool)>>,
}

/// The declared fields on which the next upgrade of a release that Helm writes by `method` will
/// conflict, at once or when it changes them: those with an owner other than `helm`; without a
/// `helm`, those with any owner. What lies below an empty map is not declared. Empty for client-side releases, and
/// for Flux, which forces its applies.
pub fn conflicts(
    fields: &Fields,
    live: &Value,
    owners: &Owners,
    helm: Option<&Manager>,
    method: ApplyMethod,
) -> Vec<Conflict> {
    if method == ApplyMethod::ClientSide || helm.is_some_and(|helm| helm.name == FLUX) {
        return Vec::new();
    }
    let drift = fields.drift(live);
    let drift = drift.iter().filter(|it| it.agreement > Agreement::Doubt);
    let drift: HashSet<u64> = drift.filter_map(|it| prefixes(&it.path).last()).collect();
    let entries: Vec<&Entry> = owners.read().filter(|entry| Some(&entry.manager) != helm).collect();
    let held = Holders::of(&entries);
    let own = helm.and_then(|helm| owners.entry(helm));
    let (mut found, mut lookup) = (Vec::new(), Lookup::new(live));
    let empties: HashSet<u64> =
        fields.granular_empties().iter().filter_map(|it| prefixes(it).last()).collect();
    for (path, declared) in fields.leaves() {
        let texts = stands_for_text(&path);
        let sent_as_text = texts.is_some_and(|texts| own.is_some_and(|own| own.owned.owns(&texts)));
        let prefixes: Vec<u64> = prefixes(&path).collect();
        let drifts = prefixes.iter().any(|prefix| drift.contains(prefix));
        let differs = drifts || lookup.get(&path).iter().any(|live| is_applied_anew(&declared, live));
        let is_empty = || prefixes.last().is_some_and(|last| empties.contains(last));
        // A null changes nothing where the field is absent, or is a map or list, nor does an empty map where there is
        // a map.
        let says_nothing = !differs && (declared.is_null() || is_empty());
        if says_nothing || sent_as_text || is_key(&path) {
            continue;
        }
        for entry in held.at(&prefixes).into_iter().filter_map(|index| entries.get(index)) {
            found.push(Conflict {
                path: path.clone(),
                manager: entry.manager.clone(),
                since: entry.since,
                differs,
                moved_to: None,
            });
        }
    }
    let replaced = replacements(fields, live, owners, helm.map(|helm| helm.name.as_str()));
    let is_empty = |path: &Path| {
        fields.leaves().iter().any(|(leaf, value)| leaf == path && value.as_str().is_some_and(str::is_empty))
    };
    for conflict in moves::conflicts(replaced, owners) {
        // Whoever has changed a declared field is told of at that field. An empty text excludes nothing.
        let is_known = |it: &Conflict| it.path == conflict.path && it.manager == conflict.manager;
        if !found.iter().any(is_known) && !is_empty(&conflict.path) {
            found.push(conflict);
        }
    }
    found
}

/// The `managedFields` of `live` in which the declared `paths` belong to `helm` and to no manager
/// that updates. Managers that apply keep their fields, because these are claims of their own.
/// `None` if nothing has to change.
///
/// Meant for fields with their declared values; where the value is another one,
/// Helm's next apply sets it.
pub fn returned(live: &Value, helm: &Manager, paths: &[Path]) -> Option<Value> {
    let before = Owners::of(live);
    let (mut owners, mut lookup) = (before.clone(), Lookup::new(live));
    for path in paths.iter().filter(|path| !lookup.get(path).is_empty()) {
        owners.give(Some(helm), path);
    }
    let value = owners.value();
    (live.pointer("/metadata/managedFields") != Some(&value)).then_some(value)
}

/// The patch that writes `managed_fields` to the object `live`, and fails if the object has changed
/// meanwhile: the API server then answers 409.
pub fn patch(live: &Value, managed_fields: Value) -> Patch {
    let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    Patch(vec![replace("managedFields", managed_fields), replace("resourceVersion", version)])
}

/// The `managedFields` that an edit must have after the revert of the paths `back`.
///
/// Other reverted fields have their owners from before the edit; declared ones belong to Helm, and
/// to no manager that updates. An old object without `managedFields` (Kubernetes 1.20 sends it like
/// that) gives no information: then the manager that the request names loses the paths even if it
/// applies. `None` if nothing has to change, or nothing is known.
pub fn undone(edit: PartUndone<'_>, back: &[Back], method: ApplyMethod) -> Option<Value> {
    let PartUndone { old, new, result, editor } = edit;
    let (before, mut owners) = (Owners::of(old), Owners::of(new));
    if owners.is_empty() {
        return None;
    }
    let known = !before.is_empty();
    let helm = helms([&before], method).or_else(|| helms([&owners], method));
    let mut lookup = Lookup::new(result);
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
        for path in declared.iter().filter(|path| !lookup.get(path).is_empty()) {
            owners.give(helm.as_ref(), path);
        }
        // Parents that the edit created only for it are removed too.
        for length in (2..path.0.len()).rev() {
            let above = Path(path.0.iter().take(length).cloned().collect());
            if !lookup.get(&above).is_empty() {
                break;
            }
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

/// Whether the API server considers a declared value different from the live one in its search for
/// conflicts: it compares the value as it was sent, without defaults.
fn is_applied_anew(declared: &Value, live: &Value) -> bool {
    let same = |one: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        one.len() == other.len()
            && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| !is_applied_anew(one, other)))
    };
    match (declared, live) {
        // If a null or an empty value is declared for a map or a list, only the schema tells its
        // meaning.
        (Value::Null, Value::Object(_) | Value::Array(_)) => false,
        (Value::Object(declared), Value::Object(_)) if declared.is_empty() => false,
        (Value::Object(declared), Value::Object(live)) => !same(declared, live),
        (Value::Array(declared), Value::Array(live)) => {
            declared.len() != live.len()
                || declared.iter().zip(live).any(|(declared, live)| is_applied_anew(declared, live))
        }
        (Value::Number(declared), Value::Number(live)) => declared.as_f64() != live.as_f64(),
        (declared, live) => declared != live,
    }
}

/// Whether a path is one of the keys that identify a list element: with another value it would
/// identify another element.
fn is_key(path: &Path) -> bool {
    match &*path.0 {
        [.., Segment::Key(keys), Segment::Field(name)] => keys.iter().any(|(key, _)| key == name),
        _ => false,
    }
}

/// The numbers that identify a path and its parents, the topmost first.
fn prefixes(path: &Path) -> impl Iterator<Item = u64> {
    path.0.iter().scan(Prefix::default(), |prefix, segment| {
        *prefix = prefix.then(segment);
        Some(prefix.number())
    })
}

impl Holders {
    fn of(entries: &[&Entry]) -> Self {
        let mut by_path: HashMap<u64, Vec<(usize, bool)>> = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            entry.owned.each(&mut |path, held| {
                by_path.entry(path).or_default().push((index, held == Held::Whole));
            });
        }
        Self { by_path }
    }

    /// The entries that own a path, or anything below it, or one above it as one value.
    fn at(&self, prefixes: &[u64]) -> BTreeSet<usize> {
        let last = prefixes.len().saturating_sub(1);
        let holders = prefixes.iter().enumerate().flat_map(|(depth, prefix)| {
            let there = self.by_path.get(prefix).into_iter().flatten();
            there.filter(move |(_, whole)| *whole || depth == last)
        });
        holders.map(|(index, _)| *index).collect()
    }
}

fn displayed_if_any<S: serde::Serializer>(path: &Option<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => displayed(path, serializer),
        None => serializer.serialize_none(),
    }
}

fn displayed<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(path)
}

#[cfg(test)]
mod tests;
