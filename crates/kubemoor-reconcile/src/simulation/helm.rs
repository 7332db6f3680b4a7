//! Helm at work: operations of several steps, each of which others may come between.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::world::{Revision, World, field_manager, object};
use super::{HISTORIES, Random};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};

/// One step of an operation.
#[derive(Clone, Debug)]
enum Step {
    Store(Arc<str>, ReleaseStatus),
    /// The oldest record that is not in force goes.
    Forget,
    Write {
        object: ObjectId,
        from: Option<Arc<str>>,
        to: Arc<str>,
    },
    Delete(ObjectId),
    Set(u64, ReleaseStatus),
    Purge,
}

/// The Helm of one release.
pub(super) struct SimulatedHelm {
    pub(super) id: ReleaseId,
    method: ApplyMethod,
    steps: VecDeque<Step>,
}

impl SimulatedHelm {
    pub(super) fn new(id: ReleaseId, method: ApplyMethod) -> Self {
        Self { id, method, steps: VecDeque::new() }
    }

    pub(super) fn is_at_work(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Some chart of this release's objects.
    pub(super) fn chart(&self, random: &mut Random) -> Arc<str> {
        let mut objects = BTreeMap::new();
        for number in 0..4 {
            if number == 0 || random.chance(70) {
                let value = |random: &mut Random| format!("v{}", random.below(4));
                let mut data = BTreeMap::from([("a".to_owned(), value(random))]);
                if random.chance(50) {
                    data.insert("b".to_owned(), value(random));
                }
                objects.insert(format!("{}-{number}", self.id.name), data);
            }
        }
        manifest(&objects)
    }

    /// Begins to install or upgrade to a chart.
    pub(super) fn upgrade(&mut self, world: &mut World, to: &Arc<str>) {
        let is_deployed = |record: &Revision| record.status == ReleaseStatus::Deployed;
        let has_deployed = world.records.get(&self.id).into_iter().flatten().any(is_deployed);
        let pending =
            if has_deployed { ReleaseStatus::PendingUpgrade } else { ReleaseStatus::PendingInstall };
        self.turn_to(world, to, pending);
    }

    /// Begins to go back to what some earlier revision was, if there is one.
    pub(super) fn roll_back(&mut self, world: &mut World, random: &mut Random) {
        let earlier = world.records.get(&self.id).map(|records| records.split_last());
        if let Some(Some((_, earlier))) = earlier.filter(|it| it.is_some_and(|(_, it)| !it.is_empty())) {
            let to = Arc::clone(&earlier[random.below(earlier.len())].manifest);
            self.turn_to(world, &to, ReleaseStatus::PendingRollback);
        }
    }

    /// The operation ends here, as its namespace does.
    pub(super) fn end(&mut self) {
        self.steps.clear();
    }

    /// Somebody who may write Secrets stores a record that nothing was ever done for.
    pub(super) fn forge(&self, world: &mut World, manifest: &Arc<str>) {
        if world.records.contains_key(&self.id) {
            world.unsure.insert(self.id.clone());
            world.put_record(&self.id, manifest, ReleaseStatus::Deployed, self.method);
        }
    }

    /// Begins to uninstall.
    pub(super) fn uninstall(&mut self, world: &mut World) {
        let last = world.records.get(&self.id).and_then(|records| records.last());
        let Some(last) = last.filter(|last| last.status != ReleaseStatus::Uninstalled).cloned() else {
            return;
        };
        self.steps = VecDeque::from([Step::Set(last.revision, ReleaseStatus::Uninstalling)]);
        for (object, _) in world.documents(&self.id, &last.manifest).iter() {
            self.steps.push_back(Step::Delete(object.clone()));
        }
        let is_kept = world.has(HISTORIES) && world.luck.chance(50);
        self.steps.push_back(if is_kept {
            Step::Set(last.revision, ReleaseStatus::Uninstalled)
        } else {
            Step::Purge
        });
    }

    /// The operation fails, or Helm is killed.
    pub(super) fn fail(&mut self, world: &World, killed: bool) {
        let Some(last) = world.records.get(&self.id).and_then(|records| records.last()) else { return };
        if last.status.is_pending() {
            let failed = Step::Set(last.revision, ReleaseStatus::Failed);
            self.steps = if killed { VecDeque::new() } else { VecDeque::from([failed]) };
        }
    }

    /// Does one step.
    pub(super) fn step(&mut self, world: &mut World) {
        let Some(step) = self.steps.pop_front() else { return };
        match step {
            Step::Store(manifest, status) => world.put_record(&self.id, &manifest, status, self.method),
            Step::Set(revision, status) => world.set_status(&self.id, revision, status),
            Step::Delete(object) => world.remove(&object, "helm"),
            Step::Purge => world.purge(&self.id),
            Step::Forget => world.forget_oldest(&self.id),
            Step::Write { object, from, to } => self.write(world, &object, from.as_ref(), &to),
        }
    }

    fn turn_to(&mut self, world: &mut World, to: &Arc<str>, pending: ReleaseStatus) {
        let is_varied = world.has(HISTORIES);
        if is_varied && world.luck.chance(40) {
            self.method = match self.method {
                ApplyMethod::ServerSide => ApplyMethod::ClientSide,
                ApplyMethod::ClientSide => ApplyMethod::ServerSide,
            };
        }
        let is_limited = is_varied && world.luck.chance(40);
        let records = world.records.get(&self.id);
        let deployed =
            records.into_iter().flatten().rev().find(|record| record.status == ReleaseStatus::Deployed);
        let last = records.and_then(|records| records.last());
        let from = deployed.map(|record| Arc::clone(&record.manifest));
        let next = last.map_or(1, |last| last.revision + 1);
        self.steps = is_limited.then_some(Step::Forget).into_iter().collect();
        self.steps.push_back(Step::Store(Arc::clone(to), pending));
        let wanted = world.documents(&self.id, to);
        for (object, _) in wanted.iter() {
            self.steps.push_back(Step::Write {
                object: object.clone(),
                from: from.clone(),
                to: Arc::clone(to),
            });
        }
        let before = from.as_ref().map(|from| world.documents(&self.id, from));
        for (object, _) in before.iter().flat_map(|before| before.iter()) {
            if wanted.iter().all(|(other, _)| other != object) {
                self.steps.push_back(Step::Delete(object.clone()));
            }
        }
        if let Some(deployed) = deployed {
            self.steps.push_back(Step::Set(deployed.revision, ReleaseStatus::Superseded));
        }
        self.steps.push_back(Step::Set(next, ReleaseStatus::Deployed));
    }

    fn write(&self, world: &mut World, object: &ObjectId, from: Option<&Arc<str>>, to: &Arc<str>) {
        let of = |manifest: &Arc<str>| {
            let documents = world.documents(&self.id, manifest);
            let found = documents.iter().find(|(other, _)| other == object);
            found.map(|(_, fields)| fields.clone()).unwrap_or_default()
        };
        let (before, wanted) = (from.map(of).unwrap_or_default(), of(to));
        let manager = field_manager(&self.id.name);
        world.change(object, "helm", |stored, now| match self.method {
            ApplyMethod::ServerSide => {
                stored.adopt(manager, now);
                stored.apply(manager, &wanted, now);
            }
            ApplyMethod::ClientSide => {
                let mut changes: BTreeMap<_, _> =
                    wanted.iter().map(|(field, value)| (field.clone(), Some(value.clone()))).collect();
                for field in before.keys().filter(|field| !wanted.contains_key(*field)) {
                    changes.insert(field.clone(), None);
                }
                stored.update(manager, &changes, now);
            }
        });
    }
}

/// A manifest of these ConfigMaps.
pub(super) fn manifest(objects: &BTreeMap<String, BTreeMap<String, String>>) -> Arc<str> {
    let mut text = String::new();
    for (name, data) in objects {
        text.push_str(&format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n"));
        for (key, value) in data {
            text.push_str(&format!("  {key}: \"{value}\"\n"));
        }
    }
    text.into()
}

/// A person or a controller changes a value, or deletes an object.
pub(super) fn meddle(world: &mut World, random: &mut Random, by: &str) {
    let names: Vec<ObjectId> = world.objects.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    let chosen = names[random.below(names.len())].clone();
    match random.below(5) {
        0 => world.remove(&chosen, by),
        1 => {
            let key = ("data", "a".to_owned());
            let changes = BTreeMap::from([(key, None)]);
            world.change(&chosen, by, |stored, now| stored.update(by, &changes, now));
        }
        2 => {
            let key = ("data", "note".to_owned());
            let changes = BTreeMap::from([(key, Some(format!("n{}", random.below(3))))]);
            world.change(&chosen, by, |stored, now| stored.update(by, &changes, now));
        }
        _ => {
            let key = ("data", "a".to_owned());
            let changes = BTreeMap::from([(key, Some(format!("x{}", random.below(9))))]);
            world.change(&chosen, by, |stored, now| stored.update(by, &changes, now));
        }
    }
}

/// A person writes a value that charts use as well.
pub(super) fn guess(world: &mut World) {
    let names: Vec<ObjectId> =
        world.objects.keys().filter(|object| object.name != "bystander").cloned().collect();
    let Some(chosen) = names.get(world.luck.below(names.len())) else { return };
    let key = ("data", ["a", "b"][world.luck.below(2)].to_owned());
    let changes = BTreeMap::from([(key, Some(format!("v{}", world.luck.below(4))))]);
    world.change(chosen, "kubectl-edit", |stored, now| stored.update("kubectl-edit", &changes, now));
}

/// A controller that holds one value of an object against every other writer.
pub(super) fn insist(world: &mut World, on: &str) {
    let (key, object) = (("data", "a".to_owned()), object(on));
    if world.objects.get(&object).is_some_and(|it| it.fields.get(&key).is_none_or(|value| value != "mine")) {
        let changes = BTreeMap::from([(key, Some("mine".to_owned()))]);
        world.change(&object, "insister", |stored, now| stored.update("insister", &changes, now));
    }
}

/// Somebody takes away what objects hold that no manifest in force declares.
pub(super) fn clean(world: &mut World) {
    let latest = world.records.iter().filter_map(|(id, records)| Some((id, records.last()?)));
    let manifests: Vec<_> = latest.map(|(id, last)| world.documents(id, &last.manifest)).collect();
    for (object, declared) in manifests.iter().flat_map(|documents| documents.iter()) {
        let live = world.objects.get(object).map(|stored| stored.fields.clone()).unwrap_or_default();
        let more = live.into_keys().filter(|field| field.0 == "data" && !declared.contains_key(field));
        let changes = more.map(|field| (field, None)).collect();
        if world.objects.contains_key(object) {
            world.change(object, "kubectl-edit", |stored, now| stored.update("kubectl-edit", &changes, now));
        }
    }
}

/// An object that no release declares.
pub(super) fn bystander(world: &mut World) {
    let changes = BTreeMap::from([(("data", "a".to_owned()), Some("1".to_owned()))]);
    world.change(&object("bystander"), "kubectl", |stored, now| stored.update("kubectl", &changes, now));
}
