//! Health and metrics as probes and scrapers see them.

use std::convert::Infallible;

use http::HeaderMap;
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tower::ServiceExt;

use super::*;
use kubemoor_runtime::tls::UserAuthority;

/// A ledger that nobody has opened, for these users.
fn ledger_api(users: &Authenticator) -> LedgerApi {
    let settings = kubemoor_runtime::config::LedgerSettings {
        url: "sqlite:/nowhere/ledger.db".parse().unwrap(),
        retention: kubemoor_runtime::config::Retention { age: std::time::Duration::MAX, rows: 1 },
    };
    let ledger =
        kubemoor_ledger::LedgerHandle::new(settings, kubemoor_runtime::metrics::LedgerMetrics::default())
            .unwrap()
            .0;
    LedgerApi::new(ledger, users.clone())
}

/// The routes of a guard that authenticates by this API server, with one counter.
fn routes(readiness: Readiness, users: &Authenticator, is_anonymous: bool) -> Router {
    let mut registry = Registry::with_prefix("kubemoor");
    registry.register("tests", "Tests", Counter::<u64>::default());
    let users_of_metrics = (!is_anonymous).then(|| users.clone());
    let metrics = MetricsApi { registry: Arc::new(registry), users: users_of_metrics };
    router(readiness, metrics, ledger_api(users))
}

/// Status, headers and body of the answer to `GET path`, with a token where one is given.
async fn get(router: &Router, path: &str, token: Option<&str>) -> (u16, HeaderMap, String) {
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let mut request = request.body(axum::body::Body::empty()).unwrap();
    request.extensions_mut().insert(Peer { address: [10, 0, 0, 1].into(), certificates: Arc::default() });
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    (parts.status.as_u16(), parts.headers, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn health_is_open_and_the_ledger_is_not() {
    let readiness = Readiness::default();
    let router = routes(readiness.clone(), &Authenticator::new(UserAuthority::default()), false);

    let (status, _, body) = get(&router, "/livez", None).await;
    assert_eq!((status, body.as_str()), (200, "ok\n"));

    let records = readiness.condition("records");
    let (status, _, body) = get(&router, "/readyz", None).await;
    assert_eq!((status, body.as_str()), (503, "[-]records: not yet known\nnot ready\n"));
    records.met();
    let (status, _, body) = get(&router, "/readyz", None).await;
    assert_eq!((status, body.as_str()), (200, "[+]records ok\nready\n"));

    assert_eq!(get(&router, "/else", None).await.0, 404);
    let (status, headers, body) = get(&router, LEDGER, None).await;
    assert_eq!((status, headers[header::WWW_AUTHENTICATE].to_str().unwrap()), (401, "Bearer"), "{body}");
    assert!(body.contains("\"kind\":\"Status\""), "{body}");
}

#[tokio::test]
async fn metrics_need_a_user_who_may_get_them_unless_they_are_anonymous() {
    let users = Authenticator::new(UserAuthority::default());
    let router = routes(Readiness::default(), &users, false);
    // Until a cluster is known, nobody can be.
    for (token, expected) in [(None, 401), (Some("good"), 503)] {
        assert_eq!(get(&router, METRICS, token).await.0, expected, "{token:?}");
    }
    users.trust(kube::Client::new(tower::service_fn(api_server), "default"));
    for (token, expected, says) in [
        (None, 401, "reading the metrics requires a bearer token"),
        (Some("unknown"), 401, "reading the metrics requires a bearer token"),
        (Some("plain"), 403, "the right to get the path /metrics"),
    ] {
        let (status, _, body) = get(&router, METRICS, token).await;
        assert!(status == expected && body.contains(says), "{token:?}: {status} {body}");
        assert!(!body.contains("kubemoor_tests"), "{token:?}: {body}");
    }
    let anonymous = routes(Readiness::default(), &Authenticator::new(UserAuthority::default()), true);
    for (router, token) in [(&router, Some("good")), (&anonymous, None), (&anonymous, Some("unknown"))] {
        let (status, headers, body) = get(router, METRICS, token).await;
        assert_eq!((status, headers[header::CONTENT_TYPE].to_str().unwrap()), (200, METRICS_TYPE));
        assert!(body.contains("kubemoor_tests_total 0\n") && body.ends_with("# EOF\n"), "{body}");
    }
}

/// An API server that knows the tokens `good`, of a user with every right, and `plain`, of one without, and never
/// answers on `slow`.
async fn api_server(
    request: Request<kube::client::Body>,
) -> Result<http::Response<kube::client::Body>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    if body.contains("\"slow\"") {
        std::future::pending::<()>().await;
    }
    let user = ["good", "plain"].into_iter().find(|user| body.contains(&format!("\"{user}\"")));
    let status = json!({"status": {
        "authenticated": user.is_some(), "user": {"username": user.unwrap_or_default()},
        "allowed": user == Some("good"),
    }});
    Ok(http::Response::new(status.to_string().into_bytes().into()))
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_never_vouched_for_hold_up_no_other() {
    let users = Authenticator::new(UserAuthority::default());
    users.trust(kube::Client::new(tower::service_fn(api_server), "default"));
    let router = routes(Readiness::default(), &users, false);
    let slow = futures::future::join_all((1..READS).map(|_| get(&router, LEDGER, Some("slow"))));
    let mut slow = std::pin::pin!(slow);
    assert!(futures::poll!(&mut slow).is_pending());
    let (status, _, body) = get(&router, LEDGER, Some("good")).await;
    // As far as the database, which nobody has opened here.
    assert!(status == 503 && body.contains("the ledger is not open"), "{status} {body}");
    // Health waits for nobody, and others are refused at once if too many ask.
    let mut last = std::pin::pin!(get(&router, METRICS, Some("slow")));
    assert!(futures::poll!(&mut last).is_pending());
    assert_eq!(get(&router, "/livez", None).await.0, 200);
    let (status, _, body) = get(&router, METRICS, Some("good")).await;
    assert!(status == 503 && body.contains("too many requests"), "{status} {body}");
    // They do not wait for ever themselves.
    for (status, _, body) in slow.await {
        assert!(status == 503 && body.contains("no answer in time"), "{status} {body}");
    }
}

#[test]
fn without_conditions_all_is_ready() {
    let readiness = Readiness::default();
    assert!(readiness.is_ready());
    assert_eq!(readiness.report(), (true, "ready\n".to_owned()));
}

#[test]
fn readiness_fails_with_reason_when_one_condition_is_unmet() {
    let readiness = Readiness::default();
    let records = readiness.condition("records");
    let certificate = readiness.condition("certificate");
    assert!(!readiness.is_ready());
    records.met();
    assert!(!readiness.is_ready());
    certificate.met();
    assert!(readiness.is_ready());
    records.clone().unmet("the API server does not answer");
    assert!(!readiness.is_ready());
    let report = "[-]records: the API server does not answer\n[+]certificate ok\nnot ready\n";
    assert_eq!(readiness.report(), (false, report.to_owned()));
}

#[test]
fn requesting_an_existing_readiness_condition_keeps_its_state() {
    let readiness = Readiness::default();
    readiness.condition("records").met();
    let _ = readiness.condition("records");
    assert_eq!(readiness.report(), (true, "[+]records ok\nready\n".to_owned()));
}
