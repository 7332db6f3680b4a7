//! The manifests of `deploy/`, applied as a user would apply them.

use std::fs;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::Value;

use super::control_plane::{ControlPlane, blocking};
use super::identity::Identity;
use super::wait::{SOON, eventually};

/// What is in `deploy/` for a guard that only warns and reports.
pub(crate) const BASE: [&str; 4] = ["namespace.yaml", "rbac.yaml", "networkpolicy.yaml", "workload.yaml"];

impl ControlPlane {
    /// Applies files of `deploy/`, each once: applied again, the roles that others add to would be empty for a moment.
    pub(crate) async fn apply_deploy(&self, files: &[&str]) {
        let client = self.client(Identity::Admin).await;
        let mut applied = self.applied.lock().await;
        for file in files {
            if applied.contains(*file) {
                continue;
            }
            for document in manifests(file) {
                eventually(&format!("deploy/{file} is applied"), SOON, || apply(&client, &document)).await;
            }
            applied.insert((*file).to_owned());
        }
    }

    /// Defines the kinds of kubemoor.dev, and waits until they are served.
    pub(crate) fn define_policies(&self) {
        blocking(async {
            let client = self.client(Identity::Admin).await;
            let definitions = manifests("crds.yaml");
            for definition in &definitions {
                eventually("deploy/crds.yaml is applied", SOON, || apply(&client, definition)).await;
            }
            let served: Api<CustomResourceDefinition> = Api::all(client);
            for definition in &definitions {
                let name = definition["metadata"]["name"].as_str().unwrap();
                // A kind is not served before its definition is established.
                let is_established = || async {
                    let definition = served.get(name).await.map_err(|error| error.to_string())?;
                    let conditions =
                        definition.status.and_then(|status| status.conditions).unwrap_or_default();
                    let established =
                        conditions.iter().any(|it| it.type_ == "Established" && it.status == "True");
                    if established { Ok(()) } else { Err(format!("{conditions:?}")) }
                };
                eventually(&format!("{name} is served"), SOON, is_established).await;
            }
        });
    }
}

fn manifests(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let documents: Result<Vec<Value>, _> = serde_saphyr::from_multiple(&text);
    let mut documents = documents.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    documents.retain(|document| !document.is_null());
    documents
}

async fn apply(client: &Client, document: &Value) -> Result<(), String> {
    let object: DynamicObject =
        serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    let name = object.metadata.name.as_deref().ok_or_else(|| format!("no name in {document}"))?;
    let types = object.types.as_ref().ok_or_else(|| format!("no kind in {document}"))?;
    let gvk = GroupVersionKind::try_from(types).map_err(|error| error.to_string())?;
    let (resource, capabilities) = pinned_kind(client, &gvk).await.map_err(|error| error.to_string())?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let parameters = PatchParams::apply("kubectl").force();
    let applied = api.patch(name, &parameters, &Patch::Apply(document)).await;
    applied.map(|_| ()).map_err(|error| format!("{} {name}: {error}", types.kind))
}
