//! Writes the restored state of a changed object, in the way in which its release is applied, and
//! checks the result.
//!
//! Entry points: `Reconciler::send` begins, `sent` continues. Invariant: every write is bound to
//! the judged version of the object, and is made as Helm's own field manager. Must not decide
//! whether to write.

use std::sync::Arc;

use serde_json::Value;

use super::super::Reconciler;
use super::recreate::version_written;
use super::restore::{Judged, ROUNDS, fixed_fields, is_left};
use super::{Done, Next, Repair, Task};
use crate::blame::returned;
use crate::body::{self, Restoration};
use crate::drifts::Drift;
use crate::event::{Document, Failure, Fault, Outcome, Secret, Work, Write};
use crate::judge;
use crate::occurrence::{Fate, Occurrence};
use crate::report::DriftKind;
use crate::rollout::touches_template;
use kubemoor_declare::compare::Move;
use kubemoor_declare::digest::Digest;
use kubemoor_declare::document::prepare;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::Cause;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::state;
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::Pattern;
use kubemoor_verdict::drift::{self, Subject};
use kubemoor_verdict::edit::Evidence;
use kubemoor_verdict::ownership::{self, Operation, Owners, Replacement, abandons, set_beside};

/// A restoration that is being written.
pub(crate) struct Sending {
    judged: Judged,
    /// The fields that the API server refuses to set.
    fixed: Vec<Path>,
    /// What takes the place of declared fields and may not be removed.
    in_the_way: Vec<Replacement>,
    /// What the API server named when it refused the first write; removed by the second one.
    suspected: Vec<Move>,
    /// The message of the API server, if it refused the first write.
    refusal: Option<String>,
    /// The number of tries with fewer fields.
    tries: usize,
    attempts: u32,
    manager: String,
    stage: Stage,
}

/// The stage of the write that waits for an answer.
enum Stage {
    /// The manifest.
    Document,
    /// The patch that restores what was moved, and the document to apply afterwards.
    PutBack(Value),
    /// The apply; whether something was moved before it.
    Applied { moved: bool },
    /// The fields that the patch wrote are assigned to Helm's apply manager.
    Owned,
    /// The last write.
    Last,
    /// The manifest, to check whether the API server accepts it at all; with the result of the
    /// writes.
    Manifest(Result<Value, Failure>),
    /// The check whether the API server accepts it.
    Probe(Result<Value, Failure>),
}

impl Sending {
    pub(super) fn new(judged: Judged) -> Self {
        Self {
            judged,
            fixed: Vec::new(),
            in_the_way: Vec::new(),
            suspected: Vec::new(),
            refusal: None,
            tries: 0,
            attempts: 0,
            manager: String::new(),
            stage: Stage::Document,
        }
    }

    /// What takes the place of declared elements and fields: what has to be removed, and what may not be.
    fn replaced(&self, mask: &Mask) -> (Vec<Move>, Vec<Replacement>) {
        let Some(whole) = self.judged.seen.live.whole() else { return (Vec::new(), Vec::new()) };
        let fields = &self.judged.situation.declared.fields();
        let found = ownership::replacements(fields, &whole, &Owners::of(&whole), Some(&self.manager));
        let is_excused = |it: &Move| mask.covers(&it.live) || mask.covers(&it.declared);
        let is_open =
            |it: &Move| !it.is_of_field() || self.open().iter().any(|change| it.concerns(&change.path));
        let found = found.into_iter().filter(|it| is_open(&it.found));
        let (removed, left): (Vec<_>, Vec<_>) =
            found.partition(|it| it.is_removable && !is_excused(&it.found));
        (removed.into_iter().map(|it| it.found).collect(), left)
    }

    /// The same without what may not be removed, and with what is suspected.
    fn moved(&self, mask: &Mask) -> Vec<Move> {
        let mut moved = self.replaced(mask).0;
        moved.extend(self.suspected.iter().filter(|it| !mask.covers(&it.live)).cloned());
        moved
    }

