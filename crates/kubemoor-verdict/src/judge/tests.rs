use serde_json::{Value, json};

use crate::edit::{ObjectContext, ObjectOwner};
use crate::judge::*;
use crate::sample_policies::policy;
use crate::sample_releases::{SampleRecord, assembled, deployed, second};
use crate::samples::{book_of, resolver};
use kubemoor_declare::model::{Actor, EditsMode, ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::{Labels, PolicyResolver};

mod additions;
mod agreement;
mod deletions;
mod exceptions;
mod operations;
mod properties;
mod replays;

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, template: {spec: {tolerations: [], containers: [{name: app, image: "app:1"}]}}}
"#;

/// One edit of `Deployment/web` in `shop`; what a case does not say is a plain
/// update by a person of what the deployed release `shop/web` declares.
struct JudgeCase<'a> {
    claims: Vec<Release>,
    operation: Operation,
    user: &'a str,
    old: Option<Value>,
    new: Option<Value>,
    /// The version in which the objects are sent.
    version: Option<&'a str>,
    scale: bool,
    owner: ObjectOwner,
    /// The manager of a dry run.
    dry_run: Option<&'a str>,
    mode: EditsMode,
    /// The spec of a policy, as YAML; empty for none.
    policy: &'a str,
    circumstances: ObjectContext,
    own_account: Option<&'a str>,
    evidence: DryRunEvidence<'a>,
    now: &'a str,
}

impl Default for JudgeCase<'_> {
    fn default() -> Self {
        Self {
            claims: vec![deployed(MANIFEST)],
            operation: Operation::Update,
            user: "alice",
            old: Some(live(&[])),
            new: Some(live(&[])),
            version: Some("v1"),
            scale: false,
            owner: ObjectOwner::Release(release("shop", "web")),
            dry_run: None,
            mode: EditsMode::Deny,
            policy: "",
            circumstances: ObjectContext::default(),
            own_account: None,
            evidence: DryRunEvidence::None,
            now: "2026-05-01T12:05:00Z",
        }
    }
}

impl JudgeCase<'_> {
    fn verdict(&self) -> Verdict {
        self.judged(&self.resolver()).0
    }

    fn resolver(&self) -> PolicyResolver {
        let policies = (!self.policy.is_empty()).then(|| policy("shop", self.policy));
        book_of(self.mode, policies)
    }

    fn judged(&self, resolver: &PolicyResolver) -> (Verdict, Option<EditFacts>) {
        let claims: Vec<_> = self.claims.iter().cloned().map(Arc::new).collect();
        let actor = Actor { user: self.user.to_owned(), ..Actor::default() };
        let edit = Edit {
            operation: self.operation,
            actor: &actor,
            object: &web(),
            old: self.old.as_ref(),
            new: self.new.as_ref(),
            version: self.version,
            scale: self.scale,
            owner: self.owner.clone(),
            dry_run: self.dry_run.is_some(),
            field_manager: self.dry_run.unwrap_or("kubectl-edit"),
            circumstances: &self.circumstances,
        };
        let rules = Rules { resolver, own_account: self.own_account };
        judge(&edit, &claims, &rules, self.evidence, self.now.parse().unwrap())
    }
}

fn release(namespace: &str, name: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.into(), name: name.into() }
}

fn web() -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", "shop", "web")
}

/// The object as the release left it, with these values at these pointers.
fn live(changes: &[(&str, Value)]) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-04-01T12:00:00Z",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}},
    });
    for (pointer, value) in changes {
        let (above, name) = pointer.rsplit_once('/').unwrap();
        let name = name.replace("~1", "/");
        object.pointer_mut(above).unwrap().as_object_mut().unwrap().insert(name, value.clone());
    }
    object
}

fn scaled(replicas: u32) -> Option<Value> {
    Some(live(&[("/spec/replicas", json!(replicas))]))
}

