use std::time::Duration;

use serde_json::json;

use crate::diff::of_fields;
use crate::drift::*;
use crate::edit::FieldFinding;
use crate::sample_policies::{policies, policy};
use crate::sample_releases::{SampleRecord, assembled, deployed, second};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::declare::declare;
use kubemoor_declare::model::{Autoscaler, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::Release;
use kubemoor_helm::state;
use kubemoor_policy::resolver::Labels;

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, template: {spec: {tolerations: [{operator: Exists}], containers: [{name: app, image: "app:1"}]}}}
"#;

const IMAGE: &str = "/spec/template/spec/containers/0/image";
const IMAGE_PATH: &str = "/spec/template/spec/containers/[name=app]/image";
const TOLERATIONS: &str = "/spec/template/spec/tolerations";

/// A live object held against a release; what a case does not say is as the
/// deployed release left it, without policies.
struct DriftCase<'a> {
    object: ObjectId,
    release: Release,
    live: Option<Value>,
    /// The spec of the policy.
    policy: &'a str,
    circumstances: ObjectContext,
    evidence: DryRunEvidence<'a>,
}

impl Default for DriftCase<'_> {
    fn default() -> Self {
        Self {
            object: ObjectId::namespaced("apps", "Deployment", "shop", "web"),
            release: deployed(MANIFEST),
            live: Some(live(&[])),
            policy: "{}",
            circumstances: ObjectContext::default(),
            evidence: DryRunEvidence::None,
        }
    }
}

fn live(changes: &[(&str, Value)]) -> Value {
    let mut live = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}},
        "spec": {"replicas": 2, "template": {"spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": "app:1", "imagePullPolicy": "Always"}]}}},
    });
    for (pointer, value) in changes {
        *live.pointer_mut(pointer).unwrap() = value.clone();
    }
    live
}

/// The same with so many replicas.
fn scaled(replicas: i64) -> Option<Value> {
    Some(live(&[("/spec/replicas", json!(replicas))]))
}

/// Passes on how the object stands; `None` if it is not declared.
fn compared<R>(case: &DriftCase<'_>, then: impl FnOnce(Option<LiveVerdict<'_>>) -> R) -> R {
    let object = case.object.clone();
    let now = "2026-05-01T12:05:00Z".parse().unwrap();
    let id = ReleaseId { namespace: "shop".into(), name: "web".into() };
    let policy = policies([policy("p", case.policy)]).resolve(&id, &Labels::new());
    let hour = Duration::from_secs(3600);
    let Some(standing) = state::current_claim(&case.release, &object, hour, now) else {
        return then(None);
    };
    let subject = DriftContext {
        object: &object,
        claim: &standing,
        policy: &policy,
        circumstances: &case.circumstances,
        now,
    };
    then(Some(compare(&subject, case.live.as_ref(), case.evidence)))
}

/// How the object stands, in words; of a drift the paths, those in doubt with a
/// question mark.
fn stands(case: &DriftCase<'_>) -> String {
    compared(case, |live| live.map_or_else(|| "not declared".to_owned(), |live| in_words(&case.object, live)))
}

fn in_words(object: &ObjectId, live: LiveVerdict<'_>) -> String {
    match live {
        LiveVerdict::OptedOut => "opted out".to_owned(),
        LiveVerdict::BeingDeleted => "being deleted".to_owned(),
        LiveVerdict::NotCreated => "awaited".to_owned(),
        LiveVerdict::Dropped => "dropped".to_owned(),
        LiveVerdict::Allowed => "allowed".to_owned(),
        LiveVerdict::Expired => "expired".to_owned(),
        LiveVerdict::Missing => "missing".to_owned(),
        LiveVerdict::AsDeclared(agreed) => {
            let has_additions = agreed.as_ref().is_some_and(|agreed| agreed.has_additions);
            let spared = agreed.map(|agreed| agreed.excepted_paths).unwrap_or_default();
            let spared: Vec<String> = spared.iter().map(ToString::to_string).collect();
            if has_additions {
                "as declared with additions".to_owned()
            } else if spared.is_empty() {
                "as declared".to_owned()
            } else {
                format!("as declared but {}", spared.join(" "))
            }
        }
        LiveVerdict::MatchesPrevious => "as before".to_owned(),
        LiveVerdict::Drifted(drift) => {
            let found: Vec<_> =
                drift.changes.iter().map(|change| FieldFinding::of_change(object, change)).collect();
            assert_eq!(drift.is_doubt(), found.iter().all(|it| it.in_doubt));
            assert_eq!(drift.has_doubt(), found.iter().any(|it| it.in_doubt));
            let shown = |it: &FieldFinding| format!("{}{}", it.path, if it.in_doubt { "?" } else { "" });
            found.iter().map(shown).collect::<Vec<_>>().join(" ")
        }
    }
}