    /// The undeclared fields beside the changed ones that an editor has set, and that the API server's refusal names:
    /// it does not say which field excludes which.
    fn named_by(&self, causes: &[Cause]) -> Vec<Move> {
        let Some(whole) = self.judged.seen.live.whole() else { return Vec::new() };
        let (fields, owners) = (self.judged.situation.declared.fields(), Owners::of(&whole));
        // The message repeats the refused value, with all its fields, before it says why.
        let why = |text: &str| text.rsplit(": ").next().unwrap_or_default().to_owned();
        let last = |field: &str| field.rsplit('.').next().unwrap_or_default().to_owned();
        let texts: Vec<_> = causes.iter().flat_map(|it| [last(&it.field), why(&it.message)]).collect();
        let words = || texts.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()));
        let is_named = |it: &Replacement| match it.found.live.0.last() {
            Some(Segment::Field(name)) => words().any(|word| word.eq_ignore_ascii_case(name)),
            _ => false,
        };
        let open = self.open();
        let beside =
            open.iter().flat_map(|it| set_beside(&fields, &whole, &owners, Some(&self.manager), &it.path));
        beside.filter(is_named).map(|it| it.found).collect()
    }

    /// Whether something that may not be removed is in the place of a changed field.
    fn is_excluded(&self, path: &Path) -> bool {
        self.in_the_way.iter().any(|it| it.found.is_of_field() && it.found.concerns(path))
    }

    /// The fields that the API server refuses to set.
    fn immutable(&self) -> Vec<Path> {
        self.fixed.iter().filter(|path| !self.is_excluded(path)).cloned().collect()
    }

    /// Why fields stay as they are.
    fn why(&self) -> String {
        let fixed = self.immutable();
        let ways = self.in_the_way.iter().filter(|it| it.found.is_of_field()).map(excluded);
        ways.chain((!fixed.is_empty()).then(|| fixed_fields(&fixed))).collect::<Vec<_>>().join("; ")
    }

    /// The changes that are to be undone.
    fn open(&self) -> Vec<FieldChange> {
        self.judged.changes.iter().filter(|change| !self.stays(change)).cloned().collect()
    }

    /// Whether a change stays: a doubt alone leads to no write.
    fn stays(&self, change: &FieldChange) -> bool {
        let is_doubt = change.agreement == Agreement::Doubt && self.judged.answer.is_none();
        is_doubt || self.fixed.contains(&change.path)
    }

    fn write(self: Box<Self>, task: &Task, write: Write, stage: Stage) -> Next {
        let version = Arc::clone(&self.judged.situation.declared.version);
        let work = Work::Write { object: task.object.clone(), version, write };
        Next::work(work, Repair::Send(Box::new(Self { stage, ..*self })))
    }

    fn merge(self: Box<Self>, task: &Task, patch: Value, stage: Stage) -> Next {
        let write = Write::Merge { patch: Secret(patch), manager: self.manager.clone() };
        self.write(task, write, stage)
    }
}

impl Reconciler {
    /// Begins the writes that revert the changes.
    pub(super) fn send(&mut self, task: &Task, mut sending: Sending) -> Next {
        sending.attempts = self.repairs.backoff.attempt(&task.object, self.now);
        let release = Arc::clone(&sending.judged.situation.release);
        sending.manager = self.manager(&release, release.state.apply_method);
        if let Some(live) = &sending.judged.seen.live.object {
            let mask = sending.judged.situation.exceptions(&task.object, self.now).mask(live);
            sending.in_the_way = sending.replaced(&mask).1;
        }
        let changes = || sending.judged.changes.iter();
        let left = changes().filter(|it| is_left(&task.object, it) || sending.is_excluded(&it.path));
        sending.fixed = left.map(|change| change.path.clone()).collect();
        if !sending.fixed.is_empty() && changes().all(|it| sending.is_excluded(&it.path)) {
            return self.fail(task, &sending.why());
        }
        self.send_open(task, Box::new(sending))
    }

