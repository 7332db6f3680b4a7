//! The servers, each a child process of the benchmark, wired as the
//! program wires its webhook.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{env, fs};

use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use kubemoor_cluster::mirror::directory;
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Actor, DriftMode, EditsMode, ObjectId, Operation, ReleaseId};
use kubemoor_guard::webhook::intake::{ApiServerProof, BodyLimits, CallerGate, Intake};
use kubemoor_guard::webhook::look::ReleaseSource;
use kubemoor_guard::webhook::validate::{Validator, ValidatorContext};
use kubemoor_helm::index::Index;
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::{LedgerRow, RowChange, RowChanges, RowKind};
use kubemoor_notify::Notifiers;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_policy::{self as policy, Policy};
use kubemoor_runtime::callers::{CallerSecrets, CallerToken};
use kubemoor_runtime::config::{self, LedgerUrl, RecordDriver, Retention};
use kubemoor_runtime::metrics::{self, AdmissionMetrics, ConnectionMetrics, LedgerMetrics, NoticeMetrics};
use kubemoor_runtime::server::{Limits, Peer, ServerShutdown, TlsPort, serve};
use kubemoor_runtime::tls::{CertificateSource, Certificates};
use kubemoor_verdict::shown::Shown;
use parking_lot::RwLock;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The program's allocator, so that the figures hold for the program.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What the API server proves itself by.
const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Has this program serve instead of measure; before the folder.
pub(crate) const FLAG: &str = "--serve";

/// The server that judges.
pub(crate) const JUDGE: &str = "judge";

/// The same for whoever asks: what the token in the path costs beside it.
pub(crate) const OPEN: &str = "open";

/// The server that judges under many policies.
pub(crate) const GOVERNED: &str = "governed";

/// The server that reads the body and says yes.
pub(crate) const NOD: &str = "nod";

/// The threads that write the ledger, by how their names begin.
const LEDGER_THREADS: [&str; 2] = ["ledger", "sqlx"];

const YES: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}"#;

/// The servers. Dropping it ends them.
pub(crate) struct BenchServers {
    judge: BenchServer,
    open: BenchServer,
    governed: BenchServer,
    nod: BenchServer,
}

/// CPU time in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    /// Of the threads that answer.
    pub(crate) answering: f64,
    /// Of the threads that write the ledger, behind the answers.
    pub(crate) keeping: f64,
}

/// One of them. Dropping it ends it.
pub(crate) struct BenchServer {
    child: Child,
    said: BufReader<ChildStdout>,
    address: SocketAddr,
    ca: String,
    path: String,
}

impl BenchServers {
    /// Starts them; `folder` holds the releases under `store`, and policies
    /// in `policies.yaml`.
    pub(crate) fn start(folder: &Path) -> Self {
        let [judge, open, governed, nod] =
            [JUDGE, OPEN, GOVERNED, NOD].map(|role| BenchServer::start(folder, role));
        Self { judge, open, governed, nod }
    }

    /// The CPU that a server takes while `work` runs.
    pub(crate) fn cpu_of(&self, role: &str, work: impl FnOnce()) -> Cpu {
        self.server(role).cpu_of(work)
    }

    pub(crate) fn server(&self, role: &str) -> &BenchServer {
        match role {
            JUDGE => &self.judge,
            OPEN => &self.open,
            GOVERNED => &self.governed,
            _ => &self.nod,
        }
    }
}

impl BenchServer {
    /// Starts it; `folder` is as for [`BenchServers::start`].
    pub(crate) fn start(folder: &Path, role: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(FLAG).arg(folder.join(role)).stdin(Stdio::piped()).stdout(Stdio::piped());
        fs::create_dir_all(folder.join(role)).unwrap();
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("a server says its address");
        let ca = fs::read_to_string(folder.join(role).join("ca.crt")).unwrap();
        let path = if role == OPEN { "/validate".to_owned() } else { format!("/validate/{TOKEN}") };
        Self { child, said, address, ca, path }
    }

