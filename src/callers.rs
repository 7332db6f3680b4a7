//! Who may call the webhook: the tokens of its registered address, and the key
//! by which the guard's replicas know each other's word.
//!
//! Entry points: [`Callers`], which everybody shares, with the [`CallerSecret`]
//! of the moment; [`kept::Kept`] for what is stored of it, [`file::TokenFile`]
//! for tokens that somebody else makes. Invariant: neither a token nor the key
//! reaches a log, a message or an error: `Debug` hides them, and only
//! [`CallerToken::expose`] and [`SigningKey::as_bytes`] show them. A caller
//! learns nothing from the time that a comparison takes. Must not read a
//! request.

pub mod file;
pub mod kept;

use std::fmt::Write as _;

use secrecy::{ExposeSecret, SecretString};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;
use tokio::sync::watch;

use crate::policy::signing::SigningKey;

/// The random bytes of a token and of a key.
const BYTES: usize = 32;

/// How long a token may be. It is a segment of a Service's path, which the API
/// server wants to be a DNS name, hence the letters of [`CallerToken::parse`].
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=128;

/// The operating system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the operating system gives no random bytes")]
pub struct RandomError;

/// What the API server proves itself by: a segment of the webhook's address.
#[derive(Clone, Debug)]
pub struct CallerToken(SecretString);

/// The secret that replicas share.
#[derive(Clone, Debug, Default)]
pub struct CallerSecret {
    /// The token of the address that is to be registered.
    registered: Option<CallerToken>,
    /// The token that comes, or the one that goes.
    other: Option<CallerToken>,
    signing: Option<SigningKey>,
}

/// The [`CallerSecret`] of the moment. Clones share it; nobody is known until
/// one of them is told of a token.
#[derive(Clone, Debug, Default)]
pub struct Callers(watch::Sender<CallerSecret>);

impl CallerToken {
    /// Makes a token that nobody can guess.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn random() -> Result<Self, RandomError> {
        let mut text = String::with_capacity(2 * BYTES);
        for byte in random()? {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text.into()))
    }

    /// The token that `text` is: 32 to 128 lower-case letters and digits.
    pub fn parse(text: &str) -> Option<Self> {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        (LENGTHS.contains(&text.len()) && text.bytes().all(known)).then(|| Self(text.to_owned().into()))
    }

    /// The token's text, for the address that is registered.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Whether `token` is this one. The time that this takes depends on lengths
    /// alone.
    fn is(&self, token: &[u8]) -> Choice {
        self.expose().as_bytes().ct_eq(token)
    }
}

impl PartialEq for CallerToken {
    fn eq(&self, other: &Self) -> bool {
        self.is(other.expose().as_bytes()).into()
    }
}

impl Eq for CallerToken {}

impl CallerSecret {
    /// Whether somebody who shows `token` may call. Both tokens are compared,
    /// whichever it is.
    pub fn admits(&self, token: &[u8]) -> bool {
        let is =
            |known: &Option<CallerToken>| known.as_ref().map_or(Choice::from(0), |known| known.is(token));
        (is(&self.registered) | is(&self.other)).into()
    }

    /// The token of the address that is to be registered; none until it is known.
    pub fn registered(&self) -> Option<&CallerToken> {
        self.registered.as_ref()
    }

    /// The key that all replicas sign by; none until it is known. It stays the
    /// same for as long as the secret is kept.
    pub fn signing(&self) -> Option<&SigningKey> {
        self.signing.as_ref()
    }
}

impl Callers {
    /// Whether somebody who shows `token` may call.
    pub fn admits(&self, token: &[u8]) -> bool {
        self.0.borrow().admits(token)
    }

    /// The secret as it is now.
    pub fn secret(&self) -> CallerSecret {
        self.0.borrow().clone()
    }

    /// Tells of every change of it.
    pub fn changes(&self) -> watch::Receiver<CallerSecret> {
        self.0.subscribe()
    }

    /// From now on these tokens are accepted, the first of which is registered.
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
            // Held by this very value, the sender is never gone.
            let _ = changes.changed().await;
        }
    }

    /// From now on replicas sign by this key.
    pub fn sign_by(&self, key: SigningKey) {
        self.0.send_if_modified(|secret| {
            let same =
                secret.signing.as_ref().is_some_and(|known| known.as_bytes().ct_eq(key.as_bytes()).into());
            secret.signing = Some(key);
            !same
        });
    }
}

/// Makes a key that nobody can guess.
///
/// # Errors
/// When there are no random bytes.
pub fn random_key() -> Result<SigningKey, RandomError> {
    random().map(SigningKey::new)
}

fn random() -> Result<[u8; BYTES], RandomError> {
    let mut bytes = [0; BYTES];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
