//! Creates and renews the certificate that replicas share, and replaces its authority.
//!
//! Entry point: [`Renewal::run`]. Invariant: only the leader writes, but for a certificate that no leader makes or
//! renews, because the leader takes its own from another source; a new authority signs only after all webhook
//! configurations contain it. [`SharedCertificate::due`] decides which step is due. While the emergency switch is off,
//! the authority must not be replaced: the stored configurations contain the old one.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::trust::is_trusted;
use crate::client::certificate_secret::{CertificateSecret, CertificateSecretError};
use crate::client::lease::Leadership;
use crate::tls::{Certificates, Due, Pace, SharedCertificate, TlsError};

/// The pause until there is a certificate.
const WAIT: Duration = Duration::from_secs(1);

/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// The number of looks without a certificate that can be served, after which no leader makes one.
const ABANDONED: u32 = 3;

/// Keeps the certificate.
pub struct Renewal {
    /// The Secret that holds it.
    pub secret: CertificateSecret,
    /// The names by which the API server calls.
    pub names: Vec<String>,
    /// How long it lives.
    pub pace: Pace,
    /// The server's certificates.
    pub certificates: Certificates,
    /// Whether this replica writes.
    pub leadership: Leadership,
    /// Whether the emergency switch is off; `None` while that is not known.
    pub open: watch::Receiver<Option<bool>>,
    /// The receiver of each step.
    pub renewed: Renewed,
}

/// Receives each written step of a renewal, with its Secret.
pub type Renewed = Box<dyn Fn(&CertificateSecret, &'static str) + Send + Sync>;

/// The knowledge of this process.
#[derive(Default)]
struct Sight {
    known: Option<SharedCertificate>,
    /// The time of the last change of the content.
    since: Option<Instant>,
    /// The time since which the Secret has no certificate that can be served.
    without: Option<Instant>,
}

/// The reason why the certificate could not be kept.
#[derive(Debug, Error)]
enum RenewalError {
    #[error(transparent)]
    Secret(#[from] CertificateSecretError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Renewal {
    /// Keeps the certificate until `stop`.
    pub async fn run(self, client: kube::Client, stop: CancellationToken) {
        let mut leading = self.leadership.watch();
        let mut sight = Sight::default();
        let mut last_failure = None;
        loop {
            let looked = tokio::select! {
                () = stop.cancelled() => return,
                looked = self.look(&client, &mut sight) => looked,
            };
            let pause = match &looked {
                Ok(()) if sight.known.is_some() => self.pace.look,
                Ok(()) => WAIT,
                Err(_) => RETRY.min(self.pace.look),
            };
            let failure = looked.err().map(|error| error.to_string());
            if let Some(error) = failure.as_ref().filter(|_| failure != last_failure) {
                tracing::warn!("the certificate that replicas share is not kept, trying again: {error}");
            }
            last_failure = failure;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                Ok(()) = leading.changed() => {}
            }
        }
    }

    /// Reads the Secret and takes a step that is due.
    async fn look(&self, client: &kube::Client, sight: &mut Sight) -> Result<(), RenewalError> {
        let found = self.secret.read(client).await?;
        let now = Timestamp::now();
        let shared = found.as_ref().and_then(|found| found.shared.clone());
        let is_served = shared.as_ref().is_some_and(|shared| shared.is_served(&self.names, now));
        let without = (!is_served).then(|| sight.without.unwrap_or_else(Instant::now));
        sight.without = without;
        // A replica with a wrong clock takes every certificate for useless: it writes once, and not over one that it serves.
        let is_abandoned = sight.known.is_none()
            && without.is_some_and(|without| without.elapsed() > self.pace.look * ABANDONED);
        let writes = self.leadership.holds() || is_abandoned;
        let (next, step) = match shared {
            Some(shared) => {
                // A replica that begins does not serve one that the API server refuses.
                let is_over = |known: &SharedCertificate| !known.is_served(&self.names, now);
                if is_served || sight.known.as_ref().is_some_and(is_over) {
                    self.adopt(shared.clone(), sight, now)?;
                }
                match writes {
                    true => self.step(&shared, client, sight, now).await?.unzip(),
                    false => (None, None),
                }
            }
            None if !writes => (None, None),
            None => {
                if found.as_ref().is_some_and(|found| found.has_content()) || sight.known.is_some() {
                    tracing::warn!(
                        "the Secret of the certificate was removed or overwritten, and is written anew"
                    );
                }
                let made = match &sight.known {
                    Some(known) => known.clone(),
                    None => SharedCertificate::make(&self.names, now, &self.pace)?,
                };
                (Some(made), Some("the certificate that replicas share is written"))
            }
        };
        // A faster write of another process is found at the next read.
        if let Some(next) = next
            && self.secret.write(client, &next, found).await?
        {
            self.adopt(next, sight, now)?;
            if let Some(step) = step {
                (self.renewed)(&self.secret, step);
            }
        }
        Ok(())
    }

    /// The content after the next step, if one is due.
    async fn step(
        &self,
        shared: &SharedCertificate,
        client: &kube::Client,
        sight: &Sight,
        now: Timestamp,
    ) -> Result<Option<(SharedCertificate, &'static str)>, RenewalError> {
        let seen = sight.since.map(|since| since.elapsed()).unwrap_or_default();
        let due = shared.due(&self.names, now, seen, &self.pace);
        let armed = *self.open.borrow() == Some(false);
        let step = match due {
            Due::Nothing => return Ok(None),
            Due::Announcement | Due::Removal if !armed => return Ok(None),
            Due::Turn if !armed || !is_trusted(client, shared.signer()).await => return Ok(None),
            Due::Certificate => "the certificate that replicas share is renewed",
            Due::Everything => "the certificate authority has expired, and is made anew",
            Due::Announcement => "a new certificate authority is trusted beside the one before",
            Due::Turn => "the new certificate authority signs from now on",
            Due::Removal => "the certificate authority before is trusted no more",
        };
        tracing::info!("{step}");
        Ok(Some((shared.after(due, &self.names, now, &self.pace)?, step)))
    }

    /// Serves `shared` from now on.
    fn adopt(&self, shared: SharedCertificate, sight: &mut Sight, now: Timestamp) -> Result<(), TlsError> {
        if sight.known.as_ref().is_some_and(|known| known.is(&shared)) {
            return Ok(());
        }
        self.certificates.adopt(&shared, now)?;
        (sight.known, sight.since) = (Some(shared), Some(Instant::now()));
        Ok(())
    }
}
