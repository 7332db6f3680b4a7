//! Allowances on a real API server: asked for by annotations, made and ended by command, and what has no effect.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Caller, Chart, Guard, Identity, RELEASE, SOON, Scene, eventually};

const TEMPLATES: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  {{- with .Values.annotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
data: {image: a, color: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'web:1'}]}
";

fn from_now(seconds: i64) -> String {
    let until = Timestamp::now() + SignedDuration::from_secs(seconds);
    Timestamp::from_second(until.as_second()).unwrap().to_string()
}

fn asking(allow: &str, until: &str) -> Value {
    json!({"metadata": {"annotations": {"kubemoor.dev/allow": allow, "kubemoor.dev/allow-until": until}}})
}

fn with_data(mut patch: Value, key: &str, value: &str) -> Value {
    patch["data"] = json!({key: value});
    patch
}

async fn guarded(edits: &str) -> (Scene, Guard) {
    let scene = Scene::own().install("allowed", TEMPLATES).await;
    let guard = scene.start_guard(&["--register", "--edits", edits]).await;
    (scene, guard)
}

async fn allowances(scene: &Scene) -> Vec<Value> {
    let listed = scene.get(&scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances")).await;
    listed["items"].as_array().unwrap().clone()
}

/// Has the one allowance of the namespace end a second later.
pub(crate) async fn end_allowance(scene: &Scene) {
    let name = allowances(scene).await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let path = scene.at("apis/kubemoor.dev/v1alpha1", &format!("driftallowances/{name}"));
    scene.admin.merge(&path, &json!({"spec": {"until": from_now(1)}})).await.done().unwrap();
}

/// Patches the ConfigMap as somebody, by kubectl: whether that succeeds, and all that kubectl says.
fn patch(scene: &Scene, who: &[&str], patch: &Value) -> (bool, String) {
    let patch = patch.to_string();
    let what = ["patch", "configmap", "settings", "-n", &scene.namespace, "--type=merge", "-p", &patch];
    let output = scene.control_plane.kubectl(Identity::Admin, &[&what, who].concat());
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

fn assert_bad_requests_are_refused_by_name(scene: &Scene, hour: &str) {
    let as_alice = ["--as=alice", "--as-group=people"];
    for (allow, until, reason) in [
        ("/data/color", "9999-01-01T00:00:00Z", "TooFar"),
        ("*", "9999-01-01T00:00:00Z", "TooFar"),
        // The last day of that year is beyond what a clock holds.
        ("*", "9999-12-31T23:59:59Z", "InvalidTime"),
        ("/data/color", "tomorrow", "InvalidTime"),
        ("/data/color", "2020-01-01T00:00:00Z", "InvalidTime"),
        ("/data/color", "", "InvalidTime"),
        ("data/color", hour, "InvalidPath"),
        (",", hour, "Missing"),
    ] {
        let (passes, said) = patch(scene, &as_alice, &asking(allow, until));
        assert!(!passes && said.contains(reason), "{allow} {until}: {said}");
    }
    let endless = json!({"metadata": {"annotations": {"kubemoor.dev/allow": "/data/color", "kubemoor.dev/allow-until": null}}});
    let (passes, said) = patch(scene, &as_alice, &endless);
    assert!(!passes && said.contains("kubemoor.dev/allow-until: Missing"), "{said}");
}

/// Whoever may only edit gets no exception, and is told whom to ask.
async fn assert_editor_gets_no_exception(scene: &Scene, hour: &str) {
    let binding = ["create", "rolebinding", "carol", "--clusterrole=edit", "--user=carol"];
    assert!(scene.kubectl(&binding).status.success());
    eventually("carol may edit", SOON, || async {
        patch(scene, &["--as=carol"], &json!({"data": {"undeclared": "x"}})).0
    })
    .await;
    let (passes, said) =
        patch(scene, &["--as=carol"], &with_data(asking("/data/color", hour), "color", "red"));
    assert!(!passes && said.contains("denied the request"), "{said}");
    let (passes, said) = patch(scene, &["--as=carol"], &asking("/data/color", hour));
    let reason = "NoRight: carol may not create driftallowances";
    assert!(!passes && said.contains(reason), "{said}");
    eventually("the row says why the request was refused", SOON, || async {
        let rows = scene.rows(&["--by", "carol"]);
        let is_told = |row: &Value| row["detail"].as_str().is_some_and(|detail| detail.starts_with(reason));
        if rows.iter().any(is_told) { Ok(()) } else { Err(format!("{rows:?}")) }
    })
    .await;
    // A denial tells who may not run its command whom to ask.
    let denied = eventually("the guard knows that carol has no right", SOON, || async {
        let (passes, said) = patch(scene, &["--as=carol"], &json!({"data": {"color": "red"}}));
        let is_told = said.contains("ask a user with the right to create driftallowances in namespace");
        if !passes && is_told { Ok(said) } else { Err(said) }
    })
    .await;
    assert!(denied.contains("to run: kubectl moor allow configmap/settings"), "{denied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_is_a_request_that_only_a_right_grants() {
    let scene = Scene::shared().install("allowed", TEMPLATES).await;
    let alice = &scene.alice;
    let (settings, web) = (scene.config_map("settings"), scene.deployment("web"));
    scene.wait_until_guarded(&settings).await;
    scene.wait_until_guarded(&web).await;
    let as_alice = ["--as=alice", "--as-group=people"];
    let hour = from_now(3600);

    // Nothing is made for dry runs.
    let wish = with_data(asking("/data/image", &hour), "image", "b");
    let (passes, said) = patch(&scene, &[&as_alice[..], &["--dry-run=server"]].concat(), &wish);
    assert!(passes && said.contains("would be created"), "{said}");
    assert_eq!(allowances(&scene).await.len(), 0);

    // The same edit's other changes count as allowed by it.
    let (passes, said) = patch(&scene, &as_alice, &wish);
    assert!(passes && said.contains("was created in namespace") && said.contains("/data/image"), "{said}");
    let made = allowances(&scene).await;
    let [one] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!(one["spec"]["object"]["name"], "settings");
    assert_eq!((&one["spec"]["paths"], &one["spec"]["until"]), (&json!(["/data/image"]), &json!(hour)));
    assert_eq!(one["spec"]["requestedBy"]["user"], "alice");

    // It holds for everybody, for that field, and for that object.
    let bob = Caller::new(&scene.control_plane, Identity::Bob).await;
    bob.merge(&settings, &json!({"data": {"image": "c"}})).await.done().unwrap();
    bob.merge(&settings, &json!({"data": {"color": "red"}})).await.refused(RELEASE).unwrap();

    // Taken away, it ends nothing; asked for again, it is the same.
    let gone =
        json!({"metadata": {"annotations": {"kubemoor.dev/allow": null, "kubemoor.dev/allow-until": null}}});
    let (passes, said) = patch(&scene, &as_alice, &gone);
    assert!(passes && said.contains("kubectl moor revoke configmap/settings"), "{said}");
    bob.merge(&settings, &json!({"data": {"image": "d"}})).await.done().unwrap();
    assert!(patch(&scene, &as_alice, &asking("/data/image", &hour)).0);
    assert_eq!(allowances(&scene).await.len(), 1);

    assert_editor_gets_no_exception(&scene, &hour).await;
    assert_bad_requests_are_refused_by_name(&scene, &hour);
    assert_eq!(allowances(&scene).await.len(), 1);
    let color = json!({"data": {"color": "red"}});
    alice.merge(&settings, &color).await.refused(RELEASE).unwrap();

    // Through another door the annotation comes in, and has no effect.
    let slipped = asking("*", &hour);
    alice.merge(&format!("{web}/status"), &slipped).await.done().unwrap();
    let replicas = json!({"spec": {"replicas": 7}});
    alice.merge(&web, &replicas).await.refused(RELEASE).unwrap();
    alice.merge(&format!("{web}/scale"), &replicas).await.refused(RELEASE).unwrap();
    assert_eq!(allowances(&scene).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn annotations_set_by_chart_or_past_webhook_create_no_exception() {
    let (scene, mut guard) = guarded("Deny").await;
    let (settings, hour) = (scene.config_map("settings"), from_now(3600));
    scene.wait_until_guarded(&settings).await;

    // While the guard is down, and before Helm adopts an object.
    guard.kill();
    eventually("an annotation comes in", SOON, || async {
        scene.alice.merge(&settings, &asking("*", &hour)).await.done()
    })
    .await;
    let early = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"size": "1"},
        "metadata": {"name": "early", "annotations": asking("*", &hour)["metadata"]["annotations"], "labels": {
            "app.kubernetes.io/managed-by": "Helm"}},
    });
    let core = scene.core("configmaps");
    scene.alice.post(&core, &early).await.done().unwrap();
    guard.start_again().await;
    scene.alice.merge(&settings, &json!({"data": {"image": "x"}})).await.refused(RELEASE).unwrap();
    let owned = json!({"metadata": {"annotations": {
        "meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": scene.namespace}}});
    scene.alice.merge(&format!("{core}/early"), &owned).await.done().unwrap();
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: early}\ndata: {size: '1'}\n";
    let chart = || Chart::from(TEMPLATES).template("early.yaml", template);
    scene.upgrade_to(chart(), json!({})).await.unwrap();
    eventually("the adopted object is guarded", SOON, || async {
        scene
            .alice
            .merge(&format!("{core}/early?dryRun=All"), &json!({"data": {"size": "2"}}))
            .await
            .refused(RELEASE)
    })
    .await;
    assert_eq!(allowances(&scene).await.len(), 0);

    // Helm writes what the chart says, and nobody asks for anything. It would not take the annotations from Alice.
    let gone =
        json!({"metadata": {"annotations": {"kubemoor.dev/allow": null, "kubemoor.dev/allow-until": null}}});
    scene.alice.merge(&settings, &gone).await.done().unwrap();
    // What a person left there stays when Helm writes the others, and makes no request of them.
    let left = json!({"metadata": {"annotations": {"kubemoor.dev/allow-until": "2020-01-01T00:00:00Z"}}});
    scene.alice.merge(&settings, &left).await.done().unwrap();
    let annotations =
        json!({"kubemoor.dev/allow": "/data/image", "kubemoor.dev/allow-reason": "in the chart"});
    let options = json!({"values": {"annotations": annotations}});
    scene.upgrade_to(chart(), options).await.unwrap();
    let live = scene.get(&settings).await;
    assert_eq!(live["metadata"]["annotations"]["kubemoor.dev/allow"], "/data/image");
    assert_eq!(allowances(&scene).await.len(), 0);
}

fn assert_kinds_are_taken_as_by_kubectl(scene: &Scene) {
    for kind in ["cm", "configmaps", "ConfigMap"] {
        let object = format!("{kind}/settings");
        let made = scene.moor(&["allow", &object, "--path", "/data/color", "--for", "1h"]);
        assert!(made.code == 0 && made.out.contains("of ConfigMap/settings"), "{made:?}");
        assert_eq!(scene.moor(&["revoke", &object]).code, 0);
    }
}

fn assert_bad_commands_fail(scene: &Scene) {
    for (arguments, said) in [
        (["--path", "data", "--for", "1h"], "data"),
        (["--path", "/dta/color", "--for", "1h"], "there is no field /dta: did you mean data?"),
        (["--path", "/data/color/x", "--for", "1h"], "there is no field /data/color/x"),
        (["--path", "/data/color", "--for", "800h"], "days away"),
        (["--path", "/data/color", "--until", "2020-01-01T00:00:00Z"], "past"),
    ] {
        scene.moor(&[&["allow", "configmap/settings"], &arguments[..]].concat()).assert_failed(&[said]);
    }
    let absent = ["allow", "configmap/absent", "--path", "/data/color", "--for", "1h"];
    scene.moor(&absent).assert_failed(&["there is no ConfigMap/absent", "kubectl get configmap"]);
    scene.moor(&["allow", "gadget/x", "--path", "*", "--for", "1h"]).assert_failed(&["gadget"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exception_is_created_listed_and_revoked_by_command_or_expires() {
    let scene = Scene::shared().install("allowed", TEMPLATES).await;
    let (settings, alice) = (scene.config_map("settings"), &scene.alice);
    scene.wait_until_guarded(&settings).await;
    let command = |arguments: &[&str]| scene.moor(arguments);
    let color = |color: &str| json!({"data": {"color": color}});

    let object = ["allow", "configmap/settings", "--path", "/data/color", "--reason", "INC-1"];
    let made = command(&[&object[..], &["--for", "1h"]].concat());
    assert!(made.code == 0 && made.out.contains("created: /data/color of ConfigMap/settings"), "{made:?}");
    eventually("the allowance holds", SOON, || async { alice.merge(&settings, &color("red")).await.done() })
        .await;
    let listed = command(&["get", "exceptions", "-o", "json"]).json()["items"].take();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed[0]["state"], &listed[0]["reason"]), (&json!("Open"), &json!("INC-1")), "{listed}");
    let table = command(&["get", "allowances"]).out;
    assert!(table.starts_with("NAME") && table.contains("ConfigMap/settings"), "{table}");

    let revoked = command(&["revoke", "configmap/settings"]);
    assert!(revoked.code == 0 && revoked.out.contains("deleted"), "{revoked:?}");
    eventually("it holds no more", SOON, || async {
        // One that passes must not make the next one no change.
        alice.merge(&settings, &color(&Timestamp::now().to_string())).await.refused(RELEASE)
    })
    .await;
    command(&["revoke", "configmap/settings"]).assert_failed(&["there is no allowance", "get allowances"]);
    command(&["revoke", "nobody"]).assert_failed(&["nobody"]);

    assert_kinds_are_taken_as_by_kubectl(&scene);

    // The deletion is a word of its own.
    let delete = ["allow", "configmap/settings", "--for", "1h", "--path", "*"];
    assert_eq!(command(&delete).code, 0);
    eventually("every field may change", SOON, || async {
        alice.merge(&settings, &color("pink")).await.done()
    })
    .await;
    alice.delete(&settings).await.refused(RELEASE).unwrap();
    assert_eq!(command(&["revoke", "configmap/settings"]).code, 0);

    let until = from_now(3600);
    let made = command(&[&object[..], &["--until", &until]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let again = command(&[&object[..], &["--until", &until]].concat());
    assert!(again.out.contains("unchanged"), "{again:?}");
    eventually("the allowance holds until its end", SOON, || async {
        alice.merge(&settings, &color("blue")).await.done()
    })
    .await;
    end_allowance(&scene).await;
    eventually("the allowance has ended", SOON, || async {
        alice.merge(&format!("{settings}?dryRun=All"), &color("red")).await.refused(RELEASE)
    })
    .await;
    let ended = command(&["get", "allowances", "-o", "json"]).json();
    assert_eq!(ended["items"][0]["state"], "Ended", "{ended}");

    assert_bad_commands_fail(&scene);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn warn_mode_reports_that_invalid_exception_request_has_no_effect() {
    let (scene, _guard) = guarded("Warn").await;
    let settings = scene.config_map("settings");
    let hour = from_now(3600);
    let as_alice = ["--as=alice", "--as-group=people"];
    eventually("the API server asks the guard", SOON, || async {
        let (passes, said) = patch(&scene, &as_alice, &json!({"data": {"image": "b"}}));
        let (_, undone) = patch(&scene, &as_alice, &json!({"data": {"image": "a"}}));
        if passes && said.contains("Warning") { Ok(()) } else { Err(format!("{said} {undone}")) }
    })
    .await;
    let (passes, said) = patch(&scene, &as_alice, &asking("/data/color", "9999-01-01T00:00:00Z"));
    assert!(passes && said.contains("has no effect here") && said.contains("TooFar"), "{said}");
    let (passes, said) = patch(&scene, &as_alice, &asking("/data/color", &hour));
    assert!(passes && said.contains("was created"), "{said}");
    assert_eq!(allowances(&scene).await.len(), 1);
    assert_eq!(scene.get(&settings).await["data"]["image"], "a");
}
