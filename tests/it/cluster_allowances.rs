//! DriftAllowances as the guard follows them on a real API server: their ends are told when they come, and what
//! Kubemoor made is cleared away.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubemoor::client::allowances::{Kept, MakeError, Wish, resource};
use kubemoor::client::connection::connect;
use kubemoor::client::lease::Leadership;
use kubemoor::mirror::allowances::Allowances;
use kubemoor::mirror::kinds::Kinds;
use kubemoor::mirror::progress::Progress;
use kubemoor::model::{Actor, ObjectId, ReleaseId};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Caller, ControlPlane, Identity, SOON, eventually};

fn deployment(namespace: &str) -> ObjectId {
    ObjectId {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: "web".to_owned(),
    }
}

fn allowance(name: &str, until: Timestamp, labels: Value) -> Value {
    json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": name, "labels": labels},
        "spec": {"object": {"group": "apps", "kind": "Deployment", "name": "web"}, "paths": ["/spec/replicas"],
                 "until": until.to_string()},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn exception_end_is_reported_and_guards_old_exceptions_are_deleted() {
    // The definitions come late, and nobody else may have them already.
    let control_plane = ControlPlane::start();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let namespace = control_plane.namespace("granted").await;
    let client = connect(Some(&control_plane.kubeconfig(Identity::Admin))).await.unwrap().client;
    let kinds = Kinds::read(client.clone()).await.unwrap();
    let stop = CancellationToken::new();
    let (following, stopping) = (Arc::clone(&kinds), stop.clone());
    let kinds_task = tokio::spawn(async move { following.run(stopping).await });
    let allowances = Allowances::new(
        client.clone(),
        Arc::clone(&kinds),
        vec![namespace.clone()],
        Some(Leadership::alone()),
    );
    let changes = allowances.changes();
    let (following, stopping) = (Arc::clone(&allowances), stop.clone());
    let task = tokio::spawn(async move { following.run(stopping).await });
    let mut progress = allowances.progress();
    tokio::time::timeout(SOON, progress.wait_for(|it| *it == Progress::Listed)).await.unwrap().unwrap();

    let web = deployment(&namespace);
    let release = ReleaseId { namespace: namespace.clone(), name: "shop".to_owned() };
    let other = ReleaseId { namespace: "other".to_owned(), name: "shop".to_owned() };
    let alice = Actor { user: "alice".to_owned(), ..Actor::default() };
    let wish = |seconds: i64| {
        let until = Timestamp::now() + SignedDuration::from_secs(seconds);
        resource(&Wish {
            object: &web,
            namespace: &namespace,
            paths: vec!["/spec/replicas".to_owned()],
            until: Timestamp::from_second(until.as_second()).unwrap(),
            reason: None,
            by: Some(&alice),
        })
    };
    assert_eq!(allowances.make(&wish(3600), SOON).await.unwrap_err(), MakeError::NotDefined);

    control_plane.define_policies();
    let short = wish(4);
    let made = eventually("the definition is served", SOON, || allowances.make(&short, SOON)).await;
    assert!(matches!(made, Kept::Made(_)), "{made:?}");
    // It counts at once, before the watch has told of it, and told of once it ends.
    assert_eq!(allowances.of(&web, &release).len(), 1);
    assert_eq!(
        allowances.of(&web, &other).len(),
        1,
        "an object in the allowance's namespace is any release's"
    );
    assert!(matches!(allowances.make(&short, SOON).await.unwrap(), Kept::There(_)));
    assert_eq!(tokio::time::timeout(SOON, changes.next()).await.unwrap(), web);
    let until = made.resource().spec.until.parse::<Timestamp>().unwrap();
    eventually("its end is told", SOON, || async {
        tokio::time::timeout(Duration::from_millis(100), changes.next()).await.is_ok()
            && Timestamp::now() >= until
    })
    .await;
    assert!(Timestamp::now() < until + SignedDuration::from_secs(2), "it was told late");
    assert!(allowances.of(&web, &release).is_empty());

    // What others make is found by the watch, counts, and is theirs to clear away.
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/driftallowances");
    let hour = Timestamp::now() + SignedDuration::from_hours(1);
    admin.post(&path, &allowance("theirs", hour, json!({}))).await.done().unwrap();
    eventually("the watch finds it", SOON, || std::future::ready(allowances.of(&web, &release).len() == 1))
        .await;
    admin.delete(&format!("{path}/theirs")).await.done().unwrap();
    eventually("it ends with it", SOON, || std::future::ready(allowances.of(&web, &release).is_empty()))
        .await;
    let long_ago = Timestamp::now() - SignedDuration::from_hours(24 * 30);
    admin.post(&path, &allowance("theirs-old", long_ago, json!({}))).await.done().unwrap();
    let ours = json!({"app.kubernetes.io/managed-by": "kubemoor"});
    admin.post(&path, &allowance("ours-old", long_ago, ours)).await.done().unwrap();
    eventually("ours is cleared away", SOON, || async {
        admin.get(&format!("{path}/ours-old")).await.code == 404
    })
    .await;
    assert_eq!(admin.get(&format!("{path}/theirs-old")).await.code, 200);

    // A guard that writes nothing makes none.
    let silent = Allowances::new(client, kinds, Vec::new(), None);
    assert_eq!(silent.make(&wish(3600), SOON).await.unwrap_err(), MakeError::ReadOnly);
    stop.cancel();
    task.await.unwrap();
    kinds_task.await.unwrap();
}
