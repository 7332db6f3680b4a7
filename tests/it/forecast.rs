//! `kubemoor forecast` against what the real upgrade then meets. No guard runs: the command needs a kubeconfig alone.

use std::collections::BTreeSet;
use std::process::Command;

use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_verdict::owners::{self, Owners};
use kubemoor_verdict::ownership;
use serde_json::{Value, json};

use crate::support::charts::WORKLOAD;
use crate::support::{Identity, RELEASE, SOON, Scene, eventually, unguarded};

/// What an upgrade meets: the manager, and the field as Helm's error spells it.
type Met = BTreeSet<(String, String)>;

async fn install(options: Value) -> Scene {
    Scene::on(unguarded()).options(options).install("forecast", WORKLOAD).await
}

async fn upgrade(shop: &Scene, values: Value) -> Result<Value, String> {
    shop.upgrade(json!({"values": values})).await
}

fn kubectl(shop: &Scene, arguments: &[&str]) {
    let output = shop.kubectl(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The exit code and the output of a forecast.
fn run(shop: &Scene, release: &str, format: &str) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubemoor"))
        .args(["forecast", release, "--namespace", &shop.namespace, "--output", format, "--kubeconfig"])
        .arg(shop.control_plane.kubeconfig(Identity::Admin))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text.into_owned())
}

/// What the forecast says that an upgrade meets: always, and only when it changes the field.
fn forecast(shop: &Scene) -> (Met, Met) {
    let (code, text) = run(shop, RELEASE, "json");
    let forecast: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let conflicts = forecast["conflicts"].as_array().unwrap();
    assert_eq!(code, i32::from(!conflicts.is_empty()), "{text}");
    let met = |differs: bool| {
        let of = conflicts.iter().filter(|conflict| conflict["differs"] == differs);
        of.map(|conflict| {
            assert!(conflict["operation"].is_string(), "{conflict}");
            let path: Path = conflict["path"].as_str().unwrap().parse().unwrap();
            (conflict["manager"].as_str().unwrap().to_owned(), spelled(&path))
        })
        .collect()
    };
    (met(true), met(false))
}

/// A path as the API server spells it in a conflict.
pub(crate) fn spelled(path: &Path) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Field(name) => format!(".{name}"),
        Segment::Key(keys) => {
            let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Segment::Element(value) => format!("[={value}]"),
    };
    path.0.iter().map(segment).collect()
}

/// What an upgrade failed on, by its error:
/// `conflict with "kubectl-set" using apps/v1: .spec.replicas`, or several below one another.
fn met(error: &str) -> Met {
    let conflicts = error.split_once("Apply failed with").unwrap_or_else(|| panic!("no conflict: {error}")).1;
    let mut found = Met::new();
    let mut manager = String::new();
    for line in conflicts.split('\n') {
        let mut rest = line;
        if let Some((_, named)) = line.split_once("with \"") {
            let (name, behind) = named.split_once('"').unwrap();
            manager = name.to_owned();
            rest = behind.split_once(": ").map_or("", |(_, field)| field);
        }
        let field = rest.trim().trim_start_matches("- ");
        if field.starts_with('.') {
            found.insert((manager.clone(), field.to_owned()));
        }
    }
    found
}

fn of<const N: usize>(conflicts: [(&str, &str); N]) -> Met {
    conflicts.iter().map(|(manager, field)| ((*manager).to_owned(), (*field).to_owned())).collect()
}