/// What is judged, as `Outcome reason paths`; a `?` behind a reason that the
/// arbiter may turn.
fn describe(verdict: &Verdict) -> String {
    let mut text = format!("{} {}", verdict.outcome.as_str(), verdict.reason.as_str());
    if verdict.arguable {
        text.push('?');
    }
    for field in verdict.grounds.iter().flat_map(|grounds| &grounds.fields) {
        text.push_str(&format!(" {}", field.path));
    }
    text
}

#[track_caller]
fn check(case: JudgeCase<'_>, wanted: &str) {
    assert_eq!(describe(&case.verdict()), wanted);
    replays::check_replay(&case);
}

#[test]
fn an_object_that_no_release_declares_is_nobodys_matter() {
    let other = MANIFEST.replace("name: web", "name: api");
    check(JudgeCase { claims: Vec::new(), new: scaled(5), ..JudgeCase::default() }, "Allow not-declared");
    check(
        JudgeCase { claims: vec![deployed(&other)], new: scaled(5), ..JudgeCase::default() },
        "Allow not-declared",
    );
    let gone =
        SampleRecord { status: ReleaseStatus::Uninstalled, manifest: MANIFEST, ..SampleRecord::default() };
    check(
        JudgeCase { claims: vec![assembled(gone, None)], new: scaled(5), ..JudgeCase::default() },
        "Allow not-declared",
    );
}

#[test]
fn only_a_dry_run_of_the_arbiter_is_a_probe() {
    let probe = || JudgeCase { dry_run: Some(PROBE_MANAGER), new: scaled(5), ..JudgeCase::default() };
    check(probe(), "Allow probe");
    check(JudgeCase { claims: Vec::new(), ..probe() }, "Allow not-declared");
    check(JudgeCase { old: Some(deleting()), ..probe() }, "Allow probe");
    check(JudgeCase { dry_run: Some("helm"), ..probe() }, "Deny drift /spec/replicas");
    let mut named = probe();
    named.dry_run = None;
    check(named, "Deny drift /spec/replicas");
}

fn deleting() -> Value {
    live(&[("/metadata/deletionTimestamp", json!("2026-05-01T12:00:00Z"))])
}

/// The same object in deletion, with these values at these pointers.
fn going(changes: &[(&str, Value)]) -> Option<Value> {
    let deletion = ("/metadata/deletionTimestamp", json!("2026-05-01T12:00:00Z"));
    Some(live(&[&[deletion][..], changes].concat()))
}

#[test]
fn changes_of_an_object_that_is_being_deleted_are_judged_like_others() {
    let scaled_up = || going(&[("/spec/replicas", json!(5))]);
    let case = || JudgeCase { old: Some(deleting()), new: scaled_up(), ..JudgeCase::default() };
    check(case(), "Deny drift /spec/replicas");
    check(JudgeCase { mode: EditsMode::Revert, ..case() }, "Revert drift /spec/replicas");
    check(JudgeCase { own_account: Some("alice"), ..case() }, "Allow identity");
    check(JudgeCase { old: scaled_up(), new: Some(deleting()), ..case() }, "Allow as-declared");
    check(JudgeCase { old: scaled_up(), ..case() }, "Allow unchanged");
    check(JudgeCase { new: going(&[("/spec/paused", json!(true))]), ..case() }, "Deny drift /spec/paused");
    check(
        JudgeCase { old: Some(live(&[])), new: Some(deleting()), ..JudgeCase::default() },
        "Allow unchanged",
    );
    // It is deleted already.
    check(JudgeCase { operation: Operation::Delete, new: None, ..case() }, "Allow being-deleted");
}

