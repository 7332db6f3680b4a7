//! An edit, judged by server-side apply and by the guard.
//!
//! Entry point: [`OracleScene::judge_release`]. Server-side apply is the judge: an edit drifts if Helm, applying its manifest
//! by force afterwards, would change anything. What makes the API server refuse the manifest as invalid drifts too: the
//! object before the edit took it, so the edit has changed something that is declared.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::draw::Draw;
use super::edits::EditSteps;
use super::gadgets::is_one_value;
use super::meaning::{is_reordered, is_same};
use super::scene::{AT_ONCE, Object, OracleRelease, OracleScene, content};
use crate::support::Answer;

/// What was found so far.
#[derive(Default)]
pub(super) struct VerdictTally {
    pub(super) drift: usize,
    pub(super) harmless: usize,
    /// What the API server takes from nobody.
    pub(super) invalid: usize,
    /// What server-side apply itself fails on.
    pub(super) unjudged: Vec<String>,
    /// What it takes for the twin and not for the object, for another reason than the guard's.
    pub(super) skewed: Vec<String>,
    pub(super) disagreements: Vec<Disagreement>,
    /// What Helm could not write because of the guard.
    pub(super) helm_refused: Vec<String>,
    /// What the guard says of releases that nobody has edited.
    pub(super) out_of_sync: Vec<String>,
}

/// An edit of which guard and judge have different opinions.
pub(super) struct Disagreement {
    /// Kind, way of the edit, and what the guard did.
    pub(super) class: String,
    /// A row for `drift.yaml`, and where it comes from.
    pub(super) row: String,
}

/// What an edit turned out to be.
enum Judged {
    Invalid,
    Unjudged(String),
    Skewed(String),
    Done(Opinions),
}

/// What judge and guard make of an edit.
struct Opinions {
    /// The twin after the edit, and as Helm would leave it then.
    edited: Value,
    applied: Value,
    drifts: bool,
    refused: bool,
}

impl VerdictTally {
    /// Edits with an opinion of the judge.
    pub(super) fn judged(&self) -> usize {
        self.drift + self.harmless
    }

    pub(super) fn add(&mut self, other: Self) {
        self.drift += other.drift;
        self.harmless += other.harmless;
        self.invalid += other.invalid;
        self.unjudged.extend(other.unjudged);
        self.skewed.extend(other.skewed);
        self.disagreements.extend(other.disagreements);
        self.helm_refused.extend(other.helm_refused);
        self.out_of_sync.extend(other.out_of_sync);
    }

    /// The counts, and the disagreements by their class.
    pub(super) fn summary(&self) -> String {
        let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
        for disagreement in &self.disagreements {
            *classes.entry(&disagreement.class).or_default() += 1;
        }
        let classes: String = classes.iter().map(|(class, count)| format!("\n  {count:5} {class}")).collect();
        format!(
            "{} edits judged: {} drift, {} do not; {} invalid, {} unjudged, {} skewed; {} writes of Helm refused; {} \
             releases out of sync; {} disagreements{classes}",
            self.judged(),
            self.drift,
            self.harmless,
            self.invalid,
            self.unjudged.len(),
            self.skewed.len(),
            self.helm_refused.len(),
            self.out_of_sync.len(),
            self.disagreements.len(),
        )
    }
}

impl OracleScene {
    /// Makes so many edits of every object of a release.
    pub(super) async fn judge_release(&self, release: &OracleRelease, edits: u64) -> VerdictTally {
        self.wait_until_guarded(release).await;
        let mut tally = VerdictTally { helm_refused: release.refused.clone(), ..VerdictTally::default() };
        let drifts = self.wait_for_sync(release).await;
        tally.out_of_sync.extend(drifts.err().map(|said| format!("seed {}: {said}", release.seed)));
        let judging = futures::stream::iter(&release.objects)
            .map(|object| self.judge_object(release.seed, object, edits));
        let tallies: Vec<VerdictTally> = judging.buffer_unordered(AT_ONCE).collect().await;
        tallies.into_iter().for_each(|other| tally.add(other));
        tally
    }

