//! Who reads the ledger or the metrics, and whether they may, as the API server says.
//!
//! Only a user whom the API server or an authority that it trusts vouches for gets a permission, and the API server is asked
//! each time. As in the API server, a client certificate takes precedence over a token. Refusals are Kubernetes Statuses, so
//! that any client of the API can read them.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde_json::json;

use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::call::CallError;
use kubemoor_declare::model::Actor;
use kubemoor_runtime::server::Peer;
use kubemoor_runtime::tls::UserAuthority;

/// The path of the metrics, which is also the path that a scraper needs the right to GET.
pub(super) const METRICS: &str = "/metrics";

/// Authenticates users of the cluster, and asks for their rights. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator {
    authority: UserAuthority,
    client: Arc<OnceLock<kube::Client>>,
}

/// What is read, and so the right that it takes.
#[derive(Clone, Copy)]
pub(super) enum Permission<'a> {
    /// Rows of the ledger of one namespace, or of all: the right to list GuardedReleases there.
    Ledger { namespace: Option<&'a str> },
    /// The metrics: the right to GET `/metrics`, as for other servers in a cluster (RBAC's `nonResourceURLs`).
    Metrics,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Refusal {
    Unauthenticated(&'static str),
    Forbidden(&'static str, &'static str),
    Malformed(String),
    Unavailable(String),
}

impl Authenticator {
    /// Authenticates nobody until [`Authenticator::trust`] names a cluster.
    pub fn new(authority: UserAuthority) -> Self {
        Self { authority, client: Arc::default() }
    }

    /// Sets the client that verifies tokens and rights. Call it once: a run has one cluster. Returns the
    /// handle that receives the authorities of user certificates.
    pub fn trust(&self, client: kube::Client) -> UserAuthority {
        let _ = self.client.set(client);
        self.authority.clone()
    }

    /// Checks that the API server has authorized the user of a request.
    pub(super) async fn permit(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        permission: Permission<'_>,
    ) -> Result<(), Refusal> {
        let what = permission.what();
        if peer.certificates.is_empty() && bearer(headers).is_none() {
            return Err(Refusal::Unauthenticated(what));
        }
        let client = self.client.get().ok_or_else(|| {
            Refusal::Unavailable(format!("no API server says yet who may read {what}; try again"))
        })?;
        let certified = self.authority.identify(&peer.certificates, Timestamp::now());
        let actor = match (certified, bearer(headers)) {
            (Some(actor), _) => actor,
            (None, None) => return Err(Refusal::Unauthenticated(what)),
            (None, Some(token)) => {
                let actor = access::who(client, token).await.map_err(|error| permission.unasked(&error))?;
                actor.ok_or(Refusal::Unauthenticated(what))?
            }
        };
        let may = permission.is_given(client, &actor).await;
        if !may.map_err(|error| permission.unasked(&error))? {
            return Err(Refusal::Forbidden(what, permission.right()));
        }
        Ok(())
    }
}

impl Permission<'_> {
    fn what(self) -> &'static str {
        match self {
            Self::Ledger { .. } => "the ledger",
            Self::Metrics => "the metrics",
        }
    }

    fn right(self) -> &'static str {
        match self {
            Self::Ledger { .. } => {
                "the right to list guardedreleases.kubemoor.dev in the namespace asked for, or in all of them"
            }
            Self::Metrics => "the right to get the path /metrics (nonResourceURLs)",
        }
    }

    async fn is_given(self, client: &kube::Client, actor: &Actor) -> Result<bool, CallError> {
        match self {
            Self::Ledger { namespace } => {
                let (group, resource) = ("kubemoor.dev", "guardedreleases");
                let right = Right { verb: "list", group, resource, namespace, name: None };
                access::may(client, actor, &right).await
            }
            Self::Metrics => access::may_get(client, actor, METRICS).await,
        }
    }

    /// The refusal where the API server could not be asked.
    fn unasked(self, error: &dyn Display) -> Refusal {
        tracing::warn!(%error, "the API server cannot be asked who may read {}", self.what());
        Refusal::Unavailable(format!("the API server cannot be asked who may read {}", self.what()))
    }
}

/// The bearer token of a request. It is used for nothing but the question whose
/// it is.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, reason, message) = match self {
            Self::Unauthenticated(what) => {
                let takes =
                    "a bearer token that the API server takes, or a client certificate of the cluster";
                (StatusCode::UNAUTHORIZED, "Unauthorized", format!("reading {what} takes {takes}"))
            }
            Self::Forbidden(what, right) => {
                (StatusCode::FORBIDDEN, "Forbidden", format!("reading {what} takes {right}"))
            }
            Self::Malformed(why) => (StatusCode::BAD_REQUEST, "BadRequest", why),
            Self::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why),
        };
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": code.as_u16(), "reason": reason, "message": message,
        });
        let mut response = (code, Json(status)).into_response();
        if code == StatusCode::UNAUTHORIZED {
            let challenge = http::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