#[test]
fn only_finalizers_may_leave_an_object_that_is_being_deleted() {
    let declared = MANIFEST.replace("{name: web}", "{name: web, finalizers: [example.org/a]}");
    let hold = |names: Value| going(&[("/metadata/finalizers", names)]);
    let case = || JudgeCase {
        claims: vec![deployed(&declared)],
        old: hold(json!(["example.org/a", "example.org/b"])),
        new: hold(json!(["example.org/a"])),
        ..JudgeCase::default()
    };
    check(case(), "Allow unchanged");
    check(JudgeCase { new: hold(json!([])), ..case() }, "Allow being-deleted");
    let more = going(&[("/metadata/finalizers", json!([])), ("/spec/replicas", json!(5))]);
    check(JudgeCase { new: more, ..case() }, "Deny drift /spec/replicas");
    // While it lives, the finalizer that the release declares stays.
    let alive = |names: Value| Some(live(&[("/metadata/finalizers", names)]));
    let living = || JudgeCase { old: alive(json!(["example.org/a"])), new: alive(json!([])), ..case() };
    assert!(describe(&living().verdict()).starts_with("Deny drift /metadata/finalizers"));
}

#[test]
fn a_built_in_identity_does_its_work_and_no_more() {
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let delete = || JudgeCase { operation: Operation::Delete, new: None, ..JudgeCase::default() };
    check(JudgeCase { user: collector, ..delete() }, "Allow identity");
    check(JudgeCase { user: collector, new: scaled(5), ..JudgeCase::default() }, "Deny drift /spec/replicas");
    let bare = |n: u32| Some(json!({"spec": {"replicas": n}}));
    let scale = || JudgeCase {
        scale: true,
        owner: ObjectOwner::Unknown,
        old: bare(2),
        new: bare(5),
        ..JudgeCase::default()
    };
    check(scale(), "Deny drift /spec/replicas");
    check(JudgeCase { new: bare(2), ..scale() }, "Allow unchanged");
    check(JudgeCase { old: bare(5), new: bare(2), ..scale() }, "Allow as-declared");
}

#[test]
fn kubemoors_own_account_may_do_anything() {
    let own =
        || JudgeCase { user: "moor", own_account: Some("moor"), new: scaled(5), ..JudgeCase::default() };
    check(own(), "Allow identity");
    check(JudgeCase { operation: Operation::Delete, ..own() }, "Allow identity");
    check(JudgeCase { operation: Operation::Create, old: None, ..own() }, "Allow identity");
    check(JudgeCase { own_account: None, ..own() }, "Deny drift /spec/replicas");
    check(JudgeCase { own_account: Some("other"), ..own() }, "Deny drift /spec/replicas");
}

#[test]
fn opt_out_counts_in_the_manifest_but_not_live_object() {
    for annotation in ["kubemoor.dev/guard", "helm.toolkit.fluxcd.io/driftDetection"] {
        let named = format!("{{name: web, annotations: {{{annotation}: disabled}}}}");
        let out = || deployed(&MANIFEST.replace("{name: web}", &named));
        let case = || JudgeCase { claims: vec![out()], new: scaled(5), ..JudgeCase::default() };
        check(case(), "Allow opted-out");
        check(JudgeCase { operation: Operation::Delete, new: None, ..case() }, "Allow opted-out");
        check(JudgeCase { operation: Operation::Create, old: None, ..case() }, "Allow opted-out");
        check(JudgeCase { own_account: Some("alice"), ..case() }, "Allow identity");
        let pointer = format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
        let by_hand = live(&[(&pointer, json!("disabled")), ("/spec/replicas", json!(5))]);
        check(
            JudgeCase { old: Some(by_hand.clone()), new: scaled(6), ..JudgeCase::default() },
            "Deny drift /spec/replicas",
        );
        check(JudgeCase { new: Some(by_hand), ..JudgeCase::default() }, "Deny drift /spec/replicas");
    }
}

