//! Fields of which the API server takes only one: whoever sets another one in the place of a declared field has it
//! removed, and lists that hold a key twice are restored as they are declared.

use serde_json::{Value, json};

use crate::drifts::UNREGISTERED;
use crate::support::{RELEASE, SOON, Scene, eventually};

const TEMPLATES: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      volumes: [{name: config, configMap: {name: web}}, {name: cache, emptyDir: {}}]
      containers:
      - name: app
        image: registry.example/shop:one
        env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}, {name: EMPTY, value: ""}]
        resources: {limits: {memory: 100Mi}}
        livenessProbe: {httpGet: {path: {{ .Values.path | default "/" }}, port: 80}}
---
apiVersion: {{ .Capabilities.APIVersions.Has "policy/v1" | ternary "policy/v1" "policy/v1beta1" }}
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {level: {{ .Values.level | default "info" }}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
"#;

const EXCLUSIVE: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: registry.example/shop:one
        imagePullPolicy: {{ .Values.pull | default "Always" }}
        securityContext: {allowPrivilegeEscalation: {{ .Values.escalates | default false }}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: ClusterIP, selector: {app: web}, ports: [{name: http, port: 80, protocol: TCP}]}
"#;

const DOUBLED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: registry.example/shop:one
        env: [{name: A, value: "1"}, {name: B, value: "2"}, {name: A, value: "3"}]
"#;

const SECRETS: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, labels: {level: {{ .Values.level | default "info" }}}}
secrets: [{name: one}, {name: two}, {name: {{ .Values.last | default "three" }}}]
"#;

const CLAIMS: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "registry.example/db:1"}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

async fn scene(prefix: &str, templates: &str, server_side: bool) -> Scene {
    let options = json!({"server_side_apply": server_side});
    let scene = Scene::on_cluster(&UNREGISTERED).options(options).install(prefix, templates).await;
    scene.wait_until_seen(1).await;
    scene
}

fn ingress(scene: &Scene) -> String {
    scene.at("apis/networking.k8s.io/v1", "ingresses/web")
}

/// The group and version of disruption budgets.
fn budgets(scene: &Scene) -> &'static str {
    if scene.control_plane.minor() < 21 { "policy/v1beta1" } else { "policy/v1" }
}

fn budget(scene: &Scene) -> String {
    scene.at(&format!("apis/{}", budgets(scene)), "poddisruptionbudgets/web")
}

/// Sets another field in the place of each declared one.
async fn replace(scene: &Scene) {
    let web = scene.deployment("web");
    let mut spec = scene.get(&web).await["spec"].take();
    spec["strategy"] = json!({"type": "RollingUpdate"});
    let pod = &mut spec["template"]["spec"];
    pod["volumes"] =
        json!([{"name": "config", "emptyDir": {}}, {"name": "cache", "hostPath": {"path": "/cache"}}]);
    let source = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    pod["containers"][0]["env"] =
        json!([{"name": "LEVEL", "valueFrom": source}, {"name": "EMPTY", "valueFrom": source}]);
    pod["containers"][0]["resources"] = json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "500Mi"}});
    pod["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 20});
    // A merge patch would keep what was there before.
    scene
        .alice
        .patch(&format!("{web}?fieldManager=kubectl-edit"), "replace", "/spec", &spec)
        .await
        .done()
        .unwrap();
    let spec = json!({"minAvailable": null, "maxUnavailable": 3});
    scene.edit(&budget(scene), json!({"spec": spec})).await;
    let data = json!({"data": null, "binaryData": {"level": "eA=="}});
    scene.edit(&scene.config_map("web"), data).await;
    let backend =
        json!({"service": null, "resource": {"apiGroup": "a.example", "kind": "Bucket", "name": "b"}});
    scene.edit(&ingress(scene), json!({"spec": {"defaultBackend": backend}})).await;
}

