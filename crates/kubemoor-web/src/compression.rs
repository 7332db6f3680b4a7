//! Pages in fewer bytes.
//!
//! Entry point: [`compress`]. Invariant: only pages are compressed, and only for browsers that ask for it; everything
//! else, such as a stream, stays as it is. No secret is on two pages as the same text, so that lengths reveal
//! nothing of it.

use std::io::{self, Write as _};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{self, HeaderMap, HeaderValue};

/// The largest page; none is.
const MOST: usize = 8 << 20;

/// Whether the browser that sent these headers reads gzip.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|it| it.to_str().ok());
    accepted.flat_map(|it| it.split(',')).any(|encoding| {
        let mut parts = encoding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|quality| matches!(quality, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// The same answer, with its page compressed.
///
/// # Errors
/// The page cannot be read.
pub(super) async fn compress(response: Response) -> Result<Response, axum::Error> {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/html")) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let page = to_bytes(body, MOST).await?;
    let page = gzip(&page).map_err(axum::Error::new)?;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    Ok(Response::from_parts(parts, Body::from(page)))
}

fn gzip(page: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(page)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_for_whoever_asks_for_it() {
        for (text, accepted) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("br, gzip, *", true),
            ("", false),
            ("br", false),
            ("gzip;q=0", false),
            ("gzip; q=0.0, br", false),
            ("xgzip", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_str(text).unwrap())]);
            assert_eq!(is_accepted(&headers), accepted, "{text}");
        }
    }
}
