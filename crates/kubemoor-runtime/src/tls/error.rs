//! The reasons why there is no certificate to serve.
//!
//! Entry point: [`TlsError`]. Invariant: an error names files and never quotes a key.

use std::path::PathBuf;

use thiserror::Error;

/// Why there is no certificate to serve.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}; give a directory that this process may write to")]
    WriteFile {
        /// The file, or the directory for it.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file holds no certificate.
    #[error("{path} holds no PEM certificate that can be read: {reason}")]
    ParseCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file holds no private key.
    #[error("{path} holds no PEM private key that can be used")]
    ParseKey {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key are of two pairs.
    #[error("the private key in {key} does not belong to the certificate in {certificate}")]
    MatchKey {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The authority can sign no more.
    #[error(
        "{key} is missing or does not belong to {certificate}, so no certificate can be signed: put it \
         back, or remove all of ca.crt, ca.key, tls.crt and tls.key for a new authority"
    )]
    UseAuthority {
        /// The authority's certificate.
        certificate: PathBuf,
        /// The authority's key.
        key: PathBuf,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate for {names}: {source}")]
    Issue {
        /// The names in the certificate.
        names: String,
        /// What is wrong.
        source: rcgen::Error,
    },
    /// The new certificate is not complete.
    #[error("a certificate that was just made cannot be read back")]
    ReadBack,
    /// The TLS library refuses its settings.
    #[error("cannot set up TLS: {0}")]
    Configure(#[source] rustls::Error),
}
