//! A line between two programs that fails as lines do: without a word to either end.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::process::folder;

/// Passes bytes on between whoever connects to it and a server. Dropping it refuses further connections.
pub(crate) struct Wire {
    port: u16,
    traffic: watch::Sender<Traffic>,
    server: JoinHandle<()>,
}

#[derive(Clone, Copy, Default)]
struct Traffic {
    frozen: bool,
    /// How often all connections were lost.
    lost: u64,
}

impl Wire {
    /// A line to this port of loopback.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (traffic, receiver) = watch::channel(Traffic::default());
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, port, receiver.clone()));
            }
        });
        Self { port: own, traffic, server }
    }

    /// A line to an API server, and the kubeconfig of this identity that leads over it.
    pub(crate) async fn to_api_server(control_plane: &ControlPlane, identity: Identity) -> (Self, PathBuf) {
        let text = std::fs::read_to_string(control_plane.kubeconfig(identity)).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        let server = &mut config["clusters"][0]["cluster"]["server"];
        let url: http::Uri = server.as_str().unwrap().parse().unwrap();
        let wire = Self::to(url.port_u16().unwrap()).await;
        *server = format!("https://127.0.0.1:{}", wire.port).into();
        let path = folder("wired").join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        (wire, path)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing arrives on any connection, and no connection ends.
    pub(crate) fn freeze(&self) {
        self.traffic.send_modify(|traffic| traffic.frozen = true);
    }

    /// Everything goes on where it stood.
    pub(crate) fn thaw(&self) {
        self.traffic.send_modify(|traffic| traffic.frozen = false);
    }

    /// Nothing ever arrives again on the connections of this moment, and none of them ends. New ones work.
    pub(crate) fn lose(&self) {
        self.traffic.send_modify(|traffic| traffic.lost += 1);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn connection(near: TcpStream, port: u16, mut traffic: watch::Receiver<Traffic>) {
    let began = traffic.borrow().lost;
    flowing(&mut traffic, began).await;
    let Ok(far) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await else { return };
    let (near, far) = (near.into_split(), far.into_split());
    tokio::join!(pump(near.0, far.1, traffic.clone(), began), pump(far.0, near.1, traffic, began));
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut traffic: watch::Receiver<Traffic>,
    began: u64,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or_default();
        flowing(&mut traffic, began).await;
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            // Fails where that end has closed already.
            let _ = to.shutdown().await;
            return;
        }
    }
}

/// Waits while nothing may pass on a connection that began when connections had been lost so often.
async fn flowing(traffic: &mut watch::Receiver<Traffic>, began: u64) {
    // Fails when the test is over: then nobody listens either.
    let _ = traffic.wait_for(|traffic| !traffic.frozen && traffic.lost == began).await;
}