    /// Continues after an answer.
    pub(super) fn sent(&mut self, task: &Task, mut sending: Sending, outcome: Outcome) -> Next {
        let stage = std::mem::replace(&mut sending.stage, Stage::Last);
        let sending = Box::new(sending);
        match (stage, outcome) {
            (Stage::Document, Outcome::Document(document)) => self.apply(task, sending, document),
            (Stage::Document, Outcome::Failed(failure)) => self.fail_with(task, &failure),
            (Stage::Manifest(result), Outcome::Document(document)) => {
                let document = document.object.map(|Secret(value)| value);
                let document =
                    document.and_then(|document| prepare(document, sending.judged.seen.api_version()));
                let Some(document) = document else { return self.conclude(task, *sending, result, None) };
                let version = Arc::clone(&sending.judged.situation.declared.version);
                let document = Secret(document);
                let work = Work::Probe { object: task.object.clone(), version, document };
                let stage = Stage::Probe(result);
                Next::work(work, Repair::Send(Box::new(Sending { stage, ..*sending })))
            }
            (Stage::Manifest(result), _) => self.conclude(task, *sending, result, None),
            (Stage::Probe(result), outcome) => {
                let is_invalid = |failure: &Failure| matches!(failure.fault, Fault::Invalid { .. });
                let outdated = outcome.written().err().filter(is_invalid).map(|_| {
                    let message = sending.refusal.as_deref().unwrap_or_default();
                    format!("the API server does not take what its manifest says any more: {message}")
                });
                self.conclude(task, *sending, result, outdated)
            }
            (stage, outcome) => match outcome.written() {
                Ok(now) => self.go_on_sending(task, sending, stage, now),
                Err(failure) => self.send_less(task, sending, failure),
            },
        }
    }

    /// Writes what is not fixed.
    fn send_open(&mut self, task: &Task, sending: Box<Sending>) -> Next {
        let Judged { situation, seen, answer, .. } = &sending.judged;
        if situation.release.state.apply_method == ApplyMethod::ServerSide {
            let revision = situation.release.state.revision;
            let work = Work::ReadDocument { revision, object: task.object.clone() };
            return Next::work(work, Repair::Send(Box::new(Sending { stage: Stage::Document, ..*sending })));
        }
        // What is written is what was weighed.
        if !self.is_in_force(task, situation) {
            let start = sending.judged.start.clone();
            return self.start_over(task, &start);
        }
        let Some(live) = &seen.live.object else { return self.conclude_nothing(task) };
        let mask = situation.exceptions(&task.object, self.now).mask(live);
        let moved = sending.moved(&mask);
        let (object, fields, changes) = (&task.object, &*situation.declared.fields(), &sending.open());
        let restoration = Restoration { object, fields, changes, moved: &moved };
        match restoration.merged(live, answer.canonical(), &mask) {
            Some(patch) => sending.merge(task, patch, Stage::Last),
            None => self.conclude_nothing(task),
        }
    }

    fn conclude_nothing(&mut self, task: &Task) -> Next {
        self.fail(task, "nothing can be written that would change it")
    }

    /// Continues after one of the writes.
    fn go_on_sending(&mut self, task: &Task, sending: Box<Sending>, stage: Stage, now: Value) -> Next {
        let is_over = matches!(stage, Stage::Last);
        if !is_over && !self.is_in_force(task, &sending.judged.situation) {
            // Helm is at work, or has been, since the write before.
            return self.start_over(task, &sending.judged.start);
        }
        match stage {
            Stage::PutBack(mut body) => {
                body::set_version(&mut body, &now);
                let write = Write::Apply { document: Secret(body), manager: sending.manager.clone() };
                sending.write(task, write, Stage::Applied { moved: true })
            }
            Stage::Applied { moved: true } => {
                let name = sending.manager.clone();
                let helm =
                    ownership::Manager { name, operation: Operation::Apply, subresource: String::new() };
                let Some(live) = &sending.judged.seen.live.object else {
                    return self.conclude_nothing(task);
                };
                let mask = sending.judged.situation.exceptions(&task.object, self.now).mask(live);
                let paths: Vec<Path> = sending.moved(&mask).into_iter().map(|it| it.declared).collect();
                match returned(&now, &helm, &paths) {
                    Some(patch) => sending.merge(task, patch, Stage::Owned),
                    None => self.unseal(task, sending, now),
                }
            }
            Stage::Applied { moved: false } | Stage::Owned => self.unseal(task, sending, now),
            _ => self.finish_sending(task, sending, Ok(now)),
        }
    }

    /// Removes fields that the manifest does not name, which no apply removes.
    fn unseal(&mut self, task: &Task, sending: Box<Sending>, now: Value) -> Next {
        match body::unsealed(&task.object, &sending.open(), &now) {
            Some(patch) => sending.merge(task, patch, Stage::Last),
            None => self.finish_sending(task, sending, Ok(now)),
        }
    }

