//! Rows of the ledger about autoscalers of declared workloads.

use serde_json::{Value, json};

use crate::support::{Guard, RELEASE, SOON, Scene, charts, eventually, run};

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
async fn autoscaler_of_declared_workload_leaves_rows_with_the_user_while_it_covers() {
    let scene = Scene::own().install("scaled-rows", charts::DEPLOYMENT).await;
    let mut guard = scene.start_guard(&["--register", "--edits", "Deny"]).await;
    scene.wait_until_guarded(&scene.deployment("web")).await;
    scene.wait_for_confirmed(1).await;
    let path = scene.at("apis/autoscaling/v1", "horizontalpodautoscalers");
    for (name, target) in [("other", "undeclared"), ("web", "web")] {
        let path = format!("{path}?fieldManager=oncall");
        scene.alice.post(&path, &autoscaler(name, target, 9)).await.done().unwrap();
    }
    let started = acts(&guard, 1).await;
    let (act, row) = &started[0];
    assert_eq!(
        (act.as_str(), &row["release"], &row["object"]["name"], &row["user"]),
        ("StartAutoscaling", &json!(RELEASE), &json!("web"), &json!("alice"))
    );
    assert_eq!(
        row["detail"],
        "HorizontalPodAutoscaler \"web\" sets /spec/replicas from 2 to 9; by field manager \"oncall\""
    );

    // Neither labels nor another guard are a change.
    let web = format!("{path}/web");
    scene.alice.merge(&web, &json!({"metadata": {"labels": {"a": "b"}}})).await.done().unwrap();
    assert!(guard.terminate().success());
    guard.start_again().await;
    scene.wait_until_guarded(&scene.deployment("web")).await;
    scene.alice.merge(&web, &json!({"spec": {"maxReplicas": 12}})).await.done().unwrap();
    let changed = acts(&guard, 2).await;
    let (act, row) = changed.iter().find(|(act, _)| act != "StartAutoscaling").unwrap();
    let detail = row["detail"].as_str().unwrap();
    assert!(act == "ChangeAutoscaling" && detail.contains("from 2 to 12 (before: from 2 to 9)"), "{row}");
    assert_eq!(row["user"], "alice");
    scene.admin.delete(&web).await.done().unwrap();
    let stopped = acts(&guard, 3).await;
    let row = &stopped.iter().find(|(act, _)| act == "StopAutoscaling").unwrap().1;
    assert_eq!(row["detail"], "HorizontalPodAutoscaler \"web\" no longer sets /spec/replicas");
    assert_eq!(row["user"], "admin");
}
