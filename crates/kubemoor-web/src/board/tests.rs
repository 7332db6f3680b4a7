use serde_json::json;

use super::*;
use kubemoor_cluster::client::call::ClusterError;

/// What is known of one release that has a record, once all was looked at.
fn known() -> BoardState {
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    BoardState {
        others: BTreeMap::from([(release, None)]),
        has_others: true,
        is_whole: true,
        ..BoardState::default()
    }
}

/// The states of all rows.
fn states(known: &BoardState) -> Vec<String> {
    let rows = known.rows(Timestamp::UNIX_EPOCH).rows;
    rows.iter().map(|row| row.state().to_owned()).collect()
}

#[test]
fn release_counts_as_not_guarded_once_all_statuses_are_read() {
    let trouble = Some("the API server does not answer".to_owned());
    for (what, known, state) in [
        ("all is read", known(), "NotGuarded"),
        ("there is no definition", BoardState { is_undefined: true, ..known() }, "NotGuarded"),
        ("the first listing runs", BoardState { is_whole: false, ..known() }, "Unknown"),
        (
            "the listing failed",
            BoardState { is_whole: false, trouble: trouble.clone(), ..known() },
            "Unknown",
        ),
        ("the watch failed", BoardState { trouble, ..known() }, "Unknown"),
    ] {
        assert_eq!(states(&known), [state], "{what}");
    }
}

#[test]
fn visitor_who_may_not_list_statuses_sees_no_release() {
    let trouble = Some("no permission".to_owned());
    for known in [
        BoardState { is_forbidden: true, trouble: trouble.clone(), ..known() },
        BoardState { is_unauthorized: true, trouble, ..known() },
    ] {
        assert!(states(&known).is_empty());
        assert!(known.rows(Timestamp::UNIX_EPOCH).is_blind);
    }
}

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
    let mut fields = DriftingFields::default();
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

fn exception(namespace: &str, name: &str) -> WatchedException {
    WatchedException::read(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data"], "until": "2099-01-01T00:00:00Z"},
    }))
}

fn names(exceptions: &ExceptionIndex) -> Option<Vec<String>> {
    let name = |object: DriftAllowance| object.metadata.name.unwrap();
    exceptions.all().map(|all| all.into_iter().map(name).collect())
}

#[test]
fn exceptions_are_told_only_while_all_of_them_are_known() {
    let mut known = ExceptionIndex::default();
    let broken = || ObjectEvent::Broken(ClusterError::Unreachable { reason: "away".to_owned() });
    let steps = [
        (ObjectEvent::Relisting, false, None),
        (ObjectEvent::Listed(exception("shop", "a")), false, None),
        (ObjectEvent::Listed(exception("shop", "b")), false, None),
        (ObjectEvent::Synced, true, Some(vec!["a", "b"])),
        (ObjectEvent::Watching, false, Some(vec!["a", "b"])),
        (ObjectEvent::Applied(exception("shop", "c")), true, Some(vec!["a", "b", "c"])),
        (ObjectEvent::Deleted(exception("shop", "a")), true, Some(vec!["b", "c"])),
        (broken(), false, None),
        (ObjectEvent::Relisting, false, None),
        (ObjectEvent::Listed(exception("shop", "c")), false, None),
        (ObjectEvent::Synced, true, Some(vec!["c"])),
    ];
    for (step, (event, is_change, expected)) in steps.into_iter().enumerate() {
        assert_eq!(known.take(event), is_change, "step {step}");
        let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(names(&known), expected, "step {step}");
    }
    known.take(ObjectEvent::Applied(WatchedException::read(json!({"metadata": {"name": "odd"}, "spec": 7}))));
    assert_eq!(names(&known), None, "one cannot be read");
    known.forget();
    assert_eq!(names(&known), None, "the right has ended");
}

#[test]
fn what_no_page_shows_of_an_exception_is_not_kept() {
    let long = json!({"note": "x".repeat(1000)});
    let wire = json!({
        "metadata": {"namespace": "shop", "name": "a", "annotations": long, "labels": long},
        "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data"], "until": "2099-01-01T00:00:00Z"},
    });
    let mut known = ExceptionIndex::default();
    for event in [ObjectEvent::Listed(WatchedException::read(wire)), ObjectEvent::Synced] {
        known.take(event);
    }
    let kept = serde_json::to_string(&known.all().unwrap()).unwrap();
    assert!(kept.len() < 400, "{kept}");
}

#[test]
fn change_counts_for_its_namespace_alone() {
    let mut known = ExceptionIndex::default();
    let of = |known: &ExceptionIndex, names: &[&str]| {
        known.changes(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    };
    let before = (of(&known, &["shop"]), of(&known, &["shop", "bank"]));
    known.take(ObjectEvent::Applied(exception("bank", "a")));
    let after = (of(&known, &["shop"]), of(&known, &["shop", "bank"]));
    assert_eq!(after.0, before.0);
    assert_ne!(after.1, before.1);
    known.take(ObjectEvent::Synced);
    assert_ne!(of(&known, &["shop"]), after.0, "some may have been missed");
}
