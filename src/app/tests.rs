use super::*;

#[tokio::test]
async fn first_ended_part_reports_why_before_others_are_awaited() {
    let mut parts = SupervisedTasks::default();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    parts.spawn("the ledger", async { drop(stopped.await) });
    parts.try_spawn("following the cluster", async { Err(anyhow::anyhow!("no certificates")) });
    assert_eq!(
        format!("{:#}", parts.wait_for_failure().await),
        "following the cluster failed: no certificates"
    );
    parts.spawn("the webhook", async {});
    assert_eq!(
        parts.wait_for_failure().await.to_string(),
        "the webhook ended unexpectedly; the log says why"
    );
    parts.try_spawn("the loop", async { panic!("broken") });
    assert!(parts.wait_for_failure().await.to_string().contains("a part of the program failed"));
    stop.send(()).unwrap();
    parts.join_until_left(0).await;
}

#[test]
fn half_of_a_limit_is_for_declarations() {
    assert_eq!(half("268435456\n"), Some(134_217_728));
    assert_eq!(half("max\n"), None);
    assert_eq!(half("9223372036854771712\n"), None);
}
