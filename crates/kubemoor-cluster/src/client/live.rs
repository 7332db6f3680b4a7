//! A live object, and the facts in its metadata.
//!
//! Entry points: [`live`], [`sighting`]. Invariant: every stored object can be read: an object with too much nesting still
//! has its metadata, so that none can end a watch. `managedFields`, the largest part of many objects, are
//! reduced to the managers' names unless the caller asks for all.

mod peel;

use std::cmp::Reverse;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::peel::peel;
use super::resource::{Meta, Resource};
use super::watch::Form;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_reconcile::live::{Live, Manager, Sighting};

/// Objects on the first page of a list: whole ones may be large.
const PAGE: u32 = 50;

/// An object of a resource that is known from elsewhere.
pub(crate) struct Whole {
    meta: Meta,
    object: Option<Value>,
    managed: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Head<'t> {
    #[serde(borrow)]
    metadata: &'t RawValue,
}

pub(crate) fn live(resource: &Resource, whole: Whole) -> Live {
    let Whole { meta, object, managed } = whole;
    Live { sighting: sighting(resource, meta), object, managed }
}

impl Form for Whole {
    type Wire = Box<RawValue>;
    const PAGE: u32 = PAGE;
    const METADATA: bool = false;

    fn read(wire: Box<RawValue>) -> Self {
        let metadata = serde_json::from_str(wire.get()).map(|head: Head<'_>| head.metadata);
        let Ok(metadata) = metadata else {
            return Self { meta: Meta::default(), object: None, managed: None };
        };
        let meta = serde_json::from_str(metadata.get()).unwrap_or_default();
        let object = peel(wire.get(), "metadata").ok();
        let Some(((mut object, _), (metadata, managed))) =
            object.zip(peel(metadata.get(), "managedFields").ok())
        else {
            return Self { meta, object: None, managed: None };
        };
        object.insert("metadata".to_owned(), Value::Object(metadata));
        Self { meta, object: Some(Value::Object(object)), managed: managed.map(ToOwned::to_owned) }
    }

    fn version(&self) -> &str {
        &self.meta.resource_version
    }
}

pub(crate) fn sighting(resource: &Resource, meta: Meta) -> Sighting {
    let annotations = meta.annotations.unwrap_or_default();
    let release = ReleaseId::from_annotations(|key| annotations.get(key).cloned());
    let entries = meta.managed_fields.unwrap_or_default();
    let mut writers: Vec<_> =
        entries.iter().filter(|entry| entry.subresource.as_deref() != Some("status")).collect();
    writers.sort_by_key(|entry| Reverse(entry.time));
    let touched = writers.first().and_then(|entry| entry.time);
    let updating = writers.iter().filter(|entry| entry.operation.as_deref() != Some("Apply"));
    let updaters = updating.filter_map(|entry| entry.manager.clone()).collect();
    let mut managers: Vec<Manager> = entries
        .into_iter()
        .filter(|entry| {
            entry.owns_release_name() && entry.subresource.as_deref().unwrap_or_default().is_empty()
        })
        .filter_map(|entry| {
            Some(Manager { applies: entry.operation.as_deref() == Some("Apply"), name: entry.manager? })
        })
        .collect();
    managers.sort_by_key(|manager| !manager.applies);
    Sighting {
        id: ObjectId {
            group: resource.group.clone().into(),
            kind: resource.kind.clone().into(),
            namespace: meta.namespace.map(Into::into),
            name: meta.name.into(),
        },
        uid: meta.uid,
        resource_version: meta.resource_version,
        deleting: meta.deletion_timestamp,
        release,
        managers,
        updaters,
        touched,
    }
}

#[cfg(test)]
mod tests;
