//! The Secrets that replicas share: the certificate that they serve, and the callers' secret, with the token of the
//! webhook's address and the key with which replicas sign.
//!
//! Each replica looks at both and takes over what it finds; the leader writes the steps that are due. A write replaces
//! what was read and nothing newer, so a process that was stopped for a while and believes that it leads undoes nothing.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::keep::{Configuration, by_hand};
use super::{NAME, holds_token};
use crate::admin::{Readiness, ReadinessCondition};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::shared_secret::{FoundSecret, SharedSecret};
use kubemoor_declare::model::ObjectId;
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::{Act, LedgerRow, ReviewedEdit};
use kubemoor_runtime::callers::{CallerSecrets, NextToken, RandomError, SharedCallerSecret};
use kubemoor_runtime::config::CallerProof;
use kubemoor_runtime::tls::{self, CertificateSource, Certificates, SharedCertificate, TlsError, holds};

pub const CALLER_SECRET: &str = "kubemoor-caller";

/// The key of the callers' Secret, and the name of the file in its place.
const CALLERS: &str = "callers.json";

/// The pause until there is any content, and the one after a failure.
const WAIT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(5);

/// The longest pauses between looks at the certificate and at the callers' secret.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(10);
const CALLERS_LOOK: Duration = Duration::from_secs(15);

#[derive(Debug, Error)]
enum KeepError {
    #[error(transparent)]
    Secret(#[from] ClusterError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("the webhook configurations cannot be read; the account needs get on them: {0}")]
    Webhooks(#[source] ClusterError),
}

struct Rounds {
    leading: watch::Receiver<bool>,
    /// One that repeats is logged once.
    last_failure: Option<String>,
}

/// Keeps the certificate that replicas share. Its authority keeps its key, so while it is renewed, replicas may serve and
/// webhooks may trust the old content or the new one.
#[derive(Clone)]
pub struct Renewal {
    secret: SharedSecret,
    names: Vec<String>,
    life: Duration,
    certificates: Certificates,
    /// Holds once there is a certificate.
    known: ReadinessCondition,
    ledger: LedgerHandle,
}

#[derive(Default)]
struct RenewalState {
    in_use: Option<SharedCertificate>,
    /// Whether the Secret has a certificate of an authority that the webhooks do not trust.
    is_foreign: bool,
    /// Since when the Secret has none that can be served.
    without: Option<Instant>,
}

/// Keeps the callers' secret, and replaces its token: the next one is accepted by all replicas before it is registered,
/// and the one before is accepted until no webhook configuration has held it for a while.
#[derive(Clone)]
pub struct Rotation {
    place: TokenPlace,
    callers: CallerSecrets,
    /// `None` if the token is given, and not made by the guard.
    pace: Option<RotationPace>,
    /// Holds once there is a token.
    known: ReadinessCondition,
}

#[derive(Clone)]
enum TokenPlace {
    Secret(SharedSecret),
    /// In a file, readable by its owner alone.
    Directory(PathBuf),
    Process,
}

/// How long each stage of a token takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RotationPace {
    life: Duration,
    /// The time that replicas have to accept a new token before it is registered.
    spread: Duration,
    /// How long the old token is accepted after no configuration holds it any more.
    grace: Duration,
    look: Duration,
}

#[derive(Default)]
struct RotationState {
    known: Option<SharedCallerSecret>,
    writes: bool,
    /// Whether the token has to be replaced, whatever its age.
    replace: bool,
    /// Since when the tokens are in this stage; in the last one, since when no configuration holds the old token.
    since: Option<Instant>,
}

impl Rounds {
    fn new(leadership: &Leadership) -> Self {
        Self { leading: leadership.watch(), last_failure: None }
    }

    /// Waits for the next look at `what`: for as long as the last one says, or until the lead changes.
    async fn pause(&mut self, kept: Result<Duration, KeepError>, retry: Duration, what: &str) {
        let (pause, failure) = match kept {
            Ok(pause) => (pause, None),
            Err(error) => (retry, Some(error.to_string())),
        };
        if let Some(error) = failure.as_ref().filter(|_| failure != self.last_failure) {
            tracing::warn!("{what} is not kept, trying again: {error}");
        }
        self.last_failure = failure;
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = self.leading.changed() => {}
        }
    }
}