#[track_caller]
fn check(case: DriftCase<'_>, expected: &str) {
    assert_eq!(stands(&case), expected);
}

/// The deployed release with these changes, under this policy.
fn changed<'a>(changes: &[(&str, Value)], policy: &'a str) -> DriftCase<'a> {
    DriftCase { live: Some(live(changes)), policy, ..DriftCase::default() }
}

#[test]
fn only_declared_fields_drift_and_only_by_their_meaning() {
    check(DriftCase::default(), "as declared");
    check(DriftCase { live: scaled(3), ..DriftCase::default() }, "/spec/replicas");
    check(changed(&[(IMAGE, json!("app:2"))], "{}"), IMAGE_PATH);
    let pull = "/spec/template/spec/containers/0/imagePullPolicy";
    check(changed(&[(pull, json!("Never"))], "{}"), "as declared");
    let label = "/metadata/labels/app.kubernetes.io~1managed-by";
    check(changed(&[(label, json!("me"))], "{}"), label);
    check(DriftCase { live: None, ..DriftCase::default() }, "missing");
    check(DriftCase { release: deployed(""), ..DriftCase::default() }, "not declared");
    let uninstalled =
        SampleRecord { manifest: MANIFEST, status: ReleaseStatus::Uninstalled, ..SampleRecord::default() };
    check(DriftCase { release: assembled(uninstalled, None), ..DriftCase::default() }, "not declared");
}

#[test]
fn ignored_or_allowed_fields_are_not_drift() {
    let changes = [("/spec/replicas", json!(3)), (IMAGE, json!("app:2"))];
    check(changed(&changes, "ignore: [{paths: [/spec/replicas]}]"), IMAGE_PATH);
    // What differs all the same is not seen to agree.
    let both = format!("as declared but /spec/replicas {IMAGE_PATH}");
    let element = "ignore: [{paths: ['/spec/template/spec/containers/[name=app]']}]";
    check(changed(&changes, element), "/spec/replicas");
    check(changed(&changes, "ignore: [{paths: ['*']}]"), &both);
    check(changed(&changes, "allow: [{name: a, paths: ['*']}]"), &both);
    // Whom an allowance is for counts for an edit; who made a change is not known.
    let for_bob = "allow: [{name: a, paths: [/spec/replicas], subjects: [{kind: User, name: bob}]}]";
    check(changed(&changes, for_bob), IMAGE_PATH);
    let closed = "allow: [{name: a, paths: ['*'], \
                  schedule: {cron: '0 3 * * *', duration: 1h, timeZone: Europe/Berlin}}]";
    check(changed(&changes, closed), "/spec/replicas /spec/template/spec/containers/[name=app]/image");
    let gone = "allow: [{name: a, paths: [delete]}]";
    check(DriftCase { live: None, policy: gone, ..DriftCase::default() }, "allowed");
    check(
        DriftCase { live: None, policy: "allow: [{name: a, paths: ['*']}]", ..DriftCase::default() },
        "missing",
    );
}

#[test]
fn fields_that_an_allowance_permits_are_told_with_their_values() {
    let changes = [("/spec/replicas", json!(3)), (IMAGE, json!("app:2"))];
    let policy = "{allow: [{name: a, paths: [/spec/replicas]}], ignore: [{paths: ['/spec/template/*']}]}";
    let permitted = compared(&changed(&changes, policy), |live| match live {
        Some(LiveVerdict::AsDeclared(Some(agreed))) => agreed.permitted,
        other => panic!("{other:?}"),
    });
    let told: Vec<_> =
        permitted.iter().map(|it| (it.path.to_string(), it.declared.clone(), it.new.clone())).collect();
    assert_eq!(told, [("/spec/replicas".to_owned(), Some(json!(2)), Some(json!(3)))]);
    let annotations = json!({
        "meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop", "helm.sh/resource-policy": "keep",
    });
    let sealed = [("/metadata/annotations", annotations)];
    let permitted = compared(&changed(&sealed, "allow: [{name: a, paths: ['*']}]"), |live| match live {
        Some(LiveVerdict::AsDeclared(Some(agreed))) => agreed.permitted,
        other => panic!("{other:?}"),
    });
    assert_eq!(permitted.iter().map(|it| it.new.clone()).collect::<Vec<_>>(), [Some(json!("keep"))]);
}

