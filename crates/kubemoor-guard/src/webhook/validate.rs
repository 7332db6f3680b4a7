//! `/validate/TOKEN` and `/mutate/TOKEN`: the path of a review, from the socket to the answer.
//!
//! [`Validator::answer`] authenticates the API server, reads the body and determines the subject: an edit of an
//! undeclared object is allowed by the review's head alone, without a call to the API server. [`Validator::decide`]
//! reads the whole review, judges it, reads the records again before it refuses, and records the verdict. The rules are
//! in [`kubemoor_verdict`].

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body, Bytes};
use jiff::Timestamp;
use moka::sync::Cache;
use tokio::time::{Instant, timeout_at};

use super::annotations::{self, AnnotationRequest};
use super::autoscaling;
use super::case::{
    Aspect, HeldRecords, Judgement, ReviewCase, ReviewSubject, local_claims, policy_for_object,
};
use super::hints::{self, UserRights};
use super::intake::{CallerGate, Intake, ReceivedBody, ReviewStage, Submission, UnreadCause};
use super::look::{CaseJudge, JudgementError, ReleaseSource};
use super::order;
use super::review::{self, AdmissionRequest, AdmissionResponse, AuditKey, ReviewError, ReviewHead};
use super::shares::{FairTurns, HeldTurn, run_blocking_future};
use kubemoor_declare::model::{Actor, EditsMode, ObjectId, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_helm::release::{ObjectDeclarations, Release};
use kubemoor_helm::values::Candidate;
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::{LedgerRow, ReviewedEdit, RowChanges};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message as notice;
use kubemoor_notify::message::Notification as Notice;
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::{AdmissionMetrics, Decision, UNREACHED, Webhook};
use kubemoor_runtime::telemetry::traces::RequestSpan;
use kubemoor_verdict::diff::{ChangedField, ClaimFacts, JudgedFacts};
use kubemoor_verdict::edit::{DryRunEvidence, EditOutcome, Rules, Verdict, VerdictReason};
use kubemoor_verdict::message::{self, EditMessage};
use kubemoor_verdict::records::{self, RecordEdit};
use kubemoor_verdict::replay::{self, Recording};
use kubemoor_verdict::revert::{self, RevertError, RevertPlan, WholeEdit};

/// A review above this size, in bytes, is judged off the threads that answer. If the manifests also declare as much of
/// its object, it has to wait for a turn.
const LARGE: usize = 256 << 10;

/// If the manifests declare more than this of its object, in bytes, a review of any size has to wait for a turn.
const HEAVY: usize = 1 << 20;

/// For how long edits by one user of the same fields of one object get one row, if only a rule allows them.
const SPARED_PERIOD: Duration = Duration::from_secs(3600);

/// The maximum number of remembered edits: with more of them, some get another row earlier.
const SPARED_REMEMBERED: u64 = 10_000;

#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error(transparent)]
    Malformed(#[from] ReviewError),
    #[error(transparent)]
    Unreached(#[from] JudgementError),
}

pub struct ValidatorContext {
    pub caller_gate: CallerGate,
    pub source: ReleaseSource,
    pub resolver: Arc<PolicyResolver>,
    pub record_driver: RecordDriver,
    /// The user name under which Kubemoor itself writes, if it is known.
    pub own_account: Option<String>,
    /// The namespace that Kubemoor runs in, whose objects only the loop guards.
    pub own_namespace: Option<String>,
    pub metrics: AdmissionMetrics,
    pub ledger: LedgerHandle,
    pub notifiers: Notifiers,
}

/// Answers reviews. Cheap to clone.
#[derive(Clone)]
pub struct Validator {
    intake: Intake,
    pub(super) setup: Arc<ValidatorContext>,
    /// The turns for decoding records, and for judging large reviews.
    decoding: Arc<FairTurns>,
    judging: Arc<FairTurns>,
    /// The edits that only a rule allows and that got a row within the last hour: a controller that writes ignored
    /// fields often leaves one row an hour.
    recorded_rule_edits: Cache<u64, ()>,
    rights: Arc<UserRights>,
}

impl Validator {
    pub fn new(intake: Intake, setup: ValidatorContext) -> Self {
        let processors = available_parallelism().map_or(2, NonZeroUsize::get).max(2);
        let spared = Cache::builder().max_capacity(SPARED_REMEMBERED).time_to_live(SPARED_PERIOD).build();
        Self {
            intake,
            setup: Arc::new(setup),
            decoding: FairTurns::new(processors),
            judging: FairTurns::new(processors),
            recorded_rule_edits: spared,
            rights: Arc::default(),
        }
    }

    /// Answers one request of the API server, which comes from `peer`; other callers get an empty
    /// response.
    pub async fn answer<B>(&self, peer: IpAddr, request: Request<B>) -> Response<review::Body>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let metrics = &self.setup.metrics;
        let malformed = |error: &ReviewError| {
            metrics.malformed();
            review::malformed(error)
        };
        let Some(stage) = self.setup.caller_gate.stage(request.uri().path()) else {
            return review::nothing();
        };
        let mut span = ReviewSpan::begin(request.headers());
        let submission = match self.intake.receive(peer, request).await {
            Ok(submission) => submission,
            Err(error) => {
                metrics.malformed();
                return error.respond();
            }
        };
        let arrived = Instant::now();
        let Submission { body, deadline } = &submission;
        let head = match ReviewHead::parse(body.bytes()) {
            Ok(head) => head,
            Err(error) => return malformed(&error),
        };
        span.note(&head);
        let uid = head.uid.clone();
        let (webhook, decided) = if stage == ReviewStage::Observe {
            (Webhook::Autoscalers, self.observe(body))
        } else if stage == ReviewStage::Mutate && order::is_order(&head) {
            (Webhook::Orders, self.answer_order(body, *deadline).await)
        } else {
            let subject = self.subject(&head, stage, matches!(body, ReceivedBody::Whole(_)));
            let webhook = match (&subject, stage) {
                (_, ReviewStage::Mutate) => Webhook::Reverts,
                (Ok(subject), _) => subject.webhook(),
                (Err(_), _) => Webhook::Edits,
            };
            let decided = match (subject, body) {
                (Err(reason), _) => Ok((AdmissionResponse::allow(), Verdict::allow(reason))),
                (Ok(subject), ReceivedBody::Whole(bytes)) => {
                    let takes_long = self.takes_long(&subject, bytes.len());
                    let decided = self.decide(subject, head, (bytes, takes_long), stage, *deadline);
                    if takes_long || bytes.len() > LARGE {
                        run_blocking_future(decided).await
                    } else {
                        decided.await
                    }
                }
                (Ok(subject), ReceivedBody::Front(front, why)) => {
                    let request = AdmissionRequest::from_front(head, front);
                    let case = ReviewCase::new(subject, request, self.setup.record_driver);
                    Ok(self.decide_unread(case, stage, *why))
                }
            };
            (webhook, decided)
        };
        let (answer, verdict) = match decided {
            Ok(decided) => decided,
            Err(NoVerdict::Malformed(error)) => return malformed(&error),
            Err(NoVerdict::Unreached(error)) => {
                metrics.answered(webhook, Decision::Error, UNREACHED, arrived.elapsed());
                span.answered(stage, StatusCode::INTERNAL_SERVER_ERROR);
                tracing::warn!(review.uid = %uid, "failed to answer a review: {error}");
                return review::failed(&error.to_string());
            }
        };
        let mut response = answer.respond(&uid);
        if let ReceivedBody::Front(_, UnreadCause::Late) = body {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        metrics.answered(webhook, decision(verdict.outcome), verdict.reason.as_str(), arrived.elapsed());
        span.judged(stage, response.status(), &verdict);
        response
    }

    /// Judges a review that was received whole. Before a refusal the records are read again, and the review is judged
    /// again, until a read changes nothing.
    async fn decide(
        &self,
        subject: ReviewSubject,
        head: ReviewHead,
        (bytes, takes_long): (&Bytes, bool),
        stage: ReviewStage,
        deadline: Instant,
    ) -> Result<(AdmissionResponse, Verdict), NoVerdict> {
        let driver = self.setup.record_driver;
        let _turn = match self.turn(&subject, &head, (bytes, takes_long), deadline).await {
            Ok(turn) => turn,
            Err(why) => {
                let case = ReviewCase::new(subject, AdmissionRequest::from_front(head, bytes), driver);
                return Ok(self.decide_unread(case, stage, why));
            }
        };
        let mut case = ReviewCase::new(subject, AdmissionRequest::parse(bytes)?, driver);
        if case.is_record() {
            match self.decode_records(&case, deadline).await {
                Some(held) => case.held = Some(held),
                None => return Ok(self.decide_unread(case, stage, UnreadCause::Late)),
            }
        }
        let rules = Rules { resolver: &self.setup.resolver, own_account: self.setup.own_account.as_deref() };
        let looker = CaseJudge { source: &self.setup.source, rules: &rules, deadline };
        // Kubemoor itself requests nothing by annotations.
        let asked = match rules.own_account {
            Some(own) if own == case.actor.user => AnnotationRequest::Nothing,
            _ => annotations::read(&case, &looker).await,
        };
        if let AnnotationRequest::Granted(granted) = &asked {
            case.granted = Some(Arc::clone(&granted.allowance));
        }
        let first = looker.judge(&case, DryRunEvidence::None);
        if stage == ReviewStage::Mutate && !may_revert(&case, &first) {
            return Ok((AdmissionResponse::allow(), Verdict::allow(first.verdict.reason)));
        }
        let looked = looker.judge_with_fresh_records(first, &mut case).await;
        let mut judgement = looked.map_err(|error| self.record_unreached(&case, error))?;
        let values = hints::chart_values(&looker, &case, &judgement).await;
        judgement.message.suggest(&values);
        self.rights.tell_exceptions(&looker, &case, &mut judgement).await;
        self.rights.hide_values(&looker, &case, &mut judgement).await;
        let answer = match stage {
            ReviewStage::Mutate if may_revert(&case, &judgement) => {
                asked.known().map_err(|error| self.record_unreached(&case, error))?;
                revert(&case, &mut judgement, rules.resolver, &values)
            }
            ReviewStage::Mutate => {
                judgement.verdict = Verdict::allow(judgement.verdict.reason);
                AdmissionResponse::allow()
            }
            ReviewStage::Validate | ReviewStage::Observe => {
                let settled = annotations::settle(asked, &case, &mut judgement, &looker).await;
                let mut warnings = settled.map_err(|error| self.record_unreached(&case, error))?;
                let (policies, index) = (self.setup.resolver.policies(), self.setup.source.index());
                warnings.extend(hints::milder_labels(&case, &policies, &index.read()));
                deny_unreverted(&mut judgement.verdict);
                let answer = respond_with(&judgement.verdict, &judgement.message);
                warnings.into_iter().fold(answer, AdmissionResponse::warn)
            }
        };
        let answer = annotate(answer, &judgement.verdict);
        self.record(&judgement, &case);
        Ok((answer, judgement.verdict))
    }

    /// What the review is about, or the reason why it is allowed unread.
    fn subject(
        &self,
        head: &ReviewHead,
        stage: ReviewStage,
        is_whole: bool,
    ) -> Result<ReviewSubject, VerdictReason> {
        let index = self.setup.source.index().read();
        let driver = self.setup.record_driver;
        let may_be_record = |subject: &ReviewSubject| {
            let here = &subject.object.namespace;
            stage == ReviewStage::Validate
                && subject.may_be_labelled(driver)
                && (is_whole
                    || operator_policy(&self.setup.resolver, &index, here.as_deref(), None).is_some())
        };
        let subject = ReviewSubject::from_head(head, &index, driver)
            .filter(|subject| subject.can_be_denied(&head.kind.version, &index) || may_be_record(subject))
            .filter(|subject| stage == ReviewStage::Validate || subject.aspect == Aspect::Object);
        let subject = subject.ok_or(VerdictReason::NotDeclared)?;
        let own = self.setup.own_namespace.as_deref();
        if own.is_some() && subject.object.namespace.as_deref() == own {
            return Err(VerdictReason::OwnNamespace);
        }
        Ok(subject)
    }

    fn observe(&self, body: &ReceivedBody) -> Result<(AdmissionResponse, Verdict), NoVerdict> {
        // For a larger one, the watch leaves a row without the user.
        if let ReceivedBody::Whole(bytes) = body
            && bytes.len() <= LARGE
        {
            let request = AdmissionRequest::parse(bytes)?;
            if !request.dry_run {
                let rows = autoscaling::rows(&request, self.setup.source.index(), &self.setup.resolver);
                rows.into_iter().for_each(|row| self.setup.ledger.record(row));
            }
        }
        Ok((AdmissionResponse::allow(), Verdict::allow(VerdictReason::NotDeclared)))
    }

    async fn answer_order(
        &self,
        body: &ReceivedBody,
        deadline: Instant,
    ) -> Result<(AdmissionResponse, Verdict), NoVerdict> {
        let mut answer = AdmissionResponse::allow();
        if let (ReceivedBody::Whole(bytes), ReleaseSource::Cluster(live)) = (body, &self.setup.source) {
            let request = AdmissionRequest::parse(bytes)?;
            if let Some((old, new)) = order::objects(&request) {
                order::record_acts(&self.setup, &request, &old, &new);
                let callers = self.setup.caller_gate.callers();
                answer = Box::pin(order::answer(&request, (&old, &new), (live, callers), deadline)).await;
            }
        }
        Ok((answer, Verdict::allow(VerdictReason::NotDeclared)))
    }

    fn takes_long(&self, subject: &ReviewSubject, sent: usize) -> bool {
        let index = self.setup.source.index().read();
        let claims = index.claims(&subject.object);
        subject.aspect != Aspect::Record && takes_long(sent, declared_weight(subject, claims))
    }

    /// The turn of a review that takes long; `None` for all others. While others hold all turns, a review that takes
    /// long only because of claims that may be forged needs none: forged claims must not let an edit pass.
    async fn turn(
        &self,
        subject: &ReviewSubject,
        head: &ReviewHead,
        (bytes, takes_long_by_all): (&Bytes, bool),
        deadline: Instant,
    ) -> Result<Option<HeldTurn>, UnreadCause> {
        if !takes_long_by_all {
            return Ok(None);
        }
        let namespace = subject.object.namespace.as_deref().unwrap_or_default();
        // The remaining time is for its judgement.
        let until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
        match self
            .judging
            .take(namespace, &review::author(bytes).user, until)
            .await
            .map_err(UnreadCause::from)
        {
            Ok(turn) => Ok(Some(turn)),
            Err(UnreadCause::Busy) => {
                let index = self.setup.source.index();
                let version = (subject.aspect == Aspect::Object).then_some(&*head.kind.version);
                let counting = local_claims(&subject.object, version, &index.read());
                let is_long = takes_long(bytes.len(), declared_weight(subject, &counting));
                if is_long { Err(UnreadCause::Busy) } else { Ok(None) }
            }
            Err(why) => Err(why),
        }
    }

    /// Decodes records off the threads that answer, a few at a time; `None` if that fails, or takes longer than until
    /// `deadline`.
    async fn decode_records(&self, case: &ReviewCase<'_>, deadline: Instant) -> Option<HeldRecords> {
        let namespace = case.subject.object.namespace.as_deref().unwrap_or_default();
        // By namespace alone: a user such as Flux writes the records of many namespaces.
        let turn = self.decoding.take(namespace, namespace, deadline).await.ok()?;
        let objects = case.values();
        let decoding = tokio::task::spawn_blocking(move || {
            // Held until decoding ends, even if its result is no longer needed.
            let _turn = turn;
            HeldRecords::decode(objects)
        });
        timeout_at(deadline, decoding).await.ok()?.ok()
    }

    fn decide_unread(
        &self,
        case: ReviewCase<'_>,
        stage: ReviewStage,
        why: UnreadCause,
    ) -> (AdmissionResponse, Verdict) {
        let (verdict, message) = self.judge_unread(&case, why);
        // An edit that cannot be reverted is judged at the next stage.
        if stage == ReviewStage::Mutate {
            return (AdmissionResponse::allow(), Verdict::allow(verdict.reason));
        }
        self.record_unread(&verdict, &case);
        (annotate(respond_with(&verdict, &message), &verdict), verdict)
    }

    /// If the request itself is the cause (its size, the load of its own user or namespace), the mode decides, so that
    /// no user can choose to bypass it; if others are the cause, by using time or room, the edit is allowed and
    /// recorded. A record is allowed in that case too, because Helm must not be denied for the load of others, unless a
    /// policy names the users who may write it.
    fn judge_unread(&self, case: &ReviewCase<'_>, why: UnreadCause) -> (Verdict, EditMessage) {
        let (subject, object) = (&case.subject, &case.subject.object);
        let Some(policy) = self.policy(case) else {
            return (Verdict::allow(VerdictReason::NotDeclared), EditMessage::default());
        };
        let reason = match why {
            UnreadCause::TooLarge => {
                let verdict = Verdict::by_mode(&policy, VerdictReason::TooLarge, None);
                return (verdict, message::of_beyond_judgement(object, subject.aspect == Aspect::Record));
            }
            UnreadCause::Crowded | UnreadCause::Busy => VerdictReason::Busy,
            UnreadCause::Late => VerdictReason::Late,
        };
        if !case.is_record() {
            let verdict = match why {
                UnreadCause::Crowded => Verdict::by_mode(&policy, reason, None),
                _ => Verdict::unjudged(&policy, reason),
            };
            return (verdict, message::of_overload(object, subject.aspect == Aspect::Record));
        }
        let edit = RecordEdit {
            operation: case.operation,
            actor: &case.actor,
            object,
            old: None,
            new: None,
            labelled: &case.labelled,
            adds_owner: false,
            being_deleted: false,
        };
        let rules = Rules { resolver: &self.setup.resolver, own_account: self.setup.own_account.as_deref() };
        let index = self.setup.source.index().read();
        let judged =
            (!case.actor.user.is_empty()).then(|| records::judge_unread(&edit, &index, &rules)).flatten();
        match judged {
            Some((verdict, falsified)) => {
                let message = falsified.map(|falsified| message::of_record(object, falsified));
                (verdict, message.unwrap_or_default())
            }
            None => (Verdict::unjudged(&policy, reason), EditMessage::default()),
        }
    }

    /// The policy for a review of which only the front is known; `None` for a Secret that every policy lets the user
    /// write, whether or not its labels make it a record.
    fn policy(&self, case: &ReviewCase<'_>) -> Option<Arc<Policy>> {
        let (resolver, index) = (&self.setup.resolver, self.setup.source.index().read());
        let object = &case.subject.object;
        match (&case.subject.aspect, records::names(object)) {
            (Aspect::Record, Some((stored, _))) => Some(resolver.policy(&index.release_stored_as(stored))),
            _ if case.is_record() || case.subject.can_be_denied(&case.version, &index) => {
                Some(policy_for_object(resolver, object, &local_claims(object, case.version(), &index)))
            }
            _ => operator_policy(resolver, &index, object.namespace.as_deref(), Some(&case.actor)),
        }
    }

    /// Writes a verdict to the log and the ledger. Plainly allowed edits and dry runs get no row, edits that only a
    /// rule allows get one now and then. No request waits for it.
    fn record(&self, judgement: &Judgement, case: &ReviewCase<'_>) {
        let Judgement { verdict, message, facts, .. } = judgement;
        if case.dry_run {
            return;
        }
        if verdict.outcome != EditOutcome::Allow {
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
                review.uid = case.review_uid,
                "{}",
                message.line()
            );
        }
        let spared = rule_only_changes(verdict, facts.as_ref());
        // Releases depend on Helm's records.
        let is_kept = verdict.outcome != EditOutcome::Allow
            || verdict.reason == VerdictReason::RecordIntact
            || spared.is_some_and(|(claim, changes)| self.is_kept(case, claim, changes));
        if !is_kept {
            return;
        }
        let mut row = self.row(verdict, facts.as_ref(), case);
        if let Some((claim, changes)) = spared {
            row.release = Some((claim.release.clone(), claim.revision));
            row.fields = RowChanges::passing(&row.object, changes);
            row.is_low_priority = true;
        }
        if let Some(reason) = &judgement.request_refused {
            row.release = row.release.or_else(|| first(&judgement.claims));
            row.detail.clone_from(reason);
        }
        self.store(row, verdict);
    }

    /// Whether an edit that only a rule allows gets a row: not if an equal one got a row within the last hour.
    fn is_kept(&self, case: &ReviewCase<'_>, claim: &ClaimFacts, changes: &[ChangedField]) -> bool {
        if self.setup.resolver.policy(&claim.release).edits == EditsMode::Allow {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (&case.subject.object, case.operation, &case.actor.user, &claim.release).hash(&mut hasher);
        for change in changes {
            change.change.path.to_string().hash(&mut hasher);
        }
        self.recorded_rule_edits.entry(hasher.finish()).or_insert(()).is_fresh()
    }

    /// Stores the verdict on a review that was not read. Its front names the user, but not whether it is a dry run.
    fn record_unread(&self, verdict: &Verdict, case: &ReviewCase<'_>) {
        if verdict.outcome == EditOutcome::Allow || case.dry_run {
            return;
        }
        let release = match case.is_record() {
            true => self.release_of_record(&case.subject.object),
            false => {
                let index = self.setup.source.index().read();
                first(&local_claims(&case.subject.object, case.version(), &index))
            }
        };
        let row = LedgerRow::verdict(Timestamp::now(), reviewed(case), verdict);
        let release = row.release.clone().or(release);
        let yields = case.texts().iter().all(Option::is_none);
        self.store(LedgerRow { release, is_low_priority: yields, ..row }, verdict);
    }

    /// Records that an edit was left to `failurePolicy`, and returns the error that says so.
    fn record_unreached(&self, case: &ReviewCase<'_>, error: JudgementError) -> NoVerdict {
        if !case.dry_run {
            let release = match case.subject.aspect {
                Aspect::Record => self.release_of_record(&case.subject.object),
                _ => first(&case.claims(self.setup.source.index(), &self.setup.resolver)),
            };
            let row = LedgerRow::unreached(Timestamp::now(), reviewed(case), release, UNREACHED);
            self.setup.ledger.record(LedgerRow { detail: error.to_string(), ..row });
        }
        error.into()
    }

    fn row(&self, verdict: &Verdict, facts: Option<&JudgedFacts>, case: &ReviewCase<'_>) -> LedgerRow {
        let now = Timestamp::now();
        let recording = Recording {
            object: &case.subject.object,
            scale: matches!(case.subject.aspect, Aspect::Scale(_)),
            manager: &case.field_manager,
            resolver: &self.setup.resolver,
            now,
        };
        // With `Request`, a rule outside of the policies has denied it, which a replay cannot apply again.
        let facts = facts.filter(|_| verdict.reason != VerdictReason::Request);
        let facts = facts.map(|facts| replay::text(facts, recording));
        let mut row = LedgerRow { facts, ..LedgerRow::verdict(now, reviewed(case), verdict) };
        if row.release.is_none() && case.subject.aspect == Aspect::Record {
            row.release = self.release_of_record(&row.object);
        }
        row
    }

    fn store(&self, row: LedgerRow, verdict: &Verdict) {
        if verdict.outcome == EditOutcome::Deny && self.setup.notifiers.has_receivers() {
            let (release, revision) = row.release.clone().unzip();
            let policy = release.as_ref().map(|release| self.setup.resolver.policy(release));
            let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
            let notice = Notice {
                namespace: row.object.namespace.as_deref().filter(|_| release.is_none()).map(str::to_owned),
                release,
                revision,
                object: Some(row.object.clone()),
                by: Some(row.actor.user.clone()),
                key: row.actor.user.clone(),
                ..Notice::new(notice::NotificationSubject::Denied, Timestamp::now())
            };
            self.setup.notifiers.send(names, notice);
        }
        self.setup.ledger.record(row);
    }

    fn release_of_record(&self, record: &ObjectId) -> Option<(ReleaseId, u64)> {
        let (stored, revision) = records::names(record)?;
        Some((self.setup.source.index().read().release_stored_as(stored), revision))
    }
}

/// The strictest policy in a namespace whose `operators` leave `actor` out.
fn operator_policy(
    resolver: &PolicyResolver,
    index: &Index,
    namespace: Option<&str>,
    actor: Option<&Actor>,
) -> Option<Arc<Policy>> {
    let stored = index.histories().filter(|release| namespace == Some(&*release.storage));
    let policies = stored.map(|release| resolver.policy(&release.id));
    let is_operator =
        |policy: &Policy| policy.operators.iter().any(|it| actor.is_some_and(|actor| it.matches(actor)));
    policies.filter(|it| !it.operators.is_empty() && !is_operator(it)).max_by_key(|it| it.edits)
}

fn reviewed(case: &ReviewCase<'_>) -> ReviewedEdit {
    ReviewedEdit {
        object: case.subject.object.clone(),
        operation: Some(case.operation),
        actor: case.actor.clone(),
        uid: case.review_uid.clone(),
    }
}

fn first(claims: &[Arc<Release>]) -> Option<(ReleaseId, u64)> {
    claims.first().map(|release| (release.id.clone(), release.state.revision))
}

/// The release whose rules alone allow an edit, and the changed fields; one of many such edits is stored, so that a
/// replay can apply a stricter policy to it.
fn rule_only_changes<'f>(
    verdict: &Verdict,
    facts: Option<&'f JudgedFacts>,
) -> Option<(&'f ClaimFacts, &'f [ChangedField])> {
    let by_rule = matches!(verdict.reason, VerdictReason::Ignored | VerdictReason::Autoscaled);
    let Some(JudgedFacts::Edit(facts)) = facts.filter(|_| by_rule && verdict.outcome == EditOutcome::Allow)
    else {
        return None;
    };
    // The last release that was consulted is the one that allows it.
    let claim = facts.claims.last()?;
    Some((claim, &claim.alternatives.last()?.changes))
}

/// Whether an edit may be reverted: it changes a declared object and no record. In another version than the declared
/// one, the release does not count.
fn may_revert(case: &ReviewCase<'_>, judgement: &Judgement) -> bool {
    let verdict = &judgement.verdict;
    verdict.outcome == EditOutcome::Revert
        && verdict.reason != VerdictReason::Record
        && case.subject.aspect == Aspect::Object
}

/// The answer to an edit that has to be reverted; `values` are the chart values that probably set its fields. The API
/// server calls `/validate` afterwards with the resulting object: reverted fields do not drift there. Turns the judgement
/// into a denial if the edit cannot be reverted.
fn revert(
    case: &ReviewCase<'_>,
    judgement: &mut Judgement,
    resolver: &PolicyResolver,
    values: &[Vec<Candidate>],
) -> AdmissionResponse {
    match revert_plan(case, judgement, resolver) {
        Ok(plan) => {
            judgement.message = case.in_context(&judgement.verdict, &judgement.claims, resolver, |context| {
                context.of_revert(&judgement.verdict, &plan.set_back)
            });
            judgement.message.suggest(values);
            let warnings = judgement.message.warnings();
            warnings.into_iter().fold(AdmissionResponse::allow().patch(plan.patch), AdmissionResponse::warn)
        }
        Err(why) => {
            deny_unreverted(&mut judgement.verdict);
            judgement.message.add(format!("The change cannot be reverted in part: {why}."));
            AdmissionResponse::deny(judgement.message.denial())
        }
    }
}

fn revert_plan(
    case: &ReviewCase<'_>,
    judgement: &Judgement,
    resolver: &PolicyResolver,
) -> Result<RevertPlan, RevertError> {
    let [Some(old), Some(new)] = case.texts().map(|text| text?.value()) else {
        return Err(RevertError::TooDeep);
    };
    let (Some(grounds), Some(JudgedFacts::Edit(facts))) = (&judgement.verdict.grounds, &judgement.facts)
    else {
        return Err(RevertError::Outdated);
    };
    let release = judgement.claims.iter().find(|claim| claim.id == grounds.release);
    let (release, diff) = release.zip(facts.diff(grounds)).ok_or(RevertError::Outdated)?;
    let (settled, field_manager) = (judgement.settled.as_deref(), &*case.field_manager);
    let edit = WholeEdit { object: &case.subject.object, old: &old, new: &new, field_manager, settled };
    revert::plan(edit, release, &resolver.policy(&release.id), diff, &grounds.fields)
}

/// Denies an edit that should be reverted but no longer can be: the mutating webhook was already called.
fn deny_unreverted(verdict: &mut Verdict) {
    if verdict.outcome == EditOutcome::Revert {
        verdict.outcome = EditOutcome::Deny;
    }
}

fn respond_with(verdict: &Verdict, message: &EditMessage) -> AdmissionResponse {
    match verdict.outcome {
        EditOutcome::Allow | EditOutcome::Record => AdmissionResponse::allow(),
        EditOutcome::Warn => {
            message.warnings().into_iter().fold(AdmissionResponse::allow(), AdmissionResponse::warn)
        }
        EditOutcome::Revert | EditOutcome::Deny => AdmissionResponse::deny(message.denial()),
    }
}

/// Writes every verdict other than a plain allow to the API server's audit log too.
fn annotate(answer: AdmissionResponse, verdict: &Verdict) -> AdmissionResponse {
    if verdict.outcome == EditOutcome::Allow {
        return answer;
    }
    let answer = answer
        .annotate(AuditKey::Decision, verdict.outcome.as_str())
        .annotate(AuditKey::Reason, verdict.reason.as_str());
    let Some(grounds) = &verdict.grounds else { return answer };
    let fields: Vec<String> = grounds.fields.iter().map(|field| field.path.to_string()).collect();
    answer
        .annotate(AuditKey::Release, grounds.release.to_string())
        .annotate(AuditKey::Revision, grounds.revision.to_string())
        .annotate(AuditKey::Fields, fields.join(","))
}

fn decision(outcome: EditOutcome) -> Decision {
    match outcome {
        EditOutcome::Allow => Decision::Allow,
        EditOutcome::Record => Decision::Record,
        EditOutcome::Warn => Decision::Warn,
        EditOutcome::Revert => Decision::Revert,
        EditOutcome::Deny => Decision::Deny,
    }
}

/// About how much these claims declare of the subject, in bytes.
fn declared_weight<'r>(subject: &ReviewSubject, claims: impl IntoIterator<Item = &'r Arc<Release>>) -> usize {
    let declared = claims.into_iter().filter_map(|claim| claim.objects.get(&subject.object));
    declared.flat_map(ObjectDeclarations::all).map(|declared| declared.weight()).sum()
}

