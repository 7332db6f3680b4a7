use serde_json::json;

use super::*;

fn texts(annotations: Value) -> Texts {
    let object = json!({"metadata": {"name": "web", "annotations": annotations}}).to_string();
    Texts::of(Some(&Excerpt::of(&object)))
}

#[test]
fn the_three_annotations_are_read_and_others_are_not() {
    let read = texts(json!({ALLOW: "*", ALLOW_UNTIL: "t", ALLOW_REASON: "r", "other": "x"}));
    let expected =
        Texts { allow: Some("*".to_owned()), until: Some("t".to_owned()), reason: Some("r".to_owned()) };
    assert_eq!(read, expected);
}

#[test]
fn an_object_without_them_or_of_another_form_asks_for_nothing() {
    for annotations in
        [json!(null), json!({}), json!({"other": ALLOW}), json!("kubemoor.dev/allow"), json!({ALLOW: 5})]
    {
        assert_eq!(texts(annotations.clone()), Texts::default(), "{annotations}");
    }
    assert_eq!(Texts::of(None), Texts::default());
}

#[test]
fn what_is_said_fits_into_a_warning() {
    let object = ObjectId {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "web".to_owned(),
    };
    assert_eq!(
        withdrawn(&object),
        "without kubemoor.dev/allow the allowances of this object go on until they end: \
         `kubemoor revoke deployment/web -n shop` ends them"
    );
    assert!(withdrawn(&object).len() < 256);
}
