//! The page as it runs in a cluster: for many visitors, each with their own token; the pod's own account is never used.
//!
//! A visitor without a proxy logs in by a form, which counts only in the browser that this server gave it to. The token
//! goes into an encrypted cookie and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Form, Router};
use http::{HeaderMap, StatusCode, header};
use hyper::body::Incoming;
use jiff::Timestamp;
use maud::html;
use tokio::time::interval;
use tower::Service as _;
use tracing::info;

use super::cluster::Settings as ClusterSettings;
use super::door::{Door, SentForm, is_of_another_site};
use super::html as write;
use super::routes::{of_clusters, router};
use super::visitor::{Entry, Visitor, hex};
use super::visitors::{self, COOKIE, LONGEST_TOKEN, Refused, SealError, Visitors, cookies};
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::callers;
use kubemoor_runtime::server::{self, Ending, Limits, Peer, TlsPort};

/// How often it is looked who has not come for long.
const TIDYING: Duration = Duration::from_secs(60);

/// What answers in flight get once the server is told to stop. An open page's stream never ends by itself.
const DRAIN: Duration = Duration::from_secs(5);

/// What the kubelet asks.
const PROBED: &str = "/livez";

/// The cookie by which a form of this page is told from one of another site.
const FORM_COOKIE: &str = "__Host-kubemoor-login";

/// The purpose of the mark on it.
const FORM: &str = "form of the login";

/// What is served.
pub struct Settings {
    /// The cluster; its token is each visitor's own.
    pub cluster: ClusterSettings,
    /// The names by which browsers call this server.
    pub hosts: Vec<String>,
    /// What cookies and forms are protected by; replicas share it.
    pub key: SigningKey,
}

/// Serves the page on `port` until `ending` tells it to stop.
///
/// # Errors
/// The key cannot encrypt cookies.
pub async fn serve(settings: Settings, port: TlsPort, ending: Ending) -> Result<(), SealError> {
    let Settings { cluster, hosts, key } = settings;
    let visitors = Arc::new(Visitors::new(cluster, key)?);
    let logout = Router::new().route("/logout", post(leave)).with_state(Arc::clone(&visitors));
    let own = of_clusters("").merge(logout);
    let open = Router::new().route("/login", get(login).post(enter)).with_state(Arc::clone(&visitors));
    let door = Arc::new(Door::in_cluster(hosts, Arc::clone(&visitors)));
    // Probes call the pod by its address.
    let router = router(door, "", own, open).route(PROBED, get(async || "ok"));
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
            visitors.tidy();
        }
    };
    tokio::select! {
        () = server::serve(port, answer, limits, ending) => Ok(()),
        () = tidying => Ok(()),
    }
}

/// The page that asks for a token.
async fn login(State(visitors): State<Arc<Visitors>>) -> Response {
    form(&visitors, StatusCode::OK, None)
}

/// Lets a visitor in by the token that they have pasted.
async fn enter(
    State(visitors): State<Arc<Visitors>>,
    headers: HeaderMap,
    Form(sent): Form<Vec<(String, String)>>,
) -> Response {
    let value = |name: &str| sent.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let own = cookies(&headers).find(|(name, _)| *name == FORM_COOKIE).map(|(_, number)| number);
    let is_own = own.is_some_and(|number| {
        let mark = mark(&visitors, number);
        verify_slices_are_equal(value("form").unwrap_or_default().as_bytes(), mark.as_bytes()).is_ok()
    });
    if !is_own || is_of_another_site(&headers) {
        return form(
            &visitors,
            StatusCode::FORBIDDEN,
            Some("This form is not from this page, or it is old."),
        );
    }
    let Some(token) = visitors::token(value("token").unwrap_or_default(), LONGEST_TOKEN) else {
        let why = format!(
            "This is no bearer token of at most {LONGEST_TOKEN} characters. For longer ones put an OIDC proxy before this page."
        );
        return form(&visitors, StatusCode::BAD_REQUEST, Some(&why));
    };
    match visitors.visitor(token.clone(), Entry::Login).await {
        Ok(visitor) => {
            info!(user = visitor.user.as_deref().unwrap_or_default(), "a visitor has logged in");
            match visitors.seal(&token, Timestamp::now()) {
                Ok(sealed) => {
                    let cookie = cookie(COOKIE, &sealed, "");
                    ([(header::SET_COOKIE, cookie)], Redirect::to("./")).into_response()
                }
                Err(error) => write::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            }
        }
        Err(Refused::Unknown | Refused::Malformed) => {
            form(&visitors, StatusCode::UNAUTHORIZED, Some("The cluster does not accept this token."))
        }
        Err(Refused::Away(why)) => form(&visitors, StatusCode::BAD_GATEWAY, Some(&why.to_string())),
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
    if visitor.entry == Entry::Login {
        info!(user = visitor.user.as_deref().unwrap_or_default(), "a visitor has logged out");
    }
    ([(header::SET_COOKIE, cookie(COOKIE, "", "; Max-Age=0"))], Redirect::to("login")).into_response()
}

fn form(visitors: &Visitors, status: StatusCode, trouble: Option<&str>) -> Response {
    let number = match callers::random_key() {
        Ok(key) => hex(key.as_bytes()),
        Err(error) => return write::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let page = write::plain(
        "Log in",
        &html! {
            h1 { "Kubemoor" }
            @if let Some(trouble) = trouble { (write::trouble(trouble)) }
            form.sheet method="post" action="login" {
                input type="hidden" name="form" value=(mark(visitors, &number));
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
    (status, [(header::SET_COOKIE, cookie(FORM_COOKIE, &number, "; Max-Age=3600"))], page).into_response()
}

fn mark(visitors: &Visitors, number: &str) -> String {
    hex(&visitors.mark(FORM, &[number.as_bytes()]))
}

/// A cookie for this host alone, which scripts cannot read and other sites cannot use.
fn cookie(name: &str, value: &str, rest: &str) -> String {
    format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{rest}")
}
