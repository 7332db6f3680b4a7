use super::*;

#[test]
fn a_moment_is_an_age_or_a_time() {
    let now: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
    let time = |text: &str| text.parse::<AgeOrTime>().map(|moment| moment.time(now).to_string());
    for (text, expected) in [
        ("24h", "2026-11-20T05:00:00Z"),
        ("90m", "2026-11-21T03:30:00Z"),
        ("30d", "2026-10-22T05:00:00Z"),
        ("2w", "2026-11-07T05:00:00Z"),
        ("1d12h", "2026-11-19T17:00:00Z"),
        ("2026-11-21T01:02:03Z", "2026-11-21T01:02:03Z"),
    ] {
        assert_eq!(time(text), Ok(expected.to_owned()), "{text}");
    }
    for text in ["", "yesterday", "24", "0s", "-1h", "1 fortnight", "1mo", "1y"] {
        assert!(time(text).is_err(), "{text}");
    }
}

#[test]
fn a_duration_is_positive_and_may_have_days() {
    let day = 24 * 3600;
    for (text, seconds) in [("1h", 3600), ("1h 30m", 5400), ("30d", 30 * day), ("2160h", 90 * day)] {
        assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
    }
    for text in ["", "soon", "0s", "-1h", "1mo"] {
        assert!(parse_duration(text).unwrap_err().contains("such as 1h, 90m or 30d"), "{text}");
    }
}
