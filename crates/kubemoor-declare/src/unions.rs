//! Fields of the core kinds that exclude one another.
//!
//! The API server refuses an object with two of them, so a declared field cannot be set while an undeclared one stands
//! in its place. OpenAPI documents do not tell which fields these are. Custom kinds have no rows: a
//! CustomResourceDefinition may give the same names another meaning.

use serde_json::{Map, Value};

use super::equality::Family;
use super::fields::{Entry, Node};
use super::quantity;

/// Which fields of one value exclude one another.
#[derive(Debug)]
pub(super) enum Union {
    /// At most one of these fields is set.
    OneOf(&'static [&'static str]),
    /// At most one field is set, apart from these.
    OneBeside(&'static [&'static str]),
    /// The field `member` is set only where the field `tag` has this value.
    Tagged { tag: &'static str, value: &'static str, member: &'static str },
}

/// A declared field, and the undeclared one that takes its place: names of fields from the value that holds both.
#[derive(Debug, PartialEq)]
pub(super) struct Replaced<'a> {
    pub(super) declared: [&'a str; 2],
    pub(super) live: [&'a str; 2],
}

/// Maps of one value whose entries of the same key restrict one another.
enum Maps {
    /// A key is in at most one of the two.
    Disjoint(&'static str, &'static str),
    /// An entry of the first is no greater quantity than that of the second.
    Ordered(&'static str, &'static str),
}

/// By the name of the field that holds the value, or of the list whose element it is.
const UNIONS: &[(&str, Union)] = &[
    ("clientConfig", Union::OneOf(&["service", "url"])),
    ("conversion", Union::Tagged { tag: "strategy", value: "Webhook", member: "webhook" }),
    ("defaultBackend", Union::OneOf(&["resource", "service"])),
    ("env", Union::OneOf(&["value", "valueFrom"])),
    ("appArmorProfile", Union::Tagged { tag: "type", value: "Localhost", member: "localhostProfile" }),
    ("livenessProbe", PROBE),
    ("postStart", Union::OneBeside(&[])),
    ("preStop", Union::OneBeside(&[])),
    ("readinessProbe", PROBE),
    ("seccompProfile", Union::Tagged { tag: "type", value: "Localhost", member: "localhostProfile" }),
    ("spec", Union::OneOf(&["maxUnavailable", "minAvailable"])),
    ("startupProbe", PROBE),
    ("strategy", ROLLING),
    ("updateStrategy", ROLLING),
    ("valueFrom", Union::OneBeside(&[])),
    ("volumes", Union::OneBeside(&["name"])),
];

const PROBE: Union = Union::OneOf(&["exec", "grpc", "httpGet", "tcpSocket"]);

const ROLLING: Union = Union::Tagged { tag: "type", value: "RollingUpdate", member: "rollingUpdate" };

/// The same for maps; the root has no name.
const MAPS: &[(&str, Maps)] = &[
    ("", Maps::Disjoint("data", "binaryData")),
    ("", Maps::Disjoint("binaryData", "data")),
    ("resources", Maps::Ordered("requests", "limits")),
];

impl Union {
    /// The union of a value with this name.
    pub(super) fn of(family: Family, name: &str) -> Option<&'static Self> {
        is_core(family).then(|| UNIONS.iter().find(|(holder, _)| *holder == name)).flatten().map(|(_, it)| it)
    }

    /// Whether a field of this name excludes others, or is excluded by them.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::OneOf(names) => names.contains(&name),
            Self::OneBeside(others) => !others.contains(&name),
            Self::Tagged { tag, member, .. } => name == *tag || name == *member,
        }
    }

    /// The undeclared field of `live` in the place of `entry`, one of the declared `entries`, which is not there as
    /// declared.
    pub(super) fn instead<'v>(
        &self,
        entries: &[Entry],
        entry: &Entry,
        live: &'v Map<String, Value>,
    ) -> Option<&'v str> {
        let set = |name: &str| live.get_key_value(name).filter(|(_, value)| !value.is_null());
        let undeclared =
            |name: &str| set(name).map(|(name, _)| name.as_str()).filter(|_| !declares(entries, name));
        let own = &*entry.name;
        if !is_declared(entry) {
            return None;
        }
        match self {
            Self::OneOf(names) if names.contains(&own) && set(own).is_none() => {
                names.iter().filter(|name| **name != own).find_map(|name| undeclared(name))
            }
            Self::OneBeside(others) if !others.contains(&own) && set(own).is_none() => {
                live.keys().filter(|name| !others.contains(&name.as_str())).find_map(|name| undeclared(name))
            }
            Self::Tagged { tag, value, member } if own == *tag => {
                let Node::Leaf(leaf) = &entry.node else { return None };
                let is_without = leaf.value != *value;
                let is_other = set(tag).is_some_and(|(_, live)| leaf.value != *live);
                if is_without && is_other { undeclared(member) } else { None }
            }
            Self::Tagged { tag, value, member } if own == *member && set(own).is_none() => {
                undeclared(tag).filter(|_| set(tag).is_some_and(|(_, live)| live != value))
            }
            Self::OneOf(_) | Self::OneBeside(_) | Self::Tagged { .. } => None,
        }
    }
}

