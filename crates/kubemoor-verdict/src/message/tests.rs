use serde_json::{Value, json};

use crate::message::*;
use crate::samples::{context, drift, finding, object, refused, resolver};
use kubemoor_declare::model::EditsMode;
use kubemoor_declare::model::text::is_unprintable;

const PERMANENT: &str = "To make it permanent, change the chart value and upgrade: helm upgrade shop CHART -n shop --reuse-values --set KEY=VALUE";

#[track_caller]
fn check(text: &str, lines: &[&str]) {
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn denial_tells_each_field_and_every_way_on() {
    let message = drift(
        &object("apps", "Deployment"),
        vec![
            ("/spec/replicas", [json!(2), json!(2), json!(5)]),
            (
                "/spec/template/spec/containers/[name=app]/image",
                [json!("app:1"), json!(null), json!("app:2")],
            ),
            ("/spec/paused", [json!(null), json!(null), json!(true)]),
        ],
    );
    let paths =
        "--path /spec/replicas --path '/spec/template/spec/containers/[name=app]/image' --path /spec/paused";
    let allow = format!(
        "To make it for a while: kubectl moor allow deployment/web -n shop {paths} --for 2h --reason TEXT"
    );
    let details = format!("Details: kubectl moor explain deployment/web -n shop {paths}");
    let claim = r#"Deployment "web" is managed by Helm release "shop" (revision 7)"#;
    let fields = [
        "spec.replicas: 2 -> 5 (release: 2)",
        r#"spec.template.spec.containers[app].image: absent -> "app:2" (release: "app:1")"#,
        "spec.paused: absent -> true (release: absent)",
    ];
    let head = format!("{claim}. This change is not allowed:");
    let indented = fields.map(|field| format!("  {field}"));
    let expected = [&*head, &indented[0], &indented[1], &indented[2], PERMANENT, &allow, &details];
    check(&message.denial(), &expected);
    let warned = fields.map(|field| format!("{claim}: {field}"));
    let expected = [&*warned[0], &warned[1], &warned[2], PERMANENT, &allow, &details];
    check(&message.warnings().join("\n"), &expected);
    let what = "this change would overwrite fields that the release manages";
    assert_eq!(message.line(), format!("{claim}; {what}: {}", fields.join("; ")));
}

#[test]
fn values_are_hidden_from_who_may_not_read_the_object() {
    let nested = |host: &str| json!([{"host": host, "http": {"paths": [{"path": "/the/same"}]}}]);
    let mut message = drift(
        &object("", "ConfigMap"),
        vec![
            ("/data/level", [json!("declared-secret"), json!("old-secret"), json!("guess")]),
            ("/spec/rules", [nested("declared-secret"), nested("old-secret"), nested("guess")]),
        ],
    );
    assert!(message.has_values());
    let line = message.line();
    message.hide_values();
    assert!(!message.has_values());
    let denial = message.denial();
    let lines: Vec<_> = denial.lines().collect();
    assert_eq!(lines[1..3], ["  data.level", "  spec.rules"], "{denial}");
    assert_eq!(lines[3], "Values are shown only to users who may get the object.");
    let warnings = message.warnings();
    assert!(warnings[0].ends_with(": data.level"), "{warnings:?}");
    for text in warnings.iter().chain([&denial]) {
        assert!(!text.contains("secret") && !text.contains("guess"), "{text}");
    }
    // The guard's own log.
    assert_eq!(message.line(), line);
    assert!(line.contains("declared-secret"), "{line}");

    let verdict = refused(VerdictReason::Deletion, Vec::new());
    let deletion = context(&object("apps", "Deployment"), Operation::Delete).of_edit(&verdict);
    assert!(!deletion.has_values() && !of_overload(&object("", "Secret"), false).has_values());
}

#[test]
fn denial_names_the_policy_that_decided() {
    let web = object("apps", "Deployment");
    let mut policy = kubemoor_policy::Policy::clone(resolver(EditsMode::Deny).defaults());
    policy.edits_by = Some("production".to_owned());
    let fields = vec![finding(&web, "/spec/replicas", [json!(2), json!(2), json!(5)])];
    let context = MessageContext { policy: Some(&policy), ..context(&web, Operation::Update) };
    let denial = context.of_edit(&refused(VerdictReason::Drift, fields)).denial();
    assert!(denial.contains("This change is not allowed by policy \"production\":\n"), "{denial}");
}

#[test]
fn nested_values_are_told_by_their_first_difference() {
    let rules =
        |host: &str| json!([{"host": host, "http": {"paths": [{"path": "/a/long/path/that/is/the/same"}]}}]);
    let message = drift(
        &object("networking.k8s.io", "Ingress"),
        vec![("/spec/rules", [rules("a.example.org"), rules("a.example.org"), rules("b.example.org")])],
    );
    let field = r#"spec.rules[0].host: "a.example.org" -> "b.example.org" (release: "a.example.org")"#;
    assert_eq!(message.denial().lines().nth(1), Some(&*format!("  {field}")));
    assert!(message.warnings()[0].ends_with(field) && message.line().ends_with(field), "{message:?}");
}

#[test]
fn values_of_secrets_are_redacted() {
    let message = drift(
        &object("", "Secret"),
        vec![
            ("/data/password", [json!("aHVudGVyMg=="), json!("aHVudGVyMg=="), json!("aHVudGVyMw==")]),
            ("/type", [json!("Opaque"), json!("Opaque"), json!(null)]),
        ],
    );
    let text = message.denial() + &message.warnings().concat() + &message.line();
    assert!(!text.contains("aHVudGVy"), "{text}");
    let fields = "data.password: (redacted) -> (redacted) (release: (redacted)); type: \"Opaque\" -> absent (release: \"Opaque\")";
    assert!(message.line().ends_with(fields), "{}", message.line());
}

#[test]
fn fields_beyond_eight_are_counted() {
    let paths: Vec<_> = (0..11).map(|n| format!("/data/k{n}")).collect();
    let fields = paths.iter().map(|path| (path.as_str(), [json!("a"), json!("a"), json!("b")])).collect();
    let message = drift(&object("", "ConfigMap"), fields);
    let denial = message.denial();
    let lines: Vec<_> = denial.lines().skip(8).collect();
    assert_eq!(lines[..2], [r#"  data.k7: "a" -> "b" (release: "a")"#, "  and 3 more fields"]);
    assert!(lines[3].contains("allow configmap/web -n shop --path '*' --for 2h"), "{lines:?}");
    assert_eq!(lines[4], "Details: kubectl moor explain configmap/web -n shop");
    assert_eq!(message.warnings().len(), 8 + 1 + 3, "{:?}", message.warnings());
}

#[test]
fn known_chart_value_is_named_in_the_command_without_a_new_text() {
    let value = |value: &str, set: Option<&str>, is_list| Candidate {
        value: value.to_owned(),
        score: 90,
        evidence: Vec::new(),
        is_part: false,
        is_list,
        set: set.map(|set| ("--set", format!("{value}={set}"))),
    };
    let both = vec![value("image.repository", Some("app"), false), value("image.tag", Some("2"), false)];
    for (values, names, flags) in [
        (vec![both.clone()], "image.repository, image.tag", "--set image.repository=app --set image.tag=2"),
        (vec![vec![value("image.tag", None, false)]], "image.tag", "--set image.tag=VALUE"),
        (vec![vec![value(r"a.b\.c", None, false)]], r"a.b\.c", r"--set 'a.b\.c=VALUE'"),
        (vec![vec![value("env", None, true)]], "env", "--values FILE"),
        (
            vec![both, Vec::new()],
            "image.repository, image.tag",
            "--set image.repository=app --set image.tag=2 --set KEY=VALUE",
        ),
    ] {
        let fields = vec![("/spec/x", [json!(1), json!(1), json!(2)])];
        let mut message = drift(&object("apps", "Deployment"), fields);
        message.suggest(&values);
        let way = format!(
            "To make it permanent, change the chart value (probably {names}) and upgrade: helm upgrade shop CHART -n shop --reuse-values {flags}\n"
        );
        assert!(message.denial().contains(&way), "{way} is not in {}", message.denial());
    }
}

#[test]
fn key_of_a_map_cannot_break_a_line() {
    let fields = vec![("/data/a\n\u{1b}[31mb\u{202e}", [json!("x\ny\u{2066}"), json!(null), json!(null)])];
    let message = drift(&object("", "ConfigMap"), fields);
    for line in message.denial().lines().map(str::to_owned).chain(message.warnings()) {
        assert!(!line.contains(is_unprintable), "{line:?}");
    }
    assert_eq!(message.denial().lines().count(), 5, "{}", message.denial());
}

#[test]
fn deletion_tells_how_to_remove_the_object() {
    let web = object("apps", "Deployment");
    let verdict = refused(VerdictReason::Deletion, Vec::new());
    let message = context(&web, Operation::Delete).of_edit(&verdict);
    let ways = [
        "To remove it, remove it from the chart and upgrade, or uninstall the release: helm uninstall shop -n shop",
        "To delete it for a while: kubectl moor allow deployment/web -n shop --path delete --for 2h --reason TEXT",
        "Details: kubectl moor explain deployment/web -n shop",
    ];
    let denied =
        r#"Deployment "web" is managed by Helm release "shop" (revision 7). Its deletion is not allowed."#;
    check(&message.denial(), &[denied, ways[0], ways[1], ways[2]]);
    let warned =
        r#"Deployment "web" is managed by Helm release "shop" (revision 7); this change would delete it."#;
    check(&message.warnings().join("\n"), &[warned, ways[0], ways[1], ways[2]]);
}

#[test]
fn object_without_namespace_has_its_exception_in_the_release_namespace() {
    let role = ObjectId { namespace: None, ..object("rbac.authorization.k8s.io", "ClusterRole") };
    let widget = ObjectId { namespace: Some("other".into()), ..object("example.org", "Widget") };
    let fields = || vec![("/rules", [json!(1), json!(1), json!(2)])];
    check(
        &drift(&role, fields()).denial(),
        &[
            r#"ClusterRole "web" is managed by Helm release "shop" in namespace "shop" (revision 7). This change is not allowed:"#,
            "  rules: 1 -> 2 (release: 1)",
            PERMANENT,
            "To make it for a while: kubectl moor allow clusterrole/web -n shop --path /rules --for 2h --reason TEXT",
            "Details: kubectl moor explain clusterrole/web -n shop --path /rules",
        ],
    );
    check(
        &drift(&widget, fields()).denial(),
        &[
            r#"Widget "web" in namespace "other" is managed by Helm release "shop" in namespace "shop" (revision 7). This change is not allowed:"#,
            "  rules: 1 -> 2 (release: 1)",
            PERMANENT,
            "To make it for a while: kubectl moor allow widget.example.org/web -n other --path /rules --for 2h --reason TEXT",
            "Details: kubectl moor explain widget.example.org/web -n other --path /rules",
        ],
    );
}

#[test]
fn falsified_record_tells_what_would_be_false() {
    let mut record = object("", "Secret");
    record.name = "sh.helm.release.v1.web.v7".into();
    let claim = r#"Secret "sh.helm.release.v1.web.v7" is the record of revision 7 of Helm release "web""#;
    let details = "Details: kubectl moor explain secret/sh.helm.release.v1.web.v7 -n shop";
    check(
        &of_record(&record, RecordViolation::Manifest).denial(),
        &[
            &format!(
                "{claim}. This change is not allowed: it would change the manifest of an existing revision."
            ),
            "To change the release, use helm upgrade, helm rollback or helm uninstall, which write the records.",
            details,
        ],
    );
    check(
        &of_record(&record, RecordViolation::Stranger).denial(),
        &[
            &format!(
                "{claim}. This change is not allowed: a policy names the operators of the release, and only they may write its records."
            ),
            "To change the release, run Helm as one of these operators, or add the user under `operators` of the policy.",
            details,
        ],
    );
    let line = |falsified| of_record(&record, falsified).line();
    let last = "it would remove the last deployed revision while the release is installed";
    assert_eq!(line(RecordViolation::LastDeployed), format!("{claim}; {last}"));
    let disagreement = "the record's name, labels and content would no longer agree";
    assert_eq!(line(RecordViolation::Disagreement), format!("{claim}; {disagreement}"));
}

#[test]
fn dependants_are_told_and_counted() {
    use crate::sample_releases::{SampleRecord, assembled};
    let names: Vec<_> = (0..10).map(|n| format!("r{n}")).collect();
    let dependants: Vec<_> = names
        .iter()
        .map(|name| Dependant {
            release: std::sync::Arc::new(assembled(SampleRecord { name, ..SampleRecord::default() }, None)),
            object: object("apps", "Deployment"),
        })
        .collect();
    let shop = ObjectId { namespace: None, name: "shop".into(), ..object("", "Namespace") };
    check(
        &of_dependants(&shop, Operation::Delete, &dependants[..1]).denial(),
        &[
            r#"Deletion of Namespace "shop" is not allowed. This would also delete objects that Helm releases manage:"#,
            r#"  Deployment "web" of Helm release "r0" in namespace "shop""#,
            "Uninstall these releases first: helm uninstall r0 -n shop",
            "Details: kubectl moor explain namespace/shop",
        ],
    );
    let denial = of_dependants(&shop, Operation::Update, &dependants).denial();
    assert!(
        denial.starts_with(r#"A new owner reference of Namespace "shop" is not allowed. This would"#),
        "{denial}"
    );
    let lines: Vec<_> = denial.lines().skip(9).collect();
    assert_eq!(
        lines[..2],
        [
            "  and 2 more",
            "Uninstall these releases first: helm uninstall r0 -n shop, and the others in the same way"
        ]
    );
}

#[test]
fn warnings_fit_and_keep_words_and_the_ends_of_paths() {
    let long = |letter: &str| json!(letter.repeat(300));
    for (name, path) in [
        ("web", "/spec/template/spec/containers/[name=app]/image".to_owned()),
        ("web", format!("/data/{}/image", "deep/".repeat(60))),
        (&*"w".repeat(250), "/spec/template/spec/containers/[name=app]/image".to_owned()),
    ] {
        let web = ObjectId { name: name.into(), ..object("apps", "Deployment") };
        let values = [Some(long("a")), None, Some(long("b"))];
        let parsed: kubemoor_declare::path::Path = path.parse().unwrap();
        let values = values.each_ref().map(Option::as_ref);
        let finding = FieldFinding { difference: None, ..FieldFinding::new(&web, &parsed, values) };
        let message = context(&web, Operation::Update).of_edit(&refused(VerdictReason::Drift, vec![finding]));
        let warnings = message.warnings();
        for warning in &warnings {
            assert!(warning.chars().count() <= WARNING, "{warning}");
        }
        if name == "web" {
            assert!(warnings[0].contains("image: absent -> \"b"), "{}", warnings[0]);
            assert!(warnings[0].contains("(release: \"a") && warnings[0].ends_with("…)"), "{}", warnings[0]);
        }
    }
}

#[test]
fn added_element_is_not_taken_for_a_moved_one() {
    let object = object("apps", "Deployment");
    let path = "/spec/template/spec/containers/[name=side]";
    let mut finding = finding(&object, path, [Value::Null, Value::Null, json!({"name": "side"})]);
    assert!(live_field(&finding).contains("moved"));
    finding.added = true;
    assert_eq!(
        live_field(&finding),
        "spec.template.spec.containers[side]: {\"name\":\"side\"} (release: absent)"
    );
}

#[test]
fn command_too_long_for_a_warning_is_left_out() {
    let web = ObjectId { name: "w".repeat(200).into(), ..object("apps", "Deployment") };
    let message = drift(&web, vec![("/spec/replicas", [json!(2), json!(2), json!(5)])]);
    let warnings = message.warnings();
    assert!(warnings.iter().all(|it| it.chars().count() <= WARNING), "{warnings:?}");
    let commands: Vec<_> = warnings.iter().filter(|it| it.contains("kubectl moor")).collect();
    assert_eq!(commands.len(), 1, "{warnings:?}");
    let details = format!("Details: kubectl moor explain deployment/{} -n shop", web.name);
    assert!(commands[0].ends_with(&details), "{warnings:?}");
    // Where even that is too long the message itself is pasted.
    let web = ObjectId { name: "w".repeat(253).into(), ..web };
    let warnings = drift(&web, vec![("/spec/replicas", [json!(2), json!(2), json!(5)])]).warnings();
    assert!(warnings.last().unwrap().ends_with("kubectl moor explain -"), "{warnings:?}");
}

#[test]
fn user_without_the_right_must_ask_for_the_exception() {
    let web = object("apps", "Deployment");
    let mut message = drift(&web, vec![("/spec/replicas", [json!(2), json!(2), json!(5)])]);
    message.ask_others("shop");
    let asked = "To make it for a while, ask a user with the right to create driftallowances in namespace \"shop\" to run: kubectl moor allow deployment/web -n shop --path /spec/replicas";
    assert!(message.denial().contains(asked), "{}", message.denial());
}

mod patch {
    use serde_json::{Value, json};

    use crate::message::*;
    use crate::shown::Shown;
    use kubemoor_declare::model::ObjectId;
    use kubemoor_declare::path::{Path, Segment};

    fn finding(kind: &str, path: &[&str], declared: Option<Value>, live: Option<Value>) -> FieldFinding {
        let object = ObjectId::namespaced("", kind, "shop", "x");
        let path = Path(path.iter().map(|name| Segment::Field((*name).into())).collect());
        let shown = |value: Option<Value>| value.map(|value| Shown::new(&object, &path, &value));
        FieldFinding {
            declared: shown(declared),
            old: None,
            new: shown(live),
            path: path.clone(),
            difference: None,
            in_doubt: false,
            added: false,
        }
    }

    #[test]
    fn each_sort_of_change_is_its_operation() {
        let findings = [
            finding("ConfigMap", &["data", "a"], Some(json!("1")), Some(json!("2"))),
            finding("ConfigMap", &["data", "b"], Some(json!("1")), None),
            finding("ConfigMap", &["data", "c"], None, Some(json!("2"))),
        ];
        assert_eq!(
            patch(&findings, 500),
            r#"[{"op":"replace","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"1"},{"op":"remove","path":"/data/c"}]"#
        );
        assert_eq!(patch(&[], 500), "[]");
    }

    #[test]
    fn a_secret_stays_one_and_a_long_patch_is_cut() {
        let secret = finding("Secret", &["data", "password"], Some(json!("hunter2")), Some(json!("hunter3")));
        let text = patch(&[secret], 500);
        assert!(!text.contains("hunter"), "{text}");
        let long = finding("ConfigMap", &["data", "a"], Some(json!("ü".repeat(100))), None);
        let text = patch(&vec![long; 50], 500);
        assert_eq!(text.chars().count(), 500);
        assert!(text.ends_with('…'));
    }
}
