use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// A client of something that answers 404 to all questions, and this code to those for definitions.
fn client(code: u16) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let status = |code: u16, details: Value| {
            let reason = if code == 404 { "NotFound" } else { "Forbidden" };
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
                "message": "", "details": details,
            });
            (code, status.to_string())
        };
        let (code, body) = match (request.uri().path().contains("customresourcedefinitions"), code) {
            (true, 200) => (200, json!({"metadata": {"name": "it", "uid": "1"}}).to_string()),
            (true, 403) => status(403, Value::Null),
            (true, 404) => status(404, json!({"name": "it", "kind": "customresourcedefinitions"})),
            _ => (404, "404 page not found".to_owned()),
        };
        let answer = Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap();
        Ok::<_, Infallible>(answer)
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn answer_404_is_absence_only_without_the_definition() {
    // 0: something that is no API server answers 404 to that question too.
    for (code, is_absent) in [(404, true), (403, true), (200, false), (0, false)] {
        let confirmed = confirm_absence(&client(code), "driftpolicies", ClusterError::Unserved).await;
        assert_eq!(confirmed.is_ok(), is_absent, "{code}");
    }
    let late = ClusterError::Late { within: PATIENCE };
    assert_eq!(confirm_absence(&client(404), "driftpolicies", late.clone()).await, Err(late));
}
