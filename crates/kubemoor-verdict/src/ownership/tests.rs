use proptest::prelude::*;
use serde_json::json;

use crate::owners::{FieldSet, MAX_ENTRIES};
use crate::ownership::*;
use crate::sample_values::{any_value, deployment};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::declare::declare;
use kubemoor_declare::model::{Gvk, ObjectId};

mod many;
mod moves;
mod next_upgrade;

const SSA: ApplyMethod = ApplyMethod::ServerSide;
const IMAGE: &str = "/spec/template/spec/containers/[name=app]/image";

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn manager(name: &str, operation: ManagerOperation) -> FieldManager {
    FieldManager { name: name.to_owned(), operation, subresource: String::new() }
}

fn entry(name: &str, operation: &str, fields: &Value) -> Value {
    json!({
        "manager": name, "operation": operation, "apiVersion": "apps/v1", "time": "2026-05-01T12:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

/// Helm's entry of [`live`].
fn helms_fields() -> Value {
    json!({
        "f:metadata": {
            "f:annotations": {"f:meta.helm.sh/release-name": {}, "f:meta.helm.sh/release-namespace": {}},
            "f:labels": {"f:app.kubernetes.io/managed-by": {}},
        },
        "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"app\"}": {".": {}, "f:image": {}, "f:name": {}},
        }}}},
    })
}

fn image(fields: &Value) -> Value {
    json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": fields}}}}})
}

fn live(entries: &[Value]) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "resourceVersion": "7", "managedFields": entries},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}},
    })
}

fn helm() -> Value {
    entry("helm", "Apply", &helms_fields())
}

#[test]
fn an_owner_is_found_however_the_path_is_spelled() {
    let check = |fields: Value, text: &str, owned: bool| {
        let owners = Owners::from_object(&live(&[entry("who", "Update", &fields)]));
        assert_eq!(owners.read().count(), 1);
        assert_eq!(!owners.of_path(&path(text)).is_empty(), owned, "{text} in {fields}");
    };
    let port = json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}});
    check(json!({"f:data": {"f:a": {}}}), "/data/a", true);
    check(json!({"f:data": {"f:a": {}}}), "/data/b", false);
    check(json!({"f:data": {".": {}, "f:a": {}}}), "/data/b", false);
    check(json!({"f:data": {}}), "/data/b", true);
    check(json!({"f:a/b": {}}), "/a~1b", true);
    check(json!({"f:spec": {"f:selector": {}}}), "/spec/selector/matchLabels/app", true);
    check(json!({"f:spec": {"f:rules": {"f:deep": {}}}}), "/spec/rules", true);
    check(port.clone(), "/ports/[containerPort=80,protocol=TCP]/name", true);
    check(port.clone(), "/ports/[protocol=TCP,containerPort=80]/name", true);
    check(port.clone(), "/ports/[containerPort=80,protocol=UDP]/name", false);
    check(port.clone(), "/ports/[containerPort=80]/name", false);
    check(port, "/ports/[containerPort=80,protocol=TCP]/hostPort", false);
    check(json!({"f:finalizers": {"v:\"a\"": {}}}), "/finalizers/[=a]", true);
    check(json!({"f:finalizers": {"v:\"a\"": {}}}), "/finalizers/[=b]", false);
    check(json!({"f:data": {"f:a": "odd"}}), "/data/a", false);
    check(json!({}), "", false);
}

