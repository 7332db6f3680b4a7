//! The certificate that replicas share, in the form of its Secret, and the next step of its rotation.
//!
//! Entry points: [`SharedCertificate::parse`], [`SharedCertificate::due`], [`SharedCertificate::after`].
//! Invariant: one replica renews it, and all look at it as often as [`Pace`] says. Then every certificate
//! that a replica serves is signed by an authority in every `caBundle` that is registered meanwhile. A new
//! authority is first announced, so that it is registered beside the old one; then it signs. The old one is
//! removed when no replica serves a certificate of it any more. Must not read a clock, a file or a cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;

use super::authority::{AUTHORITY_KEY, CERTIFICATE, KEY};
use super::issue::{self, is_due, is_for};
use super::pair::{self, Pair};
use super::{AUTHORITY, Material, TlsError, bundle};

/// The lifetime of an authority, as a multiple of a certificate's.
const AUTHORITY_LIVES: i32 = 4;

/// A certificate, its authority, and the authority that comes or goes. Not `Debug`: it holds private keys.
#[derive(Clone)]
pub struct SharedCertificate {
    /// The trusted authorities: one, or two during a rotation.
    authorities: Vec<String>,
    authority_key: String,
    certificate: String,
    key: String,
    facts: Facts,
}

/// The meaning of the content.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// The place of the authority that signs next.
    signer: usize,
    /// The place of the authority that signed the certificate.
    issuer: usize,
    signer_validity: (Timestamp, Timestamp),
    issuer_validity: (Timestamp, Timestamp),
    validity: (Timestamp, Timestamp),
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: it is served as it is.
    Nothing,
    /// Make all of it again: the authority has expired.
    Everything,
    /// Sign a new certificate by the same authority.
    Certificate,
    /// Have a new authority trusted beside the old one.
    Announcement,
    /// Sign a new certificate by the announced authority.
    Turn,
    /// Forget the authority before.
    Removal,
}

/// A certificate to sign: its names, start and lifetime.
struct Leaf<'a> {
    names: &'a [String],
    now: Timestamp,
    pace: &'a Pace,
}

/// The lifetime of certificates, and the duration of each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    life: SignedDuration,
    /// The minimum time between the announcement of a new authority and its first signature.
    spread: Duration,
    /// How long the previous authority stays trusted after its last signature.
    grace: Duration,
    /// The pause between each replica's looks.
    pub look: Duration,
}

impl Pace {
    /// The pace of certificates that live for `life`.
    pub fn of(life: Duration) -> Self {
        let step = life / 10;
        Self {
            life: SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX),
            spread: step.min(Duration::from_secs(60)),
            grace: step.min(Duration::from_secs(300)),
            look: (life / 40).min(Duration::from_secs(10)),
        }
    }
}

