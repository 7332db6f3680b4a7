//! The types of a kind, reduced to what the comparison needs: which values are atomic, how list elements are
//! identified, and which notations are equivalent. A [`TypeId`] beyond the arena reads as [`Shape::Any`].

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The nesting depth below which nothing is declared or compared: the limit of the JSON parsers in this program.
pub const MAX_DEPTH: usize = 128;

/// Whether a value has more than `levels` levels of nesting.
pub(super) fn is_deeper(value: &Value, levels: usize) -> bool {
    let mut rest = vec![(value, 0)];
    while let Some((value, depth)) = rest.pop() {
        if depth > levels {
            return true;
        }
        match value {
            Value::Array(items) => rest.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => rest.extend(map.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}

#[derive(Clone, Debug)]
pub struct KindSchema {
    /// The arena of the kind's types, shared by several kinds.
    pub types: Arc<Types>,
    pub root: TypeId,
}

/// An arena of types. Types refer to one another, possibly in cycles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Types(pub(super) Vec<Shape>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TypeId(pub(super) u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Untyped: maps are granular, lists atomic.
    Any,
    Scalar(ScalarType),
    Struct(Struct),
    /// Arbitrary keys. An atomic map is compared as one value.
    Map {
        value: TypeId,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        atomic: bool,
    },
    List {
        item: TypeId,
        kind: ListKind,
    },
}

/// Which notations of a scalar are equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScalarType {
    /// A number, a boolean, or unknown.
    Plain,
    /// A string: `true` and `"true"` are equal.
    Text,
    /// A resource quantity: `2000m` and `2` are equal.
    Quantity,
    /// `80` and `"80"` are equal.
    IntOrString,
    /// Base64: line breaks are ignored.
    Bytes,
    /// An RFC 3339 time: the same instant at another offset is equal.
    Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Struct {
    /// The fields, sorted by name.
    pub fields: Box<[StructField]>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub atomic: bool,
    /// Whether the server keeps fields that are not listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StructField {
    pub name: Arc<str>,
    #[serde(rename = "type")]
    pub ty: TypeId,
    /// The server's default for an absent field, if the document states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Box<Value>>,
}

/// How the elements of a list are identified.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListKind {
    /// Not at all: the list is one value.
    Atomic,
    /// By their whole value.
    Set,
    /// By the values of these fields.
    Map(Box<[ListKey]>),
}

/// One key field that identifies a list element.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ListKey {
    pub name: Arc<str>,
    /// The value if the element omits the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Box<Value>>,
}

static ANY: Shape = Shape::Any;

/// Builds an arena that stores equal types once, and in which equal names share memory.
#[derive(Debug)]
pub struct TypeBuilder {
    pub(super) types: Types,
    known: HashMap<Shape, TypeId>,
    names: HashMap<Box<str>, Arc<str>>,
}

impl TypeId {
    /// The untyped type, first in every arena.
    pub const ANY: Self = Self(0);
}

impl Types {
    pub(super) fn names(&self) -> HashSet<Arc<str>> {
        let fields = self.0.iter().filter_map(|shape| match shape {
            Shape::Struct(shape) => Some(&shape.fields),
            _ => None,
        });
        fields.flatten().map(|field| Arc::clone(&field.name)).collect()
    }

    /// The shape at `id`; untyped where there is none.
    pub fn shape(&self, id: TypeId) -> &Shape {
        usize::try_from(id.0).ok().and_then(|index| self.0.get(index)).unwrap_or(&ANY)
    }

    /// The value that the API server stores for a null entry in a map of this type; `None` if it stores the null. In
    /// built-in types such a null becomes the zero value.
    pub(super) fn zero(&self, id: TypeId) -> Option<&'static str> {
        match self.shape(id) {
            Shape::Scalar(ScalarType::Text | ScalarType::Bytes) => Some(""),
            Shape::Scalar(ScalarType::Quantity) => Some("0"),
            _ => None,
        }
    }

    /// Whether server-side apply treats this value of type `id` as atomic.
    pub fn is_one_value(&self, id: TypeId, value: &Value) -> bool {
        match self.shape(id) {
            Shape::List { kind, .. } => *kind == ListKind::Atomic,
            Shape::Struct(Struct { atomic, .. }) | Shape::Map { atomic, .. } => *atomic,
            Shape::Any => !value.is_object(),
            Shape::Scalar(_) => !value.is_array() && !value.is_object(),
        }
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&StructField> {
        let index = self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
        self.fields.get(index)
    }
}

