use super::*;

fn policy_text(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

fn check(files: &[(&str, &str)], accepted: &[&str], flawed: &[(&str, &str, &str, FlawReason)]) {
    let (policies, flaws) = read(files.iter().copied());
    let names: Vec<_> = policies.iter().map(|policy| policy.name.as_str()).collect();
    let found: Vec<_> = flaws
        .iter()
        .map(|it| (it.file.as_str(), it.policy.as_str(), it.flaw.field.as_str(), it.flaw.reason))
        .collect();
    assert_eq!((names.as_slice(), found.as_slice()), (accepted, flawed), "{files:?}: {flaws:?}");
}

#[test]
fn files_hold_any_number_of_policies() {
    let (a, b) = (policy_text("a", "{edits: Deny}"), policy_text("b", "{}"));
    check(&[("1.yaml", &format!("# policies\n---\n{a}---\n{b}---\n"))], &["a", "b"], &[]);
    check(&[("1.yaml", &b), ("2.yaml", &a)], &["a", "b"], &[]);
    check(&[], &[], &[]);
    check(&[("empty.yaml", "")], &[], &[]);
}

#[test]
fn a_flaw_takes_no_other_policy_with_it() {
    let good = policy_text("good", "{edits: Deny}");
    let bad = policy_text("bad", "{ignore: [{paths: [x]}]}");
    check(
        &[("a.yaml", &format!("{good}---\n{bad}")), ("b.yaml", "a: [")],
        &["good"],
        &[
            ("a.yaml", "bad", "spec.ignore[0].paths[0]", FlawReason::InvalidPath),
            ("b.yaml", "1", "", FlawReason::Unreadable),
        ],
    );
}

#[test]
fn invalid_policy_documents_are_reported_with_file_and_name() {
    let other = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: c2VjcmV0}\n";
    check(&[("a.yaml", other)], &[], &[("a.yaml", "s", "apiVersion", FlawReason::InvalidValue)]);
    let unnamed = "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {}\nspec: {}\n";
    check(&[("a.yaml", unnamed)], &[], &[("a.yaml", "1", "", FlawReason::Unreadable)]);
    let typo = policy_text("typo", "{ignroe: []}");
    check(&[("a.yaml", &typo)], &[], &[("a.yaml", "typo", "spec.ignroe", FlawReason::UnknownField)]);
    check(&[("a.yaml", "just text")], &[], &[("a.yaml", "1", "", FlawReason::Unreadable)]);
    let large = "#".repeat(MAX_FILE + 1);
    check(&[("a.yaml", &large)], &[], &[("a.yaml", "1", "", FlawReason::Unreadable)]);
}

#[test]
fn first_of_two_policies_with_one_name_counts() {
    let (deny, warn) = (policy_text("p", "{edits: Deny}"), policy_text("p", "{edits: Warn}"));
    check(
        &[("a.yaml", &deny), ("b.yaml", &warn)],
        &["p"],
        &[("b.yaml", "p", "metadata.name", FlawReason::DuplicateName)],
    );
    let (policies, _) = read([("a.yaml", deny.as_str()), ("b.yaml", warn.as_str())]);
    assert_eq!(policies[0].edits, Some(kubemoor_declare::model::EditsMode::Deny));
}

#[test]
fn a_flaw_reads_as_a_sentence_with_its_place() {
    let (_, flaws) = read([("a.yaml", policy_text("p", "{ignore: [{paths: [x]}]}").as_str())]);
    assert_eq!(
        flaws[0].to_string(),
        "a.yaml: policy p: spec.ignore[0].paths[0]: InvalidPath: the path \"x\" does not begin with `/`: \
         write it as a JSON Pointer such as /spec/replicas"
    );
}
