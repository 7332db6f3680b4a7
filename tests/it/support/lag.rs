//! A watch that falls behind, a network that holds requests up or breaks in the middle of an answer, and an API server
//! that turns requests away: what a guard sees on a bad day, made on purpose.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures::{Stream, StreamExt as _, stream};
use http::StatusCode;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::process::folder;

/// How long a slow request is under way.
const SLOW: Duration = Duration::from_millis(50);

/// Stands between a guard and its API server and passes everything on, but for the events of watches while they are
/// held, and for requests that it is told to turn away, to hold up or to leave without an answer. Dropping it cuts the
/// connections.
///
/// Requests are named by method and a part of the path: `PATCH /configmaps/settings`.
pub(crate) struct LaggingWatch {
    kubeconfig: PathBuf,
    traffic: watch::Sender<LaggedTraffic>,
    requests: Arc<Requests>,
    server: JoinHandle<()>,
}

struct LaggedUpstream {
    client: Client,
    traffic: watch::Receiver<LaggedTraffic>,
    requests: Arc<Requests>,
}

#[derive(Clone, Copy, Default)]
struct LaggedTraffic {
    /// The watches whose events are held: those of which the path has this part.
    held: Option<&'static str>,
    throttled: bool,
    /// Requests that are held up.
    stalled: &'static [&'static str],
    /// Requests that are slow.
    slowed: Option<&'static str>,
    /// Requests whose answer breaks off.
    cut: Option<&'static str>,
    /// How all watches ended last.
    end: End,
    /// How often they were ended.
    ended: u64,
}

#[derive(Clone, Copy, Default)]
enum End {
    #[default]
    Expired,
    Broken,
}

/// What became of requests, by method and path.
#[derive(Default)]
struct Requests {
    turned_away: AtomicUsize,
    stalled: Mutex<Vec<String>>,
    passed: Mutex<Vec<String>>,
    cut: Mutex<Vec<String>>,
}

impl LaggingWatch {
    /// Starts it with watches flowing; requests go on under the identity given.
    pub(crate) async fn start(control_plane: &ControlPlane, identity: Identity) -> Self {
        let (traffic, receiver) = watch::channel(LaggedTraffic::default());
        let requests = Arc::new(Requests::default());
        let upstream = Arc::new(LaggedUpstream {
            client: control_plane.client(identity).await,
            traffic: receiver,
            requests: Arc::clone(&requests),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = kubeconfig(&format!("http://{}", listener.local_addr().unwrap()));
        let router = Router::new().fallback(pass_on).with_state(upstream);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { kubeconfig, traffic, requests, server }
    }

    /// What the guard is to be started with.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on no watch event arrives, on no connection.
    pub(crate) fn hold(&self) {
        self.hold_of("");
    }

    /// The same for watches of which the path has this part.
    pub(crate) fn hold_of(&self, part: &'static str) {
        self.traffic.send_modify(|traffic| traffic.held = Some(part));
    }

    /// Everything that was held arrives, in order.
    pub(crate) fn release(&self) {
        self.traffic.send_modify(|traffic| traffic.held = None);
    }

    /// Every watch is told that it is too old, and ends; what was held never arrives.
    pub(crate) fn expire(&self) {
        self.end(End::Expired);
    }

    /// The connection of every watch breaks, in the middle of an event where one was held; what else was held never
    /// arrives.
    pub(crate) fn sever(&self) {
        self.end(End::Broken);
    }

    fn end(&self, end: End) {
        self.traffic.send_modify(|traffic| {
            traffic.end = end;
            traffic.ended += 1;
        });
    }

    /// From now on everything is answered with 429, or no more. Watches that stand go on.
    pub(crate) fn throttle(&self, throttled: bool) {
        self.traffic.send_modify(|traffic| traffic.throttled = throttled);
    }

    /// How many requests were answered with 429.
    pub(crate) fn turned_away(&self) -> usize {
        self.requests.turned_away.load(Ordering::Relaxed)
    }

    /// From now on these requests wait before they reach the API server; those that waited and are not among these go
    /// on, also when whoever asked waits no more.
    pub(crate) fn stall(&self, requests: &'static [&'static str]) {
        self.traffic.send_modify(|traffic| traffic.stalled = requests);
    }

    /// From now on such requests take a while to reach the API server.
    pub(crate) fn slow(&self, request: &'static str) {
        self.traffic.send_modify(|traffic| traffic.slowed = Some(request));
    }

    /// How many such requests had to wait so far.
    pub(crate) fn stalled(&self, request: &str) -> usize {
        count(&self.requests.stalled, request)
    }

    /// How many such requests the API server has answered so far.
    pub(crate) fn passed(&self, request: &str) -> usize {
        count(&self.requests.passed, request)
    }

    /// From now on the API server does what such requests ask for, and its answer breaks off in the middle; with none
    /// no more.
    pub(crate) fn cut(&self, request: Option<&'static str>) {
        self.traffic.send_modify(|traffic| traffic.cut = request);
    }

    /// How many answers to such requests were cut so far.
    pub(crate) fn answers_cut(&self, request: &str) -> usize {
        count(&self.requests.cut, request)
    }
}

impl Drop for LaggingWatch {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass_on(State(upstream): State<Arc<LaggedUpstream>>, request: Request) -> Response {
    let is_watch =
        request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
    let began = *upstream.traffic.borrow();
    if began.throttled {
        upstream.requests.turned_away.fetch_add(1, Ordering::Relaxed);
        return too_many_requests();
    }
    let name = format!("{} {}", request.method(), request.uri());
    let path = request.uri().path().to_owned();
    let (mut head, body) = request.into_parts();
    // The client has its own address and token to put there.
    head.headers.remove(http::header::HOST);
    head.headers.remove(http::header::AUTHORIZATION);
    let body = body.collect().await.unwrap().to_bytes();
    let request = http::Request::from_parts(head, kube::client::Body::from(body));
    let (client, requests) = (upstream.client.clone(), Arc::clone(&upstream.requests));
    let mut traffic = upstream.traffic.clone();
    // What was sent arrives, also when whoever sent it has gone meanwhile.
    let sending = tokio::spawn(async move {
        let waits = |traffic: &LaggedTraffic| traffic.stalled.iter().any(|rule| is_meant(rule, &name));
        if waits(&traffic.borrow()) {
            requests.stalled.lock().unwrap().push(name.clone());
            // Fails when the test is over: then nobody listens either.
            let _ = traffic.wait_for(|traffic| !waits(traffic)).await;
        }
        if traffic.borrow().slowed.is_some_and(|rule| is_meant(rule, &name)) {
            tokio::time::sleep(SLOW).await;
        }
        let answer = client.send(request).await;
        let is_cut = traffic.borrow().cut.is_some_and(|rule| is_meant(rule, &name));
        if is_cut {
            requests.cut.lock().unwrap().push(name.clone());
        }
        requests.passed.lock().unwrap().push(name);
        answer.map(|answer| (answer, is_cut))
    });
    let Ok((answer, is_cut)) = sending.await.unwrap() else {
        return Response::builder().status(StatusCode::BAD_GATEWAY).body(Body::empty()).unwrap();
    };
    let (head, body) = answer.into_parts();
    if is_cut {
        let whole = body.collect().await.unwrap().to_bytes();
        let half = Ok(whole.slice(..whole.len() / 2));
        let halved = stream::iter([half]).chain(stream::once(sent_before(broken())));
        return Response::from_parts(head, Body::from_stream(halved));
    }
    let chunks = body.into_data_stream().map(|chunk| chunk.map_err(axum::Error::new));
    if is_watch {
        let chunks = lagging(chunks.boxed(), path, upstream.traffic.clone(), began.ended);
        return Response::from_parts(head, Body::from_stream(chunks));
    }
    Response::from_parts(head, Body::from_stream(chunks))
}

fn too_many_requests() -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
        "reason": "TooManyRequests", "message": "too many requests",
    });
    Response::builder()
        .status(StatusCode::TOO_MANY_REQUESTS)
        .header("Retry-After", "1")
        .header("Content-Type", "application/json")
        .body(Body::from(status.to_string()))
        .unwrap()
}

