use std::time::Duration;

use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn broken_watch_is_noticed_and_an_ended_one_is_not() {
    let mut tasks = Tasks::default();
    tasks.spawn(async {});
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tasks.spawn(async { drop(stopped.await) });
    tasks.spawn(async { panic!("broken") });
    let error = timeout(Duration::from_secs(60), tasks.broken()).await.expect("the watch broke down");
    assert!(error.is_panic());
    stop.send(()).unwrap();
    assert!(tasks.finish().await.is_ok());
    tasks.spawn(async { panic!("broken") });
    assert!(tasks.finish().await.is_err());
}
