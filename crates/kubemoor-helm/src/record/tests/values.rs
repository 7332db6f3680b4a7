//! What tells the values that the user gave from others.

use super::*;

#[test]
fn values_have_one_digest_wherever_the_same_are_given() {
    let values = |config: Value| read(&with("/config", config)).unwrap().values;
    let none = values(json!(null));
    let mut without = release();
    without.as_object_mut().unwrap().remove("config");
    assert_eq!([values(json!({})), read(&without).unwrap().values], [none, none]);
    let given = json!({"a": {"b": [1, "x, } \" ]"], "config": "y"}, "replicas": 2});
    let spelled = with("/config", given.clone());
    // A record that is no gzip of compact JSON, and other fields beside the values.
    let pretty = serde_json::to_string_pretty(&spelled).unwrap();
    let other = json!({"name": "other", "config": given, "manifest": "config: 5", "namespace": "n", "version": 9,
                       "info": {"status": "failed"}, "chart": {"config": {"c": 1}}});
    let digests = [
        decode(&payload(&pretty), DEFAULT_CAP).unwrap().values,
        decode(&payload(&other.to_string()), DEFAULT_CAP).unwrap().values,
    ];
    assert_eq!(digests, [values(given.clone()), values(given)]);
    // What differs far behind in a long text differs.
    let long = |end: &str| values(json!({"text": format!("{}{end}", "x".repeat(100_000))}));
    assert_ne!(long("a"), long("b"));
    assert_ne!(values(json!({"a": 1})), none);
}
