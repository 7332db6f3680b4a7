//! Drift that the loop repairs, and what the next upgrade makes of the object.
//!
//! Entry point: [`OracleScene::repair_releases`]. A release has one object. The object and its twin are edited in the same
//! ways while the guard stands still; the guard repairs the object, and the twin is applied by force. Helm then upgrades
//! both, the object without force, and both have to be the same.

use serde_json::{Value, json};

use super::draw::Draw;
use super::edits::EditSteps;
use super::kinds::KINDS;
use super::meaning::is_same;
use super::scene::{Object, OracleRelease, OracleScene, content, without_choices};
use super::values::emptied;
use crate::support::{SOON, poll};

/// Releases that drift at once.
pub(super) const BATCH: u64 = 30;

/// Objects that do not drift: the loop stops where more than a tenth of all do.
pub(super) const BYSTANDERS: u64 = 12 * BATCH;

/// Draws of a changed manifest.
const TRIES: u64 = 20;

/// The ends of paths to fields by which elements of lists are told apart.
const KEYS: [&str; 7] = ["/name", "/port", "/protocol", "Port", "/mountPath", "/topologyKey", "/ip"];

/// The ends of paths to fields that an admission plugin or a controller may choose for a new object.
const CHOSEN: [&str; 4] = ["/ingressClassName", "/storageClassName", "/loadBalancerClass", "/loadBalancerIP"];

/// What was found.
#[derive(Default)]
pub(super) struct Findings {
    /// Objects that drifted, were repaired and upgraded.
    pub(super) repaired: usize,
    /// Objects whose edits were all harmless.
    pub(super) harmless: usize,
    /// Objects that server-side apply itself cannot put right, and so only the upgrade tells.
    pub(super) unjudged: usize,
    pub(super) failures: Vec<String>,
}

/// A release on its way.
struct Patient {
    release: OracleRelease,
    /// What the next revision declares.
    upgraded: Value,
    edits: Vec<EditSteps>,
    drifts: ServerDrift,
    /// What the guard says of it before anybody edits it.
    fault: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerDrift {
    None,
    Some,
    /// Server-side apply fails.
    Unknown,
    /// It fails because of an element that nobody declares, and so does an upgrade.
    Unappliable,
}

impl Findings {
    pub(super) fn add(&mut self, other: Self) {
        self.repaired += other.repaired;
        self.harmless += other.harmless;
        self.unjudged += other.unjudged;
        self.failures.extend(other.failures);
    }
}

impl OracleScene {
    /// Edits, repairs and upgrades a release for each of these seeds.
    pub(super) async fn repair_releases(&self, seeds: impl Iterator<Item = u64>) -> Findings {
        let patients: Vec<Option<Patient>> =
            futures::future::join_all(seeds.map(|seed| self.admit(seed))).await;
        let mut patients: Vec<Patient> = patients.into_iter().flatten().collect();
        self.guard.pause();
        futures::future::join_all(patients.iter_mut().map(|patient| patient.edit(self))).await;
        self.guard.resume();
        let discharged = patients.iter().map(|patient| patient.discharge(self));
        let mut findings = Findings::default();
        for (patient, outcome) in patients.iter().zip(futures::future::join_all(discharged).await) {
            match (outcome, patient.drifts) {
                (Err(said), _) => findings.failures.push(patient.describe(&said)),
                (Ok(()), ServerDrift::None) => findings.harmless += 1,
                (Ok(()), ServerDrift::Some) => findings.repaired += 1,
                (Ok(()), ServerDrift::Unknown | ServerDrift::Unappliable) => findings.unjudged += 1,
            }
        }
        for patient in &patients {
            self.remove(&patient.release).await;
        }
        findings
    }