impl KindSchema {
    /// The schema of an unknown kind: the metadata, which all kinds share. Everything else is untyped.
    pub fn unknown() -> &'static Self {
        static UNKNOWN: LazyLock<KindSchema> = LazyLock::new(|| {
            let mut types = TypeBuilder::default();
            let root = types.object(Vec::new(), true);
            types.finish(root)
        });
        &UNKNOWN
    }
}

impl Default for TypeBuilder {
    fn default() -> Self {
        let mut builder = Self { types: Types::default(), known: HashMap::new(), names: HashMap::new() };
        builder.add(Shape::Any);
        builder
    }
}

impl TypeBuilder {
    /// The id of a shape, the same for equal shapes.
    pub fn add(&mut self, shape: Shape) -> TypeId {
        if let Some(id) = self.known.get(&shape) {
            return *id;
        }
        let id = self.reserve();
        self.known.insert(shape.clone(), id);
        self.set(id, shape);
        id
    }

    /// The id for a shape that is not known yet; untyped until it is set.
    pub fn reserve(&mut self) -> TypeId {
        let id = TypeId(u32::try_from(self.types.0.len()).unwrap_or(u32::MAX));
        self.types.0.push(Shape::Any);
        id
    }

    pub fn set(&mut self, id: TypeId, shape: Shape) {
        if let Some(place) = usize::try_from(id.0).ok().and_then(|index| self.types.0.get_mut(index)) {
            *place = shape;
        }
    }

    pub fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = Arc::from(name);
        self.names.insert(name.into(), Arc::clone(&shared));
        shared
    }

    pub fn field(&mut self, name: &str, ty: TypeId) -> StructField {
        StructField { name: self.name(name), ty, default: None }
    }

    /// A granular struct of these fields.
    pub fn structure(&mut self, mut fields: Vec<StructField>, open: bool) -> TypeId {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.dedup_by(|a, b| a.name == b.name);
        self.add(Shape::Struct(Struct { fields: fields.into(), atomic: false, open }))
    }

    /// A whole object: these fields, and the metadata that every object has.
    pub fn object(&mut self, mut fields: Vec<StructField>, open: bool) -> TypeId {
        let metadata = self.metadata();
        fields.retain(|field| !matches!(&*field.name, "metadata" | "apiVersion" | "kind"));
        let text = self.add(Shape::Scalar(ScalarType::Text));
        fields.push(self.field("apiVersion", text));
        fields.push(self.field("kind", text));
        fields.push(self.field("metadata", metadata));
        self.structure(fields, open)
    }

    /// The schema of a kind with the type `root`.
    pub fn finish(self, root: TypeId) -> KindSchema {
        KindSchema { types: Arc::new(self.types), root }
    }

    /// The part of ObjectMeta that a manifest may set.
    fn metadata(&mut self) -> TypeId {
        let text = self.add(Shape::Scalar(ScalarType::Text));
        let plain = self.add(Shape::Scalar(ScalarType::Plain));
        let time = self.add(Shape::Scalar(ScalarType::Time));
        let texts = self.add(Shape::Map { value: text, atomic: false });
        let finalizers = self.add(Shape::List { item: text, kind: ListKind::Set });
        let owner: Vec<StructField> = [
            ("apiVersion", text),
            ("blockOwnerDeletion", plain),
            ("controller", plain),
            ("kind", text),
            ("name", text),
            ("uid", text),
        ]
        .into_iter()
        .map(|(name, ty)| self.field(name, ty))
        .collect();
        let owner = self.add(Shape::Struct(Struct { fields: owner.into(), atomic: true, open: false }));
        let uid = ListKey { name: self.name("uid"), default: None };
        let owners = self.add(Shape::List { item: owner, kind: ListKind::Map(Box::new([uid])) });
        let fields = [
            ("annotations", texts),
            ("creationTimestamp", time),
            ("deletionGracePeriodSeconds", plain),
            ("deletionTimestamp", time),
            ("finalizers", finalizers),
            ("generateName", text),
            ("generation", plain),
            ("labels", texts),
            ("managedFields", TypeId::ANY),
            ("name", text),
            ("namespace", text),
            ("ownerReferences", owners),
            ("resourceVersion", text),
            ("selfLink", text),
            ("uid", text),
        ]
        .into_iter()
        .map(|(name, ty)| self.field(name, ty))
        .collect();
        self.structure(fields, false)
    }
}