#[test]
fn ignored_part_of_an_atomic_value_is_not_drift() {
    let operator = "ignore: [{paths: [/spec/template/spec/tolerations/*/operator]}]";
    let key = "ignore: [{paths: [/spec/template/spec/tolerations/*/key]}]";
    let live = [(TOLERATIONS, json!([{"operator": "Equal"}]))];
    check(changed(&live, operator), &format!("as declared but {TOLERATIONS}"));
    check(changed(&live, key), TOLERATIONS);
}

#[test]
fn autoscaled_replicas_are_not_drift_unless_autoscaler_rests_at_zero() {
    let local = ReleaseId { namespace: "shop".into(), name: "any".into() };
    let scaler = |minimum, maximum, by_keda, declared: bool| ObjectContext {
        autoscalers: vec![Autoscaler {
            minimum,
            maximum,
            by_keda,
            declared_by: declared.then(|| local.clone()).into_iter().collect(),
        }],
        ..ObjectContext::default()
    };
    let of = |replicas, policy: &'static str, circumstances| DriftCase {
        live: scaled(replicas),
        policy,
        circumstances,
        ..DriftCase::default()
    };
    check(of(3, "{}", scaler(3, 6, false, false)), "as declared but /spec/replicas");
    check(of(6, "{}", scaler(3, 6, false, false)), "as declared but /spec/replicas");
    // Outside of a range that was just changed the autoscaler brings them in by itself.
    check(of(7, "{}", scaler(3, 6, false, false)), "as declared but /spec/replicas");
    check(of(1, "{}", scaler(3, 6, false, false)), "as declared but /spec/replicas");
    // But not from zero, where it rests, unless zero is one of its counts.
    check(of(0, "{}", scaler(3, 6, false, false)), "/spec/replicas");
    check(of(0, "{}", scaler(0, 6, false, false)), "as declared but /spec/replicas");
    check(of(0, "{}", scaler(3, 6, true, false)), "as declared but /spec/replicas");
    let only_declared = "autoscalers: Declared";
    check(of(4, only_declared, scaler(3, 6, false, false)), "/spec/replicas");
    check(of(7, only_declared, scaler(3, 6, false, false)), "/spec/replicas");
    check(of(4, only_declared, scaler(3, 6, false, true)), "as declared but /spec/replicas");
    // What an autoscaler left behind stays, however many these are.
    check(
        of(40, "{}", ObjectContext { departed: Some(Default::default()), ..ObjectContext::default() }),
        "as declared but /spec/replicas",
    );
    let image = DriftCase {
        live: Some(live(&[("/spec/replicas", json!(4)), (IMAGE, json!("app:2"))])),
        circumstances: scaler(3, 6, false, false),
        ..DriftCase::default()
    };
    check(image, IMAGE_PATH);
}

#[test]
fn a_doubt_stays_one_until_the_arbiter_has_spoken() {
    // A zero that the API server keeps, because its absence means something else.
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0}\n";
    let mut object = live(&[]);
    object["spec"] = json!({});
    let with = |evidence, expected| {
        let live = Some(object.clone());
        check(DriftCase { release: deployed(manifest), live, evidence, ..DriftCase::default() }, expected);
    };
    for evidence in [DryRunEvidence::None, DryRunEvidence::Nowhere, DryRunEvidence::Unavailable] {
        with(evidence, "/spec/replicas?");
    }
    with(DryRunEvidence::Canonical(&object), "as declared");
    let mut canonical = object.clone();
    canonical["spec"] = json!({"replicas": 0});
    with(DryRunEvidence::Canonical(&canonical), "/spec/replicas");
}

#[test]
fn failed_release_accepts_either_manifest() {
    let of = |live| DriftCase {
        release: second(ReleaseStatus::Failed, MANIFEST, &MANIFEST.replace("app:1", "app:0")),
        live,
        ..DriftCase::default()
    };
    check(of(Some(live(&[]))), "as declared");
    check(of(Some(live(&[(IMAGE, json!("app:0"))]))), "as declared");
    check(of(Some(live(&[(IMAGE, json!("app:9"))]))), IMAGE_PATH);
    check(of(None), "missing");
}