#[test]
fn unreadable_managed_fields_entry_is_skipped_and_preserved() {
    for odd in [
        json!(7),
        json!({"manager": "a", "operation": "Delete", "fieldsV1": {}}),
        json!({"manager": "a", "operation": "Update"}),
        json!({"manager": "a", "operation": "Update", "fieldsV1": []}),
        json!({"manager": "a", "operation": "Update", "fieldsType": "FieldsV2", "fieldsV1": {}}),
    ] {
        let set = entry("kubectl-set", "Update", &image(&json!({"f:image": {}})));
        let object = live(&[odd.clone(), helm(), set]);
        assert_eq!(Owners::from_object(&object).read().count(), 2);
        let helm = manager("helm", ManagerOperation::Apply);
        let returned = managed_fields_for_helm(&object, &helm, &[path(IMAGE)]).unwrap();
        assert_eq!(returned, json!([odd, self::helm()]));
    }
    let many: Vec<Value> = (0..MAX_ENTRIES + 2).map(|_| helm()).collect();
    assert_eq!(Owners::from_object(&live(&many)).read().count(), MAX_ENTRIES);
    for none in [json!(null), json!({"metadata": {"managedFields": 7}}), json!({"metadata": []})] {
        assert!(Owners::from_object(&none).is_empty());
    }
}

#[test]
fn helm_is_the_manager_of_release_metadata_on_most_objects() {
    let marks = |fields: &[&str]| {
        let names = fields.iter().map(|name| (format!("f:{name}"), json!({})));
        json!({"f:metadata": {"f:annotations": names.collect::<serde_json::Map<_, _>>()}})
    };
    let both = || marks(&["meta.helm.sh/release-name", "meta.helm.sh/release-namespace"]);
    let check = |objects: &[Vec<Value>], method: ApplyMethod, wanted: Option<&str>| {
        let owners: Vec<_> = objects.iter().map(|entries| Owners::from_object(&live(entries))).collect();
        let found = find_helm_manager(&owners, method).map(|manager| manager.name);
        assert_eq!(found.as_deref(), wanted, "{objects:?}");
    };
    check(&[], SSA, None);
    check(&[vec![entry("kubectl", "Apply", &json!({"f:data": {}}))]], SSA, None);
    check(&[vec![entry("python3", "Apply", &both())]], SSA, Some("python3"));
    check(&[vec![entry("python3", "Update", &both())]], SSA, None);
    check(&[vec![entry("python3", "Update", &both())]], ApplyMethod::ClientSide, Some("python3"));
    // Applied by hand as well, in one place or in all.
    let twice = vec![entry("kubectl", "Apply", &both()), entry("helm", "Apply", &both())];
    check(std::slice::from_ref(&twice), SSA, Some("helm"));
    check(&[twice.clone(), vec![entry("mesh", "Apply", &both())], twice], SSA, Some("helm"));
    // Somebody changed one of the annotations.
    let stolen = vec![
        entry("someone", "Update", &marks(&["meta.helm.sh/release-name"])),
        entry(
            "theirs",
            "Update",
            &json!({"f:metadata": {
                "f:annotations": {"f:meta.helm.sh/release-namespace": {}},
                "f:labels": {"f:app.kubernetes.io/managed-by": {}},
            }}),
        ),
    ];
    check(&[stolen], ApplyMethod::ClientSide, Some("theirs"));
}

#[test]
fn returned_fields_leave_update_managers_but_stay_with_apply_managers() {
    let helm = manager("helm", ManagerOperation::Apply);
    let set = entry("kubectl-set", "Update", &image(&json!({"f:image": {}})));
    let both = entry("kubectl-edit", "Update", &image(&json!({"f:image": {}, "f:tty": {}})));
    let applier = entry("mesh", "Apply", &image(&json!({".": {}, "f:image": {}, "f:name": {}})));
    let lost = {
        let mut lost = helms_fields();
        lost["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"app\"}"]
            .as_object_mut()
            .unwrap()
            .remove("f:image");
        entry("helm", "Apply", &lost)
    };
    let object = live(&[lost, set, both, applier.clone()]);
    let rest = entry("kubectl-edit", "Update", &image(&json!({"f:tty": {}})));
    let value = managed_fields_for_helm(&object, &helm, &[path(IMAGE)]).unwrap();
    assert_eq!(value, json!([self::helm(), rest, applier]));
    let after = live(value.as_array().unwrap());
    assert_eq!(managed_fields_for_helm(&after, &helm, &[path(IMAGE)]), None);
}