/// The entries of maps of `live`, a value with this name, that keep declared ones of other maps from being set.
pub(super) fn of_maps<'f>(
    family: Family,
    name: &str,
    entries: &'f [Entry],
    live: &Map<String, Value>,
) -> Vec<Replaced<'f>> {
    let mut found = Vec::new();
    if !is_core(family) {
        return found;
    }
    for (_, maps) in MAPS.iter().filter(|(holder, _)| *holder == name) {
        match *maps {
            Maps::Disjoint(declared, other) => {
                found.extend(blocked(entries, live, [declared, other], |_, _| true));
            }
            Maps::Ordered(less, more) => {
                found.extend(blocked(entries, live, [more, less], is_less));
                found.extend(blocked(entries, live, [less, more], |declared, live| is_less(live, declared)));
            }
        }
    }
    found
}

fn is_less(one: &Value, other: &Value) -> bool {
    quantity::of(one).zip(quantity::of(other)).is_some_and(|(one, other)| one < other)
}

/// The declared entries of the first map that an undeclared one of the same key in the second map `excludes`, by the
/// declared value and the live one.
fn blocked<'f>(
    entries: &'f [Entry],
    live: &Map<String, Value>,
    [map, other]: [&'static str; 2],
    excludes: impl Fn(&Value, &Value) -> bool,
) -> Vec<Replaced<'f>> {
    let of_map = |name: &str| -> &'f [Entry] {
        match entries.iter().find(|entry| &*entry.name == name).map(|entry| &entry.node) {
            Some(Node::Object(entries)) => entries,
            _ => &[],
        }
    };
    let Some(Value::Object(others)) = live.get(other) else { return Vec::new() };
    let is_blocked = |entry: &&Entry| {
        let Node::Leaf(leaf) = &entry.node else { return false };
        let is_undeclared = !declares(of_map(other), &entry.name);
        let other = others.get(&*entry.name).filter(|value| !value.is_null() && is_undeclared);
        is_declared(entry) && other.is_some_and(|other| excludes(&leaf.value, other))
    };
    let replaced = |entry: &'f Entry| Replaced { declared: [map, &entry.name], live: [other, &entry.name] };
    of_map(map).iter().filter(is_blocked).map(replaced).collect()
}

fn is_core(family: Family) -> bool {
    matches!(family, Family::Core | Family::Pod)
}

fn declares(entries: &[Entry], name: &str) -> bool {
    entries.iter().any(|entry| &*entry.name == name && is_declared(entry))
}

/// Whether an entry says more than null.
fn is_declared(entry: &Entry) -> bool {
    !matches!(&entry.node, Node::Leaf(leaf) if leaf.value.is_null())
}
