//! The page in a cluster: for many visitors, each with their own token; the pod's own service account is never used.
//!
//! The token of a visitor comes in the Authorization header that a proxy sets, or in the encrypted cookie of a login,
//! which every replica with the key can decrypt. Data that was read with a token is cached for a while under the
//! token's keyed digest. It is shown for no other token, and only while the API server still accepts the token.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Form, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use hyper::body::Incoming;
use jiff::{SignedDuration, Timestamp};
use maud::html;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use tokio::time::interval;
use tower::Service as _;
use tracing::info;

use super::access_control::{AccessCheck, SentForm};
use super::html::{self as write, PageQuery};
use super::router;
use super::visitor::{LoginMethod, PageCluster, VisitedCluster, Visitor};
use kubemoor_cluster::client::connection::ClusterAccess;
use kubemoor_inspect::failure::InspectError;
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::server::{self, Limits, Peer, ServerShutdown, TlsPort};

/// How often idle visitors are evicted.
const TIDYING: Duration = Duration::from_secs(60);

/// Time for requests in flight after the stop signal. The event stream of an open page does not end earlier.
const DRAIN: Duration = Duration::from_secs(5);

const PROBED: &str = "/livez";

/// Serves the page on `port` until `ending` tells it to stop. Each visitor's own token replaces the one in `cluster`.
/// Browsers reach the server by the names `hosts`. The replicas share `key`, which protects cookies and forms.
///
/// # Errors
/// The key cannot encrypt cookies.
pub async fn serve(
    cluster: PageCluster,
    hosts: Vec<String>,
    key: SigningKey,
    port: TlsPort,
    ending: ServerShutdown,
) -> Result<(), SealError> {
    let visitors = Arc::new(Visitors::new(cluster, key)?);
    let logout = Router::new().route("/logout", post(handle_logout)).with_state(Arc::clone(&visitors));
    let login = get(async || form(StatusCode::OK, None)).post(handle_login);
    let open = Router::new().route("/login", login).with_state(Arc::clone(&visitors));
    let door = Arc::new(AccessCheck::in_cluster(hosts, Arc::clone(&visitors)));
    // Probes call the pod by its IP address, so this route is outside of the Host check.
    let router = router(door, "", true, logout, open).route(PROBED, get(async || "ok"));
    let answer = move |_: Peer, request: http::Request<Incoming>| {
        let mut router = router.clone();
        async move {
            let Ok(response) = router.call(request).await;
            response
        }
    };
    let limits = Limits { drain: DRAIN, ..Limits::default() };
    let tidying = async {
        let mut ticks = interval(TIDYING);
        loop {
            ticks.tick().await;
            // Evicts idle visitors, which ends their watches.
            visitors.known.run_pending_tasks();
        }
    };
    tokio::select! {
        () = server::serve(port, answer, limits, ending) => Ok(()),
        () = tidying => Ok(()),
    }
}

/// Logs a visitor in with the token that they pasted.
async fn handle_login(
    State(visitors): State<Arc<Visitors>>,
    Form(sent): Form<Vec<(String, String)>>,
) -> Response {
    let sent = PageQuery::new(sent);
    let Some(token) = parse_token(sent.get("token").unwrap_or_default(), LONGEST_TOKEN) else {
        let why = format!(
            "This is not a bearer token of at most {LONGEST_TOKEN} characters. For longer tokens, put an \
             OIDC proxy in front of this page."
        );
        return form(StatusCode::BAD_REQUEST, Some(&why));
    };
    match visitors.visitor(token.clone(), LoginMethod::Login).await {
        Ok(visitor) => {
            info!(user = visitor.user.as_deref().unwrap_or_default(), "user logged in");
            match visitors.seal(&token, Timestamp::now()) {
                Ok(sealed) => {
                    ([(header::SET_COOKIE, cookie(&sealed, ""))], Redirect::to("./")).into_response()
                }
                Err(error) => write::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            }
        }
        Err(AuthenticationError::Unknown | AuthenticationError::Malformed) => {
            form(StatusCode::UNAUTHORIZED, Some("The cluster does not accept this token."))
        }
        Err(AuthenticationError::Unavailable(why)) => form(StatusCode::BAD_GATEWAY, Some(&why.to_string())),
    }
}

