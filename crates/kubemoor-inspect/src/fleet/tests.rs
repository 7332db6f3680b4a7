//! What clusters say, side by side.

use super::*;
use crate::releases::parse_state;

fn row(cluster: &str, name: &str) -> ReleaseRow {
    ReleaseRow {
        cluster: cluster.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        ready: Some("True".to_owned()),
        reason: "InSync".to_owned(),
        revision: Some(3),
        chart: Some("web-1.2.3".to_owned()),
        values: Some("aa".to_owned()),
        drifted: 0,
        oldest_drift: None,
        edits: None,
        drift: None,
        stale_since: None,
        message: String::new(),
        differs: Vec::new(),
        since: Timestamp::UNIX_EPOCH,
    }
}

#[test]
fn release_row_lists_the_columns_that_differ_between_clusters() {
    let plain = || row("west", "web");
    for (others, differs) in [
        (vec![], &[][..]),
        (vec![plain()], &[]),
        (vec![ReleaseRow { revision: Some(4), ..plain() }], &["revision"]),
        (vec![ReleaseRow { values: Some("bb".to_owned()), ..plain() }], &["values"]),
        (vec![ReleaseRow { chart: Some("web-2".to_owned()), drifted: 1, ..plain() }], &["chart", "drift"]),
        // What nobody knows is no difference, nor is another release of the same namespace.
        (vec![ReleaseRow { revision: None, chart: None, values: None, ..plain() }], &[]),
        (vec![ReleaseRow { name: "other".to_owned(), revision: Some(9), ..plain() }], &[]),
        (vec![ReleaseRow { namespace: "other".to_owned(), revision: Some(9), ..plain() }], &[]),
        (
            vec![plain(), ReleaseRow { cluster: "north".to_owned(), revision: Some(4), ..plain() }],
            &["revision"],
        ),
    ] {
        let mut rows = others.clone();
        rows.push(row("east", "web"));
        compare(&mut rows);
        let east = rows.iter().find(|row| row.cluster == "east").unwrap();
        assert_eq!(east.differs, differs, "{others:?}");
        let same = rows.iter().filter(|row| (&*row.namespace, &*row.name) == ("shop", "web"));
        assert!(same.clone().all(|row| row.differs == differs), "{others:?}");
        assert!(same.map(|row| &row.cluster).is_sorted(), "{others:?}");
    }
}

#[test]
fn cluster_row_counts_only_releases_in_the_requested_states() {
    let count = |releases, drifted| StateCount { releases, drifted };
    let states = [("InSync", count(7, 0)), ("Drifted", count(2, 2)), ("Suspended", count(3, 1))];
    let view = || ClusterView {
        cluster: "east".to_owned(),
        states: states.clone().map(|(reason, count)| (reason.to_owned(), count)).into(),
        ..ClusterView::default()
    };
    for (asked, is_stale, expected) in [
        (&[][..], false, Some((12, 3))),
        (&["drifted"], false, Some((3, 3))),
        (&["suspended"], false, Some((3, 1))),
        (&["suspended", "drifted"], false, Some((5, 3))),
        (&["in-sync"], false, Some((7, 0))),
        (&["contested"], false, None),
        (&["stale"], false, None),
        (&["stale"], true, Some((12, 3))),
    ] {
        let states: Vec<_> = asked.iter().map(|state| parse_state(state).unwrap()).collect();
        let row = ClusterRow::kept(ClusterView { is_stale, ..view() }, &states);
        assert_eq!(row.map(|row| (row.releases, row.drifted)), expected, "{asked:?}");
    }
}

#[test]
fn paused_release_with_drift_also_counts_as_drifted() {
    let shown = |row: &ClusterRow| -> Vec<_> {
        states([row, row]).into_iter().map(|(state, count)| (state.to_owned(), count)).collect()
    };
    let expected =
        [("Drifted", 6), ("InSync", 14), ("Suspended", 6)].map(|(it, count)| (it.to_owned(), count));

    let count = |releases, drifted| StateCount { releases, drifted };
    let of_ledger = [("InSync", count(7, 0)), ("Drifted", count(2, 2)), ("Suspended", count(3, 1))];
    let view = ClusterView {
        states: of_ledger.map(|(reason, count)| (reason.to_owned(), count)).into(),
        ..ClusterView::default()
    };
    assert_eq!(shown(&ClusterRow::kept(view, &[]).unwrap()), expected, "in the ledger");

    let live = [("InSync", 0, 7), ("Drifted", 4, 2), ("Suspended", 0, 2), ("Suspended", 1, 1)];
    let facts = live.into_iter().flat_map(|(reason, objects, times)| vec![(reason, objects, None); times]);
    assert_eq!(shown(&ClusterRow::counted("east", facts, None)), expected, "of the cluster");
}
