//! Reads only the declared parts of a large object.
//!
//! Entry point: [`Pruned`], a seed for any deserializer. Invariant: a comparison of pruned objects with the
//! same fields gives the same result as one of the whole objects. Other parts are skipped without being
//! built.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use smallvec::SmallVec;

use super::compare::index::Declared;
use super::equality::{self, Family};
use super::fields::{Elements, Fields, Node};
use super::outline::Excerpt;
use super::schema::Types;
use super::unions::Union;
use crate::model::{
    PAUSED, PAUSED_REPLICAS, PAUSED_SCALE_IN, PAUSED_SCALE_OUT, RELEASE_NAME, RELEASE_NAMESPACE,
    RESOURCE_POLICY,
};

mod pair;

/// Declarations of an object, and keys of a list, that most have at most.
const FEW: usize = 2;

/// Declarations of one value above which it is read whole: to ask each of them about each entry
/// would take longer.
const MANY: usize = 16;

/// Reads an object, and keeps the paths that at least one of the declarations declares, the fields that may stand in
/// the place of these, and the fields that every verdict uses: `apiVersion`, `kind`, the identity, labels, Helm's
/// annotations and owners in `metadata`, `immutable`, `spec.paused`, `spec.suspend`, and the range and target of an
/// autoscaler.
///
/// Keyed lists keep every element in its place; an undeclared element keeps only its keys.
#[derive(Clone, Debug)]
pub struct Pruned<'f> {
    keep: Keep<'f>,
}

/// The fields that are always kept.
struct Always(&'static [Kept]);

struct Kept {
    name: &'static str,
    /// The parts of it to keep; `None` for all.
    below: Option<&'static Always>,
    /// Whether it is read even where an update does not change it.
    unchanged: bool,
}

static ALWAYS: Always = Always(&[
    whole("apiVersion"),
    whole("immutable"),
    whole("kind"),
    Kept { name: "metadata", below: Some(&METADATA), unchanged: true },
    Kept { name: "spec", below: Some(&SPEC), unchanged: false },
]);

static METADATA: Always = Always(&[
    Kept { name: "annotations", below: Some(&ANNOTATIONS), unchanged: true },
    Kept { name: "creationTimestamp", below: None, unchanged: true },
    Kept { name: "deletionTimestamp", below: None, unchanged: true },
    whole("labels"),
    whole("name"),
    whole("namespace"),
    whole("ownerReferences"),
    Kept { name: "uid", below: None, unchanged: true },
]);

static ANNOTATIONS: Always = Always(&[
    whole(PAUSED),
    whole(PAUSED_REPLICAS),
    whole(PAUSED_SCALE_IN),
    whole(PAUSED_SCALE_OUT),
    Kept { name: RELEASE_NAME, below: None, unchanged: true },
    Kept { name: RELEASE_NAMESPACE, below: None, unchanged: true },
    Kept { name: RESOURCE_POLICY, below: None, unchanged: true },
]);

static SPEC: Always = Always(&[
    whole("idleReplicaCount"),
    whole("maxReplicaCount"),
    whole("maxReplicas"),
    whole("minReplicaCount"),
    whole("minReplicas"),
    whole("paused"),
    whole("scaleTargetRef"),
    whole("suspend"),
]);

/// The parts of one value to keep.
#[derive(Clone, Default)]
struct Keep<'f> {
    nodes: SmallVec<[(&'f Node, &'f Types); FEW]>,
    always: Option<&'static Always>,
    keys: SmallVec<[&'f str; FEW]>,
    family: Family,
    /// Whose fields exclude one another, where this value or the elements of this list are such.
    union: Option<&'static Union>,
}

/// The handling of one entry of a map.
enum Fate<'f> {
    Skip,
    Whole,
    Prune(Keep<'f>),
}

/// Reads a name, and copies it only if the entry is kept.
struct Name<'k, 'f>(&'k Keep<'f>);

const fn whole(name: &'static str) -> Kept {
    Kept { name, below: None, unchanged: false }
}

impl<'f> Pruned<'f> {
    /// A seed that keeps what any of these declares.
    pub fn new(fields: &[&'f Fields]) -> Self {
        let nodes = fields.iter().map(|fields| (&fields.root, &*fields.types)).collect();
        let family = fields.first().map(|fields| fields.family).unwrap_or_default();
        Self { keep: Keep { nodes, always: Some(&ALWAYS), family, ..Keep::default() } }
    }

    /// Reads an object before and after an update. A value that has the same text in both, and is needed only
    /// to find changes, is left out of both. So the two can be compared with each other, but neither can be
    /// compared with a declaration.
    ///
    /// `None` where a value that is kept cannot be read.
    pub fn pair(&self, old: &Excerpt<'_>, new: &Excerpt<'_>) -> Option<(Value, Value)> {
        self.keep.pair(old.part(), new.part())
    }
}

impl<'de> DeserializeSeed<'de> for Pruned<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.keep.deserialize(deserializer)
    }
}

