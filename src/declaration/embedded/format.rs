//! The text form of a catalog: JSON with one kind or type per line, so that a new Kubernetes version shows as
//! a readable diff.
//!
//! Entry points: [`encode`], [`decode`]. Invariant: `decode` reads what `encode` writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::declaration::catalog::{Catalog, KindFacts};
use crate::declaration::schema::{
    Builder, Field, KindSchema, ListKey, ListKind, Scalar, Shape, Struct, TypeId, Types,
};
use crate::model::Gvk;

/// A text that is no catalog.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It is no JSON of the expected form.
    #[error("cannot read the catalog: {0}")]
    Json(#[from] serde_json::Error),
    /// A path in it is none.
    #[error("cannot read the catalog: {0}")]
    Path(#[from] crate::declaration::path::PathError),
    /// A type in it has no known form.
    #[error("cannot read type {0} of the catalog: its form is not known")]
    Type(usize),
}

#[derive(Deserialize)]
struct Text {
    kinds: Vec<KindRow>,
    types: Vec<TypeRow>,
}

#[derive(Serialize, Deserialize)]
struct KindRow {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    group: String,
    kind: String,
    plural: String,
    #[serde(default, skip_serializing_if = "is_false")]
    cluster: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replicas: Option<String>,
    versions: Vec<String>,
    /// The type of the kind by version.
    types: BTreeMap<String, u32>,
}

/// One type: a scalar, a map, a list, or else a struct.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct TypeRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    scalar: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    set: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<BTreeMap<String, u32>>,
    #[serde(skip_serializing_if = "is_false")]
    atomic: bool,
    #[serde(skip_serializing_if = "is_false")]
    open: bool,
    /// Of fields, or of keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    defaults: BTreeMap<String, Value>,
}

/// Writes kinds and their types, which must lie in one arena.
pub fn encode(facts: &[KindFacts], schemas: &[(Gvk, KindSchema)]) -> Result<String, FormatError> {
    let empty = Types::default();
    let types = schemas.first().map_or(&empty, |(_, schema)| &*schema.types);
    let mut lines = Vec::new();
    for facts in facts {
        let own = schemas.iter().filter(|(gvk, _)| gvk.group == facts.group && gvk.kind == facts.kind);
        lines.push(serde_json::to_string(&KindRow {
            group: facts.group.clone(),
            kind: facts.kind.clone(),
            plural: facts.plural.clone(),
            cluster: !facts.namespaced,
            replicas: facts.scale_replicas_path.as_ref().map(ToString::to_string),
            versions: facts.versions.clone(),
            types: own.map(|(gvk, schema)| (gvk.version.clone(), schema.root.0)).collect(),
        })?);
    }
    let kinds = lines.join(",\n");
    let rows: Result<Vec<String>, _> =
        types.0.iter().map(|shape| serde_json::to_string(&type_row(shape))).collect();
    Ok(format!("{{\"kinds\":[\n{kinds}\n],\"types\":[\n{}\n]}}\n", rows?.join(",\n")))
}

/// Reads what [`encode`] wrote.
pub fn decode(text: &str) -> Result<Catalog, FormatError> {
    let text: Text = serde_json::from_str(text)?;
    let mut names = Builder::default();
    let shapes: Result<Vec<Shape>, FormatError> = text
        .types
        .into_iter()
        .enumerate()
        .map(|(index, row)| shape(row, &mut names).ok_or(FormatError::Type(index)))
        .collect();
    let types = Arc::new(Types(shapes?));
    let mut catalog = Catalog::default();
    for row in text.kinds {
        for (version, root) in row.types {
            let gvk = Gvk { group: row.group.clone(), version, kind: row.kind.clone() };
            catalog.insert_schema(gvk, KindSchema { types: Arc::clone(&types), root: TypeId(root) });
        }
        catalog.insert(KindFacts {
            group: row.group,
            kind: row.kind,
            plural: row.plural,
            namespaced: !row.cluster,
            versions: row.versions,
            scale_replicas_path: row.replicas.map(|path| path.parse()).transpose()?,
        });
    }
    Ok(catalog)
}

fn type_row(shape: &Shape) -> TypeRow {
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

fn shape(mut row: TypeRow, names: &mut Builder) -> Option<Shape> {
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
