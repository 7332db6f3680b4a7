use serde_json::json;

use super::*;

fn object(group: &str, kind: &str) -> ObjectId {
    ObjectId::namespaced(group, kind, "shop", "web")
}

fn shown(kind: &str, path: &str, value: &Value) -> String {
    Shown::of(&object("", kind), &path.parse().unwrap(), value).to_string()
}

#[track_caller]
fn check_secret(path: &str, visible: bool) {
    let text = shown("Secret", path, &json!("hunter2"));
    assert_eq!(text, if visible { "\"hunter2\"" } else { "(redacted)" }, "{path}");
}

#[test]
fn secret_contents_are_never_shown() {
    for path in [
        "/data/password",
        "/data",
        "/stringData/password",
        "",
        "/metadata",
        "/metadata/annotations",
        "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
        "/unknown",
        "/[a=b]",
    ] {
        check_secret(path, false);
    }
}

#[test]
fn identifying_fields_of_a_secret_are_shown() {
    for path in [
        "/type",
        "/immutable",
        "/metadata/labels/app",
        "/metadata/ownerReferences",
        "/metadata/annotations/meta.helm.sh~1release-name",
        "/metadata/annotations/helm.sh~1resource-policy",
    ] {
        check_secret(path, true);
    }
}

#[test]
fn only_the_core_groups_secrets_are_masked() {
    let path = "/data/password".parse().unwrap();
    assert_eq!(Shown::of(&object("example.org", "Secret"), &path, &json!(1)).to_string(), "1");
    assert_eq!(shown("ConfigMap", "/data/password", &json!("x")), "\"x\"");
}

#[test]
fn characters_that_reverse_the_order_of_letters_are_escaped() {
    for (value, expected) in [
        (json!("a\u{202e}b"), r#""a\u202eb""#),
        (json!({"a\u{202e}": ["b\u{2066}\u{1b}"]}), r#"{"a\u202e":["b\u2066\u001b"]}"#),
    ] {
        let shown = Shown::of(&object("", "ConfigMap"), &"/data/a".parse().unwrap(), &value);
        assert_eq!([shown.as_str(), shown.full()], [expected, expected]);
    }
}

#[test]
fn long_values_are_cut() {
    let long = "x".repeat(10_000);
    for value in
        [json!(long), json!([long]), json!({"a": long}), json!([long, long]), json!({"é".repeat(900): 1})]
    {
        let text = shown("ConfigMap", "/data/a", &value);
        assert_eq!(text.chars().count(), LIMIT + 1, "{text}");
        assert!(text.ends_with('…'), "{text}");
    }
}

#[test]
fn wide_and_deep_values_are_told_by_their_size() {
    let wide: Vec<u32> = (0..1000).collect();
    assert_eq!(shown("ConfigMap", "/data/a", &json!(wide)), "[… 1000 items]");
    assert_eq!(shown("ConfigMap", "/data/a", &json!([[[[1, 2]]]])), "[[[[… 2 items]]]]");
    assert_eq!(shown("ConfigMap", "/data/a", &json!([[[{"a": 1}]]])), "[[[{… 1 fields}]]]");
}

#[test]
fn short_values_are_shown_as_json() {
    for value in [json!(3), json!(null), json!(true), json!("a\n\"b\""), json!([1, "x"]), json!({"a": [1]})] {
        assert_eq!(shown("ConfigMap", "/data/a", &value), value.to_string());
    }
}

#[test]
fn sealed_secret_values_differ_by_value_key_path_and_object() {
    let sealed = |name: &str, path: &str, value: &str, key: u8| {
        let object = ObjectId { name: name.into(), ..object("", "Secret") };
        let shown = Shown::of(&object, &path.parse().unwrap(), &json!(value));
        shown.sealed(&SealingKey::new([key; 32]))
    };
    let one = sealed("db", "/data/password", "aHVudGVyMg==", 1);
    assert!(one.starts_with("(redacted ") && one.len() == "(redacted )".len() + 16, "{one}");
    assert_eq!(one, sealed("db", "/data/password", "aHVudGVyMg==", 1));
    for other in [
        sealed("db", "/data/password", "aHVudGVyMw==", 1),
        sealed("db", "/data/password", "aHVudGVyMg==", 2),
        sealed("db", "/data/other", "aHVudGVyMg==", 1),
        sealed("cache", "/data/password", "aHVudGVyMg==", 1),
    ] {
        assert_ne!(one, other);
    }
}

#[test]
fn neither_debug_nor_json_nor_display_shows_a_digest() {
    let value = Shown::of(&object("", "Secret"), &"/data/password".parse().unwrap(), &json!("hunter2"));
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!((value.to_string().as_str(), json.as_str()), ("(redacted)", "\"(redacted)\""));
    assert_eq!(format!("{value:?} {:?}", SealingKey::new([7; 32])), "Shown((redacted)) SealingKey(..)");
}

#[test]
fn sealing_leaves_non_secret_values_readable() {
    let value = Shown::of(&object("apps", "Deployment"), &"/spec/replicas".parse().unwrap(), &json!(3));
    assert_eq!(value.sealed(&SealingKey::new([7; 32])), "3");
}

#[test]
fn a_webhooks_address_shows_no_token_of_a_caller() {
    let token = "a1".repeat(32);
    let shown = |group: &str, value: Value| {
        let path = "/webhooks".parse().unwrap();
        Shown::of(&object(group, "ValidatingWebhookConfiguration"), &path, &value).to_string()
    };
    for base in ["validate", "mutate"] {
        let address = json!({"clientConfig": {"service": {"path": format!("/{base}/{token}")}}});
        assert_eq!(shown("admissionregistration.k8s.io", address.clone()), "(redacted)");
        assert!(shown("example.org", address).contains(&token));
    }
    for open in ["/validate", "/validate/", "/validate/CALLER_TOKEN", "https://other/validate/pods"] {
        assert_eq!(shown("admissionregistration.k8s.io", json!(open)), format!("{open:?}"));
    }
}
