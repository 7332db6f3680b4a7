//! The types of kinds, from the API server's OpenAPI documents.
//!
//! Entry points: [`Documents::of`] for built-in and aggregated kinds, [`crd`] for custom ones. Reads OpenAPI
//! v3 by group and version. Where the server does not provide it (below Kubernetes 1.24 or without
//! permission), reads the one v2 document. A document's bytes are dropped once it is reduced.

mod definition;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::Deserialize;

pub(crate) use self::definition::{Custom, Edition, crd};
use super::call::{self, BODY_CAP, CallError, PATIENCE};
use kubemoor_declare::embedded;
use kubemoor_declare::model::Gvk;
use kubemoor_declare::openapi::{Reduction, SchemaError};
use kubemoor_declare::schema::KindSchema;

/// Why there are no types.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TypesError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the API server's OpenAPI document cannot be reduced: {0}")]
    Schema(#[from] SchemaError),
    #[error("the reduction of an OpenAPI document was cut off")]
    CutOff,
}

/// Where the API server's OpenAPI documents are.
#[derive(Clone, Debug)]
pub(crate) enum Documents {
    /// v3: the URL by `api/VERSION` or `apis/GROUP/VERSION`.
    V3(BTreeMap<String, String>),
    /// v2: one document for all.
    V2,
}

#[derive(Deserialize)]
struct Index {
    paths: BTreeMap<String, IndexEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexEntry {
    #[serde(rename = "serverRelativeURL")]
    url: String,
}

impl Documents {
    /// Asks the API server what it has.
    pub(crate) async fn find(client: &kube::Client) -> Result<Self, CallError> {
        match call::fetch::<Index>(client, call::get("/openapi/v3")?, PATIENCE).await {
            Ok(index) => {
                Ok(Self::V3(index.paths.into_iter().map(|(path, entry)| (path, entry.url)).collect()))
            }
            Err(error) if error.is_not_found() || error.is_forbidden() => Ok(Self::V2),
            Err(error) => Err(error),
        }
    }

    /// The types of the kinds `wanted`, and of the core kinds that the same
    /// documents hold. Kinds that no document knows are left out.
    pub(crate) async fn of(
        &self,
        client: &kube::Client,
        wanted: HashSet<Gvk>,
    ) -> Result<Vec<(Gvk, KindSchema)>, TypesError> {
        let wanted = Arc::new(wanted);
        let urls: Vec<&str> = match self {
            Self::V2 => vec!["/openapi/v2"],
            Self::V3(urls) => {
                let places: BTreeSet<String> = wanted.iter().map(place).collect();
                places.iter().filter_map(|place| urls.get(place)).map(String::as_str).collect()
            }
        };
        let mut types = Vec::new();
        for url in urls {
            let document = call::send(client, call::get(url)?, BODY_CAP, PATIENCE).await?;
            let (wanted, is_v2) = (wanted.clone(), matches!(self, Self::V2));
            types.extend(
                reduce(move || {
                    let core = embedded::core();
                    let wanted =
                        |gvk: &Gvk| wanted.contains(gvk) || core.facts(&gvk.group, &gvk.kind).is_some();
                    let mut reduction = Reduction::default();
                    if is_v2 {
                        reduction.add_v2(&document, &wanted)
                    } else {
                        reduction.add_v3(&document, &wanted)
                    }?;
                    Ok(reduction.finish())
                })
                .await?,
            );
        }
        Ok(types)
    }
}

async fn reduce(
    reduction: impl FnOnce() -> Result<Vec<(Gvk, KindSchema)>, SchemaError> + Send + 'static,
) -> Result<Vec<(Gvk, KindSchema)>, TypesError> {
    Ok(tokio::task::spawn_blocking(reduction).await.map_err(|_| TypesError::CutOff)??)
}

fn place(gvk: &Gvk) -> String {
    if gvk.group.is_empty() {
        format!("api/{}", gvk.version)
    } else {
        format!("apis/{}/{}", gvk.group, gvk.version)
    }
}
