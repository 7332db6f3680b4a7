//! Releases without a record in the cluster, found by their objects: Helm's SQL driver stores records
//! elsewhere, Argo CD and `helm template` make none.
//!
//! Entry points: [`find`], [`why`].

use std::collections::BTreeMap;

use super::super::reading::Reader;
use kubemoor_cluster::client::labelled::{self, Origin};
use kubemoor_declare::model::{Gvk, ReleaseId};

/// The kinds of which most releases have an object: group, preferred version, kind.
const KINDS: [(&str, &str, &str); 5] = [
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "DaemonSet"),
    ("batch", "v1", "CronJob"),
    ("", "v1", "Service"),
];

/// The facts from the objects of [`KINDS`].
#[derive(Debug, Default)]
pub struct Unrecorded {
    /// All releases that objects name, also those with records.
    pub releases: BTreeMap<ReleaseId, Origin>,
    /// The places that were not searched, with the reason: a sentence each.
    pub notes: Vec<String>,
}

/// Looks at objects with Helm's label in `namespace`, or in all.
pub async fn find(reader: &Reader, namespace: Option<&str>) -> Unrecorded {
    let kinds = KINDS.map(|(group, version, kind)| Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    });
    let lists = kinds.iter().filter_map(|kind| reader.kinds.resource(kind)).map(|resource| async move {
        let named = labelled::named(&reader.connection.client, &resource, namespace).await;
        (resource.plural, named)
    });
    let mut found = Unrecorded::default();
    let (mut forbidden, mut cut) = (Vec::new(), Vec::new());
    for (plural, named) in futures::future::join_all(lists).await {
        match named {
            Ok(named) => {
                if named.cut {
                    cut.push(plural);
                }
                for (release, origin) in named.releases {
                    // An object can name a release of any namespace: those that were not asked for are not shown.
                    if namespace.is_none_or(|namespace| release.namespace == namespace) {
                        let known = found.releases.entry(release).or_insert(origin);
                        *known = origin.min(*known);
                    }
                }
            }
            Err(error) if error.is_forbidden() => forbidden.push(plural),
            Err(error) => found
                .notes
                .push(format!("releases without records are not looked for among {plural}: {error}")),
        }
    }
    let place = namespace.map_or("all namespaces".to_owned(), |namespace| format!("namespace {namespace}"));
    if !forbidden.is_empty() {
        found.notes.push(format!(
            "releases without records are not looked for among {}: you may not list them in {place}",
            forbidden.join(", ")
        ));
    }
    if !cut.is_empty() {
        found.notes.push(format!(
            "releases without records may be missing: there are too many {} in {place} to look at all of them",
            cut.join(", ")
        ));
    }
    found
}

/// Why a release without a record is not guarded.
pub fn why(origin: Origin, release: &ReleaseId) -> String {
    let namespace = &release.namespace;
    match origin {
        Origin::Helm => format!(
            "no record: Helm's annotations name it, but its record is not in namespace {namespace} (SQL driver, \
             another --record-driver, deleted, or in another namespace that no policy trusts or that you may not read)"
        ),
        Origin::ArgoCd => "no record: Argo CD renders it".to_owned(),
        Origin::Unknown => {
            "no record: its objects have Helm's label without Helm's annotations (Argo CD, `helm template`)"
                .to_owned()
        }
    }
}
