//! The webhook's entries in the ledger and the log.
//!
//! Entry points: `Validator::record`, `Validator::keep_unread`, `Validator::keep_unreached`,
//! `Validator::keep_acts`. Invariant: no request waits for it; plainly allowed edits and known dry
//! runs leave no row; edits that a rule alone allows leave one now and then. Must not judge.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::Validator;
use super::spared::Spared;
use crate::webhook::acts::acts;
use crate::webhook::case::{Aspect, Case, Judgement, Subject};
use crate::webhook::claims::certain;
use crate::webhook::look::Unreached;
use crate::webhook::repeats::{Time, Version};
use crate::webhook::review::{self, Head};
use kubemoor_cluster::client::guarded::KIND;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_declare::model::{EditsMode, ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_ledger::row::{Changes, ReviewedEdit, Row};
use kubemoor_notify::message::{self, Message};
use kubemoor_runtime::metrics::UNREACHED;
use kubemoor_verdict::edit::{Outcome, Reason, Verdict};
use kubemoor_verdict::facts::Facts;
use kubemoor_verdict::recorded::{self, Recording};
use kubemoor_verdict::records;

impl Validator {
    /// Records edits that were not plainly allowed. A dry run leaves no trace.
    pub(super) fn record(&self, judgement: &Judgement, case: Case<'_>, uid: String) {
        let Judgement { verdict, message, facts, .. } = judgement;
        let facts = facts.as_ref();
        if case.dry_run {
            return;
        }
        if verdict.outcome == Outcome::Allow {
            return self.keep(verdict, facts, case, uid);
        }
        let what = (&case.subject.object, case.operation, &case.actor);
        // A denied update is never stored, whatever the version.
        let version = match (verdict.outcome, case.texts()) {
            (Outcome::Warn | Outcome::Record, (Some(old), Some(new))) => {
                let fields = verdict.grounds.iter().flat_map(|grounds| &grounds.fields);
                Version::of(old, new, fields.filter(|field| field.old != field.new).map(|field| &field.path))
            }
            _ => None,
        };
        if self.repeats.note(what, verdict, version, Instant::now()) == Time::Again {
            return;
        }
        let grounds = verdict.grounds.as_ref();
        tracing::info!(
            verdict.outcome = verdict.outcome.as_str(),
            verdict.reason = verdict.reason.as_str(),
            release.id = grounds.map(|grounds| grounds.release.to_string()),
            release.revision = grounds.map(|grounds| grounds.revision),
            edit.object = %case.subject.object,
            edit.operation = ?case.operation,
            edit.user = case.actor.user,
            edit.groups = ?case.actor.groups,
            review.uid = uid,
            "{}",
            message.line()
        );
        let Some(reason) = &judgement.request_refused else { return self.keep(verdict, facts, case, uid) };
        let row = self.row(verdict, facts, case, uid);
        let release = row.release.clone().or_else(|| first(&judgement.claims));
        self.tell(Row { release, detail: reason.clone(), ..row }, verdict);
    }

    /// Stores edits that were not plainly allowed, and every edit of a record, because releases
    /// depend on Helm's records. Of the edits that a rule alone allows, one of many is stored.
    pub(super) fn keep(&self, verdict: &Verdict, facts: Option<&Facts>, case: Case<'_>, uid: String) {
        let of_record = verdict.reason == Reason::RecordIntact;
        let spared = Spared::of(verdict, facts);
        let is_kept = |spared: &Spared<'_>| {
            self.setup.resolver.of(&spared.claim.release).edits != EditsMode::Allow
                && self.spared.take_turn(&case, spared)
        };
        if verdict.outcome == Outcome::Allow && !of_record && !spared.as_ref().is_some_and(is_kept) {
            return;
        }
        let mut row = self.row(verdict, facts, case, uid);
        if let Some(Spared { claim, changes }) = spared {
            row.release = Some((claim.release.clone(), claim.revision));
            row.fields = Changes::passing(&row.object, changes);
            row.yields = true;
        }
        self.tell(row, verdict);
    }

    /// Stores the verdict on a review of which only the front was read. The front names the user,
    /// but not whether it is a dry run.
    pub(super) fn keep_unread(&self, verdict: &Verdict, subject: &Subject, head: &Head<'_>, front: &[u8]) {
        if verdict.outcome == Outcome::Allow {
            return;
        }
        let edit = ReviewedEdit {
            object: subject.object.clone(),
            operation: head.operation,
            actor: review::author(front),
            uid: head.uid.clone().into_owned(),
        };
        let row = Row::verdict(Timestamp::now(), edit, verdict);
        let release = match subject.aspect {
            Aspect::Record => self.recorded(&subject.object),
            _ => {
                let index = self.setup.source.index().read();
                first(&certain(&subject.object, subject.version_of(head), &index))
            }
        };
        self.tell(Row { release, yields: true, ..row }, verdict);
    }

    /// Records that an edit was left to `failurePolicy`.
    pub(super) fn keep_unreached(&self, body: &[u8], error: &Unreached) {
        // It could be read before, so it can be read again.
        let Ok(request) = review::Request::parse(body) else { return };
        let driver = self.setup.record_driver;
        let subject = Subject::of(&request.head, &self.setup.source.index().read(), driver);
        let Some(subject) = subject.filter(|_| !request.dry_run) else { return };
        let uid = request.head.uid.clone();
        let case = Case::of(subject, request, driver);
        let release = match case.subject.aspect {
            Aspect::Record => self.recorded(&case.subject.object),
            _ => first(&case.claims(self.setup.source.index(), &self.setup.resolver)),
        };
        let Case { subject, operation, actor, .. } = case;
        let (object, uid) = (subject.object, uid.into_owned());
        let edit = ReviewedEdit { object, operation: Some(operation), actor, uid };
        let row = Row::unreached(Timestamp::now(), edit, release, UNREACHED);
        self.setup.ledger.record(Row { detail: error.to_string(), ..row });
    }

    /// Stores the commands of a user to the guard in this edit of a GuardedRelease. The guard
    /// itself creates and deletes GuardedReleases with their releases.
    pub(super) fn keep_acts(&self, request: &review::Request<'_>, old: &Value, new: &Value) {
        let name = |object: &Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
        let Some((namespace, name)) = request.head.namespace.as_ref().zip(name(new).or_else(|| name(old)))
        else {
            return;
        };
        if request.dry_run || self.setup.own_account.as_ref() == Some(&request.actor.user) {
            return;
        }
        let namespace = namespace.to_string();
        for (act, detail) in acts(old, new) {
            let object = ObjectId {
                group: GROUP.into(),
                kind: KIND.into(),
                namespace: Some(namespace.clone().into()),
                name: name.clone().into(),
            };
            let edit = ReviewedEdit {
                object,
                operation: request.head.operation,
                actor: request.actor.clone(),
                uid: request.head.uid.clone().into_owned(),
            };
            let id = ReleaseId { namespace: namespace.clone().into(), name: name.clone().into() };
            let known = self.setup.source.index().read().release(&id).map(|release| release.state.revision);
            let release = known.map(|revision| (id, revision));
            let row = Row::act(Timestamp::now(), edit, release, act);
            self.setup.ledger.record(Row { detail, ..row });
        }
    }

    fn row(&self, verdict: &Verdict, facts: Option<&Facts>, case: Case<'_>, uid: String) -> Row {
        let now = Timestamp::now();
        // A rule outside of the policies has denied it, which a replay cannot apply again.
        let facts = facts.filter(|_| verdict.reason != Reason::Request);
        let facts = facts.map(|facts| recorded::text(facts, self.recording(&case, now)));
        let (object, operation) = (case.subject.object, Some(case.operation));
        let edit = ReviewedEdit { object, operation, actor: case.actor, uid };
        let mut row = Row { facts, ..Row::verdict(now, edit, verdict) };
        if row.release.is_none() && case.subject.aspect == Aspect::Record {
            row.release = self.recorded(&row.object);
        }
        row
    }

    fn tell(&self, row: Row, verdict: &Verdict) {
        self.announce(&row, verdict);
        self.setup.ledger.record(row);
    }

    fn recording<'a>(&'a self, case: &'a Case<'_>, now: Timestamp) -> Recording<'a> {
        Recording {
            object: &case.subject.object,
            scale: matches!(case.subject.aspect, Aspect::Scale(_)),
            manager: case.field_manager(),
            resolver: &self.setup.resolver,
            now,
        }
    }

    /// Notifies people of a denial.
    fn announce(&self, row: &Row, verdict: &Verdict) {
        if verdict.outcome != Outcome::Deny || !self.setup.notifiers.have_receivers() {
            return;
        }
        let (release, revision) = row.release.clone().unzip();
        let policy = release.as_ref().map(|release| self.setup.resolver.of(release));
        let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
        let message = Message {
            namespace: row.object.namespace.as_deref().filter(|_| release.is_none()).map(str::to_owned),
            release,
            revision,
            object: Some(row.object.clone()),
            by: Some(row.actor.user.clone()),
            key: row.actor.user.clone(),
            ..Message::new(message::Subject::Denied, Timestamp::now())
        };
        self.setup.notifiers.send(names, message);
    }

    /// The release and revision of a record.
    fn recorded(&self, record: &ObjectId) -> Option<(ReleaseId, u64)> {
        let (stored, revision) = records::names(record)?;
        Some((self.setup.source.index().read().release_stored_as(stored), revision))
    }
}

/// The first of these claims, with its revision.
fn first(claims: &[Arc<Release>]) -> Option<(ReleaseId, u64)> {
    claims.first().map(|release| (release.id.clone(), release.state.revision))
}
