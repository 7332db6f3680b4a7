//! Objects as people name them on the command line and on the page: `KIND/NAME`.
//!
//! Entry point: `NamedObject::resolve`. Invariant: what could mean two kinds is an
//! error that says how to tell them apart, never a guess. Short names (`deploy`)
//! are looked up only where no kind is called so.

use super::failure::{Failure, failed};
use crate::client::by_short_name;
use crate::client::connection::Connection;
use crate::declaration::catalog::{Catalog, KindFacts};
use crate::mirror::kinds::Kinds;
use crate::model::{NamedObject, ObjectId};

/// A group whose kinds are all served in others as well, and only there today.
const LEGACY: &str = "extensions";

impl NamedObject {
    /// The object with this name; `namespace` applies where its kind is namespaced.
    ///
    /// # Errors
    /// The cluster does not serve the kind, or the name fits several kinds; or the API server fails.
    pub(crate) async fn resolve(
        &self,
        connection: &Connection,
        kinds: &Kinds,
        namespace: &str,
    ) -> Result<ObjectId, Failure> {
        let catalog = kinds.catalog();
        let unknown = match self.kind(&catalog) {
            Ok(kind) => return Ok(self.of(kind, namespace)),
            Err(error) => error,
        };
        let found = by_short_name(&connection.client, &self.kind).await;
        let found = found.map_err(|error| failed(connection, "list the API's kinds", error))?;
        let is_meant = |group: &String| self.group.as_ref().is_none_or(|meant| meant == group);
        let found: Vec<_> = found.into_iter().filter(|(group, _)| is_meant(group)).collect();
        match found.as_slice() {
            [] => Err(unknown),
            [(group, plural)] => {
                let full = Self { kind: plural.clone(), group: Some(group.clone()), name: self.name.clone() };
                Ok(full.of(full.kind(&catalog)?, namespace))
            }
            several => {
                let names: Vec<_> =
                    several.iter().map(|(group, plural)| format!("{plural}.{group}")).collect();
                Err(Failure::Named(format!(
                    "{} may be {}: write one of these before the name",
                    self.kind,
                    names.join(" or ")
                )))
            }
        }
    }

    /// The kind that is meant.
    ///
    /// # Errors
    /// None is, or several are.
    fn kind<'c>(&self, catalog: &'c Catalog) -> Result<&'c KindFacts, Failure> {
        let is_named = |facts: &&KindFacts| {
            (facts.kind.to_lowercase() == self.kind || facts.plural == self.kind)
                && self.group.as_ref().is_none_or(|group| *group == facts.group)
        };
        let mut found: Vec<_> = catalog.kinds().filter(is_named).collect();
        if found.len() > 1 {
            found.retain(|facts| facts.group != LEGACY);
        }
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(Failure::Named(format!(
                "the cluster serves no kind {}: write the kind as in manifests, such as deployment/web",
                self.kind
            ))),
            several => {
                let mut names: Vec<_> =
                    several.iter().map(|it| format!("{}.{}", it.plural, it.group)).collect();
                names.sort();
                Err(Failure::Named(format!(
                    "{} may be {}: write one of these before the name",
                    self.kind,
                    names.join(" or ")
                )))
            }
        }
    }

    /// The object of this kind; `namespace` counts where the kind has any.
    fn of(&self, kind: &KindFacts, namespace: &str) -> ObjectId {
        ObjectId {
            group: kind.group.clone().into(),
            kind: kind.kind.clone().into(),
            namespace: kind.namespaced.then(|| namespace.into()),
            name: self.name.clone().into(),
        }
    }
}

#[cfg(test)]
mod tests;
