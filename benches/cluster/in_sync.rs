//! What a guard costs while all declared objects are as declared, and what
//! polling them would cost the API server instead.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::sleep;

use super::objects::{OBJECTS, collection, declared, manifest, sent};
use crate::support::{Caller, ControlPlane, Guard, Identity, eventually, forged};

/// Releases where no number is asked for.
pub(crate) const RELEASES: usize = 1000;

/// Releases in each namespace.
const IN_NAMESPACE: usize = 50;

/// Objects that are polled for the comparison.
const SAMPLE: usize = 500;

/// How often a poller of the comparison looks at each object.
const POLLED_EVERY: Duration = Duration::from_secs(300);

const STARTUP: Duration = Duration::from_secs(300);
const SETTLING: Duration = Duration::from_secs(15);

/// How long the API server is watched without a guard.
const BEFORE: Duration = Duration::from_secs(30);

/// How long a guard at rest is watched: as long as no watch goes without listing everything again.
const WATCHED: Duration = Duration::from_secs(300);

/// The most that may be resident, with few releases and with many, and at any time with many, in MiB.
const MEMORY_BARS: [f64; 3] = [120.0, 250.0, 300.0];

/// The most of a core that a guard at rest may take, in percent.
const CPU_BAR: f64 = 0.2;

/// Prints the costs of a guard of so many releases, each with so many revisions, with nothing to do, and those of
/// polling.
pub(crate) async fn measure(count: usize, revisions: u32) {
    let mut control_plane = ControlPlane::start();
    control_plane.restart_with_progress();
    control_plane.define_policies();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let mut namespaces = Vec::new();
    for _ in 0..count.div_ceil(IN_NAMESPACE) {
        namespaces.push(control_plane.namespace("releases").await);
    }
    let releases: Vec<(String, String)> =
        (0..count).map(|n| (namespaces[n % namespaces.len()].clone(), format!("shop-{n:05}"))).collect();
    let install = releases.iter().map(|release| install(&admin, release, revisions));
    futures::stream::iter(install).buffer_unordered(8).for_each(|()| async {}).await;
    println!("{count} releases of {OBJECTS} objects and {revisions} revisions each, all as declared:");
    sleep(SETTLING).await;
    let idle = idle(&control_plane).await;
    println!("  kube-apiserver without a guard: {idle:.2} s of CPU a minute");

    let mut guard = begin(&control_plane, count).await;
    print_rest(&control_plane, &guard).await;
    print_memory(&guard, count);
    guard.terminate();
    // What polling costs is the same for each object.
    if count <= RELEASES {
        poll(&control_plane, &admin, &releases, idle).await;
    }
}

/// Starts a guard, waits until it has nothing more to do, and prints what that takes.
async fn begin(control_plane: &ControlPlane, count: usize) -> Guard {
    let before = control_plane.audit_events(&[]).len();
    let begin = Instant::now();
    let flags = ["--edits=Deny", "--drift=Repair", "--service=kubemoor-system/kubemoor"];
    let kubeconfig = control_plane.kubeconfig(Identity::Guard);
    let mut guard = Guard::begin_through(control_plane, &kubeconfig, &flags).await;
    eventually("the guard is ready", STARTUP, || guard.is_ready()).await;
    let ready = begin.elapsed();
    guard.ready().await;
    let listed = begin.elapsed();
    eventually("all releases are in sync", Duration::from_secs(900), || all_in_sync(&guard, count)).await;
    eventually("all have their GuardedRelease", Duration::from_secs(1800), || all_written(&guard, count))
        .await;
    println!(
        "  ready after {:.1} s, all objects listed after {:.1} s, all statuses written after {:.1} s, CPU of the guard until then {:.1} s",
        ready.as_secs_f64(),
        listed.as_secs_f64(),
        begin.elapsed().as_secs_f64(),
        guard.cpu_time().as_secs_f64()
    );
    print_requests("requests until then", &of_the_guard(control_plane, before));
    guard
}

/// Prints what a guard takes that has nothing to do.
async fn print_rest(control_plane: &ControlPlane, guard: &Guard) {
    let before = control_plane.audit_events(&[]).len();
    let written = metric(&guard.metrics().await, STATUSES);
    let (cpu, server) = (guard.cpu_time(), control_plane.apiserver_cpu_time());
    sleep(WATCHED).await;
    let (cpu, server) = (guard.cpu_time() - cpu, control_plane.apiserver_cpu_time() - server);
    let minutes = WATCHED.as_secs_f64() / 60.0;
    print_requests("requests in the five minutes after", &of_the_guard(control_plane, before));
    let metrics = guard.metrics().await;
    println!("  statuses written in it: {}", metric(&metrics, STATUSES) - written);
    let share = cpu.as_secs_f64() * 100.0 / WATCHED.as_secs_f64();
    println!(
        "  CPU a minute: guard {:.2} s ({share:.2} % of a core, at most {CPU_BAR} %{}), kube-apiserver {:.2} s",
        cpu.as_secs_f64() / minutes,
        missed(share > CPU_BAR),
        server.as_secs_f64() / minutes
    );
}

fn print_memory(guard: &Guard, count: usize) {
    let (resident, peak) = (mebibytes(guard.resident_memory()), mebibytes(guard.peak_memory()));
    let [few, many, at_any_time] = MEMORY_BARS;
    let bar = if count > RELEASES { many } else { few };
    println!(
        "  resident memory {resident:.1} MiB (at most {bar} MiB{}), of it the program's file {:.1}; peak {peak:.1} (at most {at_any_time} MiB{})",
        missed(resident > bar),
        mebibytes(guard.file_memory()),
        missed(peak > at_any_time)
    );
}

