//! Reviews that come while the guard still reads the records of the first listing.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::{Guard, Identity, LaggingWatch, SOON, Scene, charts, data_review, eventually, forged};

/// Write one record at the same time, so that it hardly ever stays as it was read.
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn guard_is_not_ready_and_answers_with_an_error_until_all_records_are_read() {
    const RECORD: &str = "GET /secrets/sh.helm.release.v1.shop.v1";
    let scene = Scene::own().install("early", charts::WORKLOAD).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    proxy.stall(&[RECORD]);
    let mut guard = Guard::begin_through(&scene.control_plane, proxy.kubeconfig(), &["--edits=Deny"]).await;
    eventually("the record is asked for", SOON, || async { proxy.stalled(RECORD) > 0 }).await;
    assert!(!guard.is_ready().await);
    let [old, new] = ["info", "mine"].map(|level| json!({"level": level}));
    let review = data_review((&scene.namespace, "shop"), "settings", &old, &new);
    let answer = guard.judge(review.clone()).await;
    assert_eq!(answer.code, 500, "{answer:?}");
    assert!(answer.body.to_string().contains("does not know all releases yet"), "{answer:?}");

    proxy.stall(&[]);
    guard.ready().await;
    let answer = guard.judge(review).await;
    assert!(!answer.passes(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_record_that_is_written_all_the_time_does_not_delay_the_others() {
    let scene = Scene::own().install("early", charts::WORKLOAD).await;
    let busy = scene.control_plane.namespace("busy").await;
    let secrets = Api::<Secret>::namespaced(scene.control_plane.client(Identity::Admin).await, &busy);
    let record = forged(&busy, "busy", 1, "deployed", "");
    let name = record.metadata.name.clone().unwrap();
    secrets.create(&PostParams::default(), &record).await.unwrap();
    let write = async |writer: usize| {
        for number in 0u64.. {
            let patch =
                json!({"metadata": {"annotations": {format!("writer-{writer}"): number.to_string()}}});
            secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
    };
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    proxy.slow("GET /secrets/sh.helm.release.v1.busy");
    let all_read = async {
        let guard = Guard::begin_through(&scene.control_plane, proxy.kubeconfig(), &["--edits=Deny"]).await;
        let is_whole = async || guard.report().await.is_ok_and(|report| report.contains("[+]records ok"));
        eventually("all records are read", SOON, is_whole).await;
    };
    tokio::select! {
        _ = join_all((0..WRITERS).map(write)) => {}
        () = all_read => {}
    }
}