const IMAGE: &str = r#".spec.template.spec.containers[name="app"].image"#;
const LEVEL: &str = r#".spec.template.spec.containers[name="app"].env[name="LEVEL"].value"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_fresh_release_has_no_conflicts_ahead() {
    let shop = install(json!({})).await;
    assert_eq!(forecast(&shop), (Met::new(), Met::new()));
    let (code, text) = run(&shop, RELEASE, "table");
    assert_eq!(code, 0);
    assert!(text.starts_with("No conflicts expected for release "), "{text}");
    upgrade(&shop, json!({"tag": "two", "level": "debug", "replicas": 3})).await.unwrap();
    assert_eq!(forecast(&shop), (Met::new(), Met::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_field_conflicts_with_every_upgrade() {
    let shop = install(json!({})).await;
    kubectl(&shop, &["set", "image", "deployment/web", "app=registry.example/mine:1"]);
    kubectl(&shop, &["scale", "deployment/web", "--replicas=5"]);
    let variables =
        r#"[{"op": "replace", "path": "/spec/template/spec/containers/0/env/0/value", "value": "mine"}]"#;
    kubectl(&shop, &["patch", "deployment/web", "--type", "json", "--patch", variables]);
    kubectl(&shop, &["label", "deployment/web", "mine=yes"]);
    let (always, on_change) = forecast(&shop);
    let mut expected = of([("kubectl-set", IMAGE), ("kubectl-patch", LEVEL)]);
    // Older API servers leave the replicas to Helm when somebody scales.
    if shop.control_plane.minor() > 21 {
        expected.extend(of([("kubectl", ".spec.replicas")]));
    }
    assert_eq!(always, expected);
    assert_eq!(on_change, Met::new());
    let error = upgrade(&shop, json!({})).await.unwrap_err();
    assert_eq!(met(&error), always, "{error}");

    let (code, table) = run(&shop, RELEASE, "table");
    assert_eq!(code, 1);
    for cell in ["OBJECT", "Deployment/web", "kubectl-set", "Update", "always", "/[name=app]/image"] {
        assert!(table.contains(cell), "{cell} is not in:\n{table}");
    }
    let (code, yaml) = run(&shop, RELEASE, "yaml");
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!((code, yaml["conflicts"].as_array().unwrap().len()), (1, expected.len()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn reverted_edit_conflicts_on_change_until_helm_owns_field_again() {
    let shop = install(json!({})).await;
    for image in ["registry.example/mine:1", "registry.example/shop:one"] {
        kubectl(&shop, &["set", "image", "deployment/web", &format!("app={image}")]);
    }
    let expected = of([("kubectl-set", IMAGE)]);
    assert_eq!(forecast(&shop), (Met::new(), expected.clone()));
    upgrade(&shop, json!({"level": "debug"})).await.unwrap();
    let error = upgrade(&shop, json!({"level": "debug", "tag": "two"})).await.unwrap_err();
    assert_eq!(met(&error), expected, "{error}");

    upgrade(&shop, json!({"level": "debug"})).await.unwrap();
    let image: Path = "/spec/template/spec/containers/[name=app]/image".parse().unwrap();
    // The deployment controller may write the status between the read and the patch, which is refused then.
    let (live, helm, patch, patched) = eventually("the patch meets what was read", SOON, || async {
        let live = shop.get(&shop.deployment("web")).await;
        let helm = owners::find_helm_manager([&Owners::from_object(&live)], ApplyMethod::ServerSide).unwrap();
        let returned = ownership::managed_fields_for_helm(&live, &helm, std::slice::from_ref(&image)).unwrap();
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": returned},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        ]);
        let answer = shop.alice.patch_all(&shop.deployment("web"), &patch).await;
        answer.done().map(|patched| (live, helm, patch, patched))
    })
    .await;
    assert_eq!(Owners::from_object(&patched).of_path(&image), [&helm]);
    assert_eq!(patched["spec"], live["spec"]);
    assert_eq!(ownership::managed_fields_for_helm(&patched, &helm, &[image]), None);
    // The version that the patch names is gone by now.
    let again = shop.alice.patch_all(&shop.deployment("web"), &patch).await;
    assert_eq!(again.code, 409, "{again}");
    assert_eq!(forecast(&shop), (Met::new(), Met::new()));
    upgrade(&shop, json!({"level": "debug", "tag": "two"})).await.unwrap();
    // Helm drops what it declares no more, so it does own what was returned.
    assert_eq!(
        shop.get(&shop.deployment("web")).await["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example/shop:two"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn another_applier_conflicts_once_a_field_changes() {
    let shop = install(json!({})).await;
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "template": {"spec": {"containers": [{"name": "app", "ports": [
            {"containerPort": 8080, "protocol": "TCP", "name": "http"}]}]}},
    }});
    shop.alice
        .apply(&format!("{}?fieldManager=mesh", shop.deployment("web")), &manifest)
        .await
        .done()
        .unwrap();
    let (always, on_change) = forecast(&shop);
    assert_eq!(always, Met::new());
    let port = r#".spec.template.spec.containers[name="app"].ports[containerPort=8080,protocol="TCP"]"#;
    assert_eq!(on_change, of([("mesh", &format!("{port}.name"))]));
    upgrade(&shop, json!({"level": "debug", "tag": "two"})).await.unwrap();
    let error = upgrade(&shop, json!({"level": "debug", "tag": "two", "port": "web"})).await.unwrap_err();
    assert_eq!(met(&error), of([("mesh", &format!("{port}.name"))]), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_secret_that_is_declared_as_text_meets_no_conflict() {
    let shop = install(json!({})).await;
    let patch = r#"{"data": {"password": "bWluZQ=="}}"#;
    kubectl(&shop, &["patch", "secret/access", "--patch", patch]);
    assert_eq!(forecast(&shop), (Met::new(), Met::new()));
    upgrade(&shop, json!({"password": "two"})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_client_side_release_meets_no_conflict() {
    let shop = install(json!({"server_side_apply": false})).await;
    kubectl(&shop, &["set", "image", "deployment/web", "app=registry.example/mine:1"]);
    assert_eq!(forecast(&shop), (Met::new(), Met::new()));
    let (_, text) = run(&shop, RELEASE, "table");
    assert!(text.contains("client-side"), "{text}");
    upgrade(&shop, json!({"tag": "two"})).await.unwrap();
}