    /// Installs a release of one object and waits until the guard has seen it as it is declared.
    async fn admit(&self, seed: u64) -> Option<Patient> {
        let repaired: Vec<u64> =
            (0..).zip(KINDS).filter(|(_, kind)| kind.is_repaired).map(|(at, _)| at).collect();
        // Neighbouring seeds have different kinds.
        let kind = repaired[usize::try_from(seed).unwrap() % repaired.len()];
        let release = self.install(seed, [kind]).await;
        let object = release.objects.first()?;
        let (upgraded, at) = self.upgraded(&release, object).await?;
        let mut patient =
            Patient { release, upgraded, edits: Vec::new(), drifts: ServerDrift::None, fault: None };
        patient.plan(&at);
        patient.fault = self.wait_for_sync(&patient.release).await.err();
        Some(patient)
    }

    /// A manifest with another value of one field, which the API server takes, and that field.
    async fn upgraded(&self, release: &OracleRelease, object: &Object) -> Option<(Value, String)> {
        for number in 0..TRIES {
            let mut draw = Draw::new(release.seed, [object.index, number, 2]);
            let (manifest, at) = EditSteps::changed(&mut draw, &object.manifest)?;
            let path = format!("{}?fieldManager=helm&dryRun=All", object.twin.path);
            let applied = self.helm.apply(&path, &release.twin_document(object, &manifest)).await.done();
            if applied.is_ok_and(|applied| content(&applied) != content(&object.twin.live)) {
                return Some((manifest, at));
            }
        }
        None
    }
}

impl Patient {
    fn object(&self) -> &Object {
        &self.release.objects[0]
    }

    /// Draws one to four edits, more often than not also of the field that the upgrade changes.
    fn plan(&mut self, at: &str) {
        let mut draw = Draw::new(self.release.seed, [self.object().index, 0, 3]);
        let live = &self.object().twin.live;
        let mut edits: Vec<EditSteps> = (0..1 + draw.below(3))
            .filter_map(|_| EditSteps::draw(&mut draw, self.object().kind, live))
            .collect();
        // An editor who makes the element that the upgrade is to add rightly stops it.
        let is_key = KEYS.iter().any(|key| at.ends_with(key));
        if draw.chance(60) && !is_key {
            edits.extend(EditSteps::of(&mut draw, live, at));
        }
        let added = self.upgraded.pointer(at).filter(|_| is_key).map(Value::to_string);
        let adds =
            |edit: &EditSteps| added.as_ref().is_some_and(|key| edit.patch().to_string().contains(key));
        edits.retain(|edit| !adds(edit));
        let edits = edits.into_iter().map(EditSteps::without_node_ports);
        self.edits = edits.filter(|edit| !leaves_no_trace(&self.object().manifest, edit)).collect();
    }

    /// Edits the object and its twin.
    async fn edit(&mut self, scene: &OracleScene) {
        let mut done = Vec::new();
        for edit in &self.edits {
            let path = |path: &str| format!("{path}?fieldManager=kubectl-edit");
            let (patch, twin) = (edit.patch(), path(&self.object().twin.path));
            let tried = scene.alice.patch_all(&format!("{twin}&dryRun=All"), &patch).await.done();
            let is_kept = tried.is_ok_and(|tried| !is_dropped(&self.object().manifest, &patch, &tried));
            if is_kept && scene.alice.patch_all(&twin, &patch).await.done().is_ok() {
                scene.alice.patch_all(&path(&self.object().path), &patch).await.done().unwrap();
                done.push(edit.clone());
            }
        }
        let twin = &self.object().twin;
        let edited = scene.alice.get(&twin.path).await.done().unwrap();
        self.drifts = match scene.apply(twin, "").await {
            Err(said) if is_of_undeclared_element(&said, &self.object().manifest) => ServerDrift::Unappliable,
            Err(_) => ServerDrift::Unknown,
            Ok(applied) if is_same(&content(&edited), &content(&applied)) => ServerDrift::None,
            Ok(_) => ServerDrift::Some,
        };
        self.edits = done;
    }