#[test]
fn change_of_undeclared_fields_is_allowed() {
    check(JudgeCase::default(), "Allow unchanged");
    for (pointer, value) in [
        ("/status", json!({"replicas": 1})),
        ("/metadata/annotations/a", json!("b")),
        ("/metadata/labels/a", json!("b")),
        ("/spec/minReadySeconds", json!(3)),
        ("/spec/template/metadata", json!({"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}})),
    ] {
        check(JudgeCase { new: Some(live(&[(pointer, value)])), ..JudgeCase::default() }, "Allow unchanged");
    }
    // What drifted before stays as it is without being refused.
    check(JudgeCase { old: scaled(5), new: scaled(5), ..JudgeCase::default() }, "Allow unchanged");
}

#[test]
fn change_to_the_declared_value_is_allowed() {
    check(JudgeCase { old: scaled(5), ..JudgeCase::default() }, "Allow as-declared");
    check(JudgeCase { operation: Operation::Create, old: None, ..JudgeCase::default() }, "Allow unchanged");
    let labels = live(&[("/metadata/labels", json!({}))]);
    check(JudgeCase { old: Some(labels), ..JudgeCase::default() }, "Allow as-declared");
}

#[test]
fn an_update_that_makes_the_object_the_releases_is_judged_as_a_creation() {
    let bare = |replicas: u32| {
        let no_label = ("/metadata/labels", json!({"a": "b"}));
        Some(live(&[no_label, ("/metadata/annotations", json!({})), ("/spec/replicas", json!(replicas))]))
    };
    let adopting = || JudgeCase { old: bare(5), new: scaled(5), ..JudgeCase::default() };
    check(adopting(), "Deny drift /spec/replicas");
    check(JudgeCase { mode: EditsMode::Warn, ..adopting() }, "Warn drift /spec/replicas");
    check(JudgeCase { old: bare(2), new: Some(live(&[])), ..JudgeCase::default() }, "Allow as-declared");
    check(JudgeCase { old: bare(5), new: Some(live(&[])), ..JudgeCase::default() }, "Allow as-declared");
    let label_alone = live(&[("/metadata/annotations", json!({})), ("/spec/replicas", json!(2))]);
    assert!(
        describe(&JudgeCase { old: bare(2), new: Some(label_alone), ..JudgeCase::default() }.verdict())
            .starts_with("Deny")
    );
    // What was Helm's before is judged by its changes.
    let unnamed = live(&[("/metadata/annotations", json!({})), ("/spec/replicas", json!(5))]);
    check(JudgeCase { old: Some(unnamed), new: scaled(5), ..JudgeCase::default() }, "Allow as-declared");
    check(JudgeCase { old: bare(5), new: bare(6), ..JudgeCase::default() }, "Deny drift /spec/replicas");
    // Helm itself sets its label and annotations while an operation runs.
    let pending =
        SampleRecord { status: ReleaseStatus::PendingUpgrade, manifest: MANIFEST, ..SampleRecord::default() };
    check(JudgeCase { claims: vec![assembled(pending, None)], ..adopting() }, "Allow as-declared");
}

#[test]
fn an_object_of_another_namespace_is_adopted_once_it_names_the_release() {
    let namespaced = MANIFEST.replace("{name: web}", "{name: web, namespace: shop}");
    let given = SampleRecord { namespace: "bank", manifest: &namespaced, ..SampleRecord::default() };
    let annotations = |namespace: &str| {
        let named = json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": namespace});
        ("/metadata/annotations", named)
    };
    let named = |replicas: u32| Some(live(&[annotations("bank"), ("/spec/replicas", json!(replicas))]));
    let case = |replicas: u32| JudgeCase {
        claims: vec![assembled(SampleRecord { ..given }, None)],
        owner: ObjectOwner::Release(release("bank", "web")),
        old: Some(live(&[("/metadata/annotations", json!({})), ("/spec/replicas", json!(replicas))])),
        new: named(replicas),
        ..JudgeCase::default()
    };
    check(case(5), "Deny drift /spec/replicas");
    check(case(2), "Allow as-declared");
    check(JudgeCase { old: named(5), ..case(5) }, "Allow unchanged");
}

#[test]
fn the_mode_says_what_becomes_of_drift() {
    for (mode, word) in [
        (EditsMode::Allow, "Allow"),
        (EditsMode::Record, "Record"),
        (EditsMode::Warn, "Warn"),
        (EditsMode::Deny, "Deny"),
    ] {
        let wanted = format!("{word} drift /spec/replicas");
        check(JudgeCase { mode, new: scaled(5), ..JudgeCase::default() }, &wanted);
        check(
            JudgeCase {
                mode,
                new: scaled(5),
                operation: Operation::Create,
                old: None,
                ..JudgeCase::default()
            },
            &wanted,
        );
        let delete = JudgeCase { mode, operation: Operation::Delete, new: None, ..JudgeCase::default() };
        check(delete, &format!("{word} deletion"));
        check(JudgeCase { mode, ..JudgeCase::default() }, "Allow unchanged");
    }
}

#[test]
fn revert_mode_denies_everything_except_direct_updates() {
    let case = || JudgeCase { mode: EditsMode::Revert, new: scaled(5), ..JudgeCase::default() };
    check(case(), "Revert drift /spec/replicas");
    check(JudgeCase { scale: true, ..case() }, "Deny drift /spec/replicas");
    check(JudgeCase { operation: Operation::Create, old: None, ..case() }, "Deny drift /spec/replicas");
    check(JudgeCase { operation: Operation::Delete, new: None, ..case() }, "Deny deletion");
    check(JudgeCase { new: Some(live(&[])), ..case() }, "Allow unchanged");
    check(JudgeCase { old: scaled(5), new: scaled(2), ..case() }, "Allow as-declared");
}

#[test]
fn each_declared_field_that_drifts_is_named() {
    #[track_caller]
    fn check_change(pointer: &str, value: Value, path: &str) {
        let new = Some(live(&[(pointer, value)]));
        check(JudgeCase { new, ..JudgeCase::default() }, &format!("Deny drift {path}"));
    }
    let image = "/spec/template/spec/containers/[name=app]/image";
    let containers = "/spec/template/spec/containers";
    check_change("/spec/replicas", json!(null), "/spec/replicas");
    check_change("/spec/replicas", json!(0), "/spec/replicas");
    check_change(containers, json!([{"name": "app", "image": "app:2"}]), image);
    check_change(
        "/metadata/labels/app.kubernetes.io~1managed-by",
        json!("me"),
        "/metadata/labels/app.kubernetes.io~1managed-by",
    );
    check_change(
        "/metadata/annotations/meta.helm.sh~1release-name",
        json!("mine"),
        "/metadata/annotations/meta.helm.sh~1release-name",
    );
    let more = json!([{"name": "app", "image": "app:1"}, {"name": "side", "image": "side:1"}]);
    check(JudgeCase { new: Some(live(&[(containers, more)])), ..JudgeCase::default() }, "Allow unchanged");
}

#[test]
fn a_sealed_field_is_refused_though_no_manifest_declares_it() {
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"}]);
    let keep = "/metadata/annotations/helm.sh~1resource-policy";
    for (pointer, value) in
        [("/spec/paused", json!(true)), (keep, json!("keep")), ("/metadata/ownerReferences", owners.clone())]
    {
        let case = || JudgeCase { new: Some(live(&[(pointer, value.clone())])), ..JudgeCase::default() };
        check(case(), &format!("Deny drift {pointer}"));
        check(JudgeCase { old: case().new, ..case() }, "Allow unchanged");
        check(JudgeCase { old: case().new, new: Some(live(&[])), ..case() }, "Allow unchanged");
        check(JudgeCase { mode: EditsMode::Warn, ..case() }, &format!("Warn drift {pointer}"));
    }
    // An owner ends in a deletion, and an uninstallation deletes anyway.
    let uninstalling =
        SampleRecord { status: ReleaseStatus::Uninstalling, manifest: MANIFEST, ..SampleRecord::default() };
    let owned = || JudgeCase {
        claims: vec![assembled(SampleRecord { ..uninstalling }, None)],
        new: Some(live(&[("/metadata/ownerReferences", owners)])),
        ..JudgeCase::default()
    };
    check(owned(), "Allow in-band");
}
