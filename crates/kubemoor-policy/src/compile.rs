//! Reads policies from text, validates them and compiles them, so that a verdict parses and compiles nothing. A policy
//! with a flaw is rejected as a whole and does not affect other policies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::allowance::{self, AllowanceOrigin, Grant, Schedule, StandingAllowance};
use crate::flaw::{Flaw, FlawReason, Flaws};
use crate::mask::{self, Mask};
use crate::pattern::Pattern;
use crate::resource::{
    AllowRule, DriftPolicy, DriftPolicySpec, IgnoreRule, LabelSelector, MAX_ALL_PATHS, MAX_CRON, MAX_PATHS,
    MAX_REGEX, MAX_REGEXES, MAX_RULES, MAX_SELECTOR, SealRule, StoragePair, SubjectSpec, TargetSpec,
};
use crate::selector::{Globs, Regexes, RuleTarget, Selector, compile_subjects, is_plain_text};
use crate::spelling;
use kubemoor_declare::model::{ReleaseId, is_dns_label};
use kubemoor_helm::manifest;

/// A validated policy.
#[derive(Debug)]
pub struct CompiledPolicy {
    pub name: String,
    pub spec: DriftPolicySpec,
    /// SHA-256 of its `spec`, to detect changes.
    pub digest: [u8; 32],
    pub exempt: Vec<SubjectSpec>,
    pub operators: Vec<SubjectSpec>,
    /// Pairs of a namespace and another one whose releases may have their records in the first.
    pub storage: Vec<(String, String)>,
    /// Probably misspelled kinds: the field and a message.
    pub misspelled: Vec<(String, String)>,
    /// Paths that objects of their built-in kind cannot have: the field and a message.
    pub unknown_fields: Vec<(String, String)>,
    /// The paths that name Helm's own label or annotations, to which no rule applies.
    pub ineffective: Vec<String>,
    pub(crate) ignore: Vec<(RuleTarget, Mask)>,
    pub(crate) allow: Vec<(RuleTarget, Arc<StandingAllowance>)>,
    pub(crate) seal: Vec<(RuleTarget, Mask)>,
    names: Globs,
    namespaces: Globs,
    namespace_selector: Selector,
    cluster_selector: Selector,
}

/// Validates a policy.
///
/// # Errors
/// All flaws of the policy.
pub fn compile(policy: &DriftPolicy) -> Result<CompiledPolicy, Vec<Flaw>> {
    let spec = &policy.spec;
    let mut flaws = Flaws::default();
    let flaws_of = &mut flaws;
    let name = policy.metadata.name.clone().unwrap_or_default();
    if name.is_empty() {
        flaws_of.add("metadata.name", FlawReason::Missing, "a policy needs a name");
    }
    if !check_limits(spec, flaws_of) {
        return flaws.or(()).and(Err(Vec::new()));
    }
    let releases = spec.releases.clone().unwrap_or_default();
    let mut regexes = Regexes::default();
    let mut compiled = CompiledPolicy {
        // A spec can always be serialized.
        digest: Sha256::digest(serde_json::to_vec(spec).unwrap_or_default()).into(),
        ineffective: Vec::new(),
        misspelled: spelling::misspelled(spec),
        unknown_fields: spelling::unknown_fields(spec),
        exempt: compile_subjects(&spec.exempt, "spec.exempt", flaws_of),
        operators: compile_subjects(&spec.operators, "spec.operators", flaws_of),
        storage: stored(&spec.storage, flaws_of),
        ignore: ignored(&spec.ignore, &mut regexes, flaws_of),
        allow: allowed(&name, &spec.allow, &mut regexes, flaws_of),
        seal: sealed(&spec.seal, &mut regexes, flaws_of),
        names: Globs::compile(&releases.names, "spec.releases.names", flaws_of),
        namespaces: Globs::compile(&releases.namespaces, "spec.releases.namespaces", flaws_of),
        namespace_selector: selector(
            releases.namespace_selector.as_ref(),
            "spec.releases.namespaceSelector",
            flaws_of,
        ),
        cluster_selector: selector(spec.cluster_selector.as_ref(), "spec.clusterSelector", flaws_of),
        spec: spec.clone(),
        name,
    };
    compiled.ineffective = compiled.paths_of_helms();
    flaws.or(compiled)
}

fn selector(spec: Option<&LabelSelector>, at: &str, flaws: &mut Flaws) -> Selector {
    spec.map(|spec| Selector::compile(spec, at, flaws)).unwrap_or_default()
}

