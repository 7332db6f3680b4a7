//! One review, prepared for judgement: its subject, and the objects, as far as the declarations in
//! force need them.
//!
//! Entry points: [`Subject::of`] from a review's head, [`Case::of`] from a whole review,
//! [`Case::judge`]. Invariant: judgement is repeated when the index changes, so a case keeps the
//! review's text and never an answer of the index. Must not do I/O.

mod claims;
mod objects;
mod record;

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;

use super::claims::{governing, owner_of};
use super::held::Held;
use super::review::{Head, Request};
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_declare::outline::Excerpt;
use kubemoor_declare::path::Path;
use kubemoor_helm::index::Index;
use kubemoor_helm::record::parse_record_name;
use kubemoor_helm::release::Release;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_policy::settled::Settled;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::Webhook;
use kubemoor_verdict::circumstances::Circumstances;
use kubemoor_verdict::claims::has_say;
use kubemoor_verdict::dependants::{self, Dependant, Taken};
use kubemoor_verdict::edit::{Edit, Evidence, Outcome, Owner, Reason, Rules, Verdict};
use kubemoor_verdict::facts::Facts;
use kubemoor_verdict::judge::judge_with_facts;
use kubemoor_verdict::message::{self, Context, Message};

/// The subject of a review.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The object; for a subresource, its parent. It has no name for the items of a
    /// `deletecollection` until the old object is read.
    pub object: ObjectId,
    /// The question about the object.
    pub aspect: Aspect,
}

/// The question about an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Aspect {
    /// Whether it may be edited.
    Object,
    /// Whether it may be scaled; with the path of the replicas.
    Scale(Path),
    /// Whether a record of Helm's stays true.
    Record,
    /// Whether the objects that are deleted with it may be deleted.
    Dependants(Taken),
}

/// One review.
pub struct Case<'a> {
    /// The subject.
    pub subject: Subject,
    /// The operation.
    pub operation: Operation,
    /// The user who makes the request.
    pub actor: Actor,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The version in which the objects are sent.
    pub(super) version: Cow<'a, str>,
    field_manager: Cow<'a, str>,
    old: Option<Excerpt<'a>>,
    new: Option<Excerpt<'a>>,
    /// The allowance that the edit requests and may have.
    pub(super) granted: Option<Arc<Allowance>>,
    /// The owner of an object whose metadata is not sent, as far as it is known.
    pub owner: Owner,
    /// The releases that the labels of a Secret or ConfigMap name before and after, where they mark it as a record:
    /// Helm reads it as one, whatever its name.
    labelled: Vec<String>,
    /// The records that the objects hold, where the subject is one.
    held: Option<Held>,
}

/// The inputs of a judgement at one moment.
#[derive(Clone, Copy)]
pub struct Basis<'a> {
    /// The releases.
    pub index: &'a parking_lot::RwLock<Index>,
    /// Other knowledge about the object.
    pub circumstances: &'a Circumstances,
    /// The policies.
    pub rules: &'a Rules<'a>,
    /// The arbiter's answer.
    pub evidence: Evidence<'a>,
    /// The time.
    pub now: Timestamp,
}

/// A verdict with its message, and the releases on whose records it depends.
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict in words.
    pub message: Message,
    /// The releases whose records must be read before a denial is sent, in order.
    pub rests_on: Vec<ReleaseId>,
    /// Another release whose records may be read: it decides nothing yet.
    pub named: Option<ReleaseId>,
    /// The claims that count, the owner's first.
    pub claims: Vec<Arc<Release>>,
    /// The facts of the edit, by which other policies can judge it.
    pub facts: Option<Facts>,
    /// The uid of the present object; empty before it exists.
    pub uid: String,
    /// Values of the object that dry runs have settled.
    pub settled: Option<Arc<Settled>>,
    /// The reason why the request by annotations is denied; `None` if it is not.
    pub request_refused: Option<String>,
}

