//! Authenticates the callers of the webhook: the tokens in its registered address, from a file or kept by the guard, and
//! the key with which the guard's replicas sign.
//!
//! Neither a token nor the key reaches a log, a message or an error: `Debug` hides them, and only
//! [`CallerToken::expose`], [`SharedCallerSecret::text`] and [`SigningKey::as_bytes`] show them. The duration of a comparison reveals
//! nothing to a caller.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use kubemoor_policy::signing::{SigningKey, hex};

const BYTES: usize = 32;

/// The allowed length of a token. A token is a segment of a Service's path, which the API server requires to be a DNS
/// name; hence the letters that [`CallerToken::parse`] accepts.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=128;

/// How often a file of tokens is read, and the most bytes that are read of it.
const CHECK_EVERY: Duration = Duration::from_secs(5);
const CAP: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the operating system gives no random bytes")]
pub struct RandomError;

/// The token that authenticates the API server: a segment of the webhook's address.
#[derive(Clone, Debug)]
pub struct CallerToken(SecretString);

#[derive(Clone, Debug, Default)]
pub struct CallerSecret {
    /// The token of the address that is to be registered.
    registered: Option<CallerToken>,
    /// The token that comes, or the one that goes.
    other: Option<CallerToken>,
    signing: Option<SigningKey>,
}

/// The current [`CallerSecret`]. Clones share it. No caller is admitted until one of them receives a token.
#[derive(Clone, Debug, Default)]
pub struct CallerSecrets(watch::Sender<CallerSecret>);

impl CallerToken {
    pub fn random() -> Result<Self, RandomError> {
        Ok(Self(hex(&random::<BYTES>()?).into()))
    }

    /// The token that `text` is: 32 to 128 lower-case letters and digits.
    pub fn parse(text: &str) -> Option<Self> {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        (LENGTHS.contains(&text.len()) && text.bytes().all(known)).then(|| Self(text.to_owned().into()))
    }

    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Compares `token` with this one. The duration depends on the lengths alone.
    fn is(&self, token: &[u8]) -> bool {
        verify_slices_are_equal(self.expose().as_bytes(), token).is_ok()
    }
}

impl PartialEq for CallerToken {
    fn eq(&self, other: &Self) -> bool {
        self.is(other.expose().as_bytes())
    }
}

impl Eq for CallerToken {}

impl CallerSecret {
    /// Whether a caller with `token` is admitted. Both tokens are always compared.
    pub fn admits(&self, token: &[u8]) -> bool {
        let is = |known: &Option<CallerToken>| known.as_ref().is_some_and(|known| known.is(token));
        is(&self.registered) | is(&self.other)
    }

    /// The token of the address to register; `None` until it is known.
    pub fn registered(&self) -> Option<&CallerToken> {
        self.registered.as_ref()
    }

    /// The key with which all replicas sign; `None` until it is known. It does not change while the secret exists.
    pub fn signing(&self) -> Option<&SigningKey> {
        self.signing.as_ref()
    }
}

impl CallerSecrets {
    /// Whether a caller with `token` is admitted.
    pub fn admits(&self, token: &[u8]) -> bool {
        self.0.borrow().admits(token)
    }

    pub fn secret(&self) -> CallerSecret {
        self.0.borrow().clone()
    }

    pub fn changes(&self) -> watch::Receiver<CallerSecret> {
        self.0.subscribe()
    }

    /// Accepts these tokens from now on; the first of them is registered.
    pub fn accept(&self, registered: CallerToken, other: Option<CallerToken>) {
        self.0.send_if_modified(|secret| {
            let changes = secret.registered.as_ref() != Some(&registered) || secret.other != other;
            (secret.registered, secret.other) = (Some(registered), other);
            changes
        });
    }

    /// The key that all replicas sign by, once it is known.
    pub async fn signing(&self) -> SigningKey {
        let mut changes = self.changes();
        loop {
            if let Some(key) = changes.borrow_and_update().signing() {
                return key.clone();
            }
            // `self` holds the sender, so this cannot fail.
            let _ = changes.changed().await;
        }
    }

    pub fn sign_by(&self, key: SigningKey) {
        self.0.send_if_modified(|secret| {
            let same = secret
                .signing
                .as_ref()
                .is_some_and(|known| verify_slices_are_equal(known.as_bytes(), key.as_bytes()).is_ok());
            secret.signing = Some(key);
            !same
        });
    }
}

pub fn random_key() -> Result<SigningKey, RandomError> {
    random().map(SigningKey::new)
}

