//! The page as it runs in a cluster: for many visitors, each with their own token; the pod's own account is never used.
//!
//! A request shows its visitor's token in the header of a proxy, or in the encrypted cookie of a login, which every replica
//! with the key can open. What was read for a token is remembered for a while, under the token's keyed digest, so that
//! pages are quick and follow the cluster; it is shown for no other token, and only while the API server still knows whose
//! the token is.

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

use super::door::{AccessCheck, SentForm};
use super::html::{self as write, PageQuery};
use super::router;
use super::visitor::{LoginMethod, PageCluster, VisitedCluster, Visitor};
use kubemoor_cluster::client::connection::ClusterAccess;
use kubemoor_inspect::failure::InspectError;
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::server::{self, Limits, Peer, ServerShutdown, TlsPort};

/// How often it is looked who has not come for long.
const TIDYING: Duration = Duration::from_secs(60);

/// What answers in flight get once the server is told to stop. An open page's stream never ends by itself.
const DRAIN: Duration = Duration::from_secs(5);

const PROBED: &str = "/livez";

/// Serves the page on `port` until `ending` tells it to stop. The token of `cluster` is each visitor's own, browsers call
/// this server by the names `hosts`, and `key`, which replicas share, protects cookies and forms.
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
    let logout = Router::new().route("/logout", post(leave)).with_state(Arc::clone(&visitors));
    let login = get(async || form(StatusCode::OK, None)).post(enter);
    let open = Router::new().route("/login", login).with_state(Arc::clone(&visitors));
    let door = Arc::new(AccessCheck::in_cluster(hosts, Arc::clone(&visitors)));
    // Probes call the pod by its address.
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
            // Forgets who has not looked for long, and ends their watches.
            visitors.known.run_pending_tasks();
        }
    };
    tokio::select! {
        () = server::serve(port, answer, limits, ending) => Ok(()),
        () = tidying => Ok(()),
    }
}

/// Lets a visitor in by the token that they have pasted.
async fn enter(State(visitors): State<Arc<Visitors>>, Form(sent): Form<Vec<(String, String)>>) -> Response {
    let sent = PageQuery::new(sent);
    let Some(token) = parse_token(sent.get("token").unwrap_or_default(), LONGEST_TOKEN) else {
        let why = format!(
            "This is no bearer token of at most {LONGEST_TOKEN} characters. For longer ones put an OIDC proxy before this page."
        );
        return form(StatusCode::BAD_REQUEST, Some(&why));
    };
    match visitors.visitor(token.clone(), LoginMethod::Login).await {
        Ok(visitor) => {
            info!(user = visitor.user.as_deref().unwrap_or_default(), "a visitor has logged in");
            match visitors.seal(&token, Timestamp::now()) {
                Ok(sealed) => {
                    ([(header::SET_COOKIE, cookie(&sealed, ""))], Redirect::to("./")).into_response()
                }
                Err(error) => write::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            }
        }
        Err(Refused::Unknown | Refused::Malformed) => {
            form(StatusCode::UNAUTHORIZED, Some("The cluster does not accept this token."))
        }
        Err(Refused::Away(why)) => form(StatusCode::BAD_GATEWAY, Some(&why.to_string())),
    }
}

