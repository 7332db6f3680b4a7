//! Random choices that a seed decides, the same on every machine and in every run.

use proptest::prelude::RngExt as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// A source of choices.
pub(super) struct Draw(TestRng);

impl Draw {
    /// The source that belongs to a seed and a place below it, such as an object of a chart.
    pub(super) fn new(seed: u64, place: [u64; 3]) -> Self {
        let mut bytes = [0; 32];
        for (part, number) in bytes.chunks_exact_mut(8).zip([seed, place[0], place[1], place[2]]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// A number below `end`, which is above zero.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// Yes in so many cases of a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// One of them, if there are any.
    pub(super) fn pick_if_any<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { Some(self.pick(items)) }
    }

    /// Some of them, at least one, in a random order.
    pub(super) fn some<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        let mut chosen = items.to_vec();
        for place in (1..chosen.len()).rev() {
            chosen.swap(place, self.below(place + 1));
        }
        chosen.truncate(1 + self.below(items.len()));
        chosen
    }
}