impl Renewal {
    /// `None` where the certificate is not shared. Else the guard is not ready before there is one.
    pub fn new(
        certificates: &Certificates,
        source: &CertificateSource,
        readiness: &Readiness,
        ledger: &LedgerHandle,
    ) -> Option<Self> {
        let CertificateSource::Shared { namespace, secret, names, life } = source else { return None };
        let known = readiness.condition("certificate");
        known.unmet("the certificate that replicas share is not there yet");
        Some(Self {
            secret: SharedSecret { namespace: namespace.clone(), name: secret.clone() },
            names: names.clone(),
            life: *life,
            certificates: certificates.clone(),
            known,
            ledger: ledger.clone(),
        })
    }

    fn pause(&self) -> Duration {
        (self.life / 40).min(CERTIFICATE_LOOK)
    }

    pub async fn run(self, client: kube::Client, leadership: Leadership, stop: CancellationToken) {
        let (mut state, mut rounds) = (RenewalState::default(), Rounds::new(&leadership));
        let look = self.pause();
        let keep = async {
            loop {
                let kept = self.look(&client, &mut state, leadership.holds()).await;
                let pause = kept.map(|()| if state.in_use.is_some() { look } else { WAIT });
                rounds.pause(pause, RETRY.min(look), "the certificate that replicas share").await;
            }
        };
        stop.run_until_cancelled(keep).await;
    }

    /// Reads the Secret and takes a step that is due.
    async fn look(
        &self,
        client: &kube::Client,
        state: &mut RenewalState,
        leads: bool,
    ) -> Result<(), KeepError> {
        let found = self.secret.read(client).await?;
        let now = Timestamp::now();
        let shared = found.as_ref().and_then(|found| SharedCertificate::parse(&found.data()));
        let is_served = shared.as_ref().is_some_and(|shared| shared.is_served(&self.names, now));
        state.without = (!is_served).then(|| state.without.unwrap_or_else(Instant::now));
        let is_abandoned = state.without.is_some_and(|since| since.elapsed() > self.pause() * 3);
        // The leader writes back what was removed. A leader whose certificate is of another source does not, so a replica
        // that begins and finds none for some looks makes one. Once: one with a wrong clock takes every certificate for
        // useless.
        let writes = leads || (state.in_use.is_none() && is_abandoned);
        let (next, step) = match shared {
            // The API server would refuse what this certificate signs.
            Some(shared) if self.is_foreign(&shared, client, state, now).await? => (
                state.in_use.clone().filter(|_| writes),
                "a certificate that the webhooks do not trust is replaced by the one in use",
            ),
            Some(shared) => {
                // A replica that begins does not serve one that the API server refuses.
                let is_over = |in_use: &SharedCertificate| !in_use.is_served(&self.names, now);
                if is_served || state.in_use.as_ref().is_some_and(is_over) {
                    self.adopt(&shared, state, now)?;
                }
                let renews = writes && shared.is_due(&self.names, now);
                let next = renews.then(|| shared.renewed(&self.names, now, self.life)).transpose()?;
                (next, "the certificate that replicas share is renewed")
            }
            None if !writes => return Ok(()),
            None => {
                if found.as_ref().is_some_and(FoundSecret::has_content) || state.in_use.is_some() {
                    tracing::warn!(
                        "the Secret of the certificate was removed or overwritten, and is written anew"
                    );
                }
                let made = match &state.in_use {
                    Some(in_use) => in_use.clone(),
                    None => SharedCertificate::make(&self.names, now, self.life)?,
                };
                (Some(made), "the certificate that replicas share is written")
            }
        };
        // A faster write of another process is found at the next read.
        if let Some(next) = next
            && self.secret.write(client, next.data(), found).await?
        {
            self.adopt(&next, state, now)?;
            tracing::info!("{step}");
            self.record(step);
        }
        Ok(())
    }

    /// Whether a good certificate is in use, and this one is of another authority, which the webhooks do not trust:
    /// somebody restored an older one, for example.
    async fn is_foreign(
        &self,
        shared: &SharedCertificate,
        client: &kube::Client,
        state: &mut RenewalState,
        now: Timestamp,
    ) -> Result<bool, KeepError> {
        let Some(in_use) = state.in_use.as_ref().filter(|in_use| in_use.is_served(&self.names, now)) else {
            return Ok(false);
        };
        let trusts = |config: &WebhookClientConfig| {
            let bundle = config.ca_bundle.as_ref();
            bundle.is_some_and(|pem| holds(&String::from_utf8_lossy(&pem.0), shared.authority()))
        };
        let is_foreign = !shared.has_authority_of(in_use)
            && !all_webhooks(client, trusts).await.map_err(KeepError::Webhooks)?;
        if is_foreign && !state.is_foreign {
            tracing::warn!(
                "the Secret of the certificate was overwritten with one of an authority that the webhooks do not trust; \
                 the certificate in use stays"
            );
        }
        state.is_foreign = is_foreign;
        Ok(is_foreign)
    }

