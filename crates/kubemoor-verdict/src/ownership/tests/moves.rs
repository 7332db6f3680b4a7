//! Whose element is taken for a declared one that was moved, and whose field in the place of another may be removed.

use super::*;

#[test]
fn only_what_an_editor_wrote_was_moved() {
    let declared = json!({"spec": {"ports": [{"name": "http", "port": 80}]}});
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": declared["spec"]});
    let schema = kubemoor_declare::catalog::core()
        .schema(&kubemoor_declare::model::Gvk::from_api_version("v1", "Service"));
    let fields = kubemoor_declare::declare::declare(&service, schema.as_deref());
    let port =
        json!({"f:spec": {"f:ports": {"k:{\"port\":81,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
    let check = |managers: &[(&str, &str)], by: Option<&str>| {
        let entries: Vec<Value> =
            managers.iter().map(|(name, operation)| entry(name, operation, &port)).collect();
        let live = json!({
            "metadata": {"managedFields": entries},
            "spec": {"ports": [{"name": "http", "port": 81, "protocol": "TCP"}]},
        });
        let found = replacements(&fields, &live, &Owners::from_object(&live), Some("helm"));
        let found: Vec<_> = found.iter().flat_map(|it| &it.by).map(|by| by.name.as_str()).collect();
        assert_eq!(found, by.into_iter().collect::<Vec<_>>(), "{managers:?}");
    };
    check(&[("kubectl-edit", "Update")], Some("kubectl-edit"));
    check(&[("helm", "Update"), ("kubectl-edit", "Update")], Some("kubectl-edit"));
    check(&[("helm", "Update")], None);
    check(&[("helm", "Apply"), ("kubectl-edit", "Update")], None);
    check(&[], None);
    // It was not moved, but it keeps the declared one away.
    check(&[("flux", "Apply")], Some("flux"));
}

#[test]
fn excluding_field_may_be_removed_unless_another_manager_applies_it() {
    let kind = kubemoor_declare::model::Gvk::from_api_version("policy/v1", "PodDisruptionBudget");
    let schema = kubemoor_declare::catalog::core().schema(&kind);
    let manifest = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": {"minAvailable": 1}});
    let fields = kubemoor_declare::declare::declare(&manifest, schema.as_deref());
    let budget = json!({"f:spec": {"f:maxUnavailable": {}}});
    let check = |managers: &[(&str, &str)], by: Option<&str>, is_removable: bool| {
        let entries: Vec<Value> =
            managers.iter().map(|(name, operation)| entry(name, operation, &budget)).collect();
        let live = json!({"metadata": {"managedFields": entries}, "spec": {"maxUnavailable": 1}});
        let owners = Owners::from_object(&live);
        let found = replacements(&fields, &live, &owners, Some("helm"));
        let [found] = found.as_slice() else { panic!("one field, not {found:?}") };
        assert_eq!(found.found.live, path("/spec/maxUnavailable"));
        assert_eq!(found.by.as_ref().map(|by| by.name.as_str()), by, "{managers:?}");
        assert_eq!(found.is_removable, is_removable, "{managers:?}");
        let helm = manager("helm", ManagerOperation::Apply);
        let ahead = conflicts(&fields, &live, &owners, Some(&helm), SSA);
        let ahead: Vec<_> = ahead.iter().map(|it| (it.path.to_string(), it.moved_to.clone())).collect();
        let expected = by.map(|_| ("/spec/minAvailable".to_owned(), Some(path("/spec/maxUnavailable"))));
        assert_eq!(ahead, expected.into_iter().collect::<Vec<_>>(), "{managers:?}");
    };
    check(&[("kubectl-edit", "Update")], Some("kubectl-edit"), true);
    check(&[("helm", "Update")], None, true);
    check(&[("helm", "Apply"), ("kubectl-edit", "Update")], Some("kubectl-edit"), true);
    check(&[], None, true);
    check(&[("flux", "Apply")], Some("flux"), false);
}

#[test]
fn fields_of_editors_beside_a_declared_one_are_found_though_helm_owns_the_value_around_them() {
    let fields = fields(&live(&[]));
    let check = |managers: &[(&str, &str, Value)], by: Option<&str>| {
        let entries: Vec<Value> =
            managers.iter().map(|(name, operation, owned)| entry(name, operation, &image(owned))).collect();
        let mut live = live(&entries);
        live["spec"]["template"]["spec"]["containers"][0]["tty"] = json!(true);
        let found =
            undeclared_siblings(&fields, &live, &Owners::from_object(&live), Some("helm"), &path(IMAGE));
        let found: Vec<_> = found.iter().flat_map(|it| &it.by).map(|by| by.name.as_str()).collect();
        assert_eq!(found, by.into_iter().collect::<Vec<_>>(), "{managers:?}");
    };
    let (tty, whole) = (json!({"f:tty": {}}), json!({}));
    check(&[("kubectl-edit", "Update", tty.clone())], Some("kubectl-edit"));
    check(&[("helm", "Apply", whole.clone()), ("kubectl-edit", "Update", tty.clone())], Some("kubectl-edit"));
    check(&[("flux", "Apply", whole.clone()), ("kubectl-edit", "Update", tty)], None);
    check(&[("helm", "Apply", whole)], None);
}
