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
use crate::circumstances::Circumstances;
use crate::edit::Reason;
use crate::facts::{AlternativeFacts, ChangeFacts};
use crate::records::RecordFacts;
use kubemoor_declare::catalog::KindFacts;
use kubemoor_declare::declare::declare;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{Actor, Autoscaler, ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::{AllowAnnotations, Declared};
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::grant::Grant;
use kubemoor_policy::resolver::Labels;

impl RecordedEdit {
    /// Other knowledge about `object` at that time.
    pub(crate) fn circumstances(&self, object: &ObjectId) -> Option<Circumstances> {
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
    pub(crate) fn facts(&self) -> RecordFacts {
        let releases = self.releases.iter().map(RecordedRelease::id).collect();
        RecordFacts { revision: self.revision, releases, falsified: self.falsified }
    }
}

impl RecordedRelease {
    pub(crate) fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() }
    }

    /// The labels of its namespace.
    pub(crate) fn labels(&self) -> Labels {
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
    pub(crate) fn facts(&self, declared: Arc<Declared>) -> Option<AlternativeFacts> {
        let changes = self.changes.iter().map(RecordedChange::facts).collect::<Option<_>>()?;
        let (fields, seal) = (declared.fields(), self.seal.clone());
        Some(AlternativeFacts { declared, fields, changes, reason: Reason::Unchanged, seal })
    }
}

impl RecordedDeclaration {
    /// An object of `release` with nothing but the stored parts.
    pub(crate) fn declared(&self, release: &ReleaseId) -> Option<Declared> {
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
    pub(crate) fn path(&self) -> Option<Path> {
        self.path.parse().ok()
    }

    fn facts(&self) -> Option<ChangeFacts> {
        let Self { path, is, kind, declared, old, new, cut: _ } = self;
        let (declared, old, new) = (declared.clone(), old.clone(), new.clone());
        let change = FieldChange { path: path.parse().ok()?, declared, old, new, agreement: *is };
        Some(ChangeFacts { change, kind: *kind, element: None })
    }
}
