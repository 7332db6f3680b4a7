//! How a visitor logs in and out of a page that runs in a cluster.
//!
//! Entry points: [`page`], [`enter`], [`leave`]. Invariant: a session begins with an id that is drawn for it, and
//! only by a form that this server gave to the same browser; the token goes into the sealed cookie and nowhere else.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use http::header;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use maud::html;
use tracing::info;

use super::door;
use super::html as write;
use super::sent_form::SentForm;
use super::session::{LONGEST, Session};
use super::visitor::{Entry, Visitor, hex};
use super::visitors::{self, COOKIE, Refused, Visitors, cookies};
use kubemoor_runtime::callers;

/// The cookie by which a form of this page is told from one of another site.
const FORM_COOKIE: &str = "__Host-kubemoor-login";

/// The purpose of the mark on it.
const FORM: &str = "form of the login";

/// The page that asks for a token.
pub(super) async fn page(State(visitors): State<Arc<Visitors>>) -> Response {
    form(&visitors, StatusCode::OK, None)
}

/// Lets a visitor in by the token that they have pasted.
pub(super) async fn enter(
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
    if !is_own || door::is_of_another_site(&headers) {
        return form(
            &visitors,
            StatusCode::FORBIDDEN,
            Some("This form is not from this page, or it is old."),
        );
    }
    let Some(token) = visitors::token(value("token").unwrap_or_default(), LONGEST) else {
        let why = format!(
            "This is no bearer token of at most {LONGEST} characters. For longer ones put an OIDC proxy before this page."
        );
        return form(&visitors, StatusCode::BAD_REQUEST, Some(&why));
    };
    match visitors.visitor(token.clone(), Entry::Login).await {
        Ok(visitor) => {
            info!(user = visitor.user.as_deref().unwrap_or_default(), "a visitor has logged in");
            begun(&visitors, token)
        }
        Err(Refused::Unknown | Refused::Malformed) => {
            form(&visitors, StatusCode::UNAUTHORIZED, Some("The cluster does not accept this token."))
        }
        Err(Refused::Away(why)) => form(&visitors, StatusCode::BAD_GATEWAY, Some(&why.to_string())),
    }
}

/// Ends the visitor's session.
pub(super) async fn leave(
    State(visitors): State<Arc<Visitors>>,
    Extension(visitor): Extension<Arc<Visitor>>,
    Extension(session): Extension<Option<Session>>,
    _: SentForm,
) -> Response {
    if let Some(session) = session {
        visitors.end(&session).await;
        info!(user = visitor.user.as_deref().unwrap_or_default(), "a visitor has logged out");
    }
    ([(header::SET_COOKIE, cookie(COOKIE, "", "; Max-Age=0"))], Redirect::to("login")).into_response()
}

fn begun(visitors: &Visitors, token: secrecy::SecretString) -> Response {
    let session = Session::begin(token, Timestamp::now()).map_err(|error| error.to_string());
    let sealed = session.and_then(|it| visitors.seal(&it).map_err(|error| error.to_string()));
    match sealed {
        Ok(sealed) => {
            ([(header::SET_COOKIE, cookie(COOKIE, &sealed, ""))], Redirect::to("./")).into_response()
        }
        Err(why) => write::refusal(StatusCode::INTERNAL_SERVER_ERROR, &why),
    }
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
                    input type="password" name="token" required autofocus autocomplete="off" maxlength=(LONGEST);
                }
                button { "Log in" }
            }
            p.quiet {
                "For a service account " code { "kubectl create token NAME" } " prints one. The page shows and does what \
                 this token may, and forgets it when you log out, after 8 hours at the latest."
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
