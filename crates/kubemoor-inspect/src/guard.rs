//! The guard of a cluster, as a person reaches it with nothing but a kubeconfig.
//!
//! Entry points: [`ForwardedGuard`] to ask it through the API server, [`info`] for what its Lease tells. Invariant: a
//! connection is opened when it is needed, and again when it has ended; an error is one sentence that says what failed
//! and what to do. Replicas that keep a ledger each are all asked, and one that does not answer is told of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::failure::{Failure, failed};
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::connection::{Access, Connection};
use kubemoor_cluster::client::forward::{self, ForwardError};
use kubemoor_cluster::client::guard_api;
use kubemoor_cluster::client::lease::Place;
use kubemoor_cluster::client::lease::leader_info::{self, LeaderInfo};

/// How long a guard that could not be reached is not tried again: a page asks it several times at once.
const PAUSE: Duration = Duration::from_secs(3);

/// How long the pods that answered are asked alone, before the others are tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// A guard behind the API server.
pub struct ForwardedGuard {
    connection: Connection,
    place: Place,
    /// The CA of its certificate, in place of the one that its Lease names.
    authority: Option<PathBuf>,
    access: Access,
    way: Mutex<Way>,
    /// Why rows of a pod are missing, by pod, and whether the user was told.
    unheard: parking_lot::Mutex<BTreeMap<String, (String, bool)>>,
}

/// The way to it.
enum Way {
    Unknown,
    Open(Arc<Replicas>),
    /// There was none at that time, for this reason.
    None(Instant, String),
}

/// Connections to the pods whose ledgers together are the guard's.
struct Replicas {
    clients: Vec<(String, kube::Client)>,
    /// Since when pods cannot be reached, and which: a sentence each.
    lacking: Option<(Instant, Vec<String>)>,
}

type Answer = Result<Vec<u8>, CallError>;

/// The bodies of the pods that answered, and a sentence about each other one.
type Answers = (Result<Vec<Vec<u8>>, CallError>, Vec<String>);

impl ForwardedGuard {
    /// The guard whose Lease lies at `place`. Nobody is asked yet.
    pub fn new(connection: Connection, place: Place, authority: Option<PathBuf>, access: Access) -> Self {
        let (way, unheard) = (Mutex::new(Way::Unknown), parking_lot::Mutex::default());
        Self { connection, place, authority, access, way, unheard }
    }

    /// How it is called in a sentence.
    pub(crate) fn name(&self) -> String {
        format!("the guard in namespace {}", self.place.namespace)
    }

    /// The bodies of `path` and query, one of each pod that has a ledger of its own and answers; what the guard itself
    /// refuses is the inner error.
    pub(crate) async fn get(&self, path: &str, within: Duration) -> Result<Answers, Failure> {
        let (mut replicas, is_new) = self.replicas().await?;
        let mut answers = replicas.ask(path, within).await;
        let is_broken = |answer: &Answer| {
            matches!(answer, Err(CallError::Unreachable { .. } | CallError::Untrusted { .. }))
        };
        // A connection ends with the pod that it leads to.
        if !is_new && answers.iter().any(is_broken) {
            self.forget(&replicas).await;
            (replicas, _) = self.replicas().await?;
            answers = replicas.ask(path, within).await;
        }
        // A connection that works is kept, and no other.
        if answers.iter().any(|answer| is_broken(answer) || matches!(answer, Err(CallError::Late { .. }))) {
            self.forget(&replicas).await;
        }
        Ok(self.gather(&replicas, answers))
    }

    /// Sentences about pods whose rows are missing, each once.
    pub(crate) fn unheard(&self) -> Vec<String> {
        let mut unheard = self.unheard.lock();
        let news = unheard.iter_mut().filter(|(_, (_, told))| !told);
        let tell = |(pod, (reason, told)): (&String, &mut (String, bool))| {
            *told = true;
            unshown(pod, reason)
        };
        news.map(tell).collect()
    }

    /// The bodies of those that answered. A refusal of the user counts for all of them.
    fn gather(&self, replicas: &Replicas, answers: Vec<Answer>) -> Answers {
        let (mut bodies, mut failed) = (Vec::new(), Vec::new());
        for ((pod, _), answer) in replicas.clients.iter().zip(answers) {
            match answer {
                Ok(body) => bodies.push(body),
                Err(error @ CallError::Refused { code: 400 | 401 | 403, .. }) => {
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
        let lacking = replicas.lacking.iter().flat_map(|(_, missing)| missing.clone());
        let silent = failed.into_iter().map(|(pod, error)| self.note(pod, error.to_string()));
        (Ok(bodies), lacking.chain(silent).collect())
    }

    /// Notes that the rows of a pod are missing, as the sentence says that it returns.
    fn note(&self, pod: String, reason: String) -> String {
        let sentence = unshown(&pod, &reason);
        self.unheard.lock().entry(pod).or_insert((reason, false));
        sentence
    }

    /// The connections, and whether they are new.
    async fn replicas(&self) -> Result<(Arc<Replicas>, bool), Failure> {
        if self.access.user.is_some() {
            let why =
                "a guard looks at your own token or certificate, not at whom you act as: leave --as out";
            return Err(Failure::Named(why.to_owned()));
        }
        let mut way = self.way.lock().await;
        match &*way {
            Way::Open(replicas) if !replicas.is_stale() => return Ok((Arc::clone(replicas), false)),
            Way::None(at, why) if at.elapsed() < PAUSE => return Err(Failure::Named(why.clone())),
            Way::Open(_) | Way::None(..) | Way::Unknown => {}
        }
        match self.connect().await {
            Ok(replicas) => {
                let replicas = Arc::new(replicas);
                *way = Way::Open(Arc::clone(&replicas));
                Ok((replicas, true))
            }
            Err(error) => {
                let failure = unreached(&self.connection, error);
                *way = Way::None(Instant::now(), failure.to_string());
                Err(failure)
            }
        }
    }

    /// Connects to all pods that have to be asked, of which at least one answers.
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
        let missing: Vec<_> =
            failed.into_iter().map(|(pod, error)| self.note(pod, error.to_string())).collect();
        let lacking = (!missing.is_empty()).then(|| (Instant::now(), missing));
        Ok(Replicas { clients, lacking })
    }

    async fn forget(&self, replicas: &Arc<Replicas>) {
        let mut way = self.way.lock().await;
        if matches!(&*way, Way::Open(open) if Arc::ptr_eq(open, replicas)) {
            *way = Way::Unknown;
        }
    }
}

impl Replicas {
    /// The answer of each.
    async fn ask(&self, path: &str, within: Duration) -> Vec<Answer> {
        join_all(self.clients.iter().map(|(_, client)| guard_api::get(client, path, within))).await
    }

    fn is_stale(&self) -> bool {
        self.lacking.as_ref().is_some_and(|(since, _)| since.elapsed() >= AGAIN)
    }
}

/// What the guard whose Lease lies at `place` tells everybody.
pub async fn info(connection: &Connection, place: &Place) -> Result<LeaderInfo, Failure> {
    match leader_info::read(&connection.client, place).await {
        Ok(Some(info)) => Ok(info),
        Ok(None) => Err(absent(place, "")),
        Err(error) => Err(unread(connection, place, error)),
    }
}

/// The sentence about a pod whose rows are missing.
fn unshown(pod: &str, reason: &str) -> String {
    format!("rows that pod {pod} keeps in its own ledger are not shown: {reason}")
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
