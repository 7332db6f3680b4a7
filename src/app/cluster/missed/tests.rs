use serde_json::json;

use super::*;

/// The subjects that are in force after these rows (act, second, detail), the newest first.
fn in_force(rows: &[(Act, i64, &str)]) -> Vec<String> {
    let mut history = History::default();
    for (act, second, detail) in rows {
        let is_policy = act.as_str().ends_with("Policy");
        let kind = if is_policy { "DriftPolicy" } else { "Deployment" };
        let entry = json!({
            "id": second.to_string(), "time": Timestamp::from_second(*second).unwrap(), "kind": "act",
            "cluster": "c", "namespace": "", "release": null, "revision": null,
            "object": {"group": "", "kind": kind, "namespace": null, "name": "it"}, "operation": null,
            "user": "", "groups": [], "verdict": act.as_str(), "reason": "", "detail": detail,
            "fields": [], "moreFields": 0, "uid": "",
        });
        history.add(&serde_json::from_value(entry).unwrap());
    }
    let named = history.in_force().into_iter();
    let mut named: Vec<_> =
        named.map(|(subject, id)| format!("{} {} {id}", subject.object.kind, subject.autoscaler)).collect();
    named.sort();
    named
}

#[test]
fn newest_row_of_each_subject_tells_whether_it_is_in_force() {
    use Act::{
        ChangeAutoscaling, ChangePolicy, CreatePolicy, DeletePolicy, StartAutoscaling, StopAutoscaling,
    };
    let none = Vec::<String>::new();
    assert_eq!(in_force(&[(CreatePolicy, 1, "")]), ["DriftPolicy  1"]);
    assert_eq!(in_force(&[(ChangePolicy, 2, ""), (CreatePolicy, 1, "")]), ["DriftPolicy  2"]);
    assert_eq!(in_force(&[(DeletePolicy, 3, ""), (ChangePolicy, 2, "")]), none);
    assert_eq!(
        in_force(&[(CreatePolicy, 4, ""), (DeletePolicy, 3, ""), (CreatePolicy, 1, "")]),
        ["DriftPolicy  4"]
    );
    // Rows of one second are in no order.
    assert_eq!(in_force(&[(CreatePolicy, 4, ""), (DeletePolicy, 4, "")]), none);
    // The flags and files of a guard tell of policies in files.
    assert_eq!(in_force(&[(CreatePolicy, 1, "in the policy file a.yaml")]), none);

    let [a, b] = ["a", "b"].map(|name| format!("HorizontalPodAutoscaler {name:?} sets /spec/replicas"));
    let rows = [(StopAutoscaling, 3, a.as_str()), (ChangeAutoscaling, 2, b.as_str())];
    assert_eq!(in_force(&rows), ["Deployment b 2"]);
    let rows = [(StartAutoscaling, 3, b.as_str()), (StartAutoscaling, 2, a.as_str())];
    assert_eq!(in_force(&rows), ["Deployment a 2", "Deployment b 3"]);
}
