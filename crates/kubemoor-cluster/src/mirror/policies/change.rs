//! The changes of policies, for a history of them.
//!
//! Entry points: `PolicyChange::of`, [`FileChange`]. Invariant: tells of each state of a policy the same to every guard, also after a
//! restart, so that it can be kept once.

use jiff::Timestamp;
use serde_json::Value;

use crate::mirror::managed::writer;

/// The change of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyFate {
    /// It is there.
    Created,
    /// It says something else than before.
    Changed,
    /// It is gone.
    Deleted,
}

/// One change of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// What became of it.
    pub fate: PolicyFate,
    /// The field manager that wrote it last; empty where none is named.
    pub manager: String,
    /// The time of that; `None` if it is unknown.
    pub time: Option<Timestamp>,
}

/// One change of a policy in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The policy's name.
    pub policy: String,
    /// The file's name.
    pub file: String,
    /// What became of the policy.
    pub fate: PolicyFate,
    /// What tells this change from all others, the same to every guard that reads the same file.
    pub same: String,
}

impl PolicyChange {
    /// A policy as it is now.
    pub(super) fn of(object: &Value) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let (manager, time) = writer(object).unwrap_or_default();
        Self {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            generation,
            fate: if generation <= 1 { PolicyFate::Created } else { PolicyFate::Changed },
            manager,
            time,
        }
    }

    /// A deleted policy, with the known facts.
    pub(super) fn deleted(name: &str, uid: &str, generation: i64) -> Self {
        let (name, uid) = (name.to_owned(), uid.to_owned());
        Self { name, uid, generation, fate: PolicyFate::Deleted, manager: String::new(), time: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn last_manager_of_the_spec_wrote_the_policy() {
        let object = json!({"metadata": {
            "name": "production", "uid": "u", "generation": 2,
            "managedFields": [
                {"manager": "kubectl-edit", "time": "2026-05-01T12:00:00Z", "fieldsV1": {"f:spec": {"f:edits": {}}}},
                {"manager": "kubectl", "time": "2026-04-01T12:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "kubemoor", "time": "2026-06-01T12:00:00Z", "fieldsV1": {"f:status": {}}},
            ],
        }});
        let change = PolicyChange::of(&object);
        assert_eq!((change.manager.as_str(), change.fate), ("kubectl-edit", PolicyFate::Changed));
        assert_eq!(change.time, Some("2026-05-01T12:00:00Z".parse().unwrap()));
        let mut tie = object;
        tie["metadata"]["managedFields"][1]["time"] = json!("2026-05-01T12:00:00Z");
        assert_eq!(PolicyChange::of(&tie).manager, "kubectl-edit or kubectl");
        let new = PolicyChange::of(&json!({"metadata": {"name": "a", "generation": 1}}));
        assert_eq!((new.fate, new.manager.as_str(), new.time), (PolicyFate::Created, "", None));
    }
}
