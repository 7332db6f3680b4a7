use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::Json;
use axum::response::IntoResponse as _;
use futures::future::join_all;
use http::StatusCode;
use serde_json::json;

use super::*;
use crate::GuardAddress;
use kubemoor_runtime::config::RecordDriver;

#[test]
fn cookie_opens_only_with_its_key_unchanged_and_within_its_time() {
    let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
    let until = now + LOGIN;
    let sealer = |byte| Sealer::new(&SigningKey::new([byte; 32])).unwrap();
    let token = SecretString::from("a.b.c");
    let text = sealer(1).seal(&token, until).unwrap();
    let open =
        |byte, text: &str, now| sealer(byte).open(text, now).map(|token| token.expose_secret().to_owned());
    let whole = Some("a.b.c".to_owned());
    assert_eq!(open(1, &text, now), whole);
    assert_eq!(open(1, &text, until - SignedDuration::from_secs(1)), whole);
    assert_eq!(open(1, &text, until), None, "too old");
    assert_eq!(open(2, &text, now), None, "another key");
    for place in 0..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(open(1, &changed, now), None, "byte {place} is another");
        assert_eq!(open(1, text.get(..place).unwrap(), now), None, "cut at {place}");
    }
    assert!(!text.contains("a.b.c"));
    assert_ne!(sealer(1).seal(&token, until).unwrap(), text, "no two look the same");
}

#[test]
fn longest_token_fits_into_a_cookie() {
    let token = "x".repeat(LONGEST_TOKEN).into();
    let text = Sealer::new(&SigningKey::new([1; 32])).unwrap().seal(&token, Timestamp::now()).unwrap();
    assert!(text.len() + COOKIE.len() < 4096, "{}", text.len());
}

#[test]
fn newcomer_takes_the_place_of_the_longest_absent_visitor() {
    let known = memory(4);
    let visitor = || {
        let forms = SigningKey::new([1; 32]);
        Arc::new(Visitor::new(Vec::new(), LoginMethod::Proxy, None, forms))
    };
    let come = |place: u8| {
        let _ = known.get_with([place; 32], visitor);
        known.run_pending_tasks();
    };
    (0..4).for_each(come);
    // All come often, the third one not of late.
    for _ in 0..20 {
        [2, 0, 1, 3].into_iter().for_each(come);
    }
    come(4);
    let remembered: Vec<_> = (0..5).filter(|place| known.contains_key(&[*place; 32])).collect();
    assert_eq!(remembered, [0, 1, 3, 4]);
}

#[test]
fn bearer_tokens_alone_are_read() {
    let read = |text: &str| bearer(&HeaderValue::from_str(text).unwrap());
    for text in ["Bearer a.b-c", "bearer a.b-c", "BEARER  a.b-c "] {
        assert_eq!(read(text).unwrap().expose_secret(), "a.b-c", "{text}");
    }
    for text in ["", "Bearer", "Bearer ", "Basic YTpi", "a.b-c", "Bearer a b", "Bearer a\tb"] {
        assert!(read(text).is_none(), "{text}");
    }
    assert!(read(&format!("Bearer {}", "a".repeat(LONGEST_PROXY_TOKEN + 1))).is_none());
}

/// An API server that counts who asks who they are, and knows everybody once it is told to.
struct FakeApiServer {
    asked: AtomicU32,
    knows: AtomicBool,
}

/// Visitors of the cluster behind that server.
async fn visitors(server: &Arc<FakeApiServer>, folder: &std::path::Path) -> Visitors {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let answering = Arc::clone(server);
    let answer = move || async move {
        answering.asked.fetch_add(1, Ordering::Relaxed);
        if answering.knows.load(Ordering::Relaxed) {
            return Json(json!({"status": {"userInfo": {"username": "alice"}}})).into_response();
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": "Unauthorized"});
        (StatusCode::UNAUTHORIZED, Json(status)).into_response()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, axum::Router::new().fallback(answer)).into_future());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one", "users": [{"name": "one", "user": {}}],
        "clusters": [{"name": "one", "cluster": {"server": url}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let settings = PageCluster {
        name: "one".to_owned(),
        access: ClusterAccess { kubeconfig: Some(kubeconfig), ..ClusterAccess::default() },
        driver: RecordDriver::Secret,
        labels: kubemoor_policy::resolver::Labels::default(),
        guard: GuardAddress::Given { server: http::Uri::from_static("https://127.0.0.1:1"), authority: None },
    };
    Visitors::new(settings, SigningKey::new([1; 32])).unwrap()
}

#[tokio::test]
async fn token_that_was_refused_is_not_asked_about_for_seconds_and_works_once_valid() {
    let (server, folder) = (
        Arc::new(FakeApiServer { asked: AtomicU32::new(0), knows: AtomicBool::new(false) }),
        tempfile::tempdir().unwrap(),
    );
    let visitors = visitors(&server, folder.path()).await;
    let come = async |token: &str| visitors.visitor(token.to_owned().into(), LoginMethod::Proxy).await;
    let asked = || server.asked.swap(0, Ordering::Relaxed);
    assert!(matches!(come("a.b.c").await, Err(Refused::Unknown)));
    assert_eq!(asked(), 1);
    let again = join_all((0..100).map(|_| come("a.b.c"))).await;
    assert!(again.iter().all(|answer| matches!(answer, Err(Refused::Unknown))));
    assert_eq!(asked(), 0, "it was refused a moment ago");
    assert!(matches!(come("a.b.d").await, Err(Refused::Unknown)));
    assert_eq!(asked(), 1, "another token");

    // It is known by its digest alone, for seconds, among few.
    let kept = visitors.refused.policy();
    assert_eq!((kept.time_to_live(), kept.max_capacity()), (Some(REFUSED), Some(MOST_REFUSED)));
    assert!(REFUSED <= Duration::from_secs(5));
    server.knows.store(true, Ordering::Relaxed);
    visitors.refused.invalidate_all();
    assert_eq!(come("a.b.c").await.ok().unwrap().user.as_deref(), Some("alice"));
    assert_eq!(asked(), 1);
    for number in 0..3 * MOST_REFUSED {
        visitors.refused.insert(visitors.place(&format!("token-{number}").into(), LoginMethod::Proxy), ());
    }
    visitors.refused.run_pending_tasks();
    assert!(visitors.refused.entry_count() <= MOST_REFUSED);
}