impl Subject {
    /// The subject in a review's head. `None` if such a subject is never judged.
    pub fn of(head: &Head<'_>, index: &Index, driver: RecordDriver) -> Option<Self> {
        let operation = head.operation?;
        match head.subresource.as_deref() {
            None => {}
            Some("scale") => {
                let (kind, scale) = index.kind_of_resource(&head.resource.group, &head.resource.resource)?;
                let object = head.object_of(&head.resource.group, kind);
                return Some(Self { object, aspect: Aspect::Scale(scale?.clone()) });
            }
            // By these, labels and annotations of some kinds can be changed.
            Some("status" | "finalize" | "approval") => {}
            Some(_) => return None,
        }
        let object = head.object();
        let aspect = if is_record(&object, driver) {
            Aspect::Record
        } else {
            match dependants::taken(&object).filter(|_| operation == Operation::Delete) {
                Some(taken) => Aspect::Dependants(taken),
                None => Aspect::Object,
            }
        };
        Some(Self { object, aspect })
    }

    /// Whether a review of `version` about this subject can be denied: all other requests pass
    /// without a look at the objects.
    pub fn concerns(&self, version: &str, index: &Index) -> bool {
        let claims = || index.claims(&self.object);
        match self.aspect {
            Aspect::Record | Aspect::Dependants(_) => true,
            Aspect::Scale(_) => !claims().is_empty(),
            Aspect::Object => {
                let speaks = |claim: &Arc<Release>| has_say(claim, &self.object, Some(version));
                self.object.name.is_empty()
                    // A new owner would have the garbage collector delete what depends on the object.
                    || dependants::taken(&self.object).is_some()
                    || claims().into_iter().any(speaks)
            }
        }
    }

    /// Whether the labels of its object may make it a record: Helm finds the records of a release by them.
    pub(super) fn may_be_labelled(&self, driver: RecordDriver) -> bool {
        self.aspect == Aspect::Object && holds_records(&self.object, driver)
    }

    /// The version of a review with this head, where it matters: a Scale is the same for all
    /// versions of a kind, and so is the effect of a deletion on other objects.
    pub(super) fn version_of<'h>(&self, head: &'h Head<'_>) -> Option<&'h str> {
        (self.aspect == Aspect::Object).then_some(&*head.kind.version)
    }

    /// The message about an edit that is too large or too deeply nested to be judged.
    pub fn beyond_judgement(&self) -> Message {
        message::of_beyond_judgement(&self.object, self.aspect == Aspect::Record)
    }

    /// The message about an edit for which there was no room.
    pub fn no_room(&self) -> Message {
        message::of_no_room(&self.object, self.aspect == Aspect::Record)
    }

    /// The webhook that asks this.
    pub fn webhook(&self) -> Webhook {
        match self.aspect {
            Aspect::Object => Webhook::Edits,
            Aspect::Scale(_) => Webhook::Scale,
            Aspect::Record => Webhook::Records,
            Aspect::Dependants(_) => Webhook::Deletes,
        }
    }
}

impl<'a> Case<'a> {
    /// Creates a case from a whole review.
    pub fn of(subject: Subject, request: Request<'a>, driver: RecordDriver) -> Self {
        let mut case = Self {
            subject,
            operation: request.head.operation.unwrap_or(Operation::Update),
            actor: request.actor,
            dry_run: request.dry_run,
            version: request.head.kind.version,
            field_manager: request.field_manager.unwrap_or_default(),
            old: request.old_object,
            new: request.object,
            granted: None,
            owner: Owner::Unknown,
            labelled: Vec::new(),
            held: None,
        };
        if case.subject.object.name.is_empty()
            && let Some(name) = [&case.old, &case.new].into_iter().flatten().find_map(name)
        {
            case.subject.object.name = name.into();
            if is_record(&case.subject.object, driver) {
                case.subject.aspect = Aspect::Record;
            }
        }
        if holds_records(&case.subject.object, driver) {
            case.labelled = [&case.old, &case.new].into_iter().flatten().filter_map(labelled_for).collect();
        }
        case
    }

