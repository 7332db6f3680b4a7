//! The files that pages load: one style, one script.
//!
//! Entry points: [`style`], [`script`]. Invariant: they are part of the program, and hold nothing of anybody.

use axum::response::IntoResponse;
use http::header;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The style.
pub(super) async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=300")], STYLE)
}

/// The script, without which every page works as well.
pub(super) async fn script() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, "max-age=300")],
        SCRIPT,
    )
}
