//! What the ledger tells at a glance: drift and denied changes of the last days, and whose changes were denied.
//!
//! Entry point: [`Histories::read`]. Invariant: so many rows are counted at most; what was counted for one visitor is
//! shown to no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use moka::future::Cache;
use tokio::time::timeout;

use super::ledger_reader::LedgerReader;
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::ledger::add_new;
use kubemoor_ledger::query::{Filter, Page};

/// The days that are counted, and the most rows.
pub(super) const DAYS: i64 = 10;
pub(super) const COUNTED: usize = 3000;

/// Users that are shown.
const USERS: usize = 8;

/// How long the first page waits for the ledger.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a count is shown again, and for how many places.
const KEPT: Duration = Duration::from_secs(30);
const PLACES: u64 = 64;

/// The verdicts on drift that stays, and on drift that was repaired.
pub(super) const LEFT: &[&str] = &["Reported", "Failed"];
pub(super) const REPAIRED: &[&str] = &["Restored", "Recreated"];

/// What happened of late.
pub(super) struct History {
    pub(super) drift: Drift,
    pub(super) denials: Denials,
    /// Sentences about ledgers whose rows are missing.
    pub(super) missing: Vec<String>,
}

/// The time of which rows are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The days, the oldest first.
    pub(super) days: Vec<Date>,
    /// When it begins.
    pub(super) since: Timestamp,
    /// Whether it is shorter than asked for: there are more rows than are counted.
    pub(super) is_cut: bool,
}

/// The drift that was found of late: what stayed, and what was repaired.
pub(super) struct Drift {
    pub(super) span: Span,
    pub(super) days: BTreeMap<Date, (u64, u64)>,
}

/// The changes that were denied of late.
pub(super) struct Denials {
    pub(super) span: Span,
    pub(super) days: BTreeMap<Date, u64>,
    /// By user, the most first.
    pub(super) users: Vec<(String, u64)>,
    /// Users that are not among them.
    pub(super) more_users: usize,
}

/// What was counted for one visitor.
pub(super) struct Histories(Cache<Place, Arc<History>>);

/// Where it was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// `None` for all, or for the only one.
    pub(super) cluster: Option<String>,
    /// `None` for all.
    pub(super) namespace: Option<String>,
    /// Which changes it counts, where changes are told.
    pub(super) version: u64,
}

impl Default for Histories {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(PLACES).time_to_live(KEPT).build())
    }
}

impl Histories {
    /// What happened in a place, as it was counted a moment ago or as `ledger` says now.
    pub(super) async fn read(
        &self,
        ledger: &LedgerReader,
        place: Place,
        now: Timestamp,
    ) -> Result<Arc<History>, Arc<Failure>> {
        let namespace = place.namespace.clone();
        self.keep(place, read(ledger, namespace.as_deref(), now)).await
    }

    /// Forgets what was counted with rights that are gone.
    pub(super) fn forget(&self) {
        self.0.invalidate_all();
    }

    /// What is counted for a place; a failure is not kept.
    async fn keep(
        &self,
        place: Place,
        count: impl Future<Output = Result<History, Failure>>,
    ) -> Result<Arc<History>, Arc<Failure>> {
        self.0.try_get_with(place, async { count.await.map(Arc::new) }).await
    }
}

impl Span {
    /// The days until now.
    pub(super) fn until(now: Timestamp) -> Self {
        let today = date(now);
        let days: Vec<_> = (0..DAYS).rev().filter_map(|age| today.checked_sub(age.days()).ok()).collect();
        let since = days.first().and_then(|date| date.to_zoned(TimeZone::UTC).ok());
        Self { days, since: since.map_or(now, |since| since.timestamp()), is_cut: false }
    }

    /// The part of it that the newest rows are of.
    fn reached(&self, newest: &Page) -> Self {
        match newest.items.last().filter(|_| newest.next.is_some()) {
            None => self.clone(),
            Some(last) => Self {
                days: self.days.iter().copied().filter(|day| *day >= date(last.time)).collect(),
                since: last.time,
                is_cut: true,
            },
        }
    }

