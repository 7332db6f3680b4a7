use super::*;

const DAYS: Duration = Duration::from_secs(90 * 86_400);

/// Starts a clock when the newest row is `newest` seconds old, and looks at it after these seconds, when it shows those.
#[track_caller]
fn check(newest: Option<i64>, looks: &[(u64, i64)], expected: &[bool]) {
    let (start, time): (_, Timestamp) = (Instant::now(), "2026-05-01T12:00:00Z".parse().unwrap());
    let newest = newest.map(|seconds| time - SignedDuration::from_secs(seconds));
    let mut clock = ClockCheck::start((start, time), newest, DAYS);
    let look = |(passed, shown): &(u64, i64)| {
        clock.look((start + Duration::from_secs(*passed), time + SignedDuration::from_secs(*shown)))
    };
    assert_eq!(looks.iter().map(look).collect::<Vec<_>>(), expected);
}

#[test]
fn rows_are_not_deleted_by_a_clock_that_jumped() {
    const YEAR: i64 = 365 * 86_400;
    check(None, &[(0, 0), (600, 600)], &[true, true]);
    check(Some(60), &[(0, 0), (600, 601)], &[true, true]);
    check(Some(60), &[(0, 0), (600, 600 + YEAR), (1200, 1200 + YEAR)], &[true, false, false]);
    check(Some(60), &[(600, 600 + YEAR), (4201, 4201 + YEAR)], &[false, true]);
    check(Some(60), &[(600, 600 - YEAR), (1200, 1200)], &[false, false]);
    // A machine that starts with a wrong clock, or whose guard was away for long.
    check(Some(YEAR), &[(0, 0), (3599, 3599), (3601, 3601)], &[false, false, true]);
}

#[test]
fn namespaces_with_most_rows_lose_rows_first() {
    for (counts, rows, expected) in [
        (vec![], 10, None),
        (vec![10], 10, None),
        (vec![11], 10, Some(10)),
        (vec![4, 3, 3], 10, None),
        // The others keep all that they have.
        (vec![1_000_000, 20, 5], 100, Some(75)),
        (vec![60, 50, 5], 100, Some(47)),
        (vec![7, 7, 7], 20, Some(6)),
        (vec![5, 5, 5], 2, Some(1)),
        (vec![u64::MAX, 3], 100, Some(97)),
    ] {
        let found = share(counts.clone(), rows);
        assert_eq!(found, expected, "{counts:?} {rows}");
        let kept: u64 = counts.iter().map(|count| (*count).min(found.unwrap_or(u64::MAX))).sum();
        assert!(kept <= rows.max(counts.len() as u64), "{counts:?} {rows}");
    }
}

#[test]
fn cluster_keeps_its_rows_while_its_guard_is_silent() {
    let now: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
    let day = |text: &str| id::first(text.parse().unwrap());
    let (said, by_age) = (day("2026-11-01T00:00:00Z"), day("2026-11-11T05:00:00Z"));
    for (what, keeps, age, lowest_kept) in
        [("silent for long", said, 10 * 86400, by_age), ("few rows", said, 90 * 86400, said)]
    {
        assert_eq!(lowest(now, (keeps, age)), lowest_kept, "{what}");
    }
}
