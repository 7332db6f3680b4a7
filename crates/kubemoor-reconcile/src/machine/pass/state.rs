//! How far one pass has come.
//!
//! Entry point: [`Pass`]. Invariant: a pass waits for one piece of work at most. Must not decide what comes next.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::repair::{Done, Repair, Task, Towards};
use crate::asked::RepairOrder;
use crate::drifts::Suspect;
use crate::event::WorkId;
use crate::install_order;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Release;

/// One pass under way.
pub(super) struct Pass {
    pub(super) release: Arc<Release>,
    pub(super) order: Option<RepairOrder>,
    pub(super) unfinished: HashSet<ObjectId>,
    /// After which time to look again.
    pub(super) again: Option<Duration>,
    pub(super) phase: Phase,
    pub(super) queue: VecDeque<ObjectId>,
    pub(super) towards: Option<Arc<Towards>>,
    /// A step that waits for an outcome.
    pub(super) job: Option<Job>,
    /// What is awaited.
    pub(super) errand: Option<WorkId>,
    /// Whether the pass handed out any work.
    pub(super) worked: bool,
}

/// How far a pass has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// What a replica created before it lost the lead is deleted.
    TakingBack,
    Looking,
    Choosing,
    Repairing,
    Returning,
    Over,
}

/// A step that waits for an outcome.
pub(in super::super) enum Job {
    Look { object: ObjectId, suspect: Suspect },
    Choose,
    Repair { task: Task, repair: Box<Repair> },
}

impl Pass {
    pub(super) fn new(release: Arc<Release>, phase: Phase, queue: VecDeque<ObjectId>) -> Self {
        Self {
            release,
            order: None,
            unfinished: HashSet::new(),
            again: None,
            phase,
            queue,
            towards: None,
            job: None,
            errand: None,
            worked: false,
        }
    }

    /// Looks again after that time, or sooner.
    pub(super) fn put_off(&mut self, delay: Duration) {
        self.again = Some(self.again.map_or(delay, |again| again.min(delay)));
    }

    pub(super) fn note(&mut self, done: &Done) {
        if let Done::Later(delay) = done {
            self.put_off(*delay);
        }
    }

    pub(super) fn note_looked(&mut self, object: ObjectId, done: Done) {
        self.note(&done);
        // An object that the guard may not read is shown in the release's status and does not delay
        // an order.
        if matches!(done, Done::Later(_)) && self.order.as_ref().is_some_and(|order| order.means(&object)) {
            self.unfinished.insert(object);
        }
    }
}

/// Objects in Helm's order of installation.
pub(super) fn in_order(objects: impl Iterator<Item = ObjectId>) -> VecDeque<ObjectId> {
    let mut objects: Vec<ObjectId> = objects.collect();
    objects.sort_by(|a, b| (install_order::place(&a.kind), a).cmp(&(install_order::place(&b.kind), b)));
    objects.into()
}
