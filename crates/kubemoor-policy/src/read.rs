//! Reads policies from text: the files of `--policies DIR`.
//!
//! Entry point: [`read`]. Invariant: a document with a flaw does not affect others. Must not open
//! files: names and texts come from the caller.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::compile::{Compiled, compile};
use super::flaw::{Flaw, FlawReason};
use super::resource::DriftPolicy;
use kubemoor_helm::manifest;

/// The largest file, in bytes.
pub const MAX_FILE: usize = 1 << 20;

/// The API group and version of policies.
const API_VERSION: &str = "kubemoor.dev/v1alpha1";

/// A flaw and the file that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFlaw {
    /// The file.
    pub file: String,
    /// The policy's name, or which document of the file it is, from 1.
    pub policy: String,
    /// What is wrong.
    pub flaw: Flaw,
}

/// Reads files, given as names and texts, each with any number of policies.
/// Where two have one name the first file's counts.
pub fn read<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> (Vec<Arc<Compiled>>, Vec<FileFlaw>) {
    let mut accepted: BTreeMap<String, (Arc<Compiled>, String)> = BTreeMap::new();
    let mut flawed = Vec::new();
    for (file, text) in files {
        let mut note = |policy: String, flaw| {
            flawed.push(FileFlaw { file: file.to_owned(), policy, flaw });
        };
        let (documents, skipped) = documents(text);
        skipped.into_iter().for_each(|(place, flaw)| note(place, flaw));
        for document in documents {
            let name =
                document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            match policy(document) {
                Err(flaws) => flaws.into_iter().for_each(|flaw| note(name.clone(), flaw)),
                Ok(compiled) => match accepted.get(&compiled.name) {
                    Some((_, first)) => {
                        let message = format!("{first} has a policy of this name: rename one of them");
                        let field = "metadata.name".to_owned();
                        note(name, Flaw { field, reason: FlawReason::DuplicateName, message });
                    }
                    None => {
                        accepted.insert(compiled.name.clone(), (Arc::new(compiled), file.to_owned()));
                    }
                },
            }
        }
    }
    (accepted.into_values().map(|(compiled, _)| compiled).collect(), flawed)
}

/// The objects of a YAML text, read as kubectl reads it, and the invalid documents: their numbers,
/// from 1, and the flaws.
pub fn documents(text: &str) -> (Vec<Value>, Vec<(String, Flaw)>) {
    let flaw = |message| Flaw { field: String::new(), reason: FlawReason::Unreadable, message };
    if text.len() > MAX_FILE {
        let message = format!("the file has more than {MAX_FILE} bytes");
        return (Vec::new(), vec![("1".to_owned(), flaw(message))]);
    }
    let parsed = manifest::parse(text);
    let skipped = parsed.skipped.into_iter();
    let skipped = skipped.map(|it| ((it.index + 1).to_string(), flaw(it.reason.to_string())));
    (parsed.objects, skipped.collect())
}

/// One policy from one document.
///
/// # Errors
/// Everything that is wrong with it.
pub fn policy(document: Value) -> Result<Compiled, Vec<Flaw>> {
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", "DriftPolicy")] {
        if document.get(field).and_then(Value::as_str) != Some(expected) {
            let message = format!("a policy has {field}: {expected}");
            return Err(vec![Flaw { field: field.to_owned(), reason: FlawReason::InvalidValue, message }]);
        }
    }
    compile(&typed::<DriftPolicy>(document).map_err(|flaw| vec![flaw])?)
}

/// A document as its type, or which field does not fit.
///
/// # Errors
/// The first field that does not fit.
pub fn typed<T: DeserializeOwned>(document: Value) -> Result<T, Flaw> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        let reason = match message.as_str() {
            text if text.starts_with("unknown field") => FlawReason::UnknownField,
            text if text.starts_with("missing field") => FlawReason::Missing,
            _ => FlawReason::InvalidValue,
        };
        Flaw { field: if path == "." { String::new() } else { path }, reason, message }
    })
}

impl fmt::Display for FileFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: policy {}: {}", self.file, self.policy, self.flaw)
    }
}

#[cfg(test)]
mod tests;
