//! The kinds that the API server serves, its version, and the schemas of kinds from its OpenAPI documents and from
//! CustomResourceDefinitions. If an aggregated API is down, only its own kinds are missing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroupList, APIResource, APIResourceList, APIVersions,
};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::client::call::{self, BODY_CAP, ClusterError, PATIENCE};
use crate::client::resource::{GROUP, Partial, segment};
use kubemoor_declare::catalog::{self, KindFacts};
use kubemoor_declare::model::Gvk;
use kubemoor_declare::openapi::{self, Reduction, SchemaError};
use kubemoor_declare::schema::KindSchema;

/// The kinds of every group, with their versions in the order that the API server prefers. Discovery does not
/// say which field of a `scale` subresource holds the replicas, so that stays empty.
pub async fn discover(client: &kube::Client) -> Result<Vec<KindFacts>, ClusterError> {
    let documents = discovery_documents(client).await?;
    let mut kinds: BTreeMap<(String, String), KindFacts> = BTreeMap::new();
    for (group, version, resources) in documents {
        let resources = match resources {
            Ok(resources) => resources,
            Err(error) => {
                tracing::warn!(%group, %version, %error, "failed to discover the kinds of an API group");
                continue;
            }
        };
        for resource in resources.into_iter().filter(|resource| !resource.name.contains('/')) {
            let known = kinds.entry((group.clone(), resource.kind.clone())).or_insert_with(|| KindFacts {
                group: group.clone(),
                kind: resource.kind.clone(),
                plural: resource.name.clone(),
                namespaced: resource.namespaced,
                ..KindFacts::default()
            });
            if known.plural == resource.name {
                known.versions.push(version.clone());
            }
        }
    }
    Ok(kinds.into_values().collect())
}

