use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use crate::diff::ObjectComparison;
use crate::edit::{DryRunEvidence, Edit, ObjectContext, ObjectOwner};
use crate::judge::finding;
use crate::revert::*;
use crate::sample_releases::{deployed, second};
use crate::sample_values::deployment;
use kubemoor_declare::model::{Actor, DriftMode, EditsMode, Operation};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::state::current_claim;

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, template: {spec: {containers: [{name: app, image: "app:1", env: [{name: A, value: "1"}, {name: B, value: "2"}]}]}}}
"#;

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {password: planted}
";

fn id(group: &str, kind: &str) -> ObjectId {
    let namespace = Some("shop".into());
    ObjectId { group: group.into(), kind: kind.into(), namespace, name: "web".into() }
}

fn deployment_id() -> ObjectId {
    id("apps", "Deployment")
}

fn policy() -> Policy {
    Policy::new(EditsMode::Revert, DriftMode::Report, Duration::from_secs(3600))
}

/// The object as Helm left it.
fn live() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "resourceVersion": "7",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "app", "image": "app:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        ]}}},
    })
}

/// The object with these values at these pointers; null removes.
fn edited(edits: &[(&str, Value)]) -> Value {
    let mut object = live();
    for (pointer, value) in edits {
        let (above, name) = pointer.rsplit_once('/').unwrap();
        let name = &name.replace("~1", "/");
        match object.pointer_mut(above).unwrap() {
            Value::Array(items) if name == "-" => items.push(value.clone()),
            above @ Value::Array(_) => above[name.parse::<usize>().unwrap()] = value.clone(),
            above if value.is_null() => drop(above.as_object_mut().unwrap().remove(name)),
            above => above[name] = value.clone(),
        }
    }
    object
}

/// What the edit changes, compared with the nearest manifest of the release.
fn diff(object: &ObjectId, release: &Release, policy: &Policy, old: &Value, new: &Value) -> Diff {
    let now = "2026-05-01T12:05:00Z".parse().unwrap();
    let standing = &current_claim(release, object, policy.operation_timeout, now).unwrap();
    let (actor, circumstances) = (&Actor::default(), &ObjectContext::default());
    let edit = Edit {
        operation: Operation::Update,
        actor,
        object,
        old: Some(old),
        new: Some(new),
        version: None,
        scale: false,
        owner: ObjectOwner::Unknown,
        dry_run: false,
        field_manager: "",
        circumstances,
    };
    let of = |declared: &&Arc<DeclaredObject>| {
        let (evidence, seal) = (DryRunEvidence::None, &policy.rules(object, declared).sealed);
        ObjectComparison { object, claim: standing, declared, circumstances, evidence, seal }
            .of_edit(&edit, new)
    };
    standing.alternatives.iter().map(of).min_by_key(|diff| diff.changes.len()).unwrap()
}

/// What a verdict would find of it.
fn findings(object: &ObjectId, diff: &Diff) -> Vec<FieldFinding> {
    diff.changes.iter().map(|it| finding(object, it, &diff.fields)).collect()
}

fn found(object: &ObjectId, release: &Release, old: &Value, new: &Value) -> Vec<FieldFinding> {
    findings(object, &diff(object, release, &policy(), old, new))
}

fn planned(
    object: &ObjectId,
    release: &Release,
    old: &Value,
    new: &Value,
) -> Result<RevertPlan, RevertError> {
    let diff = diff(object, release, &policy(), old, new);
    let edit = WholeEdit { object, old, new, field_manager: "kubectl-edit", settled: None };
    plan(edit, release, &policy(), &diff, &findings(object, &diff))
}

fn applied(plan: &RevertPlan, new: &Value) -> Value {
    let mut result = new.clone();
    json_patch::patch(&mut result, &plan.patch).unwrap();
    result
}

const CONTAINER: &str = "/spec/template/spec/containers/0";