/// The events of a watch of `path` that began when watches had been ended `began` times.
fn lagging(
    chunks: stream::BoxStream<'static, Result<Bytes, axum::Error>>,
    path: String,
    traffic: watch::Receiver<LaggedTraffic>,
    began: u64,
) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let path: Arc<str> = path.into();
    stream::unfold(Some(Ok((chunks, traffic))), move |open| {
        let path = Arc::clone(&path);
        async move {
            let (mut chunks, mut traffic) = match open? {
                Ok(open) => open,
                Err(error) => return Some((sent_before(error).await, None)),
            };
            let mut ended = traffic.clone();
            let chunk = tokio::select! {
                // Fails when the test is over: then nobody listens either.
                _ = ended.wait_for(|traffic| traffic.ended > began) => None,
                chunk = chunks.next() => Some(chunk?),
            };
            if chunk.is_some() {
                let is_held = |traffic: &LaggedTraffic| traffic.held.is_some_and(|part| path.contains(part));
                let _ = traffic.wait_for(|traffic| !is_held(traffic) || traffic.ended > began).await;
            }
            let now = *traffic.borrow();
            match (chunk, now.end) {
                (Some(chunk), _) if now.ended == began => Some((chunk, Some(Ok((chunks, traffic))))),
                (_, End::Expired) => {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                        "reason": "Expired", "message": "too old resource version",
                    });
                    let event = json!({"type": "ERROR", "object": status});
                    Some((Ok(Bytes::from(format!("{event}\n"))), None))
                }
                (Some(Ok(event)), End::Broken) => {
                    Some((Ok(event.slice(..event.len() / 2)), Some(Err(broken()))))
                }
                (_, End::Broken) => Some((Err(broken()), None)),
            }
        }
    })
}

/// The error, once what was sent before it is on its way.
async fn sent_before(error: axum::Error) -> Result<Bytes, axum::Error> {
    tokio::task::yield_now().await;
    Err(error)
}

fn broken() -> axum::Error {
    axum::Error::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
}

fn is_meant(rule: &str, request: &str) -> bool {
    let (method, part) = rule.split_once(' ').unwrap();
    request.strip_prefix(method).is_some_and(|path| path.starts_with(' ') && path.contains(part))
}

fn count(requests: &Mutex<Vec<String>>, rule: &str) -> usize {
    requests.lock().unwrap().iter().filter(|request| is_meant(rule, request)).count()
}

pub(super) fn kubeconfig(url: &str) -> PathBuf {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
        "current-context": "test",
    });
    let path = folder("proxied").join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}
