//! Rows that are about one change: an API server may ask about one that is refused twice.
//!
//! Entry point: [`Repeats::note_first`], for rows newest first. Invariant: pure.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use kubemoor_ledger::entry::{Entry, Field, Object};

/// An API server that asks about one refused change twice does so within that time.
const TWICE: SignedDuration = SignedDuration::from_secs(1);

/// The changes of the last second.
#[derive(Default)]
pub(crate) struct Repeats(VecDeque<(Timestamp, Change)>);

/// What makes two changes one.
type Change = (Object, String, Option<String>, String, Vec<Field>);

impl Repeats {
    /// Notes a change. Gives whether it is another one than those just before.
    pub(crate) fn note_first(&mut self, entry: &Entry) -> bool {
        let is_over = |(time, _): &(Timestamp, Change)| time.duration_since(entry.time) > TWICE;
        while self.0.front().is_some_and(is_over) {
            self.0.pop_front();
        }
        let Entry { object, user, operation, verdict, fields, .. } = entry;
        let is_same = |known: &Change| {
            (&known.0, &known.1, &known.2, &known.3, &known.4) == (object, user, operation, verdict, fields)
        };
        let is_first = self.0.iter().all(|(_, known)| !is_same(known));
        if is_first {
            let change = (object.clone(), user.clone(), operation.clone(), verdict.clone(), fields.clone());
            self.0.push_back((entry.time, change));
        }
        is_first
    }
}