/// Deletes the cookie in the visitor's browser. A stolen copy stays valid until the login or the token expires.
async fn handle_logout(
    State(visitors): State<Arc<Visitors>>,
    Extension(visitor): Extension<Arc<Visitor>>,
    headers: HeaderMap,
    _: SentForm,
) -> Response {
    visitors.log_out(&headers, Timestamp::now());
    if visitor.entry == LoginMethod::Login {
        info!(user = visitor.user.as_deref().unwrap_or_default(), "user logged out");
    }
    ([(header::SET_COOKIE, cookie("", "; Max-Age=0"))], Redirect::to("login")).into_response()
}

fn form(status: StatusCode, trouble: Option<&str>) -> Response {
    let page = write::plain(
        "Log in",
        &html! {
            h1 { "Kubemoor" }
            @if let Some(trouble) = trouble { (write::trouble(trouble)) }
            form.sheet method="post" action="login" {
                label { "Bearer token of the cluster"
                    input type="password" name="token" required autofocus autocomplete="off" maxlength=(LONGEST_TOKEN);
                }
                button { "Log in" }
            }
            p.quiet {
                "For a service account " code { "kubectl create token NAME" } " prints one. The page shows and does what \
                 this token may. Your browser keeps it, encrypted, until you log out, for at most 8 hours."
            }
        },
    );
    (status, page).into_response()
}

/// A cookie for this host alone that scripts cannot read and other sites cannot use.
fn cookie(value: &str, rest: &str) -> String {
    format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{rest}")
}

/// The cookie of a login. Because of the `__Host-` prefix, browsers accept it only from this host itself, so no other
/// host of the domain can set it.
pub(super) const COOKIE: &str = "__Host-kubemoor";

/// The maximum time of a login. The token may expire sooner.
const LOGIN: SignedDuration = SignedDuration::from_hours(8);

/// The longest token whose cookie fits into the 4096 bytes that browsers accept.
pub(super) const LONGEST_TOKEN: usize = 2900;

/// The limits of the cache of visitors: their number, the time since their last request, and the total time.
const MOST_VISITORS: u64 = 64;
const IDLE: Duration = Duration::from_secs(10 * 60);
const LONGEST_STAY: Duration = Duration::from_secs(60 * 60);

/// How long an authentication is valid before the API server is asked again.
const CONFIRMED: Duration = Duration::from_secs(15);

const ASKING: usize = 16;

const LONGEST_PROXY_TOKEN: usize = 16 << 10;

const SEALING_PURPOSE: &str = "cookie of a login";
const KNOWN_PURPOSE: &str = "place of a visitor";
const FORMS_PURPOSE: &str = "forms of a visitor";

pub(super) struct Visitors {
    settings: PageCluster,
    key: SigningKey,
    sealer: Sealer,
    known: Cache<[u8; 32], Arc<Visitor>>,
    asking: Semaphore,
}

struct Sealer(RandomizedNonceKey);

/// A token cannot be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cookie of the login cannot be encrypted")]
pub struct SealError;

/// Why a request is not authenticated.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthenticationError {
    /// There are no credentials, or the API server does not accept them.
    #[error("The cluster does not know you, or your login has ended.")]
    Unknown,
    /// The credentials are not a bearer token.
    #[error("The Authorization header of this request has no bearer token.")]
    Malformed,
    /// The API server could not be asked.
    #[error("{0}")]
    Unavailable(InspectError),
}

