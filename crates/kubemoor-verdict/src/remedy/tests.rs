use serde_json::json;

use crate::remedy::{Upgrade, *};
use crate::sample_releases::{SampleRecord, assembled};
use kubemoor_declare::declare::declare;

/// The sentence about a permanent change of an object with this metadata in the manifest.
fn permanent(metadata: Value, writer: RecordWriter, live: &Value) -> String {
    let metadata = metadata.as_object().unwrap().clone();
    let manifest = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
    let head = RecordHead::clone(&assembled(SampleRecord::default(), None).latest);
    let record = RecordHead { writer, last_written: "2026-04-01T12:00:00Z".parse().unwrap(), ..head };
    let live = live.to_string();
    let writers = || LiveWriters::read(&Excerpt::new(&live).unwrap());
    let owner = Upgrader::find(&declare(&manifest, None), Some(&record), writers);
    let release = ReleaseId { namespace: "shop".into(), name: "shop".into() };
    Upgrade { release, owner, chart: None }.text(&[])
}

#[test]
fn owner_is_told_from_the_manifest() {
    let by = |metadata| permanent(metadata, RecordWriter::Other, &json!({}));
    let helm = "upgrade: helm upgrade shop CHART";
    assert!(by(json!({"name": "web"})).contains(helm));
    assert!(by(json!({"labels": {"helm.toolkit.fluxcd.io/name": "web"}})).contains(helm));
    let flux = json!({"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "flux"});
    let told = permanent(json!({"labels": flux}), RecordWriter::Terraform, &json!({}));
    assert!(told.contains(r#"spec.values of HelmRelease "web" in namespace "flux""#), "{told}");
    assert!(told.contains("spec.driftDetection.ignore") && !told.contains("helm upgrade"), "{told}");
    let tracked = json!({"argocd.argoproj.io/tracking-id": "site:apps/Deployment:shop/web"});
    let told = by(json!({"annotations": tracked}));
    assert!(told.contains(r#"Argo CD Application "site""#) && !told.contains("helm upgrade"), "{told}");
    let told = by(json!({"labels": {"argocd.argoproj.io/instance": "site"}}));
    assert!(told.contains(r#"Argo CD Application "site""#), "{told}");
    let told = permanent(json!({}), RecordWriter::Terraform, &json!({}));
    assert!(told.contains(r#"helm_release of release "shop" and run: terraform apply"#), "{told}");
}

#[test]
fn owner_is_told_from_the_last_field_manager() {
    let live = |manager: &str, time: &str, more: Value| {
        let entry =
            json!({"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:spec": {}}});
        let user = json!({"manager": "kubectl-edit", "operation": "Update", "time": "2026-06-01T12:00:00Z"});
        let mut metadata = json!({"name": "web", "managedFields": [entry, user]});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": metadata})
    };
    let (before, after) = ("2026-03-01T12:00:00Z", "2026-05-01T12:00:00Z");
    let none = || json!({});
    let told = |writer, live: &Value| permanent(json!({}), writer, live);
    // Flux and Argo CD write records and objects under their own names.
    let flux =
        r#"change spec.values of the HelmRelease of release "shop" (kubectl get helmreleases -A): Flux"#;
    assert!(told(RecordWriter::from_manager("helm-controller"), &none()).contains(flux));
    assert!(told(RecordWriter::Other, &live("helm-controller", after, none())).contains(flux));
    let argo = "change the Helm values of the Argo CD Application of this object (kubectl get applications";
    for manager in ["argocd-controller", "argocd-application-controller"] {
        assert!(told(RecordWriter::from_manager(manager), &none()).contains(argo));
        assert!(told(RecordWriter::Other, &live(manager, after, none())).contains(argo));
    }
    // What wrote before the last record has handed the release over.
    assert!(told(RecordWriter::Other, &live("argocd-controller", before, none())).contains("helm upgrade"));
    assert!(
        told(RecordWriter::Terraform, &live("argocd-controller", before, none())).contains("terraform apply")
    );
    // The object says which Application it is, unless that is no name.
    for (marks, application) in [
        (json!({"annotations": {"argocd.argoproj.io/tracking-id": "site:apps/Deployment:shop/web"}}), "site"),
        (
            json!({"labels": {"argocd.argoproj.io/instance": "site", "app.kubernetes.io/instance": "x"}}),
            "site",
        ),
        (json!({"labels": {"app.kubernetes.io/instance": "site"}, "annotations": {"a": "b"}}), "site"),
        (json!({"annotations": {"argocd.argoproj.io/tracking-id": "a b:c"}}), ""),
    ] {
        let told = told(RecordWriter::Other, &live("argocd-controller", after, marks.clone()));
        let named = format!("Argo CD Application {application:?}.");
        assert_eq!(told.contains(&named), !application.is_empty(), "{marks}: {told}");
    }
    // A status is not deployed.
    let status = json!({"metadata": {"managedFields": [
        {"manager": "argocd-controller", "subresource": "status", "time": after},
    ]}});
    assert!(told(RecordWriter::Other, &status).contains("helm upgrade"));
    // Without managers of the object before the edit, those after it count.
    let [old, new] = [none(), live("argocd-controller", after, none())].map(|it| it.to_string());
    let newest = |texts: [&str; 2]| {
        let [old, new] = texts.map(Excerpt::new);
        LiveWriters::of_review([old.as_ref(), new.as_ref()]).newest
    };
    assert!(newest([&old, &new]).is_some());
    assert!(newest(["", "not JSON"]).is_none());
    assert!(newest([r#"{"metadata": {"managedFields": null}}"#, &new]).is_some());
    let broken = r#"{"metadata": {"managedFields": [7, {"manager": ["argocd-controller"], "time": "x"}]}}"#;
    assert!(newest([broken, &new]).is_none());
}
