//! Rows of the ledger about autoscalers of declared workloads.

use serde_json::{Value, json};

use crate::support::{ControlPlane, Guard, RELEASE, SOON, Scene, charts, eventually, run};

const ACTS: &str = "StartAutoscaling,ChangeAutoscaling,StopAutoscaling";

/// The acts and details of the rows about autoscalers, oldest first, once there are so many.
async fn acts(guard: &Guard, count: usize) -> Vec<(String, Value)> {
    let database = format!("--ledger=sqlite:{}", guard.ledger().display());
    eventually(&format!("{count} rows"), SOON, || async {
        let ran = run(&["audit", &database, "-A", "--verdict", ACTS, "-o", "json"], "");
        let rows = if ran.code == 0 { ran.items() } else { Vec::new() };
        if rows.len() != count {
            return Err(format!("{ran:?}"));
        }
        Ok(rows.into_iter().map(|row| (row["verdict"].as_str().unwrap().to_owned(), row)).collect())
    })
    .await
}

fn autoscaler(name: &str, target: &str, most: u32) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 2, "maxReplicas": most,
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn autoscaler_of_declared_workload_leaves_rows_while_it_covers() {
    let scene = Scene::own().install("scaled-rows", charts::DEPLOYMENT).await;
    let mut guard = scene.start_guard(&["--edits", "Deny"]).await;
    scene.wait_for_confirmed(1).await;
    let path = scene.at("apis/autoscaling/v1", "horizontalpodautoscalers");
    for (name, target) in [("other", "undeclared"), ("web", "web")] {
        let path = format!("{path}?fieldManager=oncall");
        scene.admin.post(&path, &autoscaler(name, target, 9)).await.done().unwrap();
    }
    let started = acts(&guard, 1).await;
    let (act, row) = &started[0];
    assert_eq!(
        (act.as_str(), &row["release"], &row["object"]["name"]),
        ("StartAutoscaling", &json!(RELEASE), &json!("web"))
    );
    assert_eq!(
        row["detail"],
        "HorizontalPodAutoscaler \"web\" sets /spec/replicas from 2 to 9; by field manager \"oncall\""
    );

    // Neither labels nor another guard are a change.
    let web = format!("{path}/web");
    scene.admin.merge(&web, &json!({"metadata": {"labels": {"a": "b"}}})).await.done().unwrap();
    assert!(guard.terminate().success());
    guard.start_again().await;
    scene.admin.merge(&web, &json!({"spec": {"maxReplicas": 12}})).await.done().unwrap();
    let changed = acts(&guard, 2).await;
    let (act, row) = changed.iter().find(|(act, _)| act != "StartAutoscaling").unwrap();
    let detail = row["detail"].as_str().unwrap();
    assert!(act == "ChangeAutoscaling" && detail.contains("from 2 to 12 (before: from 2 to 9)"), "{row}");
    scene.admin.delete(&web).await.done().unwrap();
    let stopped = acts(&guard, 3).await;
    let row = &stopped.iter().find(|(act, _)| act == "StopAutoscaling").unwrap().1;
    assert_eq!(row["detail"], "HorizontalPodAutoscaler \"web\" no longer sets /spec/replicas");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn replica_writes_autoscaler_rows_once_it_leads() {
    let scene = Scene::on(ControlPlane::start()).install("scaled-leaders", charts::DEPLOYMENT).await;
    let replica = ["--service=kubemoor-system/kubemoor"];
    let mut leader = scene.start_guard(&replica).await;
    eventually("the first guard leads", SOON, || async {
        if leader.metrics().await.contains("\nkubemoor_leading 1\n") { Ok(()) } else { Err("not yet") }
    })
    .await;
    let standby = scene.start_guard(&replica).await;
    let path = scene.at("apis/autoscaling/v1", "horizontalpodautoscalers");
    scene.admin.post(&path, &autoscaler("web", "web", 9)).await.done().unwrap();
    acts(&leader, 1).await;
    scene.admin.merge(&format!("{path}/web"), &json!({"spec": {"maxReplicas": 12}})).await.done().unwrap();
    acts(&leader, 2).await;
    acts(&standby, 0).await;
    assert!(leader.terminate().success());
    acts(&standby, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn autoscaler_deleted_while_no_guard_runs_leaves_one_row() {
    let scene = Scene::own().install("scaled-away", charts::DEPLOYMENT).await;
    let mut guard = scene.start_guard(&["--edits", "Deny"]).await;
    scene.wait_for_confirmed(1).await;
    let path = scene.at("apis/autoscaling/v1", "horizontalpodautoscalers");
    for (name, most) in [("gone", 9), ("stays", 8)] {
        scene.admin.post(&path, &autoscaler(name, "web", most)).await.done().unwrap();
    }
    acts(&guard, 2).await;
    assert!(guard.terminate().success());
    scene.admin.delete(&format!("{path}/gone")).await.done().unwrap();
    guard.start_again().await;
    let stopped = acts(&guard, 3).await;
    let row = &stopped.iter().find(|(act, _)| act == "StopAutoscaling").unwrap().1;
    assert_eq!(
        row["detail"],
        "HorizontalPodAutoscaler \"gone\" no longer sets /spec/replicas: it was deleted, or got another target, while no guard recorded it"
    );
    assert_eq!((&row["user"], &row["release"]), (&json!(""), &json!(RELEASE)));

    // The next guard finds the end in the ledger, and sees the other autoscaler go.
    assert!(guard.terminate().success());
    guard.start_again().await;
    scene.admin.delete(&format!("{path}/stays")).await.done().unwrap();
    let stopped = acts(&guard, 4).await;
    assert_eq!(stopped.iter().filter(|(act, _)| act == "StopAutoscaling").count(), 2, "{stopped:#?}");
}