    /// An entry for each of its days.
    fn by_day<C: Default>(&self) -> BTreeMap<Date, C> {
        self.days.iter().map(|day| (*day, C::default())).collect()
    }
}

impl Drift {
    /// The drift of the newest rows.
    pub(super) fn of(span: &Span, newest: &Page) -> Self {
        let span = span.reached(newest);
        let mut days: BTreeMap<Date, (u64, u64)> = span.by_day();
        for entry in &newest.items {
            let is_left = LEFT.contains(&entry.verdict.as_str());
            let (left, repaired) = days.entry(date(entry.time)).or_default();
            *(if is_left { left } else { repaired }) += 1;
        }
        Self { span, days }
    }
}

impl Denials {
    /// The changes of the newest rows.
    pub(super) fn of(span: &Span, newest: &Page) -> Self {
        let span = span.reached(newest);
        let mut days: BTreeMap<Date, u64> = span.by_day();
        let mut users: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &newest.items {
            *days.entry(date(entry.time)).or_default() += 1;
            *users.entry(&entry.user).or_default() += 1;
        }
        let mut users: Vec<_> = users.into_iter().map(|(user, count)| (user.to_owned(), count)).collect();
        users.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
        let more_users = users.len().saturating_sub(USERS);
        users.truncate(USERS);
        Self { span, days, users, more_users }
    }
}

/// Reads what happened in a namespace, or in all.
async fn read(ledger: &LedgerReader, namespace: Option<&str>, now: Timestamp) -> Result<History, Failure> {
    let span = Span::until(now);
    let drift = [LEFT, REPAIRED].concat();
    let (drift, denials) =
        (newest(ledger, namespace, &drift, span.since), newest(ledger, namespace, &["Deny"], span.since));
    let read = async { tokio::try_join!(drift, denials) };
    let late = |_| Failure::Named(format!("the ledger did not answer within {} s", PATIENCE.as_secs()));
    let (drift, denials) = timeout(PATIENCE, read).await.map_err(late)??;
    let mut missing = drift.missing.clone();
    add_new(&mut missing, denials.missing.clone());
    Ok(History { drift: Drift::of(&span, &drift), denials: Denials::of(&span, &denials), missing })
}

/// The newest rows with these verdicts.
async fn newest(
    ledger: &LedgerReader,
    namespace: Option<&str>,
    verdicts: &[&str],
    since: Timestamp,
) -> Result<Page, Failure> {
    let verdicts = verdicts.iter().map(|verdict| (*verdict).to_owned()).collect();
    let (namespace, since) = (namespace.map(str::to_owned), Some(since));
    ledger.newest(&Filter { namespace, verdicts, since, ..Filter::default() }, COUNTED).await
}

fn date(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn counts_are_kept_for_their_place_until_rights_end() {
        let (histories, counted) = (Histories::default(), AtomicU32::new(0));
        let count = async |histories: &Histories, namespace: &str, version: u64, is_away: bool| {
            let place = Place { cluster: None, namespace: Some(namespace.to_owned()), version };
            let history = async {
                counted.fetch_add(1, Ordering::Relaxed);
                if is_away {
                    return Err(Failure::Named("away".to_owned()));
                }
                let (span, none) = (Span::until(Timestamp::UNIX_EPOCH), Page::default());
                Ok(History {
                    drift: Drift::of(&span, &none),
                    denials: Denials::of(&span, &none),
                    missing: Vec::new(),
                })
            };
            let kept = histories.keep(place, history).await;
            assert_eq!(kept.is_err(), is_away);
            counted.swap(0, Ordering::Relaxed)
        };
        assert_eq!(count(&histories, "shop", 0, true).await, 1);
        assert_eq!(count(&histories, "shop", 0, false).await, 1, "a failure is not kept");
        assert_eq!(count(&histories, "shop", 0, false).await, 0);
        assert_eq!(count(&histories, "bank", 0, false).await, 1, "another namespace");
        assert_eq!(count(&histories, "shop", 1, false).await, 1, "after a change");
        assert_eq!(count(&Histories::default(), "shop", 0, false).await, 1, "another visitor");
        histories.forget();
        assert_eq!(count(&histories, "shop", 0, false).await, 1);
    }
}
