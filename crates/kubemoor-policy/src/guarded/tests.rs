use crate::guarded::*;

#[test]
fn a_reference_names_its_object_again() {
    let object = |namespace: Option<&str>| ObjectId {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: namespace.map(Into::into),
        name: "web".into(),
    };
    for namespace in [Some("shop"), Some("other"), None] {
        let object = object(namespace);
        assert_eq!(ObjectReference::new(&object, "shop").id("shop"), object);
    }
    let own = serde_json::to_value(ObjectReference::new(&object(Some("shop")), "shop")).unwrap();
    assert_eq!(own, serde_json::json!({"group": "apps", "kind": "Deployment", "name": "web"}));
}

mod suspension {
    use serde_json::{Value, json};

    use crate::guarded::*;

    #[test]
    fn suspension_ends_at_its_end_and_never_without_one() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let check = |spec: Value, expected: Option<bool>| {
            let parsed: GuardedReleaseSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(Suspension::from_spec(&parsed).map(|it| it.is_over(now)), expected, "{spec}");
        };
        check(json!({}), None);
        check(json!({"suspend": true}), Some(false));
        check(json!({"suspend": true, "suspendUntil": "2026-11-21T12:00:01Z"}), Some(false));
        check(json!({"suspend": true, "suspendUntil": "2026-11-21T12:00:00Z"}), Some(true));
        check(json!({"suspend": true, "suspendUntil": "2026-11-21T11:00:00-02:00"}), Some(false));
        check(json!({"suspend": true, "suspendUntil": "soon"}), Some(false));
        check(json!({"suspendUntil": "2026-11-22T12:00:00Z"}), None);
    }
}
