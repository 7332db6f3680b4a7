//! What those can do with records who may write Secrets and are none of the release's operators, and what the status of
//! a forged record tells them.

use serde_json::{Value, json};

use crate::support::{Answer, Caller, Identity, RELEASE, Scene, charts, forged, record_name};

/// A release that a policy leaves to the user who installed it.
async fn operated(prefix: &str) -> Scene {
    let shop = Scene::policed().install(prefix, charts::IMAGE_AND_COLOR).await;
    let policy = json!({
        "releases": {"names": [RELEASE], "namespaces": [shop.namespace]},
        "operators": [{"kind": "User", "name": Identity::Deployer.user()}],
    });
    shop.policy_as_is("operators", policy).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    shop
}

fn record(shop: &Scene, release: &str, revision: u32, status: &str, manifest: &str) -> Value {
    serde_json::to_value(forged(&shop.namespace, release, revision, status, manifest)).unwrap()
}

#[track_caller]
fn assert_not_theirs(answer: Answer) {
    let said = answer.refusal().unwrap();
    assert!(said.contains("a policy names the operators"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_helm_reads_as_a_record_is_written_only_by_operators() {
    let shop = operated("attack-records").await;
    let deployer = Caller::new(&shop.control_plane, Identity::Deployer).await;
    let secrets = shop.core("secrets");
    let pending = record(&shop, RELEASE, 9, "pending-upgrade", "");
    // Helm finds the records of a release by their labels, whatever their names are.
    let mut other_name = pending.clone();
    other_name["metadata"]["name"] = json!("backup");
    assert_not_theirs(shop.alice.post(&secrets, &other_name).await);
    let labels = json!({"metadata": {"labels": other_name["metadata"]["labels"].take()}});
    shop.alice.post(&secrets, &other_name).await.done().unwrap();
    assert_not_theirs(shop.alice.merge(&format!("{secrets}/backup"), &labels).await);
    // And the next one by its name, whatever its labels are. Without match conditions it is not sent.
    let mut unlabelled = pending;
    unlabelled["metadata"]["labels"] = Value::Null;
    unlabelled["metadata"]["finalizers"] = json!(["example.org/held"]);
    if shop.control_plane.minor() >= 28 {
        assert_not_theirs(shop.alice.post(&secrets, &unlabelled).await);
    }
    // A finalizer and a deletion excuse nothing.
    let next = format!("{secrets}/{}", record_name(RELEASE, 9));
    deployer.post(&secrets, &unlabelled).await.done().unwrap();
    deployer.delete(&next).await.done().unwrap();
    assert_not_theirs(shop.alice.merge(&next, &labels).await);
    // And where nobody asked the webhook, such a record counts for nothing.
    deployer.merge(&next, &labels).await.done().unwrap();
    let said = shop.data("settings", json!({"image": "b"})).await.refusal().unwrap();
    assert!(said.contains("(revision 1)"), "{said}");
    // Whoever put the finalizer there may take it away.
    shop.alice.merge(&next, &json!({"metadata": {"finalizers": null}})).await.done().unwrap();
    shop.upgrade(json!({"values": {"image": "b"}})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_another_release_excuses_no_change_beside_operators() {
    let shop = operated("attack-excuse").await;
    let manifest = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  namespace: {}\n  \
         annotations: {{kubemoor.dev/guard: disabled}}\ndata: {{image: mine}}\n",
        shop.namespace
    );
    let excuse = record(&shop, "excuse", 1, "deployed", &manifest);
    shop.alice.post(&shop.core("secrets"), &excuse).await.done().unwrap();
    shop.status_of("excuse", "the forged revision", |status| status["revision"] == 1).await;
    let settings = shop.config_map("settings");
    for image in ["mine", "b"] {
        let said = shop.data("settings", json!({"image": image})).await.refusal().unwrap();
        assert!(said.contains(r#"Helm release "shop""#), "{said}");
    }
    shop.alice.delete(&settings).await.refusal().unwrap();
    shop.upgrade(json!({"values": {"image": "b"}})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_nothing_of_objects_in_other_namespaces() {
    let shop = Scene::policed().install("attack-curious", charts::IMAGE_AND_COLOR).await;
    let there = shop.install_beside("attack-watched").await.namespace;
    let object = |kind: &str, name: &str| {
        format!(
            "---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {there}}}\ndata: {{}}\n"
        )
    };
    let manifest = [
        object("ConfigMap", "settings"),
        object("ConfigMap", "nowhere"),
        object("Secret", &record_name(RELEASE, 1)),
        object("Secret", "nowhere"),
        format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {there}}}\n"),
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: nowhere}\n".to_owned(),
    ]
    .concat();
    let curious = record(&shop, "curious", 1, "deployed", &manifest);
    shop.alice.post(&shop.core("secrets"), &curious).await.done().unwrap();
    let status = shop.status_of("curious", "what it declares", |status| status["declared"] == 6).await;
    assert_eq!(status["drifted"], 0, "{status}");
    assert_eq!(status["counts"], json!({"matching": 0, "unjudged": 6}), "{status}");
    let conditions = status["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|it| it["type"] != "ForeignOwned"), "{status}");
    let said = conditions[0]["message"].as_str().unwrap();
    assert!(said.ends_with("6 are outside the namespace, not checked"), "{said}");
    let asked = shop.control_plane.audit_events(&[Identity::Guard.user(), &there, "/nowhere"]);
    assert!(asked.is_empty(), "the guard asks for what a forged record names: {asked:?}");
}
