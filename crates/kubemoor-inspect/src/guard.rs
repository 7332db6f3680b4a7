//! Access to the guard of a cluster with only a kubeconfig: forwarded through the API server, by its Lease, and by
//! orders in a GuardedRelease, so that the API server authorizes the user and records their name.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::failure::{InspectError, describe_release, failed};
use super::reading::LeaseCache;
use kubemoor_cluster::client::call::{self, ClusterError};
use kubemoor_cluster::client::connection::{ClusterAccess, ClusterConnection};
use kubemoor_cluster::client::forward::{self, ForwardError};
use kubemoor_cluster::client::guarded::{self, UserSetting};
use kubemoor_cluster::client::lease::{self, LeaderInfo};
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::{LeaseReference, OrderAnswer, OrderResult};

pub struct ForwardedGuard {
    connection: ClusterConnection,
    place: LeaseReference,
    /// The CA of its certificate, in place of the one that its Lease names.
    authority: Option<PathBuf>,
    access: ClusterAccess,
    /// The cached connections, kept only if they reach all pods.
    replicas: Mutex<Option<Arc<Replicas>>>,
}

/// Connections to the pods that together hold the guard's ledger.
struct Replicas {
    clients: Vec<(String, kube::Client)>,
    /// A message about each pod that cannot be reached.
    lacking: Vec<String>,
}

type PodAnswer = Result<Vec<u8>, ClusterError>;

/// The bodies of the pods that answered, and a message about each other pod.
type PodAnswers = (Result<Vec<Vec<u8>>, ClusterError>, Vec<String>);

impl ForwardedGuard {
    /// The guard whose Lease is `place`. Sends no request.
    pub fn new(
        connection: ClusterConnection,
        place: LeaseReference,
        authority: Option<PathBuf>,
        access: ClusterAccess,
    ) -> Self {
        Self { connection, place, authority, access, replicas: Mutex::default() }
    }

    pub(crate) fn name(&self) -> String {
        format!("the guard in namespace {}", self.place.namespace)
    }

    /// The bodies of `path` with its query, one from each pod that has its own ledger and answers. If the guard rejects
    /// the request, that is the inner error.
    pub(crate) async fn get(&self, path: &str, within: Duration) -> Result<PodAnswers, InspectError> {
        let (mut replicas, is_new) = self.replicas().await?;
        let mut answers = replicas.ask(path, within).await;
        let is_broken = |answer: &PodAnswer| {
            matches!(answer, Err(ClusterError::Unreachable { .. } | ClusterError::Untrusted { .. }))
        };
        // A cached connection breaks when its pod ends.
        if !is_new && answers.iter().any(is_broken) {
            *self.replicas.lock() = None;
            (replicas, _) = self.replicas().await?;
            answers = replicas.ask(path, within).await;
        }
        // Only working connections are cached.
        if answers.iter().any(|answer| is_broken(answer) || matches!(answer, Err(ClusterError::Late { .. })))
        {
            *self.replicas.lock() = None;
        }
        Ok(replicas.gather(answers))
    }

    /// The metrics of each pod that has its own ledger and answers, as text.
    pub async fn metrics(&self) -> Result<Vec<String>, InspectError> {
        let (answers, _) = self.get("/metrics", PATIENCE).await?;
        let bodies = answers.map_err(|error| match error.is_forbidden() {
            true => InspectError::Forbidden("you may not get the path /metrics (nonResourceURLs)".to_owned()),
            false => InspectError::InvalidInput(format!("{} returns no metrics: {error}", self.name())),
        })?;
        Ok(bodies.iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect())
    }

    async fn replicas(&self) -> Result<(Arc<Replicas>, bool), InspectError> {
        if self.access.user.is_some() {
            let why =
                "a guard authenticates your own token or certificate and ignores impersonation: remove --as";
            return Err(InspectError::InvalidInput(why.to_owned()));
        }
        if let Some(replicas) = self.replicas.lock().clone() {
            return Ok((replicas, false));
        }
        let replicas = self.connect().await.map_err(|error| unreached(&self.connection, error))?;
        let replicas = Arc::new(replicas);
        *self.replicas.lock() = Some(Arc::clone(&replicas)).filter(|it| it.lacking.is_empty());
        Ok((replicas, true))
    }

