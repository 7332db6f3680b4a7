//! Shared by all commands that use a cluster: kubectl's flags, connecting to one or several clusters, the location of
//! the guard, and a warning if the guard does not work.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::time::timeout;

use super::output::seconds;
use super::{completions, warn};
use crate::app::settings::{ConflictError, collect_labels, parse_label};
use kubemoor_cluster::client::connection::{self, ClusterAccess, ClusterConnection};
use kubemoor_cluster::client::lease::read_pulse;
use kubemoor_cluster::client::{discovery, guarded, registrations};
use kubemoor_declare::model;
use kubemoor_guard::webhook::registration::emergency;
use kubemoor_inspect::times::parse_duration;
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_policy::resolver::Labels;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::telemetry;
use kubemoor_verdict::health::{GuardLeaseState, STALE_AFTER};

pub(super) use kubemoor_inspect::failure::{describe_release, failed};

/// The cluster and the user: kubectl's own flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// The kubeconfig [default: kubectl's, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context [default: its current one]
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completions::contexts))]
    context: Option<String>,

    /// The kubeconfig's cluster [default: the context's]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// The kubeconfig's user [default: the context's]
    #[arg(long = "user", value_name = "NAME")]
    account: Option<String>,

    /// A bearer token, in place of the kubeconfig's credentials
    #[arg(long, value_name = "TOKEN", value_parser = parse_token)]
    token: Option<SecretString>,

    /// The user to act as
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,

    /// A group to act as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,

    /// How long to wait for a server's answer, such as 10s; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_timeout)]
    request_timeout: Timeout,

    /// From 6 on, print each request to the API server on standard error
    #[arg(short = 'v', long = "v", value_name = "NUMBER", default_value_t = 0)]
    verbosity: u8,
}

/// The stack size of a worker thread: the web page reads many clusters at once, and a debug build keeps large futures
/// on the stack.
const STACK: usize = 8 << 20;

const REQUEST_LOG_VERBOSITY: u8 = 6;

/// How Helm stores its records.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct RecordArgs {
    /// How Helm stores its records (HELM_DRIVER)
    #[arg(long, value_name = "DRIVER", default_value = "secret")]
    pub(super) record_driver: RecordDriver,
}

/// Time limit for one answer of the server; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Timeout(Option<Duration>);

/// One namespace of a cluster.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlaceArgs {
    #[command(flatten)]
    namespace: NamespaceArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// One namespace.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
struct NamespaceArgs {
    /// The namespace [default: the context's]
    #[arg(long, short, value_name = "NAMESPACE", value_parser = parse_namespace, add = ArgValueCandidates::new(completions::namespaces))]
    namespace: Option<String>,
}

/// One namespace, or all of them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct NamespacesArgs {
    #[command(flatten)]
    one: NamespaceArgs,

    /// All namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
}

impl ClusterArgs {
    /// Creates a client; sends no request yet.
    pub(super) async fn connect(&self) -> anyhow::Result<ClusterConnection> {
        if self.verbosity >= REQUEST_LOG_VERBOSITY {
            // Fails if a command connects more than once; logging is already set up then.
            let _ = telemetry::init(connection::REQUESTS);
        }
        Ok(connection::connect_by(&self.access()).await?)
    }

    pub(super) fn access(&self) -> ClusterAccess {
        let Self { kubeconfig, context, cluster, account, token, user, groups, .. } = self.clone();
        let (timeout, server) = (self.request_timeout.0, None);
        ClusterAccess { kubeconfig, context, cluster, account, token, timeout, user, groups, server }
    }
}

impl PlaceArgs {
    /// Creates a client and returns the selected namespace; sends no request yet.
    pub(super) async fn connect(&self) -> anyhow::Result<(ClusterConnection, String)> {
        let connection = self.cluster.connect().await?;
        let namespace = self.namespace.or_default(&connection);
        Ok((connection, namespace))
    }
}

impl NamespaceArgs {
    /// The namespace of the flag, otherwise the context's.
    fn or_default(&self, connection: &ClusterConnection) -> String {
        self.namespace.clone().unwrap_or_else(|| connection.namespace.clone())
    }
}

impl NamespacesArgs {
    pub(super) fn chosen(&self, connection: &ClusterConnection) -> Option<String> {
        (!self.all_namespaces).then(|| self.one.or_default(connection))
    }

    /// The namespace of the flag; `None` for all namespaces and without the flag.
    pub(super) fn named(&self) -> Option<&str> {
        self.one.namespace.as_deref().filter(|_| !self.all_namespaces)
    }

