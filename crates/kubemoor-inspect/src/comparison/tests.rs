use serde_json::json;

use super::*;
use kubemoor_policy::guarded::{DriftedField, ObjectReference};
use kubemoor_verdict::ownership::Effect;

const CLAIMS: &str = "/spec/volumeClaimTemplates";

fn database() -> ObjectId {
    ObjectId {
        group: "apps".into(),
        kind: "StatefulSet".into(),
        namespace: Some("shop".into()),
        name: "db".into(),
    }
}

fn in_doubt(live: &str) -> ObjectDiff {
    let object = database();
    let shown = |value: &str| Some(Shown::new(&object, &Path::default(), &json!([value])));
    let field = FieldDiff {
        path: CLAIMS.to_owned(),
        what: FieldDiffKind::Changed,
        declared: shown("1Gi"),
        live: shown(live),
        difference: None,
        in_doubt: true,
        owners: Vec::new(),
        next_upgrade: Effect::Sets,
        chart_values: Vec::new(),
    };
    let reason = Some("no dry run".to_owned());
    let (state, fields) = (ObjectDiffState::InDoubt, vec![field]);
    ObjectDiff { object, state, reason, not_repaired: None, fields, patch: None, hunks: None }
}

fn drifted(r#type: &str, live: &str) -> DriftedObject {
    let field = DriftedField {
        path: CLAIMS.to_owned(),
        declared: Some(json!(["1Gi"]).to_string()),
        live: Some(json!([live]).to_string()),
    };
    DriftedObject {
        object: ObjectReference::new(&database(), "shop"),
        r#type: r#type.to_owned(),
        fields: vec![field],
        more_fields: 0,
        by: None,
        since: Timestamp::UNIX_EPOCH,
        message: None,
    }
}

#[test]
fn doubt_that_the_guard_settled_is_drift_while_the_value_is_the_same() {
    for (kind, live, expected) in [
        ("changed", "2Gi", ObjectDiffState::Drifted),
        ("changed", "3Gi", ObjectDiffState::InDoubt),
        ("in-doubt", "2Gi", ObjectDiffState::InDoubt),
    ] {
        let mut objects = [in_doubt("2Gi")];
        settle_by_status(&mut objects, &[drifted(kind, live)], "shop");
        let [object] = objects;
        let is_settled = expected == ObjectDiffState::Drifted;
        assert_eq!(object.state, expected, "{kind} {live}");
        assert_eq!(
            (object.fields[0].in_doubt, object.reason.is_none()),
            (!is_settled, is_settled),
            "{kind} {live}"
        );
    }
}

#[test]
fn drift_says_why_it_is_not_repaired_in_the_words_of_the_status_or_by_the_mode() {
    let guard = |drift: DriftMode| ReportedHealth {
        ready: "False".to_owned(),
        reason: Some("Drifted".to_owned()),
        revision: 1,
        declared: 1,
        drifted: 1,
        oldest_drift: None,
        counts: ObjectCounts::default(),
        edits: "Deny".to_owned(),
        drift: format!("{drift:?}"),
        stale_since: None,
        message: String::new(),
    };
    let said =
        |message: &str| DriftedObject { message: Some(message.to_owned()), ..drifted("changed", "2Gi") };
    let reported = || Some("drift is only reported".to_owned());
    for (state, mode, drifts, expected) in [
        (
            ObjectDiffState::Drifted,
            DriftMode::Repair,
            vec![said("not repaired: busy")],
            Some("busy".to_owned()),
        ),
        (
            ObjectDiffState::Drifted,
            DriftMode::Repair,
            vec![said("it is being deleted")],
            Some("it is being deleted".to_owned()),
        ),
        (ObjectDiffState::Drifted, DriftMode::Repair, Vec::new(), None),
        (ObjectDiffState::Missing, DriftMode::Report, Vec::new(), reported()),
        (
            ObjectDiffState::Drifted,
            DriftMode::Ignore,
            Vec::new(),
            Some("the policy ignores drift".to_owned()),
        ),
        (ObjectDiffState::NotServed, DriftMode::Report, Vec::new(), None),
        (ObjectDiffState::InDoubt, DriftMode::Report, vec![said("busy")], None),
    ] {
        let mut objects = [ObjectDiff { state, ..in_doubt("2Gi") }];
        add_reasons(&mut objects, &guard(mode), &drifts, "shop");
        assert_eq!(objects[0].not_repaired, expected, "{state:?} {mode:?}");
    }
}

#[test]
fn hunks_go_from_the_live_object_to_the_declared_one() {
    let object = |replicas: u32, manager: &str| {
        json!({
            "kind": "Deployment", "metadata": {"name": "web", "managedFields": [{"manager": manager}]},
            "spec": {"paused": false, "replicas": replicas},
        })
    };
    let hunks = hunks_between(&object(5, "kubectl"), &object(2, "helm")).unwrap();
    assert!(hunks.contains("\n-  replicas: 5\n+  replicas: 2\n"), "{hunks}");
    assert!(hunks.starts_with("@@ ") && !hunks.contains("manager"), "{hunks}");
}
