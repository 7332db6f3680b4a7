//! The knowledge from the watch of a webhook configuration.
//!
//! Entry point: `WatchState::after`. Invariant: a configuration that was withdrawn is never created again. Must not write.

use super::kinds::Configuration;
use super::known::Known;
use kubemoor_cluster::client::watch::{Event, Typed};

/// The annotation of a configuration that is being withdrawn.
pub(super) const WITHDRAWN: &str = "kubemoor.dev/withdrawn";

/// The knowledge from the watch of the configuration.
pub(super) struct WatchState<C> {
    /// Whether it may be created: it never existed, or its deletion was seen and was not a
    /// withdrawal. An absence alone can be a withdrawal whose event has not arrived yet.
    pub(super) may_create: bool,
    /// Whether the running listing contains it.
    listed: bool,
    /// Whether this replica has led since it last read the configuration itself.
    pub(super) leads: bool,
    /// Whether this replica deleted it for an emergency, and has not kept it since.
    pub(super) is_cleared: bool,
    pub(super) known: Known<C>,
}

/// What to do after an event.
pub(super) enum Next {
    Wait,
    Keep,
    StandDown,
}

impl<C: Configuration> WatchState<C> {
    pub(super) fn new() -> Self {
        Self { may_create: true, listed: false, leads: false, is_cleared: false, known: Known::new() }
    }

    pub(super) fn after(&mut self, event: Event<Typed<C>>) -> Next {
        match event {
            Event::Applied(Typed(live)) | Event::Listed(Typed(live)) | Event::Deleted(Typed(live))
                if is_withdrawn(&live) =>
            {
                self.known.note_gone("withdrawn for good");
                Next::StandDown
            }
            Event::Applied(Typed(live)) => {
                self.known.meet(&live);
                Next::Keep
            }
            Event::Deleted(_) => {
                self.known.note_gone("deleted");
                self.may_create = true;
                Next::Keep
            }
            Event::Relisting => {
                self.listed = false;
                Next::Wait
            }
            Event::Listed(Typed(live)) => {
                self.known.meet(&live);
                self.listed = true;
                Next::Wait
            }
            // A deletion that fell into a gap of the watch shows only here.
            Event::Synced => {
                self.may_create = !self.listed;
                Next::Keep
            }
            Event::Watching | Event::Broken(_) => Next::Wait,
        }
    }
}

/// Whether the configuration is being withdrawn.
pub(super) fn is_withdrawn<C: Configuration>(live: &C) -> bool {
    live.meta().annotations.as_ref().is_some_and(|annotations| annotations.contains_key(WITHDRAWN))
}
