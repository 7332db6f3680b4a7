//! Authenticates the callers of the webhook: the tokens in its registered address, and the key with which the
//! guard's replicas sign.
//!
//! Entry points: [`Callers`], which all parts share, with the current [`CallerSecret`]; [`kept::Kept`] for
//! its stored form, [`file::TokenFile`] for tokens from a file. Invariant: neither a token nor the key
//! reaches a log, a message or an error: `Debug` hides them, and only [`CallerToken::expose`] and
//! [`SigningKey::as_bytes`] show them. The duration of a comparison reveals nothing to a caller. Must not
//! read a request.

pub mod file;
pub mod kept;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::fmt::Write as _;

use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use tokio::sync::watch;

use kubemoor_policy::signing::SigningKey;

/// The random bytes of a token and of a key.
const BYTES: usize = 32;

/// The allowed length of a token. A token is a segment of a Service's path, which the API server requires to
/// be a DNS name; hence the letters that [`CallerToken::parse`] accepts.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=128;

/// The operating system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the operating system gives no random bytes")]
pub struct RandomError;

/// The token that authenticates the API server: a segment of the webhook's address.
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

/// The current [`CallerSecret`]. Clones share it. No caller is admitted until one of them receives a token.
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

    /// The key with which all replicas sign; `None` until it is known. It does not change while the secret
    /// exists.
    pub fn signing(&self) -> Option<&SigningKey> {
        self.signing.as_ref()
    }
}

impl Callers {
    /// Whether a caller with `token` is admitted.
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

    /// From now on replicas sign by this key.
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
