use serde_json::{Value, json};

use super::*;
use crate::model::{EditsMode, ReleaseId};
use crate::verdict::judge::tests::resolver;
use crate::verdict::shown::Shown;

fn object(group: &str, kind: &str) -> ObjectId {
    ObjectId {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: Some("shop".to_owned()),
        name: "web".to_owned(),
    }
}

fn finding(object: &ObjectId, path: &str, [declared, old, new]: [Value; 3]) -> Finding {
    let path: crate::declaration::path::Path = path.parse().unwrap();
    let shown = |value: Value| (!value.is_null()).then(|| Shown::of(object, &path, &value));
    let (declared, old, new) = (shown(declared), shown(old), shown(new));
    Finding { path, declared, old, new, doubt: false, added: false }
}

fn refused(reason: Reason, fields: Vec<Finding>) -> Verdict {
    let release = ReleaseId { namespace: "shop".to_owned(), name: "web".to_owned() };
    Verdict::by_mode(
        resolver(EditsMode::Deny).defaults(),
        reason,
        Some(Grounds { release, revision: 7, fields }),
    )
}

fn drift(object: &ObjectId, fields: Vec<(&str, [Value; 3])>) -> String {
    let fields = fields.into_iter().map(|(path, values)| finding(object, path, values)).collect();
    sentence(object, Operation::Update, &refused(Reason::Drift, fields))
}