    /// The connection and the selected namespace, `None` for all. Warns first if the guard there does not work.
    /// `cluster` is the cluster's name if there are several.
    pub(super) async fn open(
        &self,
        connection: ClusterConnection,
        cluster: Option<&str>,
    ) -> (ClusterConnection, Option<String>) {
        let namespace = self.chosen(&connection);
        warn_of_guard(&connection, namespace.as_deref(), cluster).await;
        (connection, namespace)
    }

    /// Like [`Self::chosen`], for a command without an API server: reads a kubeconfig only if no flag selects the
    /// namespace.
    pub(super) async fn without_cluster(&self, cluster: &ClusterArgs) -> anyhow::Result<Option<String>> {
        match &self.one.namespace {
            _ if self.all_namespaces => Ok(None),
            Some(namespace) => Ok(Some(namespace.clone())),
            None => Ok(Some(cluster.connect().await?.namespace)),
        }
    }
}

pub(super) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let outcome = runtime.block_on(work);
    // Do not wait for decoding that still runs in the background.
    runtime.shutdown_background();
    outcome
}

/// The time `duration` after `now`, in whole seconds.
pub(super) fn end_after(now: Timestamp, duration: Duration) -> anyhow::Result<Timestamp> {
    let end = now.checked_add(duration).map_err(|_| anyhow::anyhow!("--for is too long"))?;
    Ok(Timestamp::from_second(end.as_second())?)
}

pub(super) fn parse_namespace(text: &str) -> Result<String, &'static str> {
    let form = "a namespace's name must have lower-case letters, digits and dashes";
    model::is_dns_label(text).then(|| text.to_owned()).ok_or(form)
}

/// Parses a release's name by Helm's own rule: at most 53 lower-case letters, digits, dashes and dots.
pub(super) fn parse_release(text: &str) -> Result<String, &'static str> {
    let is_name = text.len() <= 53 && text.split('.').all(model::is_dns_label);
    is_name
        .then(|| text.to_owned())
        .ok_or("a release's name must have lower-case letters, digits, dashes and dots")
}

fn parse_token(text: &str) -> Result<SecretString, &'static str> {
    if text.is_empty() || text.contains(|letter: char| !letter.is_ascii_graphic()) {
        return Err("a bearer token must not contain spaces or control characters");
    }
    Ok(text.into())
}

/// Parses a duration or a number of seconds, as kubectl does; 0 for no limit.
fn parse_timeout(text: &str) -> Result<Timeout, String> {
    match text.parse::<u64>() {
        Ok(0) => Ok(Timeout(None)),
        Ok(seconds) => Ok(Timeout(Some(Duration::from_secs(seconds)))),
        Err(_) if matches!(text, "0s" | "0m" | "0h") => Ok(Timeout(None)),
        Err(_) => parse_duration(text).map(|timeout| Timeout(Some(timeout))),
    }
}

const AT_ONCE: usize = 16;

pub(super) const CLUSTER_PATIENCE: Duration = Duration::from_secs(60);

/// Time limit for a cluster that the user did not name; a slower one is skipped.
const ANSWER: Duration = Duration::from_secs(5);

/// The flag for several contexts.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ContextsArgs {
    /// Contexts of the kubeconfig whose clusters are queried together, such as prod-eu,prod-us
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["context", "cluster", "account", "token"], add = ArgValueCandidates::new(completions::contexts))]
    contexts: Vec<String>,
}

impl ContextsArgs {
    /// Whether the flag is absent, so that only the current cluster is used.
    pub(super) fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// The clusters of the named contexts, each once.
    pub(super) fn clusters(&self, cluster: &ClusterArgs) -> Vec<(String, ClusterAccess)> {
        context_clusters(&self.contexts, &cluster.access())
    }
}

/// The clusters of some contexts, each once, with the credentials of `access`.
pub(super) fn context_clusters(contexts: &[String], access: &ClusterAccess) -> Vec<(String, ClusterAccess)> {
    let mut clusters: Vec<(String, ClusterAccess)> = Vec::new();
    for context in contexts {
        if clusters.iter().all(|(known, _)| known != context) {
            clusters
                .push((context.clone(), ClusterAccess { context: Some(context.clone()), ..access.clone() }));
        }
    }
    clusters
}

/// The clusters whose API servers answer, even with an error; warns about those that do not.
pub(super) async fn reachable_clusters(
    clusters: Vec<(String, ClusterAccess)>,
) -> Vec<(String, ClusterAccess)> {
    let ask = async |_: &str, access: ClusterAccess| {
        let connection = connection::connect_by(&access).await?;
        match discovery::version(&connection.client).await {
            Err(error) if error.is_outage() => Err(anyhow::Error::from(error)),
            _ => Ok(access),
        }
    };
    query_clusters(clusters, ANSWER, ask).await.0
}