// An apply that drops an element leaves one that somebody else owns, without the fields that only Helm owned.
#[test]
fn element_and_its_keys_are_returned_with_any_field_of_it() {
    let helm = manager("helm", ManagerOperation::Apply);
    let check = |owned: Value, left: Option<Value>| {
        let by_editor = |fields: &Value| entry("kubectl-edit", "Update", &image(fields));
        let value = managed_fields_for_helm(&live(&[self::helm(), by_editor(&owned)]), &helm, &[path(IMAGE)]);
        let mut wanted = vec![self::helm()];
        wanted.extend(left.as_ref().map(by_editor));
        assert_eq!(value, Some(json!(wanted)), "{owned}");
    };
    check(json!({".": {}, "f:image": {}, "f:name": {}}), None);
    check(json!({".": {}, "f:name": {}}), None);
    check(json!({".": {}, "f:image": {}, "f:name": {}, "f:tty": {}}), Some(json!({"f:tty": {}})));
    check(
        json!({".": {}, "f:name": {}, "f:resources": {".": {}, "f:limits": {}}}),
        Some(json!({"f:resources": {".": {}, "f:limits": {}}})),
    );
    // A declared null outlives the element in Helm's entry, which does not own the element any more.
    let object = live(&[
        helm_with(&json!({"f:tty": {}})),
        entry("kubectl-edit", "Update", &image(&json!({".": {}, "f:image": {}, "f:name": {}}))),
    ]);
    let whole = helm_with(&json!({".": {}, "f:image": {}, "f:tty": {}}));
    assert_eq!(managed_fields_for_helm(&object, &helm, &[path(IMAGE)]), Some(json!([whole])));
}

#[test]
fn element_that_an_editor_removed_and_made_again_is_taken_by_its_keys() {
    let check = |owned: Value, wanted: &[&str]| {
        let object = live(&[helm(), entry("kubectl-edit", "Update", &image(&owned))]);
        let (owners, fields) = (Owners::from_object(&object), fields(&object));
        let found = find_taken_fields(&fields, &object, SSA, &kubemoor_policy::mask::Mask::default());
        let paths: Vec<_> = found.iter().flat_map(|it| &it.paths).map(ToString::to_string).collect();
        assert_eq!(paths, wanted, "{owned}");
        let helm = manager("helm", ManagerOperation::Apply);
        let met = conflicts(&fields, &object, &owners, Some(&helm), SSA);
        assert!(met.iter().all(|it| it.path == path(IMAGE)), "a key meets no conflict: {met:?}");
        if let Some(TakenFields { helm, paths, .. }) = found {
            let value = managed_fields_for_helm(&object, &helm, &paths).unwrap();
            assert_eq!(value.as_array().unwrap().first(), Some(&self::helm()));
            let after = live(value.as_array().unwrap());
            assert_eq!(
                find_taken_fields(&fields, &after, SSA, &kubemoor_policy::mask::Mask::default()),
                None
            );
        }
    };
    let name = "/spec/template/spec/containers/[name=app]/name";
    check(json!({".": {}, "f:image": {}, "f:name": {}}), &[IMAGE, name]);
    // After an apply by force, which has taken the image.
    check(json!({".": {}, "f:name": {}, "f:tty": {}}), &[name]);
    check(json!({"f:tty": {}}), &[]);
}

