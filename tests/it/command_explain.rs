//! `kubemoor explain` on a real control plane: objects, fields and denials.

use serde_json::json;

use crate::command_diff::install;
use crate::support::{Caller, ControlPlane, Identity, Ran, Scene, charts, moor, run, unguarded};

const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hunter2}\n",
);

fn explain(namespace: &str, arguments: &[&str]) -> Ran {
    moor(unguarded(), Identity::Alice, &[&["explain", "-n", namespace], arguments].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_shows_release_revision_fields_and_field_managers() {
    let namespace = install("explain", TEMPLATES).await;
    let alice = Caller::new(unguarded(), Identity::Alice).await;
    let web = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web?fieldManager=alice-by-hand");
    alice.merge(&web, &json!({"spec": {"replicas": 5}})).await.done().unwrap();

    // However kubectl would take the kind.
    for kind in ["deployment", "deployments", "Deployment", "deploy", "deployments.apps", "deploy.apps"] {
        let ran = explain(&namespace, &[&format!("{kind}/web"), "-o", "json"]);
        assert_eq!((ran.code, ran.error.as_str()), (0, ""), "{ran:?}");
        let report = ran.json();
        assert_eq!(report["state"], json!("drifted"), "{report}");
        assert_eq!(report["release"]["revision"], json!(1), "{report}");
        let fields = report["fields"].as_array().unwrap();
        assert_eq!(fields.len(), 1, "{report}");
        assert_eq!(
            (&fields[0]["path"], &fields[0]["declared"], &fields[0]["live"]),
            (&json!("/spec/replicas"), &json!("2"), &json!("5"))
        );
        let managers = fields[0]["managers"].as_array().unwrap();
        assert!(managers.iter().any(|manager| manager["manager"] == "alice-by-hand"), "{report}");
    }
    let said = explain(&namespace, &["deploy/web", "--path", "/spec/template/spec/containers/[name=app]"]);
    for part in [
        "revision 1, deployed",
        "[name=app]/image",
        "as declared",
        "helm upgrade shop",
        "kubectl moor allow deployment/web",
    ] {
        assert!(said.out.contains(part), "{part} is not in {}", said.out);
    }
    let undeclared = explain(&namespace, &["deploy/web", "--path", "/spec/paused"]);
    assert!(undeclared.out.contains("the release does not"), "{undeclared:?}");
    let by_number = explain(&namespace, &["deploy/web", "--path", "/spec/template/spec/containers/0/image"]);
    assert!(by_number.out.contains("/[name=app]/image: as declared"), "{by_number:?}");
    let unguarded = explain(&namespace, &["deploy/web"]);
    assert!(unguarded.out.contains("GUARD") && unguarded.out.contains("has no status"), "{unguarded:?}");
    let secret = explain(&namespace, &["secret/key", "--path", "/data"]);
    assert!(secret.out.contains("(redacted)") && !secret.out.contains("hunter2"), "{secret:?}");
    assert!(!secret.out.contains("aHVudGVyMg"), "{secret:?}");
    let free = explain(&namespace, &["configmap/kube-root-ca.crt"]);
    assert!(free.code == 0 && free.out.contains("not managed"), "{free:?}");
    let record = explain(&namespace, &["secret/sh.helm.release.v1.shop.v1"]);
    assert!(
        record.out.contains("a Helm release record") && !record.out.contains("may be changed"),
        "{record:?}"
    );
    let place = explain(&namespace, &[&format!("namespace/{namespace}")]);
    assert!(place.out.contains("The guard denies its deletion"), "{place:?}");
    alice.delete(&format!("/api/v1/namespaces/{namespace}/secrets/key")).await.done().unwrap();
    let missing = explain(&namespace, &["secret/key"]);
    assert!(missing.out.contains("missing") && missing.out.contains("--path delete"), "{missing:?}");
    assert!(!missing.out.contains("moor reconcile"), "nobody would: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pasted_denial_is_explained() {
    let shop = Scene::shared().install("explain-denial", TEMPLATES).await;
    let web = shop.deployment("web");
    shop.wait_until_guarded(&web).await;
    let denied = shop.alice.merge(&web, &json!({"spec": {"replicas": 7}})).await;
    let message = denied.body["message"].as_str().unwrap().to_owned();
    let kubeconfig = format!("--kubeconfig={}", ControlPlane::get().kubeconfig(Identity::Alice).display());
    let ran = run(&["explain", "-", "-o", "json", &kubeconfig], &format!("Error from server: {message}\n"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["object"]["name"], json!("web"));
    assert_eq!(report["release"]["namespace"], json!(shop.namespace));
    let sentences: Vec<_> =
        report["advice"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert!(sentences.iter().any(|it| it.contains("helm upgrade shop")), "{sentences:?}");
    let fields = report["fields"].as_array().unwrap();
    assert!(fields.len() == 1 && fields[0]["path"] == "/spec/replicas", "{report}");
    run(&["explain", "-", &kubeconfig], "nothing of the sort")
        .assert_failed(&["no Kubemoor message", "KIND/NAME"]);
    run(&["explain", "web", &kubeconfig], "").assert_failed(&["KIND/NAME"]);
    assert_eq!((&fields[0]["state"], &fields[0]["live"]), (&json!("AsDeclared"), &json!("2")), "{report}");
}
