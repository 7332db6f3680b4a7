//! Computes the condition `Accepted` of a DriftPolicy.
//!
//! Entry points: [`survey`], [`Assessment::of`]. Invariant: the same state of the cluster gives the same
//! words, so that nothing is written twice.

use std::collections::{BTreeMap, BTreeSet};

use super::InForce;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_helm::index::Index;
use kubemoor_policy::Source;
use kubemoor_policy::compile::Compiled;
use kubemoor_policy::flaw::Flaw;

/// The longest message of a condition, in bytes.
const MESSAGE: usize = 4096;

/// How many disagreements one message names.
const TOLD: usize = 5;

/// The result of checking the policies against the releases.
#[derive(Debug, Default)]
pub(super) struct Survey {
    matching: BTreeSet<String>,
    ties: BTreeMap<String, BTreeSet<String>>,
    /// Refuse edits of releases whose drift stays.
    leaving: BTreeSet<String>,
}

/// The words of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assessment {
    pub(super) accepted: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The facts about one DriftPolicy.
pub(super) struct Subject<'p> {
    pub(super) name: &'p str,
    pub(super) generation: i64,
    /// The flaws in its text.
    pub(super) flaws: &'p [Flaw],
    /// Its accepted version, and the generation of that.
    pub(super) accepted: Option<(&'p Compiled, i64)>,
}

/// Holds the policies in force against the releases.
pub(super) fn survey(in_force: &InForce, index: &Index) -> Survey {
    let mut survey = Survey::default();
    for release in index.releases() {
        let policy = in_force.resolver().of(&release.id);
        for name in policy.matched() {
            if !survey.matching.contains(name) {
                survey.matching.insert(name.to_owned());
            }
        }
        for tie in &policy.ties {
            for name in [&tie.policy, &tie.over] {
                survey.ties.entry(name.clone()).or_default().insert(tie.to_string());
            }
        }
        if let (Source::Policy(name), EditsMode::Deny, DriftMode::Report | DriftMode::Ignore) =
            (&policy.sources.edits, policy.edits, policy.drift)
        {
            survey.leaving.insert(name.clone());
        }
    }
    survey
}

impl Assessment {
    /// The condition of a policy.
    pub(super) fn of(subject: &Subject<'_>, survey: &Survey, in_force: &InForce) -> Self {
        let Subject { name, generation, flaws, accepted } = subject;
        if let Some(first) = flaws.first() {
            let told: Vec<_> = flaws.iter().map(|flaw| format!("{}: {}", flaw.field, flaw.message)).collect();
            let stays = match accepted {
                Some((_, accepted)) if accepted != generation => {
                    format!(". Generation {accepted} of this policy stays in force.")
                }
                _ => ". This policy is not in force.".to_owned(),
            };
            let message = cut(&told.join("; "), MESSAGE - stays.len()) + &stays;
            return Self { accepted: false, reason: first.reason.as_str(), message };
        }
        if in_force.is_in_files(name) {
            let message =
                "A policy file of the guard has a policy of this name, which counts: rename one of them.";
            return Self { accepted: false, reason: "DuplicateName", message: message.to_owned() };
        }
        let (reason, message) = match accepted {
            Some((policy, _)) if !in_force.is_in_cluster(policy) => (
                "OtherCluster",
                "Not in force here: the labels of this cluster (--cluster-label) do not match spec.clusterSelector."
                    .to_owned(),
            ),
            _ if !survey.matching.contains(*name) => (
                "MatchesNothing",
                "In force, but no release matches spec.releases. Look for a misspelled name, namespace or label."
                    .to_owned(),
            ),
            accepted => accepted
                .and_then(|(policy, _)| ineffective(policy, in_force))
                .unwrap_or_else(|| standing(name, survey)),
        };
        Self { accepted: true, reason, message }
    }
}

/// The rules without effect of a policy in force, as reason and message.
fn ineffective(policy: &Compiled, in_force: &InForce) -> Option<(&'static str, String)> {
    let unknown = in_force.unknown_notifiers(policy);
    let (reason, message) = if !policy.misspelled.is_empty() {
        let told = policy.misspelled.iter().map(|(field, kind, meant)| {
            format!("{field} names {kind:?}, which is no kind of Kubernetes: did you mean {meant}?")
        });
        ("UnknownKind", format!("In force, but {}", told.take(TOLD).collect::<Vec<_>>().join("; ")))
    } else if !policy.unknown_fields.is_empty() {
        let told = policy.unknown_fields.iter().map(|(field, what)| format!("{field}: {what}"));
        ("UnknownField", format!("In force, but {}", told.take(TOLD).collect::<Vec<_>>().join("; ")))
    } else if !unknown.is_empty() {
        let message = format!(
            "In force, but spec.notify names notifiers that the guard does not have: {}. Correct the names, or add \
             them to the file of --notifiers.",
            unknown.join(", ")
        );
        ("UnknownNotifier", message)
    } else if !policy.ineffective.is_empty() {
        let message = format!(
            "In force, but these paths have no effect: {}. Helm's label and annotations are guarded whatever a policy \
             says.",
            policy.ineffective.join(", ")
        );
        ("HelmsOwn", message)
    } else {
        return None;
    };
    Some((reason, cut(&message, MESSAGE)))
}

/// The relation of a policy in force to the others, as reason and message.
fn standing(name: &str, survey: &Survey) -> (&'static str, String) {
    match (survey.ties.get(name), survey.leaving.contains(name)) {
        (Some(ties), _) => {
            let told: Vec<_> = ties.iter().take(TOLD).map(String::as_str).collect();
            let message = format!(
                "In force, but it disagrees with a policy of equal priority: {}. Give them different priorities.",
                told.join("; ")
            );
            ("Conflict", cut(&message, MESSAGE))
        }
        (None, true) => (
            "DriftStays",
            "In force. Edits are refused, but drift is not repaired: what slips past the webhook, while the guard is \
             down for example, stays. Say drift: Repair to have it set back."
                .to_owned(),
        ),
        (None, false) => ("Accepted", "In force.".to_owned()),
    }
}

/// `text` with at most `bytes`, cut between letters.
fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        if kept.len() + letter.len_utf8() + '…'.len_utf8() > bytes {
            break;
        }
        kept.push(letter);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests;