    /// Connects to all pods that have to be asked; fails if none of them can be reached.
    async fn connect(&self) -> Result<Replicas, ForwardError> {
        let Self { connection, place, authority, access, .. } = self;
        let guard = forward::find(connection, place, authority.as_deref()).await?;
        let (mut clients, mut failed) = (Vec::new(), Vec::new());
        for (pod, client) in guard.pods().into_iter().zip(guard.connect(connection, access).await) {
            match client {
                Ok(client) => clients.push((pod, client)),
                Err(error) => failed.push((pod, error)),
            }
        }
        if clients.is_empty()
            && let Some((_, error)) = failed.drain(..).next()
        {
            return Err(error);
        }
        let lacking = failed.iter().map(|(pod, error)| unshown(pod, error)).collect();
        Ok(Replicas { clients, lacking })
    }
}

impl Replicas {
    async fn ask(&self, path: &str, within: Duration) -> Vec<PodAnswer> {
        join_all(self.clients.iter().map(|(_, client)| call::read(client, path, within))).await
    }

    /// The bodies of the pods that answered. If one pod refuses the user, all would.
    fn gather(&self, answers: Vec<PodAnswer>) -> PodAnswers {
        let (mut bodies, mut failed) = (Vec::new(), Vec::new());
        for ((pod, _), answer) in self.clients.iter().zip(answers) {
            match answer {
                Ok(body) => bodies.push(body),
                Err(error @ ClusterError::Refused { code: 400 | 401 | 403, .. }) => {
                    return (Err(error), Vec::new());
                }
                Err(error) => failed.push((pod.clone(), error)),
            }
        }
        if bodies.is_empty()
            && let Some((_, error)) = failed.drain(..).next()
        {
            return (Err(error), Vec::new());
        }
        let silent = failed.iter().map(|(pod, error)| unshown(pod, error));
        (Ok(bodies), self.lacking.iter().cloned().chain(silent).collect())
    }
}

/// The data that the leader publishes in the Lease `place`.
pub async fn info(
    connection: &ClusterConnection,
    place: &LeaseReference,
) -> Result<LeaderInfo, InspectError> {
    match lease::read_leader_info(&connection.client, place).await {
        Ok(Some(info)) => Ok(info),
        Ok(None) => Err(absent(place, "")),
        Err(error) => Err(unread(connection, place, error)),
    }
}

fn unshown(pod: &str, reason: &dyn Display) -> String {
    format!("rows that pod {pod} keeps in its own ledger are not shown: {reason}")
}

/// The error for a guard that does not exist; `otherwise` names alternatives.
fn absent(place: &LeaseReference, otherwise: &str) -> InspectError {
    let LeaseReference { namespace, name } = place;
    InspectError::InvalidInput(format!(
        "there is no guard in namespace {namespace}, which has no Lease {name}: set the guard's namespace \
         with --guard-namespace{otherwise}"
    ))
}

fn unread(connection: &ClusterConnection, place: &LeaseReference, error: ClusterError) -> InspectError {
    let is_forbidden = error.is_forbidden();
    let doing = format!("read the Lease {} in namespace {}", place.name, place.namespace);
    let failure = failed(connection, &doing, error);
    match is_forbidden {
        // The API server answers the same if the namespace does not exist.
        true => {
            InspectError::Forbidden(format!("{failure}, or set another namespace with --guard-namespace"))
        }
        false => failure,
    }
}

