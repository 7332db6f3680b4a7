//! Whether one of Kubemoor's own kinds is defined in a cluster.
//!
//! Entry points: [`is_defined`], [`confirm_absence`]. Invariant: only the API server's own word about an object or a
//! definition is absence: a proxy before an API server that is away, and an API server that is starting, answer 404 too.
//! Must not read what a definition says.

use super::call::{self, CallError, PATIENCE};
use super::resource::{GROUP, Partial, segment};

/// Whether there is the CustomResourceDefinition of the kind that is called `plural` in paths.
///
/// # Errors
/// When the API server gives no usable answer.
pub(crate) async fn is_defined(client: &kube::Client, plural: &str) -> Result<bool, CallError> {
    let name = segment(&format!("{plural}.{GROUP}"))?;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    match call::fetch::<Partial>(client, call::get(&path)?, PATIENCE).await {
        Ok(_) => Ok(true),
        Err(error) if error.proves_absence() => Ok(false),
        Err(error) => Err(error),
    }
}

/// `Ok` if the answer `error` to a request for objects of the kind `plural` means that there are none: it names an object
/// that does not exist, or the kind is not defined. Whoever may not read definitions has to believe the answer.
///
/// # Errors
/// `error`, or why the definition cannot be read.
pub async fn confirm_absence(client: &kube::Client, plural: &str, error: CallError) -> Result<(), CallError> {
    if error.proves_absence() {
        return Ok(());
    }
    if !error.is_not_found() {
        return Err(error);
    }
    match is_defined(client, plural).await {
        Ok(false) => Ok(()),
        Ok(true) => Err(error),
        Err(unread) if unread.is_forbidden() => Ok(()),
        Err(unread) => Err(unread),
    }
}

#[cfg(test)]
mod tests {
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
            let confirmed = confirm_absence(&client(code), "driftpolicies", CallError::Unserved).await;
            assert_eq!(confirmed.is_ok(), is_absent, "{code}");
        }
        let late = CallError::Late { within: PATIENCE };
        assert_eq!(confirm_absence(&client(404), "driftpolicies", late.clone()).await, Err(late));
    }
}
