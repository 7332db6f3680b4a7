//! Admission in the simulated cluster: whatever is not a guard's is judged as the webhook judges it.
//!
//! Entry point: `World::ask_admission`. Invariant: the verdict is the program's own, on records that were read afresh;
//! Helm and those who take a namespace apart are never refused, nor is anything that no release declares. Must not
//! judge what guards write.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::stored::{Stored, fields};
use super::world::World;
use crate::event::{Secret, WorkOutcome};
use crate::sample_policies::{policies, policy};
use kubemoor_declare::model::{Actor, ObjectId, Operation, PROBE_MANAGER, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::edit::{
    Circumstances, DryRunEvidence, Edit, ObjectOwner, Rules, Verdict, VerdictReason,
};
use kubemoor_verdict::judge::judge;

/// Who takes a namespace apart.
pub(super) const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// The policies of the webhook: they deny every difference and, with `is_sealed`, every addition.
pub(super) fn denying(is_sealed: bool) -> PolicyResolver {
    let seal = if is_sealed { "[{paths: [/data]}]" } else { "[]" };
    let spec = format!("{{edits: Deny, drift: Repair, seal: {seal}}}");
    PolicyResolver::of_policies(policies([policy("all", &spec)]))
}

impl World {
    /// Whether the webhook lets somebody else than a guard leave the object like this; none: gone.
    pub(super) fn ask_admission(&mut self, by: &str, object: &ObjectId, after: Option<&Stored>) -> bool {
        if self.admission.is_none() {
            return true;
        }
        let verdict = self.verdict(by, object, after);
        let is_refused = verdict.as_ref().is_some_and(|verdict| verdict.outcome.is_refusal());
        let name = &object.name;
        if is_refused && (by == "helm" || by == NAMESPACE_CONTROLLER) {
            self.break_down(format!("{by} is refused to write {name}: {verdict:?}"));
        }
        let is_declared =
            verdict.as_ref().is_some_and(|verdict| verdict.reason != VerdictReason::NotDeclared);
        if is_declared && name == "bystander" {
            self.break_down(format!("{name}, which nobody declares, is judged: {verdict:?}"));
        }
        if is_refused {
            self.say(|| format!("{by} is refused to write {name}"));
        }
        !is_refused
    }

    fn verdict(&self, by: &str, object: &ObjectId, after: Option<&Stored>) -> Option<Verdict> {
        let resolver = self.admission.as_ref()?;
        let before = self.objects.get(object);
        let (old, new) = (before.map(Stored::value), after.map(Stored::value));
        let operation = match (&old, &new) {
            (_, None) => Operation::Delete,
            (None, Some(_)) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
        };
        let owner =
            before.or(after).and_then(Stored::release).map_or(ObjectOwner::Nobody, ObjectOwner::Release);
        let edit = Edit {
            operation,
            actor: &Actor { user: by.to_owned(), ..Actor::default() },
            object,
            old: old.as_ref(),
            new: new.as_ref(),
            version: Some("v1"),
            scale: false,
            owner,
            dry_run: false,
            field_manager: by,
            circumstances: &Circumstances::default(),
        };
        let claims: Vec<Arc<Release>> = self
            .records
            .keys()
            .filter_map(|id| self.release_of_now(id))
            .filter(|release| release.declared(object).is_some())
            .collect();
        let rules = Rules { resolver, own_account: None };
        let verdict = judge(&edit, &claims, &rules, DryRunEvidence::None, self.now);
        let claim = claims.first().filter(|_| verdict.outcome.is_refusal() && verdict.arguable);
        match claim {
            Some(release) => match self.dry_run(release, object) {
                Some(value) => {
                    Some(judge(&edit, &claims, &rules, DryRunEvidence::Canonical(&value), self.now))
                }
                None => Some(judge(&edit, &claims, &rules, DryRunEvidence::Unavailable, self.now)),
            },
            None => Some(verdict),
        }
    }

    /// The release by its records as they are; assembled once for each state of them.
    fn release_of_now(&self, id: &ReleaseId) -> Option<Arc<Release>> {
        let state = self.state_of(id);
        let mut assembled = self.assembled.borrow_mut();
        if let Some((_, release)) = assembled.get(id).filter(|(of, _)| *of == state) {
            return Some(Arc::clone(release));
        }
        let release = Arc::new(self.release(id, None, &BTreeMap::new())?);
        assembled.insert(id.clone(), (state, Arc::clone(&release)));
        Some(release)
    }

    /// The object as it would be stored if the declaration were applied now, whether it is there or not.
    fn dry_run(&self, release: &Release, object: &ObjectId) -> Option<Value> {
        let WorkOutcome::Document(document) = self.document(&release.id, release.state.revision, object)
        else {
            return None;
        };
        let Secret(document) = document.object?;
        let new = || Stored::new(object.clone(), String::new());
        let mut stored = self.objects.get(object).cloned().unwrap_or_else(new);
        stored.apply(PROBE_MANAGER, &fields(&document), self.now);
        self.admit(&mut stored);
        Some(stored.value())
    }
}
