//! Against an API server that never answers.

use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use tokio::time::timeout;

use super::super::parts::Parts;
use super::*;

#[tokio::test(start_paused = true)]
async fn told_name_does_not_end_the_process() {
    let silent = |_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>();
    let connection = Connection {
        client: kube::Client::new(tower::service_fn(silent), "default"),
        url: "https://127.0.0.1:6443".to_owned(),
        namespace: "default".to_owned(),
        claimed: None,
    };
    let (mut parts, stop) = (Parts::default(), CancellationToken::new());
    let (naming, name) = Naming::new(None);
    parts.spawn("naming", naming.find(connection, Some("1-2-3".to_owned()), stop.clone()));
    assert_eq!(name.await.as_deref(), Ok("1-2-3"));
    // The paused clock moves only when no part has anything left to do.
    let ended = timeout(Duration::from_secs(3600), parts.ended()).await;
    assert!(ended.is_err(), "{ended:?}");
    stop.cancel();
    parts.all_but(0).await;
}
