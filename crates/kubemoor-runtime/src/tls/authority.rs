//! The guard's own certificate authority and the certificate that it signs, in a directory or in a Secret.
//!
//! The CA keeps its key when its certificate is renewed. So an old `caBundle` also verifies certificates signed after a
//! renewal, and a new one those signed before it: API servers and replicas may adopt the parts of a renewal at any time
//! and in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber, date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use tracing::{info, warn};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use super::{
    AUTHORITY, CERTIFICATE, CertificateFiles, KEY, Pair, TlsError, Validity, certificates, lock_directory,
    read_file_if_there, validity, with_parsed, write_file,
};

/// The CA's private key: the name of its file and of its key in the Secret.
const AUTHORITY_KEY: &str = "ca.key";

/// How long before its creation a certificate becomes valid, for slow clocks; at most a tenth of its life.
const EARLIER: SignedDuration = SignedDuration::from_mins(10);

/// The lifetimes in a directory: ten years and one year. Renewal after two thirds of a year leaves four months to
/// notice that it fails.
const IN_DIRECTORY: Lives = Lives {
    authority: SignedDuration::from_hours(10 * 365 * 24),
    certificate: SignedDuration::from_hours(365 * 24),
};

struct Lives {
    authority: SignedDuration,
    certificate: SignedDuration,
}

/// Whether a certificate can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateCondition {
    Good,
    /// It can be served, but it or its CA is past two thirds of its life.
    Due,
    /// It cannot be served: a part is missing, broken, outside of its validity or for other names.
    Useless,
}

/// The facts about a certificate that the guard's own CA has signed.
struct CertificateFacts {
    names: BTreeSet<String>,
    validity: Validity,
    authority: Validity,
}

/// The certificate that replicas share, with its authority, in the form of its Secret. Not `Debug`: it holds private
/// keys.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedCertificate {
    authority: String,
    authority_key: String,
    certificate: String,
    key: String,
}

impl SharedCertificate {
    /// Creates a certificate with a new CA. The certificate is valid for `life`, its CA four times as long.
    pub fn make(names: &[String], now: Timestamp, life: Duration) -> Result<Self, TlsError> {
        Self::signed(None, &generate()?, names, now, life)
    }

    /// Parses the content of a Secret; `None` if it cannot be served and renewed.
    pub fn parse(data: &BTreeMap<String, String>) -> Option<Self> {
        let text = |name: &str| data.get(name).cloned();
        let (authority, authority_key) = (text(AUTHORITY)?, text(AUTHORITY_KEY)?);
        signer(Path::new(AUTHORITY), &authority, &KeyPair::from_pem(&authority_key).ok()?).ok()??;
        let shared = Self { authority, authority_key, certificate: text(CERTIFICATE)?, key: text(KEY)? };
        facts(&shared.material()).is_some().then_some(shared)
    }

    pub fn data(&self) -> BTreeMap<String, String> {
        let entry = |name: &str, text: &String| (name.to_owned(), text.clone());
        [
            entry(AUTHORITY, &self.authority),
            entry(AUTHORITY_KEY, &self.authority_key),
            entry(CERTIFICATE, &self.certificate),
            entry(KEY, &self.key),
        ]
        .into()
    }

    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether both have the same CA, so that clients that trust one accept the other.
    pub fn has_authority_of(&self, other: &Self) -> bool {
        self.authority_key == other.authority_key
    }

    /// Whether the API server accepts it `now`, once it trusts the authority.
    pub fn is_served(&self, names: &[String], now: Timestamp) -> bool {
        standing(&self.material(), names, now) != CertificateCondition::Useless
    }

    pub fn is_due(&self, names: &[String], now: Timestamp) -> bool {
        standing(&self.material(), names, now) != CertificateCondition::Good
    }

    /// A copy with a new certificate, and with a renewed CA certificate if that is due.
    pub fn renewed(&self, names: &[String], now: Timestamp, life: Duration) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(&self.authority_key).map_err(|_| TlsError::ReadBack)?;
        Self::signed(Some(&self.authority), &key, names, now, life)
    }

    pub(super) fn material(&self) -> CertificateFiles {
        CertificateFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            authority: Some(self.authority.clone()),
        }
    }

    fn signed(
        authority: Option<&str>,
        authority_key: &KeyPair,
        names: &[String],
        now: Timestamp,
        life: Duration,
    ) -> Result<Self, TlsError> {
        let life = SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX);
        let lives = Lives { authority: life.saturating_mul(4), certificate: life };
        let authority = renew_authority(authority, authority_key, now, &lives)?;
        let (certificate, key) = sign(names, &authority, authority_key, now, &lives)?;
        Ok(Self { authority, authority_key: authority_key.serialize_pem(), certificate, key })
    }
}

