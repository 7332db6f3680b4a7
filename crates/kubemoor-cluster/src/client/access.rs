//! Authentication and authorization by the API server: whose token it is, what a user may do, the user name of this
//! process, and the CA of users' client certificates. Any response but an explicit yes is a refusal. Nothing is cached,
//! so a revoked permission or token stops working at once. No token reaches an error or a log.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::AuthInfo;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::call::{self, ClusterError, PATIENCE};
use crate::client::resource::Partial;
use crate::client::watch::{ObjectEvent, Typed, Watch};
use kubemoor_declare::model::Actor;
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_runtime::tls::UserAuthority;

#[derive(Clone, Copy, Debug, Hash)]
pub struct Right<'a> {
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    /// The namespace; `None` for all, and for cluster-scoped resources.
    pub namespace: Option<&'a str>,
    /// The object; `None` for all of them.
    pub name: Option<&'a str>,
}

/// Whether `user` has the permission `right`. Requires `create` on `subjectaccessreviews.authorization.k8s.io`.
pub fn is_user_allowed(
    client: &kube::Client,
    user: &Actor,
    right: &Right<'_>,
) -> impl Future<Output = Result<bool, ClusterError>> + Send + use<> {
    let (client, spec) = (client.clone(), of_user(user, "resourceAttributes", attributes(right)));
    async move { review(&client, "SubjectAccessReview", spec).await }
}

/// Whether `user` may GET a non-resource path such as `/metrics`. RBAC grants it by `nonResourceURLs`, also for paths
/// of servers other than the API server.
pub async fn is_get_allowed(client: &kube::Client, user: &Actor, path: &str) -> Result<bool, ClusterError> {
    let attributes = json!({"verb": "get", "path": path});
    review(client, "SubjectAccessReview", of_user(user, "nonResourceAttributes", attributes)).await
}

async fn review(client: &kube::Client, kind: &str, spec: Value) -> Result<bool, ClusterError> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_ascii_lowercase());
    let review: Value = call::post(client, &path, &review).await?;
    let says = |field: &str| review.pointer(field).map_or(Some(false), Value::as_bool);
    Ok(says("/status/allowed") == Some(true) && says("/status/denied") == Some(false))
}

fn of_user(user: &Actor, kind: &str, attributes: Value) -> Value {
    let Actor { user, groups, uid, extra } = user;
    json!({"user": user, "groups": groups, "uid": uid, "extra": extra, kind: attributes})
}

/// Whether the account of `client` has the permission `right`. Every account may ask this about itself.
pub async fn is_self_allowed(client: &kube::Client, right: &Right<'_>) -> Result<bool, ClusterError> {
    review(client, "SelfSubjectAccessReview", json!({"resourceAttributes": attributes(right)})).await
}

fn attributes(right: &Right<'_>) -> Value {
    let Right { verb, group, resource, namespace, name } = right;
    json!({
        "verb": verb, "group": group, "resource": resource, "namespace": namespace.unwrap_or_default(),
        "name": name.unwrap_or_default(),
    })
}

#[derive(Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: TokenStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: Actor,
}

/// The user of `token`; `None` if the API server rejects the token. Requires `create` on
/// `tokenreviews.authentication.k8s.io`.
pub async fn authenticate_token(client: &kube::Client, token: &str) -> Result<Option<Actor>, ClusterError> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    // The response repeats the token, and an error message could quote it.
    let TokenReview { status } =
        call::post(client, path, &review).await.map_err(ClusterError::without_values)?;
    let TokenStatus { authenticated, user } = status;
    Ok((authenticated && !user.user.is_empty()).then_some(user))
}