#[test]
fn nothing_of_a_port_that_was_made_again_stays_with_the_editor_after_its_repair() {
    let service = |entries: &[Value]| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "managedFields": entries},
            "spec": {"ports": [{"name": "dns", "port": 80, "protocol": "TCP", "targetPort": 80}]},
        })
    };
    let port = |owned: &Value| json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": owned}});
    let mut helms = helms_fields();
    helms["f:spec"] =
        port(&json!({".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}));
    let helms = entry("helm", "Apply", &helms);
    let by_editor = |owned: Value| entry("kubectl-edit", "Update", &json!({"f:spec": port(&owned)}));
    let schema = Catalog::with_core().schema(&Gvk::from_api_version("v1", "Service"));
    let fields = declare(&service(&[]), schema.as_deref());

    // The repair has set the name that the editor gave the port.
    let edited = service(&[
        helms.clone(),
        by_editor(json!({".": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}})),
    ]);
    let (helm, name) =
        (manager("helm", ManagerOperation::Apply), path("/spec/ports/[port=80,protocol=TCP]/name"));
    let value = managed_fields_for_helm(&edited, &helm, &[name]).unwrap();
    assert_eq!(value, json!([helms, by_editor(json!({"f:targetPort": {}}))]));
    let repaired = service(value.as_array().unwrap());
    let rest = find_taken_fields(&fields, &repaired, SSA, &kubemoor_policy::mask::Mask::default()).unwrap();
    assert_eq!(managed_fields_for_helm(&repaired, &rest.helm, &rest.paths), Some(json!([helms])));
}

// The API server reads a map that an entry owns without anything below it as one that was owned as a whole, and gives
// the entry everything below it.
#[test]
fn map_goes_with_the_last_field_below_it() {
    let helm = manager("helm", ManagerOperation::Apply);
    let check = |owned: Value, left: Option<Value>| {
        let by_editor = |fields| entry("kubectl-edit", "Update", &fields);
        let map = json!({
            "metadata": {"managedFields": [entry("helm", "Apply", &json!({"f:data": {"f:a": {}}})), by_editor(owned)]},
            "data": {"a": "x", "b": "y"},
        });
        let value = managed_fields_for_helm(&map, &helm, &[path("/data/a")]).unwrap();
        let mut wanted = vec![entry("helm", "Apply", &json!({"f:data": {"f:a": {}}}))];
        wanted.extend(left.map(by_editor));
        assert_eq!(value, json!(wanted));
    };
    check(json!({"f:data": {".": {}, "f:a": {}}}), None);
    check(json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}), Some(json!({"f:data": {".": {}, "f:b": {}}})));
    check(
        json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}}}}),
        Some(json!({"f:metadata": {"f:labels": {".": {}}}})),
    );
}

#[test]
fn what_an_object_without_owners_or_a_patch_by_helm_held_is_returned_with_the_map_around_it() {
    let helm = manager("helm", ManagerOperation::Apply);
    for (name, is_returned) in [("before-first-apply", true), ("helm", true), ("kubectl-edit", false)] {
        let whole = live(&[self::helm(), entry(name, "Update", &json!({"f:spec": {}}))]);
        let wanted = is_returned.then(|| json!([self::helm()]));
        assert_eq!(managed_fields_for_helm(&whole, &helm, &[path(IMAGE)]), wanted, "{name}");
    }
}

#[test]
fn fields_helm_would_drop_and_missing_fields_are_not_returned() {
    let helm = manager("helm", ManagerOperation::Apply);
    // Helm sends the text; as a key of data its next manifest would not have it.
    let secret = json!({
        "metadata": {"managedFields": [
            entry("helm", "Apply", &json!({"f:stringData": {"f:a": {}}})),
            entry("kubectl-edit", "Update", &json!({"f:data": {"f:a": {}}})),
        ]},
        "data": {"a": "eA=="},
    });
    let texts = entry("helm", "Apply", &json!({"f:stringData": {"f:a": {}}}));
    assert_eq!(managed_fields_for_helm(&secret, &helm, &[path("/data/a")]), Some(json!([texts])));
    // A field that is absent is nobody's.
    assert_eq!(managed_fields_for_helm(&live(&[self::helm()]), &helm, &[path("/spec/paused")]), None);
}

