//! Random edits that are recorded under a mild mode, replayed under a strict one, and then made under it.
//!
//! Entry point: [`OracleScene::record_release`], then [`Recorded::compare`] with what the strict mode makes of them.

use std::path::Path;

use futures::StreamExt as _;
use jiff::Timestamp;
use kubemoor_declare::model::{Actor, DriftMode, EditsMode, ObjectId, Operation};
use kubemoor_ledger::entry::LedgerEntry;
use kubemoor_ledger::query::{Filter, PAGE};
use kubemoor_ledger::store::Store;
use kubemoor_policy::Policy;
use kubemoor_runtime::config::LedgerUrl;
use kubemoor_verdict::replay::{PastEdit, Replay, Replayed};
use serde_json::{Value, json};

use super::draw::Draw;
use super::edits::EditSteps;
use super::judge::is_refused;
use super::scene::{AT_ONCE, Object, OracleRelease, OracleScene, content};
use crate::support::{Identity, RELEASE, SOON, drift_policy, eventually, wait_until_guarded};

/// The policy of the strict mode.
const STRICT: &str = "/apis/kubemoor.dev/v1alpha1/driftpolicies/strict";

/// An edit that was made while it passed.
pub(super) struct Recorded {
    /// The API group, kind, namespace and name of its object.
    object: [String; 4],
    path: String,
    patch: Value,
    /// When it was made.
    begun: Timestamp,
    done: Timestamp,
    /// Whether the strict mode refuses it; none where it cannot be tried.
    pub(super) refused: Option<bool>,
}

/// What a replay makes of edits.
#[derive(Default)]
pub(super) struct Replays {
    pub(super) refused: usize,
    pub(super) passed: usize,
    /// What cannot be replayed, by why.
    pub(super) unreplayable: Vec<String>,
    /// Verdicts that are not those of the strict mode.
    pub(super) disagreements: Vec<String>,
}

impl OracleScene {
    /// Has the strict mode hold, or no longer.
    pub(super) async fn set_strict(&self, release: &OracleRelease, is_strict: bool) {
        let path = &release.objects[0].path;
        if is_strict {
            let policy = drift_policy("strict", json!({"edits": "Deny"}));
            let all = STRICT.rsplit_once('/').unwrap().0;
            self.admin.post(all, &policy).await.done().unwrap();
            return wait_until_guarded(&self.alice, RELEASE, path).await;
        }
        self.admin.delete(STRICT).await.done().unwrap();
        let patch = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "alice"}}});
        let path = format!("{path}?dryRun=All");
        eventually("the strict mode is over", SOON, || async {
            self.alice.merge(&path, &patch).await.done().map(drop)
        })
        .await;
    }

    /// Makes so many edits of every object of a release, and sets each back.
    pub(super) async fn record_release(&self, release: &OracleRelease, edits: u64) -> Vec<Recorded> {
        let recording = futures::stream::iter(&release.objects)
            .map(|object| self.record_object(release.seed, object, edits));
        recording.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().flatten().collect()
    }

    async fn record_object(&self, seed: u64, object: &Object, edits: u64) -> Vec<Recorded> {
        let mut recorded = Vec::new();
        let before = self.admin.get(&object.path).await.done().unwrap();
        let text =
            |pointer: &str| before.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let group =
            text("/apiVersion").rsplit_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
        let named = [group, text("/kind"), text("/metadata/namespace"), text("/metadata/name")];
        for number in 0..edits {
            let mut draw = Draw::new(seed, [object.index, number, 5]);
            let Some(edit) = EditSteps::draw(&mut draw, object.kind, &object.twin.live) else { continue };
            let (patch, begun) = (edit.patch(), Timestamp::now());
            let Ok(edited) = self.alice.patch_all(&object.path, &patch).await.done() else { continue };
            let (object, path, done) = (named.clone(), object.path.clone(), Timestamp::now());
            let mut back = before.clone();
            let metadata = back["metadata"].as_object_mut().unwrap();
            metadata.remove("managedFields");
            metadata.insert("resourceVersion".to_owned(), edited["metadata"]["resourceVersion"].clone());
            let restored = self.admin.put(&path, &back).await.done();
            if !restored.is_ok_and(|now| content(&now) == content(&before)) {
                // What follows would be judged in another state.
                break;
            }
            recorded.push(Recorded { object, path, patch, begun, done, refused: None });
        }
        recorded
    }

    /// Tries each of these edits.
    pub(super) async fn try_again(&self, recorded: &mut [Recorded]) {
        let trying = futures::stream::iter(recorded.iter_mut()).map(|edit| async {
            let dry = format!("{}?dryRun=All", edit.path);
            edit.refused = is_refused(&self.alice.patch_all(&dry, &edit.patch).await);
        });
        trying.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }
}

