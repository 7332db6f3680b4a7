//! Whose certificates prove who a user is: those of the authorities that the API server itself takes users from.
//!
//! Entry points: [`UserAuthority::adopt`], [`UserAuthority::identify`]. Invariant: a certificate that was shown names
//! nobody until [`UserAuthority::identify`] has verified it, for each request anew: authorities and certificates end
//! while connections go on. The handshake asks for one without demanding any, and proves only that the client holds
//! its key, as in the API server: who shows the certificate of another world is a client without one. Must not decide
//! what a user may do.

use std::fmt;
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

use super::{TlsError, pair};
use crate::model::Actor;

/// The group of everybody whom the API server knows.
const AUTHENTICATED: &str = "system:authenticated";

/// The authorities of users' certificates; none until one is adopted. Clones share them.
#[derive(Clone, Default)]
pub struct UserAuthority(Arc<ArcSwapOption<Known>>);

struct Known {
    pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Asks clients for a certificate once an authority is known.
pub(super) struct Asking {
    authority: UserAuthority,
    provider: CryptoProvider,
}

impl UserAuthority {
    /// Only certificates of the authorities in `pem` count from now on; without it none. Says whether that is news.
    ///
    /// # Errors
    /// There is no authority in it; those of before go on counting.
    pub fn adopt(&self, pem: Option<&str>) -> Result<bool, TlsError> {
        if self.0.load().as_ref().map(|known| known.pem.as_str()) == pem {
            return Ok(false);
        }
        let known = pem.map(|pem| Ok(Known { pem: pem.to_owned(), verifier: verifier(pem)? })).transpose()?;
        self.0.store(known.map(Arc::new));
        Ok(true)
    }

    /// Whom the first certificate of `chain` names, as the API server would know them: the common name is the user, the
    /// organizations are the groups. `None` for a certificate that does not count `now`.
    pub fn identify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Option<Actor> {
        let (own, intermediates) = chain.split_first()?;
        let known = self.0.load_full()?;
        let now = Duration::from_secs(u64::try_from(now.as_second()).ok()?);
        let verified = known.verifier.verify_client_cert(own, intermediates, UnixTime::since_unix_epoch(now));
        if let Err(error) = verified {
            tracing::debug!(%error, "a client certificate does not count");
            return None;
        }
        subject(own)
    }
}

/// Users are those whose certificates one of these has signed.
fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let path = Path::new("client-ca-file");
    let failed = |reason: String| TlsError::ParseCertificate { path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    // One that cannot be read vouches for nobody.
    roots.add_parsable_certificates(pair::certificates(path, pem)?);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| failed(error.to_string()))
}

/// Whom a certificate names; nobody where a name is spelled in a way that could be read otherwise elsewhere.
fn subject(certificate: &CertificateDer<'_>) -> Option<Actor> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let text = |name: &AttributeTypeAndValue<'_>| name.as_str().ok().map(str::to_owned);
    let names: Option<Vec<_>> = certificate.subject().iter_common_name().map(text).collect();
    // Of several the API server takes the last.
    let user = names?.pop().filter(|user| !user.is_empty())?;
    let groups: Option<Vec<_>> = certificate.subject().iter_organization().map(text).collect();
    let groups = groups?.into_iter().chain([AUTHENTICATED.to_owned()]).collect();
    Some(Actor { user, groups, ..Actor::default() })
}

impl Asking {
    pub(super) fn new(authority: UserAuthority) -> Self {
        Self { authority, provider: aws_lc_rs::default_provider() }
    }
}

impl ClientCertVerifier for Asking {
    fn offer_client_auth(&self) -> bool {
        self.authority.0.load().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// Whose it is decides [`UserAuthority::identify`].
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

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asking")
    }
}

#[cfg(test)]
mod tests;