    /// The CPU that it takes while `work` runs.
    pub(crate) fn cpu_of(&self, work: impl FnOnce()) -> Cpu {
        let before = self.cpu();
        work();
        let after = self.cpu();
        Cpu { answering: after.answering - before.answering, keeping: after.keeping - before.keeping }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is asked.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn ca(&self) -> &str {
        &self.ca
    }

    /// Has other rows made, so many a second, and recorded in the ledger or dropped.
    /// Says how many rows are in it by now, and how many found no place there.
    pub(crate) fn make_others(&mut self, a_second: u64, are_recorded: bool) -> (u64, u64) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{a_second} {are_recorded}").unwrap();
        // Rows that found no place there stand in between.
        let is_row = |line: &String| line.starts_with('{');
        let line = self.said.by_ref().lines().map_while(Result::ok).find(|line| !is_row(line));
        let line = line.expect("a server says what it has written");
        let (kept, beyond) = line.split_once(' ').unwrap();
        (kept.parse().unwrap(), beyond.parse().unwrap())
    }

    /// The CPU time of all threads, by the scheduler's own count in
    /// nanoseconds. The threads are the same before and after.
    fn cpu(&self) -> Cpu {
        let mut cpu = Cpu { answering: 0.0, keeping: 0.0 };
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap() {
            let task = task.unwrap().path();
            let text = fs::read_to_string(task.join("schedstat")).unwrap();
            let name = fs::read_to_string(task.join("comm")).unwrap();
            let microseconds = text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1000.0;
            match LEDGER_THREADS.iter().any(|ledger| name.starts_with(ledger)) {
                true => cpu.keeping += microseconds,
                false => cpu.answering += microseconds,
            }
        }
        cpu
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // Fails only for a process that has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until standard input ends, in the role that `folder` is named for.
pub(crate) fn run(folder: &Path) {
    // A profile tells the roles apart by the names of their threads.
    let role = folder.file_name().unwrap().to_str().unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.thread_name(role).enable_all().build().unwrap();
    let others = Others::default();
    let heard = others.clone();
    // The benchmark holds the other end: it is closed however that ends.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let (a_second, are_recorded) = line.split_once(' ').unwrap();
            heard.turn_to(a_second.parse().unwrap(), are_recorded.parse().unwrap());
        }
        std::process::exit(0);
    });
    runtime.block_on(async {
        if folder.ends_with(NOD) {
            listen(folder, nod).await;
        } else {
            let validator = validator(folder, &others);
            let answer = move |peer: Peer, request: Request<Incoming>| {
                let validator = validator.clone();
                async move { validator.answer(peer.address, request).await }
            };
            listen(folder, answer).await;
        }
    });
}

async fn nod(_: Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert!(!body.is_empty());
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.body(Full::new(Bytes::from_static(YES.as_bytes()))).unwrap()
}

async fn listen<H, F>(folder: &Path, answer: H)
where
    H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let source =
        CertificateSource::SelfMade { directory: folder.to_owned(), names: vec!["localhost".to_owned()] };
    let certificates = Certificates::load(source, jiff::Timestamp::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connections = ConnectionMetrics::register(&mut metrics::registry());
    println!("{}", listener.local_addr().unwrap());
    let tls = certificates.server_config().unwrap();
    let port = TlsPort { listener, tls, metrics: connections };
    serve(port, answer, Limits::default(), ServerShutdown::default()).await;
}

fn validator(folder: &Path, others: &Others) -> Validator {
    let directory = directory::load(&folder.with_file_name("store"), &Catalog::with_core()).unwrap();
    assert!(directory.unreadable.is_empty());
    let mut index = Index::default();
    directory.releases.into_iter().for_each(|assembled| index.set(assembled.release));
    assert!(index.objects() > 0);
    let metrics = AdmissionMetrics::register(&mut metrics::registry());
    let callers = CallerSecrets::default();
    callers.accept(CallerToken::parse(TOKEN).unwrap(), Some(CallerToken::random().unwrap()));
    let proof = if folder.ends_with(OPEN) { ApiServerProof::Certificate } else { ApiServerProof::Token };
    let setup = ValidatorContext {
        caller_gate: CallerGate::new(proof, callers, metrics.clone()),
        source: ReleaseSource::Fixed(RwLock::new(index)),
        resolver: Arc::new(resolver(folder)),
        record_driver: RecordDriver::Secret,
        own_account: None,
        own_namespace: None,
        metrics,
        ledger: ledger(folder.join("ledger.db"), others),
        notifiers: Notifiers::new(Vec::new(), &NoticeMetrics::default()).0,
    };
    Validator::new(Intake::new(BodyLimits::default()), setup)
}

