//! Converts the fields that Flux ignores for a HelmRelease (`spec.driftDetection.ignore`) to a DriftPolicy that
//! ignores the same fields. Parts that a policy cannot express are left out and reported.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::allowance::DELETE;
use crate::compile::{compile, typed};
use crate::flaw::Flaw;
use crate::resource::{
    AllowRule, DriftPolicy, DriftPolicySpec, IgnoreRule, MAX_PATHS, MAX_RULES, ReleaseSelector, TargetSpec,
};
use crate::signing::hex;

/// The API group of HelmReleases, and their kind.
pub const GROUP: &str = "helm.toolkit.fluxcd.io";
pub const KIND: &str = "HelmRelease";

/// The longest release name, and the number of characters that Flux keeps of a longer one.
const NAME: usize = 53;
const KEPT: usize = 40;

/// The result of importing a HelmRelease.
#[derive(Debug, Default)]
pub struct FluxImport {
    /// The policy to apply; `None` if nothing is ignored.
    pub policy: Option<Value>,
    /// The parts that the policy does not cover, and why.
    pub unsupported: Vec<UnsupportedPart>,
}

/// A part of a HelmRelease that a policy cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedPart {
    pub field: String,
    /// The reason, and the remedy.
    pub reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    paths: Vec<String>,
    #[serde(default)]
    target: Option<TargetSpec>,
}

/// Converts the ignore rules of a HelmRelease to a policy.
pub fn import(helm_release: &Value) -> FluxImport {
    let mut imported = FluxImport::default();
    let rules = helm_release.pointer("/spec/driftDetection/ignore").and_then(Value::as_array);
    let Some(rules) = rules.filter(|rules| !rules.is_empty()) else { return imported };
    if helm_release.pointer("/spec/kubeConfig").is_some_and(|it| !it.is_null()) {
        let reason = "the release is in another cluster: import it there";
        imported.report_unsupported("spec.kubeConfig", reason.to_owned());
        return imported;
    }
    let (namespace, name) = release(helm_release);
    let mut spec = DriftPolicySpec {
        releases: Some(ReleaseSelector {
            names: vec![name.clone()],
            namespaces: vec![namespace.clone()],
            ..ReleaseSelector::default()
        }),
        ..DriftPolicySpec::default()
    };
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("spec.driftDetection.ignore[{index}]");
        match typed::<Rule>(rule.clone()) {
            Ok(rule) => imported.add_rule(rule, &at, &mut spec),
            Err(flaw) => imported.report_unsupported(&at, flaw.message),
        }
    }
    if !spec.ignore.is_empty() {
        imported.policy = Some(json!({
            "apiVersion": "kubemoor.dev/v1alpha1",
            "kind": "DriftPolicy",
            "metadata": {"name": format!("flux-{namespace}-{name}")},
            "spec": spec,
        }));
    }
    imported
}

impl FluxImport {
    fn report_unsupported(&mut self, field: &str, reason: String) {
        self.unsupported.push(UnsupportedPart { field: field.to_owned(), reason });
    }

    fn add_rule(&mut self, rule: Rule, at: &str, spec: &mut DriftPolicySpec) {
        let Rule { paths, target } = rule;
        if let Some((field, reason)) = refused_target(target.as_ref()) {
            return self.report_unsupported(&format!("{at}.target.{field}"), reason);
        }
        let mut kept = Vec::new();
        for (index, path) in paths.into_iter().enumerate() {
            let field = format!("{at}.paths[{index}]");
            // The root: Flux ignores the object completely, even if it is missing.
            if path.is_empty() {
                let (name, target) = (format!("flux-{}", spec.allow.len()), target.clone());
                let rule = AllowRule {
                    name,
                    target,
                    paths: vec![DELETE.to_owned()],
                    schedule: None,
                    subjects: Vec::new(),
                };
                match spec.allow.len() < MAX_RULES {
                    true => spec.allow.push(rule),
                    false => self.report_unsupported(&field, too_many()),
                }
                kept.push("*".to_owned());
            } else if let Some(reason) = refused_path(&path) {
                self.report_unsupported(&field, reason);
            } else {
                kept.push(path);
            }
        }
        for paths in kept.chunks(MAX_PATHS) {
            match spec.ignore.len() < MAX_RULES {
                true => spec.ignore.push(IgnoreRule { target: target.clone(), paths: paths.to_vec() }),
                false => self.report_unsupported(at, too_many()),
            }
        }
    }
}