/// Whether judging an edit of `sent` bytes may take long if manifests declare about `declared` bytes of its object. The
/// differences in declared fields are no larger than either; the rest is only scanned, which is cheap.
fn takes_long(sent: usize, declared: usize) -> bool {
    sent.min(declared) > LARGE || declared > HEAVY
}

/// The span of a review, from its arrival on, if spans are enabled. It holds names and the verdict's own words, no values.
struct ReviewSpan(Option<RequestSpan>);

impl ReviewSpan {
    fn begin(headers: &HeaderMap) -> Self {
        Self(RequestSpan::now(headers))
    }

    fn note(&mut self, head: &ReviewHead) {
        let Some(arrival) = &mut self.0 else { return };
        arrival.note("kubemoor.review.uid", head.uid.to_string());
        arrival.note_object(&head.object());
        if let Some(subresource) = &head.subresource {
            arrival.note("kubemoor.object.subresource", subresource.to_string());
        }
        if let Some(operation) = head.operation {
            arrival.note("kubemoor.operation", operation.as_str());
        }
    }

    fn judged(mut self, stage: ReviewStage, code: StatusCode, verdict: &Verdict) {
        if let Some(arrival) = &mut self.0 {
            arrival.note("kubemoor.decision", verdict.outcome.as_str());
            arrival.note("kubemoor.reason", verdict.reason.as_str());
            if let Some(grounds) = &verdict.grounds {
                arrival.note_release(&grounds.release, grounds.revision);
            }
        }
        self.answered(stage, code);
    }

    fn answered(self, stage: ReviewStage, code: StatusCode) {
        let route = match stage {
            ReviewStage::Validate => "/validate/{token}",
            ReviewStage::Mutate => "/mutate/{token}",
            ReviewStage::Observe => "/observe/{token}",
        };
        self.0.into_iter().for_each(|arrival| arrival.answered(route, code.as_u16()));
    }
}

#[cfg(test)]
mod tests;
