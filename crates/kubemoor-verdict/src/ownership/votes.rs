//! Helm's own field manager in the objects of a release.
//!
//! Entry points: [`helms`] for objects at hand, [`Votes`] for objects that come one by one.
//! Invariant: Helm's manager has the name of the program that runs Helm, so only Helm's label and
//! annotations show which one it is. Must not grant a permission by it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Manager, Operation, Owners};
use kubemoor_declare::model::HELM_MARKS;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::ApplyMethod;

/// The managers that wrote Helm's label and annotations, and on how many places.
#[derive(Clone, Debug)]
pub struct Votes {
    operation: Operation,
    counts: BTreeMap<Manager, usize>,
}

/// Helm's own manager: the one that wrote Helm's label and annotations on most of these objects of
/// one release, by the method in the release's record. `None` if no manager did.
pub fn helms<'o>(objects: impl IntoIterator<Item = &'o Owners>, method: ApplyMethod) -> Option<Manager> {
    let mut votes = Votes::new(method);
    objects.into_iter().for_each(|owners| votes.add(owners));
    votes.manager()
}

impl Votes {
    /// No votes yet, for a release that Helm writes by `method`.
    pub fn new(method: ApplyMethod) -> Self {
        let operation = match method {
            ApplyMethod::ServerSide => Operation::Apply,
            ApplyMethod::ClientSide => Operation::Update,
        };
        Self { operation, counts: BTreeMap::new() }
    }

    /// Counts the owners of one more object of the release.
    pub fn add(&mut self, owners: &Owners) {
        let marks = HELM_MARKS.map(|mark| field(&mark));
        for entry in owners.read() {
            let own = entry.manager.operation == self.operation && entry.manager.subresource.is_empty();
            let owned = marks.iter().filter(|mark| entry.owned.owns(mark)).count();
            if own && owned > 0 {
                *self.counts.entry(entry.manager.clone()).or_default() += owned;
            }
        }
    }

    /// The manager with the most votes.
    pub fn manager(&self) -> Option<Manager> {
        // A user may have applied a manifest of Helm by hand.
        let by_hand = |manager: &Manager| manager.name.starts_with("kubectl");
        let most =
            self.counts.iter().max_by_key(|(manager, votes)| (**votes, !by_hand(manager), Reverse(*manager)));
        most.map(|(manager, _)| manager.clone())
    }
}

fn field(names: &[&str]) -> Path {
    Path(names.iter().map(|name| Segment::Field((*name).to_owned())).collect())
}