    /// Whether Helm reads the object as a record, by its name or by its labels.
    pub(super) fn is_record(&self) -> bool {
        self.subject.aspect == Aspect::Record || !self.labelled.is_empty()
    }

    /// The releases that the object's labels name, where they mark it as a record.
    pub(super) fn labelled(&self) -> &[String] {
        &self.labelled
    }

    /// Stores the records that [`Held::read`] found in this review.
    pub fn hold(&mut self, held: Held) {
        self.held = Some(held);
    }

    /// The texts of the object before and after.
    pub(super) fn texts(&self) -> (Option<&Excerpt<'a>>, Option<&Excerpt<'a>>) {
        (self.old.as_ref(), self.new.as_ref())
    }

    /// The field manager that the request names; empty if it names none.
    pub(super) fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Judges the review by the present index. No content of an object leads to an error.
    pub fn judge(&self, basis: Basis<'_>) -> Judgement {
        if self.subject.aspect == Aspect::Record {
            return self.judge_record(basis.index, basis.rules);
        }
        let judgement = self.judge_by(self.claims(basis.index, basis.rules.resolver), basis);
        if self.labelled.is_empty() {
            return judgement;
        }
        // A release may declare it as well, and neither excuses what the other refuses.
        let record = self.judge_record(basis.index, basis.rules);
        let is_stricter = record.verdict.outcome > judgement.verdict.outcome;
        if is_stricter || judgement.verdict.reason == Reason::NotDeclared { record } else { judgement }
    }

    /// Judges the review by these claims.
    pub(super) fn judge_by(&self, claims: Vec<Arc<Release>>, basis: Basis<'_>) -> Judgement {
        let Basis { index, circumstances, rules, evidence, now } = basis;
        let taken = self.taken();
        let dependants =
            taken.as_ref().map(|taken| dependants::of(taken, &index.read(), rules, now)).unwrap_or_default();
        if claims.is_empty() && dependants.is_empty() {
            return Judgement::of(
                Verdict::allow(Reason::NotDeclared),
                Message::default(),
                Vec::new(),
                claims,
            );
        }
        let (old, new) = match self.objects(&claims, rules) {
            Ok(objects) => objects,
            Err(_) => {
                let policy = governing(rules.resolver, &self.subject.object, &claims);
                let verdict = Verdict::by_mode(&policy, Reason::TooDeep, None);
                return Judgement::of(verdict, self.subject.beyond_judgement(), Vec::new(), claims);
            }
        };
        let edit = Edit {
            operation: self.operation,
            actor: &self.actor,
            object: &self.subject.object,
            old: old.as_ref(),
            new: new.as_ref(),
            version: self.version(),
            scale: matches!(self.subject.aspect, Aspect::Scale(_)),
            owner: owner_of(&claims, &self.subject.object),
            dry_run: self.dry_run,
            field_manager: &self.field_manager,
            circumstances,
        };
        if !dependants.is_empty() || matches!(self.subject.aspect, Aspect::Dependants(_)) {
            let verdict = dependants::judge(&edit, &claims, &dependants, rules, now);
            return self.of_dependants(verdict, &dependants, claims, rules);
        }
        let (verdict, facts) = judge_with_facts(&edit, &claims, rules, evidence, now);
        let message = self.message(&verdict, &claims, rules);
        let looks = verdict.outcome != Outcome::Allow;
        let rests_on = claims.iter().filter(|_| looks).map(|claim| claim.id.clone()).collect();
        let named = looks.then(|| self.newly_named(&claims)).flatten();
        let uid = old.as_ref().and_then(|old| old.get("metadata")?.get("uid")?.as_str()).unwrap_or_default();
        let (uid, settled) = (uid.to_owned(), circumstances.settled.clone());
        let facts = facts.map(Facts::Edit);
        Judgement { uid, named, facts, settled, ..Judgement::of(verdict, message, rests_on, claims) }
    }

