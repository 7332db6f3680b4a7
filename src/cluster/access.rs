//! Who somebody is, and what he may do, as the API server says.
//!
//! Entry points: [`who`] for a bearer token, [`may`] for a right. Invariant:
//! only a plain yes of the API server counts as yes; no token reaches an error
//! or a log. Both are asked each time, so that a right that was taken away is
//! gone at once.

use http::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{self, CallError, PATIENCE};
use crate::model::Actor;

#[derive(Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: TokenStatus,
}

#[derive(Default, Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: UserInfo,
}

#[derive(Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct AccessReview {
    #[serde(default)]
    status: AccessStatus,
}

#[derive(Default, Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
}

/// Whose `token` that is; `None` for a token that the API server does not take.
///
/// # Errors
/// When the API server cannot be asked, or may not be by this account
/// (`create` on `tokenreviews.authentication.k8s.io`).
pub async fn who(client: &kube::Client, token: &str) -> Result<Option<Actor>, CallError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    // The answer repeats the token, and a refusal could quote it.
    let TokenReview { status } = post(client, path, &review).await.map_err(CallError::without_values)?;
    let TokenStatus { authenticated, user } = status;
    let known = authenticated && !user.username.is_empty();
    Ok(known.then(|| Actor { user: user.username, groups: user.groups.unwrap_or_default() }))
}

/// Whether `user` may `verb` the `resource` (plural) of `group` in `namespace`;
/// `None` asks for all namespaces, or for a cluster-scoped resource.
///
/// # Errors
/// When the API server cannot be asked, or may not be by this account
/// (`create` on `subjectaccessreviews.authorization.k8s.io`).
pub async fn may(
    client: &kube::Client,
    user: &Actor,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<bool, CallError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.user,
            "groups": user.groups,
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "namespace": namespace.unwrap_or_default(),
            },
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let AccessReview { status } = post(client, path, &review).await?;
    Ok(status.allowed && !status.denied)
}

async fn post<T: DeserializeOwned>(client: &kube::Client, path: &str, body: &Value) -> Result<T, CallError> {
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| CallError::Unformed { reason: error.to_string() })?;
    call::fetch(client, request, PATIENCE).await
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;

    use super::*;

    fn answering(status: u16, body: Value) -> kube::Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(answer)
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test]
    async fn only_a_plain_yes_is_a_right() {
        let alice = Actor { user: "alice".to_owned(), groups: Vec::new() };
        for (body, right) in [
            (json!({"status": {"allowed": true}}), true),
            (json!({"status": {"allowed": false}}), false),
            (json!({"status": {"allowed": true, "denied": true}}), false),
            (json!({"status": {}}), false),
            (json!({}), false),
        ] {
            let client = answering(201, body.clone());
            let said = may(&client, &alice, "list", "kubemoor.dev", "guardedreleases", Some("shop")).await;
            assert_eq!(said, Ok(right), "{body}");
        }
    }

    #[tokio::test]
    async fn a_token_counts_once_the_api_server_names_its_user() {
        let alice = Actor { user: "alice".to_owned(), groups: vec!["people".to_owned()] };
        for (body, who_it_is) in [
            (
                json!({"status": {"authenticated": true, "user": {"username": "alice", "groups": ["people"]}}}),
                Some(alice),
            ),
            (json!({"status": {"authenticated": false, "user": {"username": "alice"}}}), None),
            (json!({"status": {"authenticated": true, "user": {}}}), None),
            (json!({"status": {"error": "invalid bearer token"}}), None),
        ] {
            assert_eq!(who(&answering(201, body.clone()), "t0ken").await, Ok(who_it_is), "{body}");
        }
    }

    #[tokio::test]
    async fn a_refusal_that_quotes_the_token_is_not_passed_on() {
        let refusal = json!({"kind": "Status", "status": "Failure", "message": "t0ken is bad", "code": 400});
        let error = who(&answering(400, refusal), "t0ken").await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("t0ken"), "{error:?}");
    }
}