#[test]
fn conflicts_are_with_whoever_else_owns_a_declared_field() {
    let fields = fields(&live(&[]));
    let check = |entries: &[Value], live_image: &str, method, wanted: &[(&str, &str, bool)]| {
        let mut live = live(entries);
        live["spec"]["template"]["spec"]["containers"][0]["image"] = json!(live_image);
        let owners = Owners::from_object(&live);
        let helm = find_helm_manager([&owners], method);
        let found = conflicts(&fields, &live, &owners, helm.as_ref(), method);
        let found: Vec<_> =
            found.iter().map(|it| (it.path.to_string(), it.manager.name.as_str(), it.differs)).collect();
        let wanted: Vec<_> =
            wanted.iter().map(|(path, name, differs)| ((*path).to_owned(), *name, *differs)).collect();
        assert_eq!(found, wanted, "{entries:?}");
    };
    let of = |name, operation| entry(name, operation, &image(&json!({".": {}, "f:image": {}, "f:name": {}})));
    let set = || of("kubectl-set", "Update");
    check(&[helm()], "app:1", SSA, &[]);
    check(&[helm()], "mine:1", SSA, &[]);
    check(&[helm(), set()], "mine:1", SSA, &[(IMAGE, "kubectl-set", true)]);
    check(&[helm(), set()], "app:1", SSA, &[(IMAGE, "kubectl-set", false)]);
    check(&[helm(), of("mesh", "Apply")], "app:1", SSA, &[(IMAGE, "mesh", false)]);
    // Helm's former way of writing is somebody else to the API server.
    check(&[helm(), of("helm", "Update")], "app:1", SSA, &[(IMAGE, "helm", false)]);
    check(&[set()], "mine:1", SSA, &[(IMAGE, "kubectl-set", true)]);
    check(&[helm(), set()], "mine:1", ApplyMethod::ClientSide, &[]);
    check(&[entry("helm-controller", "Apply", &helms_fields()), set()], "mine:1", SSA, &[]);
    check(&[helm(), entry("kubectl", "Update", &image(&json!({"f:tty": {}})))], "app:1", SSA, &[]);
    let mut scaled = entry("kubectl", "Update", &json!({"f:spec": {"f:replicas": {}}}));
    scaled["subresource"] = json!("scale");
    check(&[helm(), scaled], "app:1", SSA, &[("/spec/replicas", "kubectl", false)]);
}

fn fields(declared: &Value) -> DeclaredFields {
    let schema = Catalog::with_core().schema(&Gvk::from_api_version("apps/v1", "Deployment"));
    declare(declared, schema.as_deref())
}

/// Helm's entry, with these fields of the container.
fn helm_with(fields: &Value) -> Value {
    let mut left = helms_fields();
    left["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"app\"}"] = fields.clone();
    entry("helm", "Apply", &left)
}

/// The same without the image.
fn helm_without() -> Value {
    helm_with(&json!({".": {}, "f:name": {}}))
}

fn set_image() -> Value {
    entry("kubectl-set", "Update", &image(&json!({"f:image": {}})))
}

fn applied_image() -> Value {
    entry("kubectl", "Apply", &image(&json!({".": {}, "f:image": {}, "f:name": {}, "f:tty": {}})))
}

/// An edit: the object before it, the managedFields after it, and the manager that applied it, if any.
#[derive(Clone, Copy)]
struct OwnershipEdit<'a> {
    old: &'a Value,
    new: &'a [Value],
    applier: &'a str,
}

fn check_undone(what: &str, edit: OwnershipEdit<'_>, back: RevertedPath, wanted: Option<Value>) {
    let (back, result, new) = ([back], live(&[]), live(edit.new));
    let object = &ObjectId::namespaced("apps", "Deployment", "shop", "web");
    let edit = WholeEdit { object, old: edit.old, new: &new, field_manager: edit.applier, settled: None };
    assert_eq!(managed_fields_after_revert(edit, &result, &back, SSA), wanted, "{what}");
    if let Some(wanted) = &wanted {
        let again = live(wanted.as_array().unwrap());
        assert_eq!(
            managed_fields_after_revert(WholeEdit { new: &again, ..edit }, &result, &back, SSA),
            None,
            "{what}: once more"
        );
    }
}