    fn adopt(
        &self,
        shared: &SharedCertificate,
        state: &mut RenewalState,
        now: Timestamp,
    ) -> Result<(), TlsError> {
        if state.in_use.as_ref() != Some(shared) {
            self.certificates.adopt(shared, now)?;
            state.in_use = Some(shared.clone());
            self.known.met();
        }
        Ok(())
    }

    fn record(&self, step: &str) {
        let object = ObjectId::namespaced("", "Secret", &self.secret.namespace, &self.secret.name);
        let edit = ReviewedEdit::watched(object, None);
        let row = LedgerRow::act(Timestamp::now(), edit, None, Act::RenewCertificate);
        self.ledger.record(LedgerRow { detail: step.to_owned(), ..row });
    }
}

impl Rotation {
    /// For a guard in `own_namespace`, else for one whose certificate is made in a directory. The guard is not ready
    /// before there is a token.
    pub fn new(
        proof: &CallerProof,
        own_namespace: Option<&str>,
        source: &CertificateSource,
        callers: CallerSecrets,
        known: ReadinessCondition,
    ) -> Self {
        let place = match (own_namespace, source) {
            (Some(namespace), _) => TokenPlace::Secret(SharedSecret {
                namespace: namespace.to_owned(),
                name: CALLER_SECRET.to_owned(),
            }),
            (None, CertificateSource::SelfMade { directory, .. }) => TokenPlace::Directory(directory.clone()),
            (None, CertificateSource::Given { .. } | CertificateSource::Shared { .. }) => TokenPlace::Process,
        };
        let pace = match proof {
            CallerProof::Kept { life } => Some(RotationPace::new(*life)),
            CallerProof::File(_) | CallerProof::Certificate => None,
        };
        Self { place, callers, pace, known }
    }

    /// Keeps the secret until `stop`. Nothing moves unless `open` says that enforcement is enabled: the
    /// configurations that it keeps hold the token of before.
    pub async fn run(
        self,
        client: kube::Client,
        leadership: Leadership,
        open: watch::Receiver<Option<bool>>,
        stop: CancellationToken,
    ) {
        let (mut state, mut rounds) = (RotationState::default(), Rounds::new(&leadership));
        let look = self.pace.map_or(CALLERS_LOOK, |pace| pace.look);
        let keep = async {
            loop {
                let writes = !matches!(self.place, TokenPlace::Secret(_)) || leadership.holds();
                let moves = *open.borrow() == Some(false);
                let kept = self.look(&client, &mut state, writes, moves).await;
                let pause = kept.map(|()| if state.known.is_some() { look } else { WAIT });
                rounds.pause(pause, RETRY, "the secret that callers are known by").await;
            }
        };
        stop.run_until_cancelled(keep).await;
    }

    /// Reads the secret and takes a step that is due. A replica that begins to write has the token replaced: while
    /// nobody did, the API server may have told its address to whom it could not serve.
    async fn look(
        &self,
        client: &kube::Client,
        state: &mut RotationState,
        writes: bool,
        moves: bool,
    ) -> Result<(), KeepError> {
        let (text, found) = self.read(client, state).await?;
        let begins = !std::mem::replace(&mut state.writes, writes) && writes;
        let now = Timestamp::now();
        let next = match text.as_deref().and_then(SharedCallerSecret::parse) {
            Some(kept) => {
                self.adopt(kept.clone(), state);
                state.replace |= begins;
                if !moves {
                    // Each stage begins anew once enforcement is enabled.
                    state.since = Some(Instant::now());
                    None
                } else if writes {
                    self.step(&kept, client, state, now).await?
                } else {
                    None
                }
            }
            None if !writes => None,
            None => {
                if text.is_some()
                    || found.as_ref().is_some_and(FoundSecret::has_content)
                    || state.known.is_some()
                {
                    tracing::warn!(
                        "the secret that callers are known by was removed or overwritten, and is made anew"
                    );
                }
                Some(match &state.known {
                    // Its removal has the token replaced, and no edit is lost.
                    Some(known) if self.pace.is_some() => known.announced(now)?,
                    Some(known) => known.clone(),
                    None => SharedCallerSecret::random(now)?,
                })
            }
        };
        // A faster write of another process is found at the next read.
        if let Some(next) = next
            && self.write(client, &next, found).await?
        {
            self.adopt(next, state);
        }
        Ok(())
    }

