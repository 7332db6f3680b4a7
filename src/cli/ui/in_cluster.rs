//! `kubemoor ui --in-cluster`: the page for many visitors, each with their own token.
//!
//! Entry point: [`serve`]. Invariant: the pod's own account reads nothing. The port serves TLS only.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::Outcome;
use kubemoor_cluster::client::connection::{Access, ApiServer};
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::callers;
use kubemoor_runtime::config::{LogFilter, RecordDriver};
use kubemoor_runtime::metrics::{self, ConnectionMetrics};
use kubemoor_runtime::server::{Ending, TlsPort, raise_descriptor_limit};
use kubemoor_runtime::telemetry;
use kubemoor_runtime::tls::{CertificateSource, Certificates};
use kubemoor_web::in_cluster::{self, Settings};
use kubemoor_web::{ClusterSettings, GuardAddress};

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);

/// Where a pod has the CA of the API server.
const API_SERVER_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The minimum length of a key that cannot be guessed.
const KEY: usize = 32;

/// How long the page keeps serving after the stop signal: its Service notices the removed endpoint only after
/// a moment.
const LINGER: Duration = Duration::from_secs(3);

/// Flags of the page in a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "In a cluster")]
pub(super) struct InClusterArgs {
    /// Serve the page in a cluster: each visitor brings a bearer token, and acts with its rights
    #[arg(long, requires = "host", conflicts_with_all = ["port", "no_browser", "kubeconfig", "context", "user", "groups"])]
    pub(super) in_cluster: bool,

    /// A host name that the page answers to; may be repeated
    #[arg(long, value_name = "NAME", requires = "in_cluster")]
    host: Vec<String>,

    /// Address of the page (TLS)
    #[arg(long, value_name = "ADDRESS:PORT", requires = "in_cluster", default_value_t = LISTEN)]
    listen: SocketAddr,

    /// Directory of the page's CA and certificate, which are made if they are missing [default: certs]
    #[arg(long, value_name = "DIR", requires = "in_cluster", conflicts_with = "tls_cert")]
    tls_dir: Option<PathBuf>,

    /// A certificate chain made elsewhere (PEM); needs --tls-key
    #[arg(long, value_name = "FILE", requires_all = ["in_cluster", "tls_key"])]
    tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A file of at least 32 random bytes, by which the cookies of logins are encrypted; all replicas need the same
    /// [default: made at start, so that a restart ends all logins]
    #[arg(long, value_name = "FILE", requires = "in_cluster")]
    session_key: Option<PathBuf>,

    /// The API server [default: the cluster's own, by KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT]
    #[arg(long, value_name = "URL", requires = "in_cluster", value_parser = crate::cli::audit::parse_server)]
    api_server: Option<http::Uri>,

    /// The CA of the API server's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "in_cluster", default_value = API_SERVER_CA)]
    api_server_ca: PathBuf,

    /// The cluster's name on the page
    #[arg(long, value_name = "NAME", requires = "in_cluster", default_value = "cluster")]
    cluster_name: String,

    /// Which messages are logged
    #[arg(long, value_name = "FILTER", requires = "in_cluster", default_value = "info")]
    log: LogFilter,
}

/// The other flags' settings for the cluster.
pub(super) struct Shared {
    pub(super) driver: RecordDriver,
    pub(super) labels: Labels,
    pub(super) guard: GuardAddress,
}

