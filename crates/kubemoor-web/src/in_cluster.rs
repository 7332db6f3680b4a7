//! The page as it runs in a cluster: for many visitors, each with their own token.
//!
//! Entry point: [`serve`]. Invariant: nothing is read or done with another token than the one that a request carries;
//! the pod's own account is never used.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use hyper::body::Incoming;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{interval, sleep};
use tower::Service as _;

use super::cluster::Settings as ClusterSettings;
use super::door::Door;
use super::login;
use super::replicas::{self, Replicas};
use super::routes::{of_clusters, router};
use super::session::SealError;
use super::visitors::Visitors;
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::server::{self, Ending, Limits, Peer, TlsPort};

/// How often it is looked who has not come for long.
const TIDYING: Duration = Duration::from_secs(60);

/// What answers in flight get once the server is told to stop. An open page's stream never ends by itself.
const DRAIN: Duration = Duration::from_secs(5);

/// What the kubelet asks.
const PROBED: &str = "/livez";

/// Pages that are answered before it is known which sessions were ended.
const AT_ONCE: [&str; 2] = [replicas::PATH, PROBED];

/// What is served.
pub struct Settings {
    /// The cluster; its token is each visitor's own.
    pub cluster: ClusterSettings,
    /// The names by which browsers call this server.
    pub hosts: Vec<String>,
    /// What sessions are sealed by; replicas share it.
    pub key: SigningKey,
    /// Where the replicas are, each as `HOST:PORT`.
    pub replicas: Vec<String>,
}

/// Serves the page on `port` until `ending` tells it to stop.
///
/// # Errors
/// The key cannot seal sessions.
pub async fn serve(settings: Settings, port: TlsPort, ending: Ending) -> Result<(), SealError> {
    let Settings { cluster, hosts, key, replicas } = settings;
    let host = hosts.first().cloned().unwrap_or_default();
    let replicas = Arc::new(Replicas::new(replicas, host, &key, Timestamp::now())?);
    let visitors = Arc::new(Visitors::new(cluster, key, Arc::clone(&replicas))?);
    let logout = Router::new().route("/logout", post(login::leave)).with_state(Arc::clone(&visitors));
    let own = of_clusters("").merge(logout);
    let open = Router::new().route("/login", get(login::page).post(login::enter));
    let asked = post(replicas::answer).layer(DefaultBodyLimit::max(replicas::LARGEST));
    let asked = Router::new().route(replicas::PATH, asked).with_state(Arc::clone(&replicas));
    let open = open.with_state(Arc::clone(&visitors)).merge(asked);
    let door = Arc::new(Door::in_cluster(hosts, Arc::clone(&visitors)));
    // Probes call the pod by its address.
    let router = router(door, "", own, open).route(PROBED, get(async || "ok"));
    let (learned, learning) = watch::channel(false);
    let answer = move |_: Peer, request: http::Request<Incoming>| {
        let (mut router, mut learning) = (router.clone(), learning.clone());
        async move {
            // Other replicas and probes are answered at once. A session of before goes on if a replica knows which of them
            // were ended.
            if !AT_ONCE.contains(&request.uri().path()) {
                // It ends only with the page.
                let _ = learning.wait_for(|learned| *learned).await;
            }
            let Ok(response) = router.call(request).await;
            response
        }
    };
    let limits = Limits { drain: DRAIN, ..Limits::default() };
    let tidying = async {
        let mut ticks = interval(TIDYING);
        loop {
            ticks.tick().await;
            visitors.tidy(Timestamp::now());
        }
    };
    let exchanges = async {
        loop {
            replicas.exchange().await;
            learned.send_replace(true);
            sleep(replicas::EVERY).await;
        }
    };
    tokio::select! {
        () = server::serve(port, answer, limits, ending) => Ok(()),
        () = tidying => Ok(()),
        () = exchanges => Ok(()),
    }
}
