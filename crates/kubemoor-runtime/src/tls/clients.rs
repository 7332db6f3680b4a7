//! The authority for client certificates: `--client-ca`.
//!
//! Entry point: [`ClientAuthority::load`]. Invariant: with an authority, no request is read from a connection
//! without a certificate that it signed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{TlsError, files, pair};

/// The authority of clients' certificates.
#[derive(Clone)]
pub struct ClientAuthority(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// The authority from the file `path` in PEM; more than one certificate during a rotation. Reads the
    /// file.
    ///
    /// # Errors
    /// There is no such file, or it holds no authority.
    pub fn load(path: &Path) -> Result<Self, TlsError> {
        let failed = |reason: String| TlsError::ParseCertificate { path: path.to_owned(), reason };
        let mut roots = RootCertStore::empty();
        for certificate in pair::certificates(path, &files::read(path)?)? {
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map(Self).map_err(|error| failed(error.to_string()))
    }
}

impl fmt::Debug for ClientAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientAuthority")
    }
}
