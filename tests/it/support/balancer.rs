//! What a Service and kube-proxy are to replicas: one address, new connections to those that are ready, and what is
//! known of that a little old.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::control_plane::install_crypto_provider;
use super::installed::Pod;
use super::process::own_address;

/// How long it takes until what a replica says of itself decides where connections go.
const LAG: Duration = Duration::from_secs(1);

/// How often replicas are asked.
const PERIOD: Duration = Duration::from_millis(200);

/// One address for several replicas. Dropping it refuses further connections.
pub(crate) struct Balancer {
    port: u16,
    replicas: Arc<Mutex<BalancedReplicas>>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct BalancedReplicas {
    known: Vec<Replica>,
    /// The addresses that connections go to.
    ready: Vec<SocketAddr>,
    /// Where each connection went.
    connections: Vec<SocketAddr>,
}

#[derive(Clone)]
struct Replica {
    address: SocketAddr,
    readyz: String,
}

impl Balancer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let replicas: Arc<Mutex<BalancedReplicas>> = Arc::default();
        let tasks =
            [tokio::spawn(look(Arc::clone(&replicas))), tokio::spawn(serve(listener, Arc::clone(&replicas)))];
        Self { port, replicas, tasks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on this replica gets connections while it is ready.
    pub(crate) fn add(&self, pod: &Pod) {
        let (address, readyz) = (pod.address(), pod.admin_url() + "/readyz");
        self.replicas.lock().unwrap().known.push(Replica { address, readyz });
    }

    /// How many connections each replica got, in the order in which they were added.
    pub(crate) fn connections(&self) -> Vec<usize> {
        let replicas = self.replicas.lock().unwrap();
        let count =
            |replica: &Replica| replicas.connections.iter().filter(|it| **it == replica.address).count();
        replicas.known.iter().map(count).collect()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Asks all replicas again and again whether they are ready.
async fn look(replicas: Arc<Mutex<BalancedReplicas>>) {
    install_crypto_provider();
    let client =
        reqwest::Client::builder().tls_danger_accept_invalid_certs(true).timeout(LAG).build().unwrap();
    loop {
        let known = replicas.lock().unwrap().known.clone();
        let asked = known.iter().map(async |replica| {
            let answer = client.get(&replica.readyz).send().await;
            answer.is_ok_and(|answer| answer.status() == 200).then_some(replica.address)
        });
        let ready = join_all(asked).await.into_iter().flatten().collect();
        let replicas = Arc::clone(&replicas);
        tokio::spawn(async move {
            sleep(LAG).await;
            replicas.lock().unwrap().ready = ready;
        });
        sleep(PERIOD).await;
    }
}

async fn serve(listener: TcpListener, replicas: Arc<Mutex<BalancedReplicas>>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let address = {
            let mut replicas = replicas.lock().unwrap();
            let turn = replicas.connections.len();
            // Where nobody is ready, the connection is closed.
            let Some(address) = replicas.ready.get(turn % replicas.ready.len().max(1)).copied() else {
                continue;
            };
            replicas.connections.push(address);
            address
        };
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(address).await else { return };
            // Fails where one end breaks off, of which the other end is told.
            let _ = copy_bidirectional(&mut near, &mut far).await;
        });
    }
}
