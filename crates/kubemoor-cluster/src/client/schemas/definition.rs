//! The type of a custom resource, from its CustomResourceDefinition.
//!
//! Entry point: [`crd`]. Invariant: without the right to read definitions there is no error; the OpenAPI documents
//! still describe the type.

use serde_json::Value;

use super::super::call::{self, PATIENCE};
use super::super::resource::segment;
use super::{TypesError, reduce};
use kubemoor_declare::catalog::KindFacts;
use kubemoor_declare::model::Gvk;
use kubemoor_declare::openapi;
use kubemoor_declare::schema::KindSchema;

/// What a CustomResourceDefinition says of its kind.
pub(crate) struct Custom {
    pub(crate) facts: KindFacts,
    pub(crate) types: Vec<(Gvk, KindSchema)>,
    pub(crate) edition: Edition,
}

/// A state of a CustomResourceDefinition's spec: the definition's uid and its generation. The uid is needed
/// because a re-created definition starts at generation one again.
pub(crate) type Edition = (String, i64);

/// The custom resource `plural` of `group`; `None` when its CustomResourceDefinition does not exist or may
/// not be read. In that case the OpenAPI documents, which every user may read, still describe its types.
pub(crate) async fn crd(
    client: &kube::Client,
    plural: &str,
    group: &str,
) -> Result<Option<Custom>, TypesError> {
    let name = segment(&format!("{plural}.{group}"))?;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let definition: Value = match call::fetch(client, call::get(&path)?, PATIENCE).await {
        Ok(definition) => definition,
        Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some(facts) = KindFacts::from_crd(&definition) else { return Ok(None) };
    let uid = definition.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let generation = definition.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let types = reduce(move || openapi::from_crd(&definition)).await?;
    Ok(Some(Custom { facts, types, edition: (uid, generation) }))
}
