//! Server-side apply as the judge of the guard: random charts, random edits, and what Helm would change afterwards.
//!
//! `make oracle EDITS=50000 SEED=1` judges any number of edits. A disagreement is printed as a row for
//! `crates/kubemoor-declare/src/compare/drift.yaml`; its seed draws the same chart and the same edits again.

mod draw;
mod edits;
mod forecasts;
mod gadgets;
mod judge;
mod kinds;
mod meaning;
mod merges;
mod repairs;
mod replays;
mod reruns;
mod rules;
mod scene;
mod values;
mod workloads;

use std::process::Command;
use std::time::Instant;
use std::{env, fs};

use futures::StreamExt as _;
use serde_json::json;

use self::draw::Draw;
use self::forecasts::Forecasts;
use self::judge::VerdictTally;
use self::repairs::{BATCH, BYSTANDERS, Findings};
use self::replays::Replays;
use self::reruns::Agreement;
use self::scene::OracleScene;
use crate::helm_scene::HelmScene;
use crate::support::{Identity, folder};

/// Judged in every run of the tests.
const EDITS: usize = 1000;

/// The first of the charts of every run; each next one has the next seed.
const SEED: u64 = 1;

/// Releases that are edited, repaired and upgraded in every run of the tests.
const REPAIRS: u64 = 60;

/// Charts whose edited objects are forecast in every run of the tests.
const FORECASTS: u64 = 4;

/// Charts whose edits are recorded, replayed and made again in every run of the tests.
const REPLAYS: u64 = 2;

/// Charts whose edits are recorded under some policies and made again under others in every run of the tests.
const RERUNS: u64 = 10;

/// Upgrades by a client-side Helm in every run of the slow tests.
const MERGES: usize = 16;

/// Edits of one object.
const EACH: u64 = 14;

/// Releases at one time.
const RELEASES: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_refused_exactly_if_server_side_apply_reverts_them() {
    let (edits, seed) = (number("EDITS", EDITS), number("SEED", SEED));
    let is_asked = env::var_os("EDITS").is_some();
    let scene = OracleScene::start(&["--register", "--edits", "Deny"]).await;
    let mut tally = VerdictTally::default();
    let begun = Instant::now();
    let mut charts = futures::stream::iter(seed..)
        .map(|seed| {
            let scene = &scene;
            async move {
                let release = scene.install(seed, kinds::all()).await;
                let tally = scene.judge_release(&release, EACH).await;
                scene.remove(&release).await;
                (seed, tally)
            }
        })
        .buffered(RELEASES);
    while tally.judged() < edits {
        let (seed, of_chart) = charts.next().await.unwrap();
        if is_asked {
            report(seed, &of_chart, &tally, begun);
        }
        tally.add(of_chart);
    }
    drop(charts);
    assert!(
        !scene.guard.log().contains("failed to read the schemas"),
        "the guard judged by its built-in types"
    );
    let asked = scene.control_plane.audited("fieldManager=kubemoor-probe");
    let summary = format!("{}\n{asked} dry runs asked, {:?}", tally.summary(), begun.elapsed());
    if is_asked {
        show(&summary);
    }
    let rows: String = tally.disagreements.iter().take(40).map(|found| format!("{}\n", found.row)).collect();
    let said = |lines: &[String]| lines.iter().take(10).map(|line| format!("{line}\n")).collect::<String>();
    assert!(tally.disagreements.is_empty(), "{summary}\n{rows}");
    assert!(tally.helm_refused.is_empty(), "{summary}\n{}", said(&tally.helm_refused));
    assert!(tally.out_of_sync.is_empty(), "{summary}\n{}", said(&tally.out_of_sync));
    assert!(tally.unjudged.len() * 20 < tally.judged(), "{summary}\n{}", said(&tally.unjudged));
    assert!(tally.skewed.len() * 100 < tally.judged(), "{summary}\n{}", said(&tally.skewed));
}

