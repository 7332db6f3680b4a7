//! Writes the facts of an edit in their stored form.
//!
//! Entry point: [`text`]. Invariant: no stored text has more than [`MOST`] bytes, whatever an editor or a manifest
//! contains, and none holds a Secret's value. Must not judge.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::super::circumstances::Circumstances;
use super::super::facts::{AlternativeFacts, ChangeFacts, ClaimFacts, EditFacts, Facts};
use super::super::records::RecordFacts;
use super::super::shown;
use super::{
    RecordedAllowance, RecordedAlternative, RecordedAutoscaler, RecordedChange, RecordedClaim,
    RecordedDeclaration, RecordedEdit, RecordedFacts, RecordedRecordEdit, RecordedRelease,
};
use kubemoor_declare::fields::{FieldChange, Fields};
use kubemoor_declare::model::{MANAGED_BY, ObjectId, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::PolicyResolver;

/// The most bytes that are stored of one edit.
pub const MOST: usize = 4 << 10;

/// Room for the text of most edits, in bytes.
const ROOM: usize = 2 << 10;

/// The most bytes of the JSON of a value that is kept.
const VALUE: usize = 120;

/// The most differences, and the most exceptions, that are kept of one edit.
const LIST: usize = 100;

/// The most labels, and the most annotations, that are kept.
const TEXTS: usize = 64;

/// The most bytes of the JSON of a label or an annotation that is kept.
const TEXT: usize = 256;

/// The label by which the API server names every namespace, since Kubernetes 1.21.
pub(super) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The edit that facts are about.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// Its object.
    pub object: &'a ObjectId,
    /// Whether it came by the `scale` subresource.
    pub scale: bool,
    /// The field manager that the request named.
    pub manager: &'a str,
    /// The policies in force, which know the labels of cluster and namespaces.
    pub resolver: &'a PolicyResolver,
    /// When it was judged.
    pub now: Timestamp,
}

/// The stored text of an edit.
pub fn text(facts: &Facts, recording: Recording<'_>) -> String {
    let recorded = match facts {
        Facts::Edit(facts) => recording.edit(facts).map(RecordedFacts::Edit),
        Facts::Record(facts) => Some(RecordedFacts::Record(recording.record_edit(facts))),
    };
    // Text and numbers can always be written.
    let text = |facts: &RecordedFacts| {
        let mut text = Vec::with_capacity(ROOM);
        serde_json::to_writer(&mut text, facts)
            .map(|()| String::from_utf8(text).unwrap_or_default())
            .unwrap_or_default()
    };
    recorded.map(|it| text(&it)).filter(|it| it.len() <= MOST).unwrap_or_else(|| text(&RecordedFacts::Cut))
}

