//! Targets of rules that select no object.
//!
//! Entry points: [`targeted`] for the releases to read, [`aimless`] for the findings. Invariant: a finding is certain
//! for the releases that are given. Must not read anything.

use std::sync::Arc;

use super::{Check, Finding, finding};
use crate::flaw::Flaws;
use crate::glob::Globs;
use crate::resource::{DriftPolicy, TargetSpec};
use crate::target::{Regexes, Target, misspelled, rules};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;

/// A part of a target: its name, and the target of this part alone.
type Part = (&'static str, fn(&TargetSpec) -> TargetSpec);

const PARTS: [Part; 7] = [
    ("group", |it| TargetSpec { group: it.group.clone(), ..TargetSpec::default() }),
    ("version", |it| TargetSpec { version: it.version.clone(), ..TargetSpec::default() }),
    ("kind", |it| TargetSpec { kind: it.kind.clone(), ..TargetSpec::default() }),
    ("namespace", |it| TargetSpec { namespace: it.namespace.clone(), ..TargetSpec::default() }),
    ("name", |it| TargetSpec { name: it.name.clone(), ..TargetSpec::default() }),
    ("labelSelector", |it| TargetSpec { label_selector: it.label_selector.clone(), ..TargetSpec::default() }),
    ("annotationSelector", |it| TargetSpec {
        annotation_selector: it.annotation_selector.clone(),
        ..TargetSpec::default()
    }),
];

/// Of these releases those whose objects the targets of policies may select.
pub fn targeted(policies: &[DriftPolicy], releases: &[ReleaseId]) -> Vec<ReleaseId> {
    let has_target = |policy: &&DriftPolicy| rules(&policy.spec).any(|(_, target, _)| target.is_some());
    let policies: Vec<_> = policies.iter().filter(has_target).collect();
    let is_targeted = |release: &&ReleaseId| policies.iter().any(|policy| may_match(policy, release));
    releases.iter().filter(is_targeted).cloned().collect()
}

/// The targets of these policies that select no object of these releases; a release is `None` if it could not be read.
pub fn aimless(policies: &[DriftPolicy], releases: &[(ReleaseId, Option<Arc<Release>>)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for policy in policies {
        let here =
            releases.iter().filter(|(id, _)| may_match(policy, id)).map(|(_, release)| release.as_ref());
        // Without releases there is another finding, and what was not read may hold the object.
        let Some(here) = here.collect::<Option<Vec<_>>>().filter(|here| !here.is_empty()) else { continue };
        let unknown: Vec<_> = misspelled(&policy.spec).into_iter().map(|(field, ..)| field).collect();
        for (rule, target, _) in rules(&policy.spec) {
            let Some(target) = target.filter(|_| !unknown.contains(&format!("{rule}.target.kind"))) else {
                continue;
            };
            if selects(target, &here) {
                continue;
            }
            let wrong: Vec<_> = PARTS.iter().filter(|(_, part)| !selects(&part(target), &here)).collect();
            let mut told = |field: String, what: &str| {
                let message = format!(
                    "{what} no object that a release of this policy declares now: correct or remove it"
                );
                findings.push(finding(policy, field, Check::MatchesNothing, message));
            };
            for (part, _) in &wrong {
                told(format!("{rule}.target.{part}"), &format!("the {part} matches"));
            }
            if wrong.is_empty() {
                told(format!("{rule}.target"), "each part matches an object, but all of them together match");
            }
        }
    }
    findings
}

/// Whether a policy may be for a release: the labels of its namespace are not known.
fn may_match(policy: &DriftPolicy, release: &ReleaseId) -> bool {
    let Some(selector) = &policy.spec.releases else { return true };
    let is_one = |globs: &[String], name: &str| Globs::parse(globs).is_ok_and(|globs| globs.matches(name));
    is_one(&selector.names, &release.name) && is_one(&selector.namespaces, &release.namespace)
}

/// Whether a target selects an object of these releases. One that is not valid has another finding.
fn selects(target: &TargetSpec, releases: &[&Arc<Release>]) -> bool {
    let mut flaws = Flaws::default();
    let compiled = Target::compile(Some(target), "target", &mut Regexes::default(), &mut flaws);
    let Ok(compiled) = flaws.or(compiled) else { return true };
    releases.iter().any(|release| {
        let mut objects = release.objects.keys();
        objects
            .any(|object| release.declared(object).is_some_and(|declared| compiled.selects(object, declared)))
    })
}