fn unreached(connection: &ClusterConnection, error: ForwardError) -> InspectError {
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
        ForwardError::ChoosePod(ref namespace) => InspectError::InvalidInput(format!(
            "{error}: `kubectl -n {namespace} get pods` shows them; try again once one is ready"
        )),
        ForwardError::ReadAuthority(_) | ForwardError::Trust { .. } => InspectError::InvalidInput(format!(
            "{error}: name the CA of the guard's certificate with --certificate-authority"
        )),
        ForwardError::Answer { .. } => {
            InspectError::InvalidInput(format!("{error}: try again, or look at the guard's log"))
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for the answer to an order, and the polling interval.
const WAIT: Duration = Duration::from_secs(15);
pub const LOOK: Duration = Duration::from_millis(250);

pub struct GivenOrder {
    pub answered: OrderOutcome,
    pub warnings: Vec<String>,
}

/// The guard's response to an order.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OrderOutcome {
    /// The guard answered.
    #[serde(rename = "answer")]
    Given(OrderAnswer),
    /// No guard is running.
    Stale { message: String },
    /// The guard has not answered yet.
    Outstanding { why: String },
}

/// Changes a setting in a GuardedRelease; returns the API server's warnings.
pub async fn set(
    connection: &ClusterConnection,
    release: &ReleaseId,
    setting: &UserSetting,
    doing: &str,
) -> Result<Vec<String>, InspectError> {
    match guarded::set(&connection.client, release, setting, PATIENCE).await {
        Ok(warnings) => Ok(warnings),
        Err(error) if error.is_not_found() => Err(InspectError::InvalidInput(format!(
            "there is no GuardedRelease {}: `kubemoor get releases -n {}` says why",
            describe_release(release),
            release.namespace
        ))),
        Err(error) => Err(failed(connection, doing, error)),
    }
}

/// Orders a repair now, and waits for the guard's answer.
pub async fn reconcile(
    connection: &ClusterConnection,
    pulses: &LeaseCache,
    release: &ReleaseId,
) -> Result<GivenOrder, InspectError> {
    let at = Timestamp::now().to_string();
    let setting = UserSetting::Reconcile(at.clone());
    let warnings = set(connection, release, &setting, "reconcile the release").await?;
    let answered = answer(connection, pulses, release, &at).await;
    Ok(GivenOrder { answered, warnings })
}

/// Waits at most [`WAIT`] for the guard's answer to the order of `at`. If the order itself still waits by then, returns
/// that answer.
async fn answer(
    connection: &ClusterConnection,
    pulses: &LeaseCache,
    release: &ReleaseId,
    at: &str,
) -> OrderOutcome {
    let until = Instant::now() + WAIT;
    let mut last = None;
    loop {
        let status = match guarded::get(&connection.client, release).await {
            Ok(guarded) => guarded.and_then(|guarded| guarded.status).unwrap_or_default(),
            Err(error) => {
                return OrderOutcome::Outstanding { why: format!("its answer cannot be read: {error}") };
            }
        };
        last = status.order.clone().filter(|order| order.at == at).or(last);
        match last {
            Some(answer) if answer.result != OrderResult::Waiting => return OrderOutcome::Given(answer),
            Some(answer) if Instant::now() >= until => return OrderOutcome::Given(answer),
            None if Instant::now() >= until => {
                let why = format!("the guard has not answered within {} s", WAIT.as_secs());
                return OrderOutcome::Outstanding { why };
            }
            None => {
                let told = pulses.reported(status).await;
                if told.is_stale() {
                    return OrderOutcome::Stale { message: told.message };
                }
            }
            Some(_) => {}
        }
        sleep(LOOK).await;
    }
}

impl OrderOutcome {
    /// Whether the guard has accepted the order and skips no object.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Given(OrderAnswer { result, .. }) if *result != OrderResult::Refused)
    }

    /// Whether the guard has refused the order or skips an object, or no guard runs.
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Given(OrderAnswer { result, .. }) => *result == OrderResult::Refused,
            Self::Stale { .. } => true,
            Self::Outstanding { .. } => false,
        }
    }

    pub fn text(&self, release: &ReleaseId) -> String {
        let (name, namespace) = (describe_release(release), &release.namespace);
        match self {
            Self::Given(OrderAnswer { message, .. }) => format!("release {name}: {message}"),
            Self::Stale { message } => {
                format!("the order for release {name} waits for a running guard: {message}")
            }
            Self::Outstanding { why } => format!(
                "the order for release {name} was given, but {why}: `kubemoor get releases -n {namespace}` \
                 shows its state"
            ),
        }
    }
}
