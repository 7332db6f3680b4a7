//! The request for an allowance in an object's annotations.
//!
//! Entry point: [`Request::read`]. Invariant: a request with a flaw has no effect, not even in part.

use jiff::Timestamp;

use super::super::flaw::{Flaw, FlawReason, Flaws};
use super::super::grant::Grant;
use super::{MAX_REASON, bounded, granted, time};
use kubemoor_declare::model::{ALLOW, ALLOW_REASON, ALLOW_UNTIL};

/// The request in annotations.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The requested changes.
    pub grant: Grant,
    /// The end.
    pub until: Option<Timestamp>,
    /// The reason.
    pub reason: Option<String>,
}

impl Request {
    /// Reads the texts of the three annotations.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn read(allow: &str, until: Option<&str>, reason: Option<&str>) -> Result<Self, Vec<Flaw>> {
        let mut flaws = Flaws::default();
        let paths: Vec<&str> = split(allow).into_iter().map(str::trim).filter(|it| !it.is_empty()).collect();
        let grant = granted(paths.iter().copied(), paths.len(), ALLOW, &mut flaws);
        let until = until.and_then(|until| time(until.trim(), ALLOW_UNTIL, None, &mut flaws));
        if reason.is_some_and(|reason| reason.len() > MAX_REASON) {
            let message = format_args!("the reason is longer than {MAX_REASON} bytes");
            flaws.add(ALLOW_REASON, FlawReason::InvalidValue, message);
        }
        flaws.or(Self { grant, until, reason: reason.map(str::to_owned) })
    }

    /// The end of an allowance that a person requests at `now`.
    ///
    /// # Errors
    /// It does not say so, or what it says is past or too far off.
    pub fn until_from(&self, now: Timestamp) -> Result<Timestamp, Flaw> {
        let flaw = |reason, message: String| Flaw { field: ALLOW_UNTIL.to_owned(), reason, message };
        let until = self.until.ok_or_else(|| {
            let message = "say until when, such as 2026-12-24T18:00:00Z".to_owned();
            flaw(FlawReason::Missing, message)
        })?;
        if until <= now {
            return Err(flaw(FlawReason::InvalidTime, format!("{until} is past already")));
        }
        bounded(until, now).map_err(|message| flaw(FlawReason::TooFar, message))
    }
}

/// The parts between commas outside of brackets: `[a=1,b=2]` is one segment.
fn split(text: &str) -> Vec<&str> {
    let (mut bracketed, mut quoted, mut escaped, mut before) = (false, false, false, ' ');
    text.split(|c: char| {
        let splits = c == ',' && !bracketed;
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' if bracketed => quoted = !quoted,
            '[' if before == '/' => bracketed = true,
            ']' if !quoted => bracketed = false,
            _ => {}
        }
        before = c;
        splits
    })
    .collect()
}
