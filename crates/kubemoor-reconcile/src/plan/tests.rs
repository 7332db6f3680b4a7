use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::drifts::{LastSeen, ResourceVersion};
use crate::sample_releases::{SampleRecord, assembled};
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::{EditsMode, ReleaseId};
use kubemoor_helm::release::InvalidRecord;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::LastAgreement;
use kubemoor_policy::signing::{Declaration, SigningKey};
use kubemoor_verdict::edit::ObjectContext;

/// When the record of these tests was made.
const MADE: &str = "2026-05-01T12:00:00Z";

/// What [`plan`] is asked. As it stands, everything speaks for a repair of a
/// missing object.
struct Question {
    release: Release,
    object: ObjectId,
    kind: DriftKind,
    seen: Option<LastSeen>,
    first_digest: Option<[u8; 32]>,
    drift: DriftMode,
    rights: RepairRights,
    may_be_gone: bool,
    asked: bool,
    ordered: bool,
    scaled: bool,
    is_unserved: bool,
    /// Where it was not seen to agree; none if it never was seen to.
    open: Option<&'static str>,
    now: Timestamp,
}

fn life(release: ReleaseId) -> LastSeen {
    LastSeen {
        release,
        has_release_annotations: true,
        alive: false,
        version: ResourceVersion::default(),
        managers: Vec::new().into(),
        judged: None,
        allowed: false,
        agreed: None,
        seal: None,
    }
}

/// The release `shop/web` that declares `object` alone.
fn declaring(api_version: &str, kind: &str, metadata: &str) -> Question {
    let manifest = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: web{metadata}}}\n");
    let release =
        assembled(SampleRecord { manifest: &manifest, created: MADE, ..SampleRecord::default() }, None);
    let object = ObjectId::clone(release.objects.keys().next().unwrap());
    Question {
        object,
        kind: DriftKind::Missing,
        seen: Some(life(release.id.clone())),
        first_digest: Some(release.state.digest),
        drift: DriftMode::Repair,
        rights: RepairRights::default(),
        may_be_gone: false,
        asked: false,
        ordered: false,
        scaled: false,
        is_unserved: false,
        open: Some(""),
        now: MADE.parse().unwrap(),
        release,
    }
}

/// The same for a Deployment, after this change.
fn deployment(change: impl FnOnce(&mut Question)) -> Question {
    let mut case = declaring("apps/v1", "Deployment", "");
    change(&mut case);
    case
}

/// A release whose record came into sight with this status, so many seconds
/// ago by the server's clock.
fn appeared(status: ReleaseStatus, seconds: i64) -> Question {
    deployment(|case| {
        case.release.state.appearance = Appearance::Seen(status);
        case.now += SignedDuration::from_secs(seconds);
    })
}

#[track_caller]
fn check(case: Question, wanted: RepairPlan) {
    let mut policy = Policy::new(EditsMode::Deny, case.drift, Duration::from_secs(3600));
    policy.repair = case.rights;
    let agreement = case.open.map(|open| {
        let object = &case.object;
        let digest = Digest::new(&serde_json::json!({})).unwrap();
        let declaration = Declaration { release: &case.release.id, object, digest: &digest, seal: None };
        let open = open.split_whitespace().map(str::to_owned).collect();
        LastAgreement::new(&SigningKey::new([7; 32]), &declaration, open)
    });
    let Question { release, object, asked, .. } = case;
    let situation = RepairContext {
        declared: Arc::clone(release.declared(&object).unwrap()),
        drift: ObjectDrift::new(object.clone(), case.kind, case.now),
        life: case.seen,
        first_digest: case.first_digest,
        policy: Arc::new(policy),
        circumstances: ObjectContext::default(),
        may_be_gone: case.may_be_gone,
        is_autoscaled: case.scaled,
        is_unserved: case.is_unserved,
        agreement,
        ordered_by: case.ordered.then(|| "alice".to_owned()),
        was_without_additions: false,
        plan: RepairPlan::Wait,
        release: Arc::new(release),
    };
    let id = situation.release.id.clone();
    let task = Task { id, object, asked, ticket: None, towards: None };
    assert_eq!(plan(&task, &situation, case.now), wanted, "{}", task.object);
}

