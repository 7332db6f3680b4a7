//! `/validate` and `/mutate`: judges what the API server sends.
//!
//! Entry point: [`Validator::answer`]. Invariant: what no release declares
//! passes with a look at the review's head alone and without a call; no refusal
//! leaves before the records were looked at afresh. Knows HTTP and the order of
//! looks; the rules are [`crate::verdict`]'s.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::{Body, Bytes};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::case::{Aspect, Case, Judgement, Subject, governing};
use super::held::Held;
use super::intake::{Intake, Received};
use super::look::{Looker, Truth, Unreached};
use super::mutate;
use super::registration::{MUTATE, VALIDATE};
use super::request::{self, Asked};
use super::review::{self, Answer, AuditKey, Head};
use crate::config::RecordDriver;
use crate::ledger::Ledger;
use crate::ledger::row::Row;
use crate::metrics::{AdmissionMetrics, Decision, Webhook};
use crate::policy::Policy;
use crate::policy::book::Book;
use crate::verdict::edit::{Evidence, Outcome, Reason, Rules, Verdict};
use crate::verdict::records;

/// Reviews of records that are decoded at one time: each may take as much
/// memory as two records may have.
const DECODED_AT_ONCE: usize = 2;

/// Room for most fields' paths, in bytes.
const ROOM: usize = 128;

/// What the API server asks of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Whether anything is to be set back first.
    Mutate,
    /// Whether it passes.
    Validate,
}

/// What the webhook is set up with.
pub struct Setup {
    /// Where releases are known from.
    pub truth: Truth,
    /// The policies in force.
    pub book: Arc<Book>,
    /// The form of Helm's records.
    pub record_driver: RecordDriver,
    /// The user name under which Kubemoor itself writes, where it is known.
    pub own_account: Option<String>,
    /// The namespace that Kubemoor runs in, whose objects only the loop guards.
    pub own_namespace: Option<String>,
    /// Where verdicts are counted.
    pub metrics: AdmissionMetrics,
    /// Where verdicts are kept.
    pub ledger: Ledger,
}

/// Answers reviews. Cheap to clone.
#[derive(Clone)]
pub struct Validator {
    intake: Intake,
    setup: Arc<Setup>,
    decoding: Arc<Semaphore>,
}

