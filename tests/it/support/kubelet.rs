//! A node of a test: it runs no pod, but forwards their ports as a kubelet does, when the API server asks it to.
//!
//! Entry points: [`Kubelet::start`], [`Kubelet::hold`]. The API server hands the client's WebSocket on to the node's own
//! server, which speaks the protocol `v4.channel.k8s.io`: in messages, each of which begins with the number of its
//! channel, an even one for bytes and the odd one beside it for what goes wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

use super::caller::Caller;
use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::installed::{HOME, Pod};
use super::process::own_address;
use super::wait::{SOON, eventually};

const PROTOCOL: &str = "v4.channel.k8s.io";
const NODE: &str = "node";

/// Where the guard's pods are.
const PODS: &str = "/api/v1/namespaces/kubemoor-system/pods";

/// The port of the container that the chart calls `admin`.
const ADMIN: u16 = 9080;

/// The number of the only port's bytes, and of its errors.
const BYTES: u8 = 0;
const ERRORS: u8 = 1;

/// Where the port of a pod really is: `NAMESPACE/POD` with the port that it is for.
type Ports = Arc<Mutex<BTreeMap<(String, u16), u16>>>;

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// A node's server, on a thread of its own until the process ends.
pub(crate) struct Kubelet {
    admin: Caller,
    ports: Ports,
}

impl Kubelet {
    /// Starts it, and registers its node.
    pub(crate) async fn start(control_plane: &ControlPlane) -> Self {
        let (listener, ports) = (std::net::TcpListener::bind((own_address(), 0)).unwrap(), Ports::default());
        let (address, served) = (listener.local_addr().unwrap(), Arc::clone(&ports));
        listener.set_nonblocking(true).unwrap();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, served));
        });
        let admin = Caller::new(control_plane, Identity::Admin).await;
        admin.post("/api/v1/nodes", &json!({"metadata": {"name": NODE}})).await.done().unwrap();
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": address.ip()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
        });
        let path = format!("/api/v1/nodes/{NODE}/status");
        admin.merge(&path, &json!({"status": status})).await.done().unwrap();
        Self { admin, ports }
    }

    /// The same node for another test.
    pub(super) async fn renewed(self, control_plane: &ControlPlane) -> Self {
        Self { admin: Caller::new(control_plane, Identity::Admin).await, ..self }
    }

    /// Takes over a pending pod of the guard's Deployment as one that is ready, which `process` stands for. Its name.
    pub(crate) async fn hold(&self, process: &Pod) -> String {
        let pods = format!("{PODS}?labelSelector=app.kubernetes.io/name=kubemoor");
        let pod = eventually("the Deployment has a pod", SOON, || async {
            let pods = self.admin.get(&pods).await.done()?;
            let items = pods["items"].as_array().ok_or("no list")?;
            let pending = items.iter().find(|pod| pod["spec"]["nodeName"].is_null());
            let name = pending.and_then(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned);
            name.ok_or_else(|| pods.to_string())
        })
        .await;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        });
        self.admin.post(&format!("{PODS}/{pod}/binding"), &binding).await.done().unwrap();
        self.set_ready(&pod, true).await;
        self.lead(&pod, process.admin_port());
        pod
    }

    /// What comes for the admin port of a pod goes to this port of loopback from now on.
    pub(crate) fn lead(&self, pod: &str, port: u16) {
        self.ports.lock().unwrap().insert((format!("{HOME}/{pod}"), ADMIN), port);
    }

    /// Says whether a pod is ready.
    pub(crate) async fn set_ready(&self, pod: &str, ready: bool) {
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let status = json!({"status": {"phase": "Running", "conditions": [condition]}});
        self.admin.merge(&format!("{PODS}/{pod}/status"), &status).await.done().unwrap();
    }
}

#[expect(clippy::result_large_err, reason = "the library's own type")]
async fn serve(listener: std::net::TcpListener, ports: Ports) {
    let made = rcgen::generate_simple_self_signed([NODE.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::from_std(listener).unwrap());
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, ports) = (acceptor.clone(), Arc::clone(&ports));
        tokio::spawn(async move {
            // Whoever goes away before it is shaken hands with asks nothing.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let mut asked = None;
            let answer = |request: &Request, response: Response| answer(request, response, &mut asked);
            if let Ok(socket) = tokio_tungstenite::accept_hdr_async(stream, answer).await
                && let Some((pod, port)) = asked
            {
                let real = ports.lock().unwrap().get(&(pod, port)).copied();
                forward(socket, port, real).await;
            }
        });
    }
}

/// Takes the protocol and keeps which port of which pod is asked for: `/portForward/NAMESPACE/POD?port=PORT`.
#[expect(clippy::result_large_err, reason = "the library's own type")]
fn answer(
    request: &Request,
    mut response: Response,
    asked: &mut Option<(String, u16)>,
) -> Result<Response, ErrorResponse> {
    let offered = request.headers().get("sec-websocket-protocol").and_then(|it| it.to_str().ok());
    let speaks = offered.unwrap_or_default().split(',').any(|it| it.trim() == PROTOCOL);
    let pod = request.uri().path().strip_prefix("/portForward/").map(str::to_owned);
    let port = request.uri().query().and_then(|query| query.strip_prefix("port=")?.parse().ok());
    let (true, Some(pod), Some(port)) = (speaks, pod, port) else {
        let reason = format!("{} with {offered:?} forwards no port", request.uri());
        return Err(http::Response::builder().status(400).body(Some(reason)).unwrap());
    };
    *asked = Some((pod, port));
    response.headers_mut().insert("sec-websocket-protocol", http::HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

/// Passes bytes on, until one end goes away.
async fn forward(socket: Socket, port: u16, real: Option<u16>) {
    let (mut to_client, from_client) = socket.split();
    for channel in [BYTES, ERRORS] {
        let [low, high] = port.to_le_bytes();
        if to_client.send(Message::binary(vec![channel, low, high])).await.is_err() {
            return;
        }
    }
    let connected = match real {
        Some(real) => TcpStream::connect(("127.0.0.1", real)).await.ok(),
        None => None,
    };
    let Some(stream) = connected else {
        let reason = format!("an error occurred forwarding {port}: connection refused");
        let _ = to_client.send(Message::binary([&[ERRORS], reason.as_bytes()].concat())).await;
        // The client ends it: to close with bytes of its that nobody has read resets the connection, and the reason with it.
        from_client.for_each(async |_| {}).await;
        return;
    };
    let (from_pod, to_pod) = stream.into_split();
    tokio::select! {
        () = up(from_client, to_pod) => {}
        () = down(from_pod, to_client) => {}
    }
}

async fn up(mut from_client: SplitStream<Socket>, mut to_pod: OwnedWriteHalf) {
    while let Some(Ok(message)) = from_client.next().await {
        if let Message::Binary(bytes) = message
            && let Some((&BYTES, bytes)) = bytes.split_first()
            && to_pod.write_all(bytes).await.is_err()
        {
            return;
        }
    }
}

async fn down(mut from_pod: OwnedReadHalf, mut to_client: SplitSink<Socket, Message>) {
    let mut bytes = vec![BYTES; 32 << 10];
    while let Ok(length @ 1..) = from_pod.read(&mut bytes[1..]).await {
        if to_client.send(Message::binary(bytes[..=length].to_vec())).await.is_err() {
            return;
        }
    }
    let _ = to_client.close().await;
}
