//! What somebody who may write into one namespace can make the guard spend, and that it costs nobody else anything.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use crate::attacks::look_away_from_records;
use crate::support::{
    ControlPlane, Guard, Identity, SOON, Scene, charts, encoded, eventually, forged, holding, refusal,
};

/// What a guard may take above what it takes at rest while it reads the worst of records.
const ABOVE: u64 = 64 << 20;

/// To what records grow: beyond what is read of any, and just below.
const GROWN: [usize; 2] = [60 << 20, 15 << 20];

/// Records of one namespace.
const RECORDS: usize = 40;

/// Finalizers of one object: with their names about as many as an object has room for.
const FINALIZERS: usize = 60_000;

/// Namespaces of one user.
const NAMESPACES: usize = 10;

/// What an edit sends beside the declared fields, in bytes.
const PADDING: usize = 900_000;

const FLAGS: [&str; 5] = ["--register", "--edits", "Deny", "--drift", "Repair"];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn records_that_grow_cost_little_memory_whenever_they_come() {
    let shop = Scene::own().install("beside", charts::IMAGE_AND_COLOR).await;
    let control_plane = &shop.control_plane;
    let mut guard = shop.start_guard(&FLAGS).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let idle = guard.peak_memory();

    // Some came before the guard did.
    look_away_from_records(&Api::all(control_plane.client(Identity::Admin).await)).await;
    let namespace = control_plane.namespace("grown").await;
    let client = control_plane.client(Identity::Alice).await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let long = GROWN.iter().flat_map(|length| MANIFESTS.map(|(head, line)| repeated(head, line, *length)));
    let manifests: Vec<Vec<u8>> = long.chain([kept()]).collect();
    for number in 0..RECORDS {
        let release = format!("grown-{number}");
        let payload = grown(&namespace, &release, &manifests[number % manifests.len()]);
        let record = holding(&namespace, &release, 1, "deployed", payload);
        eventually("the record is written behind the guard's back", SOON, || async {
            secrets.create(&PostParams::default(), &record).await
        })
        .await;
    }
    wait_for_statuses(control_plane, &namespace).await;
    check(&guard, idle, "while records come");
    shop.data("settings", json!({"image": "b"})).await.refusal().unwrap();

    guard.terminate();
    guard.start_again().await;
    check(&guard, idle, "at the next start");
    shop.data("settings", json!({"image": "b"})).await.refusal().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn edits_of_others_are_judged_while_a_huge_set_is() {
    let shop = Scene::on(ControlPlane::start()).install("beside", charts::IMAGE_AND_COLOR).await;
    let control_plane = &shop.control_plane;
    let _guard = shop.start_guard(&FLAGS).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let maps = forge_huge(control_plane, "huge").await;

    let dry_run = dry_run();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers("z")}, "data": {"a": "1"}}));
    let attacks = join_all((0..4).map(|_| maps.patch("huge", &dry_run, &patch)));
    let honest = join_all((0..8).map(|number| {
        let shop = &shop;
        async move { shop.try_data("settings", json!({"image": number.to_string()})).await.refusal() }
    }));
    let (_, honest) = tokio::join!(attacks, honest);
    for outcome in honest {
        outcome.unwrap();
    }
    // By itself, it is judged as well.
    eventually("the huge set is judged", SOON, || async {
        refusal(maps.patch("huge", &dry_run, &patch).await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn user_who_floods_from_many_namespaces_gets_no_edit_through() {
    let shop = Scene::on(ControlPlane::start()).install("beside", charts::IMAGE_AND_COLOR).await;
    let control_plane = &shop.control_plane;
    let _guard = shop.start_guard(&FLAGS).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let mut own = Vec::new();
    for number in 0..NAMESPACES {
        own.push(forge_huge(control_plane, &format!("huge-{number}")).await);
    }
    let (dry_run, over) = (dry_run(), AtomicBool::new(false));
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers("z")}, "data": {"a": "1"}}));
    let floods = join_all((0..2 * NAMESPACES).map(|number| {
        let (maps, dry_run, patch, over) = (&own[number % NAMESPACES], &dry_run, &patch, &over);
        async move {
            while !over.load(Ordering::Relaxed) {
                let _ = maps.patch("huge", dry_run, patch).await;
            }
        }
    }));
    // By the same user, and padded.
    let edits = async {
        let mut outcomes = Vec::new();
        for number in 0..12 {
            let data = json!({"image": number.to_string(), "padding": "x".repeat(PADDING)});
            outcomes.push(shop.try_data("settings", data).await.refusal());
        }
        over.store(true, Ordering::Relaxed);
        outcomes
    };
    let (_, outcomes) = tokio::join!(floods, edits);
    for outcome in outcomes {
        outcome.unwrap();
    }
}

