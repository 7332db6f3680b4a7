//! The parts that every command with a cluster shares: kubectl's flags, the connection, and the sentences for
//! errors.
//!
//! Entry points: [`ClusterArgs`], [`PlaceArgs`] and [`NamespacesArgs`] to flatten into a command's flags,
//! [`run`] to wait for its work, [`failed`] for errors of the API server. Invariant: an error is one sentence
//! that says what failed and what to do. Nothing is decided here.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap_complete::ArgValueCandidates;
use secrecy::SecretString;

use super::candidates;
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::connection::{self, Access, Connection};
use kubemoor_declare::model;
use kubemoor_inspect::failure;
use kubemoor_inspect::times::parse_duration;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::telemetry;

pub(super) use kubemoor_inspect::failure::spoken;

/// Which cluster, and as whom: kubectl's own flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// The kubeconfig [default: kubectl's, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context [default: its current one]
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(candidates::contexts))]
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

    #[command(flatten)]
    requests: RequestArgs,
}

/// How requests to an API server are made: kubectl's own flags.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct RequestArgs {
    /// How long to wait for a server's answer, such as 10s; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_timeout)]
    request_timeout: Timeout,

    /// From 6 on, print each request to the API server on standard error
    #[arg(short = 'v', long = "v", value_name = "NUMBER", default_value_t = 0)]
    verbosity: u8,
}

/// The stack of a worker, in bytes: a page reads from many clusters at once, and a build without optimisation keeps large
/// futures on it.
const STACK: usize = 8 << 20;

/// From which verbosity on kubectl tells requests.
const TELLS_REQUESTS: u8 = 6;

/// How Helm keeps its records.
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
    #[arg(long, short, value_name = "NAMESPACE", value_parser = parse_namespace, add = ArgValueCandidates::new(candidates::namespaces))]
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
    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        self.requests.tell();
        Ok(connection::connect_by(&self.access()).await?)
    }

    /// The credentials that the flags choose.
    pub(super) fn access(&self) -> Access {
        let Self { kubeconfig, context, cluster, account, token, user, groups, requests } = self.clone();
        let (timeout, server) = (requests.timeout(), None);
        Access { kubeconfig, context, cluster, account, token, timeout, user, groups, server }
    }
}

impl RequestArgs {
    /// Time limit for one answer of the server; `None` for no limit.
    pub(super) fn timeout(self) -> Option<Duration> {
        self.request_timeout.0
    }

    /// Prints the requests that follow, if the user wants to see them.
    pub(super) fn tell(self) {
        if self.verbosity >= TELLS_REQUESTS {
            // A command may connect more than once, and logging begins once.
            let _ = telemetry::init(connection::REQUESTS);
        }
    }
}

impl PlaceArgs {
    /// Creates a client, and names the namespace that is meant; sends no request yet.
    pub(super) async fn connect(&self) -> anyhow::Result<(Connection, String)> {
        let connection = self.cluster.connect().await?;
        let namespace = self.namespace.or_default(&connection);
        Ok((connection, namespace))
    }
}

impl NamespaceArgs {
    /// The namespace that is meant: the one named, else the context's.
    fn or_default(&self, connection: &Connection) -> String {
        self.namespace.clone().unwrap_or_else(|| connection.namespace.clone())
    }
}

impl NamespacesArgs {
    /// The selected namespace; `None` for all.
    pub(super) fn chosen(&self, connection: &Connection) -> Option<String> {
        (!self.all_namespaces).then(|| self.one.or_default(connection))
    }

    /// The namespace that a flag names; `None` for all, and for the namespaces of several contexts.
    pub(super) fn named(&self) -> Option<&str> {
        self.one.namespace.as_deref().filter(|_| !self.all_namespaces)
    }

    /// The same for a command that asks no API server: a kubeconfig is read only where no flag says it.
    pub(super) async fn of(&self, cluster: &ClusterArgs) -> anyhow::Result<Option<String>> {
        match &self.one.namespace {
            _ if self.all_namespaces => Ok(None),
            Some(namespace) => Ok(Some(namespace.clone())),
            None => Ok(Some(cluster.connect().await?.namespace)),
        }
    }
}

/// Waits for what a command does.
pub(super) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let outcome = runtime.block_on(work);
    // Decoding that is still running must not delay the answer.
    runtime.shutdown_background();
    outcome
}

/// The sentence for a call that failed; `doing` completes "cannot …".
pub(super) fn failed(connection: &Connection, doing: &str, error: CallError) -> anyhow::Error {
    failure::failed(connection, doing, error).into()
}

/// A namespace's name.
pub(super) fn parse_namespace(text: &str) -> Result<String, &'static str> {
    if model::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("a namespace's name has lower-case letters, digits and dashes")
    }
}

/// A release's name, by Helm's own rule: lower-case letters, digits, dashes and
/// dots, at most 53.
pub(super) fn parse_release(text: &str) -> Result<String, &'static str> {
    let is_name = text.len() <= 53 && text.split('.').all(model::is_dns_label);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("a release's name has lower-case letters, digits, dashes and dots")
    }
}

/// A token.
fn parse_token(text: &str) -> Result<SecretString, &'static str> {
    if text.is_empty() || text.contains(|letter: char| !letter.is_ascii_graphic()) {
        return Err("a bearer token has neither spaces nor control characters");
    }
    Ok(text.into())
}

/// A duration, or seconds, as kubectl takes them; 0 for no limit.
fn parse_timeout(text: &str) -> Result<Timeout, String> {
    match text.parse::<u64>() {
        Ok(0) => Ok(Timeout(None)),
        Ok(seconds) => Ok(Timeout(Some(Duration::from_secs(seconds)))),
        Err(_) if matches!(text, "0s" | "0m" | "0h") => Ok(Timeout(None)),
        Err(_) => parse_duration(text).map(|timeout| Timeout(Some(timeout))),
    }
}

#[cfg(test)]
mod tests;