#[test]
fn object_that_failed_operation_did_not_create_is_not_missing() {
    let other = MANIFEST.replace("name: web", "name: other");
    let release = second(ReleaseStatus::Failed, MANIFEST, &other);
    check(DriftCase { release, live: None, ..DriftCase::default() }, "awaited");
}

#[test]
fn absence_of_an_object_that_a_failed_operation_drops_is_no_drift() {
    let other = MANIFEST.replace("name: web", "name: other");
    let of =
        |status, live| DriftCase { release: second(status, &other, MANIFEST), live, ..DriftCase::default() };
    check(of(ReleaseStatus::Failed, None), "dropped");
    check(of(ReleaseStatus::Failed, Some(live(&[]))), "as declared");
    check(of(ReleaseStatus::Failed, scaled(3)), "/spec/replicas");
    check(of(ReleaseStatus::PendingUpgrade, None), "awaited");
    check(of(ReleaseStatus::Deployed, None), "not declared");
}

#[test]
fn pending_operation_accepts_both_manifests_and_objects_not_yet_created() {
    let before = MANIFEST.replace("replicas: 2", "replicas: 1");
    for status in [ReleaseStatus::PendingUpgrade, ReleaseStatus::PendingRollback] {
        let of =
            |live| DriftCase { release: second(status, MANIFEST, &before), live, ..DriftCase::default() };
        check(of(scaled(1)), "as before");
        check(of(scaled(2)), "as declared");
        check(of(scaled(3)), "/spec/replicas");
        check(of(None), "awaited");
    }
    let over = DriftCase {
        release: second(ReleaseStatus::Deployed, MANIFEST, &before),
        live: scaled(1),
        ..DriftCase::default()
    };
    check(over, "/spec/replicas");
}

#[test]
fn an_object_that_is_being_deleted_drifts_like_any_other() {
    let going = |replicas: i64, since: &str, finalizers: Value| {
        let mut going = live(&[("/spec/replicas", json!(replicas))]);
        going["metadata"]["deletionTimestamp"] = json!(since);
        going["metadata"]["finalizers"] = finalizers;
        Some(going)
    };
    let held = || json!(["example.org/hold"]);
    let of = |live| DriftCase { live, ..DriftCase::default() };
    check(of(going(2, "2026-05-01T12:04:00Z", held())), "being deleted");
    check(of(going(3, "2026-05-01T12:04:00Z", held())), "/spec/replicas");
    check(of(going(2, "2026-05-01T11:00:00Z", held())), "/metadata/finalizers");
    check(of(going(3, "2026-05-01T11:00:00Z", held())), "/spec/replicas /metadata/finalizers");
    check(of(going(2, "2026-05-01T11:00:00Z", json!([]))), "being deleted");
    let ignoring = "ignore: [{paths: [/metadata/finalizers, /spec/replicas]}]";
    check(DriftCase { policy: ignoring, ..of(going(3, "2026-05-01T11:00:00Z", held())) }, "being deleted");
    // What the release declares of its finalizers goes first.
    let declared = MANIFEST.replace("{name: web}", "{name: web, finalizers: [example.org/hold]}");
    let leaving =
        DriftCase { release: deployed(&declared), ..of(going(2, "2026-05-01T12:04:00Z", json!([]))) };
    check(leaving, "being deleted");
}

#[test]
fn opted_out_objects_never_drift() {
    let opted_out = MANIFEST.replace("name: web}", "name: web, annotations: {kubemoor.dev/guard: disabled}}");
    let of = |live| DriftCase { release: deployed(&opted_out), live, ..DriftCase::default() };
    check(of(scaled(3)), "opted out");
    check(of(None), "opted out");
}