#[test]
fn drifted_fields_are_reverted_and_other_changes_stay() {
    let release = deployed(MANIFEST);
    let check = |edits: &[(&str, Value)], left: &[(&str, Value)]| {
        let new = edited(edits);
        let plan = planned(&deployment_id(), &release, &live(), &new).unwrap();
        let result = applied(&plan, &new);
        assert_eq!(result, edited(left), "{edits:?}");
        assert_eq!(found(&deployment_id(), &release, &live(), &result), []);
    };
    let mine = || ("/metadata/annotations/mine", json!("yes"));
    let at = |field: &str| format!("{CONTAINER}/{field}");
    let (image, env) = (at("image"), at("env"));
    check(&[("/spec/replicas", json!(5)), mine()], &[mine()]);
    check(&[("/spec/replicas", json!(null)), mine()], &[mine()]);
    check(&[(&image, json!("mine:1")), mine()], &[mine()]);
    check(
        &[("/metadata/labels", json!({"mine": "yes"}))],
        &[("/metadata/labels", json!({"mine": "yes", "app.kubernetes.io/managed-by": "Helm"}))],
    );
    let variables = json!([{"name": "B", "value": "2"}, {"name": "C"}, {"name": "A", "value": "3"}]);
    let left = json!([{"name": "A", "value": "1"}, {"name": "C"}, {"name": "B", "value": "2"}]);
    check(&[(&env, variables)], &[(&env, left)]);
    // Doubled, or under other names: their places say nothing before they are back.
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    for variables in [
        json!([variable("B", "2"), variable("B", "2"), variable("A", "1")]),
        json!([variable("D", "2"), variable("C", "1")]),
    ] {
        check(&[(&env, variables), mine()], &[mine()]);
    }
    let sidecar = json!([{"name": "mine"}]);
    let both = json!([live().pointer(CONTAINER).unwrap(), {"name": "mine"}]);
    check(&[("/spec/template/spec/containers", sidecar)], &[("/spec/template/spec/containers", both)]);
    // What is sealed.
    check(&[("/spec/paused", json!(true)), mine()], &[mine()]);
    check(&[("/metadata/annotations/helm.sh~1resource-policy", json!("keep")), mine()], &[mine()]);
    check(&[("/metadata/ownerReferences", json!([{"uid": "1"}])), mine()], &[mine()]);
}