/// A namespace of Alice's with a ConfigMap of which a forged record declares a huge set; returns its ConfigMaps once the
/// guard knows it.
async fn forge_huge(control_plane: &ControlPlane, prefix: &str) -> Api<ConfigMap> {
    let namespace = control_plane.namespace(prefix).await;
    let client = control_plane.client(Identity::Alice).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let mut huge = charts::labelled("huge", json!({"a": "0"}));
    huge.metadata.finalizers = Some(finalizers("x"));
    maps.create(&PostParams::default(), &huge).await.unwrap();
    let mut manifest = format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: huge\n  namespace: {namespace}\n  finalizers:\n"
    );
    finalizers("y").iter().for_each(|name| manifest.push_str(&format!("  - {name}\n")));
    manifest.push_str("data: {a: '0'}\n");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    secrets
        .create(&PostParams::default(), &forged(&namespace, "huge", 1, "deployed", &manifest))
        .await
        .unwrap();
    let dry_run = dry_run();
    eventually("the guard knows the forged release", SOON, || async {
        refusal(maps.patch("huge", &dry_run, &Patch::Merge(json!({"data": {"a": "1"}}))).await)
    })
    .await;
    maps
}

fn dry_run() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

/// Manifests by what they begin with and the line that is repeated: one long text, its lines as on Windows too, many
/// small objects, one deep thicket of maps, many small maps in one document, and nothing but comments.
const MANIFESTS: [(&str, &str); 6] = [
    (
        "apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: long}\\ndata:\\n  a: |\\n",
        "    0123456789abcdef\\n",
    ),
    (
        "apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: broken}\\ndata:\\n  a: |\\n",
        "    0123456789abcdef\\r\\n",
    ),
    ("", "---\\napiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: many}\\n"),
    ("", "---\\n{}\\n"),
    ("apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: thicket}\\ndata:\\n  a:\\n", "  - {a: {}}\\n"),
    ("", "# nothing at all\\n"),
];

/// A part of a record's JSON, compressed.
fn compressed(parts: &[&[u8]]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    for part in parts {
        gzip.write_all(part).unwrap();
    }
    gzip.finish().unwrap()
}

fn repeated(head: &str, line: &str, length: usize) -> Vec<u8> {
    let lines = line.repeat(length / line.len());
    compressed(&[head.as_bytes(), lines.as_bytes()])
}

/// A record's payload whose manifest is that long: gzip may come in several members.
fn grown(namespace: &str, release: &str, manifest: &[u8]) -> Vec<u8> {
    let front = format!(
        r#"{{"name":"{release}","namespace":"{namespace}","version":1,"info":{{"status":"deployed"}},"manifest":""#
    );
    encoded(&[&compressed(&[front.as_bytes()])[..], manifest, &compressed(&[br#""}"#])].concat())
}

/// A manifest of which all is kept.
fn kept() -> Vec<u8> {
    let line = "    0123456789abcdef\\n";
    let object = |number: usize| {
        format!(
            "---\\napiVersion: v1\\nkind: ConfigMap\\nmetadata: {{name: kept-{number}}}\\ndata:\\n  a: |\\n"
        ) + &line.repeat((3 << 20) / line.len())
    };
    let objects: Vec<String> = (0..3).map(object).collect();
    compressed(&objects.iter().map(String::as_bytes).collect::<Vec<_>>())
}

fn finalizers(prefix: &str) -> Vec<String> {
    (0..FINALIZERS).map(|number| format!("{prefix}.io/{number:05}")).collect()
}

/// Waits until the guard says something of each of these releases.
async fn wait_for_statuses(control_plane: &ControlPlane, namespace: &str) {
    let gvk = GroupVersionKind::gvk("kubemoor.dev", "v1alpha1", "GuardedRelease");
    let client = control_plane.client(Identity::Admin).await;
    let guarded: Api<DynamicObject> = Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&gvk));
    // A debug build reads the worst of records.
    eventually("every release has its status", SOON * 6, || async {
        let told = guarded.list(&ListParams::default()).await.unwrap();
        let told = told.into_iter().filter(|it| it.data["status"] != Value::Null).count();
        if told == RECORDS { Ok(()) } else { Err(format!("{told} of {RECORDS}")) }
    })
    .await;
}

fn check(guard: &Guard, idle: u64, when: &str) {
    let peak = guard.peak_memory();
    assert!(peak < idle + ABOVE, "{when} the guard took {} MiB, at rest {} MiB", peak >> 20, idle >> 20);
}
