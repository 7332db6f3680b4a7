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
mod tests;
