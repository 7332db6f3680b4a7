//! Hours in which a receiver gets only urgent messages.
//!
//! Entry points: [`QuietSpec`] as the file writes it, [`QuietHours::holds`]. Invariant: hours are local time,
//! also when summer time begins or ends. Hours that pass midnight belong to the day on which they begin.
//! Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use serde::Deserialize;

/// The most windows of one receiver.
const WINDOWS: usize = 32;

/// The hours in which a receiver gets only urgent messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuietHours(Vec<Window>);

#[derive(Clone, Debug)]
struct Window {
    /// On which it begins.
    days: BTreeSet<i8>,
    from: Time,
    /// Equal to `from`: until the same time of the next day.
    to: Time,
    zone: TimeZone,
}

/// One window, as the file writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct QuietSpec {
    #[serde(default)]
    days: Vec<String>,
    from: Option<String>,
    to: Option<String>,
    time_zone: String,
}

const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

impl QuietHours {
    /// The hours, or what is wrong with them.
    pub(crate) fn compile(specs: &[QuietSpec]) -> Result<Self, String> {
        if specs.len() > WINDOWS {
            return Err(format!("it has more than {WINDOWS} entries of quietHours"));
        }
        specs.iter().map(Window::compile).collect::<Result<_, _>>().map(Self)
    }

    /// Whether these are quiet hours.
    pub(crate) fn holds(&self, now: Timestamp) -> bool {
        self.0.iter().any(|window| window.holds(now))
    }
}

impl Window {
    fn compile(spec: &QuietSpec) -> Result<Self, String> {
        let QuietSpec { days, from, to, time_zone } = spec;
        let zone = TimeZone::get(time_zone).map_err(|_| {
            format!("the timeZone {time_zone:?} of its quietHours is not in the IANA database")
        })?;
        let day = |text: &String| {
            let known = DAYS.iter().find(|(name, _)| name == text);
            known.map(|(_, day)| day.to_monday_zero_offset()).ok_or_else(|| {
                format!("the day {text:?} of its quietHours must be one of Mon, Tue, Wed, Thu, Fri, Sat, Sun")
            })
        };
        let days: BTreeSet<_> = match days.is_empty() {
            true => (0..7).collect(),
            false => days.iter().map(day).collect::<Result<_, _>>()?,
        };
        let (from, to) = match (from, to) {
            (None, None) => (Time::midnight(), Time::midnight()),
            (Some(from), Some(to)) if from == to => {
                return Err(
                    "from and to of its quietHours are equal; leave out both for whole days".to_owned()
                );
            }
            (Some(from), Some(to)) => (hour(from)?, hour(to)?),
            _ => return Err("its quietHours have only one of from and to".to_owned()),
        };
        Ok(Self { days, from, to, zone })
    }

    fn holds(&self, now: Timestamp) -> bool {
        let local = now.to_zoned(self.zone.clone());
        let (time, today) = (local.time(), local.weekday());
        let begins = |day: Weekday| self.days.contains(&day.to_monday_zero_offset());
        if self.from < self.to {
            return begins(today) && self.from <= time && time < self.to;
        }
        begins(today) && self.from <= time || begins(today.previous()) && time < self.to
    }
}

/// `HH:MM`.
fn hour(text: &str) -> Result<Time, String> {
    let wrong = || format!("the time {text:?} of its quietHours must be written as HH:MM");
    let (hour, minute) = text.split_once(':').filter(|_| text.len() == 5).ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<i8>().ok().filter(|_| text.chars().all(|c| c.is_ascii_digit()));
    let (hour, minute) = number(hour).zip(number(minute)).ok_or_else(wrong)?;
    Time::new(hour, minute, 0, 0).map_err(|_| wrong())
}