/// The certificate for `names` in `directory`, created or renewed first if that is due. Processes that share the
/// directory share one CA.
pub(super) fn ensure_certificate(
    directory: &Path,
    names: &[String],
    now: Timestamp,
) -> Result<CertificateFiles, TlsError> {
    let look = || {
        let read =
            |name: &str| Ok::<_, TlsError>(read_file_if_there(&directory.join(name))?.unwrap_or_default());
        let material = CertificateFiles {
            certificate: read(CERTIFICATE)?,
            key: read(KEY)?,
            authority: Some(read(AUTHORITY)?),
        };
        Ok::<_, TlsError>((standing(&material, names, now), material))
    };
    // Nearly always nothing is due. Then nothing is written or locked: the directory may be read-only for
    // this process.
    if let (CertificateCondition::Good, material) = look()? {
        return Ok(material);
    }
    let renewed = lock_directory(directory).and_then(|_lock| match look()? {
        (CertificateCondition::Good, material) => Ok(material),
        (CertificateCondition::Due | CertificateCondition::Useless, _) => renew_files(directory, names, now),
    });
    renewed.or_else(|error| match look()? {
        (CertificateCondition::Good, material) => Ok(material),
        (CertificateCondition::Due, material) => {
            warn!(%error, "failed to renew the certificate; keeping the one in use");
            Ok(material)
        }
        (CertificateCondition::Useless, _) => Err(error),
    })
}

/// Creates what is missing or due. The caller holds the directory's lock. A CA that cannot sign is never replaced
/// automatically.
fn renew_files(directory: &Path, names: &[String], now: Timestamp) -> Result<CertificateFiles, TlsError> {
    let (authority_path, key_path) = (directory.join(AUTHORITY), directory.join(AUTHORITY_KEY));
    let unusable = || TlsError::UseAuthority { certificate: authority_path.clone(), key: key_path.clone() };
    let present = read_file_if_there(&authority_path)?;
    // The key is written first, so a key without a certificate comes from an interrupted start.
    let authority_key = match read_file_if_there(&key_path)? {
        Some(key) => KeyPair::from_pem(&key).map_err(|_| unusable())?,
        None if present.is_some() => return Err(unusable()),
        None => {
            let key = generate()?;
            write_file(&key_path, &key.serialize_pem(), true)?;
            key
        }
    };
    if let Some(pem) = &present {
        signer(&authority_path, pem, &authority_key)?.ok_or_else(unusable)?;
    }
    let authority = renew_authority(present.as_deref(), &authority_key, now, &IN_DIRECTORY)?;
    if present.as_ref() != Some(&authority) {
        write_file(&authority_path, &authority, false)?;
        info!(directory = %directory.display(), "created or renewed a certificate authority");
    }
    let (certificate, key) = sign(names, &authority, &authority_key, now, &IN_DIRECTORY)?;
    write_file(&directory.join(KEY), &key, true)?;
    write_file(&directory.join(CERTIFICATE), &certificate, false)?;
    info!(directory = %directory.display(), names = names.join(", "), "issued a certificate");
    Ok(CertificateFiles { certificate, key, authority: Some(authority) })
}

fn standing(material: &CertificateFiles, names: &[String], now: Timestamp) -> CertificateCondition {
    let Some(CertificateFacts { names: present, validity, authority }) = facts(material) else {
        return CertificateCondition::Useless;
    };
    let is_over = |(_, until): Validity| until <= now;
    if now < validity.0 || is_over(validity) || is_over(authority) || present != wanted(names) {
        CertificateCondition::Useless
    } else if is_due(validity, now) || is_due(authority, now) {
        CertificateCondition::Due
    } else {
        CertificateCondition::Good
    }
}

