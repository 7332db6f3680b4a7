//! The guard without a cluster: `kubemoor serve --store` and `kubemoor check`, fed with what a real cluster holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{ControlPlane, Guard, Identity, RELEASE, Review, Scene, charts, folder, record_name};

/// A store with the release as a manifest, and the live object `settings` as the API server holds it.
async fn exported() -> (PathBuf, Scene, Value) {
    let shop = Scene::on(ControlPlane::get()).install("embedded", charts::IMAGE_AND_COLOR).await;
    let live = shop.get(&shop.config_map("settings")).await;
    let store = folder("store");
    fs::create_dir(store.join(&shop.namespace)).unwrap();
    (store, shop, live)
}

fn review(shop: &Scene, name: &str, old: &Value, new: &Value) -> String {
    let (old, new) = (old.to_string(), new.to_string());
    let namespace = &shop.namespace;
    Review { group: "", kind: "ConfigMap", resource: "configmaps", namespace, name, old: &old, new: &new }
        .text()
}

fn with(live: &Value, pointer: &str, key: &str, value: &str) -> Value {
    let mut object = live.clone();
    object.pointer_mut(pointer).unwrap()[key] = json!(value);
    object
}

fn secret_as_yaml(shop: &Scene) -> Vec<u8> {
    let name = record_name("shop", 1);
    let arguments = ["get", "secret", &name, "--namespace", &shop.namespace, "--output", "yaml"];
    let output = ControlPlane::get().kubectl(Identity::Admin, &arguments);
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

async fn check_judgements(store: &Path, shop: &Scene, live: &Value) {
    let mut guard = Guard::launch(&[&format!("--store=dir:{}", store.display()), "--edits=Deny"]);
    guard.ready().await;
    let ask = async |name: &str, new: Value| guard.judge(review(shop, name, live, &new)).await;
    let refused = ask("settings", with(live, "/data", "image", "b")).await;
    assert!(refused.refusal().contains("/data/image"), "{refused:?}");
    assert!(ask("settings", with(live, "/data", "undeclared", "b")).await.passes());
    assert!(ask("settings", with(live, "/metadata/labels", "seen", "yes")).await.passes());
    assert!(ask("settings", live.clone()).await.passes());
    assert!(ask("undeclared", with(live, "/data", "image", "b")).await.passes());
    assert!(guard.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_manifests_judges_without_a_cluster() {
    let (store, shop, live) = exported().await;
    let manifest = shop.helm.manifest(&shop.namespace, RELEASE).await.unwrap();
    fs::write(store.join(&shop.namespace).join("shop.yaml"), manifest).unwrap();
    check_judgements(&store, &shop, &live).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_store_of_exported_records_judges_without_a_cluster() {
    let (store, shop, live) = exported().await;
    let file = store.join(&shop.namespace).join("shop.yaml");
    fs::write(&file, secret_as_yaml(&shop)).unwrap();
    // What is no release beside it is named and takes nothing with it.
    fs::write(store.join(&shop.namespace).join("broken.yaml"), "just: text\n").unwrap();
    check_judgements(&store, &shop, &live).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn check_judges_exported_record_and_reports_unreadable_input() {
    let (store, shop, live) = exported().await;
    let (record, question) = (store.join("record.yaml"), store.join("review.json"));
    fs::write(&record, secret_as_yaml(&shop)).unwrap();
    let check = |text: &str, release: &PathBuf| {
        fs::write(&question, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
        command.arg("check").arg("--release").arg(release).arg("--review").arg(&question);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let edit = review(&shop, "settings", &live, &with(&live, "/data", "image", "b"));
    assert_eq!(check(&edit, &record), (Some(1), String::new()));
    let same = review(&shop, "settings", &live, &live);
    assert_eq!(check(&same, &record), (Some(0), String::new()));
    for (text, release) in [("{}", &record), ("", &record), (&edit, &store.join("nowhere.yaml"))] {
        let (code, error) = check(text, release);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.starts_with("kubemoor: "), "{error}");
    }
}
