use super::*;

#[test]
fn requests_of_other_sites_are_told_by_what_browsers_say() {
    let is_other = |pairs: &[(&'static str, &'static str)]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        is_of_another_site(&pairs.collect())
    };
    let host = ("host", "ui.example:8443");
    for own in [
        vec![host],
        vec![host, ("sec-fetch-site", "same-origin")],
        vec![host, ("origin", "https://ui.example:8443")],
    ] {
        assert!(!is_other(&own), "{own:?}");
    }
    for other in [
        vec![host, ("sec-fetch-site", "same-site")],
        vec![host, ("sec-fetch-site", "none")],
        vec![host, ("origin", "https://ui.example")],
        vec![host, ("origin", "https://evil.example:8443")],
        vec![host, ("origin", "null")],
        vec![("origin", "https://ui.example:8443")],
    ] {
        assert!(is_other(&other), "{other:?}");
    }
}

#[test]
fn ports_are_no_part_of_a_name() {
    for (host, name) in [
        ("ui.example", "ui.example"),
        ("ui.example:8443", "ui.example"),
        ("[::1]:1", "[::1]"),
        ("[::1]", "[::1]"),
    ] {
        assert_eq!(without_port(host), name);
    }
}