    /// Waits until the object is repaired and has Helm upgrade it and its twin.
    async fn discharge(&self, scene: &OracleScene) -> Result<(), String> {
        if let Some(fault) = &self.fault {
            return Err(format!("it is not in sync after its installation: {fault}"));
        }
        if self.drifts == ServerDrift::Unappliable {
            return Ok(());
        }
        let (object, release) = (self.object(), &self.release);
        let document = release.document(object, &self.upgraded);
        let by_helm = format!("{}?fieldManager=helm", object.path);
        poll(SOON, || async {
            let same = format!("{by_helm}&force=true&dryRun=All");
            let applied =
                scene.helm.apply(&same, &release.document(object, &object.manifest)).await.done()?;
            let live = scene.alice.get(&object.path).await.done()?;
            let (applied, live) = (content(&applied), content(&live));
            if !is_same(&live, &applied) {
                return Err(format!("not repaired: it is {live}, and applied it would be {applied}"));
            }
            scene.helm.apply(&format!("{by_helm}&dryRun=All"), &document).await.done().map(drop)
        })
        .await?;
        let synced = scene.wait_for_sync(release).await;
        synced.map_err(|said| format!("not in sync after its repair: {said}"))?;
        release.record(scene, 2, "pending-upgrade", Some(&self.upgraded)).await;
        let now = scene.helm.apply(&by_helm, &document).await.done()?;
        release.record(scene, 1, "superseded", None).await;
        release.record(scene, 2, "deployed", Some(&self.upgraded)).await;
        if self.drifts == ServerDrift::Unknown {
            return Ok(());
        }
        let twin = format!("{}?fieldManager=helm&force=true", object.twin.path);
        let twin = scene.helm.apply(&twin, &release.twin_document(object, &self.upgraded)).await.done()?;
        let (now, twin) = (comparable(&now), comparable(&twin));
        // Helm alone leaves an element that somebody renamed beside the declared one.
        let mut renamed = 0;
        let twin_without = without_renamed(&twin, &now, &mut renamed);
        if is_same(&now, &twin) || is_same(&now, &twin_without) && renamed <= self.changes() {
            return Ok(());
        }
        if self.made_anew(scene).await.is_ok_and(|anew| is_same(&now, &anew)) {
            return Ok(());
        }
        // Some servers do not check the pods of a StatefulSet: Helm alone leaves what excludes a declared field beside it.
        if object.kind.name == "StatefulSet" && !self.can_be_pods(scene, &twin).await {
            return Ok(());
        }
        Err(format!("it became {now}, and by Helm alone {twin}"))
    }

    /// How many edits may have renamed an element, or removed one that another edit has made again: by Helm alone it
    /// outlives an upgrade that drops it.
    fn changes(&self) -> usize {
        let renames = |way: &str| ["change", "move", "remove", "reorder", "empty"].contains(&way);
        self.edits.iter().flat_map(|edit| &edit.steps).filter(|(way, _)| renames(way)).count()
    }

    /// The object as Helm would make it of the next revision if there had been none.
    async fn made_anew(&self, scene: &OracleScene) -> Result<Value, String> {
        let object = self.object();
        let mut document = self.release.twin_document(object, &self.upgraded);
        document["metadata"]["name"] = json!("anew");
        let (kind, _) = object.twin.path.rsplit_once('/').unwrap();
        let path = format!("{kind}/anew?fieldManager=helm&dryRun=All");
        let mut anew = scene.helm.apply(&path, &document).await.done()?;
        anew["metadata"]["name"] = object.manifest["metadata"]["name"].clone();
        Ok(comparable(&anew))
    }

