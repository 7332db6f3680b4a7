//! A verdict in words: what is wrong, in which field, and the ways on.
//!
//! Entry points: [`sentence`] and [`set_back`] for declared objects,
//! [`of_record`] for records, [`of_dependants`] for what takes others along.
//! Invariant: only what [`super::shown`] lets through is said. One paragraph, no
//! control characters.

use std::fmt::Write as _;

use super::dependants::Dependant;
use super::edit::{Finding, Grounds, Reason, Verdict};
use super::records::Falsified;
use super::revert::SetBack;
use super::shown::Shown;
use crate::declaration::path::Segment;
use crate::model::{ObjectId, Operation};
use crate::policy::flaw::Flaw;

/// The fields that a sentence names; the rest are counted.
const FIELDS: usize = 8;

/// Room for most sentences.
const ROOM: usize = 1024;

/// What is wrong with an edit of a declared object, and what to do.
pub fn sentence(object: &ObjectId, operation: Operation, verdict: &Verdict) -> String {
    let Some(grounds) = &verdict.grounds else { return verdict.reason.as_str().to_owned() };
    let Grounds { release, revision, fields } = &**grounds;
    let helm =
        format!("Helm release {} in namespace {} (revision {revision})", release.name, release.namespace);
    if operation == Operation::Delete || verdict.reason == Reason::Deletion {
        return format!(
            "{object} is declared by {helm} and would be deleted. To remove it, drop it from the chart and \
             upgrade, or run `helm uninstall {} -n {}`.",
            release.name, release.namespace
        );
    }
    let mut text = String::with_capacity(ROOM);
    // Writing to a String cannot fail.
    let _ = write!(text, "{object} is declared by {helm}, and this edit would leave it otherwise: ");
    for (index, Finding { path, declared, old, new, .. }) in fields.iter().take(FIELDS).enumerate() {
        let next = if index == 0 { "" } else { "; " };
        let [declared, old, new] = [declared, old, new].map(or_absent);
        let _ = write!(text, "{next}{path} (declared {declared}, was {old}, would be {new})");
    }
    match fields.len().saturating_sub(FIELDS) {
        0 => {}
        more => {
            let _ = write!(text, "; and {more} more");
        }
    }
    let _ = write!(
        text,
        ". Change the chart's values and run `helm upgrade {} -n {}`.",
        release.name, release.namespace
    );
    // A map's keys are the editor's own words.
    one_line(text)
}

/// What is wrong with a manifest's own annotations, which somebody who is
/// refused may have relied on; empty where nothing is.
pub fn of_annotations(flaws: &[Flaw]) -> String {
    if flaws.is_empty() {
        return String::new();
    }
    let told: Vec<_> = flaws.iter().map(ToString::to_string).collect();
    format!(" The chart's own annotations allow nothing: {}.", told.join("; ")).replace(char::is_control, " ")
}

/// What is said of an edit that passes without what drifts: whose the object
/// is, then each field.
pub fn set_back(object: &ObjectId, verdict: &Verdict, fields: &[SetBack]) -> Vec<String> {
    let Some(grounds) = &verdict.grounds else { return Vec::new() };
    let Grounds { release, revision, .. } = &**grounds;
    let mut said = vec![format!(
        "{object} is declared by Helm release {} in namespace {} (revision {revision}): what this edit changes \
         of that is set back.",
        release.name, release.namespace
    )];
    said.extend(
        fields
            .iter()
            .map(|SetBack { path, wanted, now }| {
                format!("{path} is {} (this edit: {}).", or_absent(now), or_absent(wanted))
            })
            .map(one_line),
    );
    said
}

/// What is wrong with an edit of a record, and what to do.
pub fn of_record(object: &ObjectId, falsified: Falsified) -> String {
    let what = match falsified {
        Falsified::Manifest => "the manifest of an existing revision would change",
        Falsified::LastDeployed => "the last deployed revision would be gone while the release is installed",
        Falsified::Disagreement => "its name, labels and payload would disagree",
        Falsified::Stranger => {
            return format!(
                "{object} is a record of Helm's, and a policy names the operators who alone may write the \
                 release's records. Have one of them run Helm, or be named under `operators`."
            );
        }
    };
    format!(
        "{object} is a record of Helm's, and {what}. Use `helm upgrade`, `helm rollback` or `helm uninstall`, \
         which keep their records themselves."
    )
}

/// What is wrong with a deletion that takes declared objects along.
pub fn of_dependants(object: &ObjectId, dependants: &[Dependant]) -> String {
    let named: Vec<_> = dependants
        .iter()
        .take(FIELDS)
        .map(|it| {
            format!(
                "{} of Helm release {} in namespace {}",
                it.object, it.release.id.name, it.release.id.namespace
            )
        })
        .collect();
    let more = match dependants.len().saturating_sub(FIELDS) {
        0 => String::new(),
        more => format!("; and of {more} more releases"),
    };
    format!(
        "deleting {object} would delete declared objects along: {}{more}. Uninstall these releases first.",
        named.join("; ")
    )
}

/// One field of a live object in words.
pub fn live_field(finding: &Finding) -> String {
    let Finding { path, declared, new, added, .. } = finding;
    // Of an element that was given other keys these are shown.
    let is_moved =
        |new: &Shown| matches!(path.0.last(), Some(Segment::Key(_))) && new.as_str().starts_with('{');
    one_line(match (declared, new) {
        (None, None) => path.to_string(),
        (None, Some(new)) if !added && is_moved(new) => format!("{path} (moved: is now {new})"),
        _ => format!("{path} (declared {}, is {})", or_absent(declared), or_absent(new)),
    })
}

fn or_absent(value: &Option<Shown>) -> &str {
    value.as_ref().map_or("absent", Shown::as_str)
}

/// `text` without control characters.
fn one_line(text: String) -> String {
    // The first byte of each that is not ASCII is this one.
    let may_control = |byte: u8| byte.is_ascii_control() || byte == 0xc2;
    if text.bytes().fold(false, |found, byte| found | may_control(byte)) {
        text.replace(char::is_control, " ")
    } else {
        text
    }
}

#[cfg(test)]
mod tests;
