//! Additions below sealed paths.

use super::*;

const SEAL: &str = "{edits: Deny, seal: [{target: {kind: Deployment}, paths: [/spec, /metadata/labels]}]}";
const CONTAINERS: &str = "/spec/template/spec/containers";
/// What a dry run may turn yet.
const SIDE: &str = "Deny drift? /spec/template/spec/containers/[name=side]";

/// The live object with a second container.
fn with_side(image: &str) -> Value {
    live(&[(CONTAINERS, json!([{"name": "app", "image": "app:1"}, {"name": "side", "image": image}]))])
}

fn sealed() -> JudgeCase<'static> {
    JudgeCase { policy: SEAL, new: Some(with_side("side:1")), ..JudgeCase::default() }
}

fn pending() -> Vec<Release> {
    let status = ReleaseStatus::PendingUpgrade;
    vec![assembled(SampleRecord { status, manifest: MANIFEST, ..SampleRecord::default() }, None)]
}

#[test]
fn addition_below_a_sealed_path_is_drift() {
    check(sealed(), SIDE);
    check(JudgeCase { policy: "", ..sealed() }, "Allow unchanged");
    check(JudgeCase { policy: "{seal: [{paths: [/data]}]}", ..sealed() }, "Allow unchanged");
    check(
        JudgeCase { policy: "{seal: [{target: {kind: Job}, paths: ['*']}]}", ..sealed() },
        "Allow unchanged",
    );
    check(JudgeCase { policy: &SEAL.replace("Deny", "Warn"), ..sealed() }, &SIDE.replace("Deny", "Warn"));
    check(JudgeCase { policy: &SEAL.replace("Deny", "Revert"), ..sealed() }, &SIDE.replace("Deny", "Revert"));
    // Changed, kept, removed.
    let image = format!("{SIDE}/image");
    check(JudgeCase { old: Some(with_side("side:0")), ..sealed() }, &image);
    check(JudgeCase { old: Some(with_side("side:1")), ..sealed() }, "Allow unchanged");
    check(JudgeCase { old: Some(with_side("side:1")), new: Some(live(&[])), ..sealed() }, "Allow unchanged");
    let created = JudgeCase { operation: Operation::Create, old: None, ..sealed() };
    check(created, SIDE);
    let labelled = live(&[("/metadata/labels/mine", json!("yes"))]);
    check(JudgeCase { new: Some(labelled), ..sealed() }, "Deny drift? /metadata/labels/mine");
}

#[test]
fn additions_of_an_adopted_object_are_judged_as_in_a_creation() {
    let containers = json!([{"name": "app", "image": "app:1"}, {"name": "side", "image": "side:1"}]);
    let unmarked = live(&[
        ("/metadata/labels", json!({})),
        ("/metadata/annotations", json!({})),
        (CONTAINERS, containers),
    ]);
    check(JudgeCase { old: Some(unmarked.clone()), ..sealed() }, SIDE);
    check(JudgeCase { old: Some(unmarked), new: Some(live(&[])), ..sealed() }, "Allow as-declared");
}

