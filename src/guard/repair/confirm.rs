//! What is never written without somebody's word: values that the live object was
//! never seen with.
//!
//! Entry points: `Task::leave_unconfirmed` says it, `Situation::confirms` tells
//! which changes may be undone, `Task::ordered_by` who gave the word. Invariant:
//! only a ticket that the API server's answer stands behind is a word.

use super::{Done, Situation, Task};
use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::helm::release::Release;
use crate::policy::order::Verb;
use crate::reconcile::report::DriftKind;

/// Why nothing is written.
const UNCONFIRMED: &str = "the guard has never seen the live object with these values";

/// Why an addition stays.
const ADDED: &str = "the guard has never seen the object without what was added below a sealed path; `kubemoor reconcile` removes it";

/// Why a change of what a webhook or the server added stays.
const WITHIN: &str = "the guard does not know the former value of what was changed in an addition of a webhook or the API server; undo the change by hand";

impl Situation {
    /// Whether what is declared at these places was seen in the live object, or is
    /// ordered by somebody who may write it.
    pub(super) fn confirms(&self, changes: &[FieldChange]) -> bool {
        let paths = || changes.iter().map(|change| &change.path);
        self.ordered_by.is_some() || self.agreement.as_ref().is_some_and(|it| it.confirms(paths()))
    }

    /// Whether an addition may be taken away: the object was seen without it, or somebody orders
    /// it who may write the object. Never is it where nobody knows what stood there before. What was there before its path was sealed, or came with Helm's
    /// own operation, may be meant.
    pub(super) fn removes(&self, change: &FieldChange) -> bool {
        match change.agreement {
            Agreement::Within => false,
            Agreement::Added => self.ordered_by.is_some() || self.was_without_additions,
            _ => true,
        }
    }

    /// The replicas, where a new object is to have those that its autoscaler gives
    /// it: nobody has seen them as declared.
    pub(super) fn left_out(&self) -> Option<&Path> {
        let is_open = self.agreement.as_ref().is_some_and(|agreement| !agreement.confirms_all(None));
        self.declared.scale.as_ref().filter(|_| is_open && self.ordered_by.is_none())
    }
}

impl Task<'_> {
    /// Says that the object stays as it is. A doubt is settled first: what turns
    /// out to be as declared is confirmed by that, and what stays a doubt is said
    /// as one.
    pub(super) async fn leave_unconfirmed(&self, situation: &Situation) -> Done {
        if situation.drift.doubt {
            return self.report(situation, UNCONFIRMED).await;
        }
        self.mark_unconfirmed(true);
        if self.asked
            && let Some(drift) = self.shared.drifts.lock().get_mut(self.id, self.object)
        {
            // An order is answered each time.
            drift.reported = false;
        }
        self.say(&situation.release, UNCONFIRMED);
        Done::Settled
    }

    /// Says that additions stay.
    pub(super) fn leave_additions(&self, situation: &Situation, changes: &[FieldChange]) -> Done {
        self.mark_unconfirmed(true);
        let are_within = changes.iter().all(|change| change.agreement == Agreement::Within);
        self.say(&situation.release, if are_within { WITHIN } else { ADDED });
        Done::Settled
    }

    /// Notes whether the object stays as it is for want of a word.
    pub(super) fn mark_unconfirmed(&self, unconfirmed: bool) {
        if let Some(drift) = self.shared.drifts.lock().get_mut(self.id, self.object) {
            drift.unconfirmed = unconfirmed;
        }
    }

    /// Notes whether an exception allows the object to be missing.
    pub(super) fn mark_allowed(&self, situation: &Situation) {
        let allowed = situation.drift.kind == DriftKind::Missing
            && situation.exceptions(self.object).of_deletion().is_some();
        if let Some(drift) = self.shared.drifts.lock().get_mut(self.id, self.object) {
            drift.allowed = allowed;
        }
    }

    /// Who ordered the repair of such a drift and may write the object themself.
    pub(super) fn ordered_by(&self, release: &Release, kind: DriftKind) -> Option<String> {
        let verb = if kind == DriftKind::Missing { Verb::Create } else { Verb::Update };
        let state = &release.state;
        let ticket = self.ticket.filter(|it| it.confirms(self.object, verb, (state.revision, &state.digest)));
        ticket.map(|ticket| ticket.user.clone())
    }
}
