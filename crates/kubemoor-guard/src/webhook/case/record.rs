//! Reviews of Helm's records.
//!
//! Entry point: `Case::judge_record`. Invariant: a denial depends on the known records only if the
//! last deployed record would be deleted, also by the garbage collector. Must not do I/O.

use parking_lot::RwLock;

use super::{Case, Judgement};
use crate::webhook::held::Held;
use crate::webhook::review;
use kubemoor_declare::model::{Operation, ReleaseId};
use kubemoor_declare::outline::Excerpt;
use kubemoor_helm::index::Index;
use kubemoor_verdict::edit::{Reason, Rules, Verdict};
use kubemoor_verdict::facts::Facts;
use kubemoor_verdict::message::{self, Message};
use kubemoor_verdict::records::{self, RecordEdit};

impl Case<'_> {
    pub(super) fn judge_record(&self, index: &RwLock<Index>, rules: &Rules<'_>) -> Judgement {
        let object = &self.subject.object;
        let Some(id) = records::places(object, &self.labelled).into_iter().next() else {
            return Judgement::of(
                Verdict::allow(Reason::NotDeclared),
                Message::default(),
                Vec::new(),
                Vec::new(),
            );
        };
        let release = index.read().uncontested(&id).cloned();
        let read;
        let held = match &self.held {
            Some(held) => held,
            None => {
                read = Held::of(self.old.as_ref(), self.new.as_ref());
                &read
            }
        };
        let edit = RecordEdit {
            operation: self.operation,
            actor: &self.actor,
            object,
            old: held.old.as_ref(),
            new: held.new.as_ref(),
            labelled: &self.labelled,
            adds_owner: self.operation == Operation::Update && self.adds_owner(),
            being_deleted: self.only_ends(),
        };
        let facts = match records::facts(&edit, release.as_deref(), rules) {
            Ok(facts) => facts,
            Err(reason) => {
                let verdict = Verdict::allow(reason);
                return Judgement::of(verdict, Message::default(), Vec::new(), Vec::new());
            }
        };
        let policy = |release: &ReleaseId| rules.resolver.of(release);
        let (verdict, falsified) = records::decide(&self.actor, &facts, policy);
        let message = falsified.map(|falsified| message::of_record(object, falsified)).unwrap_or_default();
        let rests_on = match falsified {
            Some(records::Falsified::LastDeployed) => vec![release.map_or(id, |release| release.id.clone())],
            _ => Vec::new(),
        };
        let judgement = Judgement::of(verdict, message, rests_on, Vec::new());
        Judgement { facts: Some(Facts::Record(facts)), ..judgement }
    }

    /// Whether the object is being deleted, and the edit leaves what Helm reads of it.
    fn only_ends(&self) -> bool {
        let read = |text: &Option<Excerpt<'_>>| review::object(text.as_ref()?.get()).ok();
        let Some(old) = read(&self.old) else { return false };
        if old.pointer("/metadata/deletionTimestamp").is_none() {
            return false;
        }
        match read(&self.new) {
            Some(new) => ["/metadata/labels", "/data"].iter().all(|it| old.pointer(it) == new.pointer(it)),
            None => self.operation == Operation::Delete,
        }
    }
}

#[cfg(test)]
mod tests;
