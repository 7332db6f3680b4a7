use super::*;

#[test]
fn a_pause_is_seconds_or_a_date_and_bounded() {
    let now: Timestamp = "2026-11-23T10:00:00Z".parse().unwrap();
    for (text, expected) in [
        ("30", Some(30)),
        (" 30 ", Some(30)),
        ("0", Some(0)),
        ("86400", Some(300)),
        ("Mon, 23 Nov 2026 10:01:00 GMT", Some(60)),
        // It has passed.
        ("Mon, 23 Nov 2026 09:00:00 GMT", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
    ] {
        assert_eq!(pause(text, now), expected.map(Duration::from_secs), "{text:?}");
    }
}
