//! The guard without a cluster: `kubemoor serve --store`, fed with what a real cluster holds.

use std::fs;

use serde_json::{Value, json};

use crate::support::{ControlPlane, Guard, RELEASE, Review, Scene, charts, folder};

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_manifests_judges_without_a_cluster() {
    let shop = Scene::on(ControlPlane::get()).install("embedded", charts::IMAGE_AND_COLOR).await;
    let live = shop.get(&shop.config_map("settings")).await;
    let (store, namespace) = (folder("store"), shop.namespace.as_str());
    fs::create_dir(store.join(namespace)).unwrap();
    let manifest = shop.helm.manifest(namespace, RELEASE).await.unwrap();
    fs::write(store.join(namespace).join("shop.yaml"), manifest).unwrap();
    // What is no release beside it is named and takes nothing with it.
    fs::write(store.join(namespace).join("broken.yaml"), "just: text\n").unwrap();

    let mut guard = Guard::launch(&[&format!("--store=dir:{}", store.display()), "--edits=Deny"]);
    guard.ready().await;
    let with = |pointer: &str, key: &str| {
        let mut object = live.clone();
        object.pointer_mut(pointer).unwrap()[key] = json!("b");
        object
    };
    let ask = async |name: &str, new: Value| {
        let (old, new) = (live.to_string(), new.to_string());
        guard.judge(Review { name, ..Review::of_settings(namespace, &old, &new) }.text()).await
    };
    let refused = ask("settings", with("/data", "image")).await;
    assert!(refused.refusal().contains("/data/image"), "{refused:?}");
    assert!(ask("settings", with("/data", "undeclared")).await.passes());
    assert!(ask("settings", with("/metadata/labels", "seen")).await.passes());
    assert!(ask("settings", live.clone()).await.passes());
    assert!(ask("undeclared", with("/data", "image")).await.passes());
    assert!(guard.terminate().success());
}