/// What holds in the role that `folder` is named for.
fn resolver(folder: &Path) -> PolicyResolver {
    let defaults = Policy::new(EditsMode::Deny, DriftMode::Report, Duration::from_secs(600));
    if folder.ends_with(JUDGE) || folder.ends_with(OPEN) {
        return PolicyResolver::new(defaults);
    }
    let text = fs::read_to_string(folder.with_file_name("policies.yaml")).unwrap();
    let (accepted, flawed) = policy::compile::read([("policies.yaml", text.as_str())]);
    assert!(flawed.is_empty(), "{flawed:?}");
    assert!(!accepted.is_empty());
    PolicyResolver::of_policies(Policies::new(defaults, &Labels::new(), accepted))
}

/// Rows that are made beside those of the verdicts.
#[derive(Clone, Default)]
struct Others {
    a_second: Arc<AtomicU64>,
    are_recorded: Arc<AtomicBool>,
    registry: Arc<OnceLock<Registry>>,
}

impl Others {
    /// Has so many made a second, and says what was written before.
    fn turn_to(&self, a_second: u64, are_recorded: bool) {
        self.a_second.store(a_second, Ordering::Relaxed);
        self.are_recorded.store(are_recorded, Ordering::Relaxed);
        let mut text = String::new();
        encode(&mut text, self.registry.get().expect("there is a ledger")).unwrap();
        let rows = |outcome: &str| {
            let name = format!("kubemoor_ledger_rows_total{{outcome=\"{outcome}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0_u64)
        };
        println!("{} {}", rows("database"), rows("overflow") + rows("unavailable") + rows("lost"));
    }

    /// Makes them, in equal portions every few milliseconds.
    fn make(&self, ledger: &LedgerHandle) {
        const PORTION: Duration = Duration::from_millis(2);
        let patterns = patterns();
        let (mut next, mut due, mut number) = (Instant::now(), 0.0, 0_usize);
        loop {
            due += self.a_second.load(Ordering::Relaxed) as f64 * PORTION.as_secs_f64();
            while due >= 1.0 {
                let pattern: &LedgerRow = &patterns[number % patterns.len()];
                let row = LedgerRow { time: jiff::Timestamp::now(), ..pattern.clone() };
                if self.are_recorded.load(Ordering::Relaxed) {
                    ledger.record(row);
                }
                (due, number) = (due - 1.0, number + 1);
            }
            next += PORTION;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Refusals of many releases and users.
fn patterns() -> Vec<LedgerRow> {
    let row = |number: u64| {
        let (release, user) = (number * 7919 % 1000, number * 31 % 200);
        let namespace = format!("team-{}", release % 50);
        let object = ObjectId {
            group: "apps".into(),
            kind: "Deployment".into(),
            namespace: Some(namespace.clone().into()),
            name: format!("release-{release}-web").into(),
        };
        let shown = |tag| Some(Shown::new(&object, &"/spec/replicas".parse().unwrap(), &json!(tag)));
        let change = RowChange {
            path: "/spec/replicas".to_owned(),
            declared: shown(3),
            old: shown(3),
            new: shown(number),
            difference: None,
        };
        LedgerRow {
            time: jiff::Timestamp::now(),
            kind: RowKind::Verdict,
            release: Some((
                ReleaseId { namespace: namespace.into(), name: format!("release-{release}").into() },
                7,
            )),
            operation: Some(Operation::Update),
            actor: Actor {
                user: format!("user-{user}@example.com"),
                groups: vec!["developers".to_owned()],
                ..Actor::default()
            },
            verdict: "Deny",
            reason: "drift",
            detail: String::new(),
            fields: RowChanges { listed: vec![change], more: 0 },
            uid: format!("{number:08x}-0000-4000-8000-000000000000"),
            facts: None,
            same: None,
            is_low_priority: false,
            object,
        }
    };
    (0..4000).map(row).collect()
}

/// A ledger that is written to, as the program has one.
fn ledger(file: PathBuf, others: &Others) -> LedgerHandle {
    let retention = Retention { age: Duration::MAX, rows: u64::MAX };
    let settings = config::LedgerSettings { url: LedgerUrl::Sqlite(file), retention };
    let mut registry = metrics::registry();
    let (ledger, writer) = LedgerHandle::new(settings, LedgerMetrics::register(&mut registry)).unwrap();
    assert!(others.registry.set(registry).is_ok());
    let (name, named) = oneshot::channel();
    name.send("bench".to_owned()).unwrap();
    // It runs until the process ends.
    drop(writer.start(named, CancellationToken::new()).unwrap());
    let (beside, recording) = (others.clone(), ledger.clone());
    let making = move || beside.make(&recording);
    std::thread::Builder::new().name("ledger-others".to_owned()).spawn(making).unwrap();
    ledger
}
