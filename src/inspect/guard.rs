//! The guard of a cluster, as a person reaches it with nothing but a kubeconfig.
//!
//! Entry points: [`ForwardedGuard`] to ask it through the API server, [`info`] for what its Lease tells. Invariant: a
//! connection is opened when it is needed, and again when it has ended; an error is one sentence that says what failed
//! and what to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::failure::{Failure, failed};
use crate::client::call::CallError;
use crate::client::connection::{Access, Connection};
use crate::client::forward::{self, ForwardError};
use crate::client::guard_api;
use crate::client::lease::Place;
use crate::client::lease::leader_info::{self, LeaderInfo};

/// How long a guard that could not be reached is not tried again: a page asks it several times at once.
const PAUSE: Duration = Duration::from_secs(3);

/// A guard behind the API server.
pub(crate) struct ForwardedGuard {
    connection: Connection,
    place: Place,
    /// The CA of its certificate, in place of the one that its Lease names.
    authority: Option<PathBuf>,
    access: Access,
    way: Mutex<Way>,
}

/// The way to it.
enum Way {
    Unknown,
    Open(Arc<kube::Client>),
    /// There was none at that time, for this reason.
    None(Instant, String),
}

impl ForwardedGuard {
    /// The guard whose Lease lies at `place`. Nobody is asked yet.
    pub(crate) fn new(
        connection: Connection,
        place: Place,
        authority: Option<PathBuf>,
        access: Access,
    ) -> Self {
        Self { connection, place, authority, access, way: Mutex::new(Way::Unknown) }
    }

    /// How it is called in a sentence.
    pub(crate) fn name(&self) -> String {
        format!("the guard in namespace {}", self.place.namespace)
    }

    /// The body of `path` and query; what the guard itself refuses is the inner error.
    pub(crate) async fn get(
        &self,
        path: &str,
        within: Duration,
    ) -> Result<Result<Vec<u8>, CallError>, Failure> {
        let (client, is_new) = self.client().await?;
        let answer = guard_api::get(&client, path, within).await;
        match answer {
            // A connection ends with the pod that it leads to.
            Err(CallError::Unreachable { .. }) if !is_new => {
                self.forget(&client).await;
                let (client, _) = self.client().await?;
                let answer = guard_api::get(&client, path, within).await;
                self.keep(&client, &answer).await;
                Ok(answer)
            }
            answer => {
                self.keep(&client, &answer).await;
                Ok(answer)
            }
        }
    }

    /// A client, and whether its connection is new.
    async fn client(&self) -> Result<(Arc<kube::Client>, bool), Failure> {
        if self.access.user.is_some() {
            let why =
                "a guard looks at your own token or certificate, not at whom you act as: leave --as out";
            return Err(Failure::Named(why.to_owned()));
        }
        let mut way = self.way.lock().await;
        match &*way {
            Way::Open(client) => return Ok((Arc::clone(client), false)),
            Way::None(at, why) if at.elapsed() < PAUSE => return Err(Failure::Named(why.clone())),
            Way::None(..) | Way::Unknown => {}
        }
        let Self { connection, place, authority, access, .. } = self;
        match forward::connect(connection, place, authority.as_deref(), access).await {
            Ok(client) => {
                let client = Arc::new(client);
                *way = Way::Open(Arc::clone(&client));
                Ok((client, true))
            }
            Err(error) => {
                let failure = unreached(connection, error);
                *way = Way::None(Instant::now(), failure.to_string());
                Err(failure)
            }
        }
    }

    /// Keeps a connection that works alone.
    async fn keep(&self, client: &Arc<kube::Client>, answer: &Result<Vec<u8>, CallError>) {
        if matches!(answer, Err(CallError::Unreachable { .. } | CallError::Late { .. })) {
            self.forget(client).await;
        }
    }

    async fn forget(&self, client: &Arc<kube::Client>) {
        let mut way = self.way.lock().await;
        if matches!(&*way, Way::Open(open) if Arc::ptr_eq(open, client)) {
            *way = Way::Unknown;
        }
    }
}

/// What the guard whose Lease lies at `place` tells everybody.
pub(crate) async fn info(connection: &Connection, place: &Place) -> Result<LeaderInfo, Failure> {
    match leader_info::read(&connection.client, place).await {
        Ok(Some(info)) => Ok(info),
        Ok(None) => Err(absent(place, "")),
        Err(error) => Err(unread(connection, place, error)),
    }
}

/// The sentence for a guard that is not there; `otherwise` names further ways.
fn absent(place: &Place, otherwise: &str) -> Failure {
    let Place { namespace, name } = place;
    Failure::Named(format!(
        "there is no guard in namespace {namespace}, which has no Lease {name}: name the guard's namespace with \
         --guard-namespace{otherwise}"
    ))
}

/// The sentence for a Lease that cannot be read.
fn unread(connection: &Connection, place: &Place, error: CallError) -> Failure {
    let is_forbidden = error.is_forbidden();
    let doing = format!("read the Lease {} in namespace {}", place.name, place.namespace);
    let failure = failed(connection, &doing, error);
    match is_forbidden {
        // What the API server says as well where there is no such namespace.
        true => Failure::Forbidden(format!("{failure}, or name another namespace with --guard-namespace")),
        false => failure,
    }
}

/// The sentence for a guard that cannot be asked.
fn unreached(connection: &Connection, error: ForwardError) -> Failure {
    match error {
        ForwardError::Connect(error) => error.into(),
        ForwardError::FindGuard(place) => {
            absent(&place, ", its address with --server, or a database with --ledger")
        }
        ForwardError::ReadLease { place, error } => unread(connection, &place, error),
        ForwardError::ListPods(namespace, error) => {
            failed(connection, &format!("list the guard's pods in namespace {namespace}"), error)
        }
        ForwardError::Forward { namespace, pod, error } => {
            failed(connection, &format!("forward a port of pod {pod} in namespace {namespace}"), error)
        }
        ForwardError::ChoosePod(ref namespace) => Failure::Named(format!(
            "{error}: `kubectl -n {namespace} get pods` shows them; try again once one is ready"
        )),
        ForwardError::ReadAuthority(_) | ForwardError::Trust { .. } => Failure::Named(format!(
            "{error}: name the CA of the guard's certificate with --certificate-authority"
        )),
        ForwardError::Answer { .. } => {
            Failure::Named(format!("{error}: try again, or look at the guard's log"))
        }
    }
}
