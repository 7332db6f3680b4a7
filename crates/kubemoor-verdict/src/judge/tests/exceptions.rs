//! What policies ignore, exempt and allow, and what autoscalers do.

use super::*;
use kubemoor_declare::model::Autoscaler;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resource::DriftAllowance;

const ALICE: &str = "alice";
const HPA: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
const KEDA: &str = "system:serviceaccount:keda:keda-operator";

fn scaling<'a>(policy: &'a str, replicas: u32) -> JudgeCase<'a> {
    JudgeCase { policy, new: scaled(replicas), ..JudgeCase::default() }
}

fn deleting<'a>(policy: &'a str) -> JudgeCase<'a> {
    JudgeCase { policy, operation: Operation::Delete, new: None, ..JudgeCase::default() }
}

/// An allowance in `namespace` for `Deployment/web` until noon plus ten.
fn allowance(namespace: &str, paths: &[&str]) -> ObjectContext {
    let resource: DriftAllowance = serde_json::from_value(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
        "metadata": {"name": "a", "namespace": namespace, "creationTimestamp": "2026-05-01T12:00:00Z"},
        "spec": {
            "object": {"group": "apps", "kind": "Deployment", "name": "web"},
            "paths": paths, "until": "2026-05-01T12:10:00Z", "reason": "INC-1",
            "requestedBy": {"user": "bob", "groups": []},
        },
    }))
    .unwrap();
    let allowance = Allowance::compile(&resource).unwrap();
    ObjectContext { allowances: vec![Arc::new(allowance)], ..ObjectContext::default() }
}

/// A release of the object's namespace, if any declares it.
fn declaring(declared: bool) -> Vec<ReleaseId> {
    let local = ReleaseId { namespace: "shop".into(), name: "any".into() };
    declared.then_some(local).into_iter().collect()
}

fn autoscaler(minimum: i32, maximum: i32, by_keda: bool, declared: bool) -> ObjectContext {
    ObjectContext {
        autoscalers: vec![Autoscaler { minimum, maximum, by_keda, declared_by: declaring(declared) }],
        ..ObjectContext::default()
    }
}

#[test]
fn fields_ignored_by_a_policy_may_change_freely() {
    let ignored = |path: &str| format!("ignore: [{{paths: [{path:?}]}}]");
    check(scaling(&ignored("/spec/replicas"), 5), "Allow ignored");
    check(scaling(&ignored("/spec"), 5), "Allow ignored");
    check(scaling(&ignored("/spec/*"), 5), "Allow ignored");
    check(scaling(&ignored("/spec/paused"), 5), "Deny drift /spec/replicas");
    let elsewhere = "ignore: [{target: {kind: StatefulSet}, paths: [/spec/replicas]}]";
    check(scaling(elsewhere, 5), "Deny drift /spec/replicas");
    check(
        JudgeCase { scale: true, owner: ObjectOwner::Unknown, ..scaling(&ignored("/spec/replicas"), 5) },
        "Allow ignored",
    );
    let image = live(&[("/spec/template/spec/containers", json!([{"name": "app", "image": "app:2"}]))]);
    let case = |path: &str| format!("ignore: [{{paths: [{path:?}]}}]");
    let keyed = case("/spec/template/spec/containers/[name=app]/image");
    check(JudgeCase { policy: &keyed, new: Some(image.clone()), ..JudgeCase::default() }, "Allow ignored");
    let other = case("/spec/template/spec/containers/[name=web]/image");
    check(
        JudgeCase { policy: &other, new: Some(image), ..JudgeCase::default() },
        "Deny drift /spec/template/spec/containers/[name=app]/image",
    );
    let paused = Some(live(&[("/spec/paused", json!(true))]));
    check(JudgeCase { policy: &case("/spec/paused"), new: paused, ..JudgeCase::default() }, "Allow ignored");
    check(deleting(&ignored("/metadata")), "Deny deletion");
}

