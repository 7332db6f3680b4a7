mod tickets {
    use super::super::*;

    #[test]
    fn ticket_takes_the_place_of_any_other() {
        let annotated = |value: &Value, ticket: Option<&str>| {
            let mut object = value.clone();
            json_patch::patch(&mut object, &annotating(value, ticket.map(str::to_owned)).0).unwrap();
            object
        };
        let bare = json!({"metadata": {}});
        let with = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        assert_eq!(annotated(&bare, Some("t")), with(json!({CONFIRMED_BY: "t"})));
        assert_eq!(annotated(&bare, None), bare);
        assert_eq!(
            annotated(&with(json!({"a": "b"})), Some("t")),
            with(json!({"a": "b", CONFIRMED_BY: "t"}))
        );
        let forged = with(json!({"a": "b", CONFIRMED_BY: "forged"}));
        assert_eq!(annotated(&forged, Some("t")), with(json!({"a": "b", CONFIRMED_BY: "t"})));
        assert_eq!(annotated(&forged, None), with(json!({"a": "b"})));
    }
}

mod acts {
    use serde_json::json;

    use super::super::*;

    #[test]
    fn guarded_release_changes_are_classified_by_the_changed_fields() {
        let check = |old: Value, new: Value, expected: &[Act]| {
            let acts = super::super::acts(&json!({"spec": old}), &json!({"spec": new}));
            assert_eq!(acts.into_iter().map(|(act, _)| act).collect::<Vec<_>>(), expected, "{old} {new}");
        };
        check(json!({}), json!({"suspend": true}), &[Act::Suspend]);
        check(json!({"suspend": true}), json!({"suspend": true}), &[]);
        check(json!({"suspend": true}), json!({}), &[Act::Resume]);
        check(json!({"suspend": false}), json!({}), &[]);
        check(json!({}), json!({"reconcileAt": "now"}), &[Act::Reconcile]);
        check(json!({"reconcileAt": "now"}), json!({"reconcileAt": "now", "suspend": false}), &[]);
        check(json!({"reconcileAt": "now"}), json!({}), &[]);
        check(json!({"suspend": true}), json!({"reconcileAt": "now"}), &[Act::Resume, Act::Reconcile]);
        let week = json!({"suspend": true, "suspendUntil": "2026-11-28T00:00:00Z"});
        check(json!({"suspend": true}), week.clone(), &[Act::Suspend]);
        check(week.clone(), week.clone(), &[]);
        check(week, json!({"suspendUntil": "2026-11-28T00:00:00Z"}), &[Act::Resume]);
        check(json!("odd"), json!(null), &[]);
        let suspended = json!({"spec": {"suspend": true}});
        assert_eq!(acts(&suspended, &Value::Null), [(Act::Resume, String::new())]);
        assert_eq!(acts(&Value::Null, &suspended), [(Act::Suspend, String::new())]);
        assert_eq!(acts(&json!({"spec": {"reconcileAt": "now"}}), &Value::Null), []);
    }

    #[test]
    fn suspension_is_told_with_its_end_and_reason() {
        let check = |new: Value, expected: &str| {
            let new = json!({"spec": new});
            assert_eq!(acts(&json!({}), &new), [(Act::Suspend, expected.to_owned())], "{new}");
        };
        check(json!({"suspend": true}), "");
        check(json!({"suspend": true, "suspendReason": "why"}), "why");
        check(json!({"suspend": true, "suspendUntil": "T"}), "until T");
        check(json!({"suspend": true, "suspendUntil": "T", "suspendReason": "why"}), "until T: why");
    }
}
