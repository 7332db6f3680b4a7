use std::fs;

use super::*;

const POLICY: &str = "
apiVersion: kubemoor.dev/v1alpha1
kind: DriftPolicy
metadata: {name: modes}
spec: {edits: Record, releases: {names: [web]}}
";

const HEAD: &str = "
apiVersion: kubemoor.dev/v1alpha1
kind: PolicyTest
metadata: {name: web}
spec:
  policies: [../modes.yaml]
  release:
    name: web
    namespace: shop
    manifest: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec: {replicas: 3, template: {spec: {containers: [{name: app, image: 'web:1'}]}}}
  cases:
";

/// What comes of these cases under a policy that makes everything `Record`.
fn tested(cases: &str) -> anyhow::Result<TestTally> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tests")).unwrap();
    fs::write(folder.path().join("modes.yaml"), POLICY).unwrap();
    fs::write(folder.path().join("tests/web.yaml"), format!("{HEAD}{cases}")).unwrap();
    test(folder.path(), "2026-01-02T03:04:05Z".parse().unwrap())
}

fn check(case: &str, expected: Option<&str>) {
    let tally = tested(&format!("  - {{name: it, object: Deployment/web, {case}}}\n")).unwrap();
    match expected {
        None => assert_eq!((tally.passed, tally.failed), (1, 0), "{case}: {tally:?}"),
        Some(wrong) => {
            assert_eq!((tally.passed, tally.failed), (0, 1), "{case}: {tally:?}");
            assert_eq!(tally.suites[0].cases[0].failure.as_deref(), Some(wrong), "{case}");
        }
    }
}

#[test]
fn an_edit_is_judged_in_every_spelling() {
    check("merge: {spec: {replicas: 5}}, expect: Record", None);
    check("merge: {spec: {replicas: 3}}, expect: Allow", None);
    check("json: [{op: replace, path: /spec/replicas, value: 5}], expect: Record", None);
    check("scale: 5, expect: Record, fields: [/spec/replicas]", None);
    check("scale: 3, expect: Allow", None);
    check("delete: true, expect: Record, reason: deletion", None);
    check("create: {spec: {replicas: 5}}, expect: Record", None);
    check("create: {}, expect: Allow", None);
    check("live: {spec: {replicas: 5}}, merge: {spec: {replicas: 3}}, expect: Allow", None);
    check("user: alice, groups: [dev], time: '2026-01-01T00:00:00Z', delete: true, expect: Record", None);
    let collector = "user: 'system:serviceaccount:kube-system:generic-garbage-collector'";
    check(&format!("{collector}, delete: true, expect: Allow, reason: identity"), None);
}

#[test]
fn policy_test_failure_shows_expected_and_actual_verdict() {
    check(
        "merge: {spec: {replicas: 5}}, expect: Deny",
        Some("expected Deny, got Record (drift) at [/spec/replicas]"),
    );
    check(
        "merge: {spec: {replicas: 5}}, expect: Record, reason: deletion",
        Some("expected Record (deletion), got Record (drift) at [/spec/replicas]"),
    );
    check(
        "scale: 5, expect: Record, fields: [/spec/paused]",
        Some("expected Record at [/spec/paused], got Record (drift) at [/spec/replicas]"),
    );
    check("scale: 3, expect: Record", Some("expected Record, got Allow (unchanged)"));
}

#[test]
fn the_verdict_without_policies_is_part_of_a_case() {
    check("scale: 5, expect: Record, without: Deny", None);
    check(
        "scale: 5, expect: Record, without: Allow",
        Some("without policies expected Allow, got Deny (drift) at [/spec/replicas]"),
    );
}

#[test]
fn autoscalers_move_replicas_within_their_range() {
    let judged = |autoscalers: &str, case: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tests")).unwrap();
        fs::write(folder.path().join("modes.yaml"), POLICY).unwrap();
        let head = HEAD.replace("  cases:", &format!("  autoscalers: [{autoscalers}]\n  cases:"));
        let case = format!("  - {{name: it, object: Deployment/web, {case}}}\n");
        fs::write(folder.path().join("tests/web.yaml"), format!("{head}{case}")).unwrap();
        test(folder.path(), Timestamp::UNIX_EPOCH)
    };
    let check = |autoscalers: &str, case: &str| {
        let tally = judged(autoscalers, case).unwrap();
        assert_eq!((tally.passed, tally.failed), (1, 0), "{autoscalers}: {case}: {tally:?}");
    };
    let hpa = "user: 'system:serviceaccount:kube-system:horizontal-pod-autoscaler'";
    let keda = "user: 'system:serviceaccount:keda:keda-operator'";
    let to_six = "{object: Deployment/web, minReplicas: 3, maxReplicas: 6}";
    check(to_six, &format!("{hpa}, scale: 6, expect: Allow, reason: autoscaled, without: Allow"));
    check(to_six, &format!("{hpa}, scale: 7, expect: Record, reason: drift"));
    check(to_six, "scale: 6, expect: Record, reason: drift");
    check("", &format!("{hpa}, scale: 6, expect: Record, reason: drift"));
    check("{object: Deployment/web, maxReplicas: 6}", &format!("{hpa}, scale: 1, expect: Allow"));
    check(to_six, &format!("{keda}, scale: 0, expect: Record, reason: drift"));
    check(&to_six.replace('}', ", keda: true}"), &format!("{keda}, scale: 0, expect: Allow"));
    // Of several each range counts.
    check(
        &format!("{to_six}, {}", to_six.replace('6', "9")),
        &format!("{hpa}, scale: 9, expect: Allow, reason: autoscaled"),
    );
    let fails = |autoscalers: &str, expected: &str| {
        let error = format!("{:#}", judged(autoscalers, "scale: 3, expect: Allow").unwrap_err());
        assert!(error.contains(expected), "{autoscalers}: {error}");
    };
    fails(
        "{object: Deployment/api, maxReplicas: 6}",
        "autoscalers[0]: the release declares no Deployment/api",
    );
    fails("{object: Deployment/web, minReplicas: 7, maxReplicas: 6}", "minReplicas 7 is more than");
    fails("{object: Deployment/web}", "maxReplicas");
}

