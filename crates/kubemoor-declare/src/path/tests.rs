use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Path, PathError, Segment};

mod lookup;
mod plain;

fn field(name: &str) -> Segment {
    Segment::Field(name.to_owned())
}

fn key(pairs: &[(&str, Value)]) -> Segment {
    Segment::Key(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

#[track_caller]
fn check(text: &str, segments: Vec<Segment>) {
    let path = Path(segments.into());
    assert_eq!(path.to_string(), text);
    assert_eq!(text.parse(), Ok(path));
}

#[test]
fn paths_are_pointers_with_list_keys() {
    check("", vec![]);
    check("/spec/replicas", vec![field("spec"), field("replicas")]);
    check("/metadata/annotations/a.b~1c~0d", vec![field("metadata"), field("annotations"), field("a.b/c~d")]);
    check(
        "/containers/[name=app]/image",
        vec![field("containers"), key(&[("name", json!("app"))]), field("image")],
    );
    check(
        "/ports/[containerPort=80,protocol=TCP]",
        vec![field("ports"), key(&[("containerPort", json!(80)), ("protocol", json!("TCP"))])],
    );
    check("/finalizers/[=a~1b]", vec![field("finalizers"), Segment::Element(json!("a/b"))]);
    check("/env/[name=\"80\"]", vec![field("env"), key(&[("name", json!("80"))])]);
    check("/x/[name=\"a,b=c\"]", vec![field("x"), key(&[("name", json!("a,b=c"))])]);
    check("/data/~2x]", vec![field("data"), field("[x]")]);
    check("/data/", vec![field("data"), field("")]);
    check("/a/[=\"\"]", vec![field("a"), Segment::Element(json!(""))]);
}

#[test]
fn texts_that_are_no_paths_say_why() {
    assert_eq!("spec".parse::<Path>(), Err(PathError::NoSlash("spec".to_owned())));
    assert_eq!("/a~".parse::<Path>(), Err(PathError::Escape("a~".to_owned())));
    assert_eq!("/a~9".parse::<Path>(), Err(PathError::Escape("a~9".to_owned())));
    for text in ["/[name]", "/[]", "/[name=]", "/[=]", "/[a=b=c]", "/[a=b,]", "/[name=\"a]"] {
        assert!(matches!(text.parse::<Path>(), Err(PathError::Key(_))), "{text}");
    }
}

#[test]
fn a_path_gets_every_match() {
    let object = json!({
        "spec": {"ports": [{"port": 80, "n": 1}, {"port": 81, "n": 2}, {"port": 80, "n": 3}]},
        "finalizers": ["a", "b"],
    });
    let get = |text: &str| -> Vec<Value> {
        text.parse::<Path>().unwrap().get(&object).into_iter().cloned().collect()
    };
    assert_eq!(get("/spec/ports/[port=80]/n"), [json!(1), json!(3)]);
    assert_eq!(get("/spec/ports/[port=\"81\"]/n"), [json!(2)]);
    assert_eq!(get("/finalizers/[=b]"), [json!("b")]);
    assert_eq!(get("/finalizers/[=c]"), [] as [Value; 0]);
    assert_eq!(get("/spec/replicas"), [] as [Value; 0]);
    assert_eq!(get("/finalizers/a"), [] as [Value; 0]);
    assert_eq!(get(""), std::slice::from_ref(&object));
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ]
}

fn segment() -> impl Strategy<Value = Segment> {
    prop_oneof![
        any::<String>().prop_map(Segment::Field),
        "[\\[\\]~/=,\"a]{0,6}".prop_map(Segment::Field),
        proptest::collection::vec((any::<String>(), scalar()), 1..3).prop_map(Segment::Key),
        proptest::collection::vec(
            ("[\\[\\]~/=,\"a1]{0,6}", "[\\[\\]~/=,\"a1]{0,6}".prop_map(Value::from)),
            1..3
        )
        .prop_map(Segment::Key),
        scalar().prop_map(Segment::Element),
    ]
}

proptest! {
    #[test]
    fn path_round_trips_through_its_text(segments in proptest::collection::vec(segment(), 0..4)) {
        let path = Path(segments.into());
        prop_assert_eq!(path.to_string().parse::<Path>(), Ok(path));
    }

    #[test]
    fn any_text_gives_an_answer(text in "[/\\[\\]~=,\"a1\\\\]{0,12}") {
        if let Ok(path) = text.parse::<Path>() {
            prop_assert_eq!(path.to_string().parse::<Path>(), Ok(path));
        }
    }
}
