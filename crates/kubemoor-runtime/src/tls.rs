//! The certificate of both ports, and the authority that the API server should trust.
//!
//! Entry point: [`Certificates::load`], then [`Certificates::keep`] in its own task; [`SharedCertificate`]
//! for one that replicas share in a Secret, passed to [`Certificates::adopt`]. Invariant: once loaded, the
//! port always has a certificate: an incomplete replacement on disk is ignored. Certificates are compared by
//! content and not by file events, because the volumes of Secrets change by a link to another directory.
//! Private keys never reach a log or an error. Must not know what is served under the certificate.

mod authority;
pub mod bundle;
mod clients;
mod error;
pub mod files;
mod issue;
mod pair;
mod resolver;
mod shared;
mod users;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::clients::ClientAuthority;
pub use self::error::TlsError;
use self::pair::Pair;
use self::resolver::Resolver;
pub use self::shared::{Due, Pace, SharedCertificate};
pub use self::users::UserAuthority;

/// The pause between comparisons of the files with the certificate in use.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The name of the authority's certificate, beside the port's own one.
const AUTHORITY: &str = "ca.crt";

/// The source of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is given, and renewed, by others.
    Given {
        /// A file of PEM certificates, the port's own one first.
        certificate: PathBuf,
        /// A file with its private key in PEM.
        key: PathBuf,
    },
    /// It is made here, by an authority of its own.
    SelfMade {
        /// The directory that keeps `ca.crt`, `ca.key`, `tls.crt` and `tls.key`.
        directory: PathBuf,
        /// The DNS names and IP addresses by which the API server calls.
        names: Vec<String>,
    },
    /// Replicas share it, and [`Certificates::adopt`] sets it. Until then an untrusted placeholder is served.
    Shared {
        /// The DNS names and IP addresses by which the API server calls.
        names: Vec<String>,
        /// Its lifetime.
        pace: Pace,
    },
}

/// The certificate in use and where it comes from; clones share it.
#[derive(Clone)]
pub struct Certificates {
    source: Source,
    resolver: Arc<Resolver>,
    authority: watch::Sender<Option<Arc<str>>>,
    /// The content of the files when they were last loaded.
    taken: Arc<Mutex<Material>>,
}

/// The content of the files. Not `Debug`: it holds the private key.
#[derive(Clone, PartialEq, Eq)]
struct Material {
    certificate: String,
    key: String,
    authority: Option<String>,
}

impl Certificates {
    /// Reads the certificate from `source`, and makes it first where `source` asks for that. Reads and writes
    /// files.
    ///
    /// # Errors
    /// There is no usable certificate, and none can be made.
    pub fn load(source: Source, now: Timestamp) -> Result<Self, TlsError> {
        let material = read(&source, now)?;
        let pair = parse(&source, &material)?;
        warn_when_outside(&pair, now);
        let authority = material.authority.as_deref().map(Arc::from);
        Ok(Self {
            source,
            resolver: Arc::new(Resolver::new(pair)),
            authority: watch::Sender::new(authority),
            taken: Arc::new(Mutex::new(material)),
        })
    }

