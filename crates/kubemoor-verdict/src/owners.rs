//! The owners of an object's fields, read from its `managedFields`, and Helm's own manager among them.
//!
//! `managedFields` come from clients: an entry that cannot be read is skipped and written back unchanged, and recursion
//! follows declared paths or stops at a fixed depth. Helm's manager has the name of the program that runs Helm, so only
//! Helm's label and annotations show which one it is; no permission depends on it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use kubemoor_declare::equality;
use kubemoor_declare::model::{HELM_MARKS, MANAGED_BY, RELEASE_NAME};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_declare::schema::ScalarType;
use kubemoor_helm::record::ApplyMethod;

/// The most entries of one object that are read. The API server merges all but ten of the `Update` managers; `Apply`
/// managers are few.
pub(crate) const MAX_ENTRIES: usize = 1000;

/// A field manager, as one entry of `managedFields` identifies it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Manager")]
pub struct FieldManager {
    /// The name, such as `helm` or `kubectl-set`.
    #[serde(rename = "manager")]
    pub name: String,
    /// How it wrote.
    pub operation: ManagerOperation,
    /// The subresource through which it wrote, such as `scale`; empty for the
    /// object itself, and on API servers that do not record it (before 1.21).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// How a field manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Operation")]
pub enum ManagerOperation {
    /// By server-side apply.
    Apply,
    /// By create, update or patch.
    Update,
}

/// The field managers of one object, and the fields that each one owns.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    entries: Vec<EntrySlot>,
}

#[derive(Clone, Debug)]
enum EntrySlot {
    Entry(Box<ManagedEntry>),
    /// An entry that cannot be read.
    Unreadable(Value),
}

#[derive(Clone, Debug)]
pub(crate) struct ManagedEntry {
    pub(crate) manager: FieldManager,
    pub(crate) since: Option<Timestamp>,
    pub(crate) owned: FieldSet,
    /// The original entry without its `fieldsV1`.
    head: Value,
}

impl Owners {
    pub fn from_object(object: &Value) -> Self {
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        let read = |(index, entry): (usize, &Value)| {
            let read = if index < MAX_ENTRIES { ManagedEntry::read(entry) } else { None };
            read.map_or_else(
                || EntrySlot::Unreadable(entry.clone()),
                |entry| EntrySlot::Entry(Box::new(entry)),
            )
        };
        Self { entries: entries.into_iter().flatten().enumerate().map(read).collect() }
    }

    /// The owners of `path`, of anything below it, or of a parent as one value.
    pub fn of_path(&self, path: &Path) -> Vec<&FieldManager> {
        self.read().filter(|entry| entry.owned.owns(path)).map(|entry| &entry.manager).collect()
    }

    /// Whether Helm owns the value at `path`: Helm is any manager that owns Helm's annotation.
    pub(crate) fn are_helms(&self, path: &Path) -> bool {
        let annotation = annotation();
        self.read().any(|entry| entry.owned.owns(&annotation) && entry.owned.owns(path))
    }

