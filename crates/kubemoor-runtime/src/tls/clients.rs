//! The certificates of clients: the API server's by `--client-ca`, and users' by the authorities that the API server
//! itself accepts for users.
//!
//! With a [`ClientAuthority`], no request is read from a connection without a certificate that it signed. A user's
//! certificate identifies nobody until [`UserAuthority::identify`] has verified it. That happens for every request,
//! because authorities and certificates can expire during a connection. As in the API server, the handshake
//! requests a certificate without requiring one, and proves only that the client holds its key. A client with
//! a certificate of another authority counts as one without.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use super::{TlsError, certificates, read_file};
use kubemoor_declare::model::Actor;

/// The group of all users that the API server authenticates.
const AUTHENTICATED: &str = "system:authenticated";

/// The authority of the API server's certificate.
#[derive(Clone, Debug)]
pub struct ClientAuthority(pub(super) Arc<dyn ClientCertVerifier>);

/// The authorities of users' certificates; `None` until one is adopted. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct UserAuthority(Arc<ArcSwapOption<KnownAuthorities>>);

#[derive(Debug)]
struct KnownAuthorities {
    pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Asks clients for a certificate once an authority is known.
#[derive(Debug)]
pub(super) struct CertificateRequest {
    authority: UserAuthority,
    provider: CryptoProvider,
}

impl ClientAuthority {
    /// The authority from the file `path` in PEM; several certificates during a rotation. Reads the file.
    pub fn load(path: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path, &read_file(path)?)? {
            roots.add(certificate).map_err(|error| TlsError::parse(path, &error))?;
        }
        verifier(path, roots).map(Self)
    }
}

impl UserAuthority {
    /// Accepts only certificates of the authorities in `pem` from now on; none without `pem`. Returns whether
    /// that changed anything.
    ///
    /// # Errors
    /// There is no authority in it; the previous ones stay in use.
    pub fn adopt(&self, pem: Option<&str>) -> Result<bool, TlsError> {
        if self.0.load().as_ref().map(|known| known.pem.as_str()) == pem {
            return Ok(false);
        }
        let known = pem.map(|pem| {
            let path = Path::new("client-ca-file");
            let mut roots = RootCertStore::empty();
            // A certificate that cannot be parsed is ignored.
            roots.add_parsable_certificates(certificates(path, pem)?);
            Ok(KnownAuthorities { pem: pem.to_owned(), verifier: verifier(path, roots)? })
        });
        let known = known.transpose()?;
        self.0.store(known.map(Arc::new));
        Ok(true)
    }

    /// The user of the first certificate of `chain`, by the API server's rules: the common name is the user, the
    /// organizations are the groups. `None` for a certificate that is not valid `now`.
    pub fn identify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Option<Actor> {
        let (own, intermediates) = chain.split_first()?;
        let known = self.0.load_full()?;
        let now = Duration::from_secs(u64::try_from(now.as_second()).ok()?);
        let verified = known.verifier.verify_client_cert(own, intermediates, UnixTime::since_unix_epoch(now));
        if let Err(error) = verified {
            tracing::debug!(%error, "ignoring an invalid client certificate");
            return None;
        }
        subject(own)
    }
}

fn verifier(path: &Path, roots: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| TlsError::parse(path, &error))
}

/// The user of a certificate; `None` if other programs could read a name differently.
fn subject(certificate: &CertificateDer<'_>) -> Option<Actor> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let text = |name: &AttributeTypeAndValue<'_>| name.as_str().ok().map(str::to_owned);
    let names: Option<Vec<_>> = certificate.subject().iter_common_name().map(text).collect();
    // If there are several, the API server takes the last.
    let user = names?.pop().filter(|user| !user.is_empty())?;
    let groups: Option<Vec<_>> = certificate.subject().iter_organization().map(text).collect();
    let groups = groups?.into_iter().chain([AUTHENTICATED.to_owned()]).collect();
    Some(Actor { user, groups, ..Actor::default() })
}

impl CertificateRequest {
    pub(super) fn new(authority: UserAuthority) -> Self {
        Self { authority, provider: aws_lc_rs::default_provider() }
    }
}

impl ClientCertVerifier for CertificateRequest {
    fn offer_client_auth(&self) -> bool {
        self.authority.0.load().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// [`UserAuthority::identify`] verifies the certificate.
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
