//! When a collection is searched for what nobody needs any more.
//!
//! Entry point: [`Sweep`]. Invariant: before a collection grows beyond a few values and beyond twice of what the last
//! search left, it is searched. So searching adds a constant to the cost of an insertion. Must not know what is needed.

/// The number of values at which a collection is searched next.
#[derive(Debug)]
pub struct Sweep {
    least: usize,
    at: usize,
}

impl Sweep {
    /// Of a collection in which so many values are left alone.
    pub const fn above(least: usize) -> Self {
        Self { least, at: least }
    }

    /// Whether a collection of so many values is to be searched before another one comes in.
    pub fn is_due(&self, values: usize) -> bool {
        values >= self.at
    }

    /// Records that it was searched, and so many values are left.
    pub fn note_left(&mut self, values: usize) {
        self.at = self.least.max(values.saturating_mul(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_due_each_time_that_the_values_may_have_doubled_and_never_among_few() {
        let check = |left: usize, next: usize| {
            let mut sweep = Sweep::above(10);
            assert!(!sweep.is_due(9) && sweep.is_due(10));
            sweep.note_left(left);
            assert!(!sweep.is_due(next - 1), "{left} left: due too early");
            assert!(sweep.is_due(next), "{left} left: due too late");
        };
        check(0, 10);
        check(5, 10);
        check(6, 12);
        check(1000, 2000);
    }
}
