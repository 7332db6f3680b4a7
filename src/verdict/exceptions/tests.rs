use serde_json::json;

use super::*;
use crate::helm::release::Release;
use crate::helm::release::tests::{Given, assembled};
use crate::policy::book::Labels;
use crate::policy::resource::DriftAllowance;
use crate::policy::samples::{policies, policy};

const NOON: &str = "2026-11-21T12:00:00Z";

/// What a test asks of the exceptions of the one object of a release.
fn with<T>(
    release: &Release,
    spec: &str,
    circumstances: &Circumstances,
    now: &str,
    ask: impl FnOnce(&Exceptions<'_>) -> T,
) -> T {
    let (object, declarations) = release.objects.iter().next().unwrap();
    let declared = declarations.latest.as_ref().unwrap();
    let policy = policies([policy("p", spec)]).of(&release.id, &Labels::new());
    let named = (object, &release.id);
    ask(&Exceptions::new(named, declared, &policy, circumstances, None, now.parse().unwrap()))
}

/// A release of a Deployment with two replicas and these annotations.
fn release(annotations: &str) -> Release {
    let manifest = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, annotations: {{{annotations}}}}}\n\
         spec: {{replicas: 2}}\n"
    );
    assembled(Given { manifest: &manifest, ..Given::default() }, None)
}

fn allowance(paths: &[&str], until: &str) -> Arc<Allowance> {
    let resource: DriftAllowance = serde_json::from_value(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
        "metadata": {"name": "a", "namespace": "shop", "creationTimestamp": "2026-11-21T11:00:00Z"},
        "spec": {
            "object": {"group": "apps", "kind": "Deployment", "name": "web"},
            "paths": paths, "until": until, "reason": "INC-1",
        },
    }))
    .unwrap();
    Arc::new(Allowance::compile(&resource).unwrap())
}

#[test]
fn a_repair_leaves_what_may_differ_as_it_is() {
    let covers = |spec: &str, circumstances: &Circumstances, replicas: i64, path: &str| {
        let live = json!({"spec": {"replicas": replicas}});
        with(&release(""), spec, circumstances, NOON, |it| it.mask(&live).covers(&path.parse().unwrap()))
    };
    let none = Circumstances::default();
    assert!(!covers("{}", &none, 5, "/spec/replicas"));
    assert!(covers("{ignore: [{paths: [/spec/paused]}]}", &none, 5, "/spec/paused"));
    assert!(covers("{allow: [{name: a, paths: [/spec/paused]}]}", &none, 5, "/spec/paused"));
    let allowances = vec![allowance(&["/spec/paused"], "2026-11-21T13:00:00Z")];
    let allowed = Circumstances { allowances, ..Circumstances::default() };
    assert!(covers("{}", &allowed, 5, "/spec/paused") && !covers("{}", &allowed, 5, "/spec/replicas"));

    let autoscaler = Some(Autoscaler { minimum: 3, maximum: 6, by_keda: false, declared: false });
    let scaled = Circumstances { autoscaler, ..Circumstances::default() };
    assert!(covers("{}", &scaled, 5, "/spec/replicas") && !covers("{}", &scaled, 5, "/spec/paused"));
    assert!(!covers("{}", &scaled, 7, "/spec/replicas"));
    assert!(!covers("{autoscalers: Declared}", &scaled, 5, "/spec/replicas"));
    let departed = Circumstances { departed: true, ..Circumstances::default() };
    assert!(covers("{}", &departed, 70, "/spec/replicas") && !covers("{}", &departed, 70, "/spec/paused"));
}

#[test]
fn what_an_autoscaler_left_behind_excuses_no_edit() {
    let release = release("");
    let (object, declarations) = release.objects.iter().next().unwrap();
    let declared = declarations.latest.as_ref().unwrap();
    let policy = policies([]).of(&release.id, &Labels::new());
    let departed = Circumstances { departed: true, ..Circumstances::default() };
    let alice = Actor { user: "alice".to_owned(), groups: Vec::new() };
    let path: Path = "/spec/replicas".parse().unwrap();
    for (actor, expected) in [(None, Some(Reason::Autoscaled)), (Some(&alice), None)] {
        let named = (object, &release.id);
        let exceptions = Exceptions::new(named, declared, &policy, &departed, actor, NOON.parse().unwrap());
        assert_eq!(exceptions.of_sealed(&path, None, Some(&json!(9))), expected);
    }
}

#[test]
fn it_is_known_when_what_may_differ_changes_by_itself() {
    let next = |annotations: &str, spec: &str, circumstances: &Circumstances, now: &str| {
        let next = with(&release(annotations), spec, circumstances, now, |it| it.next_change());
        next.map(|at| at.to_string())
    };
    let none = Circumstances::default();
    let check = |found: Option<String>, expected: Option<&str>| assert_eq!(found.as_deref(), expected);
    check(next("", "{ignore: [{paths: [/spec]}]}", &none, NOON), None);
    let by_chart = "kubemoor.dev/allow: delete, kubemoor.dev/allow-until: '2026-11-21T13:00:00Z'";
    check(next(by_chart, "{}", &none, NOON), Some("2026-11-21T13:00:00Z"));
    check(next(by_chart, "{}", &none, "2026-11-21T13:00:00Z"), None);
    // A window that is still to open, and an allowance that ends before.
    let window = "{allow: [{name: a, paths: ['*'], \
                  schedule: {cron: '0 14 * * *', duration: 1h, timeZone: Etc/UTC}}]}";
    check(next("", window, &none, NOON), Some("2026-11-21T14:00:00Z"));
    let allowances = vec![allowance(&["*"], "2026-11-21T12:30:00Z")];
    let allowed = Circumstances { allowances, ..Circumstances::default() };
    check(next("", window, &allowed, NOON), Some("2026-11-21T12:30:00Z"));
    check(next("", window, &allowed, "2026-11-21T12:30:00Z"), Some("2026-11-21T14:00:00Z"));
}

#[test]
fn what_there_is_can_be_named() {
    let allowances = vec![allowance(&["*"], "2026-11-21T12:30:00Z")];
    let autoscaler = Some(Autoscaler { minimum: 3, maximum: 6, by_keda: false, declared: false });
    let circumstances = Circumstances { allowances, autoscaler, departed: false };
    let named = |spec: &str, now: &str| {
        with(&release(""), spec, &circumstances, now, |it| {
            let named = it.sources().into_iter().map(|source| match source {
                Source::Ignored(_) => "ignored".to_owned(),
                Source::Standing(standing) => standing.origin.to_string(),
                Source::Allowance(allowance) => allowance.name.clone(),
                Source::Autoscaler(autoscaler, path) => format!("{path} to {}", autoscaler.maximum),
            });
            named.collect::<Vec<_>>()
        })
    };
    let spec = "{ignore: [{paths: [/a]}], allow: [{name: some, paths: [/b]}]}";
    assert_eq!(named(spec, NOON), ["ignored", "allowance some of policy p", "a", "/spec/replicas to 6"]);
    assert_eq!(named("{autoscalers: Declared}", "2026-11-21T13:00:00Z"), Vec::<String>::new());
}
