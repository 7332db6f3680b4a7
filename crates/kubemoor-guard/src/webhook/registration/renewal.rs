//! Creates and renews the certificate that replicas share, and replaces its authority.
//!
//! Entry point: [`Renewal::run`]. Invariant: only the leader writes, but for a certificate that no leader makes or
//! renews, because the leader takes its own from another source; a new authority signs only after all webhook
//! configurations contain it, and a certificate of an authority that they do not contain is not served in place of a
//! good one. [`SharedCertificate::due`] decides which step is due. While the emergency switch is off,
//! the authority must not be replaced: the stored configurations contain the old one.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::trust::{is_trusted, trusts};
use super::upkeep::{self, Upkeep};
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::certificate_secret::{CertificateSecret, CertificateSecretError};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_runtime::tls::{Certificates, Due, Pace, SharedCertificate, TlsError};

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
pub(super) struct RenewalState {
    known: Option<SharedCertificate>,
    /// The time of the last change of the content.
    since: Option<Instant>,
    /// The time since which the Secret has no certificate that can be served.
    without: Option<Instant>,
    /// Whether the Secret has a certificate of an authority that the webhooks do not trust.
    is_foreign: bool,
}

/// The reason why the certificate could not be kept.
#[derive(Debug, Error)]
pub(super) enum RenewalError {
    #[error(transparent)]
    Secret(#[from] CertificateSecretError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the webhook configurations cannot be read; the account needs get on them: {0}")]
    Trust(#[source] CallError),
}

impl Upkeep for Renewal {
    type State = RenewalState;
    type Error = RenewalError;

    fn retry(&self) -> Duration {
        RETRY.min(self.pace.look)
    }

    fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    async fn keep(&self, client: &kube::Client, state: &mut RenewalState) -> Result<Duration, RenewalError> {
        self.look(client, state).await?;
        Ok(if state.known.is_some() { self.pace.look } else { WAIT })
    }

    fn warn(error: &str) {
        tracing::warn!("the certificate that replicas share is not kept, trying again: {error}");
    }
}

impl Renewal {
    /// Keeps the certificate until `stop`.
    pub async fn run(self, client: kube::Client, stop: CancellationToken) {
        upkeep::run(&self, &client, &stop).await;
    }

    /// Reads the Secret and takes a step that is due.
    async fn look(&self, client: &kube::Client, state: &mut RenewalState) -> Result<(), RenewalError> {
        let found = self.secret.read(client).await?;
        let now = Timestamp::now();
        let shared = found.as_ref().and_then(|found| found.shared.clone());
        let is_served = shared.as_ref().is_some_and(|shared| shared.is_served(&self.names, now));
        let without = (!is_served).then(|| state.without.unwrap_or_else(Instant::now));
        state.without = without;
        // A replica with a wrong clock takes every certificate for useless: it writes once, and not over one that it serves.
        let is_abandoned = state.known.is_none()
            && without.is_some_and(|without| without.elapsed() > self.pace.look * ABANDONED);
        let writes = self.leadership.holds() || is_abandoned;
        let (next, step) = match shared {
            // The API server would refuse what this certificate signs.
            Some(shared) if self.is_foreign(&shared, client, state, now).await? => {
                let known = state.known.clone().filter(|_| writes);
                (known, Some("a certificate that the webhooks do not trust is replaced by the one in use"))
            }
            Some(shared) => {
                // A replica that begins does not serve one that the API server refuses.
                let is_over = |known: &SharedCertificate| !known.is_served(&self.names, now);
                if is_served || state.known.as_ref().is_some_and(is_over) {
                    self.adopt(shared.clone(), state, now)?;
                }
                match writes {
                    true => self.step(&shared, client, state, now).await?.unzip(),
                    false => (None, None),
                }
            }
            None if !writes => (None, None),
            None => {
                if found.as_ref().is_some_and(|found| found.has_content()) || state.known.is_some() {
                    tracing::warn!(
                        "the Secret of the certificate was removed or overwritten, and is written anew"
                    );
                }
                let made = match &state.known {
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
            self.adopt(next, state, now)?;
            if let Some(step) = step {
                (self.renewed)(&self.secret, step);
            }
        }
        Ok(())
    }

    /// Whether a good certificate is in use, and this one is of an authority that is not a step after it and that the
    /// webhooks do not trust: somebody restored an older one, for example.
    async fn is_foreign(
        &self,
        shared: &SharedCertificate,
        client: &kube::Client,
        state: &mut RenewalState,
        now: Timestamp,
    ) -> Result<bool, RenewalError> {
        let Some(known) = state.known.as_ref().filter(|known| known.is_served(&self.names, now)) else {
            return Ok(false);
        };
        let is_foreign =
            !known.trusts(shared) && !trusts(client, shared.issuer()).await.map_err(RenewalError::Trust)?;
        if is_foreign && !std::mem::replace(&mut state.is_foreign, is_foreign) {
            tracing::warn!(
                "the Secret of the certificate was overwritten with one of an authority that the webhooks do not trust; \
                 the certificate in use stays"
            );
        }
        state.is_foreign = is_foreign;
        Ok(is_foreign)
    }

    /// The content after the next step, if one is due.
    async fn step(
        &self,
        shared: &SharedCertificate,
        client: &kube::Client,
        state: &RenewalState,
        now: Timestamp,
    ) -> Result<Option<(SharedCertificate, &'static str)>, RenewalError> {
        let seen = state.since.map(|since| since.elapsed()).unwrap_or_default();
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
    fn adopt(
        &self,
        shared: SharedCertificate,
        state: &mut RenewalState,
        now: Timestamp,
    ) -> Result<(), TlsError> {
        if state.known.as_ref().is_some_and(|known| known.is(&shared)) {
            return Ok(());
        }
        self.certificates.adopt(&shared, now)?;
        (state.known, state.since) = (Some(shared), Some(Instant::now()));
        Ok(())
    }
}
