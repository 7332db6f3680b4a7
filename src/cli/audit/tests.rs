use serde_json::json;

use super::*;
use kubemoor_policy::resource::{MAX_PATHS, MAX_RULES};

fn entry(verdict: &str, object: &str, fields: serde_json::Value) -> LedgerEntry {
    let time: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
    serde_json::from_value(json!({
        "id": "42", "time": time, "kind": "verdict", "cluster": "test", "namespace": "shop", "release": "web",
        "revision": 3, "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": object},
        "operation": "UPDATE", "user": "alice", "groups": ["people"], "verdict": verdict, "reason": "drift",
        "detail": "", "fields": fields, "moreFields": 0, "uid": "u-1"
    }))
    .unwrap()
}

fn replicas() -> serde_json::Value {
    json!([{"path": "/spec/replicas", "declared": "2", "old": "2", "new": "5"}])
}

fn show(form: AuditFormat) -> RowPrinter {
    RowPrinter::new(OutputFormat::People(form), false, true)
}

#[test]
fn a_row_of_the_table_says_who_did_what() {
    let text = show(AuditFormat::Table).rows(&[entry("Deny", "web", replicas())]).unwrap();
    let lines: Vec<_> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "TIME VERDICT REASON RELEASE OBJECT OPERATION USER WHAT",
            "2026-11-21T05:00:00Z Deny drift shop/web v3 Deployment/web UPDATE alice \
             /spec/replicas 2 -> 5 (declared 2)",
        ]
    );
}

#[test]
fn rows_without_headers_have_the_columns_of_those_with_them() {
    let rows = [entry("Deny", "web", replicas())];
    for form in [AuditFormat::Table, AuditFormat::Csv] {
        let headed = show(form).rows(&rows).unwrap();
        let bare = RowPrinter::new(OutputFormat::People(form), false, false).rows(&rows).unwrap();
        assert_eq!(headed.split_once('\n').unwrap().1, bare, "{form:?}");
    }
}

#[test]
fn drift_found_by_reconcile_loop_shows_live_and_declared_values() {
    let mut found =
        entry("Restored", "web", json!([{"path": "/spec/replicas", "declared": "2", "new": "5"}]));
    found.kind = "repair".to_owned();
    let text = show(AuditFormat::Table).rows(&[found]).unwrap();
    assert!(text.trim_end().ends_with("/spec/replicas live 5 (declared 2)"), "{text}");
}

#[test]
fn control_characters_in_audited_values_are_escaped_in_table() {
    let fields = json!([{"path": "/data/x", "old": "\u{1b}[31m", "new": "a\nb"}]);
    let text = show(AuditFormat::Table).rows(&[entry("Deny", "web", fields)]).unwrap();
    assert!(!text.contains('\u{1b}') && text.lines().count() == 2, "{text:?}");
}

#[test]
fn table_tells_how_often_a_refusal_was_repeated() {
    let mut first = entry("Deny", "web", json!([{"path": "/data/x", "old": "a", "new": "b"}]));
    first.repeats = 29;
    let text = show(AuditFormat::Table).rows(&[first]).unwrap();
    assert!(text.contains("; 29 times more within a minute\n"), "{text}");
}

#[test]
fn a_spreadsheet_has_a_stable_head_and_no_formula() {
    let mut first = entry("Deny", "web", json!([{"path": "/data/x", "old": "a,b", "new": "\"=1+1\""}]));
    first.user = "=HYPERLINK(\"https://evil.example\")".to_owned();
    first.detail = "-2+3\u{1b}[31m".to_owned();
    first.repeats = 29;
    let mut show = show(AuditFormat::Csv);
    let text = show.rows(&[first]).unwrap();
    let lines: Vec<_> = text.split("\r\n").collect();
    assert_eq!(
        lines[0].replace('"', ""),
        "time,kind,verdict,reason,cluster,namespace,release,revision,objectGroup,objectKind,objectNamespace,\
         objectName,operation,user,groups,changes,detail,moreFields,uid,id,repeats"
    );
    assert_eq!(
        lines[1],
        "\"2026-11-21T05:00:00Z\",\"verdict\",\"Deny\",\"drift\",\"test\",\"shop\",\"web\",\"3\",\"apps\",\
         \"Deployment\",\"shop\",\"web\",\"UPDATE\",\"'=HYPERLINK(\"\"https://evil.example\"\")\",\"people\",\
         \"/data/x a,b -> \"\"=1+1\"\" (declared absent)\",\"'-2+3 [31m\",\"0\",\"u-1\",\"42\",\"29\""
    );
    // What comes later stands below the same head.
    let later = show.rows(&[entry("Warn", "db", replicas())]).unwrap();
    assert_eq!((lines.len(), later.matches("\r\n").count()), (3, 1), "{text}{later}");
    assert!(!later.contains("objectKind"), "{later}");
}

