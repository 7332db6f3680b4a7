//! Objects as people name them on the command line and on the page: `KIND/NAME`.
//!
//! Entry point: [`resolve`]. Invariant: what could mean two kinds is an
//! error that says how to tell them apart, never a guess. Short names (`deploy`)
//! are looked up only where no kind is called so.

use super::failure::{Failure, failed};
use kubemoor_cluster::client::by_short_name;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::model::{NamedObject, ObjectId};

/// A group whose kinds are all served in others as well, and only there today.
const LEGACY: &str = "extensions";

/// The object with this name; `namespace` applies where its kind is namespaced.
///
/// # Errors
/// The cluster does not serve the kind, or the name fits several kinds; or the API server fails.
pub(crate) async fn resolve(
    named: &NamedObject,
    connection: &Connection,
    kinds: &Kinds,
    namespace: &str,
) -> Result<ObjectId, Failure> {
    let catalog = kinds.catalog();
    let unknown = match kind(named, &catalog) {
        Ok(kind) => return Ok(with_kind(named, kind, namespace)),
        Err(error) => error,
    };
    let found = by_short_name(&connection.client, &named.kind).await;
    let found = found.map_err(|error| failed(connection, "list the API's kinds", error))?;
    let is_meant = |group: &String| named.group.as_ref().is_none_or(|meant| meant == group);
    let found: Vec<_> = found.into_iter().filter(|(group, _)| is_meant(group)).collect();
    match found.as_slice() {
        [] => Err(unknown),
        [(group, plural)] => {
            let full =
                NamedObject { kind: plural.clone(), group: Some(group.clone()), name: named.name.clone() };
            Ok(with_kind(&full, kind(&full, &catalog)?, namespace))
        }
        several => {
            let names: Vec<_> = several.iter().map(|(group, plural)| format!("{plural}.{group}")).collect();
            Err(Failure::Named(format!(
                "{} may be {}: write one of these before the name",
                named.kind,
                names.join(" or ")
            )))
        }
    }
}

/// The kind that is meant.
///
/// # Errors
/// None is, or several are.
fn kind<'c>(named: &NamedObject, catalog: &'c Catalog) -> Result<&'c KindFacts, Failure> {
    let is_named = |facts: &&KindFacts| {
        (facts.kind.to_lowercase() == named.kind || facts.plural == named.kind)
            && named.group.as_ref().is_none_or(|group| *group == facts.group)
    };
    let mut found: Vec<_> = catalog.kinds().filter(is_named).collect();
    if found.len() > 1 {
        found.retain(|facts| facts.group != LEGACY);
    }
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::Named(format!(
            "the cluster serves no kind {}: write the kind as in manifests, such as deployment/web",
            named.kind
        ))),
        several => {
            let mut names: Vec<_> = several.iter().map(|it| format!("{}.{}", it.plural, it.group)).collect();
            names.sort();
            Err(Failure::Named(format!(
                "{} may be {}: write one of these before the name",
                named.kind,
                names.join(" or ")
            )))
        }
    }
}

/// The object of this kind; `namespace` counts where the kind has any.
fn with_kind(named: &NamedObject, kind: &KindFacts, namespace: &str) -> ObjectId {
    ObjectId {
        group: kind.group.clone().into(),
        kind: kind.kind.clone().into(),
        namespace: kind.namespaced.then(|| namespace.into()),
        name: named.name.clone().into(),
    }
}

#[cfg(test)]
mod tests;
