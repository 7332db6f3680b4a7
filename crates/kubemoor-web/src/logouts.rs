//! The sessions that were ended before their time.
//!
//! Entry point: [`Logouts`]. Invariant: a session whose logout may be unknown is refused. So the list is bounded, and
//! still no ended session is accepted again: not after a restart, and not because others were ended in great number.

use std::collections::HashMap;

use jiff::Timestamp;

use super::session::{LIFE, Session, SessionId};

/// The most ended sessions that are kept.
const MOST: usize = 20_000;

/// The bytes of one of them, and of the two times before all of them.
const ENTRY: usize = 24;
const HEAD: usize = 16;

/// The ended sessions, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logouts {
    /// The logouts of sessions that began before may have been missed.
    known_since: Timestamp,
    /// Sessions that began before are refused, because there were too many to keep.
    cut: Timestamp,
    /// Until when each would have lasted.
    ended: HashMap<SessionId, Timestamp>,
}

impl Logouts {
    /// None yet, at the start of the program.
    pub(super) fn none(now: Timestamp) -> Self {
        Self { known_since: whole(now), cut: Timestamp::UNIX_EPOCH, ended: HashMap::new() }
    }

    /// Ends a session.
    pub(super) fn end(&mut self, session: &Session) {
        self.ended.insert(session.id, session.until);
        self.shorten();
    }

    /// Whether a session may go on.
    pub(super) fn permit(&self, session: &Session) -> bool {
        let first = self.known_since.max(self.cut);
        begun(session.until) >= first && !self.ended.contains_key(&session.id)
    }

    /// Adds the logouts that a replica has told of. Where its answer is fresh, everything that the replica knows is
    /// known here too.
    pub(super) fn merge(&mut self, other: Self, is_fresh: bool) {
        if is_fresh {
            self.known_since = self.known_since.min(other.known_since);
        }
        self.cut = self.cut.max(other.cut);
        self.ended.extend(other.ended);
        self.shorten();
    }

    /// Forgets sessions that would be over by now.
    pub(super) fn tidy(&mut self, now: Timestamp) {
        self.ended.retain(|_, until| now < *until);
    }

    /// What a replica is told.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.ended.len() * ENTRY);
        bytes.extend(self.known_since.as_millisecond().to_be_bytes());
        bytes.extend(self.cut.as_millisecond().to_be_bytes());
        for (id, until) in &self.ended {
            bytes.extend(id);
            bytes.extend(until.as_millisecond().to_be_bytes());
        }
        bytes
    }

    /// What a replica has told; `None` for anything else.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let time = |bytes: &[u8; 8]| Timestamp::from_millisecond(i64::from_be_bytes(*bytes)).ok();
        let (known_since, rest) = bytes.split_first_chunk()?;
        let (cut, rest) = rest.split_first_chunk()?;
        let (entries, odd) = rest.as_chunks::<ENTRY>();
        if !odd.is_empty() || entries.len() > MOST {
            return None;
        }
        let entry = |entry: &[u8; ENTRY]| {
            let (id, until) = entry.split_first_chunk()?;
            Some((*id, time(until.first_chunk()?)?))
        };
        let ended: Option<_> = entries.iter().map(entry).collect();
        Some(Self { known_since: time(known_since)?, cut: time(cut)?, ended: ended? })
    }

    /// Drops the older half where there are too many, and with it every session that is as old.
    fn shorten(&mut self) {
        if self.ended.len() <= MOST {
            return;
        }
        let mut times: Vec<_> = self.ended.values().copied().collect();
        times.sort_unstable();
        let Some(last) = times.get(times.len() / 2).copied() else { return };
        self.ended.retain(|_, until| *until > last);
        let first = begun(last).as_millisecond().saturating_add(1);
        self.cut = self.cut.max(Timestamp::from_millisecond(first).unwrap_or(self.cut));
    }
}

/// When a session began.
fn begun(until: Timestamp) -> Timestamp {
    until.checked_sub(LIFE).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A session knows its time by the millisecond.
fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap() + SignedDuration::from_millis(700)
    }

    /// A session as a replica reads it from its cookie.
    fn begun_at(seconds: i64) -> Session {
        let session = Session::begin("a".to_owned().into(), at(seconds)).unwrap();
        Session { until: whole(session.until), ..session }
    }

    #[test]
    fn sessions_of_before_a_start_go_on_once_a_replica_answers() {
        let (old, own, ended) = (begun_at(10), begun_at(100), begun_at(20));
        let mut first = Logouts::none(at(0));
        first.end(&ended);
        let mut second = Logouts::none(at(100));
        assert!(second.permit(&own) && !second.permit(&old) && !second.permit(&ended));
        let told = || Logouts::read(&first.bytes()).unwrap();
        second.merge(told(), false);
        assert!(!second.permit(&old), "what was sent may be old");
        second.merge(told(), true);
        assert!(second.permit(&own) && second.permit(&old) && !second.permit(&ended));
        // The other way round nothing is lost.
        first.merge(Logouts::none(at(200)), true);
        assert!(first.permit(&old) && !first.permit(&ended));
        first.tidy(at(20) + LIFE);
        assert!(first.ended.is_empty());
    }

    #[test]
    fn too_many_logouts_end_older_sessions_and_reopen_none() {
        let most = i64::try_from(MOST).unwrap();
        let (before, after) = (begun_at(5), begun_at(most + 10));
        let first = begun_at(1);
        let mut logouts = Logouts::none(at(0));
        logouts.end(&first);
        (1..=most).for_each(|second| logouts.end(&begun_at(second)));
        assert!(logouts.ended.len() <= MOST);
        assert!(!logouts.permit(&first) && !logouts.permit(&before) && logouts.permit(&after));
        // A replica that knows of none of them does not undo that.
        let mut other = Logouts::none(at(0));
        logouts.merge(other.clone(), true);
        other.merge(logouts.clone(), false);
        for all in [&logouts, &other] {
            assert!(!all.permit(&first) && !all.permit(&before) && all.permit(&after));
        }
    }

    #[test]
    fn only_whole_lists_are_read() {
        let mut logouts = Logouts::none(at(0));
        logouts.end(&begun_at(1));
        let bytes = logouts.bytes();
        assert_eq!(Logouts::read(&bytes), Some(logouts));
        for length in (0..bytes.len()).filter(|length| *length != HEAD) {
            assert_eq!(Logouts::read(bytes.get(..length).unwrap()), None, "{length}");
        }
        assert_eq!(Logouts::read(&vec![0; HEAD + (MOST + 1) * ENTRY]), None);
    }
}
