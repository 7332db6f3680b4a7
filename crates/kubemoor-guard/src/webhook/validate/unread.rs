//! The answer to a review that cannot be read, or not in time.
//!
//! Entry points: `Validator::judged_unread`, `Validator::judge_unread_record`. Invariant: if the
//! request itself is the cause (its size, the rate of its own namespace), the mode decides, so that
//! no editor can choose to bypass it; if others are the cause, by using time or room, the edit is
//! allowed and recorded. A record is allowed in both cases, because Helm must not be denied on
//! account of others, unless a policy names the users who may write it.

use http::Response;

use super::Validator;
use super::respond::put;
use crate::webhook::case::{Aspect, Subject};
use crate::webhook::door::Stage;
use crate::webhook::intake::Received;
use crate::webhook::review::{self, Answer, Head};
use kubemoor_declare::model::{Actor, Operation};
use kubemoor_verdict::edit::{Reason, Rules, Verdict};
use kubemoor_verdict::message::{self, Message};
use kubemoor_verdict::records::{self, RecordEdit};

impl Validator {
    /// Judges a review of which only the front is known.
    pub(super) fn judged_unread(
        &self,
        body: &Received,
        head: &Head<'_>,
        subject: &Subject,
        stage: Stage,
    ) -> (Response<review::Body>, Verdict) {
        let (verdict, message) = self.judge_unread(subject, head, body);
        // An edit that cannot be reverted is judged at the next stage.
        if stage == Stage::Mutate {
            return (Answer::allow().respond(&head.uid), Verdict::allow(verdict.reason));
        }
        self.keep_unread(&verdict, subject, head, body.bytes());
        (put(&verdict, &message).respond(&head.uid), verdict)
    }

    /// The verdict on an edit of a record that could not be read in time, and its message; with the releases that
    /// its labels name, as far as they are known.
    pub(super) fn judge_unread_record(
        &self,
        subject: &Subject,
        operation: Operation,
        (labelled, actor): (&[String], &Actor),
        reason: Reason,
    ) -> (Verdict, Message) {
        let object = &subject.object;
        let unjudged = Verdict::unjudged(&self.policy_in(subject, None), reason);
        let stored = records::places(object, labelled).into_iter().next();
        let Some(stored) = stored.filter(|_| !actor.user.is_empty()) else {
            return (unjudged, Message::default());
        };
        let release = self.setup.source.index().read().uncontested(&stored).cloned();
        let rules = Rules { resolver: &self.setup.resolver, own_account: self.setup.own_account.as_deref() };
        let edit = RecordEdit {
            operation,
            actor,
            object,
            old: None,
            new: None,
            labelled,
            adds_owner: false,
            being_deleted: false,
        };
        match records::judge_unread(&edit, release.as_deref(), &rules) {
            Some((verdict, falsified)) => {
                let message = falsified.map(|falsified| message::of_record(object, falsified));
                (verdict, message.unwrap_or_default())
            }
            None => (unjudged, Message::default()),
        }
    }

    /// The verdict on a review of which only the front is known, and its message.
    fn judge_unread(&self, subject: &Subject, head: &Head<'_>, body: &Received) -> (Verdict, Message) {
        let by_mode = |reason| Verdict::by_mode(&self.policy(subject, head), reason, None);
        let reason = match body {
            Received::Whole(_) | Received::TooLarge(_) => {
                return (by_mode(Reason::TooLarge), subject.beyond_judgement());
            }
            Received::Crowded(_) | Received::Busy(_) => Reason::Busy,
            Received::Late(_) => Reason::Late,
        };
        if subject.aspect == Aspect::Record {
            let operation = head.operation.unwrap_or(Operation::Update);
            let author = review::author(body.bytes());
            return self.judge_unread_record(subject, operation, (&[], &author), reason);
        }
        let verdict = match body {
            Received::Crowded(_) => by_mode(reason),
            _ => Verdict::unjudged(&self.policy(subject, head), reason),
        };
        (verdict, subject.no_room())
    }
}
