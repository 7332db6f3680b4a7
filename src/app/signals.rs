//! The signals that end the program: SIGTERM and SIGINT.
//!
//! Entry point: [`Signals`]. Invariant: none is missed from `new` on. Must not
//! decide what ends.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, as they come.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens for both from now on.
    pub(super) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// The name of the next one. Safe to cancel.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
