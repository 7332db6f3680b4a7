use super::super::samples::{declared, policies, policy};
use super::*;
use kubemoor_declare::model::ReleaseId;
use std::collections::BTreeMap;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn chart(annotations: &str) -> Declared {
    declared(&format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: shop, annotations: {{{annotations}}}}}}}"
    ))
    .1
}

#[test]
fn a_chart_allows_by_its_annotations() {
    let declared = chart("kubemoor.dev/allow: '/spec/replicas, delete', kubemoor.dev/allow-reason: INC-123");
    let standing = of_manifest(&declared).unwrap().unwrap();
    assert!(standing.grant.deletes);
    assert!(standing.grant.mask.covers(&"/spec/replicas".parse().unwrap()));
    assert!(!standing.grant.mask.covers(&"/spec/paused".parse().unwrap()));
    assert!(standing.open(Timestamp::MAX) && standing.admits(&Actor::default()));
    assert_eq!(standing.next_change(at("2026-01-01T00:00:00Z")), None);
    assert_eq!(standing.origin.to_string(), "annotation kubemoor.dev/allow of the chart (INC-123)");
    assert!(of_manifest(&chart("a: b")).unwrap().is_none());
}

#[test]
fn an_annotation_of_a_chart_ends_when_it_says_so() {
    let declared = chart("kubemoor.dev/allow: '*', kubemoor.dev/allow-until: '2026-12-24T18:00:00+01:00'");
    let standing = of_manifest(&declared).unwrap().unwrap();
    let until = at("2026-12-24T17:00:00Z");
    assert!(standing.open(until - jiff::SignedDuration::from_secs(1)) && !standing.open(until));
    assert_eq!(standing.next_change(at("2026-01-01T00:00:00Z")), Some(until));
    assert_eq!(standing.next_change(until), None);
    assert!(!standing.grant.deletes);
}

#[test]
fn a_broken_annotation_allows_nothing_and_is_named() {
    let check = |annotations: &str, field: &str| {
        let flaws = of_manifest(&chart(annotations)).unwrap_err();
        assert_eq!(flaws[0].field, field, "{annotations}: {flaws:?}");
        let declared = chart(annotations);
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let object = declared_id();
        let rules = policies([]).of(&release, &BTreeMap::new()).rules(&object, &Arc::new(declared));
        assert!(rules.standing.is_empty() && rules.flaws == flaws);
    };
    check("kubemoor.dev/allow: spec.replicas", "kubemoor.dev/allow[0]");
    check("kubemoor.dev/allow: ''", "kubemoor.dev/allow");
    check("kubemoor.dev/allow: '*', kubemoor.dev/allow-until: tomorrow", "kubemoor.dev/allow-until");
    check("kubemoor.dev/allow: '*', kubemoor.dev/allow-until: ''", "kubemoor.dev/allow-until");
}

fn declared_id() -> kubemoor_declare::model::ObjectId {
    declared("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}").0
}

#[test]
fn policy_allowance_applies_only_in_its_schedule_and_to_subjects() {
    let jenkins = policy(
        "jenkins",
        "allow:
- name: weekend
  paths: [/spec/replicas]
  schedule: {cron: '30 7 * * SAT,SUN', duration: 10h, timeZone: America/New_York}
  subjects: [{kind: Group, name: jenkins-admins}]",
    );
    let (_, standing) = &jenkins.allow[0];
    assert!(standing.open(at("2026-11-21T13:00:00Z")) && !standing.open(at("2026-11-20T13:00:00Z")));
    let actor =
        |group: &str| Actor { user: "alice".to_owned(), groups: vec![group.to_owned()], ..Actor::default() };
    assert!(standing.admits(&actor("jenkins-admins")) && !standing.admits(&actor("developers")));
    assert_eq!(standing.next_change(at("2026-11-20T13:00:00Z")), Some(at("2026-11-21T12:30:00Z")));
    assert_eq!(standing.origin.to_string(), "allowance weekend of policy jenkins");
}
