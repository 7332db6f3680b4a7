//! A compact edit, made into the AdmissionReview that the API server would
//! send.
//!
//! Entry points: [`Change::review`]; [`find`] names an object. Invariant: the object before is the
//! manifest's with Helm's metadata, and what the case says of it besides.

use anyhow::Context;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::declaration::catalog::Catalog;
use crate::helm::release::gvk;
use crate::model::{Actor, ObjectId};

/// An edit of one object of the release.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Change {
    /// The object: `Deployment/web`.
    object: Option<String>,
    /// Its namespace, where several objects have this kind and name.
    namespace: Option<String>,
    /// What lives beside what the manifest declares, as a merge patch.
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
    /// The object is created anew, with this merged into it.
    create: Option<Value>,
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
        let mut old = document.clone();
        if let Some(live) = &self.live {
            json_patch::merge(&mut old, live);
        }
        let new = self.edited(&old)?;
        let gvk = gvk(document);
        let catalog = Catalog::with_core();
        let facts = catalog.facts(&gvk.group, &gvk.kind);
        let plural =
            facts.map_or_else(|| format!("{}s", gvk.kind.to_lowercase()), |facts| facts.plural.clone());
        let mut request = json!({
            "uid": "test",
            "kind": {"group": gvk.group, "version": gvk.version, "kind": gvk.kind},
            "resource": {"group": gvk.group, "version": gvk.version, "resource": plural},
            "name": object.name,
            "namespace": object.namespace,
            "operation": self.operation(),
            "userInfo": {"username": actor.user, "groups": actor.groups},
            "object": new,
            "oldObject": old,
            "dryRun": false,
        });
        if self.delete {
            set(&mut request, "object", Value::Null);
        }
        if self.create.is_some() {
            set(&mut request, "oldObject", Value::Null);
        }
        if let Some(replicas) = self.scale {
            let path = facts.and_then(|facts| facts.scale_replicas_path.as_ref());
            let path = path.with_context(|| format!("{} has no scale", gvk.kind))?;
            let before = path.get(&old).first().map_or(json!(1), |before| (*before).clone());
            set(&mut request, "kind", json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
            set(&mut request, "subResource", json!("scale"));
            set(&mut request, "object", scale(object, json!(replicas)));
            set(&mut request, "oldObject", scale(object, before));
        }
        Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))
    }

    /// The object after the edit, which is one of merge, json, scale, delete and create.
    fn edited(&self, old: &Value) -> anyhow::Result<Value> {
        let kinds = [
            self.merge.is_some(),
            self.json.is_some(),
            self.scale.is_some(),
            self.delete,
            self.create.is_some(),
        ];
        if kinds.into_iter().filter(|given| *given).count() != 1 {
            return Err(anyhow::anyhow!("a case has one of merge, json, scale, delete and create"));
        }
        let mut new = old.clone();
        if let Some(patch) = self.merge.as_ref().or(self.create.as_ref()) {
            json_patch::merge(&mut new, patch);
        }
        if let Some(patch) = &self.json {
            json_patch::patch(&mut new, patch).context("the JSON Patch does not apply")?;
        }
        Ok(new)
    }

    fn operation(&self) -> &'static str {
        match (self.delete, &self.create) {
            (true, _) => "DELETE",
            (false, Some(_)) => "CREATE",
            (false, None) => "UPDATE",
        }
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

/// The Scale of an object.
fn scale(object: &ObjectId, replicas: Value) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": object.name, "namespace": object.namespace},
        "spec": {"replicas": replicas},
    })
}

fn set(request: &mut Value, field: &str, value: Value) {
    if let Some(map) = request.as_object_mut() {
        map.insert(field.to_owned(), value);
    }
}
