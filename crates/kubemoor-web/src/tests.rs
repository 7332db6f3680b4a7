use super::*;

#[test]
fn pages_alone_are_compressed() {
    for (kind, expected) in [
        ("text/html; charset=utf-8", true),
        ("text/event-stream", false),
        ("text/csv; charset=utf-8", false),
        ("application/x-ndjson; charset=utf-8", false),
    ] {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static(kind))]);
        let is_compressed = is_page(StatusCode::OK, Version::HTTP_11, &headers, &Extensions::new());
        assert_eq!(is_compressed, expected, "{kind}");
    }
}
