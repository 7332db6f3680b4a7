//! Reads the texts of a schedule: its cron expression and its length.
//!
//! Entry points: [`crons`], [`comes`], [`length`]. Invariant: the crons of an expression together match the times
//! of the expression. Must not know a time zone.

use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Weekday};
use jiff::civil::Date;
use jiff::{SignedDuration, Span};

/// The longest window.
const LONGEST: SignedDuration = SignedDuration::from_hours(31 * 24);

/// The most crons of fixed times into which one expression is split.
const MAX_TIMES: usize = 48;

/// The years in which a cron must match once: all combinations of leap years and weekdays.
const YEARS: std::ops::RangeInclusive<i16> = 2024..=2052;

/// Reads a cron of five fields. If hour and minute are lists of numbers, each time becomes a cron
/// of its own: only such a cron is made up for when the clocks skip it.
pub(super) fn crons(text: &str) -> Result<Vec<Cron>, String> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [minute, hour, days @ ..] = fields.as_slice() else {
        return Err(format!("{text:?} is no cron: write minute, hour, day of month, month and day of week"));
    };
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let parse = |text: &str| parser.parse(text).map_err(|error| format!("{text:?} is no cron: {error}"));
    let whole = parse(text)?;
    let numbers = |field: &str| {
        let numbers: Vec<String> = field.split(',').map(str::to_owned).collect();
        numbers.iter().all(|number| number.bytes().all(|byte| byte.is_ascii_digit())).then_some(numbers)
    };
    match (numbers(minute), numbers(hour)) {
        (Some(minutes), Some(hours)) if minutes.len() * hours.len() <= MAX_TIMES => {
            let times = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| (minute, hour)));
            times.map(|(minute, hour)| parse(&format!("{minute} {hour} {}", days.join(" ")))).collect()
        }
        _ => Ok(vec![whole]),
    }
}

/// Whether a cron ever matches, unlike the 30th of February.
pub(super) fn comes(cron: &Cron) -> bool {
    let first_days = YEARS.filter_map(|year| Date::new(year, 1, 1).ok());
    first_days
        .flat_map(|first| {
            first.series(Span::new().days(1)).take_while(move |date| date.year() == first.year())
        })
        .any(|date| comes_on(cron, date).unwrap_or(false))
}

pub(super) fn length(text: &str) -> Result<SignedDuration, String> {
    let length: SignedDuration =
        text.parse().map_err(|_| format!("{text:?} is no length of time: write one such as 10h or 1h30m"))?;
    if length <= SignedDuration::ZERO || length > LONGEST {
        return Err(format!("{text:?} is not between one second and {} hours", LONGEST.as_hours()));
    }
    Ok(length)
}

fn comes_on(cron: &Cron, date: Date) -> Result<bool, CronError> {
    let number = |number: i8| u32::from(number.unsigned_abs());
    let weekday = Weekday::from_days_from_sunday(number(date.weekday().to_sunday_zero_offset()));
    let (month, day) = (number(date.month()), number(date.day()));
    Ok(cron.pattern.month_match(month)?
        && cron.pattern.day_match(i32::from(date.year()), month, day, weekday)?)
}
