//! A report of rows, in each of its forms.

use serde_json::{Value, json};

use super::*;
use kubemoor_inspect::report::DriftDuration;

/// A row of so many minutes after the beginning of the period.
fn entry(minute: i64, change: Value) -> LedgerEntry {
    let time = period().since + jiff::SignedDuration::from_mins(minute);
    let mut row = json!({
        "id": minute.to_string(), "time": time, "kind": "verdict", "cluster": "test", "namespace": "shop",
        "release": "web", "revision": 3,
        "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"},
        "operation": "UPDATE", "user": "alice", "groups": [], "verdict": "Deny", "reason": "drift", "detail": "",
        "fields": [{"path": "/spec/replicas"}], "moreFields": 0, "uid": "u"
    });
    for (key, value) in change.as_object().unwrap() {
        row[key] = value.clone();
    }
    serde_json::from_value(row).unwrap()
}

fn period() -> Period {
    Period { since: "2026-11-01T00:00:00Z".parse().unwrap(), until: "2026-11-21T00:00:00Z".parse().unwrap() }
}

/// The report of rows, the oldest first.
fn report(rows: &[LedgerEntry]) -> LedgerReport {
    let mut report = LedgerReport::new(period(), Some("shop".to_owned()), None);
    rows.iter().rev().for_each(|row| report.add(row));
    report
}

fn rows() -> Vec<LedgerEntry> {
    let repaired = json!({"kind": "repair", "user": "", "verdict": "Restored"});
    vec![
        entry(1, json!({})),
        entry(2, json!({"user": "bob", "fields": [{"path": "/spec/replicas"}, {"path": "/spec/paused"}]})),
        entry(3, json!({"operation": "DELETE", "reason": "deletion", "fields": [], "release": "db"})),
        entry(4, json!({"verdict": "Record", "reason": "allowed", "user": "carol"})),
        entry(
            5,
            json!({
                "kind": "allowance", "verdict": "Opened", "reason": "", "user": "carol",
                "detail": "until 2026-11-02T00:00:00Z; INC-7",
            }),
        ),
        // Repaired after an hour, and after ten minutes of two edits.
        entry(10, json!({"verdict": "Warn"})),
        entry(70, repaired.clone()),
        entry(80, json!({"verdict": "Warn"})),
        entry(85, json!({"verdict": "Warn", "user": "bob"})),
        entry(90, repaired.clone()),
        // Found at once: nothing tells since when.
        entry(95, json!({"kind": "repair", "user": "", "verdict": "Recreated"})),
        // Never repaired.
        entry(99, json!({"kind": "repair", "user": "", "verdict": "Reported", "release": "db"})),
    ]
}

#[test]
fn denied_changes_are_counted_by_release_user_and_field() {
    let report = report(&rows());
    assert_eq!(report.denied.total, 3);
    let [releases, users, fields] = report.denied.ranked();
    assert_eq!(releases, ("Release", vec![("shop/web", 2), ("shop/db", 1)]));
    assert_eq!(users, ("User", vec![("alice", 2), ("bob", 1)]));
    let counts =
        vec![("Deployment /spec/replicas", 2), ("Deployment (DELETE)", 1), ("Deployment /spec/paused", 1)];
    assert_eq!(fields, ("Field", counts));
    assert_eq!((report.excepted.total, report.excepted.ranked()[1].1[0].0), (1, "carol"));
    assert_eq!(report.exceptions.len(), 1);
    assert_eq!(report.exceptions[0].detail, "until 2026-11-02T00:00:00Z; INC-7");
    let counts: Vec<_> = report.summary().iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [3, 0, 3, 0, 1, 1, 3]);
}

#[test]
fn denied_change_counts_once_when_api_server_repeats_the_request() {
    let again = |time: &str| entry(1, json!({"time": time, "uid": "other"}));
    let rows = [entry(1, json!({})), again("2026-11-01T00:01:00.2Z"), again("2026-11-01T00:01:02Z")];
    assert_eq!(report(&rows).denied.total, 2);
}

#[test]
fn time_in_drift_runs_from_first_row_to_repair() {
    let report = report(&rows());
    let stay = DriftDuration { release: "shop/web".to_owned(), drifts: 2, total: 70 * 60, longest: 60 * 60 };
    assert_eq!(report.drift(), [stay]);
    for (seconds, words) in
        [(0, "0s"), (59, "59s"), (60, "1m"), (200, "3m 20s"), (3600, "1h"), (93_600, "1d 2h"), (86_410, "1d")]
    {
        assert_eq!(format_seconds(seconds), words);
    }
}

