//! Expands a short description of a change into the AdmissionReview that the API server would send.
//!
//! Entry points: [`Change::review`]; [`find`] resolves the name of an object. Invariant: the old object is
//! the manifest's object with Helm's metadata and the live fields of the case.

use anyhow::Context;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Value, json};

use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Actor, Gvk, ObjectId, Operation};
use kubemoor_guard::webhook::review::{Head, Kind, Question, Resource};
use kubemoor_helm::release::gvk;

/// An edit of one object of the release.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Change {
    /// The object: `Deployment/web`.
    object: Option<String>,
    /// Its namespace, where several objects have this kind and name.
    namespace: Option<String>,
    /// The live fields that the manifest does not declare, as a merge patch.
    live: Option<Value>,
    /// The edit as a merge patch.
    merge: Option<Value>,
    /// The edit as a JSON Patch.
    json: Option<Patch>,
    /// The replicas that are asked for through `scale`.
    scale: Option<u32>,
    /// The object is deleted.
    #[serde(default)]
    delete: bool,
    /// The object is re-created, with this merged into it.
    create: Option<Value>,
}

/// An edit as the API server sends it: the kind and subresource that it is sent by, and both objects.
struct Sent {
    kind: Gvk,
    subresource: Option<&'static str>,
    old: Value,
    new: Value,
}

impl Change {
    /// The review of this edit.
    ///
    /// # Errors
    /// The edit is not one, or names no object of the release.
    pub(super) fn review(&self, actor: &Actor, documents: &[(ObjectId, Value)]) -> anyhow::Result<Value> {
        let name =
            self.object.as_deref().context("a case names an object, such as Deployment/web, or a review")?;
        let (object, document) = find(name, self.namespace.as_deref(), documents)?;
        let operation = self.operation()?;
        let gvk = gvk(document);
        let catalog = Catalog::with_core();
        let facts = catalog.facts(&gvk.group, &gvk.kind);
        let plural =
            facts.map_or_else(|| format!("{}s", gvk.kind.to_lowercase()), |facts| facts.plural.clone());
        let (old, new) = self.objects(document)?;
        let sent = match self.scale {
            None => Sent { kind: gvk.clone(), subresource: None, old, new },
            Some(replicas) => {
                let path = facts.and_then(|facts| facts.scale_replicas_path.as_ref());
                let path = path.with_context(|| format!("{} has no scale", gvk.kind))?;
                let now = path.get(&old).first().map_or(json!(1), |now| (*now).clone());
                Sent::scale(object, now, replicas.into())
            }
        };
        let head = Head {
            uid: "test".into(),
            kind: Kind {
                group: sent.kind.group.into(),
                version: sent.kind.version.into(),
                kind: sent.kind.kind.into(),
            },
            resource: Resource {
                group: gvk.group.into(),
                version: gvk.version.into(),
                resource: plural.into(),
            },
            subresource: sent.subresource.map(Into::into),
            namespace: object.namespace.as_deref().map(Into::into),
            name: Some(object.name.as_str().into()),
            operation: Some(operation),
        };
        let new = (operation != Operation::Delete).then_some(sent.new);
        let old = (operation != Operation::Create).then_some(sent.old);
        Ok(Question { head, actor, object: new, old_object: old }.to_json())
    }

    /// The operation; a case has exactly one.
    fn operation(&self) -> anyhow::Result<Operation> {
        let updates = [self.merge.is_some(), self.json.is_some(), self.scale.is_some()];
        let updates = updates.into_iter().filter(|given| *given).count();
        match (updates, self.delete, &self.create) {
            (1, false, None) => Ok(Operation::Update),
            (0, true, None) => Ok(Operation::Delete),
            (0, false, Some(_)) => Ok(Operation::Create),
            _ => Err(anyhow::anyhow!("a case has one of merge, json, scale, delete and create")),
        }
    }

    /// The object before and after.
    fn objects(&self, document: &Value) -> anyhow::Result<(Value, Value)> {
        let mut old = document.clone();
        if let Some(live) = &self.live {
            json_patch::merge(&mut old, live);
        }
        let mut new = old.clone();
        if let Some(patch) = self.merge.as_ref().or(self.create.as_ref()) {
            json_patch::merge(&mut new, patch);
        }
        if let Some(patch) = &self.json {
            json_patch::patch(&mut new, patch).context("the JSON Patch does not apply")?;
        }
        Ok((old, new))
    }
}

impl Sent {
    /// A change of the replicas through the `scale` subresource.
    fn scale(object: &ObjectId, now: Value, wanted: Value) -> Self {
        let scale = |replicas: Value| {
            json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": object.name, "namespace": object.namespace},
                "spec": {"replicas": replicas},
            })
        };
        let kind = Gvk::from_api_version("autoscaling/v1", "Scale");
        Self { kind, subresource: Some("scale"), old: scale(now), new: scale(wanted) }
    }
}

/// The object of the release that `name` names, such as `Deployment/web`.
///
/// # Errors
/// None is, or several are.
pub(super) fn find<'d>(
    name: &str,
    namespace: Option<&str>,
    documents: &'d [(ObjectId, Value)],
) -> anyhow::Result<(&'d ObjectId, &'d Value)> {
    let named = documents.iter().filter(|(object, _)| {
        name.split_once('/') == Some((object.kind.as_str(), object.name.as_str()))
            && (namespace.is_none() || namespace == object.namespace.as_deref())
    });
    match named.collect::<Vec<_>>().as_slice() {
        [(object, document)] => Ok((object, document)),
        [] => Err(anyhow::anyhow!("the release declares no {name}")),
        _ => Err(anyhow::anyhow!("the release declares {name} in several namespaces: name one")),
    }
}
