//! Times as people write them: `30d`, `2h`, `1h 30m`, or a moment.
//!
//! Entry points: [`parse_duration`], [`Moment`]. Invariant: a day has 24 hours, a week seven days;
//! months and years, whose length depends on when, are refused.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

/// An age, or a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// So long ago.
    Ago(Duration),
    /// Then.
    At(Timestamp),
}

impl Moment {
    /// The moment, seen from `now`.
    pub fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(age) => {
                let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
                now.checked_sub(age).unwrap_or(Timestamp::MIN)
            }
        }
    }
}

impl FromStr for Moment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(time) = text.parse() {
            return Ok(Self::At(time));
        }
        positive(text).ok().flatten().map(Self::Ago).ok_or(
            "give a time back from now, such as 30d, 24h or 90m, or a moment, such as 2026-11-21T08:00:00Z",
        )
    }
}

/// A positive time.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let form = "a duration is a positive time such as 1h, 90m or 30d";
    positive(text).map_err(|error| format!("{form}: {error}"))?.ok_or_else(|| form.to_owned())
}

/// The time that `text` says, if it is positive.
fn positive(text: &str) -> Result<Option<Duration>, jiff::Error> {
    let span: Span = text.parse()?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours())?;
    Ok(Duration::try_from(signed).ok().filter(|duration| !duration.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_age_or_a_time() {
        let now: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
        let time = |text: &str| text.parse::<Moment>().map(|moment| moment.time(now).to_string());
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
}
