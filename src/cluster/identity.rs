//! Which user the API server takes this process for, so that its own writes
//! are known when they come back as reviews.
//!
//! Entry points: [`own_name`]; [`cluster_uid`] for the cluster's own name. The API server is asked first; the token's own
//! claim serves below Kubernetes 1.26, where it cannot be asked.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use kube::config::AuthInfo;
use secrecy::ExposeSecret;
use serde::Deserialize;

use super::call::{self, CallError, PATIENCE};
use super::client::Connection;
use super::resource::Partial;

/// The versions of the API that answer the question, newest first.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    username: String,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

/// The user name of this process, such as
/// `system:serviceaccount:kubemoor-system:kubemoor`. `None` when the API server
/// cannot be asked and the credentials do not say.
///
/// # Errors
/// When the API server cannot be reached.
pub async fn own_name(connection: &Connection) -> Result<Option<String>, CallError> {
    for version in VERSIONS {
        let api = format!("authentication.k8s.io/{version}");
        let body = serde_json::json!({"apiVersion": api, "kind": "SelfSubjectReview"});
        let request = Request::post(format!("/apis/{api}/selfsubjectreviews"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| CallError::Unformed { reason: error.to_string() })?;
        match call::fetch::<Review>(&connection.client, request, PATIENCE).await {
            Ok(review) => return Ok(Some(review.status.user_info.username)),
            // Not served in this version, or withheld: the token's claim is left.
            Err(CallError::Refused { code: 403 | 404, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(connection.claimed.clone())
}

/// What tells this cluster from all others: the uid of its namespace
/// kube-system. `None` without the right to read it.
///
/// # Errors
/// When the API server cannot be reached.
pub async fn cluster_uid(client: &kube::Client) -> Result<Option<String>, CallError> {
    match call::fetch::<Partial>(client, call::get("/api/v1/namespaces/kube-system")?, PATIENCE).await {
        Ok(namespace) => Ok(Some(namespace.metadata.uid).filter(|uid| !uid.is_empty())),
        Err(CallError::Refused { code: 403 | 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the bearer token of `auth` claims to be, when it is a service account's.
/// Its signature is not looked at: nothing is granted by this name.
pub(super) fn claimed(auth: &AuthInfo) -> Option<String> {
    let token = match (&auth.token, &auth.token_file) {
        (Some(token), _) => token.expose_secret().to_owned(),
        (None, Some(file)) => std::fs::read_to_string(file).ok()?,
        (None, None) => return None,
    };
    subject(token.trim())
}

fn subject(token: &str) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    claims.sub.starts_with("system:serviceaccount:").then_some(claims.sub)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_service_account_token_names_its_account() {
        let claims = r#"{"iss":"kubernetes","sub":"system:serviceaccount:kubemoor-system:kubemoor"}"#;
        assert_eq!(subject(&token(claims)).unwrap(), "system:serviceaccount:kubemoor-system:kubemoor");
    }

    #[test]
    fn a_token_that_says_nothing_useful_names_nobody() {
        for text in ["", "opaque", "a.b.c", "..", &token("{}"), &token(r#"{"sub":"12345"}"#), &token("[]")] {
            assert_eq!(subject(text), None, "{text}");
        }
    }
}
