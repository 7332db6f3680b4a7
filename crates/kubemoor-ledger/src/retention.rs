//! Deletes old rows: few at a time with a pause between, so that writers never wait long; by one replica at a time per
//! cluster. Whole months go where the database has them and no cluster keeps a row of them. Nothing is deleted
//! by age within an hour after the clock was set. Where there are too many rows, the namespaces with
//! the most rows lose some first, so that a tenant who fills the ledger pushes out no rows of others.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::id;
use super::store::{Cluster, DroppedMonths, Store, StoreError};
use kubemoor_runtime::config::Retention;
use kubemoor_runtime::metrics::LedgerMetrics;

/// How often it is looked for rows to delete.
const EVERY: Duration = Duration::from_secs(10 * 60);

/// The pause between two deletions, for writers.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a clock must go evenly after it was set.
const STEADY: Duration = Duration::from_secs(3600);

/// How far a clock that goes evenly may move between two looks.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// The clock as it was seen.
struct Clock {
    last: (Instant, Timestamp),
    /// When it was last found to be set, or not to fit the rows.
    doubted: Option<Instant>,
}

/// Trims for as long as it is polled.
pub(super) async fn run(store: Store, cluster: Cluster, retention: Retention, metrics: LedgerMetrics) {
    let mut clock = None;
    loop {
        match pass(&store, cluster, retention, &mut clock).await {
            Ok(0) => {}
            Ok(deleted) => {
                metrics.deleted(deleted);
                tracing::info!(deleted, "old rows are deleted from the ledger");
            }
            Err(error) => tracing::warn!(%error, "old rows cannot be deleted from the ledger"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Deletes the rows of `cluster` that are too old by the clock, if that is believed, or too many. Returns their number.
async fn pass(
    store: &Store,
    cluster: Cluster,
    retention: Retention,
    clock: &mut Option<Clock>,
) -> Result<u64, StoreError> {
    let now = (Instant::now(), Timestamp::now());
    let clock = match clock {
        Some(clock) => clock,
        None => {
            let newest = store.surplus(cluster, None, 1).await?.map(id::time);
            clock.insert(Clock::start(now, newest, retention.age))
        }
    };
    let oldest = clock.look(now).then(|| id::cutoff(now.1, retention.age));
    let mut deleted = trim_surplus(store, cluster, retention.rows).await?;
    // Months whose rows were too many go at once, others at their age.
    let lowest = if deleted > 0 { store.lowest(cluster).await? } else { None };
    let before = oldest.max(lowest).unwrap_or(0);
    if let Err(error) = months(store, cluster, before, retention.age).await {
        tracing::warn!(%error, "the months of the ledger cannot be brought up to date");
    }
    while let Some(more) = store.trim(cluster, None, before).await? {
        deleted += more;
        if more == 0 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    store.trim_marks(Some(cluster), before).await?;
    if let Err(error) = store.make_indexes().await {
        tracing::warn!(%error, "the indexes of the ledger cannot be built");
    }
    Ok(deleted)
}

/// Deletes the rows of `cluster` that are more than `rows`, the oldest of the namespaces with the most. Returns their number.
async fn trim_surplus(store: &Store, cluster: Cluster, rows: u64) -> Result<u64, StoreError> {
    let mut deleted = 0;
    if store.surplus(cluster, None, rows).await?.is_none() {
        return Ok(deleted);
    }
    let namespaces = store.namespaces(cluster).await?;
    let Some(share) = share(namespaces.iter().map(|(_, count)| *count).collect(), rows) else {
        return Ok(deleted);
    };
    for (namespace, _) in namespaces.into_iter().filter(|(_, count)| *count > share) {
        let Some(before) = store.surplus(cluster, Some(&namespace), share).await? else { continue };
        while let Some(more @ 1..) = store.trim(cluster, Some(&namespace), before).await? {
            deleted += more;
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(deleted)
}

/// The most rows that each namespace may keep so that all together keep no more than `rows`, where they have `counts`; at
/// least one. `None` if they keep no more anyway.
fn share(mut counts: Vec<u64>, rows: u64) -> Option<u64> {
    counts.sort_unstable();
    let (mut left, mut namespaces) = (rows, u64::try_from(counts.len()).unwrap_or(u64::MAX));
    for count in counts {
        let share = left.checked_div(namespaces).unwrap_or(left);
        if count > share {
            return Some(share.max(1));
        }
        left = left.saturating_sub(count);
        namespaces = namespaces.saturating_sub(1);
    }
    None
}

/// Makes the months that come, and drops those that nobody keeps, where the database has months. `before` is the lowest id
/// that `cluster` keeps.
async fn months(store: &Store, cluster: Cluster, before: i64, age: Duration) -> Result<(), StoreError> {
    store.make_months().await?;
    store.keep(cluster, before, age).await?;
    if let Some(DroppedMonths { until, names }) = store.drop_months().await? {
        if !names.is_empty() {
            tracing::info!(
                partitions = names.join(", "),
                "months that no cluster keeps are dropped from the ledger"
            );
        }
        store.trim_marks(None, until).await?;
    }
    Ok(())
}

impl Clock {
    /// The clock at a start; `newest` is the time of the newest row, and `age` that at which rows are deleted.
    fn start(now: (Instant, Timestamp), newest: Option<Timestamp>, age: Duration) -> Self {
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        let fits = newest.is_none_or(|newest| now.1.duration_since(newest) <= age);
        Self { last: now, doubted: (!fits).then_some(now.0) }
    }

    /// Looks at the clock again. Returns whether rows may be deleted by it.
    fn look(&mut self, now: (Instant, Timestamp)) -> bool {
        let passed = SignedDuration::try_from(now.0.saturating_duration_since(self.last.0));
        let shown = now.1.duration_since(self.last.1);
        let off = (shown - passed.unwrap_or(SignedDuration::MAX)).abs();
        if off > TOLERANCE {
            self.doubted = Some(now.0);
        }
        self.last = now;
        self.doubted.is_none_or(|doubted| now.0.saturating_duration_since(doubted) >= STEADY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAYS: Duration = Duration::from_secs(90 * 86_400);

    /// Starts a clock when the newest row is `newest` seconds old, and looks at it after these seconds, when it shows those.
    #[track_caller]
    fn check(newest: Option<i64>, looks: &[(u64, i64)], expected: &[bool]) {
        let (start, time): (_, Timestamp) = (Instant::now(), "2026-05-01T12:00:00Z".parse().unwrap());
        let newest = newest.map(|seconds| time - SignedDuration::from_secs(seconds));
        let mut clock = Clock::start((start, time), newest, DAYS);
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
}
