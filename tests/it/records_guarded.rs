//! Helm's records are guarded by one rule: no manifest of an existing record changes, the last deployed one stays, and
//! name, labels and payload agree once they did. All else passes.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Scene, charts, encoded, forged, opened, record_name, refusal, sealed};

/// A change of one record, tried as a dry run.
type Change = fn(&mut Secret);

async fn shop(prefix: &str) -> Scene {
    let shop = Scene::shared().install(prefix, charts::IMAGE_AND_COLOR).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    shop
}

async fn rewrite(shop: &Scene, change: Change) -> kube::Result<Secret> {
    let name = record_name("shop", 1);
    let secrets = shop.secrets().await;
    let mut record = secrets.get(&name).await.unwrap();
    change(&mut record);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    secrets.replace(&name, &dry_run, &record).await
}

fn hold(record: &mut Secret, payload: Vec<u8>) {
    record.data = Some(BTreeMap::from([("release".to_owned(), ByteString(payload))]));
}

fn reword(record: &mut Secret, change: impl FnOnce(&mut Value)) {
    let mut content = opened(record);
    change(&mut content);
    hold(record, sealed(&content));
}

fn label(record: &mut Secret, name: &str, value: &str) {
    record.metadata.labels.as_mut().unwrap().insert(name.to_owned(), value.to_owned());
}

async fn create(shop: &Scene, record: &Secret) -> kube::Result<Secret> {
    shop.secrets().await.create(&PostParams::default(), record).await
}

async fn delete(shop: &Scene, revision: u32) -> kube::Result<()> {
    shop.secrets().await.delete(&record_name("shop", revision), &DeleteParams::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn changing_the_manifest_of_an_existing_record_is_refused() {
    let shop = shop("record-manifest").await;
    let changed = rewrite(&shop, |record| {
        reword(record, |content| {
            let manifest = content["manifest"].as_str().unwrap().replace("image: 'a'", "image: 'b'");
            assert_ne!(content["manifest"], json!(manifest));
            content["manifest"] = json!(manifest);
        });
    });
    let message = refusal(changed.await).unwrap();
    assert!(message.contains("manifest of an existing revision"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_that_makes_record_inconsistent_is_refused() {
    let shop = shop("record-disagrees").await;
    let check = async |what: &str, change: Change| {
        let message = refusal(rewrite(&shop, change).await).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(message.contains("would no longer agree"), "{what}: {message}");
    };
    check("the label status", |record| label(record, "status", "superseded")).await;
    check("the label version", |record| label(record, "version", "7")).await;
    check("the label name", |record| label(record, "name", "web")).await;
    check("the label owner", |record| label(record, "owner", "me")).await;
    check("no labels at all", |record| record.metadata.labels = None).await;
    let reworded: [(&str, Change); 3] = [
        ("the payload's status", |record| {
            reword(record, |content| content["info"]["status"] = json!("failed"));
        }),
        ("the payload's revision", |record| reword(record, |content| content["version"] = json!(7))),
        ("the payload's name", |record| reword(record, |content| content["name"] = json!("web"))),
    ];
    for (what, change) in reworded {
        check(what, change).await;
    }
    check("a payload that is none", |record| hold(record, b"nothing".to_vec())).await;
    check("no payload", |record| record.data = None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_last_deployed_record_is_refused() {
    let shop = shop("record-last").await;
    let message = refusal(delete(&shop, 1).await).unwrap();
    assert!(message.contains("would remove the last deployed revision"), "{message}");
    // Also while an operation is under way, and when records are deleted in one go.
    create(&shop, &forged(&shop.namespace, "shop", 2, "pending-upgrade", "")).await.unwrap();
    refusal(delete(&shop, 1).await).unwrap();
    let all = shop.secrets().await.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    refusal(all).unwrap();
    shop.secrets().await.get(&record_name("shop", 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_a_record_again_as_it_says_passes() {
    let shop = shop("record-rewritten").await;
    rewrite(&shop, |_| ()).await.unwrap();
    rewrite(&shop, |record| {
        record.metadata.annotations = Some([("example.org/restored".to_owned(), "yes".to_owned())].into());
    })
    .await
    .unwrap();
    // Other bytes, the same words.
    rewrite(&shop, |record| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
        gzip.write_all(opened(record).to_string().as_bytes()).unwrap();
        let payload = encoded(&gzip.finish().unwrap());
        assert_ne!(record.data.as_ref().unwrap()["release"].0, payload);
        hold(record, payload);
    })
    .await
    .unwrap();
    // As Helm itself does when a revision is superseded.
    rewrite(&shop, |record| {
        label(record, "status", "superseded");
        reword(record, |content| content["info"]["status"] = json!("superseded"));
    })
    .await
    .unwrap();
}
