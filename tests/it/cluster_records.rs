//! Helm's records as the index meets them on a real API server: forged, growing, pruned, in ConfigMaps.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_runtime::config::RecordDriver;
use serde_json::{Value, json};

use crate::cluster_releases::{CONFIG_MAP, Watched, config_map, release_id, settings};
use crate::support::{
    Caller, Chart, ControlPlane, Helm, Identity, SOON, encoded, eventually, forged, holding, unguarded,
};

/// Replaces what a record holds, and labels it with `status`.
async fn tamper(secrets: &Api<Secret>, name: &str, status: &str, release: &str) {
    let patch = json!({"metadata": {"labels": {"status": status}}, "stringData": {"release": release}});
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Creates a Secret that looks like a record.
async fn forge(secrets: &Api<Secret>, name: &str, labels: Value, release: &[u8]) {
    let secret = json!({
        "metadata": {"name": name, "labels": labels}, "type": "helm.sh/release.v1",
        "stringData": {"release": String::from_utf8(release.to_vec()).unwrap()},
    });
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

fn labels(name: &str, version: &str, status: &str) -> Value {
    json!({"owner": "helm", "name": name, "version": version, "status": status})
}

/// Forges records whose name, labels and payload contradict each other, beside one that does not decode.
async fn assert_contradictions_are_noticed(watched: &Watched, secrets: &Api<Secret>, payload: &[u8]) {
    let web = release_id(secrets.namespace().unwrap(), "web");
    forge(secrets, "sh.helm.release.v1.web.v3", labels("web", "3", "pending-upgrade"), payload).await;
    eventually("a payload of another revision is noticed", SOON, || async {
        watched.release(&web)?.invalid.clone().filter(|invalid| invalid.secret.ends_with(".v3"))
    })
    .await;
    forge(secrets, "sh.helm.release.v1.web.v4", labels("web", "9", "deployed"), payload).await;
    eventually("labels that contradict the name are noticed", SOON, || async {
        watched.release(&web)?.invalid.clone().filter(|invalid| invalid.secret.ends_with(".v4"))
    })
    .await;
    forge(secrets, "some-secret", json!({"owner": "helm"}), b"x").await;
    forge(secrets, "sh.helm.release.v1.web.v5", labels("another", "5", "deployed"), payload).await;
    forge(secrets, "sh.helm.release.v1.empty.v1", labels("empty", "1", "deployed"), b"").await;
    eventually("what is no record at all is counted", SOON, || async {
        watched.counted("kubemoor_records_undecodable_total{reason=\"disagrees\"}") == 4
    })
    .await;
    assert_eq!(watched.counted("kubemoor_records_undecodable_total{reason=\"encoding\"}"), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn invalid_record_affects_only_its_own_release() {
    // Of its own: commands that read all namespaces would report the record.
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("forged").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let values = json!({"values": {"color": "red"}});
    helm.install(&namespace, "web", &settings("web"), values.clone()).await.unwrap();
    let chart = Chart::new("db").template("db.yaml", &CONFIG_MAP.replace("settings", "db"));
    helm.install(&namespace, "db", &chart, values).await.unwrap();
    let watched = Watched::of(&control_plane, &namespace).await;
    let (web, db) = (release_id(&namespace, "web"), release_id(&namespace, "db"));
    let secrets: Api<Secret> = Api::namespaced(watched.connection.client.clone(), &namespace);
    let good = secrets.get("sh.helm.release.v1.web.v1").await.unwrap();

    let payload = &good.data.as_ref().unwrap()["release"].0;
    forge(&secrets, "sh.helm.release.v1.web.v2", labels("web", "2", "deployed"), b"no base64!").await;
    let invalid = async |what: &str| {
        eventually(what, SOON, || async {
            let release = watched.release(&web)?;
            (release.latest.revision > 1).then_some(())?;
            release.invalid.clone()
        })
        .await
    };
    let reason = invalid("a latest record that does not decode is noticed").await;
    assert_eq!(reason.secret, "sh.helm.release.v1.web.v2");
    assert_eq!(watched.state(&web), Some((1, ReleaseStatus::Deployed)), "the last good record stays");
    assert!(watched.declares(&config_map(&namespace, "settings")));

    // A guard that starts now has seen no good record before.
    let restarted = Watched::of(&control_plane, &namespace).await;
    assert_eq!(restarted.state(&web), Some((1, ReleaseStatus::Deployed)));
    assert!(restarted.release(&web).unwrap().invalid.is_some());
    assert!(restarted.declares(&config_map(&namespace, "settings")));

    assert_contradictions_are_noticed(&watched, &secrets, payload).await;
    assert_eq!(watched.state(&db), Some((1, ReleaseStatus::Deployed)));
    assert_eq!(watched.release(&db).unwrap().invalid, None);

    let forged = ListParams::default().labels("name=web,version!=1");
    secrets.delete_collection(&DeleteParams::default(), &forged).await.unwrap();
    eventually("the release is good again", SOON, || async {
        watched.release(&web).is_some_and(|release| release.invalid.is_none())
    })
    .await;
    tamper(&secrets, "sh.helm.release.v1.web.v1", "deployed", "{}").await;
    eventually("a tampered record is noticed", SOON, || async { watched.release(&web)?.invalid.clone() })
        .await;
    assert!(watched.declares(&config_map(&namespace, "settings")), "what it said before stays");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_record_that_grows_without_end_is_left_alone() {
    // Of its own: commands that read all namespaces would report the record.
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("bomb").await;
    let watched = Watched::of(&control_plane, &namespace).await;
    let secrets: Api<Secret> = Api::namespaced(watched.connection.client.clone(), &namespace);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let megabyte = vec![b' '; 1 << 20];
    for _ in 0..100 {
        std::io::Write::write_all(&mut gzip, &megabyte).unwrap();
    }
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, gzip.finish().unwrap());
    let secret = json!({
        "metadata": {"name": "sh.helm.release.v1.bomb.v1", "labels":
            {"owner": "helm", "name": "bomb", "version": "1", "status": "deployed"}},
        "stringData": {"release": text},
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    // A debug build decodes it slowly.
    eventually("the record is counted as too large", SOON * 3, || async {
        watched.counted("kubemoor_records_undecodable_total{reason=\"too_large\"}") == 1
    })
    .await;
    let release = watched.release(&release_id(&namespace, "bomb")).unwrap();
    assert!(release.objects.is_empty() && release.invalid.is_some());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn pruning_old_revisions_reads_nothing_again() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("pruning").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let values = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "web", &settings("web"), values("red")).await.unwrap();
    for color in ["blue", "green"] {
        helm.upgrade(&namespace, "web", &settings("web"), values(color)).await.unwrap();
    }
    let watched = Watched::of(&control_plane, &namespace).await;
    let secrets: Api<Secret> = Api::namespaced(watched.connection.client.clone(), &namespace);
    let reads = || {
        let events = control_plane.audit_events(&["\"verb\":\"get\"", "secrets"]);
        let reads = |event: &&serde_json::Value| {
            event["verb"] == "get"
                && event["objectRef"]["resource"] == "secrets"
                && event["user"]["username"] == "admin"
        };
        events.iter().filter(reads).count()
    };
    eventually("the reading of the latest record is in the audit log", SOON, || async { reads() == 1 }).await;
    secrets.delete("sh.helm.release.v1.web.v1", &DeleteParams::default()).await.unwrap();
    secrets.delete("sh.helm.release.v1.web.v2", &DeleteParams::default()).await.unwrap();
    eventually("the old records are gone", SOON, || async { watched.releases.count() == (1, 1) }).await;
    assert_eq!(watched.releases.fresh(&release_id(&namespace, "web"), SOON).await, Ok(false));
    assert_eq!(reads(), 1);
}

/// Puts records of 60 releases: every fifth of 800 KB, one that does not decode, one of an upgrade that failed, and two of
/// one release that claim to be in force.
async fn put_many(admin: &Caller, namespace: &str) {
    let put = async |record: Secret| {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        admin.post(&path, &serde_json::to_value(record).unwrap()).await.done().unwrap();
    };
    let manifest = |name: &str| CONFIG_MAP.replace("settings", name).replace("{{ .Values.color }}", "red");
    for n in 0..60 {
        let name = format!("many-{n:02}");
        let content = json!({
            "name": name, "namespace": namespace, "version": 1,
            "info": {"status": "deployed", "notes": "x".repeat(if n % 5 == 3 { 600_000 } else { 1 })},
            "manifest": manifest(&name),
        });
        // Not compressed, as Helm also reads it.
        let payload = if n == 40 { b"no base64!".to_vec() } else { encoded(content.to_string().as_bytes()) };
        put(holding(namespace, &name, 1, "deployed", payload)).await;
    }
    put(forged(namespace, "many-20", 2, "failed", "")).await;
    put(forged(namespace, "many-30", 2, "deployed", &manifest("many-30"))).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_record_that_does_not_decode_hides_none_of_many_others() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("many").await;
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    put_many(&admin, &namespace).await;
    let watched = Watched::of(&control_plane, &namespace).await;

    for n in 0..60 {
        let name = format!("many-{n:02}");
        assert_eq!(watched.declares(&config_map(&namespace, &name)), n != 40, "{name}");
    }
    assert_eq!(watched.counted("kubemoor_records_undecodable_total{reason=\"encoding\"}"), 1);
    let state = |name: &str| watched.state(&release_id(&namespace, name));
    assert_eq!(state("many-30"), Some((2, ReleaseStatus::Deployed)));
    assert_eq!(state("many-20"), Some((2, ReleaseStatus::Failed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_in_config_maps_are_followed_as_well() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("configmaps").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    helm.install(&namespace, "web", &settings("web"), json!({"values": {"color": "red"}})).await.unwrap();
    let client = control_plane.client(Identity::Admin).await;
    // What Helm's ConfigMap driver stores of the same release.
    let secret =
        Api::<Secret>::namespaced(client.clone(), &namespace).get("sh.helm.release.v1.web.v1").await.unwrap();
    let release = String::from_utf8(secret.data.unwrap()["release"].0.clone()).unwrap();
    let record: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "sh.helm.release.v1.web.v1", "labels": secret.metadata.labels},
        "data": {"release": release},
    }))
    .unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    config_maps.create(&PostParams::default(), &record).await.unwrap();
    let kubeconfig = control_plane.kubeconfig(Identity::Admin);
    let watched = Watched::start(&kubeconfig, RecordDriver::Configmap, &[&namespace]).await;
    watched.until_indexed().await;
    assert_eq!(watched.state(&release_id(&namespace, "web")), Some((1, ReleaseStatus::Deployed)));
    assert!(watched.declares(&config_map(&namespace, "settings")));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_manifest_is_read_again_when_it_is_needed() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("documents").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let values = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "web", &settings("web"), values("red")).await.unwrap();
    helm.upgrade(&namespace, "web", &settings("web"), values("blue")).await.unwrap();
    let watched = Watched::of(control_plane, &namespace).await;
    let web = release_id(&namespace, "web");
    let settings_map = config_map(&namespace, "settings");
    for (revision, color) in [(1, "red"), (2, "blue")] {
        let read = watched.releases.document(&web, revision, &settings_map, SOON).await.unwrap();
        assert_eq!(read.revision, revision);
        let document = read.object.unwrap();
        assert_eq!(document["data"]["color"], color);
        assert_eq!(document["metadata"]["namespace"], namespace.as_str());
        assert_eq!(document["metadata"]["annotations"]["meta.helm.sh/release-name"], "web");
    }
    let other = watched.releases.document(&web, 2, &config_map(&namespace, "other"), SOON).await.unwrap();
    assert_eq!(other.object, None);
    let error = watched.releases.document(&web, 7, &settings_map, SOON).await.err().unwrap();
    assert_eq!(error.to_string(), format!("release {namespace}/web has no record of revision 7"));
}