    async fn judge_object(&self, seed: u64, object: &Object, edits: u64) -> VerdictTally {
        let mut tally = VerdictTally::default();
        for number in 0..edits {
            let mut draw = Draw::new(seed, [object.index, number, 1]);
            let Some(edit) = EditSteps::draw(&mut draw, object.kind, &object.twin.live) else { continue };
            if is_derived_from(&object.manifest, &edit.patch()) {
                continue;
            }
            match self.judge(object, &edit).await {
                Judged::Invalid => tally.invalid += 1,
                Judged::Unjudged(said) => {
                    tally.unjudged.push(format!("seed {seed}: {}: {said}", edit.patch()))
                }
                Judged::Skewed(said) => tally.skewed.push(format!("seed {seed}: {}: {said}", edit.patch())),
                Judged::Done(opinions) => {
                    *if opinions.drifts { &mut tally.drift } else { &mut tally.harmless } += 1;
                    if opinions.drifts != opinions.refused
                        && let Some(opinions) = self.again(object, &edit).await
                    {
                        let (edit, opinions) = self.shrunk(object, edit, opinions).await;
                        tally.disagreements.push(disagreement(seed, object, &edit, &opinions));
                    }
                }
            }
        }
        tally
    }

    /// Does an edit to the twin and asks what Helm would change afterwards, and tries it on the object.
    async fn judge(&self, object: &Object, edit: &EditSteps) -> Judged {
        let (twin, patch) = (&object.twin, edit.patch());
        if is_one_value(self.control_plane.minor(), object.kind, &patch) {
            return Judged::Unjudged(
                "to this version of Kubernetes what lies around is one value".to_owned(),
            );
        }
        let Ok(edited) = self.alice.patch_all(&twin.path, &patch).await.done() else {
            return Judged::Invalid;
        };
        let dry = format!("{}?dryRun=All", object.path);
        let (applied, tried) =
            tokio::join!(self.apply(twin, "&dryRun=All"), self.alice.patch_all(&dry, &patch));
        self.reset(twin, &edited).await;
        match (applied, is_refused(&tried)) {
            (Err(said), Some(refused)) if said.starts_with("422 ") => {
                let (edited, applied) = (content(&edited), Value::Null);
                Judged::Done(Opinions { edited, applied, drifts: true, refused })
            }
            (Err(said), _) => Judged::Unjudged(said),
            (Ok(_), None) => Judged::Skewed(tried.to_string()),
            (Ok(applied), Some(refused)) => {
                let (edited, applied) = (content(&edited), content(&applied));
                let drifts = !is_same(&edited, &applied) || is_reordered(&content(&twin.live), &edited);
                Judged::Done(Opinions { edited, applied, drifts, refused })
            }
        }
    }

    /// The opinions on an edit that was judged before, if they differ once more. What a busy guard has not answered in
    /// time the API server lets through: that is no opinion.
    async fn again(&self, object: &Object, edit: &EditSteps) -> Option<Opinions> {
        match self.judge(object, edit).await {
            Judged::Done(opinions) => (opinions.drifts != opinions.refused).then_some(opinions),
            _ => None,
        }
    }

    /// One step of the edit, if that is enough for the same disagreement.
    async fn shrunk(&self, object: &Object, edit: EditSteps, whole: Opinions) -> (EditSteps, Opinions) {
        if edit.steps.len() > 1 {
            for step in &edit.steps {
                let alone = EditSteps { steps: vec![step.clone()] };
                if let Judged::Done(opinions) = self.judge(object, &alone).await
                    && (opinions.drifts, opinions.refused) == (whole.drifts, whole.refused)
                {
                    return (alone, opinions);
                }
            }
        }
        (edit, whole)
    }
}

