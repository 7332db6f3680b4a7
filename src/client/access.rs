//! Who a user is, and what they may do, as the API server says.
//!
//! Entry points: [`who`] for a bearer token, [`may`] for a right, [`may_self`] for one's own. Invariant:
//! only a plain yes of the API server counts as yes, to all that it knows of the
//! user: a token of few scopes has no more rights than these; no token reaches an error
//! or a log. Both are asked each time, so that a right that was taken away is
//! gone at once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{self, CallError};
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
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
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

/// The user of `token`; `None` for a token that the API server rejects.
///
/// # Errors
/// When the API server cannot be asked, or this account may not ask (`create` on
/// `tokenreviews.authentication.k8s.io`).
pub async fn who(client: &kube::Client, token: &str) -> Result<Option<Actor>, CallError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    // The answer repeats the token, and a refusal could quote it.
    let TokenReview { status } =
        call::post(client, path, &review).await.map_err(CallError::without_values)?;
    let TokenStatus { authenticated, user } = status;
    let known = authenticated && !user.username.is_empty();
    Ok(known.then(|| Actor {
        user: user.username,
        groups: user.groups.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        extra: user
            .extra
            .into_iter()
            .flatten()
            .map(|(key, values)| (key, values.unwrap_or_default()))
            .collect(),
    }))
}

/// A right to check.
#[derive(Clone, Copy, Debug)]
pub struct Right<'a> {
    /// The verb.
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// The namespace; `None` for all, and for cluster-scoped resources.
    pub namespace: Option<&'a str>,
    /// The object; `None` for all of them.
    pub name: Option<&'a str>,
}

/// Whether `user` has a right.
///
/// # Errors
/// When the API server cannot be asked, or may not be by this account
/// (`create` on `subjectaccessreviews.authorization.k8s.io`).
pub async fn may(client: &kube::Client, user: &Actor, right: &Right<'_>) -> Result<bool, CallError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.user,
            "groups": user.groups,
            "uid": user.uid,
            "extra": user.extra,
            "resourceAttributes": attributes(right),
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let AccessReview { status } = call::post(client, path, &review).await?;
    Ok(status.allowed && !status.denied)
}

/// Whether the account of `client` itself has a right. Every account may ask this.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn may_self(client: &kube::Client, right: &Right<'_>) -> Result<bool, CallError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes(right)},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let AccessReview { status } = call::post(client, path, &review).await?;
    Ok(status.allowed && !status.denied)
}

fn attributes(right: &Right<'_>) -> Value {
    let Right { verb, group, resource, namespace, name } = right;
    json!({
        "verb": verb, "group": group, "resource": resource, "namespace": namespace.unwrap_or_default(),
        "name": name.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn answering(status: u16, body: Value) -> kube::Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(answer)
        });
        kube::Client::new(service, "default")
    }

    fn listing(namespace: Option<&str>) -> Right<'_> {
        Right { verb: "list", group: "kubemoor.dev", resource: "guardedreleases", namespace, name: None }
    }

    #[tokio::test]
    async fn only_a_plain_yes_is_a_right() {
        let alice = Actor { user: "alice".to_owned(), ..Actor::default() };
        for (body, right) in [
            (json!({"status": {"allowed": true}}), true),
            (json!({"status": {"allowed": false}}), false),
            (json!({"status": {"allowed": true, "denied": true}}), false),
            (json!({"status": {}}), false),
            (json!({}), false),
        ] {
            let client = answering(201, body.clone());
            let said = may(&client, &alice, &listing(Some("shop"))).await;
            assert_eq!(said, Ok(right), "{body}");
        }
    }

    #[tokio::test]
    async fn a_token_counts_once_the_api_server_names_its_user() {
        let alice = Actor { user: "alice".to_owned(), groups: vec!["people".to_owned()], ..Actor::default() };
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
    async fn access_review_carries_uid_and_extra_of_the_token_user() {
        let user = json!({
            "username": "alice", "uid": "7", "groups": ["people"],
            "extra": {"scopes.authorization.openshift.io": ["user:info"], "empty": null},
        });
        let review = json!({"status": {"authenticated": true, "user": user}});
        let alice = who(&answering(201, review), "t0ken").await.unwrap().unwrap();
        assert_eq!(alice.uid, "7");
        assert_eq!(alice.extra["scopes.authorization.openshift.io"], ["user:info"]);

        let (asked, mut told) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let asked = asked.clone();
            async move {
                let _ = asked.send(request.into_body().collect_bytes().await.unwrap());
                let answer = json!({"status": {"allowed": false}}).to_string();
                Ok::<_, std::io::Error>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        let client = kube::Client::new(service, "default");
        assert_eq!(may(&client, &alice, &listing(None)).await, Ok(false));
        let spec = serde_json::from_slice::<Value>(&told.recv().await.unwrap()).unwrap()["spec"].take();
        assert_eq!(
            (&spec["user"], &spec["uid"], &spec["groups"]),
            (&json!("alice"), &json!("7"), &json!(["people"]))
        );
        assert_eq!(spec["extra"], json!({"scopes.authorization.openshift.io": ["user:info"], "empty": []}));
    }

    #[tokio::test]
    async fn a_refusal_that_quotes_the_token_is_not_passed_on() {
        let refusal = json!({"kind": "Status", "status": "Failure", "message": "t0ken is bad", "code": 400});
        let error = who(&answering(400, refusal), "t0ken").await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("t0ken"), "{error:?}");
    }
}
