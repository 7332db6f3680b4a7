//! The cookie of a visitor who has logged in: their token, sealed.
//!
//! Entry point: [`Sealer`]. Invariant: nobody reads or makes a session without the key;
//! a text that was changed, cut or is too old is no session.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};

use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::callers::{self, RandomError};

/// How long a session lasts at most. The token may end sooner.
pub(super) const LIFE: SignedDuration = SignedDuration::from_hours(8);

/// The longest token that fits into a cookie of 4096 bytes, which is what browsers keep.
pub(super) const LONGEST: usize = 2900;

/// The purpose of the key by which sessions are sealed.
const PURPOSE: &str = "sealing of sessions";

/// What tells one session from another.
pub(super) type SessionId = [u8; 16];

/// A visitor who has logged in.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) token: SecretString,
    pub(super) until: Timestamp,
}

/// What seals sessions and opens them.
pub(super) struct Sealer(Seal);

/// What encrypts bytes for one purpose, so that only the same key opens them.
pub(super) struct Seal(RandomizedNonceKey);

/// A session cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session cannot be encrypted")]
pub struct SealError;

impl Session {
    /// A new one. The id is drawn here, so that nobody else can have chosen it.
    pub(super) fn begin(token: SecretString, now: Timestamp) -> Result<Self, RandomError> {
        let key = callers::random_key()?;
        let mut id = SessionId::default();
        id.iter_mut().zip(key.as_bytes()).for_each(|(to, from)| *to = *from);
        let until = now.checked_add(LIFE).unwrap_or(now);
        Ok(Self { id, token, until })
    }
}

impl Seal {
    pub(super) fn new(key: &SigningKey, purpose: &str) -> Result<Self, SealError> {
        RandomizedNonceKey::new(&AES_256_GCM, &key.mark(purpose, &[])).map(Self).map_err(|_| SealError)
    }

    /// The bytes, encrypted.
    pub(super) fn seal(&self, mut bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        let nonce = self.0.seal_in_place_append_tag(Aad::empty(), &mut bytes).map_err(|_| SealError)?;
        Ok([nonce.as_ref().as_slice(), bytes.as_slice()].concat())
    }

    /// What was encrypted, if it is unchanged.
    pub(super) fn open<'b>(&self, sealed: &'b mut [u8]) -> Option<&'b [u8]> {
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        self.0.open_in_place(nonce, Aad::empty(), sealed).ok().map(|open| &*open)
    }
}

impl Sealer {
    pub(super) fn new(key: &SigningKey) -> Result<Self, SealError> {
        Seal::new(key, PURPOSE).map(Self)
    }

    /// The session as text that only this key opens.
    pub(super) fn seal(&self, session: &Session) -> Result<String, SealError> {
        let mut sealed = session.id.to_vec();
        sealed.extend(session.until.as_millisecond().to_be_bytes());
        sealed.extend(session.token.expose_secret().as_bytes());
        Ok(URL_SAFE_NO_PAD.encode(self.0.seal(sealed)?))
    }

    /// The session that was sealed, unless it is over.
    pub(super) fn open(&self, text: &str, now: Timestamp) -> Option<Session> {
        let mut sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let open = self.0.open(&mut sealed)?;
        let (id, rest) = open.split_first_chunk()?;
        let (until, token) = rest.split_first_chunk()?;
        let until =
            Timestamp::from_millisecond(i64::from_be_bytes(*until)).ok().filter(|until| now < *until)?;
        let token = std::str::from_utf8(token).ok()?.to_owned().into();
        Some(Session { id: *id, token, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_session_opens_only_with_own_key_unchanged_and_unexpired() {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let sealer = |byte| Sealer::new(&SigningKey::new([byte; 32])).unwrap();
        let session = Session::begin("a.b.c".to_owned().into(), now).unwrap();
        let text = sealer(1).seal(&session).unwrap();
        let open = |byte, text: &str, now| {
            let session = sealer(byte).open(text, now);
            session.map(|it| (it.id, it.token.expose_secret().to_owned()))
        };
        let whole = Some((session.id, "a.b.c".to_owned()));
        assert_eq!(open(1, &text, now), whole);
        assert_eq!(open(1, &text, now + SignedDuration::from_mins(479)), whole);
        assert_eq!(open(1, &text, now + LIFE), None, "too old");
        assert_eq!(open(2, &text, now), None, "another key");
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(1, &changed, now), None, "byte {place} is another");
            assert_eq!(open(1, text.get(..place).unwrap(), now), None, "cut at {place}");
        }
        assert!(!format!("{session:?}").contains("a.b.c") && !text.contains("a.b.c"));
        assert_ne!(sealer(1).seal(&session).unwrap(), text, "no two look the same");
    }

    #[test]
    fn longest_token_fits_into_a_cookie() {
        let token = "x".repeat(LONGEST);
        let session = Session::begin(token.into(), Timestamp::now()).unwrap();
        let text = Sealer::new(&SigningKey::new([1; 32])).unwrap().seal(&session).unwrap();
        assert!(text.len() + "__Host-kubemoor=".len() <= 4096, "{}", text.len());
    }
}
