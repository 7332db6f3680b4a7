//! Authenticates callers on the webhook's port, and answers them. Answers are errors until the guard can
//! judge requests.
//!
//! Only the API server can find out whether this process can judge.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use http::{Request, Response};
use hyper::body::Incoming;
use rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::parts::Parts;
use kubemoor_guard::admin::Readiness;
use kubemoor_guard::webhook::door::{self, Door};
use kubemoor_guard::webhook::intake::{BodyLimits, Intake};
use kubemoor_guard::webhook::review;
use kubemoor_guard::webhook::validate::{Setup, Validator};
use kubemoor_runtime::callers::{Callers, TokenFile};
use kubemoor_runtime::config::{self, Proof};
use kubemoor_runtime::metrics::AdmissionMetrics;
use kubemoor_runtime::tls::{Certificates, ClientAuthority};

/// The settings and secrets that identify callers.
pub(super) struct Calling {
    pub(super) door: Door,
    authority: Option<ClientAuthority>,
    file: Option<TokenFile>,
}

/// Answers reviews; with an error until it can judge.
#[derive(Clone)]
pub(super) struct Judging {
    door: Door,
    validator: Arc<OnceLock<Validator>>,
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
        Ok(Self { door: Door::new(proof, callers, metrics.clone()), authority, file })
    }

    /// The TLS settings of the webhook's port.
    pub(super) fn server_config(&self, certificates: &Certificates) -> anyhow::Result<Arc<ServerConfig>> {
        Ok(match &self.authority {
            Some(authority) => certificates.server_config_for(authority)?,
            None => certificates.server_config()?,
        })
    }

    /// Follows the file of tokens until `stop`, if there is one.
    pub(super) fn keep(self, parts: &mut Parts, stop: &CancellationToken) {
        if let Some(file) = self.file {
            let (callers, stop) = (self.door.callers().clone(), stop.clone());
            parts.spawn("following the caller token file", file.keep(callers, stop));
        }
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