/// What a manager has applied, as in `managedFields`.
fn owned(manager: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

#[test]
fn value_that_only_helm_has_written_is_in_doubt_unless_an_operation_is_under_way() {
    let annotation = json!({"f:annotations": {"f:meta.helm.sh/release-name": {}}});
    let spec = json!({"f:replicas": {}});
    let written = |managers: Value| {
        let mut live = live(&[("/spec/replicas", json!(7))]);
        live["metadata"]["managedFields"] = managers;
        Some(live)
    };
    let by_helm = written(json!([owned("helm", json!({"f:metadata": annotation, "f:spec": spec}))]));
    let by_me = written(json!([
        owned("helm", json!({"f:metadata": annotation})),
        owned("me", json!({"f:spec": spec})),
    ]));
    let before = MANIFEST.replace("replicas: 2", "replicas: 1");
    let dropped = MANIFEST.replace("name: web", "name: other");
    let first = SampleRecord { manifest: MANIFEST, status: ReleaseStatus::Failed, ..SampleRecord::default() };
    for (release, expected) in [
        (deployed(MANIFEST), "/spec/replicas?"),
        (assembled(first, None), "/spec/replicas?"),
        (second(ReleaseStatus::Failed, MANIFEST, &before), "/spec/replicas?"),
        (second(ReleaseStatus::Failed, &dropped, MANIFEST), "/spec/replicas?"),
        (second(ReleaseStatus::PendingUpgrade, MANIFEST, &before), "/spec/replicas"),
    ] {
        check(
            DriftCase { release: release.clone(), live: by_helm.clone(), ..DriftCase::default() },
            expected,
        );
        check(DriftCase { release, live: by_me.clone(), ..DriftCase::default() }, "/spec/replicas");
    }
}

#[test]
fn missing_field_that_helm_still_owns_is_in_doubt() {
    let annotation = json!({"f:annotations": {"f:meta.helm.sh/release-name": {}}});
    let without = |managers: Value| {
        let mut live = live(&[]);
        live["spec"].as_object_mut().unwrap().remove("replicas");
        live["metadata"]["managedFields"] = managers;
        live
    };
    let case = |managers| DriftCase { live: Some(without(managers)), ..DriftCase::default() };
    let spec = json!({"f:replicas": {}});
    let dropped = || json!([owned("helm", json!({"f:metadata": annotation, "f:spec": spec}))]);
    check(case(dropped()), "/spec/replicas?");
    let canonical = without(json!([]));
    check(DriftCase { evidence: DryRunEvidence::Canonical(&canonical), ..case(dropped()) }, "as declared");
    let kept = live(&[]);
    check(DriftCase { evidence: DryRunEvidence::Canonical(&kept), ..case(dropped()) }, "/spec/replicas");
    // Whoever takes a field away takes it from its owners.
    check(case(json!([owned("helm", json!({"f:metadata": annotation}))])), "/spec/replicas");
    check(case(json!([owned("me", json!({"f:spec": spec}))])), "/spec/replicas");
    check(case(json!([])), "/spec/replicas");
}

#[test]
fn excused_addition_is_told_apart_from_none() {
    let added = [("/metadata/labels", json!({"app.kubernetes.io/managed-by": "Helm", "mine": "yes"}))];
    let sealed = |more: &str| format!("{{seal: [{{paths: [/metadata/labels]}}]{more}}}");
    check(changed(&added, &sealed("")), "/metadata/labels/mine");
    let allowed = sealed(", allow: [{name: a, paths: [/metadata/labels/mine]}]");
    check(changed(&added, &allowed), "as declared with additions");
    check(changed(&[], &allowed), "as declared");
    // An addition that a rule ignores does not count.
    check(changed(&added, &sealed(", ignore: [{paths: [/metadata/labels/mine]}]")), "as declared");
}

#[test]
fn helm_owned_fields_may_be_rewritten_except_rbac_rules() {
    let agreement = |manifest: Value, owned: Value, edited: (&str, Value)| {
        let gvk = kubemoor_helm::release::gvk(&manifest);
        let fields = declare(&manifest, Catalog::with_core().schema(&gvk).as_deref());
        let mut live = manifest;
        live[edited.0] = edited.1;
        let mut set = json!({"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}});
        set.as_object_mut().unwrap().extend(owned.as_object().unwrap().clone());
        live["metadata"]["managedFields"] =
            json!([{"manager": "helm", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": set}]);
        let changes = of_fields(&fields, &live, true);
        changes.into_iter().map(|change| change.agreement).collect::<Vec<_>>()
    };
    let object = |api_version: &str, kind: &str, name: &str, value: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, name: value});
    let config = object("v1", "ConfigMap", "data", json!({"level": "info"}));
    let found = agreement(config, json!({"f:data": {"f:level": {}}}), ("data", json!({"level": "mine"})));
    assert_eq!(found, [FieldAgreement::Doubt]);
    let rules = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    let role = object("rbac.authorization.k8s.io/v1", "Role", "rules", rules("get"));
    assert_eq!(agreement(role, json!({"f:rules": {}}), ("rules", rules("*"))), [FieldAgreement::Differs]);
}

#[test]
fn job_with_a_time_to_live_may_be_missing() {
    let job = |spec: &str| DriftCase {
        object: ObjectId::namespaced("batch", "Job", "shop", "migrate"),
        release: deployed(&format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: migrate}}, spec: {spec}}}"
        )),
        live: None,
        ..DriftCase::default()
    };
    check(job("{ttlSecondsAfterFinished: 100}"), "expired");
    check(job("{ttlSecondsAfterFinished: 0}"), "expired");
    check(job("{ttlSecondsAfterFinished: null}"), "missing");
    check(job("{backoffLimit: 1}"), "missing");
    let allowed = "allow: [{name: a, paths: [delete]}]";
    check(DriftCase { policy: allowed, ..job("{ttlSecondsAfterFinished: 100}") }, "allowed");
    let other =
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {ttlSecondsAfterFinished: 1}}";
    check(DriftCase { release: deployed(other), live: None, ..DriftCase::default() }, "missing");
}