#[test]
fn drift_that_ends_unrepaired_counts_but_not_as_repair() {
    let of = |minute, verdict: &str| entry(minute, json!({"kind": "repair", "user": "", "verdict": verdict}));
    let report = report(&[of(10, "Reported"), of(40, "Ended")]);
    assert_eq!((report.drift()[0].drifts, report.drift()[0].total), (1, 30 * 60));
    assert!(report.repairs.keys().all(|(_, outcome)| outcome != "Ended"), "{:?}", report.repairs);
}

#[test]
fn an_empty_period_is_said_in_each_form() {
    let report = report(&[]);
    for text in [page(&report).unwrap(), markdown(&report).unwrap()] {
        for part in ["No change was denied.", "No exception was opened.", "The guard repaired nothing."] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("<svg"), "{text}");
    }
    assert!(sheet(&report).unwrap().starts_with("\"section\",\"name\",\"count\""));
}

#[test]
fn html_report_loads_no_external_resources_and_charts_each_table() {
    let page = page(&report(&rows())).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    assert_eq!(page.matches("<svg").count(), 6, "{page}");
    for part in ["alice", "Deployment /spec/replicas", "INC-7", "1h 10m", "@media print"] {
        assert!(page.replace("&#x2f;", "/").contains(part), "{part}: {page}");
    }
    // Nothing is loaded: the only address is the name of SVG's namespace.
    for part in ["src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    assert_eq!(
        page.matches("http").count(),
        page.matches("http://www.w3.org/2000/svg").count() + 1,
        "{page}"
    );
}

/// What an attacker would write wherever a user may write anything.
const ATTACKS: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</td></svg></style><script>alert(1)</script>",
    "' onmouseover='alert(1)",
    "[x](javascript:alert(1)) | <b>bold</b>",
    "=HYPERLINK(\"https://evil.example\",\"x\")",
];

#[test]
fn user_input_is_escaped_in_every_report_format() {
    for attack in ATTACKS {
        let mut denied = entry(1, json!({}));
        denied.user = attack.to_owned();
        denied.release = Some(attack.to_owned());
        denied.namespace = attack.to_owned();
        denied.object.kind = attack.to_owned();
        denied.object.name = attack.to_owned();
        denied.fields[0].path = attack.to_owned();
        let alike = |kind: &str, verdict: &str, reason: &str| {
            let mut row = denied.clone();
            (row.kind, row.verdict, row.reason) = (kind.to_owned(), verdict.to_owned(), reason.to_owned());
            row.detail = format!("until 2026-11-02T00:00:00Z; {attack}");
            row
        };
        let excepted = alike("verdict", "Record", "allowed");
        let opened = alike("allowance", "Opened", "");
        let reported = alike("repair", "Reported", "drift");
        let repaired = alike("repair", "Restored", "drift");
        let rows = [denied, excepted, opened, reported, repaired];
        let mut report = LedgerReport::new(period(), Some(attack.to_owned()), Some(attack.to_owned()));
        rows.iter().rev().for_each(|row| report.add(row));

        let page = page(&report).unwrap();
        for part in ["<script", "<img", "<b>", "</td></svg>"] {
            assert!(!page.contains(part) || !attack.contains(part), "{attack}: {part} in {page}");
        }
        // Each element is one of the template's or of the pictures'.
        let known = [
            "!DOCTYPE", "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "dl", "div",
            "dt", "dd", "section", "figure", "table", "thead", "tbody", "tr", "th", "td", "code", "svg",
            "rect", "text", "line", "polyline", "circle",
        ];
        for tag in page.split('<').skip(1) {
            let name: String = tag
                .trim_start_matches('/')
                .chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '!')
                .collect();
            assert!(known.contains(&name.as_str()), "{attack}: <{tag}");
            let attributes = tag.split('>').next().unwrap_or_default();
            assert!(!attributes.contains(" on") && !attributes.contains("javascript"), "{attack}: <{tag}");
        }
        let text = markdown(&report).unwrap();
        assert!(!text.contains('<') && !text.contains("](") && !text.contains("https:"), "{text}");
        for line in sheet(&report).unwrap().split("\r\n") {
            let cells = line.trim_matches('"').split("\",\"");
            assert!(cells.into_iter().all(|cell| !cell.starts_with(['=', '+', '-', '@'])), "{line}");
        }
    }
}

#[test]
fn audit_report_rejects_flags_of_the_audit_command() {
    use clap::Parser;
    let fails = |line: &[&str]| crate::cli::Cli::try_parse_from(line).is_err();
    assert!(!fails(&["kubemoor", "audit", "report", "--since", "30d", "-o", "html"]));
    // What stands before would have no effect.
    assert!(fails(&["kubemoor", "audit", "--since", "3d", "report"]));
    assert!(fails(&["kubemoor", "audit", "report", "-o", "json"]));
}