impl SharedCertificate {
    /// A new one with an authority of its own.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(names: &[String], now: Timestamp, pace: &Pace) -> Result<Self, TlsError> {
        let key = issue::authority_key()?;
        let authority = issue::authority(&key, now, pace.life.saturating_mul(AUTHORITY_LIVES))?;
        Self::signed(vec![authority], 0, key, &Leaf { names, now, pace })
    }

    /// Parses the content of a Secret; `None` if it cannot be served and renewed.
    pub fn parse(data: &BTreeMap<String, String>) -> Option<Self> {
        let text = |name: &str| data.get(name).cloned();
        let authorities = bundle::blocks(&text(AUTHORITY)?).map(|block| format!("{block}\n")).collect();
        Self::of(authorities, text(AUTHORITY_KEY)?, text(CERTIFICATE)?, text(KEY)?)
    }

    /// The content of the Secret, without the names of its keys encoded.
    pub fn data(&self) -> BTreeMap<String, String> {
        let entry = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        [
            entry(AUTHORITY, &self.authorities.concat()),
            entry(AUTHORITY_KEY, &self.authority_key),
            entry(CERTIFICATE, &self.certificate),
            entry(KEY, &self.key),
        ]
        .into()
    }

    /// The authority that signs next, as PEM.
    pub fn signer(&self) -> &str {
        self.authorities.get(self.facts.signer).map_or("", String::as_str)
    }

    /// The authority that signed the certificate, as PEM.
    pub fn issuer(&self) -> &str {
        self.authorities.get(self.facts.issuer).map_or("", String::as_str)
    }

    /// Whether the authority that signed the certificate of `other` is one of these.
    pub fn trusts(&self, other: &Self) -> bool {
        self.authorities.iter().any(|authority| authority == other.issuer())
    }

    /// Whether both have the same content.
    pub fn is(&self, other: &Self) -> bool {
        self.data() == other.data()
    }

    /// Whether the API server accepts it `now`, once it trusts the authority.
    pub fn is_served(&self, names: &[String], now: Timestamp) -> bool {
        let is_valid = |(from, until): (Timestamp, Timestamp)| from <= now && now < until;
        is_valid(self.facts.validity) && now < self.facts.issuer_validity.1 && self.is_for(names)
    }

    /// The step that is due at `now`, if this content has been there for `seen`.
    pub fn due(&self, names: &[String], now: Timestamp, seen: Duration, pace: &Pace) -> Due {
        let Facts { signer, issuer, signer_validity, issuer_validity, validity } = self.facts;
        let is_over = |(_, until): (Timestamp, Timestamp)| until <= now;
        let is_old = |(from, until): (Timestamp, Timestamp)| is_due(from, until, now);
        let is_useless = is_over(validity) || now < validity.0 || !self.is_for(names);
        if is_over(signer_validity) {
            Due::Everything
        } else if signer != issuer {
            let is_hurried = is_over(issuer_validity) || is_over(validity);
            if is_hurried || seen >= pace.spread { Due::Turn } else { Due::Nothing }
        } else if is_useless {
            Due::Certificate
        } else if self.authorities.len() > 1 {
            if seen >= pace.grace { Due::Removal } else { Due::Nothing }
        } else if is_old(signer_validity) {
            Due::Announcement
        } else if is_old(validity) {
            Due::Certificate
        } else {
            Due::Nothing
        }
    }

    /// This after the step `due`.
    ///
    /// # Errors
    /// When what is new cannot be made.
    pub fn after(&self, due: Due, names: &[String], now: Timestamp, pace: &Pace) -> Result<Self, TlsError> {
        let current = || self.authorities.get(self.facts.issuer).cloned().unwrap_or_default();
        match due {
            Due::Nothing => Ok(self.clone()),
            Due::Everything => Self::make(names, now, pace),
            Due::Certificate | Due::Turn => {
                let key = KeyPair::from_pem(&self.authority_key).map_err(|_| TlsError::ReadBack)?;
                Self::signed(self.authorities.clone(), self.facts.signer, key, &Leaf { names, now, pace })
            }
            Due::Announcement => {
                let key = issue::authority_key()?;
                let next = issue::authority(&key, now, pace.life.saturating_mul(AUTHORITY_LIVES))?;
                let authorities = vec![current(), next];
                let (certificate, own) = (self.certificate.clone(), self.key.clone());
                Self::of(authorities, key.serialize_pem(), certificate, own).ok_or(TlsError::ReadBack)
            }
            Due::Removal => {
                let (certificate, key) = (self.certificate.clone(), self.key.clone());
                Self::of(vec![current()], self.authority_key.clone(), certificate, key)
                    .ok_or(TlsError::ReadBack)
            }
        }
    }

    pub(super) fn material(&self) -> Material {
        Material {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            authority: Some(self.authorities.concat()),
        }
    }

    fn of(authorities: Vec<String>, authority_key: String, certificate: String, key: String) -> Option<Self> {
        let facts = facts(&authorities, &authority_key, &certificate, &key)?;
        Some(Self { authorities, authority_key, certificate, key, facts })
    }

    /// With a new certificate by the authority in this place.
    fn signed(
        authorities: Vec<String>,
        signer: usize,
        authority_key: KeyPair,
        Leaf { names, now, pace }: &Leaf<'_>,
    ) -> Result<Self, TlsError> {
        let key = authority_key.serialize_pem();
        let authority = authorities.get(signer).map_or("", String::as_str);
        let (certificate, own) = issue::certificate(names, authority, authority_key, *now, pace.life)?;
        Self::of(authorities, key, certificate, own).ok_or(TlsError::ReadBack)
    }

    fn is_for(&self, names: &[String]) -> bool {
        let path = Path::new(CERTIFICATE);
        let Ok(chain) = pair::certificates(path, &self.certificate) else { return false };
        let Some(leaf) = chain.first() else { return false };
        pair::with_parsed(path, leaf, |leaf| is_for(leaf, names)).unwrap_or(false)
    }
}

/// The meaning of the content; `None` if its parts do not belong together.
fn facts(authorities: &[String], authority_key: &str, certificate: &str, key: &str) -> Option<Facts> {
    if authorities.is_empty() || authorities.len() > 2 {
        return None;
    }
    let authority_key = KeyPair::from_pem(authority_key).ok()?;
    let public = rcgen::PublicKeyData::der_bytes(&authority_key);
    let path = Path::new(AUTHORITY);
    let material = Material { certificate: certificate.to_owned(), key: key.to_owned(), authority: None };
    let served = Pair::parse(Path::new(CERTIFICATE), Path::new(KEY), &material).ok()?;
    let leaf = served.key.cert.first()?;
    let (mut signer, mut issuer) = (None, None);
    for (place, authority) in authorities.iter().enumerate() {
        let parsed = pair::certificates(path, authority).ok()?;
        let [authority] = &*parsed else { return None };
        let (signs, signed, validity) = pair::with_parsed(path, authority, |authority| {
            let signed = pair::with_parsed(Path::new(CERTIFICATE), leaf, |leaf| {
                leaf.verify_signature(Some(authority.public_key())).is_ok()
            });
            let theirs = authority.public_key().subject_public_key.data.as_ref() == public;
            (theirs, signed.unwrap_or(false), pair::validity(authority))
        })
        .ok()?;
        signer = if signs { Some((place, validity)) } else { signer };
        issuer = if signed { Some((place, validity)) } else { issuer };
    }
    let ((signer, signer_validity), (issuer, issuer_validity)) = (signer?, issuer?);
    let validity = (served.not_before, served.not_after);
    Some(Facts { signer, issuer, signer_validity, issuer_validity, validity })
}

#[cfg(test)]
mod tests;
