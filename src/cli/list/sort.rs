//! Sorts rows by a field of their JSON form, as kubectl does.
//!
//! Entry point: [`FieldPath::sort`]. Invariant: a field that no row has is an error; rows without the field are last.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::str::FromStr;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;

/// A field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPath(pub(super) Vec<String>);

impl FromStr for FieldPath {
    type Err = Infallible;

    /// As kubectl takes it: `.metadata.name` and `{.metadata.name}` are the same.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('.');
        // Rows hold the fields of `metadata` directly.
        let path = path.strip_prefix("metadata.").unwrap_or(path);
        Ok(Self(path.split('.').map(str::to_owned).collect()))
    }
}

impl FieldPath {
    /// Sorts rows; those without the field are last.
    pub(super) fn sort<T: Serialize>(&self, rows: &mut Vec<T>) -> anyhow::Result<()> {
        let values: Vec<Value> = rows
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()
            .context("cannot sort the list")?;
        if !rows.is_empty() && values.iter().all(|row| self.value(row).is_none()) {
            let fields = values.iter().filter_map(Value::as_object).flat_map(|row| row.keys());
            let fields: BTreeSet<_> = fields.map(String::as_str).collect();
            let fields: Vec<_> = fields.into_iter().collect();
            bail!("no row has the field {:?}: sort by one of {}", self.0.join("."), fields.join(", "));
        }
        let mut pairs: Vec<_> = values.into_iter().zip(rows.drain(..)).collect();
        pairs.sort_by(|(left, _), (right, _)| compare(self.value(left), self.value(right)));
        rows.extend(pairs.into_iter().map(|(_, row)| row));
        Ok(())
    }

    fn value<'v>(&self, row: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(row, |value, step| value.get(step)).filter(|value| !value.is_null())
    }
}

fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    let (left, right) = match (left, right) {
        (Some(left), Some(right)) => (left, right),
        (left, right) => return right.is_some().cmp(&left.is_some()),
    };
    match (left.as_f64(), right.as_f64(), left.as_str(), right.as_str()) {
        (Some(left), Some(right), ..) => left.total_cmp(&right),
        (_, _, Some(left), Some(right)) => left.cmp(right),
        _ => left.to_string().cmp(&right.to_string()),
    }
}
