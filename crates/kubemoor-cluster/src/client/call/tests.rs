use http::{HeaderValue, Response};

use super::*;

async fn check(status: u16, body: Vec<u8>, cap: usize) -> Result<Vec<u8>, ClusterError> {
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::builder().status(status).body(Body::from(body.clone()));
        std::future::ready(answer)
    });
    let client = kube::Client::new(service, "default");
    send(&client, get("/api").unwrap(), cap, PATIENCE).await
}

#[tokio::test]
async fn a_body_up_to_its_cap_is_read() {
    assert_eq!(check(200, vec![b'x'; 10], 10).await, Ok(vec![b'x'; 10]));
    assert_eq!(check(200, vec![b'x'; 11], 10).await, Err(ClusterError::TooLarge { cap: 10 }));
}

#[test]
fn warning_is_read_as_it_was_meant() {
    for (header, text) in [
        (r#"299 - "a b""#, Some("a b")),
        (r#"299 - "say \"a\" and \\""#, Some(r#"say "a" and \"#)),
        (r#"299 kubemoor "a""#, Some("a")),
        // One that was too long.
        ("299 - \"a …\"", Some("a …")),
        ("299 - a", None),
    ] {
        assert_eq!(
            warning(&HeaderValue::from_bytes(header.as_bytes()).unwrap()).as_deref(),
            text,
            "{header}"
        );
    }
}

#[tokio::test]
async fn error_without_kubernetes_status_keeps_code_and_drops_body() {
    let error = check(502, b"<html>password</html>".to_vec(), 10).await.unwrap_err();
    assert!(error.is_outage());
    assert_eq!(
        error.to_string(),
        "the API server refused (502 Bad Gateway): the answer is not a Kubernetes status"
    );
}

/// Below Kubernetes 1.24 the API server answers like this for `/openapi/v3`.
#[tokio::test]
async fn not_found_error_distinguishes_unserved_path_from_missing_object() {
    for body in [r#"{"paths": ["/apis", "/healthz"]}"#, "404 page not found"] {
        let error = check(404, body.into(), 10).await.unwrap_err();
        assert!(error == ClusterError::Unserved && error.is_not_found(), "{error}");
    }
    let missing = r#"{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}"#;
    let error = check(404, missing.into(), 10).await.unwrap_err();
    assert!(error != ClusterError::Unserved && error.is_not_found(), "{error}");
}

#[tokio::test]
async fn only_an_answer_that_names_the_object_proves_absence() {
    let status = |reason: &str, code: u16, details: &str| {
        format!(r#"{{"kind": "Status", "status": "Failure", "reason": "{reason}", "code": {code}{details}}}"#)
    };
    let named = r#", "details": {"name": "settings", "kind": "configmaps"}"#;
    for (code, body, expected) in [
        (404, status("NotFound", 404, named), true),
        (404, status("NotFound", 404, ""), false),
        (
            404,
            status("NotFound", 404, r#", "details": {"group": "kubemoor.dev", "kind": "driftpolicies"}"#),
            false,
        ),
        (403, status("Forbidden", 403, named), false),
        // Of a proxy.
        (404, "404 page not found".to_owned(), false),
    ] {
        let error = check(code, body.clone().into_bytes(), 10).await.unwrap_err();
        assert_eq!(error.proves_absence(), expected, "{body}");
        assert_eq!(error.without_values().proves_absence(), expected, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_ends_in_time() {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::io::Error>>()
    });
    let client = kube::Client::new(service, "default");
    let answer = send(&client, get("/api").unwrap(), 10, PATIENCE).await;
    assert_eq!(answer, Err(ClusterError::Late { within: PATIENCE }));
}

#[test]
fn an_unreadable_answer_is_not_quoted() {
    let error = decode::<u64>(b"\"hunter2\"").unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}
