//! Allowances as they are made: who asked for them, and how many of a namespace count.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Identity, POLICED, RELEASE, SOON, Scene, charts, eventually, moor};

/// As many as count in one namespace.
const MOST: usize = 250;

fn allowance(name: &str, object: &str, until: &str) -> Value {
    json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": name},
        "spec": {"object": {"kind": "ConfigMap", "name": object}, "paths": ["/data/level"], "until": until},
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn full_exception_limit_in_one_namespace_does_not_affect_others() {
    let crowded = Scene::policed().install("crowded", charts::SETTINGS).await;
    let quiet = Scene::policed().install("quiet", charts::SETTINGS).await;
    let allowances = crowded.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let until = (Timestamp::now() + SignedDuration::from_hours(1)).to_string();
    for number in 0..MOST {
        let other = allowance(&format!("n{number}"), &format!("other-{number}"), &until);
        crowded.alice.post(&allowances, &other).await.done().unwrap();
    }
    let settings = crowded.config_map("settings");
    crowded.wait_until_guarded(&settings).await;
    let edit = json!({"data": {"level": "debug"}});

    // One more counts for nothing, and that is said.
    crowded.alice.post(&allowances, &allowance("more", "settings", &until)).await.done().unwrap();
    eventually("the guard says that there are too many", SOON, || async {
        let words = format!("namespace {} has more than {MOST} open DriftAllowances", crowded.namespace);
        if crowded.log().contains(&words) { Ok(()) } else { Err(crowded.log()) }
    })
    .await;
    crowded.alice.merge(&settings, &edit).await.refused(RELEASE).unwrap();
    // So none is made.
    let full = format!("namespace {} has {MOST} open allowances", crowded.namespace);
    let asked = crowded.moor(&["allow", "configmap/settings", "--path", "/data/level", "--for", "1h"]);
    asked.assert_failed(&[&full]);
    let request = json!({
        "metadata": {"annotations": {"kubemoor.dev/allow": "/data/level", "kubemoor.dev/allow-until": until}},
    });
    let answer = crowded.alice.merge(&settings, &request).await;
    let said = answer.to_string();
    answer.refused(RELEASE).unwrap();
    assert!(said.contains("NotMade") && said.contains(&full), "{said}");

    // Elsewhere there is room.
    let elsewhere = quiet.config_map("settings");
    quiet.wait_until_guarded(&elsewhere).await;
    let asked = quiet.moor(&["allow", "configmap/settings", "--path", "/data/level", "--for", "1h"]);
    assert_eq!(asked.code, 0, "{asked:?}");
    eventually("the other may edit", SOON, || async { quiet.alice.merge(&elsewhere, &edit).await.done() })
        .await;

    // When one goes, the one that waits counts once it changes, or is listed again within minutes.
    crowded.alice.delete(&format!("{allowances}/n7")).await.done().unwrap();
    crowded
        .edit(&format!("{allowances}/more"), json!({"metadata": {"annotations": {"note": "again"}}}))
        .await;
    eventually("it counts", SOON, || async { crowded.alice.merge(&settings, &edit).await.done() }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn exception_made_by_command_names_its_requester_where_known() {
    let shop = Scene::policed().install("asking", charts::SETTINGS).await;
    let allowances = shop.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let path = ["allow", "configmap/settings", "--path", "/data/level", "--for", "1h"];
    let users = || async {
        let listed = shop.get(&allowances).await;
        let user = |item: &Value| item["spec"]["requestedBy"]["user"].as_str().map(str::to_owned);
        let mut users: Vec<_> = listed["items"].as_array().unwrap().iter().map(user).collect();
        users.sort();
        users
    };
    let as_carol = ["--as=carol", "--as-group=system:masters"];
    let asked = shop.moor(&[&path[..], &as_carol].concat());
    assert_eq!(asked.code, 0, "{asked:?}");
    assert_eq!(users().await, [Some("carol".to_owned())]);

    // Who may not ask the API server who he is, is named by the refusal.
    let namespace = format!("-n={}", shop.namespace);
    let asked = moor(POLICED.control_plane(), Identity::Guard, &[&path[..], &[&namespace]].concat());
    assert_eq!(asked.code, 0, "{asked:?}");
    let guard = Some(Identity::Guard.user().to_owned());
    assert_eq!(users().await, [Some("carol".to_owned()), guard]);

    // Of whoever has every right there is nothing to go by before Kubernetes 1.26.
    let asked = shop.moor(&path);
    assert_eq!(asked.code, 0, "{asked:?}");
    let users = users().await;
    assert_eq!(users.len(), 3);
    assert!(users.contains(&None) || users.contains(&Some("alice".to_owned())), "{users:?}");
}