impl Validator {
    /// A validator for this setup.
    pub fn new(intake: Intake, setup: Setup) -> Self {
        Self { intake, setup: Arc::new(setup), decoding: Arc::new(Semaphore::new(DECODED_AT_ONCE)) }
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<review::Body>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let stage = match request.uri().path() {
            MUTATE => Stage::Mutate,
            VALIDATE => Stage::Validate,
            _ => {
                return review::plain(StatusCode::NOT_FOUND, "reviews are answered at /validate and /mutate");
            }
        };
        let submission = match self.intake.receive(request).await {
            Ok(submission) => submission,
            Err(error) => {
                self.setup.metrics.malformed();
                return error.respond();
            }
        };
        let arrived = Instant::now();
        let head = match Head::parse(submission.body.bytes()) {
            Ok(head) => head,
            Err(error) => {
                self.setup.metrics.malformed();
                return review::malformed(&error);
            }
        };
        let subject = self.subject(&head, stage);
        let webhook = match stage {
            Stage::Mutate => Webhook::Reverts,
            Stage::Validate => subject.as_ref().map_or(Webhook::Edits, Subject::webhook),
        };
        let (response, verdict) = match subject {
            Err(reason) => (Answer::allow().respond(&head.uid), Verdict::allow(reason)),
            Ok(subject) => match &submission.body {
                Received::Whole(bytes) => {
                    match self.judged(bytes, head, subject, stage, submission.deadline).await {
                        Ok(judged) => judged,
                        Err(response) => {
                            if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
                                let took = arrived.elapsed();
                                self.setup.metrics.answered(webhook, Decision::Error, "unreached", took);
                            }
                            return response;
                        }
                    }
                }
                // What cannot be set back is judged at the next stage.
                Received::TooLarge(_) | Received::Busy(_) if stage == Stage::Mutate => {
                    (Answer::allow().respond(&head.uid), Verdict::allow(Reason::TooLarge))
                }
                Received::TooLarge(_) => {
                    let verdict = Verdict::by_mode(&self.policy(&subject), Reason::TooLarge, None);
                    (put(&verdict, subject.beyond_judgement()).respond(&head.uid), verdict)
                }
                Received::Busy(_) => {
                    let verdict = Verdict::by_mode(&self.policy(&subject), Reason::Busy, None);
                    (put(&verdict, subject.no_room()).respond(&head.uid), verdict)
                }
            },
        };
        self.setup.metrics.answered(
            webhook,
            decision(verdict.outcome),
            verdict.reason.as_str(),
            arrived.elapsed(),
        );
        response
    }

    /// What the review is about, or why it passes unread.
    fn subject(&self, head: &Head<'_>, stage: Stage) -> Result<Subject, Reason> {
        let index = self.setup.truth.index().read();
        let subject = Subject::of(head, &index, self.setup.record_driver)
            .filter(|subject| subject.concerns(&index))
            .filter(|subject| stage == Stage::Validate || subject.aspect == Aspect::Object);
        let subject = subject.ok_or(Reason::NotDeclared)?;
        let own = self.setup.own_namespace.as_deref();
        if own.is_some() && subject.object.namespace.as_deref() == own {
            return Err(Reason::OwnNamespace);
        }
        Ok(subject)
    }

    /// What holds for a subject of which nothing more is known.
    fn policy(&self, subject: &Subject) -> Arc<Policy> {
        let book = &self.setup.book;
        match (&subject.aspect, records::names(&subject.object)) {
            (Aspect::Record, Some((release, _))) => book.of(&release),
            _ => governing(book, self.setup.truth.index().read().claims(&subject.object)),
        }
    }

    async fn judged(
        &self,
        bytes: &Bytes,
        head: Head<'_>,
        subject: Subject,
        stage: Stage,
        deadline: Instant,
    ) -> Result<(Response<review::Body>, Verdict), Response<review::Body>> {
        let request = review::Request::behind(head, bytes).map_err(|error| {
            self.setup.metrics.malformed();
            review::malformed(&error)
        })?;
        let (uid, version) = (request.head.uid.clone(), request.head.kind.version.clone());
        let mut case = Case::of(subject, request, self.setup.record_driver);
        if case.subject.aspect == Aspect::Record {
            match tokio::time::timeout_at(deadline, self.held(bytes.clone())).await {
                Ok(held) => case.hold(held),
                // What takes that long is content, and must not buy an error.
                Err(_) => {
                    let verdict = Verdict::by_mode(&self.policy(&case.subject), Reason::TooLarge, None);
                    let message = case.subject.beyond_judgement();
                    return Ok((put(&verdict, message).respond(&uid), verdict));
                }
            }
        }
        let rules = Rules { book: &self.setup.book, own_account: self.setup.own_account.as_deref() };
        let looker = Looker { truth: &self.setup.truth, rules: &rules, deadline };
        let asked = self.asked(&case, &looker).await;
        if let Asked::Granted(granted) = &asked {
            case.granted = Some(Arc::clone(&granted.allowance));
        }
        if stage == Stage::Mutate {
            let first = looker.judged(&case, Evidence::None);
            if !mutate::concerns(&case, &first, &version) {
                let verdict = Verdict::allow(first.verdict.reason);
                return Ok((Answer::allow().respond(&uid), verdict));
            }
        }
        let (mut judgement, case) = match looker.judge(case).await {
            Ok(judged) => judged,
            Err(error) => return Err(unreached(&uid, &error)),
        };
        let answer = match stage {
            Stage::Mutate if mutate::concerns(&case, &judgement, &version) => {
                if let Err(error) = asked.known() {
                    return Err(unreached(&uid, &error));
                }
                mutate::answer(&case, &mut judgement, rules.book)
            }
            Stage::Mutate => {
                judgement.verdict = Verdict::allow(judgement.verdict.reason);
                Answer::allow()
            }
            Stage::Validate => {
                let warnings = match request::settle(asked, &case, &mut judgement, &looker).await {
                    Ok(warnings) => warnings,
                    Err(error) => return Err(unreached(&uid, &error)),
                };
                mutate::refuse(&mut judgement.verdict);
                let answer = says(&judgement.verdict, &judgement.message);
                warnings.into_iter().fold(answer, Answer::warn)
            }
        };
        let response = annotated(answer, &judgement.verdict).respond(&uid);
        self.record(&judgement, case, uid.into_owned());
        Ok((response, judgement.verdict))
    }

    /// What the edit asks for by annotations. Kubemoor itself asks for nothing.
    async fn asked(&self, case: &Case<'_>, looker: &Looker<'_>) -> Asked {
        match self.setup.own_account.as_deref() {
            Some(own) if own == case.actor.user => Asked::Nothing,
            _ => request::answer(case, looker).await,
        }
    }

    /// Decodes records apart from the threads that answer, few at a time.
    async fn held(&self, body: Bytes) -> Held {
        let _room = self.decoding.acquire().await;
        let decoding = tokio::task::spawn_blocking(move || Held::read(&body));
        decoding.await.unwrap_or_default()
    }

    /// Records what was not plainly allowed. A dry run leaves no trace.
    fn record(&self, judgement: &Judgement, case: Case<'_>, uid: String) {
        let Judgement { verdict, message, .. } = judgement;
        if case.dry_run {
            return;
        }
        if verdict.outcome == Outcome::Allow {
            return self.keep(verdict, case, uid);
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
            "{message}"
        );
        self.keep(verdict, case, uid);
    }

    /// Keeps what was not plainly allowed, and every edit of a record: who
    /// writes Helm's records is what releases hang on.
    fn keep(&self, verdict: &Verdict, case: Case<'_>, uid: String) {
        let of_record = verdict.reason == Reason::RecordIntact;
        if verdict.outcome == Outcome::Allow && !of_record {
            return;
        }
        let (object, operation) = (case.subject.object, Some(case.operation));
        let mut row = Row::verdict(now(), verdict, object, operation, case.actor, uid);
        if row.release.is_none() && case.subject.aspect == Aspect::Record {
            row.release = records::names(&row.object);
        }
        self.setup.ledger.record(row);
    }
}

