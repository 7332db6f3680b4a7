//! `kubemoor ui`: the web page, on this machine with the user's own rights, or in a cluster for many visitors, each
//! with their own token.
//!
//! Without --in-cluster the page listens on a loopback address only, and the URL that grants access is passed to the
//! browser in a file that only the user can read. In a cluster the port serves TLS only, and the pod's own account is
//! not used to read anything.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::audit::parse_server;
use super::connect::{self, GuardArgs, LabelArgs, RecordArgs, context_clusters, reachable_clusters};
use super::{CommandOutcome, output, warn};
use crate::app::{Signals, SupervisedTasks};
use kubemoor_cluster::client::connection::{self, ApiServerAddress, ClusterAccess};
use kubemoor_ledger::store::Store;
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::config::{LedgerUrl, LogFilter, RecordDriver};
use kubemoor_runtime::metrics::{self, ConnectionMetrics};
use kubemoor_runtime::server::{ServerShutdown, TlsPort, raise_descriptor_limit};
use kubemoor_runtime::tls::{CertificateSource, Certificates};
use kubemoor_runtime::{callers, telemetry};
use kubemoor_web::{GuardAddress, LoopbackSettings, PageCluster, WebPage, in_cluster};

/// The environment variable with the guard's address for all commands. It is ignored where it does not apply, while the
/// flag is an error there.
const SERVER_VARIABLE: &str = "KUBEMOOR_SERVER";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The port on 127.0.0.1 [default: any free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// Print the address only, without opening a browser
    #[arg(long)]
    no_browser: bool,

    #[command(flatten)]
    ledger: UiLedgerArgs,

    #[command(flatten)]
    guard: GuardArgs,

    #[command(flatten)]
    cluster_labels: LabelArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    clusters: ClustersArgs,

    #[command(flatten)]
    in_cluster: InClusterArgs,
}

/// The source of the ledger.
#[derive(Debug, clap::Args)]
struct UiLedgerArgs {
    /// Show all clusters of the PostgreSQL database that their guards share, and query no cluster:
    /// postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL", conflicts_with_all = ["in_cluster", "certificate_authority", "kubeconfig", "context", "user", "groups"])]
    ledger: Option<LedgerUrl>,

    /// Ask the guard at this address (its --admin-listen) for the ledger [default: a pod of each cluster's guard, through the API server]
    #[arg(long, env = SERVER_VARIABLE, value_name = "URL")]
    server: Option<String>,

    /// The CA of the guard's certificate (PEM) [default: the system's]
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
}

/// The clusters and the user: kubectl's own flags, with several contexts.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
struct ClustersArgs {
    /// The kubeconfig [default: kubectl's, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// A context of the kubeconfig to show; may be repeated [default: all whose clusters answer; with --server the
    /// current one]
    #[arg(long, value_name = "NAME")]
    context: Vec<String>,

    /// The user to act as
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,

    /// A group to act as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
}

/// A file that redirects the browser to the page. If the URL were an argument of the browser, other users of the
/// machine could read it.
struct RedirectPage(PathBuf);

/// The guard's address; `None` if neither the flag nor the variable is set, or if the variable does not apply because
/// of `obstacle`.
fn server_address(server: Option<String>, obstacle: Option<&str>) -> anyhow::Result<Option<http::Uri>> {
    let Some(text) = server else { return Ok(None) };
    let is_flag = std::env::var(SERVER_VARIABLE).ok().as_ref() != Some(&text);
    match obstacle {
        Some(why) if is_flag => bail!("{why}"),
        Some(_) => Ok(None),
        None => {
            let name = if is_flag { "--server" } else { SERVER_VARIABLE };
            let uri = parse_server(&text).map_err(anyhow::Error::msg);
            uri.map(Some).with_context(|| format!("{name} {text:?}"))
        }
    }
}

impl UiLedgerArgs {
    /// The address of the one cluster's guard, or how to reach the guard of each cluster.
    fn address(self, guard: &GuardArgs, clusters: &ClustersArgs) -> anyhow::Result<GuardAddress> {
        let Self { ledger: _, server, certificate_authority: authority } = self;
        let obstacle = if clusters.context.len() > 1 {
            Some("--server is for one cluster: use one --context, or remove --server")
        } else if clusters.user.is_some() {
            Some("a guard authenticates your own token and ignores impersonation: remove --as or --server")
        } else {
            None
        };
        Ok(match server_address(server, obstacle)? {
            Some(server) => GuardAddress::Given { server, authority },
            None => GuardAddress::Forwarded(guard.place()),
        })
    }
}