/// What the ledger holds of Alice's edits.
pub(super) async fn rows(ledger: &Path) -> Vec<LedgerEntry> {
    let store = Store::read(&LedgerUrl::Sqlite(ledger.to_owned())).await.unwrap();
    let user = Some(Identity::Alice.user().to_owned());
    let mut filter = Filter { user, facts: true, limit: Some(PAGE), ..Filter::default() };
    let mut rows = Vec::new();
    loop {
        let page = store.page(&filter).await.unwrap();
        rows.extend(page.items.into_iter().filter(|row| row.kind == "verdict"));
        let Some(next) = page.next else { break };
        filter.before = Some(next.parse().unwrap());
    }
    store.close().await;
    rows
}

/// Replays the rows of edits under the strict mode.
pub(super) fn compare(recorded: &[Recorded], rows: &[LedgerEntry]) -> Replays {
    let hour = std::time::Duration::from_secs(3600);
    let mut replay = Replay::new(Policy::new(EditsMode::Deny, DriftMode::Report, hour), Vec::new());
    let mut replays = Replays::default();
    for edit in recorded {
        let Some(refused) = edit.refused else { continue };
        let [group, kind, namespace, name] = &edit.object;
        let is_it = |row: &&LedgerEntry| {
            let object = &row.object;
            (&object.group, &object.kind, &object.name) == (group, kind, name)
                && object.namespace.as_deref().unwrap_or_default() == namespace
                && (edit.begun..=edit.done).contains(&row.time)
        };
        let verdict = rows.iter().find(is_it).map(|row| replayed(&mut replay, row));
        let would_be = match verdict {
            Some(Err(why)) => {
                replays.unreplayable.push(format!("{why}: {} {}", edit.path, edit.patch));
                continue;
            }
            Some(Ok(replayed)) => replayed.verdict.outcome.is_refusal(),
            None => false,
        };
        *if refused { &mut replays.refused } else { &mut replays.passed } += 1;
        if would_be != refused {
            let said = format!(
                "replayed: refused {would_be}, made: refused {refused}: {} {}",
                edit.path, edit.patch
            );
            replays.disagreements.push(said);
        }
    }
    replays
}

/// The verdict of a replay on a row, or the reason why the row cannot be replayed.
pub(super) fn replayed(replay: &mut Replay, row: &LedgerEntry) -> Result<Replayed, String> {
    let object = row.object.clone();
    let object = ObjectId {
        group: object.group.into(),
        kind: object.kind.into(),
        namespace: object.namespace.map(Into::into),
        name: object.name.into(),
    };
    let actor = Actor { user: row.user.clone(), groups: row.groups.clone(), ..Actor::default() };
    let facts = row.facts.as_deref().ok_or("nothing is kept")?;
    let facts = serde_json::from_str(facts).map_err(|error| format!("{error}: {facts}"))?;
    let past = PastEdit {
        time: row.time,
        operation: Operation::Update,
        object: &object,
        actor: &actor,
        has_all_groups: true,
        facts: &facts,
    };
    replay.verdict(past).map_err(|why| why.as_str().to_owned())
}