#[test]
fn uncovered_part_of_a_change_is_denied() {
    let policy = "ignore: [{paths: [/spec/replicas]}]";
    let both = live(&[
        ("/spec/replicas", json!(5)),
        ("/spec/template/spec/containers", json!([{"name": "app", "image": "app:2"}])),
    ]);
    check(
        JudgeCase { policy, new: Some(both), ..JudgeCase::default() },
        "Deny drift /spec/template/spec/containers/[name=app]/image",
    );
}

#[test]
fn extra_list_element_is_denied_when_its_twin_is_ignored() {
    let tolerations = "/spec/template/spec/tolerations";
    let declared =
        MANIFEST.replace("tolerations: []", "tolerations: [{key: a, operator: Exists, effect: NoSchedule}]");
    assert_ne!(declared, MANIFEST);
    let policy = "ignore: [{paths: ['/spec/template/spec/tolerations/*/effect']}]";
    let with = |list: Value| Some(live(&[(tolerations, list)]));
    let case = |new: Value| JudgeCase {
        claims: vec![deployed(&declared)],
        old: with(json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}])),
        new: with(new),
        policy,
        ..JudgeCase::default()
    };
    check(case(json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}])), "Allow ignored");
    check(
        case(json!([
            {"key": "a", "operator": "Exists", "effect": "NoExecute"},
            {"key": "a", "operator": "Equal", "value": "x", "effect": "NoExecute"},
        ])),
        &format!("Deny drift {tolerations}"),
    );
}

#[test]
fn change_is_recorded_under_open_exception_and_denied_without_one() {
    let with = |circumstances| JudgeCase { circumstances, ..scaling("", 5) };
    check(with(allowance("shop", &["/spec/replicas"])), "Record allowed /spec/replicas");
    check(with(allowance("shop", &["*"])), "Record allowed /spec/replicas");
    check(with(allowance("shop", &["/spec/paused"])), "Deny drift /spec/replicas");
    check(with(allowance("bank", &["*"])), "Deny drift /spec/replicas");
    check(with(allowance("shop", &["delete"])), "Deny drift /spec/replicas");
    let late = JudgeCase { now: "2026-05-01T12:10:00Z", ..with(allowance("shop", &["*"])) };
    check(late, "Deny drift /spec/replicas");
    let mut unrecorded = with(allowance("shop", &["*"]));
    unrecorded.mode = EditsMode::Allow;
    check(unrecorded, "Allow allowed /spec/replicas");
}

#[test]
fn only_a_delete_allowance_lets_an_object_be_deleted() {
    let with = |paths: &[&str]| JudgeCase { circumstances: allowance("shop", paths), ..deleting("") };
    check(with(&["delete"]), "Record allowed");
    check(with(&["*"]), "Deny deletion");
    check(deleting("allow: [{name: gone, paths: [delete]}]"), "Record allowed");
    check(deleting("allow: [{name: any, paths: ['*']}]"), "Deny deletion");
}

#[test]
fn a_standing_allowance_holds_on_schedule_and_for_its_subjects() {
    let scheduled = |cron: &str, subject: &str| {
        format!(
            "allow: [{{name: night, paths: [/spec/replicas], \
             schedule: {{cron: '{cron}', duration: 10m, timeZone: Europe/Berlin}}, \
             subjects: [{{kind: User, name: {subject}}}]}}]"
        )
    };
    // 12:05 UTC is 14:05 in Berlin.
    check(scaling(&scheduled("0 14 * * *", ALICE), 5), "Record allowed /spec/replicas");
    check(scaling(&scheduled("0 12 * * *", ALICE), 5), "Deny drift /spec/replicas");
    check(scaling(&scheduled("0 14 * * *", "bob"), 5), "Deny drift /spec/replicas");
}

#[test]
fn allow_annotation_counts_in_the_manifest_but_not_live_object() {
    let annotated = |until: &str| {
        let annotations =
            format!("{{name: web, annotations: {{kubemoor.dev/allow: /spec/replicas{until}}}}}");
        vec![deployed(&MANIFEST.replace("{name: web}", &annotations))]
    };
    check(JudgeCase { claims: annotated(""), ..scaling("", 5) }, "Record allowed /spec/replicas");
    let ended = annotated(", kubemoor.dev/allow-until: '2026-05-01T12:00:00Z'");
    check(JudgeCase { claims: ended, ..scaling("", 5) }, "Deny drift /spec/replicas");
    let by_hand = live(&[
        ("/metadata/annotations/kubemoor.dev~1allow", json!("/spec/replicas")),
        ("/spec/replicas", json!(5)),
    ]);
    check(JudgeCase { new: Some(by_hand), ..JudgeCase::default() }, "Deny drift /spec/replicas");
}

