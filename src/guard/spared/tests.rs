use std::time::Duration;

use super::*;
use crate::helm::release::tests::{Given, assembled};
use crate::model::{DriftMode, EditsMode};
use crate::policy::book::{Labels, Policies};
use crate::policy::compile::compile;

/// What is left alone of a ConfigMap with these annotations, under this policy.
fn spared(annotations: &str, spec: &str, now: &str) -> Spared {
    let manifest =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, annotations: {{{annotations}}}}}\n");
    let release = assembled(Given { manifest: &manifest, ..Given::default() }, None);
    let (object, declarations) = release.objects.iter().next().unwrap();
    let text = format!(
        "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {{name: p}}\nspec: {spec}\n"
    );
    let policy = compile(&serde_saphyr::from_str(&text).unwrap()).unwrap();
    let defaults = Policy::new(EditsMode::Warn, DriftMode::Repair, Duration::from_secs(3600));
    let policies = Policies::new(defaults, &Labels::new(), [Arc::new(policy)]);
    let policy = policies.of(&release.id, &Labels::new());
    Spared::of(&policy, object, declarations.latest.as_ref().unwrap(), &[], false, now.parse().unwrap())
}

#[test]
fn the_replicas_of_a_scaled_workload_are_left_alone() {
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2}\n";
    let release = assembled(Given { manifest, ..Given::default() }, None);
    let (object, declarations) = release.objects.iter().next().unwrap();
    let policy = Policy::new(EditsMode::Warn, DriftMode::Repair, Duration::from_secs(3600));
    for scaled in [true, false] {
        let declared = declarations.latest.as_ref().unwrap();
        let spared = Spared::of(&policy, object, declared, &[], scaled, Timestamp::UNIX_EPOCH);
        assert_eq!(spared.mask.covers(&"/spec/replicas".parse().unwrap()), scaled);
        assert!(!spared.mask.covers(&"/spec/paused".parse().unwrap()));
    }
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
