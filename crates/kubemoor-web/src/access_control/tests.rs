use axum::Router;
use axum::routing::get;
use futures::future::join_all;
use tower::ServiceExt as _;

use super::*;

#[test]
fn ports_are_no_part_of_a_name() {
    for (host, name) in [
        ("ui.example", "ui.example"),
        ("ui.example:8443", "ui.example"),
        ("[::1]:1", "[::1]"),
        ("[::1]", "[::1]"),
    ] {
        assert_eq!(without_port(host), name);
    }
}

#[tokio::test]
async fn visitor_who_reads_no_answer_gets_no_further_one_and_holds_up_nobody() {
    let visitor = |byte| {
        let forms = SigningKey::new([byte; 32]);
        Arc::new(Visitor::new(Vec::new(), LoginMethod::Proxy, None, forms))
    };
    let pages =
        Router::new().route("/", get(async || "a page")).layer(axum::middleware::from_fn(limit_concurrency));
    let ask = |visitor: &Arc<Visitor>| {
        let request = Request::builder().extension(Arc::clone(visitor)).body(Body::empty()).unwrap();
        tokio::time::timeout(Duration::from_millis(100), pages.clone().oneshot(request))
    };
    let (slow, other) = (visitor(1), visitor(2));
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.extend(ask(&slow).await.map(Result::unwrap).ok());
    }
    assert_eq!(unread.len(), 6);
    assert!(ask(&other).await.is_ok());
    for answer in unread.drain(..2) {
        assert_eq!(axum::body::to_bytes(answer.into_body(), 100).await.unwrap(), "a page");
    }
    let answers = join_all((0..3).map(|_| ask(&slow))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2);
}