    /// The settings of a port that always shows the current certificate. HTTP/1.1
    /// is the only protocol, TLS 1.2 the lowest version.
    ///
    /// # Errors
    /// The TLS library refuses its settings.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        self.configured(WebPkiClientVerifier::no_client_auth())
    }

    /// The same for a port whose clients show a certificate of `clients`.
    ///
    /// # Errors
    /// The TLS library refuses its settings.
    pub fn server_config_for(&self, clients: &ClientAuthority) -> Result<Arc<ServerConfig>, TlsError> {
        self.configured(Arc::clone(&clients.0))
    }

    /// The same for a port that asks clients for a certificate, which [`UserAuthority::identify`] makes a user of.
    ///
    /// # Errors
    /// The TLS library refuses its settings.
    pub fn server_config_asking(&self, users: &UserAuthority) -> Result<Arc<ServerConfig>, TlsError> {
        self.configured(Arc::new(users::Asking::new(users.clone())))
    }

    /// From when to when the certificate in use is valid.
    ///
    /// # Errors
    /// Never for a certificate that was taken over.
    pub fn validity(&self) -> Result<(Timestamp, Timestamp), TlsError> {
        let pair = parse(&self.source, &self.taken.lock())?;
        Ok((pair.not_before, pair.not_after))
    }

    /// The authority that the API server should trust, as PEM text for `caBundle`; sent again whenever it
    /// changes. `None` for a given certificate without a `ca.crt` beside it: then the API server's own trust
    /// store must know the issuer.
    pub fn ca_bundle(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.authority.subscribe()
    }

    /// Loads new content of the files, and renews a self-made certificate after two thirds of its life. A given
    /// certificate of another authority is served from the next call on: until then the authority is only announced, so
    /// that the API server trusts it in time. Returns whether another certificate is served. Reads and writes files.
    ///
    /// # Errors
    /// The files hold no usable certificate; the previous one stays in use.
    pub fn refresh(&self, now: Timestamp) -> Result<bool, TlsError> {
        match self.source {
            Source::Shared { .. } => Ok(false),
            Source::SelfMade { .. } => self.take(read(&self.source, now)?, now),
            Source::Given { .. } => {
                let material = read(&self.source, now)?;
                if self.announce(&material, now)? { Ok(false) } else { self.take(material, now) }
            }
        }
    }

    /// Serves the shared certificate from now on. Returns whether anything changed.
    ///
    /// # Errors
    /// Never for a parsed certificate.
    pub fn adopt(&self, shared: &SharedCertificate, now: Timestamp) -> Result<bool, TlsError> {
        self.take(shared.material(), now)
    }

    /// Whether all replicas serve one certificate, which they renew together.
    pub fn is_shared(&self) -> bool {
        matches!(self.source, Source::Shared { .. })
    }

    /// Whether the certificate in use is an untrusted placeholder, because the shared one is not known yet.
    pub fn is_provisional(&self) -> bool {
        matches!(self.source, Source::Shared { .. }) && self.authority.borrow().is_none()
    }

    /// Refreshes every ten seconds until `stop` is cancelled, and tells `renewed` until when a new certificate is
    /// valid. The wall clock decides what is due, because timers stand still while a machine sleeps.
    pub async fn keep(&self, renewed: impl Fn(Timestamp), stop: CancellationToken) {
        if matches!(self.source, Source::Shared { .. }) {
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
            let refreshed = tokio::task::spawn_blocking(move || certificates.refresh(Timestamp::now())).await;
            let failure = match refreshed {
                Ok(Ok(is_new)) => {
                    if let (true, Ok((_, until))) = (is_new, self.validity()) {
                        renewed(until);
                    }
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            match &failure {
                Some(error) if last_failure == failure => {
                    debug!(%error, "the certificate is still not renewed")
                }
                Some(error) => warn!(%error, "the certificate in use stays, because the files give no other"),
                None => {}
            }
            last_failure = failure;
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

    /// Has the authority of a certificate that will be served trusted beside the present one. Returns whether that is
    /// news, and the present certificate can be served meanwhile.
    fn announce(&self, material: &Material, now: Timestamp) -> Result<bool, TlsError> {
        let taken = self.taken.lock();
        let Some(next) = material.authority.as_deref().filter(|_| *taken != *material) else {
            return Ok(false);
        };
        let is_served = parse(&self.source, &taken)?.not_after > now;
        // Without a usable certificate nothing is announced.
        parse(&self.source, material)?;
        Ok(is_served
            && self.authority.send_if_modified(|present| match present {
                Some(known) if !bundle::holds(known, next) => {
                    warn!(
                        "the certificate in the files is of another authority: it is served in ten seconds, whether \
                         or not the webhooks trust it by then"
                    );
                    *known = bundle::union([&**known, next]).into();
                    true
                }
                _ => false,
            }))
    }

    fn take(&self, material: Material, now: Timestamp) -> Result<bool, TlsError> {
        let mut taken = self.taken.lock();
        if *taken == material {
            return Ok(false);
        }
        let pair = parse(&self.source, &material)?;
        warn_when_outside(&pair, now);
        info!(certificate.not_after = %pair.not_after, "a new certificate is served");
        self.resolver.set(pair);
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

fn read(source: &Source, now: Timestamp) -> Result<Material, TlsError> {
    match source {
        Source::Given { certificate, key } => {
            let authority = certificate.with_file_name(AUTHORITY);
            let material = Material {
                certificate: files::read(certificate)?,
                key: files::read(key)?,
                authority: files::read_if_there(&authority)?,
            };
            if let Some(pem) = &material.authority {
                pair::certificates(&authority, pem)?;
            }
            Ok(material)
        }
        Source::SelfMade { directory, names } => authority::provide(directory, names, now),
        Source::Shared { names, pace } => {
            Ok(Material { authority: None, ..SharedCertificate::make(names, now, pace)?.material() })
        }
    }
}

fn parse(source: &Source, material: &Material) -> Result<Pair, TlsError> {
    match source {
        Source::Given { certificate, key } => Pair::parse(certificate, key, material),
        Source::SelfMade { directory, .. } => {
            Pair::parse(&directory.join(authority::CERTIFICATE), &directory.join(authority::KEY), material)
        }
        Source::Shared { .. } => {
            Pair::parse(authority::CERTIFICATE.as_ref(), authority::KEY.as_ref(), material)
        }
    }
}

fn warn_when_outside(pair: &Pair, now: Timestamp) {
    if now < pair.not_before || pair.not_after < now {
        warn!(
            certificate.not_before = %pair.not_before,
            certificate.not_after = %pair.not_after,
            "the API server will refuse the certificate, because this is outside of its time"
        );
    }
}

#[cfg(test)]
mod tests;
