//! The objects that were seen alive and the declarations that they agreed with, as they are
//! published and remembered.
//!
//! Entry points: [`Agreed`], `Drifts::record_agreement`, `Drifts::agreement`. Invariant: an
//! agreement comes only from the live object itself, or from an earlier guard that saw it; only
//! another agreement replaces it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::{Drifts, First, Life, Version};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::{Declarations, Declared, Release};
use kubemoor_policy::agreement::{Agreement, SeenAlive};
use kubemoor_policy::declaration::Declaration;
use kubemoor_verdict::claims::is_local;
use kubemoor_verdict::drift;

/// The declaration that an object agrees with.
pub(crate) struct Agreed {
    pub(crate) declared: Arc<Declared>,
    /// The paths at which it is allowed to differ.
    pub(crate) spared: Vec<Path>,
    /// Whether an allowance covers some of these paths.
    pub(crate) allowed: bool,
    /// Whether it holds additions below sealed paths.
    pub(crate) has_additions: bool,
}

impl Agreed {
    /// The result of a comparison.
    pub(crate) fn of(found: drift::Agreed<'_>) -> Self {
        let drift::Agreed { declared, spared, permitted, has_additions } = found;
        Self { declared: Arc::clone(declared), spared, allowed: !permitted.is_empty(), has_additions }
    }

    /// An agreement with all of a declaration, by an object that holds additions below sealed
    /// paths.
    pub(crate) fn but_for_additions(declared: &Arc<Declared>) -> Self {
        Self { declared: Arc::clone(declared), spared: Vec::new(), allowed: false, has_additions: true }
    }
}

impl Drifts {
    /// The objects of a release that were seen alive with its annotations, whether or not they
    /// still exist; sorted.
    pub(crate) fn seen_alive(&self, release: &Release) -> Vec<SeenAlive> {
        let vouched = |object: &Arc<ObjectId>| {
            let life = self.life(object).filter(|it| it.vouched && *it.release == release.id)?;
            Some(SeenAlive { object: Arc::clone(object), agreement: life.agreed.clone(), settled: None })
        };
        let mut seen: Vec<SeenAlive> = release.objects.keys().filter_map(vouched).collect();
        seen.sort_by(|a, b| a.object.cmp(&b.object));
        // Reports are kept.
        seen.shrink_to_fit();
        seen
    }

    /// The number of a release's objects that were seen alive as the record in force declares them,
    /// and those that were not, or not completely; sorted.
    pub(crate) fn confirmed(&self, release: &Release) -> (usize, Vec<ObjectId>) {
        let is_confirmed = |object: &ObjectId| {
            let agreement = release.declared(object).and_then(|it| self.agreement(&release.id, object, it));
            agreement.is_some_and(|agreement| agreement.confirms_all(None))
        };
        let declared = release.objects.iter().filter(|(_, declarations)| declarations.latest.is_some());
        let seen = declared.filter_map(|(object, _)| Some((object, self.life(object)?)));
        let own = seen.filter(|(_, life)| life.vouched && *life.release == release.id);
        let (confirmed, open): (Vec<_>, Vec<_>) =
            own.map(|(object, _)| object).partition(|object| is_confirmed(object));
        let mut open: Vec<_> = open.into_iter().map(|object| ObjectId::clone(object)).collect();
        open.sort();
        (confirmed.len(), open)
    }

    /// The objects in a release's namespace that were seen with another release's annotations, and
    /// that other release; sorted.
    pub(crate) fn foreign(&self, release: &Release) -> Vec<(ObjectId, ReleaseId)> {
        let owner = |object: &ObjectId| {
            let life = self.life(object)?;
            (life.vouched && life.alive && *life.release != release.id)
                .then(|| ReleaseId::clone(&life.release))
        };
        let declared = release.objects.iter().filter(|(_, declarations)| declarations.latest.is_some());
        let declared = declared.filter(|(object, _)| is_local(release, object));
        let mut foreign: Vec<_> =
            declared.filter_map(|(object, _)| Some((ObjectId::clone(object), owner(object)?))).collect();
        foreign.sort();
        foreign
    }

    /// The object's last agreement, if it is with this declaration.
    pub(crate) fn agreement(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        declared: &Declared,
    ) -> Option<&Agreement> {
        let agreement = self.life(object).filter(|life| *life.release == *release)?.agreed.as_ref()?;
        self.is_with(agreement, release, object, declared).then_some(agreement)
    }

    /// Records the seal that the object's policy puts on it.
    pub(crate) fn seal(&mut self, object: &ObjectId, seal: Option<String>) {
        if let Some(life) = self.lives.get_mut(object).filter(|life| life.seal.as_deref() != seal.as_ref()) {
            life.seal = seal.map(Arc::new);
            let of = Arc::clone(&life.release);
            self.touch_counted(&of);
        }
    }

    /// Whether the object was seen with nothing added below the paths that are sealed now, under
    /// this declaration.
    pub(crate) fn is_seen_without_additions(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        declared: &Declared,
    ) -> bool {
        let life = self.life(object).filter(|life| *life.release == *release && life.seal.is_some());
        let Some((life, digest)) = life.zip(declared.digest.as_ref()) else { return false };
        let declaration =
            Declaration { release, object, digest, seal: life.seal.as_deref().map(String::as_str) };
        life.agreed.as_ref().is_some_and(|agreement| agreement.is_with(&self.key, &declaration))
    }

