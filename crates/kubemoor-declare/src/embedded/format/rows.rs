//! The rows of a catalog's text: one for each kind, one for each type.
//!
//! Entry points: [`KindRow`], [`type_row`], [`shape`]. Invariant: `shape` reads what `type_row` writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::{Builder, Field, ListKey, ListKind, Scalar, Shape, Struct, TypeId};

#[derive(Serialize, Deserialize)]
pub(super) struct KindRow {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) plural: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) cluster: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<String>,
    pub(super) versions: Vec<String>,
    /// The type of the kind by version.
    pub(super) types: BTreeMap<String, u32>,
}

/// One type: a scalar, a map, a list, or else a struct.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TypeRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scalar: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) map: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) list: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) set: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fields: Option<BTreeMap<String, u32>>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) atomic: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) open: bool,
    /// Of fields, or of keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) defaults: BTreeMap<String, Value>,
}

pub(super) fn type_row(shape: &Shape) -> TypeRow {
    let default = |name: &Arc<str>, default: &Option<Box<Value>>| {
        default.as_ref().map(|value| (name.to_string(), (**value).clone()))
    };
    match shape {
        Shape::Any => TypeRow { scalar: Some("any".to_owned()), ..TypeRow::default() },
        Shape::Scalar(scalar) => {
            TypeRow { scalar: Some(scalar_name(*scalar).to_owned()), ..TypeRow::default() }
        }
        Shape::Map { value, atomic } => TypeRow { map: Some(value.0), atomic: *atomic, ..TypeRow::default() },
        Shape::List { item, kind } => {
            let keys: &[ListKey] = if let ListKind::Map(keys) = kind { keys } else { &[] };
            TypeRow {
                list: Some(item.0),
                set: *kind == ListKind::Set,
                keys: keys.iter().map(|key| key.name.to_string()).collect(),
                defaults: keys.iter().filter_map(|key| default(&key.name, &key.default)).collect(),
                ..TypeRow::default()
            }
        }
        Shape::Struct(Struct { fields, atomic, open }) => TypeRow {
            fields: Some(fields.iter().map(|field| (field.name.to_string(), field.ty.0)).collect()),
            atomic: *atomic,
            open: *open,
            defaults: fields.iter().filter_map(|field| default(&field.name, &field.default)).collect(),
            ..TypeRow::default()
        },
    }
}

pub(super) fn shape(mut row: TypeRow, names: &mut Builder) -> Option<Shape> {
    if let Some(name) = row.scalar {
        return if name == "any" { Some(Shape::Any) } else { scalar_named(&name).map(Shape::Scalar) };
    }
    if let Some(value) = row.map {
        return Some(Shape::Map { value: TypeId(value), atomic: row.atomic });
    }
    let mut default = |name: &str| row.defaults.remove(name).map(Box::new);
    if let Some(item) = row.list {
        let keys: Box<[ListKey]> =
            row.keys.iter().map(|name| ListKey { default: default(name), name: names.name(name) }).collect();
        let kind = match (row.set, keys.is_empty()) {
            (true, _) => ListKind::Set,
            (false, true) => ListKind::Atomic,
            (false, false) => ListKind::Map(keys),
        };
        return Some(Shape::List { item: TypeId(item), kind });
    }
    let fields = row
        .fields?
        .into_iter()
        .map(|(name, ty)| Field { default: default(&name), name: names.name(&name), ty: TypeId(ty) })
        .collect();
    Some(Shape::Struct(Struct { fields, atomic: row.atomic, open: row.open }))
}

fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Plain => "plain",
        Scalar::Text => "text",
        Scalar::Quantity => "quantity",
        Scalar::IntOrString => "int-or-string",
        Scalar::Bytes => "bytes",
        Scalar::Time => "time",
    }
}

fn scalar_named(name: &str) -> Option<Scalar> {
    [Scalar::Plain, Scalar::Text, Scalar::Quantity, Scalar::IntOrString, Scalar::Bytes, Scalar::Time]
        .into_iter()
        .find(|scalar| scalar_name(*scalar) == name)
}

// serde calls it with a reference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if hands out a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}
