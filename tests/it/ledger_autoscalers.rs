//! Rows of the ledger about autoscalers of declared workloads.

use serde_json::{Value, json};

use crate::support::{Guard, RELEASE, SOON, Scene, charts, eventually};

const ACTS: &str = "StartAutoscaling,ChangeAutoscaling,StopAutoscaling";

/// The acts and details of the rows about autoscalers, oldest first, once there are so many.
async fn acts(guard: &Guard, count: usize) -> Vec<(String, Value)> {
    eventually(&format!("{count} rows"), SOON, || async {
        let rows = guard.rows(&["-A", "--verdict", ACTS]);
        if rows.len() != count {
            return Err(format!("{rows:?}"));
        }
        Ok(rows.into_iter().map(|row| (row["verdict"].as_str().unwrap().to_owned(), row)).collect())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn autoscaler_of_declared_workload_leaves_rows_with_the_user_while_it_covers() {
    let scene = Scene::own().install("scaled-rows", charts::DEPLOYMENT).await;
    let mut guard = scene.start_guard(&["--register", "--edits", "Deny"]).await;
    scene.wait_until_guarded(&scene.deployment("web")).await;
    scene.wait_for_confirmed(1).await;
    scene.autoscale("other", "undeclared", (2, 9)).await;
    let web = scene.autoscale("web", "web", (2, 9)).await;
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