/// Whether lists and texts are within the limits; checked before anything is compiled or compared.
fn check_limits(spec: &DriftPolicySpec, flaws: &mut Flaws) -> bool {
    let lists = [
        ("spec.ignore", spec.ignore.len()),
        ("spec.allow", spec.allow.len()),
        ("spec.seal", spec.seal.len()),
        ("spec.exempt", spec.exempt.len()),
        ("spec.operators", spec.operators.len()),
        ("spec.notify", spec.notify.len()),
        ("spec.storage", spec.storage.len()),
    ];
    let mut is_within = true;
    for (field, count) in lists {
        is_within &= flaws.check_count(field, count, MAX_RULES);
    }
    let (mut all_paths, mut regexes) = (0, BTreeSet::new());
    for (rule, target, paths) in spelling::rules(spec) {
        all_paths += paths.len();
        let Some(target) = target else { continue };
        for (field, text) in target.regexes() {
            let field = format!("{rule}.target.{field}");
            is_within &= flaws.limit_length(&field, FlawReason::InvalidRegex, text, MAX_REGEX);
            regexes.extend(Some(text).filter(|text| !is_plain_text(text)));
        }
        for (field, text) in target.selectors() {
            let field = format!("{rule}.target.{field}");
            is_within &= flaws.limit_length(&field, FlawReason::InvalidSelector, text, MAX_SELECTOR);
        }
    }
    for (index, rule) in spec.allow.iter().enumerate() {
        let cron = rule.schedule.as_ref().map(|schedule| schedule.cron.as_str()).unwrap_or_default();
        let field = format!("spec.allow[{index}].schedule.cron");
        is_within &= flaws.limit_length(&field, FlawReason::InvalidSchedule, cron, MAX_CRON);
    }
    for (what, count, limit) in
        [("paths", all_paths, MAX_ALL_PATHS), ("different regular expressions", regexes.len(), MAX_REGEXES)]
    {
        if count > limit {
            let message =
                format!("the policy has {count} {what}, but at most {limit} are allowed: split it up");
            flaws.add("spec", FlawReason::TooMany, message);
            is_within = false;
        }
    }
    is_within
}

impl CompiledPolicy {
    /// Whether the policy applies to this release; `labels` are those of its namespace.
    pub fn is_for(&self, release: &ReleaseId, labels: &BTreeMap<String, String>) -> bool {
        self.names.matches(&release.name) && self.is_for_namespace(&release.namespace, labels)
    }

    /// Whether it may apply to releases in a namespace with these labels.
    pub(crate) fn is_for_namespace(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.namespaces.matches(name)
            && self.namespace_selector.matches(|key| labels.get(key).map(|value| value.as_str().into()))
    }

    /// Whether it has rules that apply to objects.
    pub(crate) fn has_object_rules(&self) -> bool {
        !(self.ignore.is_empty() && self.allow.is_empty() && self.seal.is_empty())
    }

