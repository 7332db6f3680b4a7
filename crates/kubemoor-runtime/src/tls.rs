//! The certificate of both ports, and the CA that the API server should trust.
//!
//! There are three sources: files that others renew (cert-manager, for example), and a CA of the guard's own, in a
//! directory or in a Secret that the replicas share. Files are polled and compared by content instead of watched,
//! because volumes of Secrets change by a symlink. The port always has a certificate: an incomplete replacement is
//! ignored. Private keys never reach a log or an error.

mod authority;
mod clients;

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use x509_parser::prelude::{FromDer, X509Certificate};

pub use self::authority::SharedCertificate;
pub use self::clients::{ClientAuthority, UserAuthority};

/// The pause between comparisons of the files with the certificate in use.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The CA certificate, the serving certificate and its key: names of files and of keys in the Secret.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The error for a file without certificates.
const NONE: &str = "no certificate found";

pub type Validity = (Timestamp, Timestamp);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Others provide and renew it.
    Files {
        /// A file of PEM certificates, the port's own one first.
        certificate: PathBuf,
        /// A file with its private key in PEM.
        key: PathBuf,
    },
    /// The guard issues it with its own CA.
    SelfMade {
        /// The directory that keeps `ca.crt`, `ca.key`, `tls.crt` and `tls.key`.
        directory: PathBuf,
        /// The DNS names and IP addresses by which the API server calls; never empty.
        names: Vec<String>,
    },
    /// One replica issues it with the guard's own CA, and all serve it. [`Certificates::adopt`] sets it; until then an
    /// untrusted placeholder is served.
    Shared {
        namespace: String,
        secret: String,
        /// The DNS names and IP addresses by which the API server calls; never empty.
        names: Vec<String>,
        life: Duration,
    },
}

/// Why there is no certificate to serve. An error names files and never quotes a key.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {path}: {source}")]
    ReadFile { path: PathBuf, source: std::io::Error },
    #[error("cannot write {path}: {source}; give a directory that this process may write to")]
    WriteFile { path: PathBuf, source: std::io::Error },
    #[error("{path} has no readable PEM certificate: {reason}")]
    ParseCertificate { path: PathBuf, reason: String },
    #[error("{path} has no usable PEM private key")]
    ParseKey { path: PathBuf },
    #[error("the private key in {key} does not belong to the certificate in {certificate}")]
    MatchKey { certificate: PathBuf, key: PathBuf },
    #[error(
        "{key} is missing or does not belong to {certificate}, so no certificate can be signed: put it \
         back, or remove all of ca.crt, ca.key, tls.crt and tls.key for a new authority"
    )]
    UseAuthority { certificate: PathBuf, key: PathBuf },
    #[error("cannot create a certificate for {names}: {source}")]
    Issue { names: String, source: rcgen::Error },
    #[error("cannot read back the new certificate")]
    ReadBack,
    #[error("cannot set up TLS: {0}")]
    Configure(#[source] rustls::Error),
}

/// The certificate in use and where it comes from; clones share it.
#[derive(Clone)]
pub struct Certificates {
    source: CertificateSource,
    resolver: Arc<Resolver>,
    authority: watch::Sender<Option<Arc<str>>>,
    /// The content of the files when they were last loaded.
    taken: Arc<Mutex<CertificateFiles>>,
}

/// The content of the files. Not `Debug`: it holds the private key.
#[derive(Clone, PartialEq, Eq)]
struct CertificateFiles {
    certificate: String,
    key: String,
    authority: Option<String>,
}

impl Certificates {
    /// Reads the certificate from `source`, after creating it if `source` requires that. Reads and writes files.
    pub fn load(source: CertificateSource, now: Timestamp) -> Result<Self, TlsError> {
        let material = read(&source, now)?;
        let pair = parse(&source, &material)?;
        pair.warn_when_outside(now);
        let authority = material.authority.as_deref().map(Arc::from);
        Ok(Self {
            source,
            resolver: Arc::new(Resolver(ArcSwap::new(pair.key))),
            authority: watch::Sender::new(authority),
            taken: Arc::new(Mutex::new(material)),
        })
    }