#[tokio::test(flavor = "multi_thread")]
async fn repaired_objects_are_upgraded_as_if_nobody_had_edited_them() {
    let (releases, seed) = (number("REPAIRS", REPAIRS), number("SEED", SEED));
    let scene = OracleScene::start(&["--drift", "Repair"]).await;
    scene.install_bystanders(BYSTANDERS).await;
    let mut findings = Findings::default();
    let end = seed + releases;
    for first in (seed..end).step_by(usize::try_from(BATCH).unwrap()) {
        findings.add(scene.repair_releases(first..end.min(first + BATCH)).await);
    }
    let Findings { repaired, harmless, unjudged, failures } = findings;
    let summary = format!(
        "{repaired} repaired, {harmless} without drift, {unjudged} unjudged, {} failures",
        failures.len()
    );
    assert!(failures.is_empty(), "{summary}\n{}", failures.join("\n"));
    // A single seed may be any of them.
    assert!(releases < BATCH || repaired * 2 > harmless + unjudged, "{summary}");
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn client_side_merge_of_repeated_elements_is_never_refused() {
    let (merges, seed) = (number("MERGES", MERGES), number("SEED", SEED));
    let scene = HelmScene::shared("merges").await;
    let mut draw = Draw::new(seed, [0, 0, 6]);
    scene.install("merged", &merges::chart(&mut draw), json!({"server_side_apply": false})).await;
    scene.assert_refused("deployment/merged", r#"{"spec": {"replicas": 1}}"#).await;
    for number in 1..=merges {
        let options = json!({"server_side_apply": "false"});
        let upgraded =
            scene.helm.upgrade(&scene.namespace, "merged", &merges::chart(&mut draw), options).await;
        // Some patches Helm or the API server cannot make sense of; that is theirs.
        let said = upgraded.err().unwrap_or_default();
        assert!(!said.contains("denied the request"), "upgrade {number} of seed {seed}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn forecasts_are_exactly_the_conflicts_of_the_next_upgrade() {
    let (charts, seed) = (number("FORECASTS", FORECASTS), number("SEED", SEED));
    let scene = OracleScene::start(&["--drift", "Ignore"]).await;
    let mut findings = Forecasts::default();
    for seed in seed..seed + charts {
        let Forecasts { conflicting, clear, disagreements } = scene.forecast_release(seed).await;
        findings.conflicting += conflicting;
        findings.clear += clear;
        findings.disagreements.extend(disagreements);
    }
    let Forecasts { conflicting, clear, disagreements } = findings;
    let summary = format!("{conflicting} conflict, {clear} do not, {} disagreements", disagreements.len());
    assert!(disagreements.is_empty(), "{summary}\n{}", disagreements.join("\n"));
    assert!(conflicting > 0 && clear > 0, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn replay_under_deny_refuses_exactly_edits_that_deny_refuses() {
    let (charts, seed) = (number("REPLAYS", REPLAYS), number("SEED", SEED));
    let mut scene = OracleScene::start(&["--register", "--edits", "Warn"]).await;
    // Dry runs settle doubts under each mode.
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml"]).await;
    let begun = jiff::Timestamp::now().to_string();
    let (mut recorded, mut releases) = (Vec::new(), Vec::new());
    for seed in seed..seed + charts {
        let release = scene.install(seed, kinds::all()).await;
        scene.set_strict(&release, true).await;
        scene.wait_until_guarded(&release).await;
        scene.set_strict(&release, false).await;
        let mut edits = scene.record_release(&release, EACH).await;
        scene.set_strict(&release, true).await;
        scene.try_again(&mut edits).await;
        scene.set_strict(&release, false).await;
        recorded.extend(edits);
        releases.push(release);
    }
    // If one went earlier, the guard might ask for fewer kinds just when the next one is edited.
    for release in &releases {
        scene.remove(release).await;
    }
    // It writes what is left.
    assert!(scene.guard.terminate().success());
    let rows = replays::rows(scene.guard.ledger()).await;
    let Replays { refused, passed, unreplayable, disagreements } = replays::compare(&recorded, &rows);
    let summary = format!(
        "{refused} refused, {passed} passed, {} not replayable, {} disagreements",
        unreplayable.len(),
        disagreements.len()
    );
    if env::var_os("REPLAYS").is_some() {
        show(&summary);
    }
    assert!(disagreements.is_empty(), "{summary}\n{}", disagreements.join("\n"));
    assert!(refused > 100 && passed > 100, "{summary}");
    assert!(unreplayable.len() * 20 < refused, "{summary}\n{}", unreplayable.join("\n"));

    let policies = folder("strict");
    let policy = "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {name: strict}\nspec: {edits: Deny}\n";
    fs::write(policies.join("strict.yaml"), policy).unwrap();
    let told = Command::new(env!("CARGO_BIN_EXE_kubemoor"))
        .args(["policy", "replay", policies.to_str().unwrap(), "-A", "-o", "json", "--since", &begun])
        .arg(scene.guard.database())
        .output()
        .unwrap();
    let told: (Option<i32>, serde_json::Value) =
        (told.status.code(), serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{told:?}")));
    assert_eq!(told.0, Some(1), "{}", told.1);
    // Equal rows within a second are one edit, as if the API server had asked again.
    let counted = ["refused", "repeats"].map(|count| told.1[count].as_u64().unwrap());
    assert!(counted.iter().sum::<u64>() >= refused as u64, "{summary}\n{}", told.1);
    let changes = told.1["changes"].as_array().unwrap();
    assert!(changes.iter().all(|change| change["user"] != Identity::Deployer.user()), "{}", told.1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn replay_by_other_policies_names_verdicts_and_fields_of_same_edits() {
    let (charts, seed) = (number("RERUNS", RERUNS), number("SEED", SEED));
    show(&format!("seeds {seed} to {}: SEED and RERUNS choose others", seed + charts - 1));
    let mut scene = OracleScene::start(&["--register", "--edits", "Deny"]).await;
    // Dry runs settle doubts under each mode.
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml"]).await;
    let mut cases = Vec::new();
    for seed in seed..seed + charts {
        cases.push(scene.run_case(seed).await);
    }
    // It writes what is left.
    assert!(scene.guard.terminate().success());
    let rows = replays::rows(scene.guard.ledger()).await;
    let mut all = Agreement::default();
    for case in &cases {
        let Agreement { refused, passed, compared, unreplayable, disagreements } =
            reruns::compare(case, &rows);
        let unknown = unreplayable.len();
        show(&format!("seed {}: {refused} refused, {passed} passed, {unknown} not replayable", case.seed));
        (all.refused, all.passed) = (all.refused + refused, all.passed + passed);
        all.compared += compared;
        all.unreplayable.extend(unreplayable);
        all.disagreements.extend(disagreements);
    }
    let Agreement { refused, passed, compared, unreplayable, disagreements } = all;
    let summary = format!(
        "{refused} refused, {passed} passed, fields of {compared} compared, {} not replayable, {} disagreements",
        unreplayable.len(),
        disagreements.len()
    );
    show(&summary);
    assert!(disagreements.is_empty(), "{summary}\n{}", disagreements.join("\n"));
    // Few cases of chosen seeds may all be alike.
    if env::var_os("RERUNS").is_none() {
        assert!(refused > 0 && passed > 0 && compared > 0, "{summary}");
    }
    assert!(unreplayable.len() * 2 < refused + passed, "{summary}\n{}", unreplayable.join("\n"));
}

/// A number of the environment.
fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str, otherwise: T) -> T {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// What a chart has shown, as soon as that is known.
fn report(seed: u64, of_chart: &VerdictTally, before: &VerdictTally, begun: Instant) {
    for found in &of_chart.disagreements {
        show(&found.row);
    }
    for line in of_chart
        .helm_refused
        .iter()
        .chain(&of_chart.out_of_sync)
        .chain(&of_chart.unjudged)
        .chain(&of_chart.skewed)
    {
        show(&format!("# {line}"));
    }
    show(&format!(
        "# seed {seed}: {} edits, {} in all, {} disagreements, {:.0?}",
        of_chart.judged(),
        before.judged() + of_chart.judged(),
        before.disagreements.len() + of_chart.disagreements.len(),
        begun.elapsed(),
    ));
}

#[expect(clippy::print_stderr, reason = "it belongs to the test's own output")]
fn show(text: &str) {
    eprintln!("{text}");
}
