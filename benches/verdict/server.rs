//! The two servers, each a child process of the benchmark, wired as the
//! program wires its webhook.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use kubemoor::cluster::directory;
use kubemoor::config::{self, LedgerUrl, RecordDriver, Retention};
use kubemoor::declaration::catalog::Catalog;
use kubemoor::helm::index::Index;
use kubemoor::ledger::Ledger;
use kubemoor::metrics::{self, AdmissionMetrics, ConnectionMetrics, LedgerMetrics};
use kubemoor::model::{DriftMode, EditsMode};
use kubemoor::policy::Policy;
use kubemoor::policy::book::Book;
use kubemoor::tls::{Certificates, Source};
use kubemoor::webhook::intake::{BodyLimits, Intake};
use kubemoor::webhook::look::Truth;
use kubemoor::webhook::server::{Limits, serve};
use kubemoor::webhook::validate::{Setup, Validator};
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Has this program serve instead of measure; before the folder.
pub(crate) const FLAG: &str = "--serve";

/// The server that judges.
pub(crate) const JUDGE: &str = "judge";

/// The server that reads the body and says yes.
pub(crate) const NOD: &str = "nod";

const YES: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}"#;

/// Both servers. Dropping it ends them.
pub(crate) struct Served {
    judge: Server,
    nod: Server,
}

struct Server {
    child: Child,
    address: SocketAddr,
    ca: String,
}

impl Served {
    /// Starts both; `folder` holds the releases under `store`.
    pub(crate) fn start(folder: &Path) -> Self {
        Self { judge: Server::start(folder, JUDGE), nod: Server::start(folder, NOD) }
    }

    pub(crate) fn address(&self, role: &str) -> SocketAddr {
        self.server(role).address
    }

    pub(crate) fn ca(&self, role: &str) -> &str {
        &self.server(role).ca
    }

    /// The CPU in microseconds that a server takes while `work` runs.
    pub(crate) fn cpu_of(&self, role: &str, work: impl FnOnce()) -> f64 {
        let server = self.server(role);
        let before = server.cpu();
        work();
        server.cpu() - before
    }

    fn server(&self, role: &str) -> &Server {
        if role == JUDGE { &self.judge } else { &self.nod }
    }
}

impl Server {
    fn start(folder: &Path, role: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(FLAG).arg(folder.join(role)).stdin(Stdio::piped()).stdout(Stdio::piped());
        fs::create_dir_all(folder.join(role)).unwrap();
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("a server says its address");
        let ca = fs::read_to_string(folder.join(role).join("ca.crt")).unwrap();
        Self { child, address, ca }
    }

    /// The CPU time of all threads in microseconds, by the scheduler's own
    /// count in nanoseconds. The threads are the same before and after.
    fn cpu(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = tasks.map(|task| {
            let text = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            text.split_whitespace().next().unwrap().parse::<f64>().unwrap()
        });
        nanoseconds.sum::<f64>() / 1000.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only for a process that has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until standard input ends, in the role that `folder` is named for.
pub(crate) fn run(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // The benchmark holds the other end: it is closed however that ends.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    runtime.block_on(async {
        if folder.ends_with(JUDGE) {
            let validator = validator(&folder.with_file_name("store"));
            let answer = move |request: Request<Incoming>| {
                let validator = validator.clone();
                async move { validator.answer(request).await }
            };
            listen(folder, answer).await;
        } else {
            listen(folder, nod).await;
        }
    });
}

async fn nod(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert!(!body.is_empty());
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(Full::new(Bytes::from_static(YES.as_bytes()))).unwrap()
}

async fn listen<H, F>(folder: &Path, answer: H)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let source = Source::SelfMade { directory: folder.to_owned(), names: vec!["localhost".to_owned()] };
    let certificates = Certificates::load(source, jiff::Timestamp::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connections = ConnectionMetrics::register(&mut metrics::registry());
    println!("{}", listener.local_addr().unwrap());
    let (tls, stop) = (certificates.server_config().unwrap(), CancellationToken::new());
    serve(listener, tls, answer, Limits::default(), connections, stop).await;
}

fn validator(store: &Path) -> Validator {
    let directory = directory::load(store, &Catalog::with_core()).unwrap();
    assert!(directory.unreadable.is_empty());
    let mut index = Index::default();
    directory.releases.into_iter().for_each(|assembled| index.set(assembled.release));
    assert!(index.objects() > 0);
    let book = Arc::new(Book::new(Policy::new(EditsMode::Deny, DriftMode::Report, Duration::from_secs(600))));
    let setup = Setup {
        truth: Truth::Fixed(RwLock::new(index)),
        book,
        record_driver: RecordDriver::Secret,
        own_account: None,
        own_namespace: None,
        metrics: AdmissionMetrics::register(&mut metrics::registry()),
        ledger: ledger(&store.with_file_name("ledger.db")),
    };
    Validator::new(Intake::new(BodyLimits::default()), setup)
}

/// A ledger that is written to, as the program has one.
fn ledger(file: &Path) -> Ledger {
    let retention = Retention { age: Duration::MAX, rows: u64::MAX };
    let settings = config::Ledger { url: LedgerUrl::Sqlite(file.to_owned()), cluster_name: None, retention };
    let (ledger, writer) = Ledger::new(settings, LedgerMetrics::default()).unwrap();
    let (name, named) = oneshot::channel();
    name.send("bench".to_owned()).unwrap();
    tokio::spawn(writer.run(named, CancellationToken::new()));
    ledger
}