fn too_many() -> String {
    format!("a policy has at most {MAX_RULES} rules: merge rules with the same target")
}

/// The namespace and the name of the release that Flux installs.
fn release(helm_release: &Value) -> (String, String) {
    let text =
        |pointer: &str| helm_release.pointer(pointer).and_then(Value::as_str).filter(|it| !it.is_empty());
    let own = text("/metadata/namespace").unwrap_or("default");
    let target = text("/spec/targetNamespace");
    let name = text("/metadata/name").unwrap_or_default();
    let whole = match (text("/spec/releaseName"), target) {
        (Some(name), _) => name.to_owned(),
        (None, Some(target)) => format!("{target}-{name}"),
        (None, None) => name.to_owned(),
    };
    (target.unwrap_or(own).to_owned(), shortened(whole))
}

/// Shortens a name as Flux does.
fn shortened(name: String) -> String {
    if name.len() <= NAME {
        return name;
    }
    let sum = hex(&Sha256::digest(name.as_bytes()));
    let kept: String = name.chars().take(KEPT).collect();
    format!("{kept}-{}", sum.chars().take(NAME - KEPT - 1).collect::<String>())
}

/// The field of a target that a policy cannot express, and the reason.
fn refused_target(target: Option<&TargetSpec>) -> Option<(&'static str, String)> {
    let target = target?;
    for (field, text) in target.regexes() {
        // Inside brackets, these have a different meaning here than in the regular expressions of Flux.
        if text.contains('[') && ["&&", "--", "~~"].iter().any(|set| text.contains(set)) || has_nested(text) {
            let reason = format!("the character class in {text:?} has a different meaning here: rewrite it");
            return Some((field, reason));
        }
    }
    let rule = IgnoreRule { target: Some(target.clone()), paths: vec!["*".to_owned()] };
    let flaw = flaw_of(rule)?;
    let field = target.parts().map(|(field, _)| field).find(|it| flaw.field.ends_with(it));
    Some((field.unwrap_or("name"), flaw.message))
}

/// The reason why a policy cannot express a path from Flux, in which each segment is a literal name or index.
fn refused_path(path: &str) -> Option<String> {
    let is_pattern = |segment: &str| segment == "*" || segment.starts_with('[');
    let is_from_end = |segment: &str| {
        segment.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some(segment) = path.split('/').skip(1).find(|segment| is_pattern(segment)) {
        return Some(format!("Flux reads {segment:?} as a field name, but here it is a pattern"));
    }
    if let Some(segment) = path.split('/').skip(1).find(|segment| is_from_end(segment)) {
        return Some(format!(
            "{segment:?} counts from the end of a list: name the element, such as [name=app]"
        ));
    }
    flaw_of(IgnoreRule { target: None, paths: vec![path.to_owned()] }).map(|flaw| flaw.message)
}

/// Whether a character class contains another one; `[[:alpha:]]` does not.
fn has_nested(text: &str) -> bool {
    let mut inside = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '[' if inside && letters.peek() != Some(&':') => return true,
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
    }
    false
}

fn flaw_of(rule: IgnoreRule) -> Option<Flaw> {
    let policy =
        DriftPolicy::new("flux", DriftPolicySpec { ignore: vec![rule], ..DriftPolicySpec::default() });
    compile(&policy).err()?.into_iter().next()
}

#[cfg(test)]
mod tests;