#[test]
fn an_object_comes_back_only_if_every_rule_agrees() {
    let unbelieved = || Some(InvalidRecord { secret: "s".to_owned(), reason: "r".to_owned() });
    let seen_with = |namespace: &str, name: &str| {
        let release = ReleaseId { namespace: namespace.into(), name: name.into() };
        Some(life(release))
    };
    let never_seen = RepairPlan::Report("the guard has never seen it with its release's annotations");
    let changed = RepairPlan::Report("the manifest of its release's revision has changed");

    check(deployment(|_| {}), RepairPlan::Repair);
    check(
        deployment(|case| case.release.invalid = unbelieved()),
        RepairPlan::Report("its release's latest record is not accepted"),
    );
    check(deployment(|case| case.drift = DriftMode::Report), RepairPlan::Report("drift is only reported"));
    check(deployment(|case| case.seen = None), never_seen.clone());
    check(deployment(|case| case.seen = seen_with("shop", "api")), never_seen.clone());
    check(deployment(|case| case.seen = seen_with("bank", "web")), never_seen);
    check(deployment(|case| case.first_digest = None), changed.clone());
    check(deployment(|case| case.first_digest = Some([0; 32])), changed);
}

#[test]
fn nobody_is_asked_to_confirm_an_object_of_a_kind_that_is_not_served() {
    let unserved = |change: fn(&mut Question)| {
        deployment(|case| {
            case.is_unserved = true;
            change(case);
        })
    };
    let not_served = || RepairPlan::Report("the cluster does not serve its kind");
    check(unserved(|case| case.seen = None), not_served());
    check(unserved(|case| case.open = None), not_served());
    // The write itself finds out, and looks for the kind again.
    check(unserved(|_| {}), RepairPlan::Repair);
    check(unserved(|case| (case.open, case.ordered) = (None, true)), RepairPlan::Repair);
    // What is there is served.
    check(unserved(|case| (case.open, case.kind) = (None, DriftKind::Changed)), RepairPlan::Unconfirmed);
}

#[test]
fn nothing_comes_back_while_its_release_is_not_deployed() {
    for status in [
        ReleaseStatus::Unknown,
        ReleaseStatus::Uninstalled,
        ReleaseStatus::Superseded,
        ReleaseStatus::Failed,
        ReleaseStatus::Uninstalling,
        ReleaseStatus::PendingInstall,
        ReleaseStatus::PendingUpgrade,
        ReleaseStatus::PendingRollback,
    ] {
        check(deployment(|case| case.release.state.status = status), RepairPlan::Wait);
        // A state that passes by itself is worth no report.
        let reporting = deployment(|case| {
            case.release.state.status = status;
            case.drift = DriftMode::Report;
        });
        check(reporting, RepairPlan::Wait);
    }
}

#[test]
fn object_opted_out_by_its_manifest_is_not_recreated() {
    for annotation in ["kubemoor.dev/guard", "helm.toolkit.fluxcd.io/driftDetection"] {
        let opted =
            |value| declaring("apps/v1", "Deployment", &format!(", annotations: {{{annotation}: {value}}}"));
        check(opted("disabled"), RepairPlan::Wait);
        check(Question { drift: DriftMode::Report, ..opted("disabled") }, RepairPlan::Wait);
        check(opted("enabled"), RepairPlan::Repair);
    }
}

#[test]
fn kinds_that_cannot_be_recreated_faithfully_are_only_reported() {
    let never = || RepairPlan::Report("objects of its kind are never re-created");
    check(declaring("batch/v1", "Job", ""), never());
    check(declaring("v1", "PersistentVolumeClaim", ""), never());
    check(declaring("v1", "PersistentVolume", ""), never());
    check(declaring("v1", "Pod", ""), never());
    check(declaring("v1", "Namespace", ""), never());
    check(declaring("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""), never());

    check(declaring("batch/v1", "CronJob", ""), RepairPlan::Repair);
    check(declaring("v1", "Secret", ""), RepairPlan::Repair);
    check(declaring("v1", "Service", ""), RepairPlan::Repair);
    check(declaring("apps/v1", "StatefulSet", ""), RepairPlan::Repair);
    // The same word in another group is another kind.
    check(declaring("batch.example.com/v1", "Job", ""), RepairPlan::Repair);
}

#[test]
fn rbac_and_webhook_objects_are_only_reported() {
    let privileged = || {
        RepairPlan::Report("objects that grant rights, intercept requests or define kinds are not repaired")
    };
    for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
        check(declaring("rbac.authorization.k8s.io/v1", kind, ""), privileged());
    }
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        check(declaring("admissionregistration.k8s.io/v1", kind, ""), privileged());
    }
    check(declaring("v1", "ServiceAccount", ""), RepairPlan::Repair);
}

#[test]
fn objects_outside_the_release_namespace_are_only_reported() {
    let foreign = || RepairPlan::Report("it is outside its release's namespace");
    check(declaring("v1", "ConfigMap", ", namespace: shop"), RepairPlan::Repair);
    check(declaring("v1", "ConfigMap", ", namespace: bank"), foreign());
    check(declaring("storage.k8s.io/v1", "StorageClass", ""), foreign());
    check(declaring("scheduling.k8s.io/v1", "PriorityClass", ""), foreign());
}

