//! The discovery documents of the API server, one per group and version.
//!
//! Entry point: [`documents`]. Invariant: a document that cannot be read leaves the others readable. Must not
//! interpret a document.

use futures::StreamExt;
use serde::Deserialize;

use super::super::call::{self, CallError, PATIENCE};

/// Documents that are read at once.
const AT_ONCE: usize = 8;

#[derive(Deserialize)]
struct CoreVersions {
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    versions: Vec<GroupVersion>,
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
pub(super) struct Resources {
    pub(super) resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiResource {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    #[serde(default)]
    pub(super) short_names: Vec<String>,
}

/// The documents of all groups and versions, the preferred version of each
/// group in front.
pub(super) async fn documents(
    client: &kube::Client,
) -> Result<Vec<(String, String, Result<Resources, CallError>)>, CallError> {
    let core: CoreVersions = call::fetch(client, call::get("/api")?, PATIENCE).await?;
    let groups: Groups = call::fetch(client, call::get("/apis")?, PATIENCE).await?;
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
            let resources = read(client, &group, &version).await;
            (group, version, resources)
        })
        .buffered(AT_ONCE)
        .collect()
        .await)
}

async fn read(client: &kube::Client, group: &str, version: &str) -> Result<Resources, CallError> {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    call::fetch(client, call::get(&path)?, PATIENCE).await
}
