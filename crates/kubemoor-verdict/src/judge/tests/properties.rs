//! What holds for any edit.

use proptest::prelude::*;

use super::*;
use crate::message::{EditMessage, MessageContext};
use crate::sample_values::{Deep, any_value, deployment, has_doubled_keys, reordered, texts};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::release::documents;

const STATUSES: [ReleaseStatus; 8] = [
    ReleaseStatus::Unknown,
    ReleaseStatus::Deployed,
    ReleaseStatus::Superseded,
    ReleaseStatus::Failed,
    ReleaseStatus::Uninstalling,
    ReleaseStatus::PendingInstall,
    ReleaseStatus::PendingUpgrade,
    ReleaseStatus::PendingRollback,
];

fn status() -> impl Strategy<Value = ReleaseStatus> {
    proptest::sample::select(&STATUSES[..])
}

/// A Deployment as the release `shop/web` sends it; JSON is YAML as well.
fn sent(manifest: &Value) -> Value {
    let (mut objects, skipped) =
        documents(&release("shop", "web"), &manifest.to_string(), &Catalog::with_core());
    assert_eq!((objects.len(), skipped.len()), (1, 0), "{manifest}");
    objects.remove(0).1
}

fn renamed(mut object: Value) -> Value {
    object["metadata"]["name"] = json!("web");
    object
}

fn any_deployment() -> impl Strategy<Value = Value> {
    deployment().prop_map(renamed)
}

fn update(status: ReleaseStatus, manifest: &Value, old: &Value, new: &Value) -> Verdict {
    let manifest = manifest.to_string();
    let claims =
        vec![assembled(SampleRecord { status, manifest: &manifest, ..SampleRecord::default() }, None)];
    JudgeCase { claims, old: Some(old.clone()), new: Some(new.clone()), ..JudgeCase::default() }.verdict()
}

/// The value at a path, which only the first element of a key has.
fn place<'v>(root: &'v mut Value, path: &Path) -> Option<&'v mut Value> {
    path.0.iter().try_fold(root, |value, segment| match segment {
        Segment::Field(name) => value.get_mut(name),
        Segment::Key(keys) => value.as_array_mut()?.iter_mut().find(|item| {
            keys.iter().all(|(key, wanted)| match item.get(key) {
                Some(found) => found == wanted,
                None => key == "protocol" && wanted == "TCP",
            })
        }),
        Segment::Element(wanted) => value.as_array_mut()?.iter_mut().find(|item| *item == wanted),
    })
}

/// Another value of the same type, which no spelling makes the same.
fn other(value: &Value) -> Value {
    match value {
        Value::Null => json!("x"),
        Value::Bool(value) => json!(!value),
        Value::Number(number) => json!(number.as_i64().unwrap() + 7),
        // Still a quantity, where it was one.
        Value::String(text) => json!(format!("7{text}")),
        Value::Array(items) => items.iter().cloned().chain([json!("x")]).collect(),
        Value::Object(map) => map.clone().into_iter().chain([("x".to_owned(), json!("x"))]).collect(),
    }
}