fn missed(is_missed: bool) -> &'static str {
    if is_missed { ": missed" } else { "" }
}

/// The count of statuses written.
pub(super) const STATUSES: &str = "kubemoor_status_writes_total{outcome=\"written\"}";

async fn install(admin: &Caller, (namespace, release): &(String, String), revisions: u32) {
    let declared = declared(release);
    for object in &declared {
        let path = format!("{}?fieldManager=helm", collection(object, namespace));
        admin.post(&path, &sent(object.clone(), namespace, release)).await.done().unwrap();
    }
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    for revision in 1..=revisions {
        let status = if revision == revisions { "deployed" } else { "superseded" };
        let record = forged(namespace, release, revision, status, &manifest(&declared));
        admin.post(&path, &serde_json::to_value(record).unwrap()).await.done().unwrap();
    }
}

/// Seconds of CPU that the API server takes a minute by itself.
async fn idle(control_plane: &ControlPlane) -> f64 {
    let (before, begin) = (control_plane.apiserver_cpu_time(), Instant::now());
    sleep(BEFORE).await;
    (control_plane.apiserver_cpu_time() - before).as_secs_f64() * 60.0 / begin.elapsed().as_secs_f64()
}

async fn all_in_sync(guard: &Guard, count: usize) -> Result<(), String> {
    at_least(&guard.metrics().await, "kubemoor_releases_guarded{reason=\"InSync\"}", count)
}

/// Waits until each release has its GuardedRelease and nothing more is written to them.
async fn all_written(guard: &Guard, count: usize) -> Result<(), String> {
    at_least(&guard.metrics().await, STATUSES, count)?;
    let written = metric(&guard.metrics().await, STATUSES);
    sleep(SETTLING).await;
    match metric(&guard.metrics().await, STATUSES) - written {
        0 => Ok(()),
        more => Err(format!("{more} more were written")),
    }
}

fn at_least(metrics: &str, series: &str, count: usize) -> Result<(), String> {
    match metric(metrics, series) {
        fewer if fewer < count => Err(format!("{series} {fewer}")),
        _ => Ok(()),
    }
}

/// The value of a metric; zero where it is not there yet.
pub(super) fn metric(metrics: &str, series: &str) -> usize {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.unwrap_or(0)
}

/// How often the guard asked for what, since the given number of audit events. A watch is told when it ends.
fn of_the_guard(control_plane: &ControlPlane, before: usize) -> BTreeMap<String, usize> {
    let mut requests = BTreeMap::new();
    for event in control_plane.audit_events(&[]).iter().skip(before) {
        if event["user"]["username"] == Identity::Guard.user() && event["stage"] == "ResponseComplete" {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (verb, resource) = (text(&event["verb"]), text(&event["objectRef"]["resource"]));
            let subresource = event["objectRef"]["subresource"].as_str();
            let resource = subresource.map_or(resource.clone(), |name| format!("{resource}/{name}"));
            *requests.entry(format!("{verb} {resource}")).or_default() += 1;
        }
    }
    requests
}

fn print_requests(what: &str, requests: &BTreeMap<String, usize>) {
    println!("  {what}: {}", requests.values().sum::<usize>());
    for (request, times) in requests {
        println!("    {times:>6} {request}");
    }
}

/// Prints what a look at every object by GET and by a dry run of an apply costs.
async fn poll(control_plane: &ControlPlane, admin: &Caller, releases: &[(String, String)], idle: f64) {
    let sample: Vec<(String, Value)> = releases
        .iter()
        .step_by((releases.len() * OBJECTS / SAMPLE).max(1))
        .flat_map(|(namespace, release)| {
            declared(release).map(|object| {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                let path = format!("{}/{name}", collection(&object, namespace));
                (path, sent(object, namespace, release))
            })
        })
        .collect();
    let (get, dry_run) = (
        cost(control_plane, idle, &sample, async |path, _| admin.get(path).await.done().map(drop)).await,
        cost(control_plane, idle, &sample, async |path, object| {
            let path = format!("{path}?dryRun=All&fieldManager=helm&force=true");
            admin.apply(&path, object).await.done().map(drop)
        })
        .await,
    );
    let all = (releases.len() * OBJECTS) as f64 * 60.0 / POLLED_EVERY.as_secs_f64();
    println!(
        "  polling instead ({} objects tried): {:.2} ms of the API server's CPU for a GET, {:.2} ms for a dry run;\n  \
         every object every {} minutes: {:.0} requests and {:.1} s of CPU a minute",
        sample.len(),
        get * 1000.0,
        dry_run * 1000.0,
        POLLED_EVERY.as_secs() / 60,
        all * 2.0,
        all * (get + dry_run)
    );
}

/// Seconds of the API server's CPU for one request, without what it takes by itself.
async fn cost(
    control_plane: &ControlPlane,
    idle: f64,
    sample: &[(String, Value)],
    ask: impl AsyncFn(&str, &Value) -> Result<(), String>,
) -> f64 {
    let (before, begin) = (control_plane.apiserver_cpu_time(), Instant::now());
    for (path, object) in sample {
        ask(path, object).await.unwrap();
    }
    let took = control_plane.apiserver_cpu_time() - before;
    (took.as_secs_f64() - idle * begin.elapsed().as_secs_f64() / 60.0) / sample.len() as f64
}

pub(super) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