/// Bytes of the crypto provider that TLS uses too.
pub fn random<const COUNT: usize>() -> Result<[u8; COUNT], RandomError> {
    let mut bytes = [0; COUNT];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// The callers' secret as replicas share it.
#[derive(Clone, Debug)]
pub struct SharedCallerSecret {
    registered: CallerToken,
    turn: NextToken,
    /// When the registered token, or the turn, began.
    since: Timestamp,
    signing: SigningKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextToken {
    None,
    /// It is accepted, and not registered yet.
    Announced(CallerToken),
    /// It is registered; this is the one before.
    Replaced(CallerToken),
}

/// The stored form. Not `Debug`.
#[derive(Serialize, Deserialize)]
struct StoredSecret {
    registered: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    since: Timestamp,
    signing: String,
}

impl SharedCallerSecret {
    pub fn random(now: Timestamp) -> Result<Self, RandomError> {
        let (registered, signing) = (CallerToken::random()?, random_key()?);
        Ok(Self { registered, turn: NextToken::None, since: now, signing })
    }

    /// Parses the stored form; `None` if [`SharedCallerSecret::text`] did not write it.
    pub fn parse(text: &str) -> Option<Self> {
        let document: StoredSecret = serde_json::from_str(text).ok()?;
        let token =
            |text: Option<String>| text.map(|text| CallerToken::parse(&text).ok_or(())).transpose().ok();
        let turn = match (token(document.next)?, token(document.previous)?) {
            (None, None) => NextToken::None,
            (Some(next), None) => NextToken::Announced(next),
            (None, Some(previous)) => NextToken::Replaced(previous),
            (Some(_), Some(_)) => return None,
        };
        let signing: [u8; BYTES] = STANDARD.decode(document.signing).ok()?.try_into().ok()?;
        let registered = CallerToken::parse(&document.registered)?;
        Some(Self { registered, turn, since: document.since, signing: SigningKey::new(signing) })
    }

    pub fn text(&self) -> String {
        let text = |token: &CallerToken| Some(token.expose().to_owned());
        let document = StoredSecret {
            registered: self.registered.expose().to_owned(),
            next: if let NextToken::Announced(next) = &self.turn { text(next) } else { None },
            previous: if let NextToken::Replaced(previous) = &self.turn { text(previous) } else { None },
            since: self.since,
            signing: STANDARD.encode(self.signing.as_bytes()),
        };
        // Texts and a time are always written.
        serde_json::to_string(&document).unwrap_or_default()
    }

    pub fn turn(&self) -> &NextToken {
        &self.turn
    }

    /// Whether both hold the same tokens in the same roles.
    pub fn stands_as(&self, other: &Self) -> bool {
        self.registered == other.registered && self.turn == other.turn
    }

    /// Whether the registered token is at least `life` old. A creation time in the future counts as due, because the
    /// token's age is unknown.
    pub fn is_due(&self, now: Timestamp, life: Duration) -> bool {
        let age = now.duration_since(self.since);
        self.turn == NextToken::None && (age.is_negative() || age.unsigned_abs() >= life)
    }

    /// This with a new token that is accepted from now on, unless one is on its
    /// way.
    pub fn announced(&self, now: Timestamp) -> Result<Self, RandomError> {
        let mut kept = self.clone();
        if kept.turn == NextToken::None {
            (kept.turn, kept.since) = (NextToken::Announced(CallerToken::random()?), now);
        }
        Ok(kept)
    }

    /// The next step after an announcement, and after a replacement: the new token is registered, or the old one is no
    /// longer accepted.
    pub fn advanced(&self, now: Timestamp) -> Self {
        let (registered, turn) = match &self.turn {
            NextToken::None => return self.clone(),
            NextToken::Announced(next) => (next.clone(), NextToken::Replaced(self.registered.clone())),
            NextToken::Replaced(_) => (self.registered.clone(), NextToken::None),
        };
        Self { registered, turn, since: now, signing: self.signing.clone() }
    }

    /// Has its key be the one to sign by.
    pub fn sign(&self, callers: &CallerSecrets) {
        callers.sign_by(self.signing.clone());
    }

    /// Has its tokens be the ones that are accepted.
    pub fn admit(&self, callers: &CallerSecrets) {
        let other = match &self.turn {
            NextToken::None => None,
            NextToken::Announced(token) | NextToken::Replaced(token) => Some(token.clone()),
        };
        callers.accept(self.registered.clone(), other);
    }
}

#[derive(Debug, Error)]
pub enum TokenFileError {
    #[error("cannot read the caller token file {path}: {reason}")]
    Read { path: PathBuf, reason: String },
    #[error(
        "{path} is no caller token file: give one token, or two while one follows another, each on a line \
         of its own and of 32 to 128 lower-case letters and digits, such as `openssl rand -hex 32` prints"
    )]
    Parse { path: PathBuf },
}

/// The tokens in the file `path`, the one to register first.
pub fn read_tokens(path: &Path) -> Result<(CallerToken, Option<CallerToken>), TokenFileError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(CAP).read_to_string(&mut text));
    read.map_err(|error| TokenFileError::Read { path: path.to_owned(), reason: error.to_string() })?;
    parse_tokens(&text).ok_or_else(|| TokenFileError::Parse { path: path.to_owned() })
}

fn parse_tokens(text: &str) -> Option<(CallerToken, Option<CallerToken>)> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = CallerToken::parse(lines.next()?)?;
    let second = match lines.next() {
        Some(line) => Some(CallerToken::parse(line)?),
        None => None,
    };
    lines.next().is_none().then_some((first, second))
}

/// Has `callers` accept what is in the file `path` by then, until `stop` is cancelled.
pub async fn follow_tokens(path: PathBuf, callers: CallerSecrets, stop: CancellationToken) {
    let mut last_failure = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        let path = path.clone();
        let read = match tokio::task::spawn_blocking(move || read_tokens(&path)).await {
            // The program ends.
            Err(error) if error.is_cancelled() => return,
            read => read.map_err(|error| error.to_string()),
        };
        match read.and_then(|tokens| tokens.map_err(|error| error.to_string())) {
            Ok((registered, other)) => {
                callers.accept(registered, other);
                last_failure = None;
            }
            Err(error) if last_failure.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!("the caller tokens in use stay: {error}");
                last_failure = Some(error);
            }
        }
    }
}

#[cfg(test)]
mod tests;
