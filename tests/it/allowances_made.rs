//! Allowances as they are made: how many of a namespace count.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Policed, RELEASE, SOON, eventually};

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
";

/// As many as count in one namespace.
const MOST: usize = 250;

fn allowance(name: &str, object: &str, until: &str) -> Value {
    json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": name},
        "spec": {"object": {"kind": "ConfigMap", "name": object}, "paths": ["/data/level"], "until": until},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_fills_his_namespace_takes_room_from_nobody_else() {
    let crowded = Policed::install("crowded", SETTINGS).await;
    let quiet = Policed::install("quiet", SETTINGS).await;
    let allowances = crowded.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let until = (Timestamp::now() + SignedDuration::from_hours(1)).to_string();
    for number in 0..MOST {
        let other = allowance(&format!("n{number}"), &format!("other-{number}"), &until);
        crowded.alice.post(&allowances, &other).await.done().unwrap();
    }
    let settings = crowded.at("api/v1", "configmaps/settings");
    crowded.is_guarded(&settings).await;
    let edit = json!({"data": {"level": "debug"}});

    // One more counts for nothing, and that is said.
    crowded.alice.post(&allowances, &allowance("more", "settings", &until)).await.done().unwrap();
    eventually("the guard says that there are too many", SOON, || async {
        let words = format!("more than {MOST} open DriftAllowances in namespace {}", crowded.namespace);
        if crowded.log().contains(&words) { Ok(()) } else { Err(crowded.log()) }
    })
    .await;
    crowded.alice.merge(&settings, &edit).await.refused(RELEASE).unwrap();
    // So none is made.
    let full = format!("namespace {} has {MOST} open allowances", crowded.namespace);
    let asked = crowded.moor(&["allow", "configmap/settings", "--path", "/data/level", "--for", "1h"]);
    asked.fails(&[&full]);
    let request = json!({
        "metadata": {"annotations": {"kubemoor.dev/allow": "/data/level", "kubemoor.dev/allow-until": until}},
    });
    let answer = crowded.alice.merge(&settings, &request).await;
    let said = answer.to_string();
    answer.refused(RELEASE).unwrap();
    assert!(said.contains("NotMade") && said.contains(&full), "{said}");

    // Elsewhere there is room.
    let elsewhere = quiet.at("api/v1", "configmaps/settings");
    quiet.is_guarded(&elsewhere).await;
    let asked = quiet.moor(&["allow", "configmap/settings", "--path", "/data/level", "--for", "1h"]);
    assert_eq!(asked.code, 0, "{asked:?}");
    eventually("the other may edit", SOON, || async { quiet.alice.merge(&elsewhere, &edit).await.done() })
        .await;

    // When one goes, the one that waits counts.
    crowded.alice.delete(&format!("{allowances}/n7")).await.done().unwrap();
    eventually("it counts", SOON, || async { crowded.alice.merge(&settings, &edit).await.done() }).await;
}
