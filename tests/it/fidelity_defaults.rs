//! What a server makes of what is declared as a whole: every object that it has just made of a manifest agrees with it,
//! whatever was filled in, and nothing is left in doubt.

use std::sync::Arc;

use kubemoor_declare::catalog;
use kubemoor_declare::declare::declare;
use kubemoor_declare::model::Gvk;
use kubemoor_declare::openapi::Reduction;
use kubemoor_declare::schema::KindSchema;
use kubemoor_helm::release::gvk;
use serde::Deserialize;
use serde_json::Value;

use crate::support::{Caller, ControlPlane, Identity, SOON, eventually};

/// Manifests, each with a resource; of two versions the server serves one. Names of cluster-scoped objects are taken
/// by nobody else.
const NAMESPACED: &str = include_str!("fidelity_defaults/namespaced.yaml");

const CLUSTER: &str = include_str!("fidelity_defaults/cluster.yaml");

#[derive(Deserialize)]
struct DefaultsRow {
    resource: String,
    object: Value,
}

/// The types of a kind as the server's own document has them.
fn published(document: &[u8], wanted: &Gvk) -> Option<KindSchema> {
    let mut reduction = Reduction::default();
    reduction.add(document, &|gvk| gvk == wanted).unwrap();
    reduction.finish().into_iter().next().map(|(_, schema)| schema)
}

#[tokio::test(flavor = "multi_thread")]
async fn object_with_server_defaults_matches_its_manifest() {
    let control_plane = ControlPlane::get();
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let namespace = control_plane.namespace("defaults").await;
    let (mut found, mut checked) = (Vec::new(), 0);
    for (rows, is_namespaced) in [(NAMESPACED, true), (CLUSTER, false)] {
        for DefaultsRow { resource, object } in serde_saphyr::from_str::<Vec<DefaultsRow>>(rows).unwrap() {
            let (api, plural) = resource.rsplit_once('/').unwrap();
            let collection = match is_namespaced {
                true => format!("/{api}/namespaces/{namespace}/{plural}"),
                false => format!("/{resource}"),
            };
            let name = object["metadata"]["name"].as_str().unwrap();
            let Some(made) = make(&admin, &collection, &object).await else { continue };
            let document = admin.get("/openapi/v2").await.done().unwrap().to_string();
            let live = admin.get(&format!("{collection}/{name}")).await.done().unwrap();
            let wanted = gvk(&object);
            let schemas =
                [catalog::core().schema(&wanted), published(document.as_bytes(), &wanted).map(Arc::new)];
            for schema in schemas.iter().flatten() {
                checked += 1;
                let fields = declare(&object, Some(schema));
                for change in fields.drift(&made).into_iter().chain(fields.drift(&live)) {
                    // Documents of version 2 say no default of a custom kind.
                    let path = change.path.to_string();
                    let is_custom = wanted.group == "fidelity.example";
                    if !is_custom {
                        found.push(format!("{wanted:?} {path}: {change:?}, now {:?}", change.new));
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(checked > 40, "{checked}");
}

/// The object as the server makes it; none where it does not serve the kind.
async fn make(admin: &Caller, collection: &str, object: &Value) -> Option<Value> {
    if admin.get(collection).await.code == 404 && !collection.contains("fidelity.example") {
        return None;
    }
    let made = eventually(&format!("{collection} is served"), SOON, || async {
        let answer = admin.post(collection, object).await;
        // The kind, or the token of a namespace's account, may be on its way.
        if matches!(answer.code, 404 | 500) { Err(answer.to_string()) } else { Ok(answer) }
    })
    .await;
    Some(made.done().unwrap_or_else(|said| panic!("{object}: {said}")))
}