    async fn read(
        &self,
        client: &kube::Client,
        state: &RotationState,
    ) -> Result<(Option<String>, Option<FoundSecret>), KeepError> {
        Ok(match &self.place {
            TokenPlace::Secret(secret) => {
                let found = secret.read(client).await?;
                (found.as_ref().and_then(|found| found.data().remove(CALLERS)), found)
            }
            TokenPlace::Directory(directory) => (tls::read_file_if_there(&directory.join(CALLERS))?, None),
            TokenPlace::Process => (state.known.as_ref().map(SharedCallerSecret::text), None),
        })
    }

    /// Stores `kept`. Returns `false` if another writer was faster.
    async fn write(
        &self,
        client: &kube::Client,
        kept: &SharedCallerSecret,
        over: Option<FoundSecret>,
    ) -> Result<bool, KeepError> {
        match &self.place {
            TokenPlace::Secret(secret) => {
                Ok(secret.write(client, [(CALLERS.to_owned(), kept.text())].into(), over).await?)
            }
            TokenPlace::Directory(directory) => {
                let _lock = tls::lock_directory(directory)?;
                tls::write_file(&directory.join(CALLERS), &kept.text(), true)?;
                Ok(true)
            }
            TokenPlace::Process => Ok(true),
        }
    }

    async fn step(
        &self,
        kept: &SharedCallerSecret,
        client: &kube::Client,
        state: &mut RotationState,
        now: Timestamp,
    ) -> Result<Option<SharedCallerSecret>, KeepError> {
        let Some(pace) = self.pace else { return Ok(None) };
        if let NextToken::Replaced(before) = kept.turn() {
            let is_free = |config: &WebhookClientConfig| !holds_token(config, before);
            // One that cannot be read may hold it.
            if !all_webhooks(client, is_free).await.unwrap_or(false) {
                state.since = Some(Instant::now());
            }
        }
        let has_lasted = |time| state.since.is_some_and(|since| since.elapsed() >= time);
        Ok(match kept.turn() {
            NextToken::None if kept.is_due(now, pace.life) || state.replace => {
                state.replace = false;
                tracing::info!("a new token for the webhook's address is announced to all replicas");
                Some(kept.announced(now)?)
            }
            NextToken::Announced(_) if has_lasted(pace.spread) => {
                tracing::info!("the webhook's address gets its new token");
                Some(kept.advanced(now))
            }
            NextToken::Replaced(_) if has_lasted(pace.grace) => {
                tracing::info!("previous webhook token retired");
                Some(kept.advanced(now))
            }
            NextToken::None | NextToken::Announced(_) | NextToken::Replaced(_) => None,
        })
    }

    fn adopt(&self, kept: SharedCallerSecret, state: &mut RotationState) {
        kept.sign(&self.callers);
        if self.pace.is_some() {
            kept.admit(&self.callers);
            self.known.met();
        }
        if !state.known.as_ref().is_some_and(|known| known.stands_as(&kept)) {
            state.since = Some(Instant::now());
        }
        state.known = Some(kept);
    }
}

impl RotationPace {
    fn new(life: Duration) -> Self {
        let step = life / 10;
        Self {
            life,
            spread: step.min(Duration::from_secs(60)),
            grace: step.min(Duration::from_secs(300)),
            look: (life / 40).min(CALLERS_LOOK),
        }
    }
}

/// Whether all webhooks are as `is_so` wants. Configurations that are not there ask nobody.
async fn all_webhooks(
    client: &kube::Client,
    is_so: impl Fn(&WebhookClientConfig) -> bool,
) -> Result<bool, ClusterError> {
    async fn all<C: Configuration>(
        client: &kube::Client,
        is_so: &impl Fn(&WebhookClientConfig) -> bool,
    ) -> Result<bool, ClusterError> {
        let live = by_hand::<C>(client).read(NAME).await?;
        Ok(live.is_none_or(|live| live.webhooks().iter().all(|webhook| is_so(&webhook.client_config))))
    }
    Ok(all::<ValidatingWebhookConfiguration>(client, &is_so).await?
        && all::<MutatingWebhookConfiguration>(client, &is_so).await?)
}

#[cfg(test)]
mod tests;