    /// Whether Helm is the only owner of the value at `path`.
    pub(crate) fn are_helms_alone(&self, path: &Path) -> bool {
        let owning = || self.read().filter(|entry| entry.owned.owns(path));
        owning().next().is_some() && owning().all(|entry| entry.owned.owns(&annotation()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether all updates used this version of the kind. Updates in another version may have other paths.
    pub(crate) fn are_of(&self, api_version: &Value) -> bool {
        let main = |entry: &&ManagedEntry| {
            entry.manager.operation == ManagerOperation::Update && entry.manager.subresource.is_empty()
        };
        self.read()
            .filter(main)
            .all(|entry| entry.head.get("apiVersion").is_none_or(|own| own == api_version))
    }

    pub(crate) fn read(&self) -> impl Iterator<Item = &ManagedEntry> {
        self.entries.iter().filter_map(|slot| match slot {
            EntrySlot::Entry(entry) => Some(&**entry),
            EntrySlot::Unreadable(_) => None,
        })
    }

    pub(crate) fn read_mut(&mut self) -> impl Iterator<Item = &mut ManagedEntry> {
        self.entries.iter_mut().filter_map(|slot| match slot {
            EntrySlot::Entry(entry) => Some(&mut **entry),
            EntrySlot::Unreadable(_) => None,
        })
    }

    pub(crate) fn entry(&self, manager: &FieldManager) -> Option<&ManagedEntry> {
        self.read().find(|entry| entry.manager == *manager)
    }

    /// The `managedFields` with these entries, without entries that own nothing.
    pub(crate) fn value(&self) -> Value {
        let written = |slot: &EntrySlot| match slot {
            EntrySlot::Unreadable(value) => Some(value.clone()),
            EntrySlot::Entry(entry) if entry.owned.0.is_empty() => None,
            EntrySlot::Entry(entry) => {
                let mut value = entry.head.clone();
                if let Value::Object(map) = &mut value {
                    map.insert("fieldsV1".to_owned(), Value::Object(entry.owned.0.clone()));
                }
                Some(value)
            }
        };
        self.entries.iter().filter_map(written).collect()
    }

    /// Gives the declared `path` and the list elements around it to Helm: other `Update` managers lose them, Helm's
    /// entry gains them.
    pub(crate) fn give(&mut self, helm: Option<&FieldManager>, path: &Path) {
        // Helm sends `stringData`, which the API server moves into `data`. If Helm owned the key in `data`, its next
        // apply would remove that key.
        let texts = stands_for_text(path);
        for entry in self.read_mut() {
            if helm == Some(&entry.manager) {
                if texts.as_ref().is_none_or(|texts| !entry.owned.owns(texts)) {
                    entry.owned.add(path);
                }
            } else if entry.manager.operation == ManagerOperation::Update {
                // A patch before the apply that sets a declared null leaves its map to the patch, as one value.
                let is_helms = helm.is_some_and(|helm| helm.name == entry.manager.name);
                if is_helms || entry.manager.name == BEFORE_FIRST_APPLY {
                    entry.owned.give_up_whole(path);
                } else {
                    entry.owned.give_up(path);
                }
            }
        }
    }

    /// Restores the owners of `path` from `old`.
    pub(crate) fn as_in(&mut self, old: &Self, path: &Path) {
        for entry in self.read_mut() {
            entry.owned.remove(path);
        }
        for before in old.read() {
            let Some(owned) = before.owned.at(path) else { continue };
            if self.entry(&before.manager).is_none() {
                let lost = ManagedEntry { owned: FieldSet::default(), ..before.clone() };
                self.entries.push(EntrySlot::Entry(Box::new(lost)));
            }
            for entry in self.read_mut().filter(|entry| entry.manager == before.manager) {
                entry.owned.put(path, owned.clone());
            }
        }
    }
}

impl ManagedEntry {
    fn read(entry: &Value) -> Option<Self> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let operation = match text("operation")? {
            "Apply" => ManagerOperation::Apply,
            "Update" => ManagerOperation::Update,
            _ => return None,
        };
        if text("fieldsType").is_some_and(|kind| kind != "FieldsV1") {
            return None;
        }
        let mut head = entry.clone();
        let Value::Object(fields) = head.as_object_mut()?.remove("fieldsV1")? else { return None };
        let manager = FieldManager {
            name: text("manager").unwrap_or_default().to_owned(),
            operation,
            subresource: text("subresource").unwrap_or_default().to_owned(),
        };
        // Times in managedFields come from clients and may be invalid.
        let since = text("time").and_then(|time| time.parse().ok());
        Some(Self { manager, since, owned: FieldSet(fields), head })
    }
}

/// For a key of a Secret's `data`: the path of the key in `stringData`.
pub(crate) fn stands_for_text(path: &Path) -> Option<Path> {
    match &*path.0 {
        [Segment::Field(data), key] if data == "data" => {
            Some(Path([Segment::Field("stringData".to_owned()), key.clone()].into()))
        }
        _ => None,
    }
}

fn annotation() -> Path {
    Path::from_names(["metadata", "annotations", RELEASE_NAME])
}

/// The key in `fieldsV1` that marks a path with children as owned itself.
const ITSELF: &str = ".";

/// The manager to which the API server gives the fields of an object without owners at the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The most keys of one element for which other spellings are tried.
const MAX_SPELLED: usize = 3;

/// The depth at which a search stops.
const MAX_DEPTH: usize = 128;

type Tree = Map<String, Value>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldOwnership {
    /// As one value.
    Whole,
    /// The path itself, and parts of it.
    Itself,
    /// Only parts of it.
    Parts,
}

/// The paths that one manager owns.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSet(pub(crate) Map<String, Value>);

impl FieldOwnership {
    fn new(below: &Tree) -> Self {
        match (below.is_empty(), below.contains_key(ITSELF)) {
            (true, _) => Self::Whole,
            (false, true) => Self::Itself,
            (false, false) => Self::Parts,
        }
    }
}

impl FieldSet {
    /// Whether anything at or below `path` is in the set, or an ancestor of it as one value.
    pub(crate) fn owns(&self, path: &Path) -> bool {
        let mut tree = &self.0;
        for segment in path.0.iter() {
            let Some((_, Value::Object(below))) = entry(tree, segment) else { return false };
            if below.is_empty() {
                return true;
            }
            tree = below;
        }
        !path.0.is_empty()
    }

    /// The highest paths below `path` that are in the set themselves.
    pub(crate) fn below(&self, path: &Path) -> Vec<Path> {
        let mut found = Vec::new();
        if let Some(Value::Object(tree)) = self.at(path) {
            highest(tree, &mut path.0.to_vec(), &mut found);
        }
        found
    }

    /// Visits every path in the set, with its number and its ownership.
    pub(crate) fn each(&self, visit: &mut impl FnMut(u64, FieldOwnership)) {
        each(&self.0, 0, 0, visit);
    }

    /// The part of the set at and below `path`.
    pub(crate) fn at(&self, path: &Path) -> Option<&Value> {
        let (last, above) = path.0.split_last()?;
        let mut tree = &self.0;
        for segment in above {
            tree = entry(tree, segment)?.1.as_object()?;
        }
        entry(tree, last).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        remove(&mut self.0, &path.0, false);
    }

    /// Removes a declared `path`, and the list elements around it with their keys. Otherwise an apply that drops an
    /// element would leave only the fields that another manager owns, and the API server may refuse these.
    fn give_up(&mut self, path: &Path) {
        remove(&mut self.0, &path.0, true);
    }

    /// The same, but also removes a parent that is owned as one value: a forced apply takes over the fields below such
    /// a parent but not the parent, and with the next write the API server gives it everything below again.
    fn give_up_whole(&mut self, path: &Path) {
        let is_one_value = |length: &usize| {
            let above = Path(path.0.iter().take(*length).cloned().collect());
            self.at(&above).is_some_and(|owned| owned.as_object().is_some_and(Map::is_empty))
        };
        let length = (1..path.0.len()).find(is_one_value).unwrap_or(path.0.len());
        remove(&mut self.0, path.0.get(..length).unwrap_or_default(), true);
    }

    /// Adds a declared `path`, and the list elements around it.
    pub(crate) fn add(&mut self, path: &Path) {
        if !self.owns(path) {
            put(&mut self.0, &path.0, Value::Object(Map::new()), true);
        }
    }

    pub(crate) fn put(&mut self, path: &Path, owned: Value) {
        put(&mut self.0, &path.0, owned, false);
    }
}

/// The number of the path that continues the path with number `above` by this segment; all spellings of its keys have
/// the same number. The root has number 0.
fn number(above: u64, segment: &Segment) -> u64 {
    let class = |value| equality::class_of_scalar(ScalarType::IntOrString, value);
    let own = match segment {
        Segment::Field(name) => hash(&("f", name)),
        Segment::Element(value) => hash(&("v", class(value))),
        Segment::Key(keys) => {
            let mut keys: Vec<_> = keys.iter().map(|(name, value)| (name.as_str(), class(value))).collect();
            keys.sort_unstable();
            hash(&("k", keys))
        }
    };
    hash(&(above, own))
}

fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

fn each(tree: &Tree, above: u64, depth: usize, visit: &mut impl FnMut(u64, FieldOwnership)) {
    if depth >= MAX_DEPTH {
        return;
    }
    for (name, below) in tree {
        if let (Some(segment), Value::Object(below)) = (read(name), below) {
            let own = number(above, &segment);
            visit(own, FieldOwnership::new(below));
            each(below, own, depth + 1, visit);
        }
    }
}

fn highest(tree: &Tree, above: &mut Vec<Segment>, found: &mut Vec<Path>) {
    if above.len() >= MAX_DEPTH {
        return;
    }
    for (name, below) in tree {
        let (Some(segment), Value::Object(below)) = (read(name), below) else { continue };
        above.push(segment);
        match FieldOwnership::new(below) {
            FieldOwnership::Whole | FieldOwnership::Itself => found.push(Path(above.as_slice().into())),
            FieldOwnership::Parts => highest(below, above, found),
        }
        above.pop();
    }
}

/// The segment for a key of `fieldsV1`.
fn read(name: &str) -> Option<Segment> {
    let (kind, text) = name.split_once(':')?;
    match kind {
        "f" => Some(Segment::Field(text.to_owned())),
        "v" => serde_json::from_str(text).ok().map(Segment::Element),
        "k" => serde_json::from_str::<Map<String, Value>>(text)
            .ok()
            .map(|keys| Segment::Key(keys.into_iter().collect())),
        _ => None,
    }
}

fn remove(tree: &mut Tree, path: &[Segment], with_elements: bool) {
    let Some((segment, below)) = path.split_first() else { return };
    let Some(name) = entry(tree, segment).map(|(name, _)| name.to_owned()) else { return };
    if below.is_empty() {
        tree.remove(&name);
        return;
    }
    let Some(Value::Object(child)) = tree.get_mut(&name) else { return };
    // Owned as one value: no part of it can be given away.
    if child.is_empty() {
        return;
    }
    remove(child, below, with_elements);
    if let (true, Segment::Key(keys)) = (with_elements, segment) {
        child.retain(|part, _| {
            let field = part.strip_prefix("f:");
            part != ITSELF && keys.iter().all(|(key, _)| field != Some(key.as_str()))
        });
    }
    // With nothing else below it, the API server would take the rest as ownership of the whole, and give the entry
    // everything there.
    if child.keys().all(|left| left == ITSELF) {
        tree.remove(&name);
    }
}

fn put(tree: &mut Tree, path: &[Segment], owned: Value, with_elements: bool) {
    let Some((segment, below)) = path.split_first() else { return };
    let known = entry(tree, segment).map(|(name, _)| name.to_owned());
    let is_known = known.is_some();
    let name = known.unwrap_or_else(|| spelled(segment));
    if below.is_empty() {
        tree.insert(name, owned);
        return;
    }
    let child = tree.entry(name).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(child) = child else { return };
    if is_known && child.is_empty() {
        // Owned as one value already.
        return;
    }
    if matches!(segment, Segment::Key(_)) && (with_elements || !is_known) {
        child.insert(ITSELF.to_owned(), Value::Object(Map::new()));
    }
    put(child, below, owned, with_elements);
}

/// The entry of a segment, however its keys are spelled.
fn entry<'t>(tree: &'t Tree, segment: &Segment) -> Option<(&'t str, &'t Value)> {
    if let Some((name, value)) = tree.get_key_value(&spelled(segment)) {
        return Some((name, value));
    }
    let mut others = spellings(segment).into_iter();
    others.find_map(|name| tree.get_key_value(&name)).map(|(name, value)| (name.as_str(), value))
}

fn is_same(a: &Value, b: &Value) -> bool {
    equality::is_same_scalar(ScalarType::IntOrString, a, b)
}

/// The spellings of a segment: each value as a string, and as the number or boolean that the string stands for.
fn spellings(segment: &Segment) -> Vec<String> {
    match segment {
        Segment::Field(_) => Vec::new(),
        Segment::Element(value) => {
            other(value).map(|value| spelled(&Segment::Element(value))).into_iter().collect()
        }
        Segment::Key(keys) => {
            let mut found = vec![keys.clone()];
            for (index, (name, value)) in keys.iter().enumerate().take(MAX_SPELLED) {
                let Some(value) = other(value) else { continue };
                let mut more = found.clone();
                for keys in &mut more {
                    if let Some(key) = keys.get_mut(index) {
                        *key = (name.clone(), value.clone());
                    }
                }
                found.append(&mut more);
            }
            found.into_iter().map(|keys| spelled(&Segment::Key(keys))).collect()
        }
    }
}

/// The other spelling of a key's value, if it has one.
fn other(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => {
            let value: Value = serde_json::from_str(text).ok()?;
            (value.is_number() || value.is_boolean()).then_some(value)
        }
        Value::Number(_) | Value::Bool(_) => Some(Value::from(value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A segment as the API server spells it.
fn spelled(segment: &Segment) -> String {
    match segment {
        Segment::Field(name) => format!("f:{name}"),
        Segment::Key(keys) => {
            let keys: Map<String, Value> = keys.iter().cloned().collect();
            format!("k:{}", Value::Object(keys))
        }
        Segment::Element(value) => format!("v:{value}"),
    }
}

/// The owners of the paths of one object.
pub(crate) struct PathOwners<'o> {
    /// The entries that own a path or parts of it, with their indexes.
    by_path: HashMap<u64, Vec<(usize, &'o ManagedEntry, FieldOwnership)>>,
    /// The entries that own a path as one value.
    whole: HashMap<u64, Vec<&'o ManagedEntry>>,
    /// The names of the managers that have set Helm's label or annotations.
    helms: HashSet<&'o str>,
    is_complete: bool,
}

/// How a manager owns a path.
#[derive(Clone, Copy)]
pub(crate) struct PathOwnership<'o> {
    pub(crate) manager: &'o FieldManager,
    /// Whether it owns only parts of the path.
    pub(crate) is_in_parts: bool,
    pub(crate) is_helms: bool,
}

impl<'o> PathOwners<'o> {
    pub(crate) fn new(owners: &'o Owners) -> Self {
        let mut by_path: HashMap<u64, Vec<(usize, &ManagedEntry, FieldOwnership)>> = HashMap::new();
        let mut whole: HashMap<u64, Vec<&ManagedEntry>> = HashMap::new();
        for (index, entry) in owners.read().enumerate() {
            entry.owned.each(&mut |path, held| {
                by_path.entry(path).or_default().push((index, entry, held));
                if held == FieldOwnership::Whole {
                    whole.entry(path).or_default().push(entry);
                }
            });
        }
        let marks = [["metadata", "annotations", RELEASE_NAME], ["metadata", "labels", MANAGED_BY.0]];
        let marks = marks.map(Path::from_names);
        let marked = marks.iter().filter_map(|mark| by_path.get(&prefixes(mark).last()?));
        let helms = marked.flatten().map(|(_, entry, _)| entry.manager.name.as_str()).collect();
        let is_complete = !owners.is_empty() && owners.read().count() == owners.entries.len();
        Self { by_path, whole, helms, is_complete }
    }

    /// Whether all entries could be read, so that a path without a known owner certainly has none.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The owners of the value at `path` or of its parts; if there are none, the owners other than Helm of a parent
    /// as one value.
    pub(crate) fn at(&self, path: &Path) -> Vec<PathOwnership<'o>> {
        let prefixes: Vec<u64> = prefixes(path).collect();
        let Some((last, above)) = prefixes.split_last() else { return Vec::new() };
        let own = self.by_path.get(last).into_iter().flatten();
        let own: Vec<_> = own.map(|(_, entry, held)| self.holding(entry, *held)).collect();
        if !own.is_empty() {
            return own;
        }
        let above = above.iter().flat_map(|prefix| self.whole.get(prefix).into_iter().flatten());
        above.map(|entry| self.holding(entry, FieldOwnership::Whole)).filter(|it| !it.is_helms).collect()
    }

    /// The highest paths below `path` that `Update` managers other than Helm own.
    pub(crate) fn parts(&self, path: &Path) -> Vec<(Path, &'o FieldManager)> {
        let entries = prefixes(path).last().and_then(|it| self.by_path.get(&it)).into_iter().flatten();
        let others = entries.filter(|(_, entry, held)| {
            entry.manager.operation == ManagerOperation::Update && !self.holding(entry, *held).is_helms
        });
        others
            .flat_map(|(_, entry, _)| entry.owned.below(path).into_iter().map(|it| (it, &entry.manager)))
            .collect()
    }

    /// The entries that own a path, given by its [`prefixes`], or anything below it, or a parent as one value; each
    /// once, in their order.
    pub(crate) fn entries(&self, prefixes: &[u64]) -> impl Iterator<Item = &'o ManagedEntry> {
        let last = prefixes.len().saturating_sub(1);
        let holders = prefixes.iter().enumerate().flat_map(|(depth, prefix)| {
            let there = self.by_path.get(prefix).into_iter().flatten();
            there.filter(move |(.., held)| *held == FieldOwnership::Whole || depth == last)
        });
        let by_index: BTreeMap<usize, _> = holders.map(|(index, entry, _)| (*index, *entry)).collect();
        by_index.into_values()
    }

    fn holding(&self, entry: &'o ManagedEntry, held: FieldOwnership) -> PathOwnership<'o> {
        let manager = &entry.manager;
        let is_helms = self.helms.contains(manager.name.as_str());
        PathOwnership { manager, is_in_parts: held == FieldOwnership::Parts, is_helms }
    }
}

/// The managers that wrote Helm's label and annotations, each with the number of these that it owns.
#[derive(Clone, Debug)]
pub struct HelmManagerTally {
    operation: ManagerOperation,
    counts: BTreeMap<FieldManager, usize>,
}

/// Helm's own manager: the one that wrote Helm's label and annotations on most of these objects of one release, by
/// the method in the release's record. `None` if no manager did.
pub fn find_helm_manager<'o>(
    objects: impl IntoIterator<Item = &'o Owners>,
    method: ApplyMethod,
) -> Option<FieldManager> {
    let mut votes = HelmManagerTally::new(method);
    objects.into_iter().for_each(|owners| votes.add(owners));
    votes.manager()
}

impl HelmManagerTally {
    /// No votes yet, for a release that Helm writes by `method`.
    pub fn new(method: ApplyMethod) -> Self {
        let operation = match method {
            ApplyMethod::ServerSide => ManagerOperation::Apply,
            ApplyMethod::ClientSide => ManagerOperation::Update,
        };
        Self { operation, counts: BTreeMap::new() }
    }