#[test]
fn controllers_appliers_and_webhooks_may_add() {
    check(
        JudgeCase { user: "system:serviceaccount:kube-system:deployment-controller", ..sealed() },
        "Allow unchanged",
    );
    check(JudgeCase { user: "system:kube-controller-manager", ..sealed() }, "Allow unchanged");
    check(JudgeCase { user: "system:serviceaccount:kube-system:traefik-controller", ..sealed() }, SIDE);
    check(JudgeCase { user: "system:serviceaccount:shop:my-controller", ..sealed() }, SIDE);
    let mut applied = with_side("side:1");
    let owned = json!({"k:{\"name\":\"side\"}": {".": {}, "f:image": {}, "f:name": {}}});
    let owned = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": owned}}}});
    applied["metadata"]["managedFields"] = json!([
        {"manager": "injector", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": owned},
    ]);
    check(JudgeCase { new: Some(applied.clone()), ..sealed() }, "Allow unchanged");
    // A dry run of the manifest gets the same from a webhook, which owns nothing.
    let injected = with_side("side:1");
    check(JudgeCase { evidence: DryRunEvidence::Canonical(&injected), ..sealed() }, "Allow unchanged");
    // Whoever takes it away may not put another one in its place.
    let other = with_side("other:1");
    check(JudgeCase { evidence: DryRunEvidence::Canonical(&other), ..sealed() }, &SIDE.replace('?', ""));
    // Who is found to own it there has added it before.
    applied["metadata"]["managedFields"][0]["operation"] = json!("Update");
    check(JudgeCase { evidence: DryRunEvidence::Canonical(&applied), ..sealed() }, &SIDE.replace('?', ""));
    let bare = live(&[]);
    check(JudgeCase { evidence: DryRunEvidence::Canonical(&bare), ..sealed() }, &SIDE.replace('?', ""));
    assert!(sealed().verdict().arguable, "a dry run is made before it is refused");
}

#[test]
fn helm_operation_is_recorded_as_unsettled_without_a_dry_run() {
    let under_way = |evidence| JudgeCase { claims: pending(), evidence, ..sealed() };
    let verdict = under_way(DryRunEvidence::Unavailable).verdict();
    assert_eq!((verdict.outcome, verdict.reason), (EditOutcome::Record, VerdictReason::Unsettled));
    let injected = with_side("side:1");
    check(under_way(DryRunEvidence::Canonical(&injected)), "Allow unchanged");
    let bare = live(&[]);
    check(under_way(DryRunEvidence::Canonical(&bare)), &SIDE.replace('?', ""));
}

#[test]
fn exceptions_cover_additions() {
    let with = |more: &str| SEAL.replace("edits: Deny", &format!("edits: Deny, {more}"));
    let ignored = with("ignore: [{paths: ['/spec/template/spec/containers/[name=side]']}]");
    check(JudgeCase { policy: &ignored, ..sealed() }, "Allow ignored");
    let allowed = with("allow: [{name: a, paths: ['/spec/template/spec/containers/[name=side]']}]");
    assert_eq!(JudgeCase { policy: &allowed, ..sealed() }.verdict().reason, VerdictReason::Allowed);
    let exempt = with("exempt: [{kind: User, name: alice}]");
    assert_eq!(JudgeCase { policy: &exempt, ..sealed() }.verdict().reason, VerdictReason::Exempt);
}

#[test]
fn helm_upgrade_may_change_fields_that_it_drops() {
    let declared = |status| {
        let side = "{name: app, image: \"app:1\"}, {name: side, image: \"side:0\"}";
        vec![second(status, MANIFEST, &MANIFEST.replace("{name: app, image: \"app:1\"}", side))]
    };
    let changed = |status| JudgeCase { claims: declared(status), old: Some(with_side("side:0")), ..sealed() };
    check(changed(ReleaseStatus::PendingUpgrade), "Allow unchanged");
    check(changed(ReleaseStatus::Deployed), &format!("{SIDE}/image"));
    // The server fills in fields, and no element comes back by itself; nor is anything beside it meant.
    check(JudgeCase { old: Some(live(&[])), ..changed(ReleaseStatus::PendingUpgrade) }, SIDE);
    let args = live(&[(
        CONTAINERS,
        json!([{"name": "app", "image": "app:1"}, {"name": "side", "image": "side:0", "args": ["x"]}]),
    )]);
    check(JudgeCase { new: Some(args), ..changed(ReleaseStatus::PendingUpgrade) }, &format!("{SIDE}/args"));
    let labelled = live(&[("/metadata/labels/mine", json!("yes"))]);
    check(
        JudgeCase { old: Some(live(&[])), new: Some(labelled), ..changed(ReleaseStatus::PendingUpgrade) },
        "Deny drift? /metadata/labels/mine",
    );
}

#[test]
fn changing_what_a_webhook_set_is_drift() {
    let canonical = with_side("side:0");
    let changed = |image: &str| JudgeCase {
        old: Some(with_side("side:0")),
        new: Some(with_side(image)),
        evidence: DryRunEvidence::Canonical(&canonical),
        ..sealed()
    };
    check(changed("evil:1"), &format!("{}/image", SIDE.replace('?', "")));
    let other = with_side("side:1");
    check(JudgeCase { evidence: DryRunEvidence::Canonical(&other), ..changed("side:1") }, "Allow unchanged");
}
