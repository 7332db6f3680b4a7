//! The times for asking the API server again about kinds that it did not serve.
//!
//! Entry points: [`Attempts`] for open questions, [`Discovery`] for the list of all kinds. Invariant: no hot
//! loop, however many kinds are never served; and these never delay a new kind. Pure state.

use std::time::Duration;

use tokio::time::Instant;

/// How long changes of CustomResourceDefinitions are gathered: a new one changes several times before it is
/// served.
pub(super) const SETTLING: Duration = Duration::from_secs(1);

/// Discovery is not repeated sooner than this for the sake of unknown kinds,
/// unless a definition came.
const REDISCOVERY: Duration = Duration::from_secs(10);

/// The longest pause between attempts to learn of a kind.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The longest pause while a known kind is not found: objects that were guarded are not, as long as that lasts.
const LONGEST_DOUBT: Duration = Duration::from_secs(60);

/// After so many attempts, about a quarter of an hour, the kind is probably gone for good.
const DOUBTS: u32 = 20;

/// What is left after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// All is known.
    Nothing,
    /// Kinds that are not known completely.
    Owed,
    /// Kinds that are known and not found.
    Doubts,
}

/// When what is owed is tried again.
#[derive(Debug)]
pub(super) struct Attempts {
    pause: Duration,
    /// Attempts since the last new question.
    tries: u32,
    at: Option<Instant>,
}

/// When all kinds were listed, and whether there may be others by now.
#[derive(Debug)]
pub(super) struct Discovery {
    at: Instant,
    outdated: bool,
}

impl Attempts {
    /// With nothing owed.
    pub(super) fn none() -> Self {
        Self { pause: SETTLING, tries: 0, at: None }
    }

    /// Another kind is owed: it does not wait for those that were tried often.
    pub(super) fn owe(&mut self, now: Instant) {
        (self.pause, self.tries) = (SETTLING, 0);
        let soon = now + SETTLING;
        self.at = Some(self.at.map_or(soon, |at| at.min(soon)));
    }

    /// An attempt was made, and this is left.
    pub(super) fn tried(&mut self, left: Left, now: Instant) {
        self.tries = self.tries.saturating_add(1);
        let is_urgent = left == Left::Doubts && self.tries < DOUBTS;
        let longest = if is_urgent { LONGEST_DOUBT } else { LONGEST_PAUSE };
        self.pause = (self.pause * 2).min(longest);
        self.at = (left != Left::Nothing).then(|| now + self.pause);
    }

    /// When the next one is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.at
    }
}

impl Discovery {
    /// All kinds are listed now.
    pub(super) fn made(now: Instant) -> Self {
        Self { at: now, outdated: false }
    }

    /// A definition came or changed.
    pub(super) fn outdate(&mut self) {
        self.outdated = true;
    }

    /// Whether to list them again, for a kind that is not among them.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.outdated || now.duration_since(self.at) > REDISCOVERY
    }
}

#[cfg(test)]
mod tests;
