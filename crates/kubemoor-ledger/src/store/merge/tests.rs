use proptest::prelude::*;

use super::*;

/// What `rows` answer.
fn asked(rows: &BTreeMap<i16, Vec<i64>>, question: &Question) -> Vec<(i16, i64)> {
    let each = question.clusters.iter().zip(&question.ends).flat_map(|(cluster, end)| {
        let mut ids: Vec<_> = rows[cluster].iter().copied().filter(|id| id < end).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.truncate(usize::try_from(question.most).unwrap());
        ids.into_iter().map(|id| (*cluster, id))
    });
    each.collect()
}

/// The rows that are found, and how many were looked at.
fn merged(rows: &BTreeMap<i16, Vec<i64>>, end: i64, limit: i64) -> (Vec<(i16, i64)>, usize) {
    let mut merge = Merge::new(rows.keys().copied(), end, limit);
    let mut looked_at = 0;
    while let Some(question) = merge.question() {
        let answer = asked(rows, &question);
        looked_at += answer.len();
        merge.answer(answer);
    }
    (merge.newest(), looked_at)
}

proptest! {
    #[test]
    fn merged_page_equals_newest_rows_of_all_clusters(
        owners in proptest::collection::vec(0_i16..20, 0..600),
        end in 0_i64..700,
        limit in 1_i64..120,
        skewed in any::<bool>(),
    ) {
        let mut rows: BTreeMap<i16, Vec<i64>> = (0..20).map(|cluster| (cluster, Vec::new())).collect();
        for (id, owner) in (0_i64..).zip(owners) {
            // One cluster may have nearly all of them.
            let owner = if skewed && owner > 0 { 1 } else { owner };
            rows.get_mut(&owner).unwrap().push(id);
        }
        let each = rows.iter().flat_map(|(cluster, ids)| ids.iter().map(|id| (*cluster, *id)));
        let mut expected: Vec<_> = each.filter(|(_, id)| *id < end).collect();
        expected.sort_unstable_by_key(|(_, id)| std::cmp::Reverse(*id));
        expected.truncate(usize::try_from(limit).unwrap());
        prop_assert_eq!(merged(&rows, end, limit).0, expected);
    }
}

#[test]
fn clusters_alike_are_asked_for_little_more_than_the_page() {
    let rows: BTreeMap<i16, Vec<i64>> = (0..200)
        .map(|cluster| (cluster, (0..5000).map(|at| at * 200 + i64::from(cluster)).collect()))
        .collect();
    let (found, looked_at) = merged(&rows, i64::MAX, 1001);
    assert_eq!((found.len(), found[0]), (1001, (199, 4999 * 200 + 199)));
    assert!(looked_at < 2500, "{looked_at}");
}