/// Has the visitor's browser forget the cookie. A copy of it elsewhere counts until its time or its token ends.
async fn leave(
    State(visitors): State<Arc<Visitors>>,
    Extension(visitor): Extension<Arc<Visitor>>,
    headers: HeaderMap,
    _: SentForm,
) -> Response {
    visitors.log_out(&headers, Timestamp::now());
    if visitor.entry == LoginMethod::Login {
        info!(user = visitor.user.as_deref().unwrap_or_default(), "a visitor has logged out");
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

/// The cookie for this host alone, which scripts cannot read and other sites cannot use.
fn cookie(value: &str, rest: &str) -> String {
    format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{rest}")
}

/// The cookie of a login. By its prefix a browser takes it from this host alone, encrypted, for all paths: no other
/// host of the domain can plant one.
pub(super) const COOKIE: &str = "__Host-kubemoor";

/// How long a login lasts at most. The token may end sooner.
const LOGIN: SignedDuration = SignedDuration::from_hours(8);

/// The longest token that fits into a cookie of 4096 bytes, which is what browsers keep.
pub(super) const LONGEST_TOKEN: usize = 2900;

/// The most visitors whose clusters are followed, and for how long after they have looked last, and at all.
const MOST_VISITORS: u64 = 64;
const IDLE: Duration = Duration::from_secs(10 * 60);
const LONGEST_STAY: Duration = Duration::from_secs(60 * 60);

/// For how long it is believed who a visitor is.
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

/// Why somebody is not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// They show nothing by which they are known, or nothing that the API server accepts.
    #[error("The cluster does not know you, or your login has ended.")]
    Unknown,
    /// What they show is no bearer token.
    #[error("The Authorization header of this request holds no bearer token.")]
    Malformed,
    /// It cannot be told who they are.
    #[error("{0}")]
    Away(InspectError),
}

impl Visitors {
    /// The visitors of a cluster; the token in `settings` is each visitor's own. Replicas with one key open each
    /// other's cookies.
    pub(super) fn new(settings: PageCluster, key: SigningKey) -> Result<Self, SealError> {
        let sealer = Sealer::new(&key)?;
        let (known, asking) = (memory(MOST_VISITORS), Semaphore::new(ASKING));
        Ok(Self { settings, key, sealer, known, asking })
    }

    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Visitor>, Refused> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            // What a proxy says counts, whatever the browser remembers.
            (Some(one), None) => {
                let token = bearer(one).ok_or(Refused::Malformed)?;
                self.visitor(token, LoginMethod::Proxy).await
            }
            (Some(_), Some(_)) => Err(Refused::Malformed),
            (None, _) => {
                let token = self.cookie_token(headers, now).ok_or(Refused::Unknown)?;
                self.visitor(token, LoginMethod::Login).await
            }
        }
    }

    pub(super) async fn visitor(
        &self,
        token: SecretString,
        entry: LoginMethod,
    ) -> Result<Arc<Visitor>, Refused> {
        let place = self.place(&token, entry);
        let known = self.known.get(&place);
        if let Some(visitor) = known.as_ref().filter(|it| it.is_confirmed_within(CONFIRMED)) {
            return Ok(Arc::clone(visitor));
        }
        let _turn = self.asking.acquire().await.map_err(|_| Refused::Unknown)?;
        let cluster = VisitedCluster::new(PageCluster {
            access: ClusterAccess { token: Some(token), ..self.settings.access.clone() },
            ..self.settings.clone()
        });
        let user = match cluster.ask_user().await {
            Ok(user) => user,
            Err(error) if error.is_unauthorized() => {
                self.forget(&place);
                return Err(Refused::Unknown);
            }
            Err(error) => return Err(Refused::Away(error)),
        };
        let visitor = self.known.get_with(place, || {
            // Tokens are renewed while a form is open; who sends it stays the same.
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

    /// Forgets what was read for the token in the cookie, and tells open pages of the visitor to ask again.
    pub(super) fn log_out(&self, headers: &HeaderMap, now: Timestamp) {
        if let Some(token) = self.cookie_token(headers, now) {
            self.forget(&self.place(&token, LoginMethod::Login));
        }
    }

    /// Forgets a visitor whose login or token has ended, and tells their open pages.
    fn forget(&self, place: &[u8; 32]) {
        if let Some(visitor) = self.known.remove(place) {
            visitor.end();
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

    /// A token as text that only this key opens, and only until then.
    fn seal(&self, token: &SecretString, until: Timestamp) -> Result<String, SealError> {
        let mut sealed = until.as_millisecond().to_be_bytes().to_vec();
        sealed.extend(token.expose_secret().as_bytes());
        let nonce = self.0.seal_in_place_append_tag(Aad::empty(), &mut sealed).map_err(|_| SealError)?;
        Ok(URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), sealed.as_slice()].concat()))
    }

    /// The token that was sealed, if the text is unchanged and its time is not over.
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

/// What remembers so many visitors. One more takes the place of the one who has not looked for longest.
fn memory(most: u64) -> Cache<[u8; 32], Arc<Visitor>> {
    // The default policy would not remember newcomers while others come often.
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
