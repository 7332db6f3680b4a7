//! A certificate chain with its private key, read from PEM.
//!
//! Invariant: the key belongs to the first certificate.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Material, TlsError};

/// The certificate and key for a TLS handshake, and the time for which they are valid.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Pair {
    /// Reads the content of the files `certificate` and `key`.
    pub(super) fn parse(certificate: &Path, key: &Path, material: &Material) -> Result<Self, TlsError> {
        let chain = certificates(certificate, &material.certificate)?;
        let (not_before, not_after) = match chain.first() {
            Some(first) => with_parsed(certificate, first, validity)?,
            None => return Err(unreadable(certificate, "there is none in it")),
        };
        let private = PrivateKeyDer::from_pem_slice(material.key.as_bytes())
            .map_err(|_| TlsError::ParseKey { path: key.to_owned() })?;
        let certified = CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider());
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::MatchKey { certificate: certificate.to_owned(), key: key.to_owned() }
            }
            _ => TlsError::ParseKey { path: key.to_owned() },
        })?;
        Ok(Self { key: Arc::new(certified), not_before, not_after })
    }
}

/// The certificates in the text of the file `path`, at least one.
pub(super) fn certificates(path: &Path, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(unreadable(path, "there is none in it")),
        Err(error) => Err(unreadable(path, &error.to_string())),
    }
}

/// Parses `certificate`, from the file `path`, and passes it to `ask`.
pub(super) fn with_parsed<T>(
    path: &Path,
    certificate: &CertificateDer<'_>,
    ask: impl FnOnce(&X509Certificate<'_>) -> T,
) -> Result<T, TlsError> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(ask(&parsed)),
        Err(error) => Err(unreadable(path, &error.to_string())),
    }
}

/// From when to when a certificate is valid. A time that no calendar here can
/// hold is the end of all time.
pub(super) fn validity(certificate: &X509Certificate<'_>) -> (Timestamp, Timestamp) {
    let validity = certificate.validity();
    let seconds = |time: &x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp());
    (
        seconds(&validity.not_before).unwrap_or(Timestamp::MAX),
        seconds(&validity.not_after).unwrap_or(Timestamp::MAX),
    )
}

fn unreadable(path: &Path, reason: &str) -> TlsError {
    TlsError::ParseCertificate { path: path.to_owned(), reason: reason.to_owned() }
}
