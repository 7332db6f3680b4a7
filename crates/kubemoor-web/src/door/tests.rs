use axum::Router;
use axum::routing::get;
use futures::future::join_all;
use tower::ServiceExt as _;

use super::*;

#[test]
fn requests_of_other_sites_are_told_by_what_browsers_say() {
    let is_other = |pairs: &[(&'static str, &'static str)]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        is_of_another_site(&pairs.collect())
    };
    let host = ("host", "ui.example:8443");
    for own in [
        vec![host],
        vec![host, ("sec-fetch-site", "same-origin")],
        vec![host, ("origin", "https://ui.example:8443")],
    ] {
        assert!(!is_other(&own), "{own:?}");
    }
    for other in [
        vec![host, ("sec-fetch-site", "same-site")],
        vec![host, ("sec-fetch-site", "none")],
        vec![host, ("origin", "https://ui.example")],
        vec![host, ("origin", "https://evil.example:8443")],
        vec![host, ("origin", "null")],
        vec![("origin", "https://ui.example:8443")],
    ] {
        assert!(is_other(&other), "{other:?}");
    }
}

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
    let pages = Router::new().route("/", get(async || "a page")).layer(axum::middleware::from_fn(take_turn));
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
