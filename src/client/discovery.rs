//! The kinds that the API server serves.
//!
//! Entry point: `discover`. Reads the documents that every supported server has, one per group and version.
//! If an aggregated API is down, only its own kinds are missing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use futures::StreamExt;
use serde::Deserialize;

use super::call::{self, CallError, PATIENCE};
use crate::declaration::catalog::KindFacts;

/// Documents that are read at once.
const AT_ONCE: usize = 8;

#[derive(Deserialize)]
struct Version {
    major: String,
    minor: String,
}

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
struct Resources {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    short_names: Vec<String>,
}

/// The kinds of every group, with their versions in the order that the API server prefers. Discovery does not
/// say which field of a `scale` subresource holds the replicas, so that stays empty.
///
/// # Errors
/// When the lists of groups themselves cannot be read.
pub(crate) async fn discover(client: &kube::Client) -> Result<Vec<KindFacts>, CallError> {
    let documents = documents(client).await?;
    let mut kinds: Vec<KindFacts> = Vec::new();
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    for (group, version, resources) in documents {
        let resources = match resources {
            Ok(resources) => resources.resources,
            Err(error) => {
                tracing::warn!(%group, %version, %error, "the kinds of an API group cannot be read");
                continue;
            }
        };
        for resource in resources.into_iter().filter(|resource| !resource.name.contains('/')) {
            match places.entry((group.clone(), resource.kind.clone())) {
                Entry::Occupied(place) => {
                    let known = kinds.get_mut(*place.get()).filter(|known| known.plural == resource.name);
                    known.into_iter().for_each(|known| known.versions.push(version.clone()));
                }
                Entry::Vacant(place) => {
                    place.insert(kinds.len());
                    kinds.push(KindFacts {
                        group: group.clone(),
                        kind: resource.kind,
                        plural: resource.name,
                        namespaced: resource.namespaced,
                        versions: vec![version.clone()],
                        scale_replicas_path: None,
                    });
                }
            }
        }
    }
    Ok(kinds)
}

/// The documents of all groups and versions, the preferred version of each
/// group in front.
async fn documents(
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

/// The resources, as group and plural, that go by a short name such as
/// `deploy`.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn by_short_name(client: &kube::Client, name: &str) -> Result<Vec<(String, String)>, CallError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (group, _, resources) in documents(client).await? {
        let resources = resources.map(|resources| resources.resources).unwrap_or_default();
        let named = resources.into_iter().filter(|it| it.short_names.iter().any(|short| short == name));
        found.extend(named.map(|resource| (group.clone(), resource.name)));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The API server's version, such as 1 and 28.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn version(client: &kube::Client) -> Result<(u32, u32), CallError> {
    let version: Version = call::fetch(client, call::get("/version")?, PATIENCE).await?;
    Ok((number(&version.major), number(&version.minor)))
}

/// The number in front; some distributions write `28+`.
fn number(text: &str) -> u32 {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

async fn read(client: &kube::Client, group: &str, version: &str) -> Result<Resources, CallError> {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    call::fetch(client, call::get(&path)?, PATIENCE).await
}