    /// Applies the manifest, as far as it is not masked or fixed.
    fn apply(&mut self, task: &Task, sending: Box<Sending>, document: Document) -> Next {
        let Judged { situation, seen, start, .. } = &sending.judged;
        let Some(live) = &seen.live.object else { return self.conclude_nothing(task) };
        let Document { status, digest, object, .. } = document;
        let object = object.map(|Secret(value)| value);
        // The manifest of an earlier revision was not compared with the first seen one.
        let is_other =
            task.towards.is_some() && object.as_ref().map(Digest::of) != Some(situation.declared.digest);
        // What is written is what was weighed.
        let moved_on = !task.is_to_write(status) || digest != situation.release.state.digest || is_other;
        let is_in_force = self.is_in_force(task, situation);
        let document = object
            .and_then(|object| prepare(object, seen.api_version()))
            .filter(|_| !moved_on && is_in_force);
        let Some(document) = document else {
            let start = start.clone();
            return self.start_over(task, &start);
        };
        let mut mask = situation.exceptions(&task.object, self.now).mask(live);
        let moved = sending.moved(&mask);
        let staying = sending.judged.changes.iter().filter(|change| sending.stays(change));
        let excluded = sending.in_the_way.iter().map(|it| &it.found.declared);
        let left = staying.map(|change| &change.path).chain(&sending.fixed).chain(excluded);
        mask.0.extend(left.filter_map(|path| Pattern::parse(&path.to_string()).ok()));
        // Fields that Helm has applied and the record no longer holds were not seen to be removed.
        let abandons =
            |body: &Value| seen.live.whole().is_none_or(|whole| abandons(&whole, &sending.manager, body));
        let fields = situation.declared.fields();
        let body = body::applied((&document, &fields), live, &mask, abandons);
        if situation.ordered_by.is_none() && abandons(&body) {
            // This was no undone repair.
            self.repairs.backoff.forget(&task.object);
            return self.leave_unconfirmed(task, situation);
        }
        let changes = &sending.open();
        let restoration = Restoration { object: &task.object, fields: &fields, changes, moved: &moved };
        // What is only suspected goes with everything that the patch restores, or not at all.
        let canonical = sending.judged.answer.canonical();
        let room = match sending.suspected.is_empty() {
            true => restoration.making_room(live, canonical, &mask),
            false => restoration.merged(live, canonical, &mask),
        };
        match room {
            Some(patch) => sending.merge(task, patch, Stage::PutBack(body)),
            None => {
                let write = Write::Apply { document: Secret(body), manager: sending.manager.clone() };
                sending.write(task, write, Stage::Applied { moved: false })
            }
        }
    }

    /// Writes again after a refusal: first without what the API server names beside the changed fields, then without
    /// the fields that it refuses.
    fn send_less(&mut self, task: &Task, mut sending: Box<Sending>, failure: Failure) -> Next {
        let Fault::Invalid { said, causes } = &failure.fault else {
            return self.finish_sending(task, sending, Err(failure));
        };
        if sending.refusal.is_none() {
            sending.refusal = Some(said.clone());
            sending.suspected = sending.named_by(causes);
            if !sending.suspected.is_empty() {
                return self.send_open(task, sending);
            }
        }
        sending.suspected.clear();
        let before = sending.fixed.len();
        for path in body::immutable(&sending.judged.changes, causes) {
            if !sending.fixed.contains(&path) {
                sending.fixed.push(path);
            }
        }
        // A field that stays can make another one invalid.
        sending.tries += 1;
        let is_less = sending.fixed.len() != before && sending.fixed.len() != sending.judged.changes.len();
        if is_less && sending.tries <= ROUNDS {
            return self.send_open(task, sending);
        }
        self.finish_sending(task, sending, Err(failure))
    }

    /// Ends the writes. Where fields could not be changed, the API server may no longer accept the
    /// manifest itself.
    fn finish_sending(&mut self, task: &Task, sending: Box<Sending>, result: Result<Value, Failure>) -> Next {
        if sending.refusal.is_none() || sending.fixed.is_empty() {
            return self.conclude(task, *sending, result, None);
        }
        let revision = sending.judged.situation.release.state.revision;
        let work = Work::ReadDocument { revision, object: task.object.clone() };
        let stage = Stage::Manifest(result);
        Next::work(work, Repair::Send(Box::new(Sending { stage, ..*sending })))
    }

