use super::*;

#[test]
fn releases_are_drifted_however_their_drift_is_dealt_with() {
    let row = |reason: &str, drifted: u64| {
        let id = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let row = ListedRelease::unguarded(id, String::new());
        ListedRelease { guarded: true, reason: Some(reason.to_owned()), drifted: Some(drifted), ..row }
    };
    let is = |text: &str, row: &ListedRelease| parse_state(text).unwrap().is_of(row);
    for reason in ["Drifted", "Contested", "Braked", "Unconfirmed", "Suspended"] {
        assert!(is("drifted", &row(reason, 1)) && is(reason, &row(reason, 1)), "{reason}");
    }
    assert!(is("in-sync", &row("InSync", 0)) && !is("Drifted", &row("InSync", 0)));
    let error = parse_state("broken").unwrap_err();
    assert!(error.contains("Drifted") && error.ends_with("NotGuarded, Stale, Unknown"), "{error}");
}
