use std::time::Duration;

use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn broken_watch_is_noticed_and_an_ended_one_is_not() {
    let mut tasks = JoinSet::new();
    tasks.spawn(async {});
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tasks.spawn(async { drop(stopped.await) });
    tasks.spawn(async { panic!("broken") });
    let error =
        timeout(Duration::from_secs(60), wait_for_panic(&mut tasks)).await.expect("the watch broke down");
    assert!(error.is_panic());
    stop.send(()).unwrap();
}