/// `None` if a part is missing or invalid, or the parts do not belong together.
fn facts(material: &CertificateFiles) -> Option<CertificateFacts> {
    let path = Path::new(CERTIFICATE);
    let pair = Pair::parse(path, Path::new(KEY), material).ok()?;
    let leaf = pair.key.cert.first()?;
    let signed_by = |authority: &CertificateDer<'_>| {
        let signed = |authority: &X509Certificate<'_>| {
            let is_theirs =
                |leaf: &X509Certificate<'_>| leaf.verify_signature(Some(authority.public_key())).is_ok();
            with_parsed(path, leaf, is_theirs).ok()?.then(|| validity(authority))
        };
        with_parsed(Path::new(AUTHORITY), authority, signed).ok()?
    };
    // Earlier versions kept two CA certificates during a rotation.
    let authorities = certificates(Path::new(AUTHORITY), material.authority.as_deref()?).ok()?;
    let authority = authorities.iter().find_map(signed_by)?;
    let names = with_parsed(path, leaf, alternative_names).ok()??;
    Some(CertificateFacts { names, validity: pair.validity, authority })
}

/// The CA certificate in `pem` that belongs to `key`.
fn signer(
    path: &Path,
    pem: &str,
    key: &KeyPair,
) -> Result<Option<(CertificateDer<'static>, Validity)>, TlsError> {
    for certificate in certificates(path, pem)? {
        let (public, validity) = with_parsed(path, &certificate, |parsed| {
            (parsed.public_key().subject_public_key.data.to_vec(), validity(parsed))
        })?;
        if public == key.der_bytes() {
            return Ok(Some((certificate, validity)));
        }
    }
    Ok(None)
}

/// The CA certificate, or a new one for the same key if it is missing or due.
fn renew_authority(
    present: Option<&str>,
    key: &KeyPair,
    now: Timestamp,
    lives: &Lives,
) -> Result<String, TlsError> {
    if let Some(pem) = present
        && let Some((_, validity)) = signer(Path::new(AUTHORITY), pem, key)?
        && !is_due(validity, now)
    {
        return Ok(pem.to_owned());
    }
    let mut params = CertificateParams::default();
    set_times(&mut params, now, lives.authority);
    params.distinguished_name = common_name("kubemoor authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(SerialNumber::from(now.as_second().unsigned_abs()));
    Ok(params.self_signed(key).map_err(not_issued)?.pem())
}

/// A new certificate for `names` with its key, both as PEM.
fn sign(
    names: &[String],
    authority: &str,
    authority_key: &KeyPair,
    now: Timestamp,
    lives: &Lives,
) -> Result<(String, String), TlsError> {
    let failed = |source| TlsError::Issue { names: names.join(", "), source };
    let (authority, _) = signer(Path::new(AUTHORITY), authority, authority_key)?.ok_or(TlsError::ReadBack)?;
    let issuer = Issuer::from_ca_cert_der(&authority, authority_key).map_err(failed)?;
    let mut params = CertificateParams::new(names).map_err(failed)?;
    set_times(&mut params, now, lives.certificate);
    params.distinguished_name = common_name("kubemoor");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?.pem();
    Ok((certificate, key.serialize_pem()))
}

fn generate() -> Result<KeyPair, TlsError> {
    KeyPair::generate().map_err(not_issued)
}

/// Whether two thirds of the validity are over, or it has not begun: then a clock that was ahead has been corrected.
fn is_due((from, until): Validity, now: Timestamp) -> bool {
    now < from || now.duration_since(from) >= until.duration_since(from) / 3 * 2
}

/// The DNS names and IP addresses of a certificate; `None` if it has names of another type.
fn alternative_names(certificate: &X509Certificate<'_>) -> Option<BTreeSet<String>> {
    let names = certificate.subject_alternative_name().ok()??.value.general_names.iter();
    names
        .map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
                    (Ok(v4), _) => Some(IpAddr::from(v4).to_string()),
                    (_, Ok(v6)) => Some(IpAddr::from(v6).to_string()),
                    _ => None,
                }
            }
            _ => None,
        })
        .collect()
}

/// `names`, with addresses in the form in which a certificate gives them.
fn wanted(names: &[String]) -> BTreeSet<String> {
    let form = |name: &String| name.parse::<IpAddr>().map_or_else(|_| name.clone(), |it| it.to_string());
    names.iter().map(form).collect()
}

fn not_issued(source: rcgen::Error) -> TlsError {
    TlsError::Issue { names: "the certificate authority".to_owned(), source }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_times(params: &mut CertificateParams, now: Timestamp, life: SignedDuration) {
    let epoch = date_time_ymd(1970, 1, 1);
    let since_epoch = |time: SignedDuration| epoch + Duration::from_secs(time.as_secs().unsigned_abs());
    params.not_before = since_epoch(now.as_duration() - EARLIER.min(life / 10));
    params.not_after = since_epoch(now.as_duration() + life);
}

#[cfg(test)]
mod tests;
