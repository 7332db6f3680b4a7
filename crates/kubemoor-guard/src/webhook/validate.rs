//! `/validate/TOKEN` and `/mutate/TOKEN`: judges the reviews of the API server.
//!
//! Entry point: [`Validator::answer`]. Invariant: an edit of an undeclared object is allowed by the
//! review's head alone and without a call, unless its labels may make it a record; no denial is sent
//! before the records were read again.
//! Knows HTTP and the order of reads. Must not hold a rule: the rules are in [`kubemoor_verdict`].

mod keep;
mod respond;
mod span;
mod spared;
mod unread;

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body, Bytes};
use tokio::time::{Instant, timeout_at};

use self::respond::{annotated, decision, put, says};
use self::span::Span;
use self::spared::SparedEdits;
use super::case::{Aspect, Case, Subject};
use super::claims::{certain, governing};
use super::door::{Door, Stage};
use super::held::Held;
use super::intake::{Intake, Received, Submission};
use super::look::{Looker, ReleaseSource, Unreached};
use super::mutate;
use super::order::{self, Orders};
use super::relabel;
use super::repeats::Repeats;
use super::request::{self, Asked};
use super::review::{self, Answer, Head, ReviewError};
use super::rights::UserRights;
use super::shares::{Lack, Shares, aside};
use super::suggest;
use kubemoor_helm::release::{Declarations, Release};
use kubemoor_ledger::Ledger;
use kubemoor_notify::Notifiers;
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::{AdmissionMetrics, Decision, UNREACHED, Webhook};
use kubemoor_verdict::edit::{Evidence, Reason, Rules, Verdict};
use kubemoor_verdict::records;

/// A review above this size, in bytes, is judged apart from the threads that answer. If the manifests declare as much of its
/// object, it has to wait for its turn.
const LARGE: usize = 256 << 10;

/// If the manifests declare more of its object, in bytes, a review of any size has to wait for its turn.
const HEAVY: usize = 1 << 20;

/// The reason why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum Unjudged {
    /// The body is no review.
    #[error(transparent)]
    Malformed(ReviewError),
    /// The basis of a denial could not be read: `failurePolicy` decides.
    #[error(transparent)]
    Unreached(#[from] Unreached),
}

/// A review that was received whole.
struct Whole<'b> {
    bytes: &'b Bytes,
    head: Head<'b>,
    subject: Subject,
    stage: Stage,
    deadline: Instant,
}

/// The setup of the webhook.
pub struct Setup {
    /// The access check.
    pub door: Door,
    /// The source of releases.
    pub source: ReleaseSource,
    /// The policies in force.
    pub resolver: Arc<PolicyResolver>,
    /// The form of Helm's records.
    pub record_driver: RecordDriver,
    /// The user name under which Kubemoor itself writes, where it is known.
    pub own_account: Option<String>,
    /// The namespace that Kubemoor runs in, whose objects only the loop guards.
    pub own_namespace: Option<String>,
    /// The source of answers to repair orders; `None` if nothing is repaired.
    pub orders: Option<Orders>,
    /// Where verdicts are counted.
    pub metrics: AdmissionMetrics,
    /// The ledger that stores verdicts.
    pub ledger: Ledger,
    /// The receivers of denials.
    pub notifiers: Notifiers,
}

/// Answers reviews. Cheap to clone.
#[derive(Clone)]
pub struct Validator {
    intake: Intake,
    setup: Arc<Setup>,
    /// The turns of records to be decoded, and of large reviews to be judged.
    decoding: Arc<Shares>,
    judging: Arc<Shares>,
    spared: Arc<SparedEdits>,
    repeats: Arc<Repeats>,
    rights: Arc<UserRights>,
}

impl Validator {
    /// A validator for this setup.
    pub fn new(intake: Intake, setup: Setup) -> Self {
        let processors = available_parallelism().map_or(2, NonZeroUsize::get).max(2);
        let (decoding, judging) = (Shares::turns(processors), Shares::turns(processors));
        let (spared, repeats, rights) = (Arc::default(), Arc::default(), Arc::default());
        Self { intake, setup: Arc::new(setup), decoding, judging, spared, repeats, rights }
    }

