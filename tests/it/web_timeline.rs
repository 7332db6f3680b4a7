//! What happened to a release, on its page: the events about it, with the rows of the ledger.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Identity, Member, Page, RELEASE, RbacRule, Scene, charts};

/// The texts of the line of time, the first one first.
fn moments(page: &str) -> Vec<String> {
    let (_, line) = page.split_once("<ol class=\"timeline\">").unwrap_or_else(|| panic!("{page}"));
    let (line, _) = line.split_once("</ol>").unwrap();
    let text = |moment: &str| {
        let texts = moment.split('<').filter_map(|part| Some(part.split_once('>')?.1));
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" | ")
    };
    line.split("<li>").skip(1).map(text).collect()
}

/// Makes three events about the release, and one about another.
async fn make_events(scene: &Scene) {
    let now = Timestamp::now();
    let ago = |minutes: i64| now - SignedDuration::from_mins(minutes);
    let second = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let micro = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let make = async |name: &str, of: &str, more: Value| {
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": scene.namespace},
            "involvedObject": {
                "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease", "name": of,
                "namespace": scene.namespace,
            },
        });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        scene.admin.post(&scene.core("events"), &event).await.done().unwrap();
    };
    make(
        "old",
        RELEASE,
        json!({
            "type": "Normal", "reason": "Restored", "message": "ConfigMap/settings has its values again",
            "lastTimestamp": second(ago(50)),
        }),
    )
    .await;
    make(
        "often",
        RELEASE,
        json!({
            "type": "Warning", "reason": "Drifted", "message": "ConfigMap/settings drifts",
            "firstTimestamp": second(ago(60)), "lastTimestamp": second(ago(10)),
        }),
    )
    .await;
    // As the newer API makes them.
    make(
        "new",
        RELEASE,
        json!({
            "type": "Warning", "reason": "Failed", "message": "the repair failed", "action": "Repair",
            "eventTime": micro(ago(5)), "reportingComponent": "kubemoor", "reportingInstance": "kubemoor-0",
        }),
    )
    .await;
    make("other", "bank", json!({
        "type": "Warning", "reason": "Drifted", "message": "another release drifts", "lastTimestamp": second(ago(1)),
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn events_of_a_release_stand_in_its_line_of_time() {
    let scene = Scene::own().install("timeline", charts::SETTINGS).await;
    make_events(&scene).await;
    let release = format!("release?namespace={}&name={RELEASE}", scene.namespace);
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let text = page.text(&release).await;
    assert_eq!(
        moments(&text),
        [
            "5 min ago | Failed | the repair failed",
            "10 min ago | Drifted | ConfigMap/settings drifts",
            "50 min ago | Restored | ConfigMap/settings has its values again",
        ]
    );
    assert!(text.contains("badge bad\">Failed") && text.contains("badge\">Restored"), "{text}");

    // Whoever may not list events is told so, and sees the rest.
    let member = Member::new(&scene.control_plane).await;
    let rights = ["get,list,watch guardedreleases.kubemoor.dev", "get,list secrets", "get,list configmaps"];
    member.may(&rights.map(RbacRule::parse), None).await;
    let page = Page::of(&member.kubeconfig, &[]).await;
    let text = page.text(&release).await;
    assert!(text.contains("cannot list the events") && text.contains("ConfigMap/settings"), "{text}");
    assert!(!text.contains("the repair failed"), "{text}");
}
