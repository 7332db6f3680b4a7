//! The flags of `kubemoor audit`, and rows as people see them.

use serde_json::json;

use super::*;

fn entry(verdict: &str, object: &str, fields: serde_json::Value) -> Entry {
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

#[test]
fn since_is_an_age_or_a_moment() {
    let now: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
    let time = |text: &str| parse_since(text).map(|since| since.time(now).to_string());
    assert_eq!(time("24h").unwrap(), "2026-11-20T05:00:00Z");
    assert_eq!(time("90m").unwrap(), "2026-11-21T03:30:00Z");
    assert_eq!(time("2026-11-21T01:02:03Z").unwrap(), "2026-11-21T01:02:03Z");
    for text in ["", "yesterday", "24", "0s", "-1h", "1 fortnight"] {
        assert!(time(text).is_err(), "{text}");
    }
}

#[test]
fn a_row_of_the_table_says_who_did_what() {
    let text = Show::new(Format::Table).rows(&[entry("Deny", "web", replicas())]).unwrap();
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
fn what_the_loop_found_is_no_edit() {
    let mut found =
        entry("Restored", "web", json!([{"path": "/spec/replicas", "declared": "2", "new": "5"}]));
    found.kind = "repair".to_owned();
    let text = Show::new(Format::Table).rows(&[found]).unwrap();
    assert!(text.trim_end().ends_with("/spec/replicas live 5 (declared 2)"), "{text}");
}

#[test]
fn what_an_editor_wrote_does_not_reach_the_terminal_as_it_is() {
    let fields = json!([{"path": "/data/x", "old": "\u{1b}[31m", "new": "a\nb"}]);
    let text = Show::new(Format::Table).rows(&[entry("Deny", "web", fields)]).unwrap();
    assert!(!text.contains('\u{1b}') && text.lines().count() == 2, "{text:?}");
}

#[test]
fn json_is_a_row_on_each_line_and_reads_back() {
    let rows = [entry("Deny", "web", replicas()), entry("Warn", "db", replicas())];
    let text = Show::new(Format::Json).rows(&rows).unwrap();
    let back: Vec<Entry> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(back, rows);
}

#[test]
fn what_would_be_refused_comes_with_the_policy_that_permits_it() {
    let image = json!([{"path": "/spec/template/spec/containers/[name=app]/image", "old": "a", "new": "b"}]);
    let rows = [
        entry("Warn", "web.one", replicas()),
        entry("Warn", "web.one", image),
        entry("Warn", "web.one", json!([])),
    ];
    let text = Show::new(Format::Yaml).permits(&rows).unwrap();
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
    let table = Show::new(Format::Table).permits(&rows).unwrap();
    assert!(table.contains("# 1 more would be refused"), "{table}");
}
