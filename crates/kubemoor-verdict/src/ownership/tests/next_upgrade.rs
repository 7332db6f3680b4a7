use super::*;

/// What the next upgrade does to a field of [`live`] in a group, with these managers.
#[track_caller]
fn check(group: &str, (live, method): (&Value, ApplyMethod), field: FieldChange, wanted: Effect) {
    let object =
        ObjectId { group: group.into(), kind: "Deployment".into(), namespace: None, name: "web".into() };
    let owners = Owners::from_object(live);
    let helm = find_helm_manager([&owners], method);
    let next = NextUpgrade::new(&object, &fields(&super::live(&[])), live, (helm.as_ref(), method));
    assert_eq!(next.effect(&field), wanted, "{group} {method:?} {}", field.path);
}

fn change(path: &Path, [declared, live]: &[Value; 2], agreement: FieldAgreement) -> FieldChange {
    let (declared, new) = (Some(declared.clone()), Some(live.clone()));
    FieldChange { path: path.clone(), declared, old: None, new, agreement }
}

fn undeclared(path: &Path, live: &Value) -> FieldChange {
    FieldChange { declared: None, ..change(path, &[Value::Null, live.clone()], FieldAgreement::Differs) }
}

fn edited(entries: &[Value]) -> Value {
    let mut live = live(entries);
    live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("mine:1");
    live
}

#[test]
fn server_side_upgrade_fails_on_fields_of_other_managers() {
    let (image, replicas) = (path(IMAGE), path("/spec/replicas"));
    let values = [json!("app:1"), json!("mine:1")];
    let differs = || change(&image, &values, FieldAgreement::Differs);
    let theirs = || edited(&[helm_without(), set_image()]);
    let kubectl = || "kubectl-set".to_owned();
    check("apps", (&theirs(), SSA), differs(), Effect::Fails(kubectl()));
    check("apps", (&edited(&[helm()]), SSA), differs(), Effect::Sets);
    let flux = || edited(&[entry("helm-controller", "Apply", &helms_fields()), set_image()]);
    check("apps", (&flux(), SSA), differs(), Effect::Sets);
    // The whole list is a part of the conflict.
    let containers = path("/spec/template/spec/containers");
    check(
        "apps",
        (&theirs(), SSA),
        change(&containers, &values, FieldAgreement::Differs),
        Effect::Fails(kubectl()),
    );
    check("apps", (&theirs(), SSA), change(&replicas, &values, FieldAgreement::Differs), Effect::Sets);

    let same = [json!("app:1"), json!("app:1")];
    let is_same = || change(&image, &same, FieldAgreement::Agrees);
    check("apps", (&live(&[helm(), set_image()]), SSA), is_same(), Effect::FailsOnceChanged(kubectl()));
    check("apps", (&live(&[helm()]), SSA), is_same(), Effect::FailsOnceEdited);
    let flux = live(&[entry("helm-controller", "Apply", &helms_fields())]);
    check("apps", (&flux, SSA), is_same(), Effect::Sets);
    check("apps", (&theirs(), SSA), undeclared(&image, &values[1]), Effect::Leaves);
}

#[test]
fn client_side_upgrade_sets_or_leaves_by_kind_and_value() {
    let (image, values) = (path(IMAGE), [json!("app:1"), json!("mine:1")]);
    let live = edited(&[entry("helm", "Update", &helms_fields()), set_image()]);
    let client_side = (&live, ApplyMethod::ClientSide);
    let differs = || change(&image, &values, FieldAgreement::Differs);
    for known in ["", "apps", "networking.k8s.io"] {
        check(known, client_side, differs(), Effect::Sets);
    }
    for other in ["example.com", "gateway.networking.k8s.io", "apiextensions.k8s.io"] {
        check(other, client_side, differs(), Effect::LeavesUntilChanged);
    }
    let more = [json!({"disk": "ssd"}), json!({"disk": "ssd", "zone": "a"})];
    check("apps", client_side, change(&image, &more, FieldAgreement::Differs), Effect::Leaves);
    let deep = [json!({"matchLabels": {"a": "b"}}), json!({"matchLabels": {"a": "b", "c": "d"}})];
    check("apps", client_side, change(&image, &deep, FieldAgreement::Differs), Effect::Leaves);
    let less = [json!({"disk": "ssd"}), json!({"zone": "a"})];
    check("apps", client_side, change(&image, &less, FieldAgreement::Differs), Effect::Sets);
    check("apps", client_side, undeclared(&image, &values[1]), Effect::Leaves);
}
