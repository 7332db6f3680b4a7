//! What is stored of the callers' secret, and how a token follows another.
//!
//! Entry point: [`Kept`]. Invariant: at any time two tokens are accepted at
//! most, and the one that the address carries is always one of them: a new one
//! is announced, so that every replica accepts it, then registered, and the one
//! before goes when no registration carries it any more. When each step is due
//! is reported by the part that keeps the registration.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CallerToken, Callers, RandomError, random_key};
use kubemoor_policy::signing::SigningKey;

/// The callers' secret as replicas share it.
#[derive(Clone, Debug)]
pub struct Kept {
    registered: CallerToken,
    turn: Turn,
    /// When the registered token, or the turn, began.
    since: Timestamp,
    signing: SigningKey,
}

/// The stage of the next token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is none.
    None,
    /// It is accepted, and not registered yet.
    Announced(CallerToken),
    /// It is registered; this is the one before.
    Replaced(CallerToken),
}

/// The stored form. Not `Debug`.
#[derive(Serialize, Deserialize)]
struct Document {
    registered: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    since: Timestamp,
    signing: String,
}

impl Kept {
    /// The first one.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn random(now: Timestamp) -> Result<Self, RandomError> {
        let (registered, signing) = (CallerToken::random()?, random_key()?);
        Ok(Self { registered, turn: Turn::None, since: now, signing })
    }

    /// Parses the stored form; `None` if [`Kept::text`] did not write it.
    pub fn parse(text: &str) -> Option<Self> {
        let document: Document = serde_json::from_str(text).ok()?;
        let token =
            |text: Option<String>| text.map(|text| CallerToken::parse(&text).ok_or(())).transpose().ok();
        let turn = match (token(document.next)?, token(document.previous)?) {
            (None, None) => Turn::None,
            (Some(next), None) => Turn::Announced(next),
            (None, Some(previous)) => Turn::Replaced(previous),
            (Some(_), Some(_)) => return None,
        };
        let signing: [u8; super::BYTES] = STANDARD.decode(document.signing).ok()?.try_into().ok()?;
        let registered = CallerToken::parse(&document.registered)?;
        Some(Self { registered, turn, since: document.since, signing: SigningKey::new(signing) })
    }

    /// The text to store.
    pub fn text(&self) -> String {
        let text = |token: &CallerToken| Some(token.expose().to_owned());
        let document = Document {
            registered: self.registered.expose().to_owned(),
            next: if let Turn::Announced(next) = &self.turn { text(next) } else { None },
            previous: if let Turn::Replaced(previous) = &self.turn { text(previous) } else { None },
            since: self.since,
            signing: STANDARD.encode(self.signing.as_bytes()),
        };
        // Texts and a time are always written.
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// The stage of the next token.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Whether both hold the same tokens in the same roles.
    pub fn stands_as(&self, other: &Self) -> bool {
        self.registered == other.registered && self.turn == other.turn
    }

    /// Whether the registered token is at least `life` old. A creation time in the future counts as due,
    /// because the token's age is unknown.
    pub fn is_due(&self, now: Timestamp, life: Duration) -> bool {
        let age = now.duration_since(self.since);
        self.turn == Turn::None && (age.is_negative() || age.unsigned_abs() >= life)
    }

    /// This with a new token that is accepted from now on, unless one is on its
    /// way.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn announced(&self, now: Timestamp) -> Result<Self, RandomError> {
        let mut kept = self.clone();
        if kept.turn == Turn::None {
            (kept.turn, kept.since) = (Turn::Announced(CallerToken::random()?), now);
        }
        Ok(kept)
    }

    /// The next step after an announcement, and after a replacement: the new token is registered, or the old
    /// one is no longer accepted.
    pub fn advanced(&self, now: Timestamp) -> Self {
        let (registered, turn) = match &self.turn {
            Turn::None => return self.clone(),
            Turn::Announced(next) => (next.clone(), Turn::Replaced(self.registered.clone())),
            Turn::Replaced(_) => (self.registered.clone(), Turn::None),
        };
        Self { registered, turn, since: now, signing: self.signing.clone() }
    }

    /// Has its key be the one to sign by.
    pub fn sign(&self, callers: &Callers) {
        callers.sign_by(self.signing.clone());
    }

    /// Has its tokens be the ones that are accepted.
    pub fn admit(&self, callers: &Callers) {
        let other = match &self.turn {
            Turn::None => None,
            Turn::Announced(token) | Turn::Replaced(token) => Some(token.clone()),
        };
        callers.accept(self.registered.clone(), other);
    }
}
