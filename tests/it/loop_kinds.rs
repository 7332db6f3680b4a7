//! Kinds that change under a release: versions that end, schemas that become stricter.

use serde_json::{Value, json};

use crate::support::{Caller, ControlPlane, Guard, Identity, RELEASE, SOON, Scene, add_widgets, eventually};

/// A definition that the test changes.
struct Definition {
    admin: Caller,
    group: &'static str,
    /// Its one version as it was made.
    version: Value,
}

impl Definition {
    async fn new(control_plane: &ControlPlane, group: &'static str) -> Self {
        control_plane.define_policies();
        let definition = add_widgets(control_plane, group).await;
        let admin = Caller::new(control_plane, Identity::Admin).await;
        Self { admin, group, version: definition["spec"]["versions"][0].clone() }
    }

    /// The same version under a name, served or not; `v1` is the one that is stored.
    fn version(&self, name: &str, served: bool) -> Value {
        let mut version = self.version.clone();
        version["name"] = json!(name);
        version["served"] = json!(served);
        version["storage"] = json!(name == "v1");
        version
    }

    /// Replaces the versions, and waits until those are served that are to be, and no other.
    async fn set_versions(&self, versions: &[Value]) {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{}", self.group);
        self.admin.merge(&path, &json!({"spec": {"versions": versions}})).await.done().unwrap();
        for version in versions {
            let name = version["name"].as_str().unwrap();
            let wanted = if version["served"] == true { 200 } else { 404 };
            let path = format!("/apis/{}/{name}/widgets", self.group);
            eventually(&format!("{path}: {wanted}"), SOON, || async {
                let answer = self.admin.get(&path).await;
                if answer.code == wanted { Ok(()) } else { Err(answer.to_string()) }
            })
            .await;
        }
    }

    /// `v1` with another upper bound of replicas.
    async fn set_maximum(&self, scene: &Scene, maximum: u32) {
        let mut version = self.version("v1", true);
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"]["maximum"] =
            json!(maximum);
        self.set_versions(&[version]).await;
        let path = format!("{}?dryRun=All", self.widget(scene, "v1"));
        eventually("the schema is in force", SOON, || async {
            let code = |replicas: u32| {
                let admin = &self.admin;
                let patch = json!({"spec": {"replicas": replicas}});
                let path = &path;
                async move { admin.merge(path, &patch).await.code }
            };
            let codes = (code(maximum).await, code(maximum + 1).await);
            if codes == (200, 422) { Ok(()) } else { Err(format!("{codes:?}")) }
        })
        .await;
    }

    fn widget(&self, scene: &Scene, version: &str) -> String {
        format!("/apis/{}/{version}/namespaces/{}/widgets/main", self.group, scene.namespace)
    }

    fn manifest(&self, version: &str) -> String {
        format!(
            "apiVersion: {}/{version}\nkind: Widget\nmetadata: {{name: main}}\nspec: {{replicas: 7, enabled: true}}\n",
            self.group
        )
    }
}

