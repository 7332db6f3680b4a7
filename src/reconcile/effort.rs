//! How many objects the loop looks at, for the tests that hold its work to what has changed.
//!
//! Entry point: [`note`], called by every walk over objects or releases. Costs nothing outside of
//! unit tests. Must not decide anything.

#[cfg(test)]
thread_local! {
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// So many objects or releases are looked at.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn note(_: usize) {}

/// So many objects or releases are looked at.
#[cfg(test)]
pub(crate) fn note(objects: usize) {
    LOOKS.with(|looks| looks.set(looks.get() + objects));
}

/// How many have been looked at in this thread so far.
#[cfg(test)]
pub(crate) fn looks() -> usize {
    LOOKS.with(std::cell::Cell::get)
}