#[test]
fn changes_by_exempt_users_are_allowed_and_recorded() {
    let policy = "exempt: [{kind: User, name: alice}]";
    check(scaling(policy, 5), "Record exempt /spec/replicas");
    check(deleting(policy), "Record exempt");
    check(JudgeCase { user: "bob", ..scaling(policy, 5) }, "Deny drift /spec/replicas");
    check(JudgeCase { user: "bob", ..deleting(policy) }, "Deny deletion");
    check(scaling(policy, 2), "Allow unchanged");
}

#[test]
fn autoscalers_move_replicas_within_their_range_and_people_do_not() {
    let by = |user, circumstances: &ObjectContext, policy, replicas| JudgeCase {
        user,
        circumstances: circumstances.clone(),
        scale: true,
        owner: ObjectOwner::Unknown,
        ..scaling(policy, replicas)
    };
    let three_to_six = autoscaler(3, 6, false, false);
    let any = "autoscalers: Any";
    check(by(HPA, &three_to_six, any, 3), "Allow autoscaled");
    check(by(HPA, &three_to_six, any, 6), "Allow autoscaled");
    check(by(HPA, &three_to_six, any, 7), "Deny drift /spec/replicas");
    check(by(HPA, &three_to_six, any, 1), "Deny drift /spec/replicas");
    check(by(HPA, &ObjectContext::default(), any, 3), "Deny drift /spec/replicas");
    check(by(ALICE, &three_to_six, any, 4), "Deny drift /spec/replicas");
    check(by(ALICE, &three_to_six, any, 2), "Allow unchanged");
    check(by(KEDA, &three_to_six, any, 4), "Deny drift /spec/replicas");
    check(by(KEDA, &autoscaler(3, 6, true, false), any, 0), "Allow autoscaled");
    let only_declared = "autoscalers: Declared";
    check(by(HPA, &three_to_six, only_declared, 4), "Deny drift /spec/replicas");
    check(by(HPA, &autoscaler(3, 6, false, true), only_declared, 4), "Allow autoscaled");
}

#[test]
fn under_deny_an_undeclared_autoscaler_counts_only_if_its_range_holds_the_declared_replicas() {
    let by = |circumstances: ObjectContext, policy, replicas| JudgeCase {
        user: HPA,
        circumstances,
        scale: true,
        owner: ObjectOwner::Unknown,
        ..scaling(policy, replicas)
    };
    check(by(autoscaler(2, 6, false, false), "", 6), "Allow autoscaled");
    check(by(autoscaler(1, 2, false, false), "", 1), "Allow autoscaled");
    for (fewest, most, replicas) in [(3, 6, 6), (9, 9, 9), (1, 1, 1)] {
        let of = |by_keda, declared| autoscaler(fewest, most, by_keda, declared);
        check(by(of(false, false), "", replicas), "Deny drift /spec/replicas");
        check(by(of(true, false), "", replicas), "Deny drift /spec/replicas");
        check(by(of(false, true), "", replicas), "Allow autoscaled");
        check(by(of(false, false), "edits: Warn", replicas), "Allow autoscaled");
        check(by(of(false, false), "autoscalers: Any", replicas), "Allow autoscaled");
    }
}

#[test]
fn a_policy_chooses_the_mode() {
    check(scaling("edits: Warn", 5), "Warn drift /spec/replicas");
    check(scaling("edits: Allow", 5), "Allow drift /spec/replicas");
    check(scaling("{releases: {names: [other]}, edits: Warn}", 5), "Deny drift /spec/replicas");
    check(
        scaling("{releases: {names: ['w*'], namespaces: [shop]}, edits: Record}", 5),
        "Record drift /spec/replicas",
    );
}