#[test]
fn repairs_are_held_ten_minutes_for_record_appearing_as_deployed() {
    let hold = |seconds| RepairPlan::Hold(SignedDuration::from_secs(seconds));
    check(appeared(ReleaseStatus::Deployed, 0), hold(600));
    check(appeared(ReleaseStatus::Deployed, 1), hold(599));
    check(appeared(ReleaseStatus::Deployed, 599), hold(1));
    check(appeared(ReleaseStatus::Deployed, 600), RepairPlan::Repair);
    check(appeared(ReleaseStatus::Deployed, 86_400), RepairPlan::Repair);
    // An operation that was watched from its start leaves nothing to wait for.
    check(appeared(ReleaseStatus::PendingInstall, 0), RepairPlan::Repair);
    check(appeared(ReleaseStatus::PendingUpgrade, 0), RepairPlan::Repair);
    check(appeared(ReleaseStatus::Failed, 0), RepairPlan::Repair);
}

#[test]
fn hold_after_possible_restore_does_not_hide_other_reasons() {
    let unseen = |seconds| Question { seen: None, ..appeared(ReleaseStatus::Deployed, seconds) };
    let hold = |seconds| RepairPlan::Hold(SignedDuration::from_secs(seconds));
    let never_seen = || RepairPlan::Report("the guard has never seen it with its release's annotations");
    check(unseen(0), hold(600));
    check(unseen(599), hold(1));
    check(unseen(600), never_seen());
    check(Question { asked: true, ..unseen(0) }, never_seen());
    let elsewhere = ReleaseId { namespace: "shop".into(), name: "api".into() };
    check(Question { seen: Some(life(elsewhere)), ..appeared(ReleaseStatus::Deployed, 0) }, hold(600));
    let claim = Question { seen: None, ..declaring("v1", "PersistentVolumeClaim", "") };
    let mut held = claim;
    held.release.state.appearance = Appearance::Seen(ReleaseStatus::Deployed);
    check(held, RepairPlan::Report("objects of its kind are never re-created"));
    let forged = Question { first_digest: Some([0; 32]), ..appeared(ReleaseStatus::Deployed, 0) };
    check(forged, RepairPlan::Report("the manifest of its release's revision has changed"));
    let reported = Question { drift: DriftMode::Report, ..appeared(ReleaseStatus::Deployed, 0) };
    check(reported, RepairPlan::Report("drift is only reported"));
}

/// Why an object is never re-created, whatever else holds; none if it may be.
#[track_caller]
fn check_never(case: Question, wanted: Option<&str>) {
    assert_eq!(
        never_repaired_reason(&case.release, &case.object, case.kind, case.rights),
        wanted,
        "{}",
        case.object
    );
}

#[test]
fn never_repaired_objects_are_known_from_release_and_object_alone() {
    check_never(declaring("apps/v1", "Deployment", ""), None);
    check_never(declaring("v1", "Pod", ""), Some("objects of its kind are never re-created"));
    check_never(
        declaring("rbac.authorization.k8s.io/v1", "Role", ""),
        Some("objects that grant rights, intercept requests or define kinds are not repaired"),
    );
    check_never(
        declaring("v1", "ConfigMap", ", namespace: bank"),
        Some("it is outside its release's namespace"),
    );
    // Neither its record's state nor its being declared is asked.
    check_never(deployment(|case| case.release.state.status = ReleaseStatus::Failed), None);
    check_never(deployment(|case| case.object.name = "other".into()), None);
}

#[test]
fn kinds_that_are_never_recreated_are_still_repaired_when_changed() {
    let changed = |case: Question| Question { kind: DriftKind::Changed, ..case };
    check(changed(declaring("batch/v1", "Job", "")), RepairPlan::Repair);
    check(changed(declaring("v1", "PersistentVolumeClaim", "")), RepairPlan::Repair);
    check(changed(declaring("v1", "Pod", "")), RepairPlan::Repair);
    let stays = |kind| Question { kind, ..deployment(|_| {}) };
    check(stays(DriftKind::Ownership), RepairPlan::Repair);
    check(stays(DriftKind::Terminating), RepairPlan::Report("it is being deleted"));
    check(stays(DriftKind::Unreadable), RepairPlan::Report("it is nested too deeply to be checked"));
}

