//! The chart with the value `namespaces`: the guard works in these namespaces, and its account may read and write nothing
//! that lies in another one.

use serde_json::{Value, json};

use crate::chart_rights::{RIGHTS, may_in, names_everything};
use crate::support::{
    Caller, Chart, ControlPlane, HOME, Identity, Installed, Pod, RELEASE, SOON, TestKind, eventually,
    wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";

/// An object that lies in no namespace.
const FARM: &str =
    "---\napiVersion: example.org/v1\nkind: Farm\nmetadata: {name: shop}\nspec: {size: small}\n";

/// The kind of [`FARM`].
const FARMS: TestKind =
    TestKind { group: "example.org", version: "v1", kind: "Farm", plural: "farms", scope: "Cluster" };

/// Requests of the guard's account that the API server forbade, but for the question who it is, which older ones do not
/// serve.
fn forbidden(control_plane: &ControlPlane) -> Vec<String> {
    let own = format!("system:serviceaccount:{HOME}:kubemoor");
    let events = control_plane.audit_events(&[&own, "403"]);
    let refused = events
        .iter()
        .filter(|event| event["user"]["username"] == own.as_str() && event["responseStatus"]["code"] == 403)
        .filter(|event| !event["requestURI"].as_str().unwrap().contains("selfsubjectreviews"));
    refused.map(|event| format!("{} {}", event["verb"], event["requestURI"])).collect()
}

/// The guard's chart, a namespace that it guards, and another one, with a release in each.
struct Narrowed<'c> {
    chart: Installed<'c>,
    alice: Caller,
    shop: String,
    other: String,
}

impl<'c> Narrowed<'c> {
    async fn prepare(control_plane: &'c ControlPlane) -> Self {
        let chart = Installed::new(control_plane).await;
        let [shop, other] = [control_plane.namespace("shop").await, control_plane.namespace("other").await];
        FARMS.define(&chart.admin).await;
        for (namespace, objects) in [(&shop, format!("{SETTINGS}{FARM}")), (&other, SETTINGS.to_owned())] {
            let release = Chart::new(RELEASE).template("all.yaml", &objects);
            chart.helm.install(namespace, RELEASE, &release, json!({})).await.unwrap();
        }
        Self { chart, alice: Caller::new(control_plane, Identity::Alice).await, shop, other }
    }

    /// These values for the guarded namespace alone.
    fn of_shop(&self, mut values: Value) -> Value {
        values["namespaces"] = json!([self.shop]);
        values
    }

    /// Waits until the guard has these of [`RIGHTS`] in a namespace.
    async fn wait_for_rights(&self, namespace: &str, expected: &[&str]) {
        eventually(&format!("the rights in {namespace} are {expected:?}"), SOON, || async {
            let mut found = Vec::new();
            for right in RIGHTS {
                if may_in(&self.chart, namespace, right).await {
                    found.push(right);
                }
            }
            if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    async fn wait_until_in_sync(&self) {
        eventually("the release is in sync", SOON, || async {
            let status = self.chart.admin.get(&guarded_release(&self.shop)).await.done()?["status"].clone();
            if status["conditions"][0]["reason"] == "InSync" { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    async fn change(&self, namespace: &str, mode: &str) {
        self.alice.merge(&settings(namespace), &json!({"data": {"mode": mode}})).await.done().unwrap();
    }

    async fn mode(&self, namespace: &str) -> Value {
        self.alice.get(&settings(namespace)).await.done().unwrap()["data"]["mode"].take()
    }

    async fn assert_rights_of_enforcement(&self) {
        self.wait_for_rights(&self.shop, &RIGHTS[..7]).await;
        for elsewhere in [HOME, &self.other, "kube-system"] {
            self.wait_for_rights(elsewhere, &[]).await;
        }
        for (namespace, right, expected) in [
            (&*self.shop, "create events.events.k8s.io", true),
            // Where events about objects of no namespace lie.
            ("kube-system", "create events.events.k8s.io", true),
            (HOME, "create events.events.k8s.io", false),
            (&*self.other, "create events.events.k8s.io", false),
            ("", "list farms.example.org", true),
            ("", "patch farms.example.org", true),
            ("", "create farms.example.org", false),
            ("", "delete farms.example.org", false),
            ("", "list widgets.example.org", false),
        ] {
            assert_eq!(may_in(&self.chart, namespace, right).await, expected, "{right} in {namespace}");
        }
    }

    async fn assert_other_namespace_is_not_judged(&self) {
        wait_until_guarded(&self.alice, RELEASE, &settings(&self.shop)).await;
        self.change(&self.other, "slow").await;
        self.wait_until_in_sync().await;
        assert_eq!(self.chart.admin.get(&guarded_release(&self.other)).await.code, 404);
        let (tested, ran) = self.chart.test().await;
        assert!(tested.is_ok() && ran.code == 0, "{tested:?} {ran:?}");
        self.wait_for_rights(HOME, &[]).await;
        let farm = "/apis/example.org/v1/farms/shop";
        self.alice.merge(farm, &json!({"spec": {"size": "large"}})).await.refused(RELEASE).unwrap();
    }

    async fn assert_other_namespace_is_not_repaired(&self, pod: &Pod) {
        self.wait_until_in_sync().await;
        for namespace in [&self.shop, &self.other] {
            self.change(namespace, "slower").await;
        }
        eventually("the drift is repaired", SOON, || async {
            let mode = self.mode(&self.shop).await;
            if mode == "fast" { Ok(()) } else { Err(format!("{mode}: {}", pod.log())) }
        })
        .await;
        assert_eq!(self.mode(&self.other).await, "slower");
    }
}

fn settings(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/settings")
}

fn guarded_release(namespace: &str) -> String {
    format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases/{RELEASE}")
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_of_some_namespaces_has_no_rights_in_the_others() {
    let control_plane = ControlPlane::start();
    let narrowed = Narrowed::prepare(&control_plane).await;
    let chart = &narrowed.chart;
    let kinds = json!([
        {"apiGroup": "example.org", "resources": ["widgets"]},
        {"apiGroup": "example.org", "resources": ["farms"], "scope": "Cluster"},
    ]);
    let enforcing = json!({"edits": "Deny", "rights": {"enforce": true, "customResources": kinds}});
    chart.install(narrowed.of_shop(enforcing)).await.unwrap();
    narrowed.assert_rights_of_enforcement().await;
    let mut pods = chart.start(1).await;
    narrowed.assert_other_namespace_is_not_judged().await;
    assert!(pods[0].terminate().success(), "{}", pods[0].log());

    let repairing = json!({"edits": "Record", "drift": "Repair", "rights": {"customResources": kinds}});
    chart.upgrade(narrowed.of_shop(repairing)).await.unwrap();
    let pods = chart.start(1).await;
    narrowed.assert_other_namespace_is_not_repaired(&pods[0]).await;
    assert_eq!(forbidden(&control_plane), [""; 0], "{}", pods[0].log());

    // All namespaces again: no binding of before is left.
    chart.upgrade(json!({"edits": "Record"})).await.unwrap();
    narrowed.wait_for_rights(&narrowed.other, &RIGHTS[..1]).await;
    chart.upgrade(narrowed.of_shop(json!({"edits": "Record"}))).await.unwrap();
    narrowed.wait_for_rights(&narrowed.other, &[]).await;
    names_everything(chart).await;
}
