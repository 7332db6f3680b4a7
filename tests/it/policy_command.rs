//! `kubemoor policy test` and `kubemoor check --policies`, as a script calls
//! them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::Review;

fn kubemoor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubemoor")).args(arguments).output().unwrap()
}

fn library() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/policies")
}

/// A copy of one policy of the library and its test.
fn copied(folder: &Path, edit: impl Fn(String) -> String) {
    fs::create_dir(folder.join("tests")).unwrap();
    for file in ["jenkins-weekend.yaml", "tests/jenkins-weekend.yaml"] {
        let text = fs::read_to_string(Path::new(library()).join(file)).unwrap();
        fs::write(folder.join(file), edit(text)).unwrap();
    }
}

#[test]
fn policy_test_exit_code_distinguishes_pass_failure_and_error() {
    let check = |edit: &dyn Fn(String) -> String, code: i32, said: &str| {
        let folder = tempfile::tempdir().unwrap();
        copied(folder.path(), edit);
        let output = kubemoor(&["policy", "test", folder.path().to_str().unwrap()]);
        let all = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{all}");
        assert!(all.contains(said), "{all}");
    };
    check(&|text| text, 0, "7 cases, 7 passed, 0 failed");
    check(&|text| text.replace("name: jenkins-admins", "name: others"), 1, "  FAIL  ");
    check(&|text| text.replace("SAT", "30 2 *"), 2, "spec.allow[0].schedule.cron: InvalidSchedule");
    check(&|text| text.replace("7 * * SAT", "7 30 2 *"), 2, "spec.allow[0].schedule.cron: NeverFires");
    check(&|text| text.replace("America/New_York", "America/Gotham"), 2, "UnknownTimeZone");
    check(&|text| text.replace("expect:", "expects:"), 2, "missing field `expect`");
}

#[test]
fn the_library_passes_and_tells_each_case() {
    let output = kubemoor(&["policy", "test", library(), "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &answer["failed"]), (Some(0), &json!(0)), "{answer}");
    let policies = fs::read_dir(library()).unwrap();
    let policies =
        policies.filter(|it| it.as_ref().unwrap().path().extension().is_some_and(|it| it == "yaml"));
    assert!(answer["suites"].as_array().unwrap().len() >= policies.count());
}

#[test]
fn check_judges_by_a_directory_of_policies() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let service = |address: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
               "spec": {"type": "LoadBalancer", "loadBalancerIP": address, "ports": [{"port": 80}]}})
        .to_string()
    };
    fs::write(path("web.yaml"), service("192.0.2.1")).unwrap();
    let (old, new) = (service("192.0.2.1"), service("192.0.2.2"));
    let (kind, resource, name) = ("Service", "services", "web");
    let review = Review { group: "", kind, resource, namespace: "shop", name, old: &old, new: &new };
    fs::write(path("review.json"), review.text()).unwrap();
    let (release, review) =
        (format!("--release={}", path("web.yaml")), format!("--review={}", path("review.json")));
    let check = |flags: &[&str]| kubemoor(&[&["check", &release, &review], flags].concat());
    assert_eq!(check(&[]).status.code(), Some(1));
    assert_eq!(check(&["--policies", library()]).status.code(), Some(0));

    fs::create_dir(path("flawed")).unwrap();
    let flawed =
        "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {name: p}\nspec: {edits: Denied}\n";
    fs::write(path("flawed/p.yaml"), flawed).unwrap();
    let output = check(&["--policies", &path("flawed")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("p.yaml: policy p: spec.edits: InvalidValue"), "{said}");
    assert_eq!(check(&["--policies", &path("nowhere")]).status.code(), Some(2));
}

#[test]
fn lint_reports_file_and_rule_of_findings_and_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let lint = |format: &str| kubemoor(&["policy", "lint", folder.path().to_str().unwrap(), "-o", format]);
    assert_eq!(lint("table").status.code(), Some(2), "there is no policy");
    let write = |file: &str, spec: &str| {
        let head = "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\n";
        let name = file.trim_end_matches(".yaml");
        fs::write(folder.path().join(file), format!("{head}metadata: {{name: {name}}}\nspec: {spec}\n"))
            .unwrap();
    };
    write("a.yaml", "{edits: Deny, ignore: [{paths: [/spec/replicas]}]}");
    fs::write(folder.path().join("values.yaml"), "kind: Other\n").unwrap();
    let clean = lint("table");
    assert_eq!((clean.status.code(), clean.stdout.as_slice()), (Some(0), &b"1 policy, 0 findings\n"[..]));
    write("b.yaml", "{edits: Warn, exempt: [{kind: Group, name: system:authenticated}]}");
    write("c.yaml", "{allow: [{name: x, paths: [/spec], schedule: {cron: '0 0 30 2 *', duration: 1h}}]}");
    let found = lint("table");
    let text = String::from_utf8(found.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((found.status.code(), lines.len()), (Some(1), 4), "{text}");
    for part in [
        "c.yaml: policy c: spec.allow[0].schedule.cron: NeverFires: ",
        "b.yaml: policy b: spec.exempt[0]: Everybody: the group \"system:authenticated\" is every user",
        "b.yaml: policy b: spec.edits: Overridden: the policy \"a\" sets it for every release",
        "3 policies, 3 findings",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: Value = serde_json::from_slice(&lint("json").stdout).unwrap();
    assert_eq!((&json["kind"], json["items"].as_array().map(Vec::len)), (&json!("List"), Some(3)), "{json}");
    assert_eq!((&json["items"][1]["policy"], &json["items"][1]["check"]), (&json!("b"), &json!("Everybody")));
    let junit = String::from_utf8(lint("junit").stdout).unwrap();
    assert!(
        junit.contains("<testsuites name=\"kubemoor policy lint\" tests=\"3\" failures=\"2\">"),
        "{junit}"
    );
}
