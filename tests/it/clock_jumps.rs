//! A clock that is set forward and back by hours under a running guard: what an exception allows ends and begins again
//! with it, and everything else goes on.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{
    Clock, Guard, RELEASE, Reply, SOON, Scene, charts, data_review, eventually, wait_until_recreated,
};

const FLAGS: [&str; 3] = ["--service=kubemoor-system/kubemoor", "--edits=Deny", "--drift=Repair"];

/// How far the time of a row may be from the guard's clock.
const NEAR: SignedDuration = SignedDuration::from_mins(5);

/// A declared value of a ConfigMap of [`charts::TWO`].
struct Declared {
    name: &'static str,
    field: &'static str,
    value: &'static str,
}

const LEVEL: Declared = Declared { name: "settings", field: "level", value: "info" };
const COLOR: Declared = Declared { name: "extra", field: "color", value: "blue" };

/// What a guard says to a change of a value.
async fn change(scene: &Scene, guard: &Guard, declared: &Declared, to: &str) -> Reply {
    let Declared { name, field, value: from } = declared;
    let [old, new] = [*from, to].map(|value| json!({*field: value}));
    guard.judge_behind(data_review((&scene.namespace, RELEASE), name, &old, &new)).await
}

/// When changes to this value were denied, as the ledger says.
fn denials(guard: &Guard, value: &str) -> Vec<Timestamp> {
    let rows = guard.rows(&["-A", "--verdict", "Deny", "--limit", "0"]);
    let rows = rows.into_iter().filter(|row| row.to_string().contains(value));
    rows.map(|row| row["time"].as_str().unwrap().parse::<Timestamp>().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn guard_keeps_judging_and_repairing_while_clock_jumps_by_hours() {
    let scene = Scene::own().install("clocks", charts::TWO).await;
    let clock = Clock::new();
    let guard = Guard::start_by(&clock, &scene.control_plane, &FLAGS).await;
    scene.wait_for_confirmed(2).await;
    let allow = ["allow", "configmap/settings", "--path", "/data/level", "--for", "2h", "--reason", "INC-1"];
    let allowed = scene.moor(&allow);
    assert_eq!(allowed.code, 0, "{allowed:?}");

    for (round, (minutes, is_open)) in
        [(0, true), (150, false), (-300, true), (0, true)].into_iter().enumerate()
    {
        clock.set(minutes);
        eventually("the exception ends and begins with the clock", SOON, || async {
            let reply = change(&scene, &guard, &LEVEL, "mine").await;
            if reply.code == 200 && reply.passes() == is_open { Ok(()) } else { Err(format!("{reply:?}")) }
        })
        .await;

        // Of this one no exception allows anything.
        let value = format!("round-{round}");
        eventually("a denial has the time of the clock", SOON, || async {
            let reply = change(&scene, &guard, &COLOR, &value).await;
            assert!(!reply.passes(), "{minutes}: {reply:?}");
            let meant = Timestamp::now() + SignedDuration::from_mins(minutes);
            let times = denials(&guard, &value);
            let is_near = |time: &Timestamp| time.duration_since(meant).abs() < NEAR;
            if times.iter().any(is_near) { Ok(()) } else { Err(format!("{times:?}")) }
        })
        .await;

        // Each of both twice, so that nothing is contested.
        let path = scene.config_map(["settings", "extra"][round % 2]);
        let old = scene.get(&path).await["metadata"]["uid"].clone();
        scene.control_plane.delete_unhindered(&path).await;
        wait_until_recreated(&scene.alice, &path, &old).await;
        assert!(guard.is_ready().await, "{minutes}: {}", guard.log());
        assert!(guard.metrics().await.contains("kubemoor_leading 1\n"), "{minutes}: {}", guard.log());
    }
}