#[test]
fn audit_filter_flags_repeat_and_reject_unknown_values() {
    use clap::Parser;
    #[derive(Debug, Parser)]
    struct AuditLine {
        #[command(flatten)]
        args: Args,
    }
    let read = |args: &[&str]| {
        let line =
            AuditLine::try_parse_from(["audit"].iter().chain(args)).map_err(|error| error.to_string())?;
        Ok::<_, String>(line.args.filter.filter(Some("shop"), "2026-11-21T05:00:00Z".parse().unwrap()))
    };
    let filter = read(&[
        "--verdict=deny,Warn",
        "--verdict",
        "failed",
        "--operation",
        "delete",
        "--object",
        "deploy/web",
        "--by",
        "alice",
        "--since=30d",
        "--until=1d",
    ])
    .unwrap();
    assert_eq!(
        filter,
        Filter {
            namespace: Some("shop".to_owned()),
            user: Some("alice".to_owned()),
            verdicts: ["Deny", "Warn", "failed"].map(str::to_owned).to_vec(),
            operations: vec![Operation::Delete],
            object: Some("deploy/web".parse().unwrap()),
            since: Some("2026-10-22T05:00:00Z".parse().unwrap()),
            until: Some("2026-11-20T05:00:00Z".parse().unwrap()),
            ..Filter::default()
        }
    );
    for (args, says) in [
        (["--verdict", "Denied"], "use some of Deny, Revert, Warn"),
        (["--operation", "PATCH"], "use CREATE, UPDATE or DELETE"),
        (["--object", "web"], "KIND/NAME"),
        (["--until", "tomorrow"], "30d, 24h or 90m"),
        (["-o", "xml"], "table, csv, json, yaml, jsonpath="),
    ] {
        let error = read(&args).unwrap_err();
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn audit_rows_round_trip_as_json_list_or_streamed_documents() {
    let rows = [entry("Deny", "web", replicas()), entry("Warn", "db", replicas())];
    let text = RowPrinter::new(OutputFormat::Data(Data::Json), false, true).rows(&rows).unwrap();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&list["apiVersion"], &list["kind"]), (&json!("v1"), &json!("List")));
    let back: Vec<LedgerEntry> = serde_json::from_value(list["items"].clone()).unwrap();
    assert_eq!(back, rows);
    let text = RowPrinter::new(OutputFormat::Data(Data::Json), true, true).rows(&rows).unwrap();
    let back: Result<Vec<LedgerEntry>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    assert_eq!(back.unwrap(), rows);
}

#[test]
fn would_be_denied_changes_yield_a_policy_that_permits_them() {
    let image = json!([{"path": "/spec/template/spec/containers/[name=app]/image", "old": "a", "new": "b"}]);
    let rows = [
        entry("Warn", "web.one", replicas()),
        entry("Warn", "web.one", image),
        entry("Warn", "web.one", json!([])),
    ];
    let text = RowPrinter::new(OutputFormat::Data(Data::Yaml), false, true).permits(&rows).unwrap();
    let policy: serde_json::Value = serde_saphyr::from_str(text.trim_start_matches("---\n")).unwrap();
    assert_eq!(
        policy,
        json!({
            "apiVersion": "kubemoor.dev/v1alpha1",
            "kind": "DriftPolicy",
            "metadata": {"name": "permit-shop-web"},
            "spec": {
                "releases": {"names": ["web"], "namespaces": ["shop"]},
                "ignore": [{
                    "target": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web\\.one"},
                    "paths": ["/spec/replicas", "/spec/template/spec/containers/[name=app]/image"],
                }],
            },
        })
    );
    let table = show(AuditFormat::Table).permits(&rows).unwrap();
    assert!(table.contains("# 1 more would be refused"), "{table}");
}

#[test]
fn permits_are_split_into_several_policies_above_the_rule_limit() {
    let field = |number: usize| json!({"path": format!("/data/{number}"), "old": "a", "new": "b"});
    let rows: Vec<_> =
        (0..MAX_RULES).map(|number| entry("Warn", &format!("web-{number}"), replicas())).collect();
    let wide = entry("Warn", "wide", (0..=MAX_PATHS).map(field).collect());
    for (rows, expected) in [
        (rows.clone(), vec![("permit-shop-web", MAX_RULES)]),
        (vec![wide.clone()], vec![("permit-shop-web", 2)]),
        ([rows, vec![wide]].concat(), vec![("permit-shop-web", MAX_RULES), ("permit-shop-web-2", 2)]),
    ] {
        let text = RowPrinter::new(OutputFormat::Data(Data::Json), false, true).permits(&rows).unwrap();
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let policies = list["items"].as_array().unwrap().iter().map(|policy| {
            let rules = policy["spec"]["ignore"].as_array().unwrap();
            assert!(
                rules.iter().all(|rule| rule["paths"].as_array().unwrap().len() <= MAX_PATHS),
                "{policy}"
            );
            (policy["metadata"]["name"].as_str().unwrap(), rules.len())
        });
        assert_eq!(policies.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_server_is_a_url_without_extras() {
    for text in ["https://127.0.0.1:9080", "https://guard.example"] {
        assert!(parse_server(text).is_ok(), "{text}");
    }
    for text in ["", "guard", "http://localhost", "https://u@guard", "https://guard?x=y"] {
        assert!(parse_server(text).is_err(), "{text}");
    }
}