impl Recording<'_> {
    /// `None` if there is more than can be stored.
    fn edit(&self, facts: &EditFacts) -> Option<RecordedEdit> {
        let EditFacts { claims, unheard, circumstances } = facts;
        let Circumstances { allowances, autoscalers, .. } = circumstances;
        let counts = |allowance: &Allowance| {
            allowance.open(self.now) && claims.iter().any(|it| allowance.is_for(self.object, &it.release))
        };
        let changes = claims.iter().flat_map(|it| &it.alternatives).map(|it| it.changes.len()).sum::<usize>();
        if changes > LIST || allowances.len() > LIST || autoscalers.len() > LIST {
            return None;
        }
        let is_scaled = !autoscalers.is_empty();
        let open = allowances.iter().filter(|allowance| counts(allowance));
        let allowances = open.map(|it| {
            let paths = it.grant.paths().take(LIST + 1).collect();
            RecordedAllowance { namespace: it.namespace.clone(), paths }
        });
        let autoscalers = autoscalers.iter().map(|it| RecordedAutoscaler {
            minimum: it.minimum,
            maximum: it.maximum,
            keda: it.by_keda,
            declared: it
                .declared_by
                .iter()
                .map(|by| (by.namespace.to_string(), by.name.to_string()))
                .collect(),
        });
        Some(RecordedEdit {
            claims: claims.iter().map(|claim| self.claim(claim, is_scaled)).collect(),
            unheard: *unheard,
            scale: self.scale,
            manager: self.manager.chars().take(TEXT).collect(),
            allowances: allowances.collect(),
            autoscalers: autoscalers.collect(),
            cluster: self.resolver.policies().cluster().clone(),
        })
    }

    fn record_edit(&self, facts: &RecordFacts) -> RecordedRecordEdit {
        let RecordFacts { revision, releases, falsified } = facts;
        RecordedRecordEdit {
            revision: *revision,
            releases: releases.iter().map(|release| self.release(release)).collect(),
            falsified: *falsified,
            cluster: self.resolver.policies().cluster().clone(),
        }
    }

    fn claim(&self, claim: &ClaimFacts, is_scaled: bool) -> RecordedClaim {
        let ClaimFacts { release, revision, pending, authorised, evidence, alternatives, unweighed } = claim;
        let of = |facts: &AlternativeFacts| self.alternative(facts, release, is_scaled);
        RecordedClaim {
            release: self.release(release),
            revision: *revision,
            pending: *pending,
            authorised: *authorised,
            evidence: *evidence,
            alternatives: alternatives.iter().map(of).collect(),
            unweighed: *unweighed,
        }
    }

    fn release(&self, release: &ReleaseId) -> RecordedRelease {
        let [namespace, name] = [&release.namespace, &release.name].map(ToString::to_string);
        let mut labels = self.resolver.labels_of(&namespace);
        let unnamed = !labels.contains_key(NAMESPACE_NAME);
        if labels.get(NAMESPACE_NAME) == Some(&namespace) {
            labels.remove(NAMESPACE_NAME);
        }
        RecordedRelease { namespace, name, labels, unnamed }
    }

    fn alternative(
        &self,
        facts: &AlternativeFacts,
        release: &ReleaseId,
        is_scaled: bool,
    ) -> RecordedAlternative {
        let AlternativeFacts { declared, fields, changes, reason: _, seal } = facts;
        let mut recorded = RecordedDeclaration {
            version: declared.version.to_string(),
            allow: declared.allow.as_ref().and_then(|it| it.allow.clone()),
            until: declared.allow.as_ref().and_then(|it| it.until.clone()),
            scale: declared.scale().filter(|_| is_scaled).map(ToString::to_string),
            ..RecordedDeclaration::default()
        };
        recorded.cut |= !self.add_texts(fields, "labels", release, &mut recorded.labels);
        recorded.cut |= !self.add_texts(fields, "annotations", release, &mut recorded.annotations);
        let changes = changes.iter().map(|change| self.change(change)).collect();
        RecordedAlternative { declared: recorded, changes, seal: seal.clone() }
    }

    /// Adds the labels or annotations of a manifest, without Helm's own. Returns whether these are
    /// all.
    fn add_texts(
        &self,
        fields: &Fields,
        map: &str,
        release: &ReleaseId,
        texts: &mut BTreeMap<String, Value>,
    ) -> bool {
        let mut is_whole = true;
        let helms = helms(release);
        for (name, value) in fields.entries(&["metadata", map]) {
            if helms.iter().any(|(of, key, text)| *of == map && *key == name && value == *text) {
                continue;
            }
            let path = Path(["metadata", map, name].map(|it| Segment::Field(it.to_owned())).into());
            match shown::whole(self.object, &path, &value, TEXT).filter(|_| texts.len() < TEXTS) {
                Some(value) => drop(texts.insert(name.to_owned(), value)),
                None => is_whole = false,
            }
        }
        is_whole
    }

    fn change(&self, facts: &ChangeFacts) -> RecordedChange {
        let ChangeFacts { change: FieldChange { path, declared, old, new, agreement }, kind, .. } = facts;
        let mut cut = false;
        let mut keep = |value: &Option<Value>| {
            let value = value.as_ref()?;
            let kept = shown::whole(self.object, path, value, VALUE);
            cut |= kept.is_none();
            Some(kept.unwrap_or(Value::Null))
        };
        let [declared, old, new] = [keep(declared), keep(old), keep(new)];
        RecordedChange {
            path: path.pointer().to_owned(),
            is: *agreement,
            kind: *kind,
            declared,
            old,
            new,
            cut,
        }
    }
}

/// Helm's label and annotations, which every object of a release has.
pub(super) fn helms(release: &ReleaseId) -> [(&'static str, &'static str, &str); 3] {
    [
        ("labels", MANAGED_BY.0, MANAGED_BY.1),
        ("annotations", RELEASE_NAME, &release.name),
        ("annotations", RELEASE_NAMESPACE, &release.namespace),
    ]
}
