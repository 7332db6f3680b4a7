//! `kubemoor policy import`: what Flux ignores of a HelmRelease is ignored by the guard.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Caller, Identity, TestKind, moor, run, unguarded};

const HELM_RELEASES: TestKind = TestKind {
    group: "helm.toolkit.fluxcd.io",
    version: "v2",
    kind: "HelmRelease",
    plural: "helmreleases",
    scope: "Namespaced",
};

/// Has the control plane serve HelmReleases, and gives one with an ignore rule in `namespace`.
pub(crate) async fn ignoring_helm_release(admin: &Caller, namespace: &str) -> Value {
    HELM_RELEASES.define(admin).await;
    let helm_release = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "targetNamespace": "shop",
            "driftDetection": {"mode": "enabled", "ignore": [
                {"paths": ["/spec/replicas"], "target": {"kind": "Deployment"}},
            ]},
        },
    });
    let path = format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/{namespace}/helmreleases");
    admin.post(&path, &helm_release).await.done().unwrap();
    helm_release
}

#[tokio::test(flavor = "multi_thread")]
async fn flux_import_of_cluster_and_files_yields_same_policy() {
    let admin = Caller::new(unguarded(), Identity::Admin).await;
    let namespace = unguarded().namespace("import-flux").await;
    let mut helm_release = ignoring_helm_release(&admin, &namespace).await;
    let live = moor(unguarded(), Identity::Admin, &["policy", "import", "flux", "-n", &namespace]);
    assert_eq!((live.code, live.error.as_str()), (0, ""), "{live:?}");
    for part in ["name: flux-shop-shop-web", "- shop-web", "- /spec/replicas", "kind: Deployment"] {
        assert!(live.out.contains(part), "{part}: {live:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.json");
    let ignored = &mut helm_release["spec"]["driftDetection"]["ignore"];
    ignored.as_array_mut().unwrap().push(json!({"paths": ["/metadata/labels/*"]}));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [helm_release]}).to_string();
    fs::write(&file, &list).unwrap();
    let lost = format!(
        "kubemoor: HelmRelease {namespace}/web is not imported: spec.driftDetection.ignore[1].paths[0]: "
    );
    for (file, input) in [(file.to_str().unwrap(), ""), ("-", list.as_str())] {
        let read = run(&["policy", "import", "flux", file], input);
        assert_eq!((read.code, &read.out), (0, &live.out), "{read:?}");
        assert!(read.error.starts_with(&lost), "{read:?}");
    }
    let none = run(&["policy", "import", "flux", "-"], "apiVersion: v1\nkind: Other\nmetadata: {name: a}\n");
    assert!(none.code == 0 && none.error.contains("no HelmReleases with ignore rules"), "{none:?}");
    run(&["policy", "import", "flux", "-"], "a: [").assert_failed(&["cannot read -"]);
}
