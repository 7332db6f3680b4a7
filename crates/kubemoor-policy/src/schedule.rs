//! Windows of time: a cron expression that opens them, their length, and the time zone of the cron
//! expression.
//!
//! Entry points: [`Schedule::open`], [`Schedule::next_change`]. Invariant: the time zones are
//! compiled in, so the answer does not depend on the machine. A length is elapsed time. A start in
//! an hour that the clocks skip happens right after it; a start in a repeated hour happens once,
//! the first time. Must not read a clock: `now` is an argument.

mod read;

use std::sync::{Arc, LazyLock};

use croner::Cron;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{RoundMode, SignedDuration, Timestamp, Unit, Zoned, ZonedRound};

use self::read::{comes, crons, length};
use super::flaw::{FlawReason, Flaws};
use super::resource::ScheduleSpec;

/// After this number of adjoining windows, the search returns the last end that it knows.
const MAX_CHAIN: usize = 1000;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Windows of time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schedule(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    text: String,
    /// One for each fixed time of the day, or one for all.
    crons: Vec<Cron>,
    length: SignedDuration,
    zone: TimeZone,
}

impl Schedule {
    /// Whether a window is open at `now`. It includes its start and excludes its end.
    pub fn open(&self, now: Timestamp) -> bool {
        self.end(now).is_some_and(|end| now < end)
    }

    /// The time at which [`Schedule::open`] next changes its answer; for windows that adjoin
    /// endlessly, a time at which to ask again. `None` if nothing changes any more.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(mut end) = self.end(now).filter(|end| now < *end) else { return self.next(now) };
        let mut start = now;
        for _ in 0..MAX_CHAIN {
            match self.next(start) {
                Some(next) if next <= end => {
                    start = next;
                    end = next.checked_add(self.0.length).ok()?;
                }
                _ => break,
            }
        }
        Some(end)
    }

    pub(super) fn compile(spec: &ScheduleSpec, at: &str, flaws: &mut Flaws) -> Option<Self> {
        let ScheduleSpec { cron, duration, time_zone } = spec;
        let crons = flaws.take(&format!("{at}.cron"), FlawReason::InvalidSchedule, crons(cron));
        if let Some(crons) = &crons
            && !crons.iter().any(comes)
        {
            let message = format!("{cron:?} never comes: no year has such a day");
            flaws.add(&format!("{at}.cron"), FlawReason::NeverFires, message);
        }
        let length = flaws.take(&format!("{at}.duration"), FlawReason::InvalidSchedule, length(duration));
        let name = time_zone.as_deref().unwrap_or("UTC");
        let zone = ZONES.get(name).map_err(|_| {
            format!("{name:?} is no time zone of the IANA database: write one such as Europe/Berlin or UTC")
        });
        let zone = flaws.take(&format!("{at}.timeZone"), FlawReason::UnknownTimeZone, zone);
        let text = format!("{cron} for {duration} ({name})");
        Some(Self(Arc::new(Inner { text, crons: crons?, length: length?, zone: zone? })))
    }

    /// The end of the window that opened last.
    fn end(&self, now: Timestamp) -> Option<Timestamp> {
        // Crons count in seconds.
        let now = Zoned::new(now, self.0.zone.clone()).round(floor()).ok()?;
        let starts = self.0.crons.iter().filter_map(|cron| cron.find_previous_occurrence(&now, true).ok());
        starts.map(|start| start.timestamp()).max()?.checked_add(self.0.length).ok()
    }

    /// The first start after `now`.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let now = Zoned::new(now, self.0.zone.clone()).round(floor()).ok()?;
        let starts = self.0.crons.iter().filter_map(|cron| cron.find_next_occurrence(&now, false).ok());
        starts.map(|start| start.timestamp()).min()
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.text)
    }
}

fn floor() -> ZonedRound {
    ZonedRound::new().smallest(Unit::Second).mode(RoundMode::Trunc)
}

#[cfg(test)]
mod tests;