pub(super) async fn serve(args: InClusterArgs, shared: Shared) -> anyhow::Result<Outcome> {
    telemetry::init(args.log.as_str())?;
    raise_descriptor_limit();
    let server = ApiServer { url: args.api_server()?, authority: args.api_server_ca.clone() };
    let key = args.key()?;
    let certificates = Certificates::load(args.certificate(), Timestamp::now())?;
    let InClusterArgs { host: hosts, listen, cluster_name: name, .. } = args;
    let listener = TcpListener::bind(listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {listen}: choose another --listen"))?;
    let Shared { driver, labels, guard } = shared;
    let access = Access { server: Some(server), ..Access::default() };
    let cluster = ClusterSettings { name, access, driver, labels, guard };
    let connections = ConnectionMetrics::register(&mut metrics::registry());
    let port = TlsPort { listener, tls: certificates.server_config()?, metrics: connections };
    let ending = Ending::default();
    let (kept, stop) = (certificates.clone(), ending.stop.clone());
    let mut parts = JoinSet::new();
    parts.spawn(async move { kept.keep(drop, stop).await });
    parts.spawn(end(ending.clone())?);
    info!(address = %listen, "the page is served");
    let settings = Settings { cluster, hosts, key };
    tokio::select! {
        served = in_cluster::serve(settings, port, ending.clone()) => served?,
        error = broken(parts, ending.stop) => return Err(error),
    }
    Ok(Outcome::Clean)
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
        url.parse().with_context(|| format!("{url} is no address of an API server"))
    }

    fn certificate(&self) -> CertificateSource {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                CertificateSource::Given { certificate: certificate.clone(), key: key.clone() }
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

    fn key(&self) -> anyhow::Result<SigningKey> {
        match &self.session_key {
            Some(path) => read_key(path),
            None => Ok(callers::random_key()?),
        }
    }
}

fn read_key(path: &Path) -> anyhow::Result<SigningKey> {
    let bytes = fs::read(path).with_context(|| format!("cannot read the session key {}", path.display()))?;
    if bytes.trim_ascii().len() < KEY {
        bail!(
            "the session key {} has fewer than {KEY} bytes: `openssl rand -base64 48` makes one",
            path.display()
        );
    }
    Ok(SigningKey::new(Sha256::digest(bytes.trim_ascii()).into()))
}

/// Waits until a part breaks down, or ends before the page is told to stop.
async fn broken(mut parts: JoinSet<()>, stop: CancellationToken) -> anyhow::Error {
    while let Some(ended) = parts.join_next().await {
        match ended {
            Ok(()) if stop.is_cancelled() => {}
            Ok(()) => return anyhow::anyhow!("a part of the page ended by itself; the log says why"),
            Err(error) => return anyhow::Error::new(error).context("a part of the page broke down"),
        }
    }
    std::future::pending().await
}

/// Ends the page at SIGTERM or SIGINT.
fn end(ending: Ending) -> anyhow::Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {
                ending.leaving.cancel();
                sleep(LINGER).await;
            }
            _ = interrupt.recv() => {}
        }
        ending.stop.cancel();
    })
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn part_that_breaks_down_ends_the_page() {
        let stop = CancellationToken::new();
        let mut parts = JoinSet::new();
        let stopped = stop.clone();
        parts.spawn(async move { stopped.cancelled().await });
        parts.spawn(async { panic!("broken") });
        let error = timeout(Duration::from_secs(60), broken(parts, stop.clone())).await.unwrap();
        assert!(error.to_string().contains("broke down"), "{error:#}");

        // The signal stops the page and is no failure.
        let (mut parts, stopped) = (JoinSet::new(), stop.clone());
        let signal = parts.spawn(async move { stopped.cancel() });
        tokio::select! {
            biased;
            error = broken(parts, stop) => panic!("{error:#}"),
            () = async { while !signal.is_finished() { tokio::task::yield_now().await } } => {}
        }
    }

    #[test]
    fn session_key_is_read_whole_and_long_enough() {
        let folder = tempfile::tempdir().unwrap();
        let key = |text: &str| {
            let path = folder.path().join("key");
            fs::write(&path, text).unwrap();
            read_key(&path).map(|key| key.as_bytes().to_vec()).map_err(|error| error.to_string())
        };
        let text = "0123456789abcdef0123456789abcdef";
        assert_eq!(key(text), key(&format!("{text}\n")), "an editor's last line is no part of it");
        assert_ne!(key(text), key(&format!("{text}0")));
        let error = key("short").unwrap_err();
        assert!(error.contains("fewer than 32 bytes") && !error.contains("short"), "{error}");
        assert!(read_key(&folder.path().join("none")).is_err());
    }
}
