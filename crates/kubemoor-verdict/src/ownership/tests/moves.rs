//! Whose element with other keys is taken for a declared one that was moved.

use super::*;

#[test]
fn only_what_an_editor_wrote_was_moved() {
    let declared = json!({"spec": {"ports": [{"name": "http", "port": 80}]}});
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": declared["spec"]});
    let schema = kubemoor_declare::embedded::core()
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
        let found = moved(&fields, &live, &Owners::of(&live), Some("helm"));
        let found: Vec<_> = found.iter().map(|(_, manager)| manager.name.as_str()).collect();
        assert_eq!(found, by.into_iter().collect::<Vec<_>>(), "{managers:?}");
    };
    check(&[("kubectl-edit", "Update")], Some("kubectl-edit"));
    check(&[("helm", "Update"), ("kubectl-edit", "Update")], Some("kubectl-edit"));
    check(&[("helm", "Update")], None);
    check(&[("helm", "Apply"), ("kubectl-edit", "Update")], None);
    check(&[("flux", "Apply")], None);
    check(&[], None);
}
