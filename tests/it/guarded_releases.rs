//! GuardedReleases on a real API server: they come and go with releases, and hand on what people set.

use serde_json::{Value, json};

use crate::support::{Caller, Chart, ControlPlane, Guard, Helm, Identity, RELEASE, SOON, eventually, moor};

const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
";

pub(crate) fn path(namespace: &str, name: &str) -> String {
    format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases/{name}")
}

pub(crate) async fn installed(control_plane: &ControlPlane, prefix: &str) -> (String, Helm) {
    let namespace = control_plane.namespace(prefix).await;
    let chart = Chart::new(RELEASE).template("all.yaml", CONFIG_MAP);
    let helm = Helm::start(control_plane, Identity::Deployer);
    helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
    (namespace, helm)
}

pub(crate) async fn is_there(admin: &Caller, path: &str, there: bool) {
    eventually(&format!("{path}: {there}"), SOON, || async {
        let answer = admin.get(path).await;
        if (answer.code == 200) == there { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_come_and_go_with_their_releases_also_while_no_guard_runs() {
    let control_plane = ControlPlane::start();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let (early, helm) = installed(&control_plane, "early").await;
    let mut guard = Guard::start(&control_plane, &[]).await;
    eventually("the guard says that there is no definition", SOON, || async {
        guard.log().contains("there is no definition of GuardedRelease")
    })
    .await;
    let listed = moor(&control_plane, Identity::Admin, &["get", "releases", "-A", "-o", "json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert_eq!(listed.json()["releases"][0]["guarded"], false, "{listed:?}");

    control_plane.define_policies();
    is_there(&admin, &path(&early, RELEASE), true).await;
    let (kept, _kept_helm) = installed(&control_plane, "kept").await;
    is_there(&admin, &path(&kept, RELEASE), true).await;
    // Deleted by hand it comes back.
    let uid = admin.get(&path(&kept, RELEASE)).await.done().unwrap()["metadata"]["uid"].clone();
    admin.delete(&path(&kept, RELEASE)).await.done().unwrap();
    eventually("it is another one", SOON, || async {
        let object = admin.get(&path(&kept, RELEASE)).await.done()?;
        if object["metadata"]["uid"] == uid { Err("the old one".to_owned()) } else { Ok(()) }
    })
    .await;

    guard.kill();
    helm.uninstall(&early, RELEASE, json!({})).await.unwrap();
    let (late, late_helm) = installed(&control_plane, "late").await;
    guard.start_again().await;
    is_there(&admin, &path(&early, RELEASE), false).await;
    is_there(&admin, &path(&late, RELEASE), true).await;
    late_helm.uninstall(&late, RELEASE, json!({})).await.unwrap();
    is_there(&admin, &path(&late, RELEASE), false).await;
    is_there(&admin, &path(&kept, RELEASE), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_steers_a_release_and_is_told_where_there_is_none() {
    let control_plane = ControlPlane::start();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    control_plane.define_policies();
    let (namespace, _helm) = installed(&control_plane, "steered").await;
    let _guard = Guard::start(&control_plane, &[]).await;
    let object = path(&namespace, RELEASE);
    is_there(&admin, &object, true).await;
    let run = |command: &str| moor(&control_plane, Identity::Admin, &[command, RELEASE, "-n", &namespace]);
    let suspend = ["suspend", RELEASE, "-n", &namespace, "-o", "json"];
    let suspended = moor(&control_plane, Identity::Admin, &suspend).json();
    assert_eq!(suspended, json!({"namespace": namespace, "name": RELEASE, "said": "Suspend"}));
    assert_eq!(admin.get(&object).await.done().unwrap()["spec"]["suspend"], true);
    assert_eq!(run("resume").code, 0);
    assert_eq!(admin.get(&object).await.done().unwrap()["spec"]["suspend"], Value::Null);
    assert_eq!(run("reconcile").code, 0);
    assert!(admin.get(&object).await.done().unwrap()["spec"]["reconcileAt"].is_string());
    moor(&control_plane, Identity::Admin, &["suspend", "nothing", "-n", &namespace])
        .fails(&["there is no GuardedRelease nothing", "kubemoor get releases"]);
    moor(&control_plane, Identity::Alice, &["get", "releases", "-n", &namespace, "-o", "yaml"]);
    let table = moor(&control_plane, Identity::Admin, &["get", "releases", "-n", &namespace]);
    assert!(table.out.lines().nth(1).unwrap().contains(RELEASE), "{table:?}");
}
