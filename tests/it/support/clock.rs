//! A clock that a test sets, for one process alone: by libfaketime, which stands between a program and the C library.
//!
//! Entry point: [`Clock`]. The time that passes is measured by another clock, which stays right, as on a real machine.

use std::path::PathBuf;

use super::process::folder;

/// The clock on the wall of one process.
pub(crate) struct Clock {
    file: PathBuf,
}

impl Clock {
    /// A clock that is right.
    pub(crate) fn new() -> Self {
        let clock = Self { file: folder("clock").join("offset") };
        clock.set(0);
        clock
    }

    /// From now on it is wrong by so many minutes.
    pub(crate) fn set(&self, minutes: i64) {
        // Read whole or not at all.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{:+}", minutes * 60)).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// By which a process has this clock.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let library = std::env::var("KUBEMOOR_FAKETIME").expect(
            "KUBEMOOR_FAKETIME names libfaketime.so.1: eval \"$(tests/control-plane/provide)\", or make test",
        );
        let file = self.file.display().to_string();
        let variables = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}
