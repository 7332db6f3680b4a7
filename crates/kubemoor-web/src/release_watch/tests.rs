use serde_json::json;

use super::*;

/// What is known of one release that has a record, once all was looked at.
fn known() -> BoardState {
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    BoardState {
        others: BTreeMap::from([(release, None)]),
        has_others: true,
        listing: Listing { is_whole: true, ..Listing::default() },
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
    let whole = Listing { is_whole: true, ..Listing::default() };
    for (what, listing, state) in [
        ("all is read", whole.clone(), "NotGuarded"),
        ("there is no definition", Listing { is_undefined: true, ..whole.clone() }, "NotGuarded"),
        ("the first listing runs", Listing::default(), "Unknown"),
        ("the listing failed", Listing { trouble: trouble.clone(), ..Listing::default() }, "Unknown"),
        ("the watch failed", Listing { trouble, ..whole }, "Unknown"),
    ] {
        assert_eq!(states(&BoardState { listing, ..known() }), [state], "{what}");
    }
}

#[test]
fn visitor_who_may_not_list_statuses_sees_no_release() {
    let trouble = Some("no permission".to_owned());
    for listing in [
        Listing { is_forbidden: true, trouble: trouble.clone(), ..Listing::default() },
        Listing { is_unauthorized: true, trouble, ..Listing::default() },
    ] {
        let known = BoardState { listing, ..known() };
        assert!(states(&known).is_empty());
        assert!(known.rows(Timestamp::UNIX_EPOCH).is_unreadable);
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

fn counted(statuses: &[GuardedReleaseStatus]) -> DriftingFields {
    DriftingFields::count(statuses.iter())
}

#[test]
fn each_field_is_counted_once_for_each_release() {
    let statuses =
        [status(3, &[&["/a"], &["/a", "/b"], &[]], 0), status(1, &[&["/a"]], 0), status(0, &[&["/c"]], 0)];
    let named = [("Deployment /a", 2), ("Deployment (missing)", 1), ("Deployment /b", 1)];
    let ranked = named.map(|(name, count)| (name.to_owned(), count)).to_vec();
    assert_eq!(counted(&statuses), DriftingFields { ranked, is_cut: false });
}

#[test]
fn page_says_where_statuses_name_less_than_drifts() {
    for (cut, is_cut) in [
        (status(2, &[&["/a"]], 0), true),
        (status(1, &[&["/a"]], 1), true),
        (status(1, &[&["/a"]], 0), false),
    ] {
        assert_eq!(counted(&[status(2, &[&["/a"], &["/b"]], 0), cut]).is_cut, is_cut);
    }
}
