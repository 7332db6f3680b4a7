//! Interprets a receiver's answer.
//!
//! Entry points: [`Attempt::of`], [`excerpt`], [`reason`]. Invariant: no text holds the URL or another
//! credential of the notifier. Only a short start of an answer is read.

use std::time::Duration;

use http::header::RETRY_AFTER;
use jiff::Timestamp;

use crate::file::Notifier;
use crate::words::tame;

/// The longest pause that a receiver may ask for.
const LONGEST: Duration = Duration::from_secs(300);

/// The most bytes of an answer that are read, and characters that are shown.
const READ: usize = 2048;
const SHOWN: usize = 200;

/// The result of one attempt.
pub(super) enum Attempt {
    Taken,
    /// Another attempt may help, after at least this pause.
    Later(String, Duration),
    /// It does not.
    Never(String),
}

impl Attempt {
    /// The meaning of an answer.
    pub(super) async fn of(answer: reqwest::Response, notifier: &Notifier) -> Self {
        let code = answer.status().as_u16();
        if answer.status().is_success() {
            return Self::Taken;
        }
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let pause = after.and_then(|text| pause(text, Timestamp::now())).unwrap_or_default();
        let front = excerpt(answer, notifier).await;
        let why = match front.is_empty() {
            true => format!("it answers {code}"),
            false => format!("it answers {code}: {front}"),
        };
        match code {
            408 | 425 | 429 | 500.. => Self::Later(why, pause),
            _ => Self::Never(why),
        }
    }
}

/// The front of an answer, on one line.
pub(super) async fn excerpt(mut answer: reqwest::Response, notifier: &Notifier) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < READ
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(READ);
    let text = notifier.without_secrets(&String::from_utf8_lossy(&bytes));
    tame(text.trim(), SHOWN)
}

/// The reason of a failure, without the URL: it may hold a token.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the request failed"
    };
    let mut cause = std::error::Error::source(error);
    let mut innermost = None;
    while let Some(next) = cause {
        innermost = Some(next.to_string());
        cause = next.source();
    }
    innermost.map_or_else(|| what.to_owned(), |innermost| format!("{what}: {innermost}"))
}

/// The pause that `Retry-After` asks for: seconds, or a date.
fn pause(text: &str, now: Timestamp) -> Option<Duration> {
    let seconds = text.trim().parse().ok().map(Duration::from_secs);
    let date = || {
        let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
        Duration::try_from(date.duration_since(now)).ok()
    };
    seconds.or_else(date).map(|pause| pause.min(LONGEST))
}

#[cfg(test)]
mod tests {
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
}
