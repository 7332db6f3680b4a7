use serde_json::json;

use super::*;

fn object(kind: &str) -> ObjectId {
    ObjectId::namespaced("", kind, "shop", "web")
}

/// The place, then the declared, the old and the new value there.
#[track_caller]
fn check(values: [Value; 3], expected: Option<&str>) {
    let [declared, old, new] = values.each_ref().map(|value| Some(value).filter(|it| !it.is_null()));
    let found = Values::of(&object("ConfigMap"), &"/spec/rules".parse().unwrap(), [declared, old, new]);
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
    let found =
        Values::of(&object("Secret"), &"/data".parse().unwrap(), [Some(&old), Some(&old), Some(&new)]);
    assert_eq!(found.difference, None);
}