#[test]
fn field_that_excludes_a_declared_one_is_reverted_with_it() {
    let manifest = MANIFEST.replace(
        "env: [",
        "livenessProbe: {httpGet: {path: /, port: 80}}, resources: {limits: {memory: 1Gi}}, env: [{name: E, value: \"\"}, ",
    );
    let manifest = manifest.replace(
        "template: {spec: {",
        "strategy: {type: Recreate}, template: {spec: {volumes: [{name: v, configMap: {name: c}}], ",
    );
    let release = deployed(&manifest);
    let mut old = live();
    old["spec"]["strategy"] = json!({"type": "Recreate"});
    old["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "v", "configMap": {"name": "c", "defaultMode": 420}}]);
    let app = &mut old["spec"]["template"]["spec"]["containers"][0];
    app["livenessProbe"] = json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP", "httpHeaders": [{"name": "a", "value": "b"}]}});
    app["resources"] = json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "500Mi"}});
    app["env"] = json!([{"name": "E"}, {"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    let source = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}});
    let at = |field: &str| format!("{CONTAINER}/{field}");
    for edits in [
        vec![(
            "/spec/strategy".to_owned(),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
        )],
        vec![("/spec/template/spec/volumes/0".to_owned(), json!({"name": "v", "emptyDir": {}}))],
        vec![(at("livenessProbe"), json!({"exec": {"command": ["x"]}}))],
        vec![(at("env/0"), json!({"name": "E", "valueFrom": source}))],
        vec![(at("env/1"), json!({"name": "A", "valueFrom": source}))],
        vec![(at("resources"), json!({"limits": {"memory": "9Gi"}, "requests": {"memory": "8Gi"}}))],
    ] {
        let mut new = old.clone();
        for (pointer, value) in &edits {
            *new.pointer_mut(pointer).unwrap() = value.clone();
        }
        let refused = planned(&deployment_id(), &release, &old, &new);
        assert_eq!(refused, Err(RevertError::NothingRemains), "{edits:?}");
        new["metadata"]["labels"]["mine"] = json!("yes");
        let plan = planned(&deployment_id(), &release, &old, &new).unwrap();
        let mut left = old.clone();
        left["metadata"]["labels"]["mine"] = json!("yes");
        assert_eq!(applied(&plan, &new), left, "{edits:?}");
    }
}

#[test]
fn element_with_name_of_a_declared_one_is_reverted_with_it() {
    let port = |name: &str, protocol: &str| json!({"name": name, "port": 80, "protocol": protocol});
    let service = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": live()["metadata"], "spec": {"ports": ports}});
    let old = service(json!([port("dns", "TCP")]));
    let manifest =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": old["spec"]});
    let (release, object) = (deployed(&manifest.to_string()), id("", "Service"));
    let new = service(json!([port("mine", "TCP"), port("dns", "UDP")]));
    assert_eq!(planned(&object, &release, &old, &new), Err(RevertError::NothingRemains));
    let new = service(json!([port("mine", "TCP"), port("dns", "UDP"), port("other", "SCTP")]));
    let plan = planned(&object, &release, &old, &new).unwrap();
    assert_eq!(applied(&plan, &new), service(json!([port("dns", "TCP"), port("other", "SCTP")])));
}

#[test]
fn an_owner_from_before_stays_when_a_new_one_goes() {
    let release = deployed(MANIFEST);
    let mut old = live();
    old["metadata"]["ownerReferences"] = json!([{"uid": "1"}, {"uid": "2"}]);
    let mut new = old.clone();
    new["metadata"]["ownerReferences"] = json!([{"uid": "3"}, {"uid": "2", "controller": true}]);
    let plan = planned(&deployment_id(), &release, &old, &new).unwrap();
    let left = json!([{"uid": "2", "controller": true}]);
    assert_eq!(applied(&plan, &new)["metadata"]["ownerReferences"], left);
    // One of another name is another owner under the same uid.
    let mut renamed = old.clone();
    renamed["metadata"]["ownerReferences"] = json!([{"uid": "1", "name": "gone"}, {"uid": "2"}]);
    renamed["metadata"]["labels"]["mine"] = json!("yes");
    let plan = planned(&deployment_id(), &release, &old, &renamed).unwrap();
    assert_eq!(applied(&plan, &renamed)["metadata"]["ownerReferences"], old["metadata"]["ownerReferences"]);
}

#[test]
fn owner_that_was_renamed_under_its_uid_gets_its_name_again() {
    let release = deployed(MANIFEST);
    let mut old = live();
    old["metadata"]["ownerReferences"] =
        json!([{"kind": "ConfigMap", "name": "a", "uid": "1"}, {"uid": "2"}]);
    let mut new = old.clone();
    new["metadata"]["ownerReferences"][0]["name"] = json!("b");
    new["spec"]["template"]["metadata"] = json!({"labels": {"mine": "yes"}});
    let plan = planned(&deployment_id(), &release, &old, &new).unwrap();
    let applied = applied(&plan, &new);
    assert_eq!(applied["metadata"]["ownerReferences"], old["metadata"]["ownerReferences"]);
    assert_eq!(applied["spec"]["template"]["metadata"], new["spec"]["template"]["metadata"]);
}

#[test]
fn an_edit_of_which_nothing_remains_is_refused() {
    let release = deployed(MANIFEST);
    let check = |edits: &[(&str, Value)]| {
        let new = edited(edits);
        let refused = planned(&deployment_id(), &release, &live(), &new);
        assert_eq!(refused, Err(RevertError::NothingRemains), "{edits:?}");
    };
    let applied = json!({"spec": {"replicas": 5}}).to_string();
    check(&[("/spec/replicas", json!(5))]);
    check(&[("/spec/paused", json!(true))]);
    check(&[("/spec/replicas", json!(5)), ("/metadata/resourceVersion", json!(null))]);
    check(&[("/spec/replicas", json!(5)), ("/metadata/generation", json!(3)), ("/spec/paused", json!(true))]);
    check(&[
        ("/spec/replicas", json!(5)),
        ("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration", json!(applied)),
    ]);
}

#[test]
fn revert_lists_reverted_fields_with_both_values() {
    let release = deployed(MANIFEST);
    let image = format!("{CONTAINER}/image");
    let new = edited(&[
        ("/spec/replicas", json!(null)),
        (&image, json!("mine:1")),
        ("/spec/minReadySeconds", json!(3)),
    ]);
    let plan = planned(&deployment_id(), &release, &live(), &new).unwrap();
    let told: Vec<_> = plan
        .set_back
        .iter()
        .map(|field| {
            let text = |value: &Option<Shown>| value.as_ref().map(ToString::to_string);
            (field.path.to_string(), text(&field.wanted), text(&field.now))
        })
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        told,
        [
            ("/spec/replicas".to_owned(), None, text("2")),
            (
                "/spec/template/spec/containers/[name=app]/image".to_owned(),
                text("\"mine:1\""),
                text("\"app:1\"")
            ),
        ]
    );
}

#[test]
fn a_secret_s_values_are_patched_and_never_told() {
    let release = deployed(SECRET);
    let (old, new) = (
        json!({"metadata": live()["metadata"], "data": {"password": "cGxhbnRlZA=="}}),
        json!({"metadata": live()["metadata"], "data": {"password": "bWluZQ==", "mine": "eA=="}}),
    );
    let plan = planned(&id("", "Secret"), &release, &old, &new).unwrap();
    assert_eq!(applied(&plan, &new)["data"], json!({"password": "cGxhbnRlZA==", "mine": "eA=="}));
    let debug = format!("{plan:?}");
    assert!(debug.contains("(redacted)") && !debug.contains("cGxh") && !debug.contains("bWluZ"), "{debug}");
}

#[test]
fn revert_leaves_ignored_fields_unchanged() {
    let release = deployed(MANIFEST);
    let text = "{edits: Revert, ignore: [{paths: ['/spec/template/spec/containers/[name=app]/image', '/metadata/annotations/mine']}]}";
    let policy = ignoring(text);
    let mut old = live();
    // An image updater had been here.
    old["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:7");
    let check = |new: Value, result: Value| {
        let object = deployment_id();
        let diff = diff(&object, &release, &policy, &old, &new);
        let mut findings = findings(&object, &diff);
        findings.retain(|finding| !finding.path.to_string().ends_with("/image"));
        let edit = WholeEdit { object: &object, old: &old, new: &new, field_manager: "", settled: None };
        let plan = plan(edit, &release, &policy, &diff, &findings).unwrap();
        assert_eq!(applied(&plan, &new), result);
    };
    // With a container that comes back comes what the updater made of it.
    let mut gone = old.clone();
    gone["spec"]["template"]["spec"]["containers"] = json!([{"name": "mine"}]);
    let mut back = old.clone();
    back["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "mine"}));
    check(gone, back);
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(5);
    new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:8");
    let mut left = new.clone();
    left["spec"]["replicas"] = json!(2);
    check(new, left);
}

/// Whoever forges a record declares what others are to write: an edit of theirs is refused, and never completed.
#[test]
fn no_value_is_written_that_was_neither_there_nor_sent() {
    let forged = deployed(&MANIFEST.replace("app:1", "evil:1").replace("replicas: 2", "replicas: 0"));
    let object = deployment_id();
    let (image, mine) = (format!("{CONTAINER}/image"), ("/metadata/annotations/mine", json!("yes")));
    let check = |edits: &[(&str, Value)]| {
        let new = edited(&[edits, std::slice::from_ref(&mine)].concat());
        assert_eq!(planned(&object, &forged, &live(), &new), Err(RevertError::Drifted), "{edits:?}");
    };
    check(&[(&image, json!("app:2"))]);
    check(&[("/spec/replicas", json!(5))]);
    check(&[("/spec/replicas", json!(null))]);
    // Beside it, what was as declared goes back as ever, and so does a whole container.
    let check = |edit: (&str, Value)| {
        let new = edited(&[edit, mine.clone()]);
        let plan = planned(&object, &forged, &live(), &new).unwrap();
        assert_eq!(applied(&plan, &new), edited(std::slice::from_ref(&mine)));
    };
    check(("/metadata/labels", json!({})));
    check(("/spec/template/spec/containers", json!([])));
    // One that was never there does not come.
    let forged = MANIFEST.replace("containers:", "initContainers: [{name: evil, image: evil}], containers:");
    let new = edited(&[
        ("/spec/template/spec/initContainers", json!([{"name": "evil", "image": "mine"}])),
        mine.clone(),
    ]);
    assert_eq!(planned(&object, &deployed(&forged), &live(), &new), Err(RevertError::Drifted));
}

fn ignoring(spec: &str) -> Policy {
    let text = format!(
        "{{apiVersion: kubemoor.dev/v1alpha1, kind: DriftPolicy, metadata: {{name: p}}, spec: {spec}}}"
    );
    let resource = serde_saphyr::from_str(&text).unwrap();
    let compiled = kubemoor_policy::compile::compile(&resource).unwrap();
    let labels = std::collections::BTreeMap::new();
    let policies = kubemoor_policy::resolver::Policies::new(policy(), &labels, [Arc::new(compiled)]);
    let release = kubemoor_declare::model::ReleaseId { namespace: "shop".into(), name: "web".into() };
    policies.resolve(&release, &labels)
}

#[test]
fn edit_with_too_many_drifting_fields_is_not_reverted() {
    let release = deployed(MANIFEST);
    let (old, new) = (live(), edited(&[("/spec/replicas", json!(5)), ("/spec/minReadySeconds", json!(3))]));
    let object = deployment_id();
    let diff = diff(&object, &release, &policy(), &old, &new);
    let found = findings(&object, &diff);
    let edit = WholeEdit { object: &object, old: &old, new: &new, field_manager: "", settled: None };
    let many: Vec<FieldFinding> = found.iter().cycle().take(MAX_FINDINGS + 1).cloned().collect();
    assert_eq!(plan(edit, &release, &policy(), &diff, &many), Err(RevertError::TooMuch));
}

#[test]
fn revert_after_failed_operation_restores_the_judged_manifest() {
    let failed = MANIFEST.replace("app:1", "app:2");
    let release = second(ReleaseStatus::Failed, &failed, MANIFEST);
    let (object, old) = (deployment_id(), live());
    let new = edited(&[("/spec/replicas", json!(5)), ("/spec/minReadySeconds", json!(3))]);
    let plan = planned(&object, &release, &old, &new).unwrap();
    assert_eq!(applied(&plan, &new), edited(&[("/spec/minReadySeconds", json!(3))]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_plan_leaves_nothing_to_be_set_back(
        declared in deployment(),
        other in proptest::option::weighted(0.3, deployment()),
        new in deployment(),
    ) {
        let mut declared = declared;
        declared["metadata"]["name"] = json!("web");
        let release = deployed(&declared.to_string());
        let object = deployment_id();
        prop_assume!(release.declared(&object).is_some());
        let old = other.unwrap_or_else(|| declared.clone());
        let mut new = new;
        new["metadata"]["annotations"]["mine"] = json!("yes");
        let found = found(&object, &release, &old, &new);
        let plan = match planned(&object, &release, &old, &new) {
            Err(RevertError::Drifted) => {
                prop_assert!(!release.declared(&object).unwrap().fields().drift(&old).is_empty());
                return Ok(());
            }
            plan => plan.unwrap(),
        };
        let result = applied(&plan, &new);
        if !crate::sample_values::has_doubled_keys(&old) {
            prop_assert_eq!(super::tests::found(&object, &release, &old, &result), Vec::new());
        }
        prop_assert_eq!(&result["metadata"]["annotations"]["mine"], "yes");
        prop_assert_eq!(found.is_empty(), plan.set_back.is_empty());
        if found.is_empty() {
            prop_assert!(plan.patch.0.is_empty());
        }
    }
}

#[test]
fn addition_below_sealed_path_is_reverted_and_other_changes_stay() {
    let (release, object) = (deployed(MANIFEST), deployment_id());
    let sealed = crate::sample_policies::policy("p", "{seal: [{paths: [/spec]}]}");
    let resolver =
        kubemoor_policy::resolver::PolicyResolver::of_policies(crate::sample_policies::policies([sealed]));
    let policy = resolver.policy(&release.id);
    let check = |edits: &[(&str, Value)], left: Option<&[(&str, Value)]>| {
        let (old, new) = (live(), edited(edits));
        let diff = diff(&object, &release, &policy, &old, &new);
        let edit =
            WholeEdit { object: &object, old: &old, new: &new, settled: None, field_manager: "kubectl-edit" };
        let result = plan(edit, &release, &policy, &diff, &findings(&object, &diff));
        let result = result.map(|plan| applied(&plan, &new));
        assert_eq!(result, left.map(edited).ok_or(RevertError::NothingRemains), "{edits:?}");
    };
    let side = || ("/spec/template/spec/containers/-", json!({"name": "side", "image": "s:1"}));
    let (pid, mine) =
        (("/spec/template/spec/hostPID", json!(true)), || ("/metadata/annotations/mine", json!("yes")));
    check(&[side(), pid, mine()], Some(&[mine()]));
    check(&[(&format!("{CONTAINER}/env/-"), json!({"name": "C"})), mine()], Some(&[mine()]));
    check(&[side()], None);
}
