//! The autoscalers of a workload, for a history of them.
//!
//! Entry points: [`Scaling`], `Life::of`. Invariant: tells of each state of an autoscaler the same to every guard, also
//! after a restart, so that it can be kept once. Pure.

use serde_json::Value;

use super::Taken;
use crate::mirror::managed::writer;
use kubemoor_declare::model::{Autoscaler, ObjectId, ReleaseId};

/// One autoscaler of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// The autoscaler's name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The fewest and the most replicas.
    pub range: (i32, i32),
    /// The releases that declare the autoscaler, or what made it.
    pub declared_by: Vec<ReleaseId>,
    /// The field manager that wrote its `spec` last, and when; empty where the object does not tell.
    pub written: (String, String),
}

/// What tells one state of an autoscaler from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
    uid: String,
    written: (String, String),
}

impl Life {
    /// That of an autoscaler.
    pub(super) fn of(object: &Value) -> Self {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (manager, time) = writer(object).unwrap_or_default();
        Self { uid, written: (manager, time.map(|time| time.to_string()).unwrap_or_default()) }
    }
}

impl Scaling {
    pub(super) fn of(id: &ObjectId, taken: &Taken, now: Autoscaler) -> Self {
        let Life { uid, written } = taken.life.clone();
        let Autoscaler { minimum, maximum, declared_by, .. } = now;
        Self { name: id.name.to_string(), uid, range: (minimum, maximum), declared_by, written }
    }
}