/// The resources (group and plural) with this short name, such as `deploy`.
pub async fn by_short_name(client: &kube::Client, name: &str) -> Result<Vec<(String, String)>, ClusterError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (group, _, resources) in discovery_documents(client).await? {
        let is_named = |it: &APIResource| it.short_names.iter().flatten().any(|short| short == name);
        let named = resources.unwrap_or_default().into_iter().filter(is_named);
        found.extend(named.map(|resource| (group.clone(), resource.name)));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The API server's version, such as 1 and 28.
pub async fn version(client: &kube::Client) -> Result<(u32, u32), ClusterError> {
    let version: Info = call::fetch(client, call::get("/version")?, PATIENCE).await?;
    Ok((number(&version.major), number(&version.minor)))
}

/// The API server's clock, in whole seconds; `None` if it sends no date.
pub async fn clock(client: &kube::Client) -> Option<Timestamp> {
    let answer =
        timeout(PATIENCE, client.send(call::get("/version").ok()?.map(Body::from))).await.ok()?.ok()?;
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    Some(rfc2822::parse(date).ok()?.timestamp())
}

/// The leading number; some distributions write `28+`.
fn number(text: &str) -> u32 {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

const AT_ONCE: usize = 8;

/// The resources of all groups and versions, the preferred version of each group in front.
async fn discovery_documents(
    client: &kube::Client,
) -> Result<Vec<(String, String, Result<Vec<APIResource>, ClusterError>)>, ClusterError> {
    let core: APIVersions = call::fetch(client, call::get("/api")?, PATIENCE).await?;
    let groups: APIGroupList = call::fetch(client, call::get("/apis")?, PATIENCE).await?;
    let mut places: Vec<(String, String)> =
        core.versions.into_iter().map(|version| (String::new(), version)).collect();
    for group in groups.groups {
        let preferred = group.preferred_version.map(|preferred| preferred.version);
        let others = group.versions.into_iter().map(|version| version.version);
        let others = others.filter(|version| Some(version) != preferred.as_ref()).collect::<Vec<_>>();
        places.extend(preferred.into_iter().chain(others).map(|version| (group.name.clone(), version)));
    }
    Ok(futures::stream::iter(places)
        .map(|(group, version)| async move {
            let read = async {
                let at = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
                let request = call::get(&format!("{at}/{version}"))?;
                let list: APIResourceList = call::fetch(client, request, PATIENCE).await?;
                Ok::<_, ClusterError>(list.resources)
            };
            let resources = read.await;
            (group, version, resources)
        })
        .buffered(AT_ONCE)
        .collect()
        .await)
}

fn definition_path(plural: &str, group: &str) -> Result<String, ClusterError> {
    let name = segment(&format!("{plural}.{group}"))?;
    Ok(format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"))
}

/// Whether the CustomResourceDefinition of Kubemoor's kind `plural` exists.
pub(crate) async fn is_defined(client: &kube::Client, plural: &str) -> Result<bool, ClusterError> {
    let definition =
        call::fetch::<Partial>(client, call::get(&definition_path(plural, GROUP)?)?, PATIENCE).await;
    Ok(call::found(definition)?.is_some())
}

/// Returns `Ok` if the `error` of a request for objects of the kind `plural` means that there are none: the named
/// object does not exist, or the kind is not defined. Without permission to read definitions, any 404 is enough.
pub async fn confirm_absence(
    client: &kube::Client,
    plural: &str,
    error: ClusterError,
) -> Result<(), ClusterError> {
    if error.proves_absence() {
        return Ok(());
    }
    if !error.is_not_found() {
        return Err(error);
    }
    match is_defined(client, plural).await {
        Ok(false) => Ok(()),
        Ok(true) => Err(error),
        Err(unread) if unread.is_forbidden() => Ok(()),
        Err(unread) => Err(unread),
    }
}

/// Where the API server's OpenAPI documents are.
#[derive(Clone, Debug)]
pub(crate) enum OpenApiDocuments {
    /// v3: the URL by `api/VERSION` or `apis/GROUP/VERSION`.
    V3(BTreeMap<String, String>),
    /// v2: one document for all.
    V2,
}

#[derive(Deserialize)]
struct OpenApiIndex {
    paths: BTreeMap<String, OpenApiEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenApiEntry {
    #[serde(rename = "serverRelativeURL")]
    url: String,
}

impl OpenApiDocuments {
    /// Reads the index of the v3 documents; without one, v2 is used.
    pub(crate) async fn find(client: &kube::Client) -> Result<Self, ClusterError> {
        match call::fetch::<OpenApiIndex>(client, call::get("/openapi/v3")?, PATIENCE).await {
            Ok(index) => {
                Ok(Self::V3(index.paths.into_iter().map(|(path, entry)| (path, entry.url)).collect()))
            }
            Err(error) if error.is_not_found() || error.is_forbidden() => Ok(Self::V2),
            Err(error) => Err(error),
        }
    }

    /// The schemas of the kinds `wanted`, and of core kinds in the same documents. Kinds without a schema are left out.
    pub(crate) async fn schemas(
        &self,
        client: &kube::Client,
        wanted: HashSet<Gvk>,
    ) -> Result<Vec<(Gvk, KindSchema)>, ClusterError> {
        let wanted = Arc::new(wanted);
        let urls: Vec<&str> = match self {
            Self::V2 => vec!["/openapi/v2"],
            Self::V3(urls) => {
                let places: BTreeSet<String> = wanted.iter().map(document_path).collect();
                places.iter().filter_map(|place| urls.get(place)).map(String::as_str).collect()
            }
        };
        let mut types = Vec::new();
        for url in urls {
            let document = call::send(client, call::get(url)?, BODY_CAP, PATIENCE).await?;
            let wanted = wanted.clone();
            types.extend(
                reduce(move || {
                    let core = catalog::core();
                    let wanted =
                        |gvk: &Gvk| wanted.contains(gvk) || core.facts(&gvk.group, &gvk.kind).is_some();
                    let mut reduction = Reduction::default();
                    reduction.add(&document, &wanted)?;
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
) -> Result<Vec<(Gvk, KindSchema)>, ClusterError> {
    let reduced = tokio::task::spawn_blocking(reduction).await.map_err(|_| ClusterError::shutting_down())?;
    reduced.map_err(|error| ClusterError::Schema { reason: error.to_string() })
}

fn document_path(gvk: &Gvk) -> String {
    let Gvk { group, version, .. } = gvk;
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

pub(crate) struct CustomKind {
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
) -> Result<Option<CustomKind>, ClusterError> {
    let request = call::get(&definition_path(plural, group)?)?;
    let definition: Value = match call::fetch(client, request, PATIENCE).await {
        Ok(definition) => definition,
        Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(facts) = KindFacts::from_crd(&definition) else { return Ok(None) };
    let uid = definition.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let generation = definition.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let types = reduce(move || openapi::from_crd(&definition)).await?;
    Ok(Some(CustomKind { facts, types, edition: (uid, generation) }))
}

#[cfg(test)]
mod tests;