/// The versions of the SelfSubjectReview API, newest first.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The user name of this process, such as `system:serviceaccount:kubemoor-system:kubemoor`. If the API server does not
/// report it, the name `claimed` by the credentials, if any.
pub async fn own_name(
    client: &kube::Client,
    claimed: Option<String>,
) -> Result<Option<String>, ClusterError> {
    let mut refused = None;
    for version in VERSIONS {
        let api = format!("authentication.k8s.io/{version}");
        let body = json!({"apiVersion": api, "kind": "SelfSubjectReview"});
        let path = format!("/apis/{api}/selfsubjectreviews");
        match call::post::<Value>(client, &path, &body).await {
            Ok(review) => {
                let name = review.pointer("/status/userInfo/username").and_then(Value::as_str);
                return Ok(name.map(str::to_owned).or(claimed));
            }
            // Permissions are checked before the version is looked up, so a 403 does not show whether it is served.
            Err(ClusterError::Refused { code: 403, message, .. }) => {
                refused = refused.or_else(|| user_in_refusal(&message))
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(refused.or(claimed))
}

/// The unique ID of this cluster: the uid of the namespace kube-system. `None` without permission to read it.
pub async fn cluster_uid(client: &kube::Client) -> Result<Option<String>, ClusterError> {
    match call::fetch::<Partial>(client, call::get("/api/v1/namespaces/kube-system")?, PATIENCE).await {
        Ok(namespace) => Ok(Some(namespace.metadata.uid).filter(|uid| !uid.is_empty())),
        Err(ClusterError::Refused { code: 403 | 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The user that the credentials of `auth` claim: the impersonated user, or the service account of a token. No
/// signature is verified. Changes by this user are not checked, so no other program may use Kubemoor's credentials.
pub(crate) fn claimed(auth: &AuthInfo) -> Option<String> {
    if let Some(user) = &auth.impersonate {
        return Some(user.clone());
    }
    let token = match (&auth.token, &auth.token_file) {
        (Some(token), _) => token.expose_secret().to_owned(),
        (None, Some(file)) => std::fs::read_to_string(file).ok()?,
        (None, None) => return None,
    };
    token_subject(token.trim())
}

/// The user in the message of a 403, the only place that names it: `... is forbidden: User "alice" cannot ...`.
fn user_in_refusal(refusal: &str) -> Option<String> {
    let (name, _) = refusal.split_once("User \"")?.1.split_once("\" cannot ")?;
    // The message escapes a name that contains quotes.
    (!name.is_empty() && !name.contains(['"', '\\']) && name != "system:anonymous").then(|| name.to_owned())
}

fn token_subject(token: &str) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let subject = claims.get("sub")?.as_str()?;
    subject.starts_with("system:serviceaccount:").then(|| subject.to_owned())
}

/// The namespace of the ConfigMap in which the API server publishes the CA of users' client certificates.
const AUTHORITY_NAMESPACE: &str = "kube-system";
const AUTHORITY_NAME: &str = "extension-apiserver-authentication";
const AUTHORITY_KEY: &str = "client-ca-file";

/// Keeps `users` up to date with the CA that the API server publishes, until `stop`.
pub async fn follow_user_authority(client: kube::Client, users: UserAuthority, stop: CancellationToken) {
    let mut events = Watch::<Typed<ConfigMap>>::of_one(client, Some(AUTHORITY_NAMESPACE), AUTHORITY_NAME);
    let (mut failures, mut is_there) = (FailureLog::default(), false);
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            ObjectEvent::Relisting => is_there = false,
            ObjectEvent::Listed(Typed(map)) | ObjectEvent::Applied(Typed(map)) => {
                is_there = true;
                adopt(&users, map.data.as_ref().and_then(|data| data.get(AUTHORITY_KEY)).map(String::as_str));
            }
            ObjectEvent::Deleted(_) => adopt(&users, None),
            ObjectEvent::Synced if !is_there => adopt(&users, None),
            ObjectEvent::Synced => {}
            ObjectEvent::Watching => failures.note_success(),
            ObjectEvent::Broken(error) => {
                if failures.note_failure() {
                    warn!("failed to read the cluster's client CA bundle; retrying: {error}");
                }
            }
        }
    }
}

fn adopt(users: &UserAuthority, pem: Option<&str>) {
    match users.adopt(pem) {
        Ok(true) if pem.is_some() => {
            info!("ledger readers may authenticate with client certificates of the cluster")
        }
        Ok(_) => {}
        Err(error) => warn!(%error, "the cluster's client CA bundle is invalid; keeping the previous one"),
    }
}

#[cfg(test)]
mod tests;