    /// Whether a path may name a list element by its position in the manifest.
    pub(crate) fn has_positions(&self) -> bool {
        let masks = self.ignore.iter().chain(&self.seal).map(|(_, mask)| mask);
        let masks = masks.chain(self.allow.iter().map(|(_, standing)| &standing.grant.mask));
        masks.flat_map(|mask| &mask.0).any(Pattern::has_positions)
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = &RuleTarget> {
        let masked = self.ignore.iter().chain(&self.seal).map(|(target, _)| target);
        masked.chain(self.allow.iter().map(|(target, _)| target))
    }

    /// Whether the policy is in force in a cluster with these labels.
    pub fn is_in(&self, cluster: &BTreeMap<String, String>) -> bool {
        self.cluster_selector.matches(|key| cluster.get(key).map(|value| value.as_str().into()))
    }

    /// The paths of rules that name Helm's own label or annotations.
    fn paths_of_helms(&self) -> Vec<String> {
        let ignored = self.ignore.iter().map(|(_, mask)| mask);
        let masks = ignored.chain(self.allow.iter().map(|(_, standing)| &standing.grant.mask));
        masks.flat_map(Mask::helm_metadata_patterns).map(ToString::to_string).collect()
    }
}

fn stored(pairs: &[StoragePair], flaws: &mut Flaws) -> Vec<(String, String)> {
    let mut compiled = Vec::new();
    for (index, StoragePair { records, releases }) in pairs.iter().enumerate() {
        let at = format!("spec.storage[{index}]");
        is_namespace(records, &format!("{at}.records"), flaws);
        let at = format!("{at}.releases");
        if releases.is_empty() {
            flaws.add(&at, FlawReason::Missing, "the list is empty: name the namespaces of the releases");
        }
        if !flaws.check_count(&at, releases.len(), MAX_RULES) {
            continue;
        }
        for (index, namespace) in releases.iter().enumerate() {
            let at = format!("{at}[{index}]");
            if is_namespace(namespace, &at, flaws) && namespace == records {
                let own = "a namespace holds the records of its own releases anyway: leave it out";
                flaws.add(&at, FlawReason::InvalidValue, own);
            }
            compiled.push((records.clone(), namespace.clone()));
        }
    }
    compiled
}

fn is_namespace(name: &str, at: &str, flaws: &mut Flaws) -> bool {
    let is_name = is_dns_label(name);
    if !is_name {
        let what = "not a valid namespace name: use the full name, without * or ?";
        flaws.add(at, FlawReason::InvalidValue, what);
    }
    is_name
}

fn ignored(rules: &[IgnoreRule], regexes: &mut Regexes, flaws: &mut Flaws) -> Vec<(RuleTarget, Mask)> {
    let rule = |(index, IgnoreRule { target, paths }): (usize, &IgnoreRule)| {
        masked(target.as_ref(), paths, &format!("spec.ignore[{index}]"), regexes, flaws)
    };
    rules.iter().enumerate().filter_map(rule).collect()
}

fn sealed(rules: &[SealRule], regexes: &mut Regexes, flaws: &mut Flaws) -> Vec<(RuleTarget, Mask)> {
    let mut compiled = Vec::with_capacity(rules.len());
    for (index, SealRule { target, paths }) in rules.iter().enumerate() {
        let at = format!("spec.seal[{index}]");
        let rule = masked(target.as_ref(), paths, &at, regexes, flaws);
        let patterns = rule.iter().flat_map(|(_, mask)| &mask.0);
        for pattern in patterns.filter(|pattern| !mask::can_hold(pattern)) {
            flaws.add(&format!("{at}.paths"), FlawReason::InvalidPath, mask::refusal(pattern));
        }
        compiled.extend(rule);
    }
    compiled
}

/// Compiles the target and the paths of a rule.
fn masked(
    target: Option<&TargetSpec>,
    paths: &[String],
    at: &str,
    regexes: &mut Regexes,
    flaws: &mut Flaws,
) -> Option<(RuleTarget, Mask)> {
    let target = RuleTarget::compile(target, &format!("{at}.target"), regexes, flaws);
    let at = format!("{at}.paths");
    if !check_paths(paths, &at, flaws) {
        return None;
    }
    let pattern =
        |(index, path): (usize, &String)| allowance::pattern(path, &format!("{at}[{index}]"), flaws);
    Some((target, Mask(paths.iter().enumerate().filter_map(pattern).collect())))
}

fn allowed(
    policy: &str,
    rules: &[AllowRule],
    regexes: &mut Regexes,
    flaws: &mut Flaws,
) -> Vec<(RuleTarget, Arc<StandingAllowance>)> {
    let mut compiled = Vec::with_capacity(rules.len());
    for (index, AllowRule { name, target, paths, schedule, subjects }) in rules.iter().enumerate() {
        let at = format!("spec.allow[{index}]");
        let target = RuleTarget::compile(target.as_ref(), &format!("{at}.target"), regexes, flaws);
        let field = format!("{at}.paths");
        if !check_paths(paths, &field, flaws)
            || !flaws.check_count(&format!("{at}.subjects"), subjects.len(), MAX_RULES)
        {
            continue;
        }
        let grant = Grant::read(paths.iter().map(String::as_str), |index| format!("{field}[{index}]"), flaws);
        let schedule = schedule
            .as_ref()
            .and_then(|schedule| Schedule::compile(schedule, &format!("{at}.schedule"), flaws));
        let origin = AllowanceOrigin::Policy { policy: policy.to_owned(), name: name.clone() };
        let subjects = compile_subjects(subjects, &format!("{at}.subjects"), flaws);
        compiled
            .push((target, Arc::new(StandingAllowance { origin, grant, schedule, until: None, subjects })));
    }
    compiled
}

fn check_paths(paths: &[String], at: &str, flaws: &mut Flaws) -> bool {
    if paths.is_empty() {
        flaws.add(at, FlawReason::Missing, "a rule needs at least one path, or * for everything");
    }
    flaws.check_count(at, paths.len(), MAX_PATHS)
}

/// The largest file, in bytes.
pub const MAX_FILE: usize = 1 << 20;

/// The API group and version of policies.
const API_VERSION: &str = "kubemoor.dev/v1alpha1";

/// A flaw and the file that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFlaw {
    pub file: String,
    /// The policy's name, or the number of its document in the file, from 1.
    pub policy: String,
    pub flaw: Flaw,
}

/// Reads files, given as names and texts, each with any number of policies. If two policies have the same name, the
/// first one is used.
pub fn read<'f>(
    files: impl IntoIterator<Item = (&'f str, &'f str)>,
) -> (Vec<Arc<CompiledPolicy>>, Vec<FileFlaw>) {
    let mut accepted: BTreeMap<String, (Arc<CompiledPolicy>, String)> = BTreeMap::new();
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
                        let message =
                            format!("{first} already has a policy with this name: rename one of them");
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

/// Parses a YAML text as kubectl does. Returns the objects, and the number (from 1) and the flaw of each invalid
/// document.
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

/// Compiles the policy in a document.
///
/// # Errors
/// All flaws of the policy.
pub fn policy(document: Value) -> Result<CompiledPolicy, Vec<Flaw>> {
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", "DriftPolicy")] {
        if document.get(field).and_then(Value::as_str) != Some(expected) {
            let message = format!("a policy needs {field}: {expected}");
            return Err(vec![Flaw { field: field.to_owned(), reason: FlawReason::InvalidValue, message }]);
        }
    }
    compile(&typed::<DriftPolicy>(document).map_err(|flaw| vec![flaw])?)
}

/// Deserializes a document.
///
/// # Errors
/// The first field that does not fit the type.
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
