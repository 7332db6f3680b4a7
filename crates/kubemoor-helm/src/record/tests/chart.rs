//! Which chart a record names.

use super::*;

#[test]
fn chart_is_named_where_its_name_and_version_are_plain() {
    let chart = |metadata: Value| read(&with("/chart/metadata", metadata)).unwrap().chart;
    let named = |name: &str, version: &str| chart(json!({"name": name, "version": version}));
    assert_eq!(named("web", "1.2.3+a.b-c").unwrap().to_string(), r#""web" version 1.2.3+a.b-c"#);
    for (name, version) in [("", "1"), ("web", ""), ("web; rm", "1"), ("web", "1 2"), ("we\u{1b}b", "1")] {
        assert_eq!(named(name, version), None, "{name:?} {version:?}");
    }
    assert_eq!(named(&"a".repeat(200), "1"), None);
    assert_eq!(chart(json!({"version": "1"})), None);
    assert_eq!(chart(Value::Null), None);
    assert_eq!(read(&with("/chart", Value::Null)).unwrap().chart, None);
    let other = json!({"Metadata": {}, "metadata": {"Name": "x", "name": "web", "version": "1"}, "values": {"name": 1}});
    assert!(read(&with("/chart", other)).unwrap().chart.is_some());
}

#[test]
fn record_of_too_many_values_is_not_read_whole() {
    let source = |values: Value| packed(&with("/chart/values", values)).source();
    assert!(source(json!({"a": [1, 2]})).is_ok());
    assert!(matches!(source(json!(vec![0; 400_000])), Err(RecordError::TooLarge { .. })));
    assert!(matches!(source(json!("a".repeat(17 << 20))), Err(RecordError::TooLarge { .. })));
    let broken = packed(&with("/chart", Value::Null)).source();
    assert!(broken.is_err_and(|error| !error.to_string().contains("hunter2")));
}
