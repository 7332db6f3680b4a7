//! The temporary exceptions of a cluster.
//!
//! Entry points: [`read`], [`rows`], [`one`], [`Row::of`]. Invariant: reads only.

use jiff::Timestamp;
use serde::Serialize;

use super::failure::{Failure, failed};
use kubemoor_cluster::client::allowances;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::definition::confirm_absence;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resource::{AllowedObject, DriftAllowance};

/// One allowance in an answer.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub namespace: String,
    pub name: String,
    /// The uid, by which the page ends this one and no other of its name.
    #[serde(skip)]
    pub uid: String,
    pub object: AllowedObject,
    pub paths: Vec<String>,
    pub until: String,
    pub state: State,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flaws: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub enum State {
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
pub async fn read(
    connection: &Connection,
    namespace: Option<&str>,
    labels: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Row>, Failure> {
    let found = match allowances::labelled(&connection.client, namespace, labels).await {
        Ok(found) => found,
        // Without the CustomResourceDefinition there are none.
        Err(error) => confirm_absence(&connection.client, &allowances::defined().plural, error)
            .await
            .map(|()| Vec::new())
            .map_err(|error| failed(connection, "list the allowances", error))?,
    };
    Ok(rows(found, now))
}

/// The state of these allowances, in order.
pub fn rows(found: Vec<DriftAllowance>, now: Timestamp) -> Vec<Row> {
    let mut rows: Vec<_> = found.into_iter().map(|allowance| Row::of(allowance, now)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.until, &a.name).cmp(&(&b.namespace, &b.until, &b.name)));
    rows
}

/// One allowance.
pub async fn one(
    connection: &Connection,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> Result<Row, Failure> {
    let read = allowances::read(&connection.client, namespace, name).await;
    let read = read.map_err(|error| failed(connection, "read the exception", error))?;
    let absent = || Failure::Named(format!("there is no exception {name} in namespace {namespace}"));
    let garbled = |error| {
        Failure::Named(format!("the exception {name} in namespace {namespace} is not valid: {error}"))
    };
    let allowance = serde_json::from_value(read.ok_or_else(absent)?).map_err(garbled)?;
    Ok(Row::of(allowance, now))
}

impl Row {
    /// The state of an allowance.
    pub fn of(allowance: DriftAllowance, now: Timestamp) -> Self {
        let (state, flaws) = match Allowance::compile(&allowance) {
            Ok(compiled) if compiled.open(now) => (State::Open, Vec::new()),
            Ok(_) => (State::Ended, Vec::new()),
            Err(flaws) => (State::Invalid, flaws.iter().map(ToString::to_string).collect()),
        };
        let DriftAllowance { metadata, spec } = allowance;
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
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
