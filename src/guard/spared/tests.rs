use std::collections::HashMap;
use std::time::Duration;

use super::*;
use crate::helm::release::tests::{Given, assembled};
use crate::model::{DriftMode, EditsMode};
use crate::policy::book::{Book, Labels, Policies};
use crate::policy::compile::compile;

/// What is left alone of a ConfigMap with these annotations, under this policy.
fn spared(annotations: &str, spec: &str, now: &str) -> Spared {
    let manifest = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, annotations: {{{annotations}}}}}\n");
    let release = assembled(Given { manifest: &manifest, ..Given::default() }, None);
    let (object, declarations) = release.objects.iter().next().unwrap();
    let text = format!("apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {{name: p}}\nspec: {spec}\n");
    let policy = compile(&serde_saphyr::from_str(&text).unwrap()).unwrap();
    let defaults = Policy::new(EditsMode::Warn, DriftMode::Repair, Duration::from_secs(3600));
    let policies = Policies::new(defaults, &Labels::new(), [Arc::new(policy)]);
    let policy = Book::of_policies(policies, HashMap::new()).of(&release.id);
    Spared::of(&policy, object, declarations.latest.as_ref().unwrap(), now.parse().unwrap())
}

#[test]
fn what_a_policy_ignores_and_an_open_allowance_grants_is_left_alone() {
    let covers = |spared: &Spared, path: &str| spared.mask.covers(&path.parse().unwrap());
    let now = "2026-11-21T12:00:00Z";
    let ignored = spared("", "{ignore: [{paths: [/data/a]}]}", now);
    assert!(covers(&ignored, "/data/a") && !covers(&ignored, "/data/b"));
    assert!(!ignored.absence && ignored.until.is_none());

    let by_chart = "kubemoor.dev/allow: '/data/b,delete', kubemoor.dev/allow-until: '2026-11-21T13:00:00Z'";
    let open = spared(by_chart, "{}", now);
    assert!(covers(&open, "/data/b") && open.absence);
    assert_eq!(open.until, Some("2026-11-21T13:00:00Z".parse().unwrap()));
    let over = spared(by_chart, "{}", "2026-11-21T13:00:00Z");
    assert!(!covers(&over, "/data/b") && !over.absence && over.until.is_none());
}