impl ClustersArgs {
    /// The clusters and the names of their contexts, with the credentials of the flags. Without --context the current
    /// one comes first, or is the only one (`is_one`).
    fn named(self, is_one: bool) -> anyhow::Result<Vec<(String, ClusterAccess)>> {
        let Self { kubeconfig, context: named, user, groups } = self;
        let access = ClusterAccess { kubeconfig, user, groups, ..ClusterAccess::default() };
        if !named.is_empty() {
            let clusters = context_clusters(&named, &access);
            return match named.len() == clusters.len() {
                true => Ok(clusters),
                false => bail!("a --context is given twice: remove one of them"),
            };
        }
        let current = connection::current_context(access.kubeconfig.as_deref());
        let all = if is_one { Vec::new() } else { connection::contexts(access.kubeconfig.as_deref()) };
        let all: Vec<String> = current.into_iter().chain(all).collect();
        let clusters = context_clusters(&all, &access);
        // In a pod there is one cluster and no context.
        Ok(if clusters.is_empty() { vec![("cluster".to_owned(), access)] } else { clusters })
    }
}

impl RedirectPage {
    fn open(address: &str) -> anyhow::Result<Self> {
        let failed = "cannot open a browser: open the address above";
        let name = format!("kubemoor-ui-{}.html", std::process::id());
        let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = folder.join(name);
        // An existing file may belong to another user.
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.context(failed)?;
        let redirect = Self(path);
        let page = format!(
            "<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0; url={address}\"><title>Kubemoor</title>\n"
        );
        file.write_all(page.as_bytes()).context(failed)?;
        open::that_detached(&redirect.0).context(failed)?;
        Ok(redirect)
    }
}

impl Drop for RedirectPage {
    fn drop(&mut self) {
        // The page has ended.
        let _ = fs::remove_file(&self.0);
    }
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    connect::run(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<CommandOutcome> {
    let Args { port, no_browser, ledger, guard, cluster_labels, records, clusters, in_cluster } = args;
    if let Some(url) = &ledger.ledger {
        let why = "--ledger cannot be used with --server: its page asks no guard";
        server_address(ledger.server.clone(), Some(why))?;
        let store = Store::read(url).await?;
        // This fails if the ledger is the file of a single guard.
        store.fleet_mark().await?;
        return show(LoopbackSettings::Database(store), port, no_browser).await;
    }
    let labels = cluster_labels.labels()?;
    let guard = ledger.address(&guard, &clusters)?;
    let is_named = !clusters.context.is_empty();
    if in_cluster.in_cluster {
        return serve_in_cluster(in_cluster, records.record_driver, labels, guard).await;
    }
    let is_one = matches!(guard, GuardAddress::Given { .. });
    let mut clusters = clusters.named(is_one)?;
    if !is_named && clusters.len() > 1 {
        clusters = reachable_clusters(clusters).await;
    }
    if clusters.is_empty() {
        bail!("no cluster of the kubeconfig answers: give one --context");
    }
    // The page shows which of several contexts cannot be used. If the only one cannot, the command fails.
    if let [(_, only)] = clusters.as_slice() {
        connection::connect_by(only).await?;
    }
    let settings = clusters.into_iter().map(|(name, access)| PageCluster {
        name,
        access,
        driver: records.record_driver,
        labels: labels.clone(),
        guard: guard.clone(),
    });
    show(LoopbackSettings::Clusters(settings.collect()), port, no_browser).await
}

async fn show(settings: LoopbackSettings, port: u16, no_browser: bool) -> anyhow::Result<CommandOutcome> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}: choose another --port"))?;
    let page = WebPage::on_loopback(settings, listener)?;
    let address = page.address();
    let told =
        format!("The page is at {address}\nAnyone with this address acts as you. Press Ctrl-C to stop.\n");
    output::write(&told)?;
    let mut signals = Signals::new()?;
    let hangup = || signal(SignalKind::hangup()).context("cannot listen for signals");
    let mut hangup = if is_hangup_ignored() { None } else { Some(hangup()?) };
    // Dropping this removes the file when the page ends.
    let _redirect = match no_browser {
        true => None,
        false => RedirectPage::open(&address).map_err(|error| warn(&format!("{error:#}"))).ok(),
    };
    let stop = CancellationToken::new();
    let ended = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = signals.next() => {}
            Some(_) = async { hangup.as_mut()?.recv().await } => {}
        }
        ended.cancel();
    });
    page.serve(stop).await?;
    Ok(CommandOutcome::Clean)
}

/// Whether this process ignores SIGHUP, as under `nohup`. Without `/proc` it does not count as ignored.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is signal 1, the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);

const API_SERVER_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The minimum length of the session key in bytes.
const KEY: usize = 32;

/// How long the page keeps serving after SIGTERM, until its endpoint is removed from the Service.
const LINGER: Duration = Duration::from_secs(3);

/// Flags of the page in a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "In a cluster")]
pub(super) struct InClusterArgs {
    /// Serve the page in a cluster: each visitor logs in with a bearer token and acts with its permissions
    #[arg(long, requires = "host", conflicts_with_all = ["port", "no_browser", "kubeconfig", "context", "user", "groups"])]
    pub(super) in_cluster: bool,

    /// A host name that the page answers to; may be repeated
    #[arg(long, value_name = "NAME", requires = "in_cluster")]
    host: Vec<String>,

    /// Address of the page (TLS)
    #[arg(long, value_name = "ADDRESS:PORT", requires = "in_cluster", default_value_t = LISTEN)]
    listen: SocketAddr,

