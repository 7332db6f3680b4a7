//! The user name of this process at the API server, so that the guard recognizes its own writes in reviews.
//!
//! Entry points: [`own_name`]; [`cluster_uid`] identifies the cluster. The API server is asked first. Below
//! Kubernetes 1.26 it cannot answer that question, but a refusal of the request still names the user.
//! Otherwise the name that the credentials claim is used, if they claim one.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kube::config::AuthInfo;
use secrecy::ExposeSecret;
use serde::Deserialize;
use x509_parser::pem::parse_x509_pem;

use super::call::{self, CallError, PATIENCE};
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
/// cannot be asked and the credentials claim no name: `claimed`.
///
/// # Errors
/// When the API server cannot be reached.
pub async fn own_name(client: &kube::Client, claimed: Option<String>) -> Result<Option<String>, CallError> {
    let mut refused = None;
    for version in VERSIONS {
        let api = format!("authentication.k8s.io/{version}");
        let body = serde_json::json!({"apiVersion": api, "kind": "SelfSubjectReview"});
        let path = format!("/apis/{api}/selfsubjectreviews");
        match call::post::<Review>(client, &path, &body).await {
            Ok(review) => return Ok(Some(review.status.user_info.username)),
            // Rights are looked at before it is known whether there is such a resource.
            Err(CallError::Refused { code: 403, message, .. }) => {
                refused = refused.or_else(|| named(&message))
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(refused.or(claimed))
}

/// The unique identity of this cluster: the uid of its namespace kube-system. `None` without the right to
/// read it.
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

/// The user that the credentials of `auth` claim: the impersonated user, the service account of a token, or
/// the common name of a client certificate. No signature is verified. Changes by this user pass unjudged, so
/// no other program may use Kubemoor's credentials.
pub(crate) fn claimed(auth: &AuthInfo) -> Option<String> {
    if let Some(user) = &auth.impersonate {
        return Some(user.clone());
    }
    let token = match (&auth.token, &auth.token_file) {
        (Some(token), _) => token.expose_secret().to_owned(),
        (None, Some(file)) => std::fs::read_to_string(file).ok()?,
        (None, None) => return common_name(&certificate(auth)?),
    };
    subject(token.trim())
}

/// The client certificate as PEM.
fn certificate(auth: &AuthInfo) -> Option<Vec<u8>> {
    match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => STANDARD.decode(data.trim()).ok(),
        (None, Some(file)) => std::fs::read(file).ok(),
        (None, None) => None,
    }
}

fn common_name(pem: &[u8]) -> Option<String> {
    let (_, pem) = parse_x509_pem(pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The user whom a refusal names: `... is forbidden: User "alice" cannot ...`.
fn named(refusal: &str) -> Option<String> {
    let (name, _) = refusal.split_once("User \"")?.1.split_once("\" cannot ")?;
    // A name with quotes in it is spelled otherwise than it is.
    (!name.is_empty() && !name.contains(['"', '\\']) && name != "system:anonymous").then(|| name.to_owned())
}

fn subject(token: &str) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    claims.sub.starts_with("system:serviceaccount:").then_some(claims.sub)
}

#[cfg(test)]
mod tests;