    /// The objects that are deleted with this one by the request, or by the garbage collector after it.
    fn taken(&self) -> Option<Taken> {
        match &self.subject.aspect {
            Aspect::Dependants(taken) => Some(taken.clone()),
            Aspect::Object if self.operation == Operation::Update => {
                dependants::taken(&self.subject.object).filter(|_| self.adds_owner())
            }
            _ => None,
        }
    }

    /// Calls `say` with the sources of a verdict's message.
    pub(super) fn in_context(
        &self,
        verdict: &Verdict,
        claims: &[Arc<Release>],
        resolver: &PolicyResolver,
        say: impl FnOnce(&Context<'_>) -> Message,
    ) -> Message {
        let object = &self.subject.object;
        let Some(grounds) = verdict.grounds.as_ref().filter(|_| verdict.outcome != Outcome::Allow) else {
            return Message::default();
        };
        let release = claims.iter().map(|claim| &**claim).find(|claim| claim.id == grounds.release);
        let declared = release.and_then(|release| release.declared(object));
        let policy = resolver.of(&grounds.release);
        let (policy, operation) = (Some(&*policy), self.operation);
        let live = [self.old.as_ref(), self.new.as_ref()];
        say(&Context { object, operation, policy, declared, release, live })
    }

    /// The message about a deletion that also deletes other objects.
    fn of_dependants(
        &self,
        verdict: Verdict,
        dependants: &[Dependant],
        claims: Vec<Arc<Release>>,
        rules: &Rules<'_>,
    ) -> Judgement {
        let message = match verdict.reason {
            Reason::Dependants => message::of_dependants(&self.subject.object, self.operation, dependants),
            _ => self.message(&verdict, &claims, rules),
        };
        let rests_on = verdict.grounds.iter().map(|grounds| grounds.release.clone());
        let rests_on = rests_on.chain(claims.iter().map(|claim| claim.id.clone())).collect();
        Judgement::of(verdict, message, rests_on, claims)
    }

    /// The message about an edit of a declared object, with the flaws of the annotations by which
    /// the manifest would allow it.
    fn message(&self, verdict: &Verdict, claims: &[Arc<Release>], rules: &Rules<'_>) -> Message {
        self.in_context(verdict, claims, rules.resolver, |context| {
            let mut message = context.of_edit(verdict);
            if let (Some(policy), Some(declared)) = (context.policy, context.declared) {
                message.add_flaws(&policy.rules(context.object, declared).flaws);
            }
            message
        })
    }
}

impl Judgement {
    fn of(verdict: Verdict, message: Message, rests_on: Vec<ReleaseId>, claims: Vec<Arc<Release>>) -> Self {
        let (uid, request_refused) = (String::new(), None);
        let (named, facts, settled) = (None, None, None);
        Self { verdict, message, rests_on, named, claims, facts, uid, settled, request_refused }
    }
}

fn is_record(object: &ObjectId, driver: RecordDriver) -> bool {
    holds_records(object, driver) && parse_record_name(&object.name).is_some()
}

/// Whether the object is of the kind that holds Helm's records.
fn holds_records(object: &ObjectId, driver: RecordDriver) -> bool {
    let kind = match driver {
        RecordDriver::Secret => "Secret",
        RecordDriver::Configmap => "ConfigMap",
    };
    object.group.is_empty() && object.kind == kind
}

/// The release for whose records Helm finds the object by its labels.
fn labelled_for(object: &Excerpt<'_>) -> Option<String> {
    let [owner, name] = object.texts(&["metadata", "labels"], ["owner", "name"]);
    name.filter(|_| owner.as_deref() == Some("helm"))
}

fn name(text: &Excerpt<'_>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        name: String,
    }
    serde_json::from_str::<Named>(text.get()).ok().map(|named| named.metadata.name)
}
