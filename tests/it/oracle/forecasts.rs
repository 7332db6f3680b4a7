//! `kubemoor forecast` against the conflicts that the next upgrade meets.
//!
//! Entry point: [`OracleScene::forecast_release`]. A chart is installed and its objects are edited; the forecast has to name
//! exactly those fields on which the API server refuses the same manifest once more without force, and all on which it
//! refuses a changed one.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use kubemoor_declare::path::Path;
use serde_json::{Value, json};

use super::draw::Draw;
use super::edits::EditSteps;
use super::kinds;
use super::scene::{AT_ONCE, Object, OracleRelease, OracleScene};
use crate::forecast::spelled;
use crate::support::{Identity, RELEASE, moor};

/// Managers and fields.
type Met = BTreeSet<(String, String)>;

/// What was found.
#[derive(Default)]
pub(super) struct Forecasts {
    /// Objects of which the upgrade conflicts, and others.
    pub(super) conflicting: usize,
    pub(super) clear: usize,
    pub(super) disagreements: Vec<String>,
}

/// What is said of one object: what conflicts always, and what conflicts when it changes.
#[derive(Default)]
struct ForecastConflicts {
    always: Met,
    on_change: Met,
}

impl OracleScene {
    /// Edits the objects of a chart and holds the forecast against their next upgrade.
    pub(super) async fn forecast_release(&self, seed: u64) -> Forecasts {
        let release = self.install(seed, kinds::all()).await;
        for (number, manager) in ["kubectl-edit", "kubectl-patch"].into_iter().enumerate() {
            let number = u64::try_from(number).unwrap();
            let editing = futures::stream::iter(&release.objects);
            editing
                .for_each_concurrent(AT_ONCE, |object| async move {
                    let Ok(live) = self.alice.get(&object.path).await.done() else { return };
                    let mut draw = Draw::new(seed, [object.index, number, 4]);
                    let Some(edit) = EditSteps::draw(&mut draw, object.kind, &live) else { return };
                    let path = format!("{}?fieldManager={manager}", object.path);
                    // What the API server refuses changes nothing.
                    drop(self.alice.patch_all(&path, &edit.patch()).await);
                })
                .await;
        }
        let said = self.said(&release);
        let mut found = Forecasts::default();
        for object in &release.objects {
            let name = object.manifest["metadata"]["name"].as_str().unwrap();
            let nothing = ForecastConflicts::default();
            let said = said.get(&(object.kind.name.to_owned(), name.to_owned())).unwrap_or(&nothing);
            self.compare(&release, object, said, &mut found).await;
        }
        self.remove(&release).await;
        found
    }

    /// The forecast, by kind and name.
    fn said(&self, release: &OracleRelease) -> BTreeMap<(String, String), ForecastConflicts> {
        let arguments = ["forecast", RELEASE, "-n", &release.namespace, "-o", "json"];
        let ran = moor(&self.control_plane, Identity::Admin, &arguments);
        let mut said: BTreeMap<(String, String), ForecastConflicts> = BTreeMap::new();
        for line in ran.json()["conflicts"].as_array().unwrap() {
            // That an element is beside another one is no conflict of managers.
            if line.get("movedTo").is_some() {
                continue;
            }
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            let object = |name: &str| line["object"][name].as_str().unwrap().to_owned();
            let of = said.entry((object("kind"), object("name"))).or_default();
            let path: Path = text("path").parse().unwrap();
            let met = if line["differs"] == true { &mut of.always } else { &mut of.on_change };
            met.insert((text("manager"), spelled(&path)));
        }
        said
    }

    async fn compare(
        &self,
        release: &OracleRelease,
        object: &Object,
        said: &ForecastConflicts,
        found: &mut Forecasts,
    ) {
        let Some(met) = self.met(release, object, &object.manifest).await else { return };
        *if met.is_empty() { &mut found.clear } else { &mut found.conflicting } += 1;
        let describe = |what: &str, paths: Vec<&(String, String)>| {
            format!(
                "seed {} {}: {what}: {paths:?}; manifest: {}",
                release.seed, object.kind.name, object.manifest
            )
        };
        let missed: Vec<_> = met.iter().filter(|it| !is_among(it, &said.always)).collect();
        let wrong: Vec<_> = said.always.iter().filter(|it| !is_among(it, &met)).collect();
        if !missed.is_empty() {
            found.disagreements.push(describe("the upgrade conflicts, and that is not said", missed));
        }
        if !wrong.is_empty() {
            found.disagreements.push(describe("the upgrade does not conflict", wrong));
        }
        let mut draw = Draw::new(release.seed, [object.index, 0, 5]);
        let Some((changed, _)) = EditSteps::changed(&mut draw, &object.manifest) else { return };
        let Some(met) = self.met(release, object, &changed).await else { return };
        let is_told = |it: &(String, String)| is_among(it, &said.always) || is_among(it, &said.on_change);
        let missed: Vec<_> = met.iter().filter(|it| !is_told(it)).collect();
        if !missed.is_empty() {
            let what = format!("an upgrade to {changed} conflicts, and that is not said");
            found.disagreements.push(describe(&what, missed));
        }
    }

    /// What an upgrade to this manifest meets; none where the API server refuses it for another reason.
    async fn met(&self, release: &OracleRelease, object: &Object, manifest: &Value) -> Option<Met> {
        let path = format!("{}?fieldManager=helm&dryRun=All", object.path);
        let answer = self.helm.apply(&path, &release.document(object, manifest)).await;
        match answer.code {
            200 => Some(Met::new()),
            409 => {
                let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
                let conflict = |cause: &Value| {
                    let manager = cause["message"].as_str()?.split('"').nth(1)?.to_owned();
                    Some((manager, cause["field"].as_str()?.to_owned()))
                };
                let conflicts = causes.iter().filter(|it| it["reason"] == json!("FieldManagerConflict"));
                let mut met = Met::new();
                for (manager, path) in conflicts.filter_map(conflict) {
                    // Kubernetes 1.20 may name one field of an element twice, and not the other one.
                    let above = path.rsplit_once('.').map(|(above, _)| (manager.clone(), above.to_owned()));
                    if !met.insert((manager, path)) {
                        met.extend(above);
                    }
                }
                Some(met)
            }
            _ => None,
        }
    }
}

/// Whether a conflict is one of these. What a manager has set to a value of another type it owns as one value, and the
/// API server names that; the forecast names what is declared below it.
fn is_among((manager, path): &(String, String), met: &Met) -> bool {
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    met.iter().any(|(other, at)| other == manager && (is_within(path, at) || is_within(at, path)))
}