    /// The TLS settings of a port, which always serves the current certificate. HTTP/1.1 is the only protocol, TLS 1.2
    /// the lowest version.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        self.configured(WebPkiClientVerifier::no_client_auth())
    }

    /// The same for a port that requires a client certificate signed by `clients`.
    pub fn server_config_for(&self, clients: &ClientAuthority) -> Result<Arc<ServerConfig>, TlsError> {
        self.configured(Arc::clone(&clients.0))
    }

    /// The same for a port that requests client certificates, which [`UserAuthority::identify`] maps to users.
    pub fn server_config_asking(&self, users: &UserAuthority) -> Result<Arc<ServerConfig>, TlsError> {
        self.configured(Arc::new(clients::CertificateRequest::new(users.clone())))
    }

    /// The validity of the certificate in use.
    pub fn validity(&self) -> Result<Validity, TlsError> {
        Ok(parse(&self.source, &self.taken.lock())?.validity)
    }

    /// The authority that the API server should trust, as PEM text for `caBundle`; sent again whenever it changes.
    /// `None` for a given certificate without a `ca.crt` beside it: then the API server's own trust store must know the
    /// issuer.
    pub fn ca_bundle(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.authority.subscribe()
    }

    /// Loads new content of the files, and renews a self-made certificate after two thirds of its life. Returns whether
    /// another certificate is served. Reads and writes files.
    ///
    /// # Errors
    /// The files hold no usable certificate; the previous one stays in use.
    pub fn refresh(&self, now: Timestamp) -> Result<bool, TlsError> {
        match self.source {
            CertificateSource::Shared { .. } => Ok(false),
            CertificateSource::SelfMade { .. } | CertificateSource::Files { .. } => {
                self.take(read(&self.source, now)?, now)
            }
        }
    }

    /// Serves the shared certificate from now on. Returns whether anything changed.
    pub fn adopt(&self, shared: &SharedCertificate, now: Timestamp) -> Result<bool, TlsError> {
        self.take(shared.material(), now)
    }

    /// Whether the certificate in use is an untrusted placeholder, because the shared one is not known yet.
    pub fn has_placeholder(&self) -> bool {
        matches!(self.source, CertificateSource::Shared { .. }) && self.authority.borrow().is_none()
    }

    /// Refreshes every ten seconds until `stop` is cancelled, and calls `renewed` with the end of each new certificate.
    /// The wall clock decides what is due, because timers stand still while a machine sleeps.
    pub async fn keep(&self, renewed: impl Fn(Timestamp), stop: CancellationToken) {
        if matches!(self.source, CertificateSource::Shared { .. }) {
            return stop.cancelled().await;
        }
        let mut ticks = interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_failure = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let certificates = self.clone();
            let refreshing = tokio::task::spawn_blocking(move || certificates.refresh(Timestamp::now()));
            let refreshed = match refreshing.await {
                // The runtime is shutting down.
                Err(error) if error.is_cancelled() => return,
                refreshed => refreshed.map_err(|error| error.to_string()),
            };
            match refreshed.and_then(|refreshed| refreshed.map_err(|error| error.to_string())) {
                Ok(is_new) => {
                    if let (true, Ok((_, until))) = (is_new, self.validity()) {
                        renewed(until);
                    }
                    last_failure = None;
                }
                Err(error) if last_failure.as_ref() == Some(&error) => {}
                Err(error) => {
                    warn!(%error, "failed to reload the certificate; keeping the one in use");
                    last_failure = Some(error);
                }
            }
        }
    }

    fn configured(&self, clients: Arc<dyn ClientCertVerifier>) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Configure)?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::clone(&self.resolver) as _);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn take(&self, material: CertificateFiles, now: Timestamp) -> Result<bool, TlsError> {
        let mut taken = self.taken.lock();
        if *taken == material {
            return Ok(false);
        }
        let pair = parse(&self.source, &material)?;
        pair.warn_when_outside(now);
        info!(certificate.not_after = %pair.validity.1, "serving a new certificate");
        self.resolver.0.store(pair.key);
        let authority = material.authority.as_deref().map(Arc::from);
        self.authority.send_if_modified(|present| {
            let changes = *present != authority;
            *present = authority;
            changes
        });
        *taken = material;
        Ok(true)
    }
}