    /// Answers one request of the API server, which comes from `peer`; other callers get an empty
    /// response.
    pub async fn answer<B>(&self, peer: IpAddr, request: Request<B>) -> Response<review::Body>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let Some(stage) = self.setup.door.stage(request.uri().path()) else { return review::nothing() };
        let mut span = Span::begin(request.headers());
        let submission = match self.intake.receive(peer, request).await {
            Ok(submission) => submission,
            Err(error) => {
                self.setup.metrics.malformed();
                return error.respond();
            }
        };
        let arrived = Instant::now();
        let head = match Head::parse(submission.body.bytes()) {
            Ok(head) => head,
            Err(error) => return self.malformed(&error),
        };
        span.note(&head);
        if stage == Stage::Mutate && order::is_order(&head) {
            return self.order(&submission.body, &head.uid, submission.deadline).await;
        }
        let uid = head.uid.clone();
        let (webhook, judged) = self.judge(&submission, head, stage).await;
        let (mut response, verdict) = match judged {
            Ok(judged) => judged,
            Err(Unjudged::Malformed(error)) => return self.malformed(&error),
            Err(Unjudged::Unreached(error)) => {
                self.setup.metrics.answered(webhook, Decision::Error, UNREACHED, arrived.elapsed());
                span.answered(stage, StatusCode::INTERNAL_SERVER_ERROR);
                return self.unreached(&uid, submission.body.bytes(), &error);
            }
        };
        if matches!(submission.body, Received::Late(_)) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.setup.metrics.answered(
            webhook,
            decision(verdict.outcome),
            verdict.reason.as_str(),
            arrived.elapsed(),
        );
        span.judged(stage, response.status(), &verdict);
        response
    }

    /// Judges a review, and names the webhook that asks.
    async fn judge(
        &self,
        submission: &Submission,
        head: Head<'_>,
        stage: Stage,
    ) -> (Webhook, Result<(Response<review::Body>, Verdict), Unjudged>) {
        let subject = self.subject(&head, stage, matches!(submission.body, Received::Whole(_)));
        let webhook = match stage {
            Stage::Mutate => Webhook::Reverts,
            Stage::Validate => subject.as_ref().map_or(Webhook::Edits, Subject::webhook),
        };
        let judged = match (subject, &submission.body) {
            (Err(reason), _) => Ok((Answer::allow().respond(&head.uid), Verdict::allow(reason))),
            (Ok(subject), Received::Whole(bytes)) => {
                let deadline = submission.deadline;
                self.judged(Whole { bytes, head, subject, stage, deadline }).await
            }
            (Ok(subject), cut) => Ok(self.judged_unread(cut, &head, &subject, stage)),
        };
        (webhook, judged)
    }

    /// Answers a review on which no verdict could be reached.
    fn unreached(&self, uid: &str, body: &[u8], error: &Unreached) -> Response<review::Body> {
        tracing::warn!(review.uid = %uid, "a review could not be answered: {error}");
        self.keep_unreached(body, error);
        review::failed(&error.to_string())
    }

    /// Answers a request that is not a review.
    fn malformed(&self, error: &ReviewError) -> Response<review::Body> {
        self.setup.metrics.malformed();
        review::malformed(error)
    }

    /// Answers an order, which is always allowed.
    async fn order(&self, body: &Received, uid: &str, deadline: Instant) -> Response<review::Body> {
        let arrived = Instant::now();
        let answer = match (body, &self.setup.orders, &self.setup.source) {
            (Received::Whole(bytes), Some(orders), ReleaseSource::Cluster(live)) => {
                match review::Request::parse(bytes) {
                    Ok(request) => match order::objects(&request) {
                        Some((old, new)) => {
                            self.keep_acts(&request, &old, &new);
                            Box::pin(order::answer(&request, (&old, &new), (orders, live), deadline)).await
                        }
                        None => Answer::allow(),
                    },
                    Err(error) => return self.malformed(&error),
                }
            }
            _ => Answer::allow(),
        };
        let reason = Reason::NotDeclared.as_str();
        self.setup.metrics.answered(Webhook::Orders, Decision::Allow, reason, arrived.elapsed());
        answer.respond(uid)
    }

    /// The subject of the review, or the reason why it is allowed unread.
    fn subject(&self, head: &Head<'_>, stage: Stage, is_whole: bool) -> Result<Subject, Reason> {
        let index = self.setup.source.index().read();
        let driver = self.setup.record_driver;
        let may_be_record =
            |subject: &Subject| is_whole && stage == Stage::Validate && subject.may_be_labelled(driver);
        let subject = Subject::of(head, &index, driver)
            .filter(|subject| subject.concerns(&head.kind.version, &index) || may_be_record(subject))
            .filter(|subject| stage == Stage::Validate || subject.aspect == Aspect::Object);
        let subject = subject.ok_or(Reason::NotDeclared)?;
        let own = self.setup.own_namespace.as_deref();
        if own.is_some() && subject.object.namespace.as_deref() == own {
            return Err(Reason::OwnNamespace);
        }
        Ok(subject)
    }

    /// The policy for a subject of which only the head is known.
    fn policy(&self, subject: &Subject, head: &Head<'_>) -> Arc<Policy> {
        self.policy_in(subject, subject.version_of(head))
    }

    fn policy_in(&self, subject: &Subject, version: Option<&str>) -> Arc<Policy> {
        let (resolver, index) = (&self.setup.resolver, self.setup.source.index().read());
        match (&subject.aspect, records::names(&subject.object)) {
            (Aspect::Record, Some((stored, _))) => resolver.of(&index.release_stored_as(stored)),
            _ => governing(resolver, &subject.object, &certain(&subject.object, version, &index)),
        }
    }

    /// Judges a review; a large one is judged apart from the threads that answer. One that takes long waits for its turn:
    /// the mode decides if it waits in vain for others of its own user or namespace, and else it passes.
    async fn judged(&self, whole: Whole<'_>) -> Result<(Response<review::Body>, Verdict), Unjudged> {
        let Whole { bytes, head, subject, stage, deadline } = &whole;
        if subject.aspect == Aspect::Record {
            return self.judged_now(whole).await;
        }
        let weight = {
            let index = self.setup.source.index().read();
            declared_weight(subject, index.claims(&subject.object))
        };
        if !takes_long(bytes.len(), weight) {
            return match bytes.len() > LARGE {
                true => aside(self.judged_now(whole)).await,
                false => self.judged_now(whole).await,
            };
        }
        let namespace = subject.object.namespace.as_deref().unwrap_or_default();
        let mut turn = self.judging.share(None, namespace, &review::author(bytes).user);
        // The remaining time is for its judgement.
        let until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
        if let Err(lack) = turn.grow(1, until).await {
            if *stage == Stage::Mutate {
                return Ok((Answer::allow().respond(&head.uid), Verdict::allow(Reason::Busy)));
            }
            // Others may have forged claims of which it only seems to take long. They must not make an edit pass.
            let index = self.setup.source.index();
            let counting = certain(&subject.object, subject.version_of(head), &index.read());
            if lack == Lack::Others && !takes_long(bytes.len(), declared_weight(subject, &counting)) {
                return aside(self.judged_now(whole)).await;
            }
            let policy = self.policy(subject, head);
            let verdict = match lack {
                Lack::Own => Verdict::by_mode(&policy, Reason::Busy, None),
                Lack::Others => Verdict::unjudged(&policy, Reason::Busy),
            };
            self.keep_unread(&verdict, subject, head, bytes);
            return Ok((put(&verdict, &subject.no_room()).respond(&head.uid), verdict));
        }
        aside(self.judged_now(whole)).await
    }

    async fn judged_now(&self, whole: Whole<'_>) -> Result<(Response<review::Body>, Verdict), Unjudged> {
        let Whole { bytes, subject, stage, deadline, .. } = whole;
        let request = review::Request::parse(bytes).map_err(Unjudged::Malformed)?;
        let (uid, resource) = (request.head.uid.clone(), request.head.resource.clone());
        let mut case = Case::of(subject, request, self.setup.record_driver);
        if case.is_record() {
            match self.held(&case, bytes.clone(), deadline).await {
                Some(held) => case.hold(held),
                None => {
                    let who = (case.labelled(), &case.actor);
                    let (verdict, message) =
                        self.judge_unread_record(&case.subject, case.operation, who, Reason::Late);
                    let response = put(&verdict, &message).respond(&uid);
                    if !case.dry_run {
                        self.keep(&verdict, None, case, uid.into_owned());
                    }
                    return Ok((response, verdict));
                }
            }
        }
        let rules = Rules { resolver: &self.setup.resolver, own_account: self.setup.own_account.as_deref() };
        let looker = Looker { source: &self.setup.source, rules: &rules, deadline };
        let asked = self.asked(&case, &looker).await;
        if let Asked::Granted(granted) = &asked {
            case.granted = Some(Arc::clone(&granted.allowance));
        }
        if stage == Stage::Mutate {
            let first = looker.judged(&case, Evidence::None);
            if !mutate::concerns(&case, &first) {
                let verdict = Verdict::allow(first.verdict.reason);
                return Ok((Answer::allow().respond(&uid), verdict));
            }
        }
        let (mut judgement, case) = looker.judge(case).await?;
        let values = suggest::values(&looker, &case, &judgement).await;
        judgement.message.suggest(&values);
        self.rights.tell_exceptions(&looker, &case, &mut judgement).await;
        self.rights.hide_values(&looker, &case, &resource, &mut judgement).await;
        let answer = match stage {
            Stage::Mutate if mutate::concerns(&case, &judgement) => {
                asked.known()?;
                mutate::answer(&case, &mut judgement, rules.resolver, &values)
            }
            Stage::Mutate => {
                judgement.verdict = Verdict::allow(judgement.verdict.reason);
                Answer::allow()
            }
            Stage::Validate => {
                let mut warnings = request::settle(asked, &case, &mut judgement, &looker).await?;
                if relabel::concerns(&case) {
                    let (policies, index) = (self.setup.resolver.policies(), self.setup.source.index());
                    warnings.extend(relabel::warning(&case, &policies, &index.read()));
                }
                mutate::refuse(&mut judgement.verdict);
                let answer = says(&judgement.verdict, &judgement.message);
                warnings.into_iter().fold(answer, Answer::warn)
            }
        };
        let response = annotated(answer, &judgement.verdict).respond(&uid);
        self.record(&judgement, case, uid.into_owned());
        Ok((response, judgement.verdict))
    }

    /// The request of the edit by annotations. Kubemoor itself requests nothing.
    async fn asked(&self, case: &Case<'_>, looker: &Looker<'_>) -> Asked {
        match self.setup.own_account.as_deref() {
            Some(own) if own == case.actor.user => Asked::Nothing,
            _ => request::answer(case, looker).await,
        }
    }

    /// Decodes records apart from the threads that answer, a few at a time; `None` if that takes
    /// longer than until `deadline`.
    async fn held(&self, case: &Case<'_>, body: Bytes, deadline: Instant) -> Option<Held> {
        let namespace = case.subject.object.namespace.as_deref().unwrap_or_default();
        // By namespace alone: a user such as Flux's writes the records of many.
        let mut turn = self.decoding.share(None, namespace, namespace);
        turn.grow(1, deadline).await.ok()?;
        let decoding = tokio::task::spawn_blocking(move || {
            // Held until decoding ends, even if its result is no longer needed.
            let _turn = turn;
            Held::read(&body)
        });
        Some(timeout_at(deadline, decoding).await.ok()?.unwrap_or_default())
    }
}

/// About how much these claims declare of the subject, in bytes.
fn declared_weight<'r>(subject: &Subject, claims: impl IntoIterator<Item = &'r Arc<Release>>) -> usize {
    let declared = claims.into_iter().filter_map(|claim| claim.objects.get(&subject.object));
    declared.flat_map(Declarations::all).map(|declared| declared.weight()).sum()
}

/// Whether judging an edit of `sent` bytes may take long, of whose object manifests declare about `declared` bytes. What
/// differs in declared fields is no more than either; what else is sent is only read over, which takes little.
fn takes_long(sent: usize, declared: usize) -> bool {
    sent.min(declared) > LARGE || declared > HEAVY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_does_not_make_an_edit_wait_for_a_turn() {
        for (sent, declared, expected) in [
            (1000, 1000, false),
            // Padded, of an object of which little is declared.
            (1_800_000, 1000, false),
            (1_800_000, 300_000, true),
            (100_000, 300_000, false),
            (1000, 5_000_000, true),
        ] {
            assert_eq!(takes_long(sent, declared), expected, "{sent} {declared}");
        }
    }
}
