use serde_json::json;

use super::*;

/// A status with so many drifted objects, which names those with these fields.
fn status(drifted: u64, named: &[&[&str]], more_fields: u64) -> GuardedReleaseStatus {
    let drift = |(index, paths): (usize, &&[&str])| {
        let fields: Vec<_> = paths.iter().map(|path| json!({"path": path})).collect();
        json!({
            "object": {"kind": "Deployment", "name": format!("web-{index}")},
            "type": if paths.is_empty() { "missing" } else { "changed" },
            "fields": fields, "moreFields": more_fields, "since": "2026-01-01T00:00:00Z",
        })
    };
    let drifts: Vec<_> = named.iter().enumerate().map(drift).collect();
    GuardedReleaseStatus {
        drifted,
        drifts: serde_json::from_value(json!(drifts)).unwrap(),
        ..GuardedReleaseStatus::default()
    }
}

fn ranked(statuses: &[GuardedReleaseStatus]) -> Vec<(String, usize, bool)> {
    let mut fields = Fields::default();
    statuses.iter().for_each(|status| fields.add(status));
    fields.ranked().into_iter().map(|it| (it.name, it.releases, it.is_least)).collect()
}

#[test]
fn each_field_is_counted_once_for_each_release() {
    let statuses =
        [status(3, &[&["/a"], &["/a", "/b"], &[]], 0), status(1, &[&["/a"]], 0), status(0, &[&["/c"]], 0)];
    let named = [("Deployment /a", 2), ("Deployment (missing)", 1), ("Deployment /b", 1)];
    assert_eq!(ranked(&statuses), named.map(|(name, count)| (name.to_owned(), count, false)));
}

#[test]
fn number_is_a_lower_bound_where_statuses_name_less_than_drifts() {
    let check = |cut: GuardedReleaseStatus| {
        let statuses = [status(2, &[&["/a"], &["/b"]], 0), cut];
        // The second release is among those of the first field already.
        let named = [("Deployment /a", 2, false), ("Deployment /b", 1, true)];
        assert_eq!(
            ranked(&statuses),
            named.map(|(name, count, is_least)| (name.to_owned(), count, is_least))
        );
    };
    check(status(2, &[&["/a"]], 0));
    check(status(1, &[&["/a"]], 1));
}
