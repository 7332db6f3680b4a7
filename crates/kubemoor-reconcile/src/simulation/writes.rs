//! What guards write to the simulated API server. Every write is held to the
//! invariants here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::event::{Fault, Secret, WorkOutcome, Write};
use super::answers::failed;
use super::stored::{Field, Fields, Stored, fields};
use super::world::{World, field_manager};
use kubemoor_declare::model::ObjectId;

/// Whose write it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) guard: usize,
    pub(super) process: usize,
    /// Somebody still waits for the answer.
    pub(super) is_awaited: bool,
}

impl World {
    /// A write of a guard arrives.
    pub(super) fn write(&mut self, sender: Sender, object: &ObjectId, write: &Write) -> WorkOutcome {
        let guard = sender.guard;
        self.writes += 1;
        if sender.is_awaited && self.lease.holder != Some(guard) {
            self.break_down(format!("guard {guard} writes {} and does not lead", object.name));
        }
        let before = self.objects.get(object).cloned();
        let (body, manager) = match write {
            Write::Create { document, manager } | Write::Apply { document, manager } => {
                (&document.0, manager)
            }
            Write::Merge { patch, manager } => (&patch.0, manager),
            Write::Delete { uid } => return self.take_back(guard, object, uid),
        };
        if manager != field_manager(&object.name) {
            self.break_down(format!("guard {guard} writes {} as {manager}", object.name));
        }
        let expected = body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if let Some(expected) = expected {
            let is_that = before.as_ref().is_some_and(|it| it.version.to_string() == expected);
            if !is_that {
                return failed(Fault::Conflict, "the object has been modified");
            }
        }
        let mut after = match (&before, write) {
            (Some(_), Write::Create { .. }) => return failed(Fault::AlreadyExists, "already exists"),
            (None, Write::Merge { .. }) => return failed(Fault::NotFound, "not found"),
            (None, _) if self.terminating => {
                return failed(Fault::Terminating, "the namespace is terminating");
            }
            (Some(before), Write::Apply { .. }) if expected.is_none() => {
                // Somebody made it since it was looked for.
                before.clone()
            }
            (Some(before), _) => before.clone(),
            (None, _) => Stored::new(object.clone(), format!("u{}", self.version + 1)),
        };
        match write {
            Write::Apply { .. } => after.apply(manager, &fields(body), self.now),
            Write::Create { .. } => {
                let all = fields(body).into_iter().map(|(field, value)| (field, Some(value))).collect();
                after.update(manager, &all, self.now);
            }
            Write::Merge { .. } => {
                after.update(manager, &patched(body), self.now);
                if let Some(managed) = body.pointer("/metadata/managedFields") {
                    after.own(managed);
                }
            }
            Write::Delete { .. } => {}
        }
        self.admit(&mut after);
        self.check(guard, object, before.as_ref(), &after);
        if before.is_none() {
            self.made.insert(after.uid.clone(), if sender.is_awaited { sender.process } else { 0 });
        }
        let version = self.version + 1;
        self.say(|| format!("guard {guard} writes {} v{version}: {write:?}", object.name));
        let value = self.store(after);
        WorkOutcome::Written(Secret(value))
    }

    fn take_back(&mut self, guard: usize, object: &ObjectId, uid: &str) -> WorkOutcome {
        match self.objects.get(object) {
            None => failed(Fault::NotFound, "not found"),
            Some(stored) if stored.uid != uid => failed(Fault::Conflict, "another uid"),
            Some(_) => {
                if !self.made.contains_key(uid) {
                    self.break_down(format!("guard {guard} deletes {}, which it has not made", object.name));
                }
                self.say(|| format!("guard {guard} takes {} back", object.name));
                self.delete(object);
                WorkOutcome::Written(Secret(json!({})))
            }
        }
    }

    /// Nothing is written that was not declared and seen in the object while it was; nothing is taken away but
    /// what a release dropped, or somebody added where that is sealed.
    fn check(&mut self, guard: usize, object: &ObjectId, before: Option<&Stored>, after: &Stored) {
        let none = Fields::new();
        let fields = before.map_or(&none, |before| &before.fields);
        let changed = after.fields.iter().filter(|(field, value)| fields.get(*field) != Some(*value));
        let has = |of: &BTreeMap<ObjectId, BTreeSet<(Field, String)>>, pair: &(Field, String)| {
            of.get(object).is_some_and(|all| all.contains(pair))
        };
        let mut wrong = Vec::new();
        for (field, value) in changed {
            let pair = (field.clone(), value.clone());
            for (is_met, fault) in [
                (has(&self.declared, &pair), "which nobody declared"),
                (has(&self.once, &pair), "which never was"),
                (field.0 != "data" || has(&self.agreed, &pair), "which no guard has seen there"),
            ] {
                if !is_met {
                    wrong.push(format!("guard {guard} writes {}: {pair:?}, {fault}", object.name));
                }
            }
        }
        for field in fields.keys().filter(|field| !after.fields.contains_key(*field)) {
            let is_added = self.sealed && before.is_some_and(|before| before.is_added(field));
            let declared = self.declared.get(object).into_iter().flatten();
            let is_dropped =
                declared.map(|(of, _)| of).any(|of| of == field) && !self.is_declared_now(object, field);
            if !is_added && !is_dropped {
                wrong.push(format!("guard {guard} takes {field:?} from {}", object.name));
            }
        }
        wrong.into_iter().for_each(|it| self.break_down(it));
    }

    fn is_declared_now(&self, object: &ObjectId, field: &Field) -> bool {
        self.records.iter().any(|(id, records)| {
            let documents = records.last().map(|latest| self.documents(id, &latest.manifest));
            let mut documents = documents.iter().flat_map(|documents| documents.iter());
            documents.any(|(of, fields)| of == object && fields.contains_key(field))
        })
    }
}

/// The changes of a merge patch.
fn patched(patch: &Value) -> BTreeMap<Field, Option<String>> {
    let mut found = BTreeMap::new();
    for (part, pointer) in
        [("data", "/data"), ("labels", "/metadata/labels"), ("annotations", "/metadata/annotations")]
    {
        for (key, value) in patch.pointer(pointer).and_then(Value::as_object).into_iter().flatten() {
            found.insert((part, key.clone()), value.as_str().map(str::to_owned));
        }
    }
    found
}
