//! A form that a visitor has sent from a page of theirs.
//!
//! Entry point: [`SentForm`], which handlers take as an argument. Invariant: a handler that takes one runs only
//! if the form holds the visitor's own token. Must not read what else the form says.

use std::sync::Arc;

use axum::Form;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};

use super::address::Asked;
use super::html;
use super::visitor::Visitor;

/// What a form of the visitor's own asks for.
pub(super) struct SentForm(pub(super) Asked);

impl<S: Send + Sync> FromRequest<S> for SentForm {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let visitor = request.extensions().get::<Arc<Visitor>>().cloned();
        let form = Form::<Vec<(String, String)>>::from_request(request, state).await;
        let asked = Asked::of(form.map_err(IntoResponse::into_response)?.0);
        let token = asked.get("token").unwrap_or_default();
        match visitor.is_some_and(|visitor| visitor.is_form_token(token)) {
            true => Ok(Self(asked)),
            false => Err(html::refuse_form()),
        }
    }
}
