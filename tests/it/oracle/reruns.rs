//! Random edits under random policies: recorded while they pass, and made again for real under others.
//!
//! Entry point: [`OracleScene::run_case`], then [`compare`] with what a replay says of each. An object is set back, and
//! compared, before the next edit of it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use jiff::Timestamp;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_ledger::entry::LedgerEntry;
use kubemoor_ledger::query::Filter;
use kubemoor_ledger::store::Store;
use kubemoor_policy::Policy;
use kubemoor_policy::compile::{CompiledPolicy, read};
use kubemoor_runtime::config::LedgerUrl;
use kubemoor_verdict::replay::{Replay, Replayed};
use serde_json::{Value, json};

use super::draw::Draw;
use super::edits::EditSteps;
use super::judge::is_refused;
use super::kinds::KINDS;
use super::replays::replayed;
use super::rules::{CasePolicies, NAMES, denying};
use super::scene::{AT_ONCE, Object, OracleRelease, OracleScene, content};
use crate::support::{DRIFT_POLICIES, RELEASE, SOON, drift_policy, eventually, wait_until_guarded};

/// The kinds of a case.
const OF_CASE: [&str; 5] = ["ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Service", "ResourceQuota"];

/// Edits of one object.
const EDITS: u64 = 8;

/// The edits of a release, with the policies.
pub(super) struct RerunCase {
    pub(super) seed: u64,
    rules: CasePolicies,
    reruns: Vec<Rerun>,
}

/// An edit that passed while it was recorded, and was made again.
struct Rerun {
    path: String,
    patch: Value,
    recorded: Window,
    made: Window,
    /// Whether it was refused then; the answer where it was neither refused nor done.
    refused: Result<bool, String>,
}

/// The object of a request, and when it was made.
struct Window {
    kind: String,
    namespace: String,
    name: String,
    begun: Timestamp,
    done: Timestamp,
}

/// What replays and real edits say.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    pub(super) refused: usize,
    pub(super) passed: usize,
    /// Edits of which the fields were compared.
    pub(super) compared: usize,
    pub(super) unreplayable: Vec<String>,
    pub(super) disagreements: Vec<String>,
}

/// A verdict with the fields that it names; plain passes name none.
type Told = (String, BTreeSet<String>);

impl OracleScene {
    /// Records the edits of a seed under its mild policies, and makes them again under its strict ones.
    pub(super) async fn run_case(&self, seed: u64) -> RerunCase {
        self.set_policies(&denying()).await;
        let kinds = (0_u64..).zip(KINDS).filter(|(_, kind)| OF_CASE.contains(&kind.name));
        let release = self.install(seed, kinds.map(|(index, _)| index)).await;
        futures::stream::iter(&release.objects)
            .for_each_concurrent(AT_ONCE, |object| wait_until_guarded(&self.alice, RELEASE, &object.path))
            .await;
        let edits: Vec<(&Object, Vec<Value>)> =
            release.objects.iter().map(|object| (object, drawn(seed, object))).collect();
        let touched: Vec<String> = edits.iter().flat_map(|(_, patches)| patches).flat_map(pointers).collect();
        let rules = CasePolicies::draw(&mut Draw::new(seed, [0, 0, 7]), release.objects.len(), &touched);
        self.open_exceptions(&release, &rules).await;

        self.set_policies(&rules.recording).await;
        let recorded =
            futures::stream::iter(&edits).map(|(object, patches)| self.record_edits(object, patches));
        let mut recorded: Vec<(&Object, Value, Vec<Rerun>)> = recorded.buffered(AT_ONCE).collect().await;
        self.set_policies(&rules.strict).await;
        let made = futures::stream::iter(&mut recorded)
            .map(|(object, before, reruns)| self.make_again(object, before, reruns));
        made.buffered(AT_ONCE).collect::<Vec<()>>().await;

        let reruns = recorded.into_iter().flat_map(|(.., reruns)| reruns).collect();
        self.set_policies(&denying()).await;
        self.remove(&release).await;
        RerunCase { seed, rules, reruns }
    }

    /// Has these policies and no others be in force.
    async fn set_policies(&self, specs: &[Value; 3]) {
        for (name, spec) in NAMES.iter().zip(specs) {
            let path = format!("{DRIFT_POLICIES}/{name}");
            let policy = drift_policy(name, spec);
            if self.admin.get(&path).await.code == 404 {
                self.admin.post(DRIFT_POLICIES, &policy).await.done().unwrap();
            } else {
                let replaced = json!([{"op": "replace", "path": "/spec", "value": spec}]);
                self.admin.patch_all(&path, &replaced).await.done().unwrap();
            }
        }
        for name in NAMES {
            let path = format!("{DRIFT_POLICIES}/{name}");
            eventually(&format!("{path} is in force"), SOON, || async {
                let policy = self.admin.get(&path).await.done()?;
                let condition = &policy["status"]["conditions"][0];
                let is_of_now = condition["observedGeneration"] == policy["metadata"]["generation"];
                if is_of_now && condition["status"] == "True" { Ok(()) } else { Err(policy.to_string()) }
            })
            .await;
        }
    }