/// Serves the current certificate in every TLS handshake. The server name that a client sends is ignored: there is only
/// one certificate, and the client checks whether it matches.
#[derive(Debug)]
struct Resolver(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl TlsError {
    fn parse(path: &Path, reason: &dyn fmt::Display) -> Self {
        Self::ParseCertificate { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// A certificate chain with its private key, which belongs to the first certificate.
struct Pair {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

impl Pair {
    /// Reads the content of the files `certificate` and `key`.
    fn parse(certificate: &Path, key: &Path, material: &CertificateFiles) -> Result<Self, TlsError> {
        let chain = certificates(certificate, &material.certificate)?;
        let validity = match chain.first() {
            Some(first) => with_parsed(certificate, first, validity)?,
            None => return Err(TlsError::parse(certificate, &NONE)),
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
        Ok(Self { key: Arc::new(certified), validity })
    }

    fn warn_when_outside(&self, now: Timestamp) {
        let (from, until) = self.validity;
        if now < from || until < now {
            warn!(
                certificate.not_before = %from,
                certificate.not_after = %until,
                "the certificate is expired or not yet valid; the API server will reject it"
            );
        }
    }
}

/// Whether `bundle` contains all certificates of `authorities`, both in PEM.
pub fn contains_authorities(bundle: &str, authorities: &str) -> bool {
    let read = |pem| certificates(Path::new(AUTHORITY), pem).unwrap_or_default();
    let (known, wanted) = (HashSet::<_>::from_iter(read(bundle)), read(authorities));
    !wanted.is_empty() && wanted.iter().all(|authority| known.contains(authority))
}

/// When each certificate of a PEM bundle is valid.
///
/// # Errors
/// It holds none, or one that cannot be read.
pub fn validities(bundle: &str) -> Result<Vec<Validity>, TlsError> {
    let path = Path::new(AUTHORITY);
    certificates(path, bundle)?.iter().map(|it| with_parsed(path, it, validity)).collect()
}

fn read(source: &CertificateSource, now: Timestamp) -> Result<CertificateFiles, TlsError> {
    match source {
        CertificateSource::Files { certificate, key } => {
            let authority = certificate.with_file_name(AUTHORITY);
            let material = CertificateFiles {
                certificate: read_file(certificate)?,
                key: read_file(key)?,
                authority: read_file_if_there(&authority)?,
            };
            if let Some(pem) = &material.authority {
                certificates(&authority, pem)?;
            }
            Ok(material)
        }
        CertificateSource::SelfMade { directory, names } => {
            authority::ensure_certificate(directory, names, now)
        }
        CertificateSource::Shared { names, life, .. } => {
            Ok(CertificateFiles { authority: None, ..SharedCertificate::make(names, now, *life)?.material() })
        }
    }
}

fn parse(source: &CertificateSource, material: &CertificateFiles) -> Result<Pair, TlsError> {
    match source {
        CertificateSource::Files { certificate, key } => Pair::parse(certificate, key, material),
        CertificateSource::SelfMade { directory, .. } => {
            Pair::parse(&directory.join(CERTIFICATE), &directory.join(KEY), material)
        }
        CertificateSource::Shared { .. } => Pair::parse(CERTIFICATE.as_ref(), KEY.as_ref(), material),
    }
}

/// The certificates in the text of the file `path`, at least one.
fn certificates(path: &Path, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(TlsError::parse(path, &NONE)),
        Err(error) => Err(TlsError::parse(path, &error)),
    }
}

/// Parses `certificate`, from the file `path`, and passes it to `ask`.
fn with_parsed<T>(
    path: &Path,
    certificate: &CertificateDer<'_>,
    ask: impl FnOnce(&X509Certificate<'_>) -> T,
) -> Result<T, TlsError> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(ask(&parsed)),
        Err(error) => Err(TlsError::parse(path, &error)),
    }
}

/// A time out of range becomes [`Timestamp::MAX`].
fn validity(certificate: &X509Certificate<'_>) -> Validity {
    let validity = certificate.validity();
    let seconds = |time: &x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp());
    (
        seconds(&validity.not_before).unwrap_or(Timestamp::MAX),
        seconds(&validity.not_after).unwrap_or(Timestamp::MAX),
    )
}

/// The lock file. It is never removed, because that would break the lock.
const LOCK: &str = ".lock";

fn read_file(path: &Path) -> Result<String, TlsError> {
    fs::read_to_string(path).map_err(|source| TlsError::ReadFile { path: path.to_owned(), source })
}

/// The text of a file; `None` if it does not exist.
pub fn read_file_if_there(path: &Path) -> Result<Option<String>, TlsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TlsError::ReadFile { path: path.to_owned(), source }),
    }
}

/// Creates `directory` if it does not exist, and locks it against other callers of [`lock_directory`] until the result
/// is dropped.
pub fn lock_directory(directory: &Path) -> Result<File, TlsError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::WriteFile { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
    let path = directory.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed(&path))?;
    file.lock().map_err(failed(&path))?;
    Ok(file)
}

/// Replaces a file atomically. A private file is never readable by others, not even for a moment. The caller holds the
/// directory's [`lock_directory`].
pub fn write_file(path: &Path, text: &str, is_private: bool) -> Result<(), TlsError> {
    let mode = if is_private { 0o600 } else { 0o644 };
    let beside = path.with_extension("new");
    let write = || {
        // A file that a crashed process left behind must not keep its mode.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|source| TlsError::WriteFile { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
