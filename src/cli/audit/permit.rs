//! The policies that would permit what passed and Deny would refuse.
//!
//! Entry point: [`permits`]. Invariant: a policy names exactly the releases,
//! objects and fields that were met, so that it permits nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use kubemoor_ledger::entry::{Entry, Object};
use kubemoor_policy::resource::{IgnoreRule, MAX_PATHS, MAX_RULES, ReleaseSelector, TargetSpec};

const API_VERSION: &str = "kubemoor.dev/v1alpha1";
const KIND: &str = "DriftPolicy";

/// A DriftPolicy that would permit what passed, as it may be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct PermitPolicy {
    #[schemars(extend("const" = API_VERSION))]
    api_version: &'static str,
    #[schemars(extend("const" = KIND))]
    kind: &'static str,
    metadata: PermitName,
    spec: PermitSpec,
}

/// What the policy is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
struct PermitName {
    /// By the release and its namespace; with a number where one policy does not suffice.
    name: String,
}

/// What the policy says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
struct PermitSpec {
    /// The one release.
    releases: ReleaseSelector,
    /// The fields that were changed.
    ignore: Vec<IgnoreRule>,
}

/// Group, kind, namespace and name of an object.
type Named = (String, String, Option<String>, String);

/// The policy rules that would permit the recorded changes to one release's objects.
pub(super) struct Permit {
    namespace: String,
    release: String,
    objects: BTreeMap<Named, BTreeSet<String>>,
    /// Edits that no ignored field would permit.
    pub(super) uncovered: usize,
}

/// One for each release of `entries`.
pub(super) fn permits(entries: &[Entry]) -> Vec<Permit> {
    let mut permits: BTreeMap<(String, String), Permit> = BTreeMap::new();
    for entry in entries {
        let release = entry.release.clone().unwrap_or_default();
        let permit = permits.entry((entry.namespace.clone(), release.clone())).or_insert_with(|| Permit {
            namespace: entry.namespace.clone(),
            release,
            objects: BTreeMap::new(),
            uncovered: 0,
        });
        let covered = entry.release.is_some() && entry.more_fields == 0 && !entry.fields.is_empty();
        if !covered {
            permit.uncovered += 1;
            continue;
        }
        let Object { group, kind, namespace, name } = entry.object.clone();
        let paths = permit.objects.entry((group, kind, namespace, name)).or_default();
        paths.extend(entry.fields.iter().map(|field| field.path.clone()));
    }
    permits.into_values().collect()
}

impl Permit {
    /// The policies, ready to apply: one, unless the rules do not fit into one.
    pub(super) fn policies(&self) -> Vec<PermitPolicy> {
        let rules: Vec<IgnoreRule> = self.objects.iter().flat_map(rules).collect();
        let policies = rules.chunks(MAX_RULES).enumerate().map(|(before, ignore)| {
            let Self { namespace, release, .. } = self;
            let number = if before == 0 { String::new() } else { format!("-{}", before + 1) };
            PermitPolicy {
                api_version: API_VERSION,
                kind: KIND,
                metadata: PermitName { name: format!("permit-{namespace}-{release}{number}") },
                spec: PermitSpec {
                    releases: ReleaseSelector {
                        names: vec![release.clone()],
                        namespaces: vec![namespace.clone()],
                        ..ReleaseSelector::default()
                    },
                    ignore: ignore.to_vec(),
                },
            }
        });
        policies.collect()
    }
}

/// The rules that ignore these fields of an object.
fn rules((object, paths): (&Named, &BTreeSet<String>)) -> Vec<IgnoreRule> {
    let (group, kind, namespace, name) = object;
    // Selectors are regular expressions; a dot in a name must match only itself.
    let literal = |text: &str| Some(text.replace('.', "\\.")).filter(|text| !text.is_empty());
    let target = TargetSpec {
        group: literal(group),
        kind: Some(kind.clone()),
        namespace: namespace.clone(),
        name: literal(name),
        ..TargetSpec::default()
    };
    let paths: Vec<String> = paths.iter().cloned().collect();
    let rule = |paths: &[String]| IgnoreRule { target: Some(target.clone()), paths: paths.to_vec() };
    paths.chunks(MAX_PATHS).map(rule).collect()
}