impl<'f> Keep<'f> {
    fn entry(&self, name: &str) -> Fate<'f> {
        if self.keys.contains(&name) || self.nodes.len() > MANY {
            return Fate::Whole;
        }
        let union = Union::of(self.family, name);
        let mut below = Keep { family: self.family, union, ..Keep::default() };
        if let Some(kept) = self.always(name) {
            match kept.below {
                None => return Fate::Whole,
                some => below.always = some,
            }
        }
        for (node, types) in &self.nodes {
            equality::work::note();
            match node.entry(name) {
                Some(Node::Leaf(_) | Node::Set(_)) => return Fate::Whole,
                Some(node) => below.nodes.push((node, types)),
                None => {}
            }
        }
        // What some of them do not declare may stand in the place of what they do.
        if self.excludes(name) && below.nodes.len() < self.nodes.len() {
            return Fate::Whole;
        }
        let nothing = below.nodes.is_empty() && below.always.is_none();
        if nothing { Fate::Skip } else { Fate::Prune(below) }
    }

    /// Whether an entry may exclude another one, or be excluded by it.
    fn excludes(&self, name: &str) -> bool {
        self.union.is_some_and(|union| union.has(name))
    }

    fn always(&self, name: &str) -> Option<&'static Kept> {
        self.always.and_then(|always| always.0.iter().find(|kept| kept.name == name))
    }

    fn is_whole(&self) -> bool {
        self.nodes.len() > MANY
            || self.nodes.iter().any(|(node, _)| matches!(node, Node::Leaf(_) | Node::Set(_)))
    }

    /// The declared elements of a list.
    fn elements(&self) -> SmallVec<[(&'f Elements, &'f Types); FEW]> {
        let elements = self.nodes.iter().filter_map(|(node, types)| match *node {
            Node::Elements(elements) => Some((&**elements, *types)),
            _ => None,
        });
        elements.collect()
    }
}

impl<'de> DeserializeSeed<'de> for Keep<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Keep<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, fate)) = access.next_key_seed(Name(&self))? {
            let value = match fate {
                Fate::Skip => {
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
                Fate::Whole => access.next_value()?,
                Fate::Prune(keep) => access.next_value_seed(keep)?,
            };
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let elements = self.elements();
        if elements.is_empty() {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Array(items));
        }
        // Keys may come after the fields that they decide about. So every element is read with the fields of
        // all declared elements, then cut to its keys if it is undeclared.
        let mut keep = Keep { family: self.family, union: self.union, ..Keep::default() };
        for (elements, types) in &elements {
            keep.nodes.extend(elements.items.iter().map(|item| (&item.node, *types)).take(MANY + 1));
            keep.keys.extend(elements.keys(types).iter().map(|key| &*key.name));
        }
        let declared: Vec<Declared<'_>> =
            elements.iter().map(|(elements, types)| Declared::new(elements, types)).collect();
        let whole = keep.is_whole();
        while let Some(mut item) = match whole {
            true => access.next_element::<Value>()?,
            false => access.next_element_seed(keep.clone())?,
        } {
            let is_declared = declared.iter().any(|declared| declared.holds(&item));
            if let (false, Value::Object(map)) = (is_declared, &mut item) {
                map.retain(|name, _| keep.keys.contains(&name.as_str()));
            }
            items.push(item);
        }
        Ok(Value::Array(items))
    }
}

impl<'de, 'f> DeserializeSeed<'de> for Name<'_, 'f> {
    type Value = (String, Fate<'f>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'f> Visitor<'_> for Name<'_, 'f> {
    type Value = (String, Fate<'f>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(match self.0.entry(name) {
            Fate::Skip => (String::new(), Fate::Skip),
            fate => (name.to_owned(), fate),
        })
    }
}

impl fmt::Debug for Keep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keep").field("declarations", &self.nodes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
