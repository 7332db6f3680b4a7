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
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            namespace: kind.namespaced.then(|| namespace.to_owned()),
            name: self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(group: &str, kind: &str, plural: &str) -> KindFacts {
        KindFacts {
            group: group.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced: true,
            versions: vec!["v1".to_owned()],
            scale_replicas_path: None,
        }
    }

    fn check(text: &str, expected: Result<&str, &str>) {
        let mut catalog = Catalog::default();
        catalog.insert(facts("apps", "Deployment", "deployments"));
        catalog.insert(facts("networking.k8s.io", "Ingress", "ingresses"));
        catalog.insert(facts("extensions", "Ingress", "ingresses"));
        catalog.insert(facts("example.org", "Widget", "widgets"));
        catalog.insert(facts("example.com", "Widget", "widgets"));
        let found = text.parse::<NamedObject>().map_err(|error| Failure::Named(error.to_owned()));
        let found = found.and_then(|object| Ok(object.of(object.kind(&catalog)?, "shop")));
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(format!("{}.{}/{}", found.kind, found.group, found.name), expected, "{text}");
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{text}: {error}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn an_object_is_named_by_its_kind_in_any_spelling() {
        check("deployment/web", Ok("Deployment.apps/web"));
        check("Deployment/web", Ok("Deployment.apps/web"));
        check("deployments/web", Ok("Deployment.apps/web"));
        check("deployments.apps/web", Ok("Deployment.apps/web"));
        check("widget.example.org/w", Ok("Widget.example.org/w"));
        check("ingress/web", Ok("Ingress.networking.k8s.io/web"));
    }

    #[test]
    fn ambiguous_unknown_and_malformed_object_references_have_distinct_errors() {
        check("widget/w", Err("widgets.example.com or widgets.example.org"));
        check("gadget/w", Err("serves no kind gadget"));
        check("deployment.batch/web", Err("serves no kind"));
        for text in ["web", "/web", "deployment/", "deployment/web/scale", ""] {
            check(text, Err("KIND/NAME"));
        }
    }
}
