//! Rows out of a source, page by page.
//!
//! Entry points: [`rows`], [`follow`].

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};

use super::show::Show;
use super::source::Source;
use crate::ledger::entry::Entry;
use crate::ledger::query::{Filter, PAGE};

/// How often it is looked for new rows.
const EVERY: Duration = Duration::from_secs(2);

/// A row is written a moment after its time, and a database that was away for a
/// moment takes it later still: that far back new rows are looked for.
const OVERLAP: SignedDuration = SignedDuration::from_secs(15);

/// The newest rows that `keep` takes, newest first, and whether there may be more.
pub(super) async fn rows(
    source: &Source,
    filter: &Filter,
    limit: usize,
    keep: impl Fn(&Entry) -> bool,
) -> anyhow::Result<(Vec<Entry>, bool)> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut filter = filter.clone();
    loop {
        let left = u32::try_from(limit.saturating_sub(entries.len())).unwrap_or(u32::MAX);
        filter.limit = Some(left.min(PAGE));
        let page = source.page(&filter).await?;
        entries.extend(page.items.into_iter().filter(|entry| keep(entry)));
        let Some(next) = page.next else { return Ok((entries, false)) };
        if entries.len() >= limit {
            return Ok((entries, true));
        }
        filter.before = Some(
            next.parse().context("the ledger's answer names no next page; use a program of its version")?,
        );
    }
}

/// Shows the rows that are added to those that are `shown` already. Ends with an error alone.
pub(super) async fn follow(
    source: &Source,
    mut filter: Filter,
    shown: &[Entry],
    mut show: Show,
) -> anyhow::Result<()> {
    // Only rows within the overlap can come again.
    let mut known: HashSet<i64> = shown.iter().map(|entry| entry.id).collect();
    let mut newest = shown.last().map(|entry| entry.time);
    loop {
        tokio::time::sleep(EVERY).await;
        if let Some(newest) = newest {
            let from = newest.checked_sub(OVERLAP).unwrap_or(Timestamp::MIN);
            filter.since = filter.since.map(|since| since.max(from));
        }
        let (mut entries, _) = rows(source, &filter, usize::MAX, |_| true).await?;
        entries.reverse();
        let seen = entries.iter().map(|entry| entry.id).collect();
        entries.retain(|entry| !known.contains(&entry.id));
        known = seen;
        newest = newest.max(entries.last().map(|entry| entry.time));
        super::put(&show.rows(&entries)?)?;
    }
}
