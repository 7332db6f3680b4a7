use super::*;

/// What is known of one release that has a record, once all was looked at.
fn known() -> Known {
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    Known { others: BTreeMap::from([(release, None)]), has_others: true, is_whole: true, ..Known::default() }
}

/// The states of all rows.
fn states(known: &Known) -> Vec<String> {
    let rows = known.rows(Timestamp::UNIX_EPOCH).rows;
    rows.iter().map(|row| row.state().to_owned()).collect()
}

#[test]
fn release_counts_as_not_guarded_once_all_statuses_are_read() {
    let trouble = Some("the API server does not answer".to_owned());
    for (what, known, state) in [
        ("all is read", known(), "NotGuarded"),
        ("there is no definition", Known { is_undefined: true, ..known() }, "NotGuarded"),
        ("the first listing runs", Known { is_whole: false, ..known() }, "Unknown"),
        ("the listing failed", Known { is_whole: false, trouble: trouble.clone(), ..known() }, "Unknown"),
        ("the watch failed", Known { trouble, ..known() }, "Unknown"),
    ] {
        assert_eq!(states(&known), [state], "{what}");
    }
}

#[test]
fn visitor_who_may_not_list_statuses_sees_no_release() {
    let trouble = Some("no permission".to_owned());
    for known in [
        Known { is_forbidden: true, trouble: trouble.clone(), ..known() },
        Known { is_unauthorized: true, trouble, ..known() },
    ] {
        assert!(states(&known).is_empty());
        assert!(known.rows(Timestamp::UNIX_EPOCH).is_blind);
    }
}
