//! The updates that were denied a moment ago.
//!
//! Entry point: [`Denied::note`]. Invariant: bounded, and as quick with many updates as with few. Must not know what an
//! update is.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// The longest time between two reviews of a denied update.
pub(super) const SPAN: Duration = Duration::from_secs(1);

/// The most updates that are remembered.
const MOST: usize = 1024;

/// Denied updates by key, with the time of their first review.
#[derive(Default)]
pub(super) struct Denied {
    first: HashMap<u64, Instant>,
    /// The same, the oldest in front, and updates whose second review has come.
    order: VecDeque<(Instant, u64)>,
}

impl Denied {
    /// Records a review. Returns whether it is the second one of an update.
    pub(super) fn note(&mut self, update: u64, now: Instant) -> bool {
        while let Some((at, oldest)) = self.order.front().copied()
            && (now.duration_since(at) > SPAN || self.order.len() >= MOST)
        {
            self.order.pop_front();
            if self.first.get(&oldest) == Some(&at) {
                self.first.remove(&oldest);
            }
        }
        if self.first.remove(&update).is_some() {
            return true;
        }
        self.first.insert(update, now);
        self.order.push_back((now, update));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_of_denied_updates_pushes_out_the_oldest() {
        let (mut denied, now) = (Denied::default(), Instant::now());
        let many = MOST as u64;
        assert!((0..many).all(|update| !denied.note(update, now)));
        assert!(denied.note(many - 1, now), "the newest is known");
        assert!(!denied.note(many, now));
        assert!(!denied.note(0, now), "the oldest had to go");
        assert!(denied.first.len() <= MOST && denied.order.len() <= MOST);
        assert!(!denied.note(1, now + SPAN * 2));
        assert_eq!((denied.first.len(), denied.order.len()), (1, 1));
    }
}