    /// Whether the object may hold additions below sealed paths that the guard did not see arrive.
    pub(crate) fn may_hold_additions(&self, release: &Release, object: &ObjectId) -> bool {
        self.life(object).is_some_and(|life| life.seal.is_some())
            && release
                .declared(object)
                .is_some_and(|declared| !self.is_seen_without_additions(&release.id, object, declared))
    }

    /// Records that an object of `release` was seen as declared. Returns whether that is new
    /// information.
    pub(crate) fn record_agreement(&mut self, release: &Release, object: &ObjectId, seen: &Agreed) -> bool {
        let Some(digest) = &seen.declared.digest else { return false };
        let life = self.life(object).filter(|life| life.vouched && *life.release == release.id);
        let Some((before, seal)) = life.map(|life| (life.agreed.clone(), life.seal.clone())) else {
            return false;
        };
        // The knowledge that it was once seen without additions is kept.
        let is_known = |it: &Agreement| self.is_with(it, &release.id, object, &seen.declared);
        if seen.has_additions && before.as_ref().is_some_and(|it| is_known(it) && it.open().is_empty()) {
            return false;
        }
        let former = before.as_ref().filter(|_| !seen.spared.is_empty());
        let former = former.and_then(|before| self.former(release, object, before));
        let same = former.map(|former| same_leaves(former, &seen.declared)).unwrap_or_default();
        let is_same = |path: &Path| same.contains(&path.to_string());
        let seal = seal.as_deref().filter(|_| !seen.has_additions).map(String::as_str);
        let declaration = Declaration { release: &release.id, object, digest, seal };
        let agreement =
            Some(Agreement::after(before.as_ref(), &self.key, &declaration, &seen.spared, is_same));
        let is_new = agreement != before;
        if let Some(life) = self.lives.get_mut(object).filter(|_| is_new) {
            life.agreed = agreement;
            self.touch_counted(&release.id);
        }
        is_new
    }

    /// Takes over the knowledge of an earlier process about a release: the first seen manifest of a revision, and the
    /// objects that were seen alive, of those that it declares now, as far as its record can be read. An agreement with
    /// the declaration in force is still valid.
    pub(crate) fn remember(&mut self, release: &Release, first: First, seen: Vec<SeenAlive>) {
        let id = &release.id;
        self.first.remember(id, first);
        self.touch_counted(id);
        let counts =
            |seen: &SeenAlive| release.invalid.is_some() || release.objects.contains_key(&seen.object);
        let seen = seen.into_iter().filter(counts);
        for SeenAlive { object, agreement, settled: _ } in seen {
            let declared = release.declared(&object);
            let wants = |it: &Option<Agreement>| {
                let with = |it: &&Agreement| declared.is_some_and(|now| self.is_with(it, id, &object, now));
                it.as_ref().filter(with).map(|it| it.open().is_empty())
            };
            // None: something else; false: with what is declared now, but for some of it.
            let earlier = wants(&agreement);
            let known = self.lives.get(&object).and_then(|life| wants(&life.agreed));
            let (object, release) = (self.name(id, &object), self.releases.share(id));
            let life = self.lives.entry(object).or_insert_with(|| Life {
                release,
                vouched: true,
                alive: false,
                version: Version::default(),
                managers: Arc::default(),
                judged: None,
                allowed: false,
                agreed: None,
                seal: None,
            });
            if *life.release != *id {
                continue;
            }
            life.vouched = true;
            if life.agreed.is_none() || earlier > known {
                life.agreed = agreement;
            }
        }
    }

    fn is_with(
        &self,
        agreement: &Agreement,
        release: &ReleaseId,
        object: &ObjectId,
        declared: &Declared,
    ) -> bool {
        let Some(digest) = &declared.digest else { return false };
        let declaration = Declaration { release, object, digest, seal: None };
        match self.life(object) {
            Some(life) => life.is_with(&self.key, agreement, &declaration),
            None => agreement.is_with(&self.key, &declaration),
        }
    }

    /// The declaration that an object agreed with, if it is still available: that of the previous
    /// revision, during a Helm operation and shortly after it.
    fn former<'d>(
        &'d self,
        release: &'d Release,
        object: &ObjectId,
        agreement: &Agreement,
    ) -> Option<&'d Arc<Declared>> {
        let declarations = release.objects.get(object).into_iter();
        let known = declarations.flat_map(Declarations::all);
        let held = self.held.get(&release.id).and_then(|held| held.declared(object));
        known.chain(held).find(|declared| self.is_with(agreement, &release.id, object, declared))
    }
}

/// The paths at which two declarations have the same values.
fn same_leaves(then: &Declared, now: &Declared) -> HashSet<String> {
    let then: HashMap<String, Value> =
        then.fields().leaves().into_iter().map(|(path, value)| (path.to_string(), value)).collect();
    let now = now.fields().leaves().into_iter().map(|(path, value)| (path.to_string(), value));
    now.filter(|(path, value)| then.get(path) == Some(value)).map(|(path, _)| path).collect()
}
