//! What the loop leaves alone for a time, and takes up again the moment that this ends: what allowances let change,
//! and what an autoscaler scales.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::allowances::end_allowance;
use crate::support::{Caller, DRIFT_POLICIES, Identity, POLICED, RELEASE, SOON, Scene, charts, eventually};

const WORKLOADS: &str = concat!(
    charts::deployment!("{name: app, image: 'registry.example/shop:1'}"),
    "---",
    charts::stateful_set!("jenkins", "{name: app, image: 'registry.example/jenkins:1'}"),
    "---",
    charts::config_map!("settings", "{level: info}"),
);

const REPLICAS: &str = "/spec/replicas";

fn scale(shop: &Scene, user: &str, group: &str, object: &str, replicas: u32) -> Result<(), String> {
    shop.kubectl_as(user, group, &["scale", object, &format!("--replicas={replicas}")])
}

/// A workload of the release.
struct ScaledWorkload<'a> {
    path: &'a str,
    /// As kubectl names it.
    object: &'a str,
    /// The replicas that the release declares.
    declared: u32,
}

/// Scales as somebody who may now, shows that this stays until what let it pass ends, and no longer.
async fn scaled_until(
    shop: &Scene,
    workload: ScaledWorkload<'_>,
    group: &str,
    end: impl Future<Output = ()>,
) {
    let ScaledWorkload { path, object, declared } = workload;
    eventually("it may be scaled", SOON, || async { scale(shop, "carol", group, object, 0) }).await;
    shop.wait_for_pass().await;
    let live = shop.get(path).await;
    assert_eq!(live.pointer(REPLICAS), Some(&json!(0)), "{}", shop.log());
    end.await;
    shop.wait_for_value(path, REPLICAS, &json!(declared)).await;
    let refused = scale(shop, "carol", group, object, 0).unwrap_err();
    assert!(refused.contains("denied the request"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn change_under_exception_is_repaired_when_exception_ends() {
    let shop = Scene::policed().install("window", WORKLOADS).await;
    let web = shop.deployment("web");
    shop.wait_until_guarded(&web).await;
    let allowed = shop.moor(&["allow", "deployment/web", "--path", REPLICAS, "--for", "1h"]);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let workload = ScaledWorkload { path: &web, object: "deployment/web", declared: 2 };
    scaled_until(&shop, workload, "developers", end_allowance(&shop)).await;
    let closed =
        eventually("the ledger has its end", SOON, || async { shop.rows(&["--verdict", "Closed"]).pop() })
            .await;
    assert_eq!(closed["kind"], "allowance", "{closed}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn jenkins_comes_back_when_its_weekend_is_over() {
    let shop = Scene::policed().install("weekend", WORKLOADS).await;
    let jenkins = shop.at("apis/apps/v1", "statefulsets/jenkins");
    shop.wait_until_guarded(&jenkins).await;
    let refused = scale(&shop, "carol", "jenkins-admins", "statefulset/jenkins", 0).unwrap_err();
    assert!(refused.contains("denied the request"), "{refused}");
    // The weekend began this minute, and is cut short.
    let now = Timestamp::now().to_zoned(TimeZone::get("America/New_York").unwrap());
    let minute = now.timestamp().as_second() / 60 * 60;
    let mut spec = charts::shipped("jenkins-weekend.yaml");
    spec["allow"][0]["schedule"] = json!({
        "cron": format!("{} {} * * *", now.minute(), now.hour()),
        "duration": "1h",
        "timeZone": "America/New_York",
    });
    shop.policy("weekend", spec).await;
    let refused = scale(&shop, "dave", "developers", "statefulset/jenkins", 0).unwrap_err();
    assert!(refused.contains("denied the request"), "{refused}");
    let workload = ScaledWorkload { path: &jenkins, object: "statefulset/jenkins", declared: 1 };
    let end = async {
        let policy = format!("{DRIFT_POLICIES}/{}-weekend", shop.namespace);
        let duration = format!("{}s", Timestamp::now().as_second() - minute + 1);
        let at = "/spec/allow/0/schedule/duration";
        shop.admin.patch(&policy, "replace", at, &json!(duration)).await.done().unwrap();
    };
    scaled_until(&shop, workload, "jenkins-admins", end).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_deleted_under_exception_is_recreated_when_exception_ends() {
    let shop = Scene::policed().install("delete", WORKLOADS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    shop.alice.delete(&settings).await.refused(RELEASE).unwrap();
    let allowed = shop.moor(&["allow", "configmap/settings", "--path", "delete", "--for", "1h"]);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    eventually("it may be deleted", SOON, || async { shop.alice.delete(&settings).await.done() }).await;
    shop.wait_for_pass().await;
    assert_eq!(shop.alice.get(&settings).await.code, 404, "{}", shop.log());
    end_allowance(&shop).await;
    shop.wait_for_value(&settings, "/data/level", &json!("info")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn replicas_of_deleted_autoscaler_stay_until_reconcile_order() {
    let shop = Scene::policed().install("scaled", WORKLOADS).await;
    let web = shop.deployment("web");
    let scale = format!("{web}/scale");
    shop.wait_until_guarded(&web).await;
    let autoscaler = Caller::new(POLICED.control_plane(), Identity::Autoscaler).await;
    let path = shop.autoscale("web", "web", (1, 5)).await;
    eventually("the autoscaler may scale", SOON, || async {
        autoscaler.put(&scale, &shop.scale("web", 4)).await.done()
    })
    .await;
    shop.wait_for_pass().await;
    shop.assert_value(&web, REPLICAS, &json!(4)).await;
    shop.alice.put(&scale, &shop.scale("web", 3)).await.refused(RELEASE).unwrap();

    shop.alice.delete(&path).await.done().unwrap();
    eventually("the autoscaler may scale no more", SOON, || async {
        autoscaler.put(&format!("{scale}?dryRun=All"), &shop.scale("web", 5)).await.refused(RELEASE)
    })
    .await;
    shop.wait_for_pass().await;
    shop.assert_value(&web, REPLICAS, &json!(4)).await;

    let asked = shop.moor(&["reconcile", RELEASE]);
    assert_eq!(asked.code, 0, "{asked:?}");
    shop.wait_for_value(&web, REPLICAS, &json!(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn guard_leaves_replicas_outside_changed_range_to_autoscaler() {
    let shop = Scene::policed().install("narrowed", WORKLOADS).await;
    let web = shop.deployment("web");
    let scale = format!("{web}/scale");
    shop.wait_until_guarded(&web).await;
    // By default an autoscaler whose range lacks the declared replicas has no effect on verdicts.
    shop.policy("any", json!({"autoscalers": "Any"})).await;
    let autoscaler = Caller::new(POLICED.control_plane(), Identity::Autoscaler).await;
    let path = shop.autoscale("web", "web", (1, 5)).await;
    eventually("the autoscaler may scale", SOON, || async {
        autoscaler.put(&scale, &shop.scale("web", 5)).await.done()
    })
    .await;
    let range =
        |minimum: u32, maximum: u32| json!({"spec": {"minReplicas": minimum, "maxReplicas": maximum}});

    // It is to have at most three.
    shop.alice.merge(&path, &range(1, 3)).await.done().unwrap();
    eventually("the autoscaler may scale so far no more", SOON, || async {
        autoscaler.put(&format!("{scale}?dryRun=All"), &shop.scale("web", 4)).await.refused(RELEASE)
    })
    .await;
    shop.wait_for_pass().await;
    shop.assert_value(&web, REPLICAS, &json!(5)).await;
    autoscaler.put(&scale, &shop.scale("web", 3)).await.done().unwrap();

    // It is to have at least four.
    shop.alice.merge(&path, &range(4, 9)).await.done().unwrap();
    eventually("the autoscaler may scale further", SOON, || async {
        autoscaler.put(&format!("{scale}?dryRun=All"), &shop.scale("web", 9)).await.done()
    })
    .await;
    shop.wait_for_pass().await;
    shop.assert_value(&web, REPLICAS, &json!(3)).await;
    // People are judged, whatever the range.
    shop.alice.put(&scale, &shop.scale("web", 5)).await.refused(RELEASE).unwrap();
    autoscaler.put(&scale, &shop.scale("web", 4)).await.done().unwrap();
    shop.wait_for_pass().await;
    shop.assert_value(&web, REPLICAS, &json!(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn policy_stops_undeclared_autoscaler_from_widening_declared_range() {
    const DECLARED: &str = "
---
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: declared}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 3
";
    let shop = Scene::policed().install("beside", &format!("{WORKLOADS}{DECLARED}")).await;
    let web = shop.deployment("web");
    let scale = format!("{web}/scale");
    shop.wait_until_guarded(&web).await;
    let autoscaler = Caller::new(POLICED.control_plane(), Identity::Autoscaler).await;
    // From one to five.
    shop.autoscale("web", "web", (1, 5)).await;
    eventually("the autoscaler may scale", SOON, || async {
        autoscaler.put(&scale, &shop.scale("web", 5)).await.done()
    })
    .await;
    shop.policy("declared", json!({"autoscalers": "Declared"})).await;
    // What is there is for the declared one to bring in.
    shop.wait_for_pass().await;
    shop.assert_value(&web, REPLICAS, &json!(5)).await;
    autoscaler.put(&scale, &shop.scale("web", 4)).await.refused(RELEASE).unwrap();
    autoscaler.put(&scale, &shop.scale("web", 1)).await.refused(RELEASE).unwrap();
    autoscaler.put(&scale, &shop.scale("web", 3)).await.done().unwrap();
    autoscaler.put(&scale, &shop.scale("web", 4)).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn undeclared_autoscaler_cannot_scale_if_policy_requires_declared_ones() {
    let shop = Scene::policed().install("unscaled", WORKLOADS).await;
    let web = shop.deployment("web");
    let scale = format!("{web}/scale");
    shop.wait_until_guarded(&web).await;
    let autoscaler = Caller::new(POLICED.control_plane(), Identity::Autoscaler).await;
    shop.autoscale("web", "web", (1, 5)).await;
    eventually("the autoscaler may scale", SOON, || async {
        autoscaler.put(&scale, &shop.scale("web", 4)).await.done()
    })
    .await;
    shop.wait_for_pass().await;
    shop.assert_value(&web, REPLICAS, &json!(4)).await;
    shop.policy("declared", json!({"autoscalers": "Declared"})).await;
    shop.wait_for_value(&web, REPLICAS, &json!(2)).await;
    autoscaler.put(&scale, &shop.scale("web", 4)).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_chart_annotation_is_reported_by_denial_status_and_log() {
    const BROKEN: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, annotations: {kubemoor.dev/allow: data/level}}
data: {level: info}
";
    let shop = Scene::policed().install("broken", BROKEN).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    let answer = shop.alice.merge(&settings, &json!({"data": {"level": "debug"}})).await;
    let said = answer.to_string();
    answer.refused(RELEASE).unwrap();
    assert!(
        said.contains("INVALID ANNOTATION in the chart, which has no effect: kubemoor.dev/allow"),
        "{said}"
    );
    let explained = shop.moor(&["explain", "configmap/settings"]);
    assert!(explained.out.contains("INVALID ANNOTATION"), "{explained:?}");

    let flawed = |status: &Value| {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "AnnotationsAccepted")
    };
    let status = shop.status("that annotations are flawed", |status| flawed(status).is_some()).await;
    let condition = flawed(&status).unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InvalidPath")));
    assert!(condition["message"].as_str().unwrap().contains("ConfigMap/settings"), "{condition}");
    let complaints = || shop.log().matches("invalid annotation in a chart has no effect").count();
    shop.wait_for_pass().await;
    shop.wait_for_log("invalid annotation in a chart has no effect").await;
    assert_eq!(complaints(), 1, "{}", shop.log());

    // Mended, nothing is left of it.
    shop.upgrade_to(&BROKEN.replace("data/level", "/data/level"), json!({})).await.unwrap();
    shop.status("no more of it", |status| status["revision"] == 2 && flawed(status).is_none()).await;
    shop.alice.merge(&settings, &json!({"data": {"level": "debug"}})).await.done().unwrap();
    assert_eq!(complaints(), 1, "{}", shop.log());
}