    /// Directory of the page's CA and certificate, which are created if missing [default: certs]
    #[arg(long, value_name = "DIR", requires = "in_cluster", conflicts_with = "tls_cert")]
    tls_dir: Option<PathBuf>,

    /// An existing certificate chain (PEM); needs --tls-key
    #[arg(long, value_name = "FILE", requires_all = ["in_cluster", "tls_key"])]
    tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A file of at least 32 random bytes that encrypt the login cookies; all replicas need the same
    /// [default: generated at start, so that a restart ends all logins]
    #[arg(long, value_name = "FILE", requires = "in_cluster")]
    session_key: Option<PathBuf>,

    /// The API server [default: the cluster's own, by KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT]
    #[arg(long, value_name = "URL", requires = "in_cluster", value_parser = parse_server)]
    api_server: Option<http::Uri>,

    /// The CA of the API server's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "in_cluster", default_value = API_SERVER_CA)]
    api_server_ca: PathBuf,

    /// The cluster's name on the page
    #[arg(long, value_name = "NAME", requires = "in_cluster", default_value = "cluster")]
    cluster_name: String,

    /// The log filter
    #[arg(long, value_name = "FILTER", requires = "in_cluster", default_value = "info")]
    log: LogFilter,
}

async fn serve_in_cluster(
    args: InClusterArgs,
    driver: RecordDriver,
    labels: Labels,
    guard: GuardAddress,
) -> anyhow::Result<CommandOutcome> {
    telemetry::init(args.log.as_str())?;
    raise_descriptor_limit();
    let server = ApiServerAddress { url: args.api_server()?, authority: args.api_server_ca.clone() };
    let key = match &args.session_key {
        Some(path) => read_key(path)?,
        None => callers::random_key()?,
    };
    let certificates = Certificates::load(args.certificate(), Timestamp::now())?;
    let InClusterArgs { host: hosts, listen, cluster_name: name, .. } = args;
    let listener = TcpListener::bind(listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {listen}: choose another --listen"))?;
    let access = ClusterAccess { server: Some(server), ..ClusterAccess::default() };
    let cluster = PageCluster { name, access, driver, labels, guard };
    let connections = ConnectionMetrics::register(&mut metrics::registry());
    let port = TlsPort { listener, tls: certificates.server_config()?, metrics: connections };
    let ending = ServerShutdown::default();
    let (kept, stop) = (certificates.clone(), ending.stop.clone());
    let mut parts = SupervisedTasks::default();
    parts.spawn("the certificate's renewal", async move { kept.keep(drop, stop).await });
    parts.spawn("the page's end", end(Signals::new()?, ending.clone()));
    info!(address = %listen, "serving the page");
    tokio::select! {
        served = in_cluster::serve(cluster, hosts, key, port, ending.clone()) => served?,
        error = wait_for_part_failure(&mut parts, ending.stop) => return Err(error),
    }
    Ok(CommandOutcome::Clean)
}

impl InClusterArgs {
    fn api_server(&self) -> anyhow::Result<http::Uri> {
        if let Some(server) = &self.api_server {
            return Ok(server.clone());
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(host), Some(port)) =
            (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"))
        else {
            bail!(
                "--in-cluster runs in a pod: there is no KUBERNETES_SERVICE_HOST; elsewhere name an --api-server"
            );
        };
        let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
        let url = format!("https://{host}:{port}");
        url.parse().with_context(|| format!("{url} is not the address of an API server"))
    }

    fn certificate(&self) -> CertificateSource {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                CertificateSource::Files { certificate: certificate.clone(), key: key.clone() }
            }
            _ => {
                let directory = self.tls_dir.clone().unwrap_or_else(|| PathBuf::from("certs"));
                let names = self.host.iter().map(String::as_str).chain(["localhost", "127.0.0.1"]);
                let mut names: Vec<_> = names.map(str::to_owned).collect();
                names.dedup();
                CertificateSource::SelfMade { directory, names }
            }
        }
    }
}

fn read_key(path: &Path) -> anyhow::Result<SigningKey> {
    let bytes = fs::read(path).with_context(|| format!("cannot read the session key {}", path.display()))?;
    if bytes.trim_ascii().len() < KEY {
        bail!(
            "the session key {} has fewer than {KEY} bytes: `openssl rand -base64 48` generates one",
            path.display()
        );
    }
    Ok(SigningKey::new(Sha256::digest(bytes.trim_ascii()).into()))
}

/// Waits until a part fails, or ends before the page is stopped.
async fn wait_for_part_failure(parts: &mut SupervisedTasks, stop: CancellationToken) -> anyhow::Error {
    let error = parts.wait_for_failure().await;
    if stop.is_cancelled() { std::future::pending().await } else { error }
}

async fn end(mut signals: Signals, ending: ServerShutdown) {
    if signals.next().await == "SIGTERM" {
        ending.leaving.cancel();
        sleep(LINGER).await;
    }
    ending.stop.cancel();
}

#[cfg(test)]
mod tests;
