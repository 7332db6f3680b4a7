//! What a guard costs while 100,000 declared objects are missing, once that is reported: nothing of
//! it can be repaired, because the guard never saw the objects alive.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tokio::time::sleep;

use super::in_sync::{STATUSES, mebibytes, metric};
use super::objects::{OBJECTS, declared, manifest};
use crate::support::{Caller, ControlPlane, Guard, Identity, eventually, forged};

const RELEASES: usize = 10_000;
const NAMESPACES: usize = 200;

const SETTLING: Duration = Duration::from_secs(30);
const WATCHED: Duration = Duration::from_secs(60);

/// The most of a core that a guard at rest may take, in percent.
const CPU_BAR: f64 = 1.0;

/// Prints the costs of a guard to which all is reported.
pub(crate) async fn measure() {
    let control_plane = ControlPlane::start();
    control_plane.define_policies();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        namespaces.push(control_plane.namespace("releases").await);
    }
    let install = (0..RELEASES).map(|number| {
        let (admin, namespace) = (&admin, &namespaces[number % NAMESPACES]);
        async move {
            let release = format!("shop-{number:05}");
            let record = forged(namespace, &release, 1, "deployed", &manifest(&declared(&release)));
            let path = format!("/api/v1/namespaces/{namespace}/secrets");
            admin.post(&path, &serde_json::to_value(record).unwrap()).await.done().unwrap();
        }
    });
    futures::stream::iter(install).buffer_unordered(8).for_each(|()| async {}).await;
    println!("{RELEASES} releases of {OBJECTS} objects each, none of which exists:");

    let begin = Instant::now();
    let flags = ["--edits=Deny", "--drift=Repair", "--service=kubemoor-system/kubemoor"];
    let mut guard = Guard::start(&control_plane, &flags).await;
    let ready = begin.elapsed();
    eventually("all releases have drifted", Duration::from_secs(900), || all_drifted(&guard)).await;
    println!(
        "  ready after {:.1} s, all reported after {:.1} s, CPU of the guard until then {:.1} s",
        ready.as_secs_f64(),
        begin.elapsed().as_secs_f64(),
        guard.cpu_time().as_secs_f64()
    );
    eventually("all statuses are written", Duration::from_secs(1800), || all_written(&guard)).await;
    println!(
        "  all statuses written after {:.1} s, CPU of the guard until then {:.1} s",
        begin.elapsed().as_secs_f64(),
        guard.cpu_time().as_secs_f64()
    );
    let cpu = guard.cpu_time();
    sleep(WATCHED).await;
    let share = (guard.cpu_time() - cpu).as_secs_f64() * 100.0 / WATCHED.as_secs_f64();
    println!(
        "  CPU at rest {share:.2} % of a core (at most {CPU_BAR} %{}); resident memory {:.1} MiB, peak {:.1}",
        if share > CPU_BAR { ": missed" } else { "" },
        mebibytes(guard.resident_memory()),
        mebibytes(guard.peak_memory())
    );
    guard.terminate();
}

async fn all_drifted(guard: &Guard) -> Result<(), String> {
    match metric(&guard.metrics().await, "kubemoor_releases_guarded{reason=\"Drifted\"}") {
        RELEASES => Ok(()),
        fewer => Err(format!("{fewer} releases")),
    }
}

/// Waits until nothing more is written to the statuses of releases.
async fn all_written(guard: &Guard) -> Result<(), String> {
    let written = metric(&guard.metrics().await, STATUSES);
    sleep(SETTLING).await;
    match metric(&guard.metrics().await, STATUSES) - written {
        0 => Ok(()),
        more => Err(format!("{more} more were written")),
    }
}