    /// Opens the exceptions, and waits until the guard knows them.
    async fn open_exceptions(&self, release: &OracleRelease, rules: &CasePolicies) {
        let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/driftallowances", release.namespace);
        for (number, (place, paths)) in rules.exceptions.iter().enumerate() {
            let Window { kind, name, .. } = Window::begin(&release.objects[*place]);
            let api = release.objects[*place].manifest["apiVersion"].as_str().unwrap();
            let group = api.split_once('/').map_or("", |(group, _)| group);
            let mut object = json!({"kind": kind, "name": name});
            if !group.is_empty() {
                object["group"] = json!(group);
            }
            let exception = json!({
                "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
                "metadata": {"name": format!("exception-{number}")},
                "spec": {
                    "object": object, "paths": paths,
                    "until": (Timestamp::now() + jiff::SignedDuration::from_hours(24)).to_string(),
                },
            });
            self.admin.post(&path, &exception).await.done().unwrap();
        }
        let store = Store::read(&LedgerUrl::Sqlite(self.guard.ledger().to_owned())).await.unwrap();
        let verdicts = vec!["Opened".to_owned()];
        let filter = Filter { namespace: Some(release.namespace.clone()), verdicts, ..Filter::default() };
        eventually("the exceptions are open", SOON, || async {
            let rows = store.page(&filter).await.map_err(|error| error.to_string())?.items;
            if rows.len() == rules.exceptions.len() { Ok(()) } else { Err(format!("{rows:?}")) }
        })
        .await;
        store.close().await;
    }

    /// Makes those of the edits that the API server takes, each of the same object as it was.
    async fn record_edits<'o>(
        &self,
        object: &'o Object,
        patches: &[Value],
    ) -> (&'o Object, Value, Vec<Rerun>) {
        let before = self.admin.get(&object.path).await.done().unwrap();
        let mut reruns = Vec::new();
        for patch in patches {
            let mut recorded = Window::begin(object);
            let answer = self.alice.patch_all(&object.path, patch).await;
            recorded.done = Timestamp::now();
            self.set_back(&object.path, &before).await;
            if is_refused(&answer) == Some(false) {
                let (path, patch, made) = (object.path.clone(), patch.clone(), Window::begin(object));
                reruns.push(Rerun {
                    path,
                    patch,
                    recorded,
                    made,
                    refused: Err("it was not made".to_owned()),
                });
            }
        }
        (object, before, reruns)
    }

    async fn make_again(&self, object: &Object, before: &Value, reruns: &mut [Rerun]) {
        for rerun in reruns {
            rerun.made = Window::begin(object);
            let answer = self.alice.patch_all(&object.path, &rerun.patch).await;
            rerun.made.done = Timestamp::now();
            rerun.refused = is_refused(&answer).ok_or_else(|| answer.to_string());
            self.set_back(&object.path, before).await;
        }
    }

    /// Makes an object as it was, whoever else writes to it, and compares it.
    async fn set_back(&self, path: &str, before: &Value) {
        eventually(&format!("{path} is as it was"), SOON, || async {
            for _ in 0..3 {
                let now = self.admin.get(path).await.done()?;
                if content(&now) == content(before) {
                    return Ok(());
                }
                let mut back = before.clone();
                let metadata = back["metadata"].as_object_mut().unwrap();
                metadata.remove("managedFields");
                metadata.insert("resourceVersion".to_owned(), now["metadata"]["resourceVersion"].clone());
                let put = self.admin.put(path, &back).await;
                if put.code != 409 {
                    put.done()?;
                }
            }
            Err("it is still another one".to_owned())
        })
        .await;
    }
}

impl Window {
    fn begin(object: &Object) -> Self {
        let (above, name) = object.path.rsplit_once('/').unwrap();
        let namespace = above.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next());
        Self {
            kind: object.kind.name.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.to_owned(),
            begun: Timestamp::now(),
            done: Timestamp::now(),
        }
    }

    /// The row about the request.
    fn row<'r>(&self, rows: &'r [LedgerEntry]) -> Option<&'r LedgerEntry> {
        rows.iter().find(|row| self.is_about(row) && (self.begun..=self.done).contains(&row.time))
    }

    /// What the row about the request says. If it repeated a refusal like this one, it counts on the row of that.
    fn told(&self, rows: &[LedgerEntry], like: &Told) -> Told {
        let own = self.row(rows).map(told_of_row).filter(|told| told.0 != "Allow");
        let since = self.begun - jiff::SignedDuration::from_mins(1);
        let is_earlier = |row: &&LedgerEntry| {
            row.repeats > 0 && self.is_about(row) && (since..self.begun).contains(&row.time)
        };
        let repeated = || rows.iter().filter(is_earlier).map(told_of_row).find(|told| told == like);
        own.or_else(repeated).unwrap_or_else(plain)
    }

    fn is_about(&self, row: &LedgerEntry) -> bool {
        (&row.object.kind, &row.object.name) == (&self.kind, &self.name)
            && row.object.namespace.as_ref() == Some(&self.namespace)
    }
}