#[test]
fn a_policy_may_extend_what_is_repaired() {
    let role = || declaring("rbac.authorization.k8s.io/v1", "Role", "");
    let cluster_role = || declaring("rbac.authorization.k8s.io/v1", "ClusterRole", "");
    let class = || declaring("storage.k8s.io/v1", "StorageClass", "");
    let with = |case: Question, rbac, cluster_scoped| Question {
        rights: RepairRights { rbac, cluster_scoped },
        ..case
    };
    let foreign = RepairPlan::Report("it is outside its release's namespace");
    check(with(role(), true, false), RepairPlan::Repair);
    check(with(cluster_role(), true, false), foreign);
    check(with(cluster_role(), true, true), RepairPlan::Repair);
    check(with(class(), false, true), RepairPlan::Repair);
    let definition = declaring("apiextensions.k8s.io/v1", "CustomResourceDefinition", "");
    check(with(definition, true, true), RepairPlan::Report("objects of its kind are never re-created"));
}

#[test]
fn manual_request_overrides_report_mode_and_holds_but_no_safeguard() {
    let asked = |case: Question| Question { asked: true, ..case };
    check(asked(deployment(|case| case.drift = DriftMode::Report)), RepairPlan::Repair);
    check(asked(appeared(ReleaseStatus::Deployed, 0)), RepairPlan::Repair);
    check(asked(deployment(|case| case.drift = DriftMode::Ignore)), RepairPlan::Wait);
    check(
        asked(deployment(|case| case.release.state.status = ReleaseStatus::PendingUpgrade)),
        RepairPlan::Wait,
    );
    check(asked(declaring("v1", "Pod", "")), RepairPlan::Report("objects of its kind are never re-created"));
    check(
        asked(deployment(|case| case.seen = None)),
        RepairPlan::Report("the guard has never seen it with its release's annotations"),
    );
}

#[test]
fn object_with_a_delete_exception_is_not_recreated() {
    check(deployment(|case| case.may_be_gone = true), RepairPlan::Wait);
    check(Question { may_be_gone: true, kind: DriftKind::Changed, ..deployment(|_| {}) }, RepairPlan::Repair);
}

#[test]
fn missing_object_never_seen_with_release_annotations_is_only_reported() {
    let mut unvouched = deployment(|_| {});
    unvouched.seen = unvouched.seen.map(|life| LastSeen { has_release_annotations: false, ..life });
    check(unvouched, RepairPlan::Report("the guard has never seen it with its release's annotations"));
}

#[test]
fn values_that_were_never_seen_are_not_written() {
    let open = |open| deployment(|case| case.open = open);
    let changed = |open| Question { kind: DriftKind::Changed, ..deployment(|case| case.open = open) };
    check(open(Some("")), RepairPlan::Repair);
    check(changed(Some("")), RepairPlan::Repair);
    check(open(None), RepairPlan::Unconfirmed);
    check(changed(None), RepairPlan::Unconfirmed);
    // Of an object that is there it is asked about what is written.
    check(open(Some("/spec/replicas")), RepairPlan::Unconfirmed);
    check(changed(Some("/spec/replicas")), RepairPlan::Repair);
    // What an autoscaler sets is left out of a new one.
    let scaled = |open| Question { scaled: true, ..deployment(|case| case.open = open) };
    check(scaled(Some("/spec/replicas")), RepairPlan::Repair);
    check(scaled(Some("/spec/replicas /spec/paused")), RepairPlan::Unconfirmed);
    check(scaled(None), RepairPlan::Unconfirmed);
}

#[test]
fn authorized_order_repairs_unconfirmed_fields_but_overrides_no_safeguard() {
    let ordered = |case: Question| Question { asked: true, ordered: true, ..case };
    check(ordered(deployment(|case| case.open = None)), RepairPlan::Repair);
    check(Question { asked: true, ..deployment(|case| case.open = None) }, RepairPlan::Unconfirmed);
    // And no other rule gives way.
    check(
        ordered(deployment(|case| (case.open, case.seen) = (None, None))),
        RepairPlan::Report("the guard has never seen it with its release's annotations"),
    );
    check(
        ordered(deployment(|case| (case.open, case.first_digest) = (None, None))),
        RepairPlan::Report("the manifest of its release's revision has changed"),
    );
    check(
        ordered(declaring("v1", "Pod", "")),
        RepairPlan::Report("objects of its kind are never re-created"),
    );
}

#[test]
fn unconfirmed_value_hides_no_other_reason() {
    let open = |case: Question| Question { open: None, ..case };
    check(
        open(deployment(|case| case.drift = DriftMode::Report)),
        RepairPlan::Report("drift is only reported"),
    );
    check(open(appeared(ReleaseStatus::Deployed, 0)), RepairPlan::Hold(SignedDuration::from_secs(600)));
    check(open(declaring("v1", "Pod", "")), RepairPlan::Report("objects of its kind are never re-created"));
    check(open(deployment(|case| case.may_be_gone = true)), RepairPlan::Wait);
}
