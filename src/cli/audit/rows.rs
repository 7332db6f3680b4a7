//! Rows that are added to a ledger while the user watches.
//!
//! Entry point: [`follow`].

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::show::Show;
use crate::cli::warn;
use kubemoor_inspect::ledger::{Source, rows};
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::Filter;

/// How often the ledger is polled for new rows.
const EVERY: Duration = Duration::from_secs(2);

/// A row is written a moment after its time, and a database that was away for a
/// moment takes it later still: that far back new rows are looked for.
const OVERLAP: SignedDuration = SignedDuration::from_secs(15);

/// Shows the rows that are added to those that are `shown` already. Ends with an error alone.
pub(super) async fn follow(
    source: &Source,
    mut filter: Filter,
    shown: &[Entry],
    mut show: Show,
) -> anyhow::Result<()> {
    // Only rows within the overlap can come again.
    let mut known: HashSet<i64> = shown.iter().map(|entry| entry.id).collect();
    let mut newest = shown.iter().map(|entry| entry.time).max();
    loop {
        tokio::time::sleep(EVERY).await;
        if let Some(newest) = newest {
            let from = newest.checked_sub(OVERLAP).unwrap_or(Timestamp::MIN);
            filter.since = filter.since.map(|since| since.max(from));
        }
        let mut entries = rows(source, &filter, usize::MAX, |_| true).await?.items;
        source.unheard().iter().for_each(|sentence| warn(sentence));
        entries.reverse();
        let seen = entries.iter().map(|entry| entry.id).collect();
        entries.retain(|entry| !known.contains(&entry.id));
        known = seen;
        newest = newest.max(entries.last().map(|entry| entry.time));
        super::put(&show.rows(&entries)?)?;
    }
}
