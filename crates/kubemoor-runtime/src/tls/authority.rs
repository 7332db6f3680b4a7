//! A certificate authority in a directory, and the certificate that it signs.
//!
//! Entry point: [`provide`]. Invariant: the authority's key stays the same while its files exist, so that a
//! distributed `caBundle` also verifies later certificates. A new authority certificate is signed with the
//! old key. Processes that share the directory create one authority together.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;
use tracing::{info, warn};

use super::files::{self, Access};
use super::issue::{self, is_due, is_for};
use super::pair::{self, Pair};
use super::{AUTHORITY, Material, TlsError};

/// The port's certificate.
pub(super) const CERTIFICATE: &str = "tls.crt";

/// The port's key.
pub(super) const KEY: &str = "tls.key";

/// The authority's key.
pub(super) const AUTHORITY_KEY: &str = "ca.key";

/// Ten years of 365 days.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// One year. Renewal after two thirds of it leaves four months to notice that
/// renewal fails.
const CERTIFICATE_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// The state of the directory's files.
enum Standing {
    /// To be served.
    Good(Material),
    /// To be served, but something is past two thirds of its life.
    Due(Material),
    /// Not usable: a file is missing, broken or for other names.
    None,
}

/// The certificate for `names` that `directory` keeps, made or renewed first
/// where that is due.
pub(super) fn provide(directory: &Path, names: &[String], now: Timestamp) -> Result<Material, TlsError> {
    // Nearly always nothing is due. Then nothing is written or locked: the directory may be read-only for
    // this process.
    if let Standing::Good(material) = look(directory, names, now)? {
        return Ok(material);
    }
    let renewed = files::lock(directory).and_then(|_lock| match look(directory, names, now)? {
        Standing::Good(material) => Ok(material),
        Standing::Due(_) | Standing::None => renew(directory, names, now),
    });
    renewed.or_else(|error| match look(directory, names, now)? {
        Standing::Good(material) => Ok(material),
        Standing::Due(material) => {
            warn!(%error, "the certificate is due for renewal, which fails");
            Ok(material)
        }
        Standing::None => Err(error),
    })
}

/// The state of the files in `directory`. Only an unreadable authority is an error: nothing may replace it
/// without the user.
fn look(directory: &Path, names: &[String], now: Timestamp) -> Result<Standing, TlsError> {
    let authority_path = directory.join(AUTHORITY);
    let (certificate_path, key_path) = (directory.join(CERTIFICATE), directory.join(KEY));
    let Some(authority_pem) = files::read_if_there(&authority_path)? else { return Ok(Standing::None) };
    let authority = first(pair::certificates(&authority_path, &authority_pem)?, &authority_path)?;
    let (Some(certificate), Some(key)) =
        (files::read_if_there(&certificate_path)?, files::read_if_there(&key_path)?)
    else {
        return Ok(Standing::None);
    };
    let material = Material { certificate, key, authority: Some(authority_pem) };
    let Ok(pair) = Pair::parse(&certificate_path, &key_path, &material) else { return Ok(Standing::None) };
    let Some(leaf) = pair.key.cert.first() else { return Ok(Standing::None) };
    let standing = pair::with_parsed(&authority_path, &authority, |authority| {
        pair::with_parsed(&certificate_path, leaf, |leaf| {
            let (from, until) = pair::validity(authority);
            if leaf.verify_signature(Some(authority.public_key())).is_err()
                || !is_for(leaf, names)
                || until < now
                || pair.not_after < now
            {
                None
            } else {
                Some(is_due(from, until, now) || is_due(pair.not_before, pair.not_after, now))
            }
        })
    })?;
    Ok(match standing {
        Ok(Some(false)) => Standing::Good(material),
        Ok(Some(true)) => Standing::Due(material),
        Ok(None) | Err(_) => Standing::None,
    })
}

/// Makes what is missing or due. The caller holds the directory's lock.
fn renew(directory: &Path, names: &[String], now: Timestamp) -> Result<Material, TlsError> {
    let (authority_pem, authority_key) = authority(directory, now)?;
    let (certificate, key) = issue::certificate(names, &authority_pem, authority_key, now, CERTIFICATE_LIFE)?;
    files::write(&directory.join(KEY), &key, Access::Private)?;
    files::write(&directory.join(CERTIFICATE), &certificate, Access::Public)?;
    info!(directory = %directory.display(), names = names.join(", "), "a certificate was made");
    Ok(Material { certificate, key, authority: Some(authority_pem) })
}

/// The authority's certificate and key, made or renewed first where that is due.
fn authority(directory: &Path, now: Timestamp) -> Result<(String, KeyPair), TlsError> {
    let (certificate_path, key_path) = (directory.join(AUTHORITY), directory.join(AUTHORITY_KEY));
    let unusable = || TlsError::UseAuthority { certificate: certificate_path.clone(), key: key_path.clone() };
    let key = match (files::read_if_there(&certificate_path)?, files::read_if_there(&key_path)?) {
        (Some(certificate), Some(key)) => {
            let key = KeyPair::from_pem(&key).map_err(|_| unusable())?;
            let parsed = first(pair::certificates(&certificate_path, &certificate)?, &certificate_path)?;
            let (belongs, (from, until)) = pair::with_parsed(&certificate_path, &parsed, |parsed| {
                let theirs = &parsed.public_key().subject_public_key.data;
                (theirs.as_ref() == rcgen::PublicKeyData::der_bytes(&key), pair::validity(parsed))
            })?;
            if !belongs {
                return Err(unusable());
            }
            if !is_due(from, until, now) {
                return Ok((certificate, key));
            }
            key
        }
        (Some(_), None) => return Err(unusable()),
        // The key is written first, so a key alone is that of a start that was
        // cut short.
        (None, Some(key)) => KeyPair::from_pem(&key).map_err(|_| unusable())?,
        (None, None) => {
            let key = issue::authority_key()?;
            files::write(&key_path, &key.serialize_pem(), Access::Private)?;
            key
        }
    };
    let certificate = issue::authority(&key, now, AUTHORITY_LIFE)?;
    files::write(&certificate_path, &certificate, Access::Public)?;
    info!(directory = %directory.display(), "a certificate authority was made or renewed");
    Ok((certificate, key))
}

fn first<T>(all: Vec<T>, path: &Path) -> Result<T, TlsError> {
    all.into_iter().next().ok_or_else(|| TlsError::ParseCertificate {
        path: path.to_owned(),
        reason: "there is none in it".to_owned(),
    })
}