impl Visitors {
    /// The token in `settings` is replaced by each visitor's own. Replicas with the same key accept each other's
    /// cookies.
    pub(super) fn new(settings: PageCluster, key: SigningKey) -> Result<Self, SealError> {
        let sealer = Sealer::new(&key)?;
        let (known, asking) = (memory(MOST_VISITORS), Semaphore::new(ASKING));
        Ok(Self { settings, key, sealer, known, asking })
    }

    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Visitor>, AuthenticationError> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            // The proxy's token takes precedence over the browser's cookie.
            (Some(one), None) => {
                let token = bearer(one).ok_or(AuthenticationError::Malformed)?;
                self.visitor(token, LoginMethod::Proxy).await
            }
            (Some(_), Some(_)) => Err(AuthenticationError::Malformed),
            (None, _) => {
                let token = self.cookie_token(headers, now).ok_or(AuthenticationError::Unknown)?;
                self.visitor(token, LoginMethod::Login).await
            }
        }
    }

    pub(super) async fn visitor(
        &self,
        token: SecretString,
        entry: LoginMethod,
    ) -> Result<Arc<Visitor>, AuthenticationError> {
        let place = self.place(&token, entry);
        let known = self.known.get(&place);
        if let Some(visitor) = known.as_ref().filter(|it| it.is_confirmed_within(CONFIRMED)) {
            return Ok(Arc::clone(visitor));
        }
        let _turn = self.asking.acquire().await.map_err(|_| AuthenticationError::Unknown)?;
        let cluster = VisitedCluster::new(PageCluster {
            access: ClusterAccess { token: Some(token), ..self.settings.access.clone() },
            ..self.settings.clone()
        });
        let user = match cluster.ask_user().await {
            Ok(user) => user,
            Err(error) if error.is_unauthorized() => {
                self.forget(&place);
                return Err(AuthenticationError::Unknown);
            }
            Err(error) => return Err(AuthenticationError::Unavailable(error)),
        };
        let visitor = self.known.get_with(place, || {
            // The user stays the same when a token is renewed while a form is open.
            let whose = user.as_ref().map_or(place.as_slice(), |user| user.as_bytes());
            let forms = SigningKey::new(self.key.mark(FORMS_PURPOSE, &[whose]));
            Arc::new(Visitor::new(vec![cluster], entry, user, forms))
        });
        visitor.confirm();
        Ok(visitor)
    }

    pub(super) fn seal(&self, token: &SecretString, now: Timestamp) -> Result<String, SealError> {
        self.sealer.seal(token, now.checked_add(LOGIN).map_err(|_| SealError)?)
    }

    /// Forgets what was read with the token in the cookie, and tells open pages of the visitor to authenticate again.
    pub(super) fn log_out(&self, headers: &HeaderMap, now: Timestamp) {
        if let Some(token) = self.cookie_token(headers, now) {
            self.forget(&self.place(&token, LoginMethod::Login));
        }
    }

    /// Forgets a visitor whose login or token has ended, and notifies their open pages.
    fn forget(&self, place: &[u8; 32]) {
        if let Some(visitor) = self.known.remove(place) {
            visitor.notify_logout();
        }
    }

    fn place(&self, token: &SecretString, entry: LoginMethod) -> [u8; 32] {
        let way = [u8::from(entry == LoginMethod::Login)];
        self.key.mark(KNOWN_PURPOSE, &[&way, token.expose_secret().as_bytes()])
    }

    fn cookie_token(&self, headers: &HeaderMap, now: Timestamp) -> Option<SecretString> {
        let (_, value) = cookies(headers).find(|(name, _)| *name == COOKIE)?;
        self.sealer.open(value, now)
    }
}

impl Sealer {
    fn new(key: &SigningKey) -> Result<Self, SealError> {
        RandomizedNonceKey::new(&AES_256_GCM, &key.mark(SEALING_PURPOSE, &[]))
            .map(Self)
            .map_err(|_| SealError)
    }

    /// Encrypts a token with its expiry.
    fn seal(&self, token: &SecretString, until: Timestamp) -> Result<String, SealError> {
        let mut sealed = until.as_millisecond().to_be_bytes().to_vec();
        sealed.extend(token.expose_secret().as_bytes());
        let nonce = self.0.seal_in_place_append_tag(Aad::empty(), &mut sealed).map_err(|_| SealError)?;
        Ok(URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), sealed.as_slice()].concat()))
    }

    /// Decrypts a token; `None` if the text was changed or has expired.
    fn open(&self, text: &str, now: Timestamp) -> Option<SecretString> {
        let mut sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.0.open_in_place(nonce, Aad::empty(), sealed).ok()?;
        let (until, token) = opened.split_first_chunk()?;
        let until = Timestamp::from_millisecond(i64::from_be_bytes(*until)).ok()?;
        let token = std::str::from_utf8(token).ok()?;
        (now < until).then(|| token.to_owned().into())
    }
}

pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn parse_token(text: &str, longest: usize) -> Option<SecretString> {
    let is_token = |letter: u8| letter.is_ascii_graphic();
    let text = text.trim();
    (!text.is_empty() && text.len() <= longest && text.bytes().all(is_token)).then(|| text.to_owned().into())
}

/// A cache of at most `most` visitors; the least recently used one is evicted.
fn memory(most: u64) -> Cache<[u8; 32], Arc<Visitor>> {
    // The default policy of moka would not admit newcomers while others come often.
    let lru = EvictionPolicy::lru();
    Cache::builder()
        .max_capacity(most)
        .eviction_policy(lru)
        .time_to_idle(IDLE)
        .time_to_live(LONGEST_STAY)
        .build()
}

fn bearer(header: &HeaderValue) -> Option<SecretString> {
    let (scheme, text) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| parse_token(text, LONGEST_PROXY_TOKEN)).flatten()
}

#[cfg(test)]
mod tests;
