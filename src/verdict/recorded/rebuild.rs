//! Rebuilds the facts of an edit from the stored form.
//!
//! Entry points: the methods that return facts. Invariant: a part that cannot be read gives `None`,
//! never another value. Must not judge.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::recording::{NAMESPACE_NAME, helms};
use super::{
    RecordedAllowance, RecordedAlternative, RecordedChange, RecordedDeclaration, RecordedEdit,
    RecordedRecordEdit, RecordedRelease,
};
use crate::declaration::catalog::KindFacts;
use crate::declaration::declare::declare;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::helm::release::{AllowAnnotations, Declared};
use crate::model::{Actor, Autoscaler, ObjectId, ReleaseId};
use crate::policy::allowance::Allowance;
use crate::policy::grant::Grant;
use crate::policy::resolver::Labels;
use crate::verdict::circumstances::Circumstances;
use crate::verdict::edit::Reason;
use crate::verdict::facts::{AlternativeFacts, ChangeFacts};
use crate::verdict::records::RecordFacts;

impl RecordedEdit {
    /// Other knowledge about `object` at that time.
    pub(in crate::verdict) fn circumstances(&self, object: &ObjectId) -> Option<Circumstances> {
        let allowances = self.allowances.iter().map(|it| it.allowance(object));
        let autoscalers = self.autoscalers.iter().map(|it| {
            let by = |(namespace, name): &(String, String)| ReleaseId {
                namespace: namespace.clone().into(),
                name: name.clone().into(),
            };
            Autoscaler {
                minimum: it.minimum,
                maximum: it.maximum,
                by_keda: it.keda,
                declared_by: it.declared.iter().map(by).collect(),
            }
        });
        Some(Circumstances {
            allowances: allowances.collect::<Option<_>>()?,
            autoscalers: autoscalers.collect(),
            ..Circumstances::default()
        })
    }

    /// The field manager that the request named.
    pub fn manager(&self) -> &str {
        &self.manager
    }
}

impl RecordedRecordEdit {
    pub(in crate::verdict) fn facts(&self) -> RecordFacts {
        let releases = self.releases.iter().map(RecordedRelease::id).collect();
        RecordFacts { revision: self.revision, releases, falsified: self.falsified }
    }
}

impl RecordedRelease {
    pub(in crate::verdict) fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() }
    }

    /// The labels of its namespace.
    pub(in crate::verdict) fn labels(&self) -> Labels {
        let mut labels = self.labels.clone();
        if !self.unnamed {
            labels.entry(NAMESPACE_NAME.to_owned()).or_insert_with(|| self.namespace.clone());
        }
        labels
    }
}

impl RecordedAllowance {
    /// `None` if a path cannot be read.
    fn allowance(&self, object: &ObjectId) -> Option<Arc<Allowance>> {
        Some(Arc::new(Allowance {
            name: String::new(),
            namespace: self.namespace.clone(),
            object: ObjectId { namespace: None, ..object.clone() },
            grant: Grant::parse(self.paths.iter().map(String::as_str))?,
            // It was open when it was stored.
            until: Timestamp::MAX,
            reason: String::new(),
            by: Actor::default(),
            version: (String::new(), 0),
            created: None,
        }))
    }
}

impl RecordedAlternative {
    /// `None` if a path cannot be read.
    pub(in crate::verdict) fn facts(&self, declared: Arc<Declared>) -> Option<AlternativeFacts> {
        let changes = self.changes.iter().map(RecordedChange::facts).collect::<Option<_>>()?;
        let (fields, seal) = (declared.fields(), self.seal.clone());
        Some(AlternativeFacts { declared, fields, changes, reason: Reason::Unchanged, seal })
    }
}

impl RecordedDeclaration {
    /// An object of `release` with nothing but the stored parts.
    pub(in crate::verdict) fn declared(&self, release: &ReleaseId) -> Option<Declared> {
        let map = |name: &str, texts: &BTreeMap<String, Value>| -> Map<String, Value> {
            let own = helms(release).into_iter().filter(|(of, ..)| *of == name);
            let own = own.map(|(_, key, text)| (key.to_owned(), Value::from(text)));
            own.chain(texts.iter().map(|(name, value)| (name.clone(), value.clone()))).collect()
        };
        let (labels, annotations) = (map("labels", &self.labels), map("annotations", &self.annotations));
        let fields = declare(&json!({"metadata": {"labels": labels, "annotations": annotations}}), None);
        let allow = AllowAnnotations { allow: self.allow.clone(), until: self.until.clone(), reason: None };
        let scale = self.scale.as_deref().map(str::parse).transpose().ok()?;
        // Nothing else about the kind is recorded, and no verdict reads it.
        let facts =
            scale.map(|path| Arc::new(KindFacts { scale_replicas_path: Some(path), ..KindFacts::default() }));
        Some(Declared {
            packed: fields.into(),
            allow: allow.allow.is_some().then(|| Box::new(allow)),
            version: self.version.as_str().into(),
            facts,
            keep: false,
            opted_out: false,
            weight: 0,
            digest: None,
        })
    }
}

impl RecordedChange {
    pub(in crate::verdict) fn path(&self) -> Option<Path> {
        self.path.parse().ok()
    }

    fn facts(&self) -> Option<ChangeFacts> {
        let Self { path, is, kind, declared, old, new, cut: _ } = self;
        let (declared, old, new) = (declared.clone(), old.clone(), new.clone());
        let change = FieldChange { path: path.parse().ok()?, declared, old, new, agreement: *is };
        Some(ChangeFacts { change, kind: *kind })
    }
}
