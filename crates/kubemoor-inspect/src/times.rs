//! Parses times such as `30d`, `2h`, `1h 30m`, or a timestamp. A day has 24 hours, a week seven days; months and years,
//! whose length varies, are rejected.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeOrTime {
    Ago(Duration),
    At(Timestamp),
}

impl AgeOrTime {
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

impl FromStr for AgeOrTime {
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

pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let form = "a duration must be a positive time such as 1h, 90m or 30d";
    positive(text).map_err(|error| format!("{form}: {error}"))?.ok_or_else(|| form.to_owned())
}

fn positive(text: &str) -> Result<Option<Duration>, jiff::Error> {
    let span: Span = text.parse()?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours())?;
    Ok(Duration::try_from(signed).ok().filter(|duration| !duration.is_zero()))
}

#[cfg(test)]
mod tests;