#[test]
fn undoing_a_change_restores_the_previous_field_owners() {
    let an_image = || RevertedPath { path: path(IMAGE), declared: vec![path(IMAGE)] };
    let undeclared = |text: &str| RevertedPath { path: path(text), declared: vec![] };
    let rest = || entry("kubectl", "Apply", &image(&json!({".": {}, "f:name": {}, "f:tty": {}})));
    let helms = || Some(json!([helm()]));
    // Also where old objects come without managedFields.
    for old in [&live(&[helm()]), &live(&[])] {
        let edit = [helm_without(), set_image()];
        check_undone("a new image", OwnershipEdit { old, new: &edit, applier: "" }, an_image(), helms());
        let edit = [helm_without(), applied_image()];
        check_undone(
            "an apply",
            OwnershipEdit { old, new: &edit, applier: "kubectl" },
            an_image(),
            Some(json!([helm(), rest()])),
        );
        check_undone("nothing", OwnershipEdit { old, new: &[helm()], applier: "" }, an_image(), None);
        check_undone("no managedFields", OwnershipEdit { old, new: &[], applier: "" }, an_image(), None);
        let paused = entry("kubectl", "Update", &json!({"f:spec": {"f:paused": {}}}));
        let sealed = OwnershipEdit { old, new: &[helm(), paused], applier: "" };
        check_undone("a seal", sealed, undeclared("/spec/paused"), helms());
        // The edit made a struct to hold it, of which nothing is left.
        let made = json!({"f:spec": {"f:strategy": {".": {}, "f:type": {}}, "f:minReadySeconds": {}}});
        let made = [helm(), entry("kubectl", "Update", &made)];
        let left = entry("kubectl", "Update", &json!({"f:spec": {"f:minReadySeconds": {}}}));
        let left = Some(json!([helm(), left]));
        check_undone(
            "a struct",
            OwnershipEdit { old, new: &made, applier: "" },
            undeclared("/spec/strategy/type"),
            left,
        );
    }
    // An applier that had the field before keeps it.
    let shared = live(&[helm(), applied_image()]);
    let edit = [helm_without(), applied_image(), set_image()];
    check_undone(
        "shared",
        OwnershipEdit { old: &shared, new: &edit, applier: "" },
        an_image(),
        Some(json!([helm(), applied_image()])),
    );
}

#[test]
fn restored_element_returns_its_fields_to_the_previous_owners() {
    let container = "/spec/template/spec/containers/[name=app]";
    let all = || RevertedPath {
        path: path(container),
        declared: vec![path(IMAGE), path(&format!("{container}/name"))],
    };
    let mut gone = helms_fields();
    gone["f:spec"].as_object_mut().unwrap().remove("f:template");
    let gone = [entry("helm", "Apply", &gone)];
    let tty = || entry("kubectl-edit", "Update", &image(&json!({"f:tty": {}})));
    let before = live(&[helm(), tty()]);
    check_undone(
        "known",
        OwnershipEdit { old: &before, new: &gone, applier: "" },
        all(),
        Some(json!([helm(), tty()])),
    );
    check_undone(
        "unknown",
        OwnershipEdit { old: &live(&[]), new: &gone, applier: "" },
        all(),
        Some(json!([helm()])),
    );
}