#[test]
fn a_field_is_told_with_its_declared_old_and_new_value() {
    let text = drift(
        &object("apps", "Deployment"),
        vec![
            ("/spec/replicas", [json!(2), json!(2), json!(5)]),
            (
                "/spec/template/spec/containers/[name=app]/image",
                [json!("app:1"), json!(null), json!("app:2")],
            ),
            ("/spec/paused", [json!(null), json!(null), json!(true)]),
        ],
    );
    insta::assert_snapshot!(text, @r#"Deployment/web in namespace shop is declared by Helm release web in namespace shop (revision 7), and this edit would leave it otherwise: /spec/replicas (declared 2, was 2, would be 5); /spec/template/spec/containers/[name=app]/image (declared "app:1", was absent, would be "app:2"); /spec/paused (declared absent, was absent, would be true). Change the chart's values and run `helm upgrade web -n shop`."#);
}

#[test]
fn a_secrets_values_are_redacted() {
    let text = drift(
        &object("", "Secret"),
        vec![
            ("/data/password", [json!("aHVudGVyMg=="), json!("aHVudGVyMg=="), json!("aHVudGVyMw==")]),
            ("/type", [json!("Opaque"), json!("Opaque"), json!(null)]),
        ],
    );
    assert!(!text.contains("aHVudGVy"), "{text}");
    insta::assert_snapshot!(text, @r#"Secret/web in namespace shop is declared by Helm release web in namespace shop (revision 7), and this edit would leave it otherwise: /data/password (declared (redacted), was (redacted), would be (redacted)); /type (declared "Opaque", was "Opaque", would be absent). Change the chart's values and run `helm upgrade web -n shop`."#);
}

#[test]
fn a_long_list_of_fields_is_counted() {
    let paths: Vec<_> = (0..11).map(|n| format!("/data/k{n}")).collect();
    let fields = paths.iter().map(|path| (path.as_str(), [json!("a"), json!("a"), json!("b")])).collect();
    insta::assert_snapshot!(drift(&object("", "ConfigMap"), fields), @r#"ConfigMap/web in namespace shop is declared by Helm release web in namespace shop (revision 7), and this edit would leave it otherwise: /data/k0 (declared "a", was "a", would be "b"); /data/k1 (declared "a", was "a", would be "b"); /data/k2 (declared "a", was "a", would be "b"); /data/k3 (declared "a", was "a", would be "b"); /data/k4 (declared "a", was "a", would be "b"); /data/k5 (declared "a", was "a", would be "b"); /data/k6 (declared "a", was "a", would be "b"); /data/k7 (declared "a", was "a", would be "b"); and 3 more. Change the chart's values and run `helm upgrade web -n shop`."#);
}

#[test]
fn a_key_cannot_break_the_paragraph() {
    let fields = vec![("/data/a\n\u{1b}[31mb", [json!("x\ny"), json!(null), json!(null)])];
    let text = drift(&object("", "ConfigMap"), fields);
    assert!(!text.contains(char::is_control), "{text:?}");
    insta::assert_snapshot!(text, @r#"ConfigMap/web in namespace shop is declared by Helm release web in namespace shop (revision 7), and this edit would leave it otherwise: /data/a  [31mb (declared "x\ny", was absent, would be absent). Change the chart's values and run `helm upgrade web -n shop`."#);
}

#[test]
fn a_deletion_is_told_without_fields() {
    let (web, verdict) = (object("apps", "Deployment"), refused(Reason::Deletion, Vec::new()));
    insta::assert_snapshot!(sentence(&web, Operation::Delete, &verdict), @"Deployment/web in namespace shop is declared by Helm release web in namespace shop (revision 7) and would be deleted. To remove it, drop it from the chart and upgrade, or run `helm uninstall web -n shop`.");
}

#[test]
fn a_falsified_record_is_told_with_what_would_be_false() {
    let mut record = object("", "Secret");
    record.name = "sh.helm.release.v1.web.v7".to_owned();
    insta::assert_snapshot!(of_record(&record, Falsified::Manifest), @"Secret/sh.helm.release.v1.web.v7 in namespace shop is a record of Helm's, and the manifest of an existing revision would change. Use `helm upgrade`, `helm rollback` or `helm uninstall`, which keep their records themselves.");
    insta::assert_snapshot!(of_record(&record, Falsified::LastDeployed), @"Secret/sh.helm.release.v1.web.v7 in namespace shop is a record of Helm's, and the last deployed revision would be gone while the release is installed. Use `helm upgrade`, `helm rollback` or `helm uninstall`, which keep their records themselves.");
    insta::assert_snapshot!(of_record(&record, Falsified::Disagreement), @"Secret/sh.helm.release.v1.web.v7 in namespace shop is a record of Helm's, and its name, labels and payload would disagree. Use `helm upgrade`, `helm rollback` or `helm uninstall`, which keep their records themselves.");
}

#[test]
fn dependants_are_told_and_counted() {
    use crate::helm::release::tests::{Given, assembled};
    let names: Vec<_> = (0..10).map(|n| format!("r{n}")).collect();
    let dependants: Vec<_> = names
        .iter()
        .map(|name| Dependant {
            release: std::sync::Arc::new(assembled(Given { name, ..Given::default() }, None)),
            object: object("apps", "Deployment"),
        })
        .collect();
    let shop = ObjectId { namespace: None, name: "shop".to_owned(), ..object("", "Namespace") };
    insta::assert_snapshot!(of_dependants(&shop, &dependants[..1]), @"deleting Namespace/shop would delete declared objects along: Deployment/web in namespace shop of Helm release r0 in namespace shop. Uninstall these releases first.");
    insta::assert_snapshot!(of_dependants(&shop, &dependants), @"deleting Namespace/shop would delete declared objects along: Deployment/web in namespace shop of Helm release r0 in namespace shop; Deployment/web in namespace shop of Helm release r1 in namespace shop; Deployment/web in namespace shop of Helm release r2 in namespace shop; Deployment/web in namespace shop of Helm release r3 in namespace shop; Deployment/web in namespace shop of Helm release r4 in namespace shop; Deployment/web in namespace shop of Helm release r5 in namespace shop; Deployment/web in namespace shop of Helm release r6 in namespace shop; Deployment/web in namespace shop of Helm release r7 in namespace shop; and of 2 more releases. Uninstall these releases first.");
}

#[test]
fn added_element_is_not_taken_for_a_moved_one() {
    let object = object("apps", "Deployment");
    let path = "/spec/template/spec/containers/[name=side]";
    let mut finding = finding(&object, path, [Value::Null, Value::Null, json!({"name": "side"})]);
    assert!(live_field(&finding).contains("moved"));
    finding.added = true;
    assert_eq!(live_field(&finding), format!("{path} (declared absent, is {{\"name\":\"side\"}})"));
}