/// Whether the guard refused it; none if somebody else did.
pub(super) fn is_refused(answer: &Answer) -> Option<bool> {
    let by_guard = answer.body["message"].as_str().is_some_and(|said| said.contains("denied the request"));
    match answer.code {
        200 | 201 => Some(false),
        403 if by_guard => Some(true),
        _ => None,
    }
}

fn disagreement(seed: u64, object: &Object, edit: &EditSteps, opinions: &Opinions) -> Disagreement {
    let drifts = opinions.drifts;
    let pointers = edit.pointers();
    let cut = |whole: &Value| {
        let mut part = json!({});
        pointers.iter().for_each(|pointer| keep(whole, pointer, &mut part));
        part
    };
    let kind = format!("{} {}", object.manifest["apiVersion"].as_str().unwrap(), object.kind.name);
    let row = json!({
        "kind": kind, "declared": cut(&object.manifest), "live": cut(&opinions.edited),
        "is": if drifts { "Differs" } else { "Agrees" },
    });
    let said = if drifts { "let through" } else { "refused" };
    let at = pointers.first().map(|pointer| top(pointer)).unwrap_or_default();
    Disagreement {
        class: format!("{} {} {at}: {said}", object.kind.name, edit.way()),
        row: format!(
            "- {row}\n  # seed {seed}, object {}, {} {said}; old: {}; by Helm: {}; edit: {}; manifest: {}",
            object.index,
            edit.way(),
            cut(&content(&object.twin.live)),
            cut(&opinions.applied),
            edit.patch(),
            object.manifest,
        ),
    }
}

/// Whether an edit is of what the API server derives a value from that is declared empty: it does so anew only with the
/// next write of Helm, and docs/equality.md says so, also that a service account is held to nevertheless.
fn is_derived_from(manifest: &Value, patch: &Value) -> bool {
    let spec = &manifest["spec"];
    let edits = |field: &str| {
        let is_there =
            |path: &str| path == field || path.strip_prefix(field).is_some_and(|it| it.starts_with('/'));
        patch.as_array().into_iter().flatten().any(|it| it["path"].as_str().is_some_and(is_there))
    };
    let is_void = |value: &Value| {
        value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
    };
    let pods = ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
    let accounts = pods.map(|pod| format!("{pod}/serviceAccountName"));
    if accounts.iter().any(|account| manifest.pointer(account).is_some_and(is_void) && edits(account)) {
        return true;
    }
    match manifest["kind"].as_str() {
        Some("Service") => {
            let mut ports =
                spec["ports"].as_array().into_iter().flatten().filter_map(|port| port.get("nodePort"));
            ports.any(|port| port.is_null() || port == 0) && edits("/spec/allocateLoadBalancerNodePorts")
        }
        Some("NetworkPolicy") => {
            spec.get("policyTypes").is_some_and(is_void) && (edits("/spec/egress") || edits("/spec/ingress"))
        }
        _ => false,
    }
}

/// Where a pointer leads, without numbers and without names of no schema.
fn top(pointer: &str) -> String {
    pointer
        .split('/')
        .skip(1)
        .filter(|token| token.parse::<usize>().is_err() && *token != "-")
        .take(7)
        .collect::<Vec<_>>()
        .join("/")
}

/// Copies what a pointer leads to, whole lists included.
fn keep(whole: &Value, pointer: &str, part: &mut Value) {
    let (mut from, mut to) = (whole, part);
    for token in pointer.split('/').skip(1) {
        let name = token.replace("~1", "/").replace("~0", "~");
        let Some(next) = from.as_object().and_then(|map| map.get(&name)) else { break };
        from = next;
        to = to.as_object_mut().unwrap().entry(name).or_insert(json!({}));
        if !from.is_object() {
            *to = from.clone();
            return;
        }
    }
    if to.as_object().is_some_and(|map| map.is_empty()) {
        *to = from.clone();
    }
}
