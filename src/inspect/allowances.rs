//! The temporary exceptions of a cluster.
//!
//! Entry points: [`read`], [`Row::of`]. Invariant: reads only.

use jiff::Timestamp;
use serde::Serialize;

use super::failure::{Failure, failed};
use crate::client::allowances;
use crate::client::connection::Connection;
use crate::policy::allowance::Allowance;
use crate::policy::resource::{AllowedObject, DriftAllowance};

/// One allowance in an answer.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) object: AllowedObject,
    pub(crate) paths: Vec<String>,
    pub(crate) until: String,
    pub(crate) state: State,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) flaws: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) enum State {
    /// It counts now.
    Open,
    /// It counts no more.
    Ended,
    /// It never counts.
    Invalid,
    /// It was deleted while the list was watched.
    Deleted,
}

/// The allowances in a namespace, or in all, that have these labels.
pub(crate) async fn read(
    connection: &Connection,
    namespace: Option<&str>,
    labels: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Row>, Failure> {
    let found = match allowances::labelled(&connection.client, namespace, labels).await {
        Ok(found) => found,
        // Without the CustomResourceDefinition there are none.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(failed(connection, "list the allowances", error)),
    };
    let mut rows: Vec<_> = found.into_iter().map(|allowance| Row::of(allowance, now)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.until, &a.name).cmp(&(&b.namespace, &b.until, &b.name)));
    Ok(rows)
}

impl Row {
    /// The state of an allowance.
    pub(crate) fn of(allowance: DriftAllowance, now: Timestamp) -> Self {
        let (state, flaws) = match Allowance::compile(&allowance) {
            Ok(compiled) if compiled.open(now) => (State::Open, Vec::new()),
            Ok(_) => (State::Ended, Vec::new()),
            Err(flaws) => (State::Invalid, flaws.iter().map(ToString::to_string).collect()),
        };
        let DriftAllowance { metadata, spec } = allowance;
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            object: spec.object,
            paths: spec.paths,
            until: spec.until,
            state,
            by: spec.requested_by.map(|by| by.user).unwrap_or_default(),
            reason: spec.reason.unwrap_or_default(),
            flaws,
        }
    }
}
