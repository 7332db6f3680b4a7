//! The kinds that the API server serves, and its version.
//!
//! Entry points: `discover`, [`by_short_name`], [`version`]. Reads the documents that every supported server has.
//! If an aggregated API is down, only its own kinds are missing.

mod documents;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Deserialize;

use self::documents::documents;
use super::call::{self, CallError, PATIENCE};
use kubemoor_declare::catalog::KindFacts;

#[derive(Deserialize)]
struct Version {
    major: String,
    minor: String,
}

/// The kinds of every group, with their versions in the order that the API server prefers. Discovery does not
/// say which field of a `scale` subresource holds the replicas, so that stays empty.
///
/// # Errors
/// When the lists of groups themselves cannot be read.
pub async fn discover(client: &kube::Client) -> Result<Vec<KindFacts>, CallError> {
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
