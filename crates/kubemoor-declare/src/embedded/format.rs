//! The text form of a catalog: JSON with one kind or type per line, so that a new Kubernetes version shows as
//! a readable diff.
//!
//! Entry points: [`encode`], [`decode`]. Invariant: `decode` reads what `encode` writes.

mod rows;

use std::sync::Arc;

use serde::Deserialize;

use self::rows::{KindRow, TypeRow, shape, type_row};
use crate::catalog::{Catalog, KindFacts};
use crate::model::Gvk;
use crate::schema::{Builder, KindSchema, Shape, TypeId, Types};

/// A text that is no catalog.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It is no JSON of the expected form.
    #[error("cannot read the catalog: {0}")]
    Json(#[from] serde_json::Error),
    /// A path in it is none.
    #[error("cannot read the catalog: {0}")]
    Path(#[from] crate::path::PathError),
    /// A type in it has no known form.
    #[error("cannot read type {0} of the catalog: its form is not known")]
    Type(usize),
}

#[derive(Deserialize)]
struct Text {
    kinds: Vec<KindRow>,
    types: Vec<TypeRow>,
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