/// What a verdict says, whatever the order in which fields are found.
fn sorted(verdict: &Verdict) -> (EditOutcome, VerdictReason, bool, Vec<String>) {
    let fields = verdict.grounds.iter().flat_map(|grounds| &grounds.fields);
    let mut paths: Vec<_> = fields.map(|field| field.path.to_string()).collect();
    paths.sort();
    (verdict.outcome, verdict.reason, verdict.arguable, paths)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_object_against_itself_is_never_refused(
        status in status(), declared in any_deployment(), live in any_deployment()
    ) {
        prop_assert_eq!(update(status, &declared, &live, &live).outcome, EditOutcome::Allow);
    }

    #[test]
    fn change_of_undeclared_unsealed_fields_is_never_denied(
        status in status(), declared in any_deployment(), live in any_deployment(), added in texts(), n in 0..9_u8
    ) {
        let mut edited = live.clone();
        edited["metadata"]["annotations"] = added;
        edited["metadata"]["resourceVersion"] = json!(n.to_string());
        edited["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(n);
        edited["spec"]["paused"] = json!(false);
        edited["status"] = json!({"replicas": n});
        prop_assert_eq!(describe(&update(status, &declared, &live, &edited)), "Allow unchanged");
    }

    #[test]
    fn seals_of_other_objects_change_no_verdict(
        status in status(), declared in any_deployment(), live in any_deployment(), edited in any_deployment()
    ) {
        let manifest = declared.to_string();
        let under = |policy| {
            let claims = vec![assembled(SampleRecord { status, manifest: &manifest, ..SampleRecord::default() }, None)];
            let (old, new) = (Some(live.clone()), Some(edited.clone()));
            JudgeCase { claims, old, new, policy, ..JudgeCase::default() }.verdict()
        };
        let plain = under("");
        prop_assert_eq!(&plain, &under("{seal: [{target: {kind: Secret}, paths: ['*']}]}"));
        // A seal makes a verdict stricter, and finds what it found before.
        let sealed = under("{seal: [{paths: ['*']}]}");
        prop_assert!(sealed.outcome >= plain.outcome);
        let found = sorted(&sealed).3;
        if plain.outcome == EditOutcome::Deny {
            prop_assert!(sorted(&plain).3.iter().all(|path| found.contains(path)));
        }
    }

    #[test]
    fn change_of_a_declared_path_is_denied_unless_it_restores(
        declared in any_deployment(), at in any::<proptest::sample::Index>()
    ) {
        prop_assume!(!has_doubled_keys(&declared));
        let sent = sent(&declared);
        let claim = deployed(&declared.to_string());
        let leaves = claim.declared(&web()).unwrap().fields().leaves();
        let (path, _) = at.get(&leaves);
        let mut edited = sent.clone();
        let Some(value) = place(&mut edited, path) else {
            return Err(TestCaseError::fail(format!("{path} is not in {sent}")));
        };
        *value = other(value);
        let away = update(ReleaseStatus::Deployed, &declared, &sent, &edited);
        prop_assert_eq!((away.outcome, away.reason), (EditOutcome::Deny, VerdictReason::Drift), "{}", path);
        let back = update(ReleaseStatus::Deployed, &declared, &edited, &sent);
        prop_assert_eq!(describe(&back), "Allow as-declared", "{}", path);
    }

    #[test]
    fn the_order_of_maps_keyed_lists_and_sets_never_matters(
        status in status(), declared in any_deployment(), old in any_deployment(), new in any_deployment()
    ) {
        prop_assume!(![&declared, &old, &new].into_iter().any(has_doubled_keys));
        let turned = |value: &Value| reordered(value, "");
        prop_assert_eq!(describe(&update(status, &declared, &old, &turned(&old))), "Allow unchanged");
        let straight = sorted(&update(status, &declared, &old, &new));
        prop_assert_eq!(&straight, &sorted(&update(status, &declared, &turned(&old), &turned(&new))));
        prop_assert_eq!(&straight, &sorted(&update(status, &declared, &old, &turned(&new))));
        prop_assert_eq!(&straight, &sorted(&update(status, &turned(&declared), &old, &new)));
    }

    #[test]
    fn any_json_gets_a_verdict(
        status in status(), spec in any_value(), canonical in any_value(), scale in any::<bool>(),
        versions in proptest::array::uniform2(proptest::option::of(any_value())),
    ) {
        let manifest = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec,
        });
        let manifest = manifest.to_string();
        for operation in [Operation::Create, Operation::Update, Operation::Delete] {
            for evidence in [DryRunEvidence::None, DryRunEvidence::Canonical(&canonical), DryRunEvidence::Unavailable] {
                let claims = vec![assembled(SampleRecord { status, manifest: &manifest, ..SampleRecord::default() }, None)];
                let [old, new] = versions.clone();
                let verdict = JudgeCase { claims, operation, old, new, scale, evidence, ..JudgeCase::default() }.verdict();
                prop_assert!(!said(operation, &verdict).denial().is_empty());
                prop_assert!(verdict.grounds.is_some() || verdict.outcome == EditOutcome::Allow);
            }
        }
    }
}

/// Puts deep values where declared and sealed fields are.
fn nested(levels: usize, innermost: i32) -> Deep {
    let mut object = live(&[]);
    for (above, name) in [
        ("/spec", "replicas"),
        ("/spec", "paused"),
        ("/spec/template/spec", "tolerations"),
        ("/spec/template/spec/containers/0", "image"),
        ("/metadata", "ownerReferences"),
        ("/metadata/annotations", "helm.sh/resource-policy"),
    ] {
        let value = Deep::new(levels, json!(innermost)).0.take();
        object.pointer_mut(above).unwrap().as_object_mut().unwrap().insert(name.to_owned(), value);
    }
    Deep(object)
}

#[test]
fn any_depth_gets_a_verdict_on_a_small_stack() {
    let run = || {
        let (one, two, plain) = (nested(100_000, 1), nested(100_000, 2), Deep(live(&[])));
        let claims = [
            Arc::new(deployed(MANIFEST)),
            Arc::new(second(ReleaseStatus::PendingUpgrade, MANIFEST, MANIFEST)),
        ];
        let actor = Actor::default();
        let resolver = resolver(EditsMode::Deny);
        let rules = Rules { resolver: &resolver, own_account: None };
        for (old, new) in [(&one, &two), (&plain, &one), (&one, &plain), (&one, &one)] {
            for operation in [Operation::Create, Operation::Update, Operation::Delete] {
                let circumstances = ObjectContext::default();
                let edit = Edit {
                    circumstances: &circumstances,
                    operation,
                    actor: &actor,
                    object: &web(),
                    old: (operation != Operation::Create).then_some(&old.0),
                    new: (operation != Operation::Delete).then_some(&new.0),
                    version: Some("v1"),
                    scale: false,
                    owner: ObjectOwner::named_by(&new.0),
                    dry_run: false,
                    field_manager: "",
                };
                for evidence in
                    [DryRunEvidence::None, DryRunEvidence::Canonical(&two.0), DryRunEvidence::Unavailable]
                {
                    let now = "2026-05-01T12:05:00Z".parse().unwrap();
                    let (verdict, _) = judge(&edit, &claims, &rules, evidence, now);
                    assert!(said(operation, &verdict).denial().len() < 10_000);
                }
            }
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

fn said(operation: Operation, verdict: &Verdict) -> EditMessage {
    MessageContext { object: &web(), operation, policy: None, declared: None, release: None, live: [None; 2] }
        .of_edit(verdict)
}
