//! What a verdict costs the threads that answer, where one thing grows and all else stays.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::chart::GrowthLine;
use crate::verdict::client::BenchClient;
use crate::verdict::load::{self, VARIABLES, live, manifest, update, write_policies, write_release};
use crate::verdict::server::{BenchServer, GOVERNED, JUDGE};

/// Rounds; in each all points of a line have their turn. Their median counts.
const ROUNDS: usize = 9;

/// Reviews of one point in one round.
const REQUESTS: usize = 150;

/// Reviews before the first round.
const WARM_UP: usize = 300;

/// A guard and the review that it is asked.
struct Point {
    cause: u64,
    server: BenchServer,
    client: BenchClient,
    /// It holds what the guard reads.
    _folder: TempDir,
}

/// A line for each cause.
pub(crate) fn measure() -> Vec<GrowthLine> {
    vec![
        line("objects of the release", &[10, 40, 160, 640, 2560], objects),
        line("declared fields of the object", &[60, 120, 240, 480, 960, 1920], fields),
        line("kilobytes of the review", &[40, 80, 160, 320, 640, 1280], bytes),
        line("policies", &[25, 50, 100, 200, 400], policies),
        line("releases", &[10, 100, 1000, 10_000], releases),
    ]
}

fn line(
    cause: &'static str,
    sizes: &[u64],
    point: impl Fn(&Path, u64) -> (&'static str, String),
) -> GrowthLine {
    let start = |&size: &u64| {
        let folder = tempfile::tempdir().unwrap();
        let (role, review) = point(folder.path(), size);
        let server = BenchServer::start(folder.path(), role);
        let mut client = BenchClient::connect(&server, &review);
        let answer = client.ask();
        assert!(answer.contains(load::ALLOWED), "{cause}, {size}: {answer}");
        client.ask_times(WARM_UP);
        Point { cause: size, server, client, _folder: folder }
    };
    let mut points: Vec<Point> = sizes.iter().map(start).collect();
    let mut costs = vec![Vec::new(); points.len()];
    for _ in 0..ROUNDS {
        for (point, costs) in points.iter_mut().zip(&mut costs) {
            let Point { server, client, .. } = point;
            costs.push(server.cpu_of(|| client.ask_times(REQUESTS)).answering / REQUESTS as f64);
        }
    }
    let median = |costs: &mut Vec<f64>| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    };
    let points = points.iter().zip(&mut costs).map(|(point, costs)| (point.cause, median(costs)));
    GrowthLine { cause, cost: "CPU of a verdict in µs", points: points.collect() }
}

/// An annotation that nobody declares, on the Deployment of that manifest.
fn annotated(manifest: Value) -> String {
    let old = live("web", manifest);
    let mut new = old.clone();
    new["metadata"]["annotations"]["example.org/looked-at-by"] = json!("bob");
    update("web", &old, &new)
}

fn objects(folder: &Path, count: u64) -> (&'static str, String) {
    let config = |number: u64| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("config-{number}"), "namespace": "shop"},
               "data": {"setting": format!("value-{number}")}})
    };
    let objects: Vec<Value> = std::iter::once(manifest(VARIABLES)).chain((1..count).map(config)).collect();
    write_release(folder, "web", &objects);
    (JUDGE, annotated(manifest(VARIABLES)))
}

fn fields(folder: &Path, variables: u64) -> (&'static str, String) {
    let each = usize::try_from(variables / 3).unwrap();
    write_release(folder, "web", &[manifest(each)]);
    (JUDGE, annotated(manifest(each)))
}

/// The object grows by a field that nobody declares.
fn bytes(folder: &Path, kilobytes: u64) -> (&'static str, String) {
    write_release(folder, "web", &[manifest(VARIABLES)]);
    let mut old = live("web", manifest(VARIABLES));
    let missing = usize::try_from(kilobytes * 1000).unwrap().saturating_sub(update("web", &old, &old).len());
    let condition =
        json!({"type": "Noted", "status": "True", "message": "As it should be, said at some length."});
    // It stands in both objects of a review.
    let count = missing / 2 / (condition.to_string().len() + 1);
    old["status"]["conditions"] = json!(vec![condition; count]);
    let mut new = old.clone();
    new["metadata"]["annotations"]["example.org/looked-at-by"] = json!("bob");
    (JUDGE, update("web", &old, &new))
}

fn policies(folder: &Path, count: u64) -> (&'static str, String) {
    write_release(folder, "web", &[manifest(VARIABLES)]);
    write_policies(folder, usize::try_from(count).unwrap());
    (GOVERNED, annotated(manifest(VARIABLES)))
}

fn releases(folder: &Path, count: u64) -> (&'static str, String) {
    for number in 1..count {
        let mut other = manifest(1);
        other["metadata"]["name"] = json!(format!("other-{number}"));
        write_release(folder, &format!("other-{number}"), &[other]);
    }
    write_release(folder, "web", &[manifest(VARIABLES)]);
    (JUDGE, annotated(manifest(VARIABLES)))
}