    /// Whether the API server takes the pods of a StatefulSet in another kind.
    async fn can_be_pods(&self, scene: &OracleScene, set: &Value) -> bool {
        let spec = json!({"selector": set["spec"]["selector"], "template": set["spec"]["template"]});
        let document =
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "pods"}, "spec": spec});
        let (kind, _) = self.object().twin.path.rsplit_once('/').unwrap();
        let path = format!("{}?dryRun=All", kind.replace("statefulsets", "daemonsets"));
        scene.helm.post(&path, &document).await.done().is_ok()
    }

    fn describe(&self, said: &str) -> String {
        let edits: Vec<String> =
            self.edits.iter().map(|edit| format!("{} {}", edit.way(), edit.patch())).collect();
        format!(
            "seed {} {}: {said}\n  edits: {}\n  manifest: {}\n  upgraded: {}",
            self.release.seed,
            self.object().kind.name,
            edits.join("; "),
            self.object().manifest,
            self.upgraded,
        )
    }
}

/// Whether a failure of server-side apply is of a list element without its key, or twice there, that the manifest does
/// not declare.
fn is_of_undeclared_element(said: &str, manifest: &Value) -> bool {
    let doubled =
        said.split_once("duplicate entries for key [name=").and_then(|(_, key)| key.split(']').next());
    let is_declared = |key: &str| manifest.to_string().contains(&format!("\"name\":{key}"));
    said.contains("omits") || doubled.is_some_and(|key| !is_declared(key))
}

/// Whether the API server keeps nothing of a declared field that a patch sets, as a feature gate is off. It notes the editor
/// as the owner all the same, and nobody returns what is not there.
fn is_dropped(manifest: &Value, patch: &Value, patched: &Value) -> bool {
    let is_empty = |value: &Value| *value == emptied(value);
    patch.as_array().unwrap().iter().any(|step| {
        let path = step["path"].as_str().unwrap();
        let is_declared = manifest.pointer(path).is_some();
        is_declared && !is_empty(&step["value"]) && patched.pointer(path).is_none()
    })
}

/// Whether an edit sets what a custom resource declares null, or removes what it declares zero, or sets what the cluster
/// may choose for a new object. The webhook sees what goes; of a live object nobody can tell, and docs/equality.md says so.
fn leaves_no_trace(manifest: &Value, edit: &EditSteps) -> bool {
    let is_custom = manifest["kind"] == "Gadget";
    let is_lost = |step: &Value| {
        let path = step["path"].as_str().unwrap();
        match manifest.pointer(path) {
            Some(Value::Null) => is_custom || CHOSEN.iter().any(|field| path.ends_with(field)),
            // A step that removes has no value.
            Some(zero) if is_custom => {
                [json!(false), json!(0), json!("")].contains(zero) && step["value"].is_null()
            }
            _ => false,
        }
    };
    edit.patch().as_array().unwrap().iter().any(is_lost)
}

/// `twin` without the elements of its lists that `now` lacks, which are counted.
fn without_renamed(twin: &Value, now: &Value, renamed: &mut usize) -> Value {
    match (twin, now) {
        (Value::Object(twin), Value::Object(now)) => twin
            .iter()
            .map(|(name, value)| {
                let value =
                    now.get(name).map_or_else(|| value.clone(), |it| without_renamed(value, it, renamed));
                (name.clone(), value)
            })
            .collect(),
        (Value::Array(twin), Value::Array(now)) if twin.len() > now.len() => {
            *renamed += twin.len() - now.len();
            // One that has its name again keeps what nobody declares of it.
            let is_named = |element: &Value, name: &Value| !name.is_null() && element["name"] == *name;
            let has = |element: &&Value| {
                twin.contains(element) || twin.iter().any(|other| is_named(other, &element["name"]))
            };
            Value::Array(now.iter().filter(has).cloned().collect())
        }
        (Value::Array(twin), Value::Array(now)) if twin.len() == now.len() => {
            twin.iter().zip(now).map(|(twin, now)| without_renamed(twin, now, renamed)).collect()
        }
        _ => twin.clone(),
    }
}

/// An object's content without its namespace.
fn comparable(object: &Value) -> Value {
    let mut content = without_choices(object);
    content["metadata"]["namespace"] = json!(null);
    content
}
