//! Row ids. An id is the microseconds since 2020, shifted left by [`TAG_BITS`], plus a random tag of the writer. So ids
//! order rows by time, a row keeps its id through every attempt to write it, and replicas need no coordination. Each
//! replica gives the same id to an event that all replicas see, so that it is stored once.

use super::row::LedgerRow;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use kubemoor_runtime::callers::{RandomError, random};
use sha2::{Digest, Sha256};

/// The number of low bits of an id, which identify the writer.
const TAG_BITS: u32 = 12;

/// How far rows of concurrent threads may be out of order, in microseconds; more means that the clock was set back.
const SLACK: i64 = 1_000_000;

/// 2020-01-01T00:00:00Z in microseconds. The migrations use the same value.
const EPOCH: i64 = 1_577_836_800_000_000;

/// Generates ids; one per writer.
pub(super) struct Ids {
    tag: i64,
    last: i64,
}

impl Ids {
    pub(super) fn new() -> Result<Self, RandomError> {
        let [high, low] = random()?;
        Ok(Self { tag: i64::from(u16::from_be_bytes([high, low])) & ((1 << TAG_BITS) - 1), last: 0 })
    }

    /// The id of a row. Every guard gives the same id to a row that all guards write.
    pub(super) fn next_for(&mut self, row: &LedgerRow) -> i64 {
        match &row.same {
            Some(same) => shared(row.time, same),
            None => self.next(row.time),
        }
    }

    /// The id of a row at `time`: higher than the previous id, unless the clock was set back.
    fn next(&mut self, time: Timestamp) -> i64 {
        let time = time.as_microsecond().saturating_sub(EPOCH).max(0);
        let is_set_back = time.saturating_add(SLACK) < self.last;
        self.last = if is_set_back { time } else { time.max(self.last.saturating_add(1)) };
        (self.last << TAG_BITS) | self.tag
    }
}

/// The number for `same` in the database; rows with the same number are one row. Different texts must not
/// share a number.
pub(super) fn number_of_same(same: &str) -> i64 {
    let digest: [u8; 32] = Sha256::digest(same.as_bytes()).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

pub(super) fn time(id: i64) -> Timestamp {
    Timestamp::from_microsecond((id >> TAG_BITS).saturating_add(EPOCH)).unwrap_or(Timestamp::MAX)
}

/// No row of this time or later has a lower id.
pub(super) fn first(time: Timestamp) -> i64 {
    time.as_microsecond().saturating_sub(EPOCH).clamp(0, i64::MAX >> TAG_BITS) << TAG_BITS
}

/// The lowest id of the rows that are not older than `age` at `now`.
pub(super) fn cutoff(now: Timestamp, age: std::time::Duration) -> i64 {
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    first(now.checked_sub(age).unwrap_or(Timestamp::MIN))
}

/// The first id of the month that is `months` months after that of `time`, in UTC.
pub(super) fn month(time: Timestamp, months: i32) -> i64 {
    let day = time.to_zoned(TimeZone::UTC).date().first_of_month();
    let later = Span::new().try_months(months).and_then(|span| day.checked_add(span));
    let begin = later.and_then(|day| day.to_zoned(TimeZone::UTC));
    first(begin.map_or(Timestamp::MAX, |begin| begin.timestamp()))
}

/// An id within the second of `time`; `same` alone determines its position in that second.
fn shared(time: Timestamp, same: &str) -> i64 {
    let digest: [u8; 32] = Sha256::digest(same.as_bytes()).into();
    let [a, b, c, d, e, f, ..] = digest;
    let micros = i64::from(u32::from_be_bytes([a, b, c, d])) % 1_000_000;
    let tag = i64::from(u16::from_be_bytes([e, f])) & ((1 << TAG_BITS) - 1);
    let second = time.as_second().saturating_mul(1_000_000).saturating_sub(EPOCH);
    (second.saturating_add(micros).max(0) << TAG_BITS) | tag
}

#[cfg(test)]
mod tests;
