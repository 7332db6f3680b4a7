//! `/validate` and `/mutate`: judges what the API server sends.
//!
//! Entry point: [`Validator::answer`]. Invariant: what no release declares
//! passes with a look at the review's head alone and without a call; no refusal
//! leaves before the records were looked at afresh. Knows HTTP and the order of
//! looks; the rules are [`crate::verdict`]'s.

mod keep;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::{Body, Bytes};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::case::{Aspect, Case, Subject, governing};
use super::held::Held;
use super::intake::{Intake, Received};
use super::look::{Looker, Truth, Unreached};
use super::mutate;
use super::registration::{MUTATE, VALIDATE};
use super::request::{self, Asked};
use super::review::{self, Answer, AuditKey, Head, ReviewError};
use crate::config::RecordDriver;
use crate::ledger::Ledger;
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

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum Unjudged {
    /// The body is no review.
    #[error(transparent)]
    Malformed(ReviewError),
    /// What a refusal rests on could not be looked at: `failurePolicy` decides.
    #[error(transparent)]
    Unreached(#[from] Unreached),
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
                    let uid = head.uid.clone();
                    match self.judged(bytes, head, subject, stage, submission.deadline).await {
                        Ok(judged) => judged,
                        Err(Unjudged::Malformed(error)) => {
                            self.setup.metrics.malformed();
                            return review::malformed(&error);
                        }
                        Err(Unjudged::Unreached(error)) => {
                            let took = arrived.elapsed();
                            self.setup.metrics.answered(webhook, Decision::Error, keep::UNREACHED, took);
                            tracing::warn!(review.uid = %uid, "a review could not be answered: {error}");
                            self.keep_unreached(bytes, &error);
                            return review::failed(&error.to_string());
                        }
                    }
                }
                // What cannot be set back is judged at the next stage.
                Received::TooLarge(_) | Received::Busy(_) if stage == Stage::Mutate => {
                    (Answer::allow().respond(&head.uid), Verdict::allow(Reason::TooLarge))
                }
                Received::TooLarge(front) => {
                    let verdict = Verdict::by_mode(&self.policy(&subject), Reason::TooLarge, None);
                    self.keep_unread(&verdict, &subject, &head, front);
                    (put(&verdict, subject.beyond_judgement()).respond(&head.uid), verdict)
                }
                Received::Busy(front) => {
                    let verdict = Verdict::by_mode(&self.policy(&subject), Reason::Busy, None);
                    self.keep_unread(&verdict, &subject, &head, front);
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
            (Aspect::Record, Some((stored, _))) => {
                book.of(&self.setup.truth.index().read().release_stored_as(stored))
            }
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
    ) -> Result<(Response<review::Body>, Verdict), Unjudged> {
        let request = review::Request::behind(head, bytes).map_err(Unjudged::Malformed)?;
        let (uid, version) = (request.head.uid.clone(), request.head.kind.version.clone());
        let mut case = Case::of(subject, request, self.setup.record_driver);
        if case.subject.aspect == Aspect::Record {
            match tokio::time::timeout_at(deadline, self.held(bytes.clone())).await {
                Ok(held) => case.hold(held),
                // What takes that long is content, and must not buy an error.
                Err(_) => {
                    let verdict = Verdict::by_mode(&self.policy(&case.subject), Reason::TooLarge, None);
                    let message = case.subject.beyond_judgement();
                    let response = put(&verdict, message).respond(&uid);
                    if !case.dry_run {
                        self.keep(&verdict, case, uid.into_owned());
                    }
                    return Ok((response, verdict));
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
        let (mut judgement, case) = looker.judge(case).await?;
        let answer = match stage {
            Stage::Mutate if mutate::concerns(&case, &judgement, &version) => {
                asked.known()?;
                mutate::answer(&case, &mut judgement, rules.book)
            }
            Stage::Mutate => {
                judgement.verdict = Verdict::allow(judgement.verdict.reason);
                Answer::allow()
            }
            Stage::Validate => {
                let warnings = request::settle(asked, &case, &mut judgement, &looker).await?;
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
