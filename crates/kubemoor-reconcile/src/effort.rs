//! Counts the objects that the loop visits, for tests that check that the work is proportional to
//! the changes.
//!
//! Entry point: [`note`], called by every walk over objects or releases. Invariant: costs nothing
//! outside of unit tests. Must not decide anything.

#[cfg(test)]
thread_local! {
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts visited objects or releases.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn note(_: usize) {}

/// Counts visited objects or releases.
#[cfg(test)]
pub(crate) fn note(objects: usize) {
    LOOKS.with(|looks| looks.set(looks.get() + objects));
}

/// The number of visits in this thread so far.
#[cfg(test)]
pub(crate) fn looks() -> usize {
    LOOKS.with(std::cell::Cell::get)
}
