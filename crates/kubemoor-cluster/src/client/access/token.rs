//! The user of a bearer token, as the API server says.
//!
//! Entry point: [`who`]. Invariant: no token reaches an error or a log. The API server is asked each time, so that
//! a withdrawn token has no effect at once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::super::call::{self, CallError};
use kubemoor_declare::model::Actor;

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