    /// Counts the owners of one more object of the release.
    pub fn add(&mut self, owners: &Owners) {
        let marks = HELM_MARKS.map(Path::from_names);
        for entry in owners.read() {
            let own = entry.manager.operation == self.operation && entry.manager.subresource.is_empty();
            let owned = marks.iter().filter(|mark| entry.owned.owns(mark)).count();
            if own && owned > 0 {
                *self.counts.entry(entry.manager.clone()).or_default() += owned;
            }
        }
    }

    /// The manager with the most votes.
    pub fn manager(&self) -> Option<FieldManager> {
        // A user may have applied one of Helm's manifests by hand.
        let by_hand = |manager: &FieldManager| manager.name.starts_with("kubectl");
        let most =
            self.counts.iter().max_by_key(|(manager, votes)| (**votes, !by_hand(manager), Reverse(*manager)));
        most.map(|(manager, _)| manager.clone())
    }
}

/// Whether applying `document` as `manager` removes fields from the `live` object: the API server removes fields that
/// a manager has applied before and no longer applies. Helm's own entry holds the fields of Helm's last apply, so
/// Helm never applied a document that lacks some of them.
pub fn apply_removes_fields(live: &Value, manager: &str, document: &Value) -> bool {
    let owners = Owners::from_object(live);
    let own = owners.read().filter(|entry| {
        let it = &entry.manager;
        it.name == manager && it.operation == ManagerOperation::Apply && it.subresource.is_empty()
    });
    let document = as_stored(document);
    own.into_iter().any(|entry| lacks(&entry.owned.0, &document))
}

/// Whether `value` lacks some of these owned paths.
fn lacks(owned: &Map<String, Value>, value: &Value) -> bool {
    owned.iter().any(|(name, below)| match name.split_once(':') {
        Some((kind, name)) => match step(kind, name, value) {
            Some(found) => below.as_object().is_some_and(|below| lacks(below, found)),
            None => true,
        },
        // `.`: the value itself, which is there.
        None => false,
    })
}

fn step<'v>(kind: &str, name: &str, value: &'v Value) -> Option<&'v Value> {
    let items = || value.as_array().into_iter().flatten();
    match kind {
        "f" => value.get(name),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(name).ok()?;
            // An element may lack a key that has its default value.
            let is = |item: &&Value| {
                item.is_object()
                    && keys.iter().all(|(key, own)| item.get(key).is_none_or(|value| is_same(value, own)))
            };
            items().find(is)
        }
        "v" => {
            let wanted: Value = serde_json::from_str(name).ok()?;
            items().find(|item| is_same(item, &wanted))
        }
        _ => value.get(name.parse::<usize>().ok()?),
    }
}

/// The document; a Secret has the keys of its `stringData` in `data`, where the API server stores them.
fn as_stored(document: &Value) -> Value {
    let mut stored = document.clone();
    if stored.get("kind").and_then(Value::as_str) != Some("Secret") {
        return stored;
    }
    if let (Some(texts), Value::Object(fields)) =
        (document.get("stringData").and_then(Value::as_object), &mut stored)
    {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(data) = data {
            data.extend(texts.keys().map(|key| (key.clone(), Value::Null)));
        }
    }
    stored
}

/// The numbers that identify a path and its parents, the topmost first.
pub(crate) fn prefixes(path: &Path) -> impl Iterator<Item = u64> {
    path.0.iter().scan(0, |prefix, segment| {
        *prefix = number(*prefix, segment);
        Some(*prefix)
    })
}

#[cfg(test)]
mod tests;
