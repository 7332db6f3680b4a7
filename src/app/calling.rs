//! Authenticates callers on the webhook's port, and answers them. Answers are errors until the guard can
//! judge requests.
//!
//! Entry points: [`Calling::open`]; [`Judging::answer`]. Invariant: only the API server can find out whether
//! this process can judge.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use http::{Request, Response};
use hyper::body::Incoming;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::parts::Parts;
use kubemoor_cluster::client::caller_secret::Place;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_guard::admin::{Condition, Readiness};
use kubemoor_guard::webhook::door::{self, Door};
use kubemoor_guard::webhook::intake::{BodyLimits, Intake};
use kubemoor_guard::webhook::registration::rotation::{Pace, Rotation};
use kubemoor_guard::webhook::review;
use kubemoor_guard::webhook::validate::{Setup, Validator};
use kubemoor_runtime::callers::Callers;
use kubemoor_runtime::callers::file::TokenFile;
use kubemoor_runtime::config::{self, Proof};
use kubemoor_runtime::metrics::AdmissionMetrics;
use kubemoor_runtime::tls::{Certificates, ClientAuthority};

/// The settings and secrets that identify callers.
pub(super) struct Calling {
    pub(super) door: Door,
    authority: Option<ClientAuthority>,
    file: Option<TokenFile>,
    known: Condition,
}

/// Answers reviews; with an error until it can judge.
#[derive(Clone)]
pub(super) struct Judging {
    door: Door,
    validator: Arc<OnceLock<Validator>>,
}

/// The services that store and share the callers' secret among replicas.
#[derive(Clone)]
pub(super) struct Keeping {
    place: Place,
    pace: Option<Pace>,
    callers: Callers,
}

impl Calling {
    /// Reads what is given of callers.
    pub(super) fn open(
        config: &config::Callers,
        metrics: &AdmissionMetrics,
        readiness: &Readiness,
    ) -> anyhow::Result<Self> {
        let callers = Callers::default();
        // Registered before the port opens: without any condition the guard would report ready.
        let known = readiness.condition("callers");
        let (proof, file) = match &config.proof {
            Proof::Certificate => (door::Proof::Certificate, None),
            Proof::Kept { .. } => (door::Proof::Token, None),
            Proof::File(path) => (door::Proof::Token, Some(TokenFile::open(path.clone(), &callers)?)),
        };
        match &config.proof {
            Proof::Kept { .. } => known.unmet("the secret that callers are known by is not there yet"),
            Proof::Certificate | Proof::File(_) => known.met(),
        }
        let authority = config.client_ca.as_deref().map(ClientAuthority::load).transpose()?;
        Ok(Self { door: Door::new(proof, callers, metrics.clone()), authority, file, known })
    }

    /// The TLS settings of the webhook's port.
    pub(super) fn server_config(&self, certificates: &Certificates) -> anyhow::Result<Arc<ServerConfig>> {
        Ok(match &self.authority {
            Some(authority) => certificates.server_config_for(authority)?,
            None => certificates.server_config()?,
        })
    }

    /// Follows what is known of callers until `stop`.
    pub(super) fn keep(self, parts: &mut Parts, stop: &CancellationToken) {
        let callers = self.door.callers().clone();
        if let Some(file) = self.file {
            let (callers, stop) = (callers.clone(), stop.clone());
            parts.spawn("following the caller token file", async move { file.keep(callers, stop).await });
            return;
        }
        let (known, stop) = (self.known, stop.clone());
        parts.spawn("waiting for callers to be known", async move {
            let mut changes = callers.changes();
            let is_told = tokio::select! {
                () = stop.cancelled() => false,
                told = changes.wait_for(|secret| secret.registered().is_some()) => told.is_ok(),
            };
            if is_told {
                known.met();
            }
            stop.cancelled().await;
        });
    }
}

impl Keeping {
    /// Of a guard in `own_namespace`, else of one whose certificates are made in
    /// a directory.
    pub(super) fn new(
        config: &config::Callers,
        own_namespace: Option<&str>,
        tls: &config::Tls,
        callers: Callers,
    ) -> Self {
        let place = match (own_namespace, tls) {
            (Some(namespace), _) => Place::Secret(namespace.to_owned()),
            (None, config::Tls::Made { dir, .. }) => Place::Directory(dir.clone()),
            (None, config::Tls::Given { .. } | config::Tls::Shared { .. }) => Place::Process,
        };
        let pace = match config.proof {
            Proof::Kept { life } => Some(Pace::of(life)),
            Proof::File(_) | Proof::Certificate => None,
        };
        Self { place, pace, callers }
    }

    /// Keeps the secret until `stop`.
    pub(super) async fn run(
        self,
        client: kube::Client,
        leadership: Leadership,
        open: watch::Receiver<Option<bool>>,
        stop: CancellationToken,
    ) {
        let Self { place, pace, callers } = self;
        Rotation { place, callers, pace, leadership, open }.run(client, stop).await;
    }
}

impl Judging {
    /// Nothing is judged yet.
    pub(super) fn new(door: Door) -> Self {
        Self { door, validator: Arc::default() }
    }

    /// Returns the check that admits callers.
    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    /// Has reviews judged from now on. Once: a run has one source.
    pub(super) fn begin(&self, setup: Setup) {
        let _ = self.validator.set(Validator::new(Intake::new(BodyLimits::default()), setup));
    }

    pub(super) async fn answer(self, peer: IpAddr, request: Request<Incoming>) -> Response<review::Body> {
        match self.validator.get() {
            Some(validator) => validator.answer(peer, request).await,
            None if self.door.stage(request.uri().path()).is_none() => review::nothing(),
            None => review::failed("the guard does not know all releases yet; try again in a moment"),
        }
    }
}