#[test]
fn empty_secret_values_may_be_filled_where_the_release_has_an_account() {
    const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: certs}
data: {tls.crt: '', tls.key: , ca: YQ==}
---
";
    const ACCOUNT: &str = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: rotator}}";
    let case = |manifest: &str, data: Value| {
        let mut live = live(&[]);
        live.as_object_mut().unwrap().remove("spec");
        live["data"] = data;
        let object = ObjectId::namespaced("", "Secret", "shop", "certs");
        DriftCase { object, release: deployed(manifest), live: Some(live), ..DriftCase::default() }
    };
    let with = format!("{SECRET}{ACCOUNT}");
    let empty = || json!({"tls.crt": "", "tls.key": "", "ca": "YQ=="});
    let filled = || json!({"tls.crt": "Yg==", "tls.key": "Yw==", "ca": "YQ=="});
    check(case(&with, empty()), "as declared");
    check(case(&with, filled()), "as declared but /data/tls.crt /data/tls.key");
    check(case(SECRET, filled()), "/data/tls.crt /data/tls.key");
    check(case(&with, json!({"tls.crt": "Yg==", "tls.key": "", "ca": "eA=="})), "/data/ca");
    check(case(&with, json!({"tls.crt": "", "ca": "YQ=="})), "/data/tls.key");
}

#[test]
fn excluding_field_is_in_doubt_only_if_nobody_set_it() {
    let manifest = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": {"minAvailable": 1}});
    let gvk = kubemoor_helm::release::gvk(&manifest);
    let fields = declare(&manifest, Catalog::with_core().schema(&gvk).as_deref());
    let agreement = |managers: &[(&str, Value)]| {
        let owned = |(name, spec): &(&str, Value)| {
            owned(
                name,
                json!({"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}, "f:spec": spec}),
            )
        };
        let live = json!({
            "metadata": {"managedFields": managers.iter().map(owned).collect::<Vec<_>>()},
            "spec": {"maxUnavailable": 1},
        });
        of_fields(&fields, &live, true).into_iter().map(|change| change.agreement).collect::<Vec<_>>()
    };
    let declared = json!({"f:minAvailable": {}});
    assert_eq!(agreement(&[("helm", declared)]), [FieldAgreement::Doubt]);
    assert_eq!(agreement(&[("helm", json!({"f:replicas": {}}))]), [FieldAgreement::Altered]);
    assert_eq!(agreement(&[]), [FieldAgreement::Altered]);
}

#[test]
fn refusal_because_of_the_live_object_settles_doubts_unless_a_change_is_certain() {
    let change = |agreement| FieldChange {
        path: "/spec/a".parse().unwrap(),
        declared: None,
        old: None,
        new: None,
        agreement,
    };
    for (before, after) in [
        (
            vec![FieldAgreement::Doubt, FieldAgreement::Doubt],
            vec![FieldAgreement::Differs, FieldAgreement::Differs],
        ),
        (
            vec![FieldAgreement::Doubt, FieldAgreement::Altered],
            vec![FieldAgreement::Doubt, FieldAgreement::Altered],
        ),
    ] {
        let mut changes: Vec<_> = before.into_iter().map(change).collect();
        settle_obstructed(&mut changes);
        assert_eq!(changes.iter().map(|it| it.agreement).collect::<Vec<_>>(), after);
    }
}