async fn come_back(prefix: &str, server_side: bool) {
    let scene = scene(prefix, TEMPLATES, server_side).await;
    let before = scene.get(&scene.deployment("web")).await;
    replace(&scene).await;
    let container = "/spec/template/spec/containers/0";
    let web = scene.deployment("web");
    let env = json!([{"name": "LEVEL", "value": "info"}, {"name": "EMPTY"}]);
    let now = scene.wait_for_value(&web, &format!("{container}/env"), env).await;
    for pointer in [
        "/spec/strategy".to_owned(),
        "/spec/template/spec/volumes".to_owned(),
        format!("{container}/resources"),
        format!("{container}/livenessProbe/httpGet"),
    ] {
        assert_eq!(now.pointer(&pointer), before.pointer(&pointer), "{pointer}");
    }
    // What excludes nothing stays with whoever set it.
    let probe = now.pointer(&format!("{container}/livenessProbe")).unwrap();
    assert_eq!((probe.get("exec"), &probe["periodSeconds"]), (None, &json!(20)));
    let spec = scene.wait_for_value(&budget(&scene), "/spec/minAvailable", json!(1)).await;
    assert_eq!(spec["spec"].get("maxUnavailable"), None);
    let settings = scene.wait_for_value(&scene.config_map("web"), "/data/level", json!("info")).await;
    assert_eq!(settings.get("binaryData"), None);
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    scene.wait_for_value(&ingress(&scene), "/spec/defaultBackend", backend).await;
    scene.wait_for_reason("InSync").await;

    // What is as if nobody had edited it can be upgraded, to other fields of the same places too. Helm's server-side
    // apply leaves the defaults of a dropped volume or probe behind, so that fails whether anybody has edited or not.
    let mut other = TEMPLATES
        .replace("minAvailable: 1", "maxUnavailable: 1")
        .replace("strategy: {type: Recreate}", "strategy: {type: RollingUpdate}");
    if !server_side {
        other = other.replace("configMap: {name: web}", "secret: {secretName: web}").replace(
            "httpGet: {path: {{ .Values.path | default \"/\" }}, port: 80}",
            "tcpSocket: {port: 81}",
        );
    }
    let options = json!({"server_side_apply": server_side.to_string(), "values": {"level": "debug"}});
    scene.upgrade_to(other.as_str(), options).await.unwrap();
    scene.wait_for_reason("InSync").await;
    assert_eq!(scene.get(&budget(&scene)).await["spec"]["maxUnavailable"], 1);
    let now = scene.get(&web).await;
    let handler = if server_side { "httpGet" } else { "tcpSocket" };
    assert!(now.pointer(&format!("{container}/livenessProbe/{handler}")).is_some(), "{now}");
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_fields_return_in_server_side_release_and_upgrade_passes() {
    come_back("union-ssa", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_fields_return_in_client_side_release_and_upgrade_passes() {
    come_back("union-csa", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_that_another_manager_applies_is_named_with_its_owner() {
    let scene = scene("union-applied", TEMPLATES, true).await;
    let budget = budget(&scene);
    // Helm's value goes, and another one is applied.
    let applied = json!({
        "apiVersion": budgets(&scene), "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": null, "maxUnavailable": 3},
    });
    let by = format!("{budget}?fieldManager=flux-like&force=true");
    scene.alice.apply(&by, &applied).await.done().unwrap();
    let said = "the undeclared field /spec/maxUnavailable of field manager flux-like takes the place of \
                /spec/minAvailable";
    scene.wait_for_log(said).await;
    assert_eq!(scene.get(&budget).await["spec"]["maxUnavailable"], 3);
    assert!(!scene.log().contains("refuses to set these fields"), "{}", scene.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn element_that_another_manager_applies_is_named_with_its_owner() {
    let scene = scene("element-applied", EXCLUSIVE, true).await;
    let service = scene.at("api/v1", "services/web");
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "TCP"});
    // The port of the release gets another name, and its own name goes to another port.
    let applied = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"ports": [port("mine", 80), port("http", 81)]},
    });
    let by = format!("{service}?fieldManager=flux-like&force=true");
    scene.alice.apply(&by, &applied).await.done().unwrap();
    let said = "the undeclared element /spec/ports/[port=81,protocol=TCP] of field manager flux-like takes \
                the place of /spec/ports/[port=80,protocol=TCP]/name";
    scene.wait_for_log(said).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_the_api_server_names_in_its_refusal_make_room_for_declared_ones() {
    for server_side in [true, false] {
        let scene = scene(if server_side { "named-ssa" } else { "named-csa" }, EXCLUSIVE, server_side).await;
        let web = scene.deployment("web");
        let container = "/spec/template/spec/containers/0";
        let security = json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "runAsUser": 1000});
        let path = format!("{web}?fieldManager=kubectl-edit");
        let at = format!("{container}/securityContext");
        let edit = json!([
            {"op": "replace", "path": at, "value": security},
            {"op": "replace", "path": format!("{container}/imagePullPolicy"), "value": "Never"},
        ]);
        scene.alice.patch_all(&path, &edit).await.done().unwrap();
        let restored = json!({"allowPrivilegeEscalation": false, "runAsUser": 1000});
        scene.wait_for_value(&web, &at, restored).await;

        let service = scene.at("api/v1", "services/web");
        let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]});
        scene.edit(&service, json!({"spec": spec})).await;
        let now = scene.wait_for_value(&service, "/spec/type", json!("ClusterIP")).await;
        assert_eq!(now["spec"].get("loadBalancerSourceRanges"), None, "{now}");
        scene.wait_for_reason("InSync").await;
        let values = json!({"escalates": true, "pull": "IfNotPresent"});
        let options = json!({"server_side_apply": server_side.to_string(), "values": values});
        scene.upgrade_to(EXCLUSIVE, options).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_that_holds_a_key_twice_is_restored_as_declared() {
    let scene = scene("doubled", DOUBLED, false).await;
    let web = scene.deployment("web");
    let at = "/spec/template/spec/containers/0/env";
    let path = format!("{web}?fieldManager=kubectl-edit");
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let declared = json!([variable("A", "1"), variable("B", "2"), variable("A", "3")]);
    for edited in [
        json!([variable("A", "1"), variable("B", "9"), variable("A", "3")]),
        json!([variable("A", "3"), variable("B", "2"), variable("A", "1")]),
        json!([variable("A", "1"), variable("B", "2")]),
    ] {
        scene.alice.patch(&path, "replace", at, &edited).await.done().unwrap();
        scene.wait_for_value(&web, at, &declared).await;
        scene.wait_for_reason("InSync").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_element_that_an_editor_doubles_is_there_once_and_upgrade_passes() {
    let scene = scene("doubled-by-hand", SECRETS, true).await;
    let account = scene.at("api/v1", "serviceaccounts/web");
    let edit = json!([
        {"op": "replace", "path": "/secrets", "value": [
            {"name": "one"}, {"name": "one"}, {"name": "other"}, {"name": "three"},
        ]},
        {"op": "replace", "path": "/metadata/labels/level", "value": "debug"},
    ]);
    scene.alice.patch_all(&format!("{account}?fieldManager=kubectl-edit"), &edit).await.done().unwrap();
    let declared = json!([{"name": "one"}, {"name": "three"}, {"name": "two"}]);
    eventually("each element is there once", SOON, || async {
        let now = scene.get(&account).await;
        let mut names = now["secrets"].clone();
        // Old servers add a token of their own.
        names.as_array_mut().unwrap().retain(|it| declared.as_array().unwrap().contains(it));
        names.as_array_mut().unwrap().sort_by_key(|it| it["name"].to_string());
        if names == declared && now["metadata"]["labels"]["level"] == "info" { Ok(()) } else { Err(now) }
    })
    .await;
    scene.wait_for_reason("InSync").await;
    let options = json!({"server_side_apply": "true", "values": {"level": "warn", "last": "four"}});
    scene.upgrade_to(SECRETS, options).await.unwrap();
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_made_anew_with_other_immutable_fields_is_drift_and_names_them() {
    let scene = scene("claims", CLAIMS, true).await;
    let db = scene.at("apis/apps/v1", "statefulsets/db");
    let mut object = scene.get(&db).await;
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    let claim: &mut Value = &mut object["spec"]["volumeClaimTemplates"][0];
    claim["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
    let collection = db.trim_end_matches("/db");
    // Otherwise the guard may make it anew first, and again and again.
    scene.order("suspend");
    scene.wait_for_reason("Suspended").await;
    scene.alice.delete(&db).await.done().unwrap();
    eventually("the object is Alice's", SOON, || async {
        scene.alice.post(&format!("{collection}?fieldManager=kubectl-create"), &object).await.done()
    })
    .await;
    scene.order("resume");
    scene.wait_for_reason("Drifted").await;
    scene
        .wait_for_log("the API server refuses to set these fields in place: /spec/volumeClaimTemplates")
        .await;
    for flags in [&["diff", RELEASE][..], &["diff", RELEASE, "--settle"]] {
        eventually("the comparison says why the object stays", SOON, || async {
            let ran = scene.moor(flags);
            let why = "not repaired: the API server refuses to set these fields in place: /spec/volumeClaimTemplates";
            if ran.code == 1 && ran.out.contains(why) { Ok(()) } else { Err(format!("{ran:?}")) }
        })
        .await;
    }
}