#[test]
fn the_total_is_told() {
    let tally = tested(
        "  - {name: one, object: Deployment/web, scale: 3, expect: Allow}\n  - {name: two, object: Deployment/web, scale: 4, expect: Deny}\n",
    )
    .unwrap();
    let text = anstream::adapter::strip_str(tally.text().as_str()).to_string();
    assert!(text.contains("  ok    one\n  FAIL  two: "), "{text}");
    assert!(text.ends_with("2 cases, 1 passed, 1 failed\n"), "{text}");
}

#[test]
fn a_case_that_cannot_be_judged_is_an_error() {
    let check = |case: &str, expected: &str| {
        let error = format!("{:#}", tested(&format!("  - {{name: it, {case}}}\n")).unwrap_err());
        assert!(error.contains(expected), "{case}: {error}");
    };
    check("object: Deployment/web, scale: 3", "missing field `expect`");
    check("object: Deployment/web, expect: Deny", "one of merge, json, scale");
    check("object: Deployment/web, scale: 3, delete: true, expect: Deny", "one of merge, json, scale");
    check("object: Deployment/api, scale: 3, expect: Deny", "declares no Deployment/api");
    check("scale: 3, expect: Deny", "needs an object");
    check("object: Deployment/web, scales: 3, expect: Deny", "unknown field");
    check("object: Deployment/web, json: [{op: remove, path: /a/b}], expect: Deny", "does not apply");
    check("review: review.json, expect: Deny", "cannot read");
}

#[test]
fn a_policy_with_a_flaw_fails_the_test() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tests")).unwrap();
    fs::write(folder.path().join("modes.yaml"), POLICY.replace("Record", "Rekord")).unwrap();
    fs::write(folder.path().join("tests/web.yaml"), format!("{HEAD}  - {{name: a, expect: Deny}}\n"))
        .unwrap();
    let error = format!("{:#}", test(folder.path(), Timestamp::UNIX_EPOCH).unwrap_err());
    assert!(error.contains("policy modes: spec.edits: InvalidValue"), "{error}");
}

#[test]
fn a_directory_without_tests_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(test(folder.path(), Timestamp::UNIX_EPOCH).is_err());
    fs::write(folder.path().join("modes.yaml"), POLICY).unwrap();
    assert!(test(folder.path(), Timestamp::UNIX_EPOCH).is_err());
    assert!(test(&folder.path().join("nowhere"), Timestamp::UNIX_EPOCH).is_err());
}

#[test]
fn the_library_of_policies_does_what_it_says() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let tally = test(&library, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(tally.failed, 0, "{}", anstream::adapter::strip_str(tally.text().as_str()));
}

#[test]
fn junit_document_is_well_formed_whatever_a_case_is_called() {
    let case = |name: &str, failure: Option<&str>| CaseResult {
        name: name.to_owned(),
        failure: failure.map(str::to_owned),
    };
    let mut tally = TestTally::default();
    let cases =
        vec![case("say \"no\"\u{1b}", None), case("b", Some("expected Deny, got Allow (as-declared)"))];
    tally.add(SuiteResult { name: "scale & <restart>".to_owned(), file: "a.yaml".into(), cases });
    assert_eq!(
        tally.junit("kubemoor policy test").unwrap(),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites name=\"kubemoor policy test\" tests=\"2\" failures=\"1\">\n\
         <testsuite name=\"scale &amp; &lt;restart&gt;\" file=\"a.yaml\" tests=\"2\" failures=\"1\">\n\
         <testcase name=\"say &quot;no&quot;\u{fffd}\" classname=\"scale &amp; &lt;restart&gt;\"></testcase>\n\
         <testcase name=\"b\" classname=\"scale &amp; &lt;restart&gt;\">\
         <failure message=\"expected Deny, got Allow (as-declared)\">expected Deny, got Allow (as-declared)</failure>\
         </testcase>\n\
         </testsuite>\n\
         </testsuites>\n"
    );
}