/// The patches of an object, among them those that are known to be special.
fn drawn(seed: u64, object: &Object) -> Vec<Value> {
    let draw = |number| {
        let mut draw = Draw::new(seed, [object.index, number, 6]);
        EditSteps::draw(&mut draw, object.kind, &object.twin.live).map(|edit| edit.patch())
    };
    let mut patches: Vec<Value> = (0..EDITS).filter_map(draw).collect();
    let nulls: &[&str] = match object.kind.name {
        "HorizontalPodAutoscaler" => &["/spec/scaleTargetRef/apiVersion", "/spec/minReplicas"],
        "Deployment" => &["/spec/replicas", "/spec/template/spec/containers/0/resources"],
        _ => &[],
    };
    let null = |at: &&str| json!([{"op": "add", "path": at, "value": null}]);
    patches.extend(nulls.iter().map(null));
    patches
}

fn pointers(patch: &Value) -> Vec<String> {
    patch.as_array().unwrap().iter().map(|step| step["path"].as_str().unwrap().to_owned()).collect()
}

/// What the replay of a case by its strict policies says, held against what became of the edits.
pub(super) fn compare(case: &RerunCase, rows: &[LedgerEntry]) -> Agreement {
    let hour = std::time::Duration::from_secs(3600);
    let defaults = Policy::new(EditsMode::Deny, DriftMode::Report, hour);
    let mut replay = Replay::new(defaults, compiled(&case.rules.strict));
    let mut agreement = Agreement::default();
    for rerun in &case.reruns {
        let said = |what: &dyn Debug| format!("seed {}: {} {}: {what:?}", case.seed, rerun.path, rerun.patch);
        let refused = match &rerun.refused {
            Ok(refused) => *refused,
            Err(answer) => {
                agreement.disagreements.push(said(answer));
                continue;
            }
        };
        let replayed = match rerun.recorded.row(rows).map(|row| replayed(&mut replay, row)) {
            Some(Err(why)) => {
                agreement.unreplayable.push(said(&why));
                continue;
            }
            // Nobody looked for additions there.
            None if !case.rules.are_sealed_alike => continue,
            None => None,
            Some(Ok(replayed)) => Some(replayed),
        };
        *if refused { &mut agreement.refused } else { &mut agreement.passed } += 1;
        let would_be = replayed.as_ref().map_or_else(plain, told);
        let was = rerun.made.told(rows, &would_be);
        let is_refusal = replayed.as_ref().is_some_and(|it| it.verdict.outcome.is_refusal());
        let is_whole = rerun.made.row(rows).is_none_or(|row| row.more_fields == 0);
        let are_fields_equal = match case.rules.are_sealed_alike {
            _ if !is_whole => true,
            true => would_be.1 == was.1,
            false => would_be.1.is_subset(&was.1),
        };
        agreement.compared += usize::from(is_whole && !was.1.is_empty());
        if is_refusal != refused || would_be.0 != was.0 || !are_fields_equal {
            let facts = rerun.recorded.row(rows).and_then(|row| row.facts.as_deref());
            let differ = said(&(("replayed", would_be), ("made", was, refused), facts));
            agreement.disagreements.push(format!("{differ}\n{}", case.rules));
        }
    }
    agreement
}

fn plain() -> Told {
    ("Allow".to_owned(), BTreeSet::new())
}

fn told(Replayed { verdict, .. }: &Replayed) -> Told {
    let fields = verdict.grounds.iter().flat_map(|grounds| &grounds.fields);
    match verdict.outcome.as_str() {
        "Allow" => plain(),
        outcome => (outcome.to_owned(), fields.map(|field| field.path.to_string()).collect()),
    }
}

fn told_of_row(row: &LedgerEntry) -> Told {
    (row.verdict.clone(), row.fields.iter().map(|field| field.path.clone()).collect())
}

/// The policies as a replay takes them.
fn compiled(specs: &[Value; 3]) -> Vec<Arc<CompiledPolicy>> {
    let text = NAMES.iter().zip(specs).map(|(name, spec)| {
        let policy = drift_policy(name, spec);
        format!("---\n{policy}\n")
    });
    let (accepted, flawed) = read([("drawn", text.collect::<String>().as_str())]);
    assert!(flawed.is_empty(), "{flawed:?}");
    accepted
}
