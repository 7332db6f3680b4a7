//! Counts the work of a comparison, for the tests which check that it grows no faster than the compared
//! values.
//!
//! Entry point: [`note`], called for every visited value. Costs nothing outside of unit tests.

#[cfg(test)]
thread_local! {
    static WORK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// One more value was looked at.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn note() {}

/// One more value was looked at.
#[cfg(test)]
pub(crate) fn note() {
    WORK.with(|work| work.set(work.get() + 1));
}

/// How many values `act` looks at.
#[cfg(test)]
pub(crate) fn of<T>(act: impl FnOnce() -> T) -> u64 {
    let before = WORK.with(std::cell::Cell::get);
    drop(act());
    WORK.with(std::cell::Cell::get) - before
}