/// The answer that says `verdict`, for the API server's audit log as well.
fn put(verdict: &Verdict, message: String) -> Answer {
    annotated(says(verdict, &message), verdict)
}

fn says(verdict: &Verdict, message: &str) -> Answer {
    match verdict.outcome {
        Outcome::Allow | Outcome::Record => Answer::allow(),
        Outcome::Warn => Answer::allow().warn(message),
        // Whoever was to set it back has been asked already.
        Outcome::Revert | Outcome::Deny => Answer::deny(message),
    }
}

fn annotated(answer: Answer, verdict: &Verdict) -> Answer {
    if verdict.outcome == Outcome::Allow {
        return answer;
    }
    let answer = answer
        .annotate(AuditKey::Decision, verdict.outcome.as_str())
        .annotate(AuditKey::Reason, verdict.reason.as_str());
    let Some(grounds) = &verdict.grounds else { return answer };
    let mut fields = String::with_capacity(grounds.fields.len() * ROOM);
    for (index, field) in grounds.fields.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(fields, "{}{}", if index == 0 { "" } else { "," }, field.path);
    }
    answer
        .annotate(AuditKey::Release, grounds.release.to_string())
        .annotate(AuditKey::Revision, grounds.revision.to_string())
        .annotate(AuditKey::Fields, fields)
}

fn unreached(uid: &str, error: &Unreached) -> Response<review::Body> {
    tracing::warn!(review.uid = uid, "a review could not be answered: {error}");
    review::failed(&error.to_string())
}

fn decision(outcome: Outcome) -> Decision {
    match outcome {
        Outcome::Allow => Decision::Allow,
        Outcome::Record => Decision::Record,
        Outcome::Warn => Decision::Warn,
        Outcome::Revert => Decision::Revert,
        Outcome::Deny => Decision::Deny,
    }
}

/// How long a look may take when the deadline leaves more.
pub(super) const LOOK: Duration = Duration::from_secs(5);

pub(super) fn now() -> Timestamp {
    Timestamp::now()
}