proptest! {
    #[test]
    fn any_managed_fields_give_an_answer(entries in any_value(), object in deployment()) {
        let mut object = object;
        object["metadata"]["managedFields"] = entries;
        let owners = Owners::from_object(&object);
        let fields = fields(&object);
        let helm = find_helm_manager([&owners], SSA);
        conflicts(&fields, &object, &owners, helm.as_ref(), SSA);
        let paths: Vec<Path> = fields.leaves().into_iter().map(|(path, _)| path).collect();
        if let Some(value) = managed_fields_for_helm(&object, &manager("helm", ManagerOperation::Apply), &paths) {
            let mut after = object.clone();
            after["metadata"]["managedFields"] = value;
            prop_assert_eq!(managed_fields_for_helm(&after, &manager("helm", ManagerOperation::Apply), &paths), None);
        }
    }

    #[test]
    fn path_removed_and_restored_is_owned_as_before(object in deployment(), at in 0_usize..40) {
        let paths: Vec<Path> = fields(&object).leaves().into_iter().map(|(path, _)| path).collect();
        let mut set = FieldSet::default();
        paths.iter().for_each(|path| set.add(path));
        prop_assert!(paths.iter().all(|path| set.owns(path)));
        if let Some(path) = paths.get(at % paths.len().max(1)) {
            let had = set.at(path).cloned().unwrap();
            let before = format!("{:?}", set.0);
            set.remove(path);
            prop_assert!(!set.owns(path));
            set.put(path, had);
            prop_assert!(set.owns(path));
            prop_assert!(paths.iter().all(|path| set.owns(path)), "{} {:?}", before, set.0);
        }
    }
}

/// A container whose resources the manifest declares as `{}`, and somebody fills.
fn filled_resources() -> (DeclaredFields, Value) {
    let mut declared = live(&[]);
    declared["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    let limits = image(&json!({"f:resources": {"f:limits": {".": {}, "f:cpu": {}}}}));
    let mut filled = live(&[helm(), entry("kubectl-edit", "Update", &limits)]);
    filled["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    (fields(&declared), filled)
}

#[test]
fn what_somebody_sets_below_an_empty_map_stays_theirs() {
    let (fields, filled) = filled_resources();
    let (owners, helm) = (Owners::from_object(&filled), manager("helm", ManagerOperation::Apply));
    assert_eq!(conflicts(&fields, &filled, &owners, Some(&helm), SSA), []);
    assert_eq!(find_taken_fields(&fields, &filled, SSA, &kubemoor_policy::mask::Mask::default()), None);
    let object = ObjectId::namespaced("apps", "Deployment", "shop", "web");
    let next = NextUpgrade::new(&object, &fields, &filled, (Some(&helm), SSA));
    let place = path("/spec/template/spec/containers/[name=app]/resources");
    let agreement = FieldAgreement::Agrees;
    let same = FieldChange { path: place, declared: Some(json!({})), old: None, new: None, agreement };
    assert_eq!(next.effect(&same), Effect::Leaves);
}

#[test]
fn another_value_in_place_of_an_empty_map_is_a_conflict() {
    let thing = |value: Value, entries: Value| {
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"managedFields": entries},
            "spec": {"nested": value}})
    };
    let fields = declare(&thing(json!({}), json!([])), None);
    let set = entry("kubectl-edit", "Update", &json!({"f:spec": {"f:nested": {}}}));
    let helm = manager("helm", ManagerOperation::Apply);
    let met = |value: Value| {
        let live = thing(value, json!([set]));
        conflicts(&fields, &live, &Owners::from_object(&live), Some(&helm), SSA).len()
    };
    assert_eq!(met(json!("text")), 1);
    assert_eq!(met(json!({"a": "b"})), 0);
}

#[test]
fn value_in_place_of_a_null_map_is_a_conflict() {
    let mut declared = live(&[]);
    declared["spec"]["template"]["spec"]["nodeSelector"] = json!(null);
    let set = json!({"f:spec": {"f:template": {"f:spec": {"f:nodeSelector": {}}}}});
    let mut edited = live(&[helm(), entry("kubectl-edit", "Update", &set)]);
    edited["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    let helm = manager("helm", ManagerOperation::Apply);
    let found = conflicts(&fields(&declared), &edited, &Owners::from_object(&edited), Some(&helm), SSA);
    let found: Vec<(String, bool)> = found.iter().map(|it| (it.path.to_string(), it.differs)).collect();
    assert_eq!(found, [("/spec/template/spec/nodeSelector".to_owned(), true)]);
}
