use serde_json::json;

use crate::shown::*;

fn object(group: &str, kind: &str) -> ObjectId {
    ObjectId::namespaced(group, kind, "shop", "web")
}

fn shown(kind: &str, path: &str, value: &Value) -> String {
    Shown::new(&object("", kind), &path.parse().unwrap(), value).to_string()
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
    assert_eq!(Shown::new(&object("example.org", "Secret"), &path, &json!(1)).to_string(), "1");
    assert_eq!(shown("ConfigMap", "/data/password", &json!("x")), "\"x\"");
}

#[test]
fn characters_that_reverse_the_order_of_letters_are_escaped() {
    for (value, expected) in [
        (json!("a\u{202e}b"), r#""a\u202eb""#),
        (json!({"a\u{202e}": ["b\u{2066}\u{1b}"]}), r#"{"a\u202e":["b\u2066\u001b"]}"#),
    ] {
        let shown = Shown::new(&object("", "ConfigMap"), &"/data/a".parse().unwrap(), &value);
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
fn wide_and_deep_values_are_shown_by_their_front() {
    let wide: Vec<u32> = (0..1000).collect();
    let text = shown("ConfigMap", "/data/a", &json!(wide));
    assert!(text.starts_with("[0,1,2,3,") && text.ends_with('…'), "{text}");
    assert_eq!(shown("ConfigMap", "/data/a", &json!([[[{"a": [[1, 2]]}]]])), r#"[[[{"a":[[1,2]]}]]]"#);
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
        let shown = Shown::new(&object, &path.parse().unwrap(), &json!(value));
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
    let value = Shown::new(&object("", "Secret"), &"/data/password".parse().unwrap(), &json!("hunter2"));
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!((value.to_string().as_str(), json.as_str()), ("(redacted)", "\"(redacted)\""));
    assert_eq!(format!("{value:?} {:?}", SealingKey::new([7; 32])), "Shown((redacted)) SealingKey(..)");
}

#[test]
fn sealing_leaves_non_secret_values_readable() {
    let value = Shown::new(&object("apps", "Deployment"), &"/spec/replicas".parse().unwrap(), &json!(3));
    assert_eq!(value.sealed(&SealingKey::new([7; 32])), "3");
}

#[test]
fn a_webhooks_address_shows_no_token_of_a_caller() {
    let token = "a1".repeat(32);
    let shown = |group: &str, value: Value| {
        let path = "/webhooks".parse().unwrap();
        Shown::new(&object(group, "ValidatingWebhookConfiguration"), &path, &value).to_string()
    };
    for base in ["validate", "mutate", "observe"] {
        let address = json!({"clientConfig": {"service": {"path": format!("/{base}/{token}")}}});
        assert_eq!(shown("admissionregistration.k8s.io", address.clone()), "(redacted)");
        assert!(shown("example.org", address).contains(&token));
    }
    for open in ["/validate", "/validate/", "/validate/CALLER_TOKEN", "https://other/validate/pods"] {
        assert_eq!(shown("admissionregistration.k8s.io", json!(open)), format!("{open:?}"));
    }
}

mod difference {
    use serde_json::json;

    use crate::edit::FieldFinding;
    use crate::shown::*;

    fn object(kind: &str) -> ObjectId {
        ObjectId::namespaced("", kind, "shop", "web")
    }

    /// The place, then the declared, the old and the new value there.
    #[track_caller]
    fn check(values: [Value; 3], expected: Option<&str>) {
        let [declared, old, new] = values.each_ref().map(|value| Some(value).filter(|it| !it.is_null()));
        let found =
            FieldFinding::new(&object("ConfigMap"), &"/spec/rules".parse().unwrap(), [declared, old, new]);
        let shown = |value: &Option<Shown>| value.as_ref().map_or("absent".to_owned(), ToString::to_string);
        let found = found.difference.map(|it| {
            let line = it.line.map_or(String::new(), |line| format!(" line {line}"));
            format!(
                "{}{line} ({}): {} | {} | {}",
                it.plain,
                it.path,
                shown(&it.declared),
                shown(&it.old),
                shown(&it.new)
            )
        });
        assert_eq!(found.as_deref(), expected);
    }

    fn rules(host: &str, port: u32) -> Value {
        json!([{"host": "shop.example.org", "http": {"paths": [{"path": "/", "backend": {"host": host, "port.number": port}}]}}])
    }

    #[test]
    fn nested_values_tell_their_first_different_place() {
        let (a, b) = (rules("web", 80), rules("api", 80));
        check(
            [a.clone(), a.clone(), b.clone()],
            Some(
                r#"[0].http.paths[0].backend.host (/spec/rules/0/http/paths/0/backend/host): "web" | "web" | "api""#,
            ),
        );
        // A live object has no value before.
        check(
            [a.clone(), Value::Null, b],
            Some(
                r#"[0].http.paths[0].backend.host (/spec/rules/0/http/paths/0/backend/host): "web" | absent | "api""#,
            ),
        );
        check(
            [a.clone(), a, rules("web", 81)],
            Some(
                r#"[0].http.paths[0].backend["port.number"] (/spec/rules/0/http/paths/0/backend/port.number): 80 | 80 | 81"#,
            ),
        );
    }

    #[test]
    fn place_that_becomes_as_declared_is_passed_over() {
        check(
            [rules("web", 80), rules("api", 80), rules("web", 81)],
            Some(
                r#"[0].http.paths[0].backend["port.number"] (/spec/rules/0/http/paths/0/backend/port.number): 80 | 80 | 81"#,
            ),
        );
    }

    #[test]
    fn element_that_only_one_side_has_is_the_place() {
        let long = "x".repeat(60);
        check(
            [json!([long]), json!([long]), json!([long, "b"])],
            Some(r#"[1] (/spec/rules/1): absent | absent | "b""#),
        );
    }

    #[test]
    fn long_text_difference_shows_line_number_and_nearby_text() {
        let text = |workers: &str| json!(format!("user www;\nworkers {workers};\n{}", "x".repeat(500)));
        check(
            [text("4"), text("4"), text("8")],
            Some(r#" line 2 (/spec/rules): "workers 4;" | "workers 4;" | "workers 8;""#),
        );
        let line = |end: &str| json!(format!("{}{end}{}", "a".repeat(200), "c".repeat(200)));
        let shown = |end: &str| format!("\"…{}{end}{}…\"", "a".repeat(20), "c".repeat(59));
        let expected = format!(" (/spec/rules): {} | {} | {}", shown("1"), shown("1"), shown("2"));
        check([line("1"), line("1"), line("2")], Some(&expected));
    }

    #[test]
    fn short_values_and_values_that_go_have_no_place() {
        check([json!(2), json!(2), json!(5)], None);
        check([json!(["a"]), json!(["a"]), json!(["a", "b"])], None);
        check([rules("web", 80), rules("web", 80), Value::Null], None);
        check([Value::Null, Value::Null, rules("web", 80)], None);
    }

    #[test]
    fn masked_values_tell_no_place() {
        let (old, new) = (json!({"a": "x".repeat(80)}), json!({"a": "y".repeat(80)}));
        let found = FieldFinding::new(
            &object("Secret"),
            &"/data".parse().unwrap(),
            [Some(&old), Some(&old), Some(&new)],
        );
        assert_eq!(found.difference, None);
    }
}