/// Asks each cluster, with the time limit `within`, and warns about those that fail. Returns the answers in the order
/// of the clusters, and an error for the command to end with if a cluster is missing.
pub(super) async fn query_clusters<T>(
    clusters: Vec<(String, ClusterAccess)>,
    within: Duration,
    ask: impl AsyncFn(&str, ClusterAccess) -> anyhow::Result<T>,
) -> (Vec<(String, T)>, Option<anyhow::Error>) {
    let ask = &ask;
    let asked = clusters.into_iter().map(|(name, access)| async move {
        let answer = match tokio::time::timeout(within, ask(&name, access)).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("it did not answer within {} s: try again", within.as_secs())),
        };
        (name, answer)
    });
    let answers: Vec<_> = futures::stream::iter(asked).buffered(AT_ONCE).collect().await;
    let (clusters, mut found) = (answers.len(), Vec::new());
    for (name, answer) in answers {
        match answer {
            Ok(answer) => found.push((name, answer)),
            Err(error) => warn(&format!("{name}: {error:#}")),
        }
    }
    let failed = clusters - found.len();
    let incomplete = (failed > 0).then(|| {
        anyhow::anyhow!(
            "the answer is incomplete: {failed} of {clusters} clusters could not be read, see above"
        )
    });
    (found, incomplete)
}

/// The name of the guard's Service in the chart, which is also the name of its Lease.
const NAME: &str = "kubemoor";

/// Where the guard runs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Guard")]
pub(super) struct GuardArgs {
    /// The namespace that the guard runs in
    #[arg(long, value_name = "NAMESPACE", default_value = "kubemoor-system", value_parser = parse_namespace)]
    guard_namespace: String,
}

impl GuardArgs {
    pub(super) fn place(&self) -> LeaseReference {
        LeaseReference { namespace: self.guard_namespace.clone(), name: NAME.to_owned() }
    }
}

/// The labels of the cluster.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LabelArgs {
    /// A label of this cluster, for policies that select clusters; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    cluster_label: Vec<(String, String)>,
}

impl LabelArgs {
    pub(super) fn labels(self) -> Result<Labels, ConflictError> {
        collect_labels(&self.cluster_label)
    }
}

/// Time limit for the checks of the guard, which delay the command's output.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);

/// Warns if an emergency is open, no guard runs, or no webhook is registered. `namespace` is the command's, `None` for
/// all. There is no warning if the user may not read the state, or if the cluster has no Kubemoor.
pub(super) async fn warn_of_guard(
    connection: &ClusterConnection,
    namespace: Option<&str>,
    cluster: Option<&str>,
) {
    if let Ok(Some(sentence)) = timeout(CHECK_PATIENCE, guard_problem(connection, namespace)).await {
        let about = cluster.map(|cluster| format!("{cluster}: ")).unwrap_or_default();
        warn(&format!("{about}{sentence}"));
    }
}

async fn guard_problem(connection: &ClusterConnection, namespace: Option<&str>) -> Option<String> {
    let client = &connection.client;
    let (is_open, lease) =
        tokio::join!(emergency::is_enforcement_disabled(client), guarded::lease(client, namespace));
    if is_open.is_ok_and(|is_open| is_open) {
        return Some(
            "the emergency is open: no change is judged and nothing is repaired until `kubemoor emergency close`"
                .to_owned(),
        );
    }
    let lease = lease.ok()??;
    let (pulse, registered) =
        tokio::join!(read_pulse(client, &lease), registrations::has_kubemoor_webhooks(client));
    let LeaseReference { namespace, name } = lease;
    let since = match pulse.ok()? {
        GuardLeaseState::Gone => Some("the Lease does not exist".to_owned()),
        GuardLeaseState::Renewed(at) if Timestamp::now().duration_since(at) > STALE_AFTER => {
            Some(format!("the Lease has not been renewed since {}", seconds(at)))
        }
        GuardLeaseState::Renewed(_) | GuardLeaseState::Unknown => None,
    };
    if let Some(since) = since {
        return Some(format!(
            "no guard is running, so nothing is repaired and no change is checked: {since} (`kubectl get \
             lease {name} -n {namespace}`)"
        ));
    }
    (!registered.ok()?).then(|| {
        "Kubemoor has no registered webhooks, so no change is checked: start the guard with --register, or \
         apply the output of `kubemoor manifests webhook`"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