/// A release of one Widget in this version of its kind, and a guard that has seen it.
async fn repaired(prefix: &str, group: &'static str, version: &str) -> (Definition, Scene, Guard) {
    let control_plane = ControlPlane::start();
    let definition = Definition::new(&control_plane, group).await;
    let scene = Scene::on(control_plane).install(prefix, &definition.manifest(version)).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(1).await;
    (definition, scene, guard)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn kind_is_followed_in_another_version_when_one_is_removed() {
    let control_plane = ControlPlane::start();
    let definition = Definition::new(&control_plane, "ending.example.com").await;
    definition.set_versions(&[definition.version("v1", true), definition.version("v1beta1", true)]).await;
    let scene = Scene::on(control_plane).install("versions", &definition.manifest("v1beta1")).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(1).await;
    scene.wait_for_reason("InSync").await;
    let widget = definition.widget(&scene, "v1");
    let uid = scene.get(&widget).await["metadata"]["uid"].clone();

    definition.set_versions(&[definition.version("v1", true), definition.version("v1beta1", false)]).await;
    scene.edit(&widget, json!({"spec": {"replicas": 3}})).await;
    scene.wait_for_value(&widget, "/spec/replicas", json!(7)).await;
    scene.wait_for_reason("InSync").await;
    scene.alice.delete(&widget).await.done().unwrap();
    let object = scene.wait_for_value(&widget, "/spec/replicas", json!(7)).await;
    assert_ne!(object["metadata"]["uid"], uid);
    // So does the next guard, which never saw the old version served.
    guard.kill();
    scene.edit(&widget, json!({"spec": {"replicas": 4}})).await;
    guard.start_again().await;
    scene.wait_for_value(&widget, "/spec/replicas", json!(7)).await;
    scene.wait_for_reason("InSync").await;
    assert_eq!(scene.wait_for_answers("widgets", 3).await, [200, 201, 200], "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn unserved_kind_is_reported_and_followed_again_when_served() {
    let (definition, scene, guard) = repaired("unserved", "paused.example.com", "v1").await;
    scene.wait_for_reason("InSync").await;
    let widget = definition.widget(&scene, "v1");
    let uid = scene.get(&widget).await["metadata"]["uid"].clone();

    definition.set_versions(&[definition.version("v1", false)]).await;
    guard.wait_for_log("the cluster does not serve its kind").await;
    let status = scene.wait_for_reason("Drifted").await;
    assert!(status["drifts"].to_string().contains("does not serve its kind"), "{status}");
    // The comparison agrees with the status.
    let diff = scene.moor(&["diff", RELEASE]);
    assert!(diff.code == 1 && diff.out.contains("not served"), "{diff:?}");

    definition.set_versions(&[definition.version("v1", true)]).await;
    scene.wait_for_reason("InSync").await;
    let object = scene.get(&widget).await;
    assert_eq!((&object["metadata"]["uid"], &object["spec"]["replicas"]), (&uid, &json!(7)));
    assert_eq!(scene.writes("widgets"), 0, "what was never away was written: {}", guard.log());
    // And it is watched as before.
    scene.edit(&widget, json!({"spec": {"replicas": 3}})).await;
    scene.wait_for_value(&widget, "/spec/replicas", json!(7)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_definition_that_is_made_anew_is_read_anew() {
    let (definition, scene, guard) = repaired("anew", "anew.example.com", "v1").await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let path = format!("{definitions}/widgets.{}", definition.group);
    let mut anew = definition.admin.get(&path).await.done().unwrap();
    definition.admin.delete(&path).await.done().unwrap();
    scene.wait_for_reason("Drifted").await;
    // Its first generation as well, and another version.
    anew["metadata"] = json!({"name": anew["metadata"]["name"]});
    anew["status"] = Value::Null;
    anew["spec"]["versions"] = json!([definition.version("v2", true)]);
    anew["spec"]["versions"][0]["storage"] = json!(true);
    eventually("the old definition is gone", SOON, || async {
        definition.admin.post(definitions, &anew).await.done()
    })
    .await;
    scene.wait_for_value(&definition.widget(&scene, "v2"), "/spec/replicas", json!(7)).await;
    scene.wait_for_reason("InSync").await;
    assert!(!guard.log().contains("could not be repaired"), "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_is_not_recreated_while_its_definition_is_being_deleted() {
    let (definition, scene, guard) = repaired("ending", "deleted.example.com", "v1").await;
    let path =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{}", definition.group);
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    definition.admin.merge(&path, &hold(json!(["example.com/hold"]))).await.done().unwrap();
    // The API server deletes the objects and waits for whoever holds the definition.
    definition.admin.delete(&path).await.done().unwrap();
    let held = "CustomResourceDefinition of its kind is being deleted";
    let status = scene.status("why", |status| status["drifts"].to_string().contains(held)).await;
    assert_eq!(status["drifts"][0]["type"], "missing", "{status}");

    definition.admin.merge(&path, &hold(Value::Null)).await.done().unwrap();
    guard.wait_for_log("the cluster does not serve its kind").await;
    assert_eq!(scene.writes("widgets"), 0, "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn repair_refused_by_stricter_schema_is_retried_until_allowed() {
    let (definition, scene, guard) = repaired("strict", "strict.example.com", "v1").await;
    let widget = definition.widget(&scene, "v1");
    guard.pause();
    scene.edit(&widget, json!({"spec": {"replicas": 2}})).await;
    definition.set_maximum(&scene, 5).await;
    guard.resume();
    let refused = "less than or equal to 5";
    let status = scene.status("why", |status| status["drifts"].to_string().contains(refused)).await;
    assert_eq!(status["conditions"][0]["reason"], "Drifted", "{status}");
    // To delete the object would be the end of it.
    assert!(!guard.log().contains("refuses to set these fields"), "{}", guard.log());
    let attempts = || guard.log().matches("could not be repaired").count();
    eventually("it tries again", SOON, || async { attempts() >= 4 }).await;
    assert!(scene.writes("widgets") < 20, "{} attempts", scene.writes("widgets"));
    let object = scene.get(&widget).await;
    assert_eq!(object["spec"]["replicas"], 2);

    definition.set_maximum(&scene, 9).await;
    // The pause before the next attempt may have grown beyond a minute.
    let restored = || async {
        let object = scene.get(&widget).await;
        if object["spec"]["replicas"] == 7 { Ok(()) } else { Err(object["spec"].to_string()) }
    };
    eventually("the next attempt restores it", SOON * 5, restored).await;
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_refused_by_stricter_schema_is_recreated_once_allowed() {
    let (definition, scene, guard) = repaired("stricter", "stricter.example.com", "v1").await;
    let widget = definition.widget(&scene, "v1");
    guard.pause();
    scene.edit(&widget, json!({"spec": {"replicas": 2}})).await;
    definition.set_maximum(&scene, 5).await;
    scene.alice.delete(&widget).await.done().unwrap();
    guard.resume();
    let refused = |status: &Value| status["drifts"].to_string().contains("less than or equal to 5");
    let status = scene.status("why", refused).await;
    assert_eq!(status["drifts"][0]["type"], "missing", "{status}");
    let mut version = definition.version("v1", true);
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"]["maximum"] =
        json!(9);
    definition.set_versions(&[version]).await;
    scene.wait_for_value(&widget, "/spec/replicas", json!(7)).await;
    scene.wait_for_reason("InSync").await;
    let revisions = scene.helm.history(&scene.namespace, RELEASE).await.unwrap();
    assert_eq!(revisions.as_array().unwrap().len(), 1);
}
