//! Who a user is, and what they may do, as the API server says.
//!
//! Entry points: [`who`] for a bearer token, [`may`] for a right, [`may_get`] for a path, [`may_self`] for one's own
//! rights. Invariant:
//! only a plain yes of the API server counts as yes, to all that it knows of the
//! user: a token of few scopes has no more rights than these; no token reaches an error
//! or a log. Both are asked each time, so that a right that was taken away is
//! gone at once.

mod token;

use serde::Deserialize;
use serde_json::{Value, json};

pub use self::token::who;
use super::call::{self, CallError};
use kubemoor_declare::model::Actor;

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
    review(client, user, "resourceAttributes", attributes(right)).await
}

/// Whether `user` may GET a path that is no resource, such as `/metrics`. RBAC grants it by `nonResourceURLs`, also for
/// the paths of other servers than the API server.
///
/// # Errors
/// As [`may`].
pub async fn may_get(client: &kube::Client, user: &Actor, path: &str) -> Result<bool, CallError> {
    review(client, user, "nonResourceAttributes", json!({"verb": "get", "path": path})).await
}

async fn review(
    client: &kube::Client,
    user: &Actor,
    kind: &str,
    attributes: Value,
) -> Result<bool, CallError> {
    let Actor { user, groups, uid, extra } = user;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "uid": uid, "extra": extra, kind: attributes},
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