    /// Reports the result of the writes.
    fn conclude(
        &mut self,
        task: &Task,
        sending: Sending,
        result: Result<Value, Failure>,
        outdated: Option<String>,
    ) -> Next {
        let release = Arc::clone(&sending.judged.situation.release);
        let failure = match result {
            Ok(now) => return self.compare(task, &sending, &now, outdated),
            Err(failure) => failure,
        };
        match failure.fault {
            Fault::Conflict => self.start_over(task, &sending.judged.start.clone()),
            Fault::Invalid { .. } if let Some(reason) = outdated => self.fail(task, &reason),
            Fault::Invalid { said, .. } if !sending.fixed.is_empty() => {
                self.learn_fixed(task, &sending.judged, &sending.immutable());
                self.say(task, &release, &format!("{}: {said}", sending.why()));
                self.tell(Occurrence::Untaken(DriftKind::Changed));
                Next::settled()
            }
            _ => self.fail_by(task, &release, &failure),
        }
    }

    /// Compares the written object with the declaration.
    fn compare(&mut self, task: &Task, sending: &Sending, now: &Value, outdated: Option<String>) -> Next {
        let Judged { situation, seen, changes, .. } = &sending.judged;
        if changes.iter().any(|change| touches_template(&task.object, &change.path)) {
            self.repairs.rollouts.begin(&task.id, &task.object, now, self.now);
        }
        let mut left = self.left_after(task, &sending.judged, now);
        left.retain(|change| change.agreement > Agreement::Doubt);
        let (left, added): (Vec<_>, Vec<_>) = left.into_iter().partition(|change| situation.removes(change));
        let (known, open): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|it| sending.fixed.contains(&it.path));
        if !open.is_empty() {
            let paths: Vec<String> = open.iter().map(|change| change.path.to_string()).collect();
            let paths = paths.join(", ");
            return self.fail(
                task,
                &format!("the API server took the write, and something set it back at once: {paths}"),
            );
        }
        let contested = self.repairs.backoff.is_contested(&task.object, self.now);
        let helms = situation.life.as_ref().map(|life| Arc::clone(&life.managers)).unwrap_or_default();
        let drift = |changes: &[FieldChange]| {
            let drift = Drift::new(DriftKind::Changed, situation.drift.since);
            judge::seen(&seen.live, changes, &helms, drift)
        };
        let attempts = sending.attempts;
        let told = Drift { contested, ..drift(changes) };
        if known.is_empty() && added.is_empty() {
            self.note_repaired(task, situation, told, Fate::Repaired { attempts });
            self.note_restored(task, situation, version_written(now));
            return Next::Done(Done::Repaired);
        }
        let rest = drift(&[known.as_slice(), &added].concat());
        self.note_repaired(task, situation, told, Fate::Partly { attempts });
        self.drifts.record_drift(&task.id, &task.object, rest);
        if known.is_empty() {
            return self.leave_additions(task, situation, &added);
        }
        if let Some(reason) = &outdated {
            return self.fail(task, reason);
        }
        self.learn_fixed(task, &sending.judged, &sending.immutable());
        self.say(task, &Arc::clone(&situation.release), &sending.why());
        Next::settled()
    }

    /// The differences that remain after the write.
    fn left_after(&self, task: &Task, judged: &Judged, now: &Value) -> Vec<FieldChange> {
        let Judged { situation, answer, .. } = judged;
        let timeout = situation.policy.operation_timeout;
        let standing = state::standing(&situation.release, &task.object, timeout, self.now);
        let stands = standing.map(|standing| {
            let subject = Subject {
                object: &task.object,
                standing: &standing,
                policy: &situation.policy,
                circumstances: &situation.circumstances,
                now: self.now,
            };
            let evidence = answer.canonical().map_or(Evidence::None, Evidence::Canonical);
            match drift::compare(&subject, Some(now), evidence) {
                drift::Live::Drifted(drift) => drift.changes,
                _ => Vec::new(),
            }
        });
        stands.unwrap_or_default()
    }
}

/// Why a declared field stays away: what is in its place, and whose that is.
fn excluded(Replacement { found, by, .. }: &Replacement) -> String {
    let by = by.as_ref().map_or_else(String::new, |by| format!(" of field manager {}", by.name));
    format!("the undeclared field {}{by} is in the place of {}; remove it there", found.live, found.declared)
}
