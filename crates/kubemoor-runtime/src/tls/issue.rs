//! Makes certificates, and tells what one is good for.
//!
//! Entry points: [`authority`] and [`certificate`]. Must not read or write files.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use super::TlsError;

/// Certificates begin this long before they are made, for clocks that are late; those of a short life a tenth of it.
const EARLIER: SignedDuration = SignedDuration::from_mins(10);

/// The certificate of a new authority with this key, as PEM.
pub(super) fn authority(key: &KeyPair, now: Timestamp, life: SignedDuration) -> Result<String, TlsError> {
    let mut params = CertificateParams::default();
    set_times(&mut params, now, life);
    params.distinguished_name = common_name("kubemoor authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(SerialNumber::from(now.as_second().unsigned_abs()));
    Ok(params.self_signed(key).map_err(not_issued)?.pem())
}

/// A new certificate for `names` with its key, both as PEM.
pub(super) fn certificate(
    names: &[String],
    authority: &str,
    authority_key: KeyPair,
    now: Timestamp,
    life: SignedDuration,
) -> Result<(String, String), TlsError> {
    let failed = |source| TlsError::Issue { names: names.join(", "), source };
    let issuer = Issuer::from_ca_cert_pem(authority, authority_key).map_err(failed)?;
    let mut params = CertificateParams::new(names).map_err(failed)?;
    set_times(&mut params, now, life);
    params.distinguished_name = common_name("kubemoor");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?.pem();
    Ok((certificate, key.serialize_pem()))
}

/// A new key of an authority.
pub(super) fn authority_key() -> Result<KeyPair, TlsError> {
    KeyPair::generate().map_err(not_issued)
}

/// Whether two thirds of a life are over, or it has not begun: then a clock that was ahead has been
/// corrected.
pub(super) fn is_due(from: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    let life = until.duration_since(from);
    now < from || now.duration_since(from) >= life / 3 * 2
}

/// Whether a certificate is for exactly these names and addresses.
pub(super) fn is_for(certificate: &X509Certificate<'_>, names: &[String]) -> bool {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return names.is_empty() };
    let present: Option<BTreeSet<String>> = extension
        .value
        .general_names
        .iter()
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
        .collect();
    let wanted = names.iter().map(|name| match name.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => name.clone(),
    });
    present == Some(wanted.collect())
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
