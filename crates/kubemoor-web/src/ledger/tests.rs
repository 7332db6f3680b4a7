use serde_json::json;

use super::*;

/// A page of rows at these seconds, the newest first.
fn rows(seconds: &[u32], next: Option<&str>) -> EntryPage {
    let entry = |second: &u32| {
        json!({
            "id": second.to_string(), "time": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60),
            "kind": "verdict", "cluster": "here", "namespace": "shop", "release": "web", "revision": 1,
            "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "operation": "UPDATE", "user": "alice", "groups": [], "verdict": "Deny", "reason": "drift", "detail": "",
            "fields": [], "moreFields": 0, "uid": "",
        })
    };
    let items: Vec<LedgerEntry> =
        seconds.iter().map(|second| serde_json::from_value(entry(second)).unwrap()).collect();
    EntryPage { items, next: next.map(str::to_owned), missing: Vec::new() }
}

fn told(pages: &[NamedPage<'_>]) -> (Vec<String>, bool) {
    let (entries, is_cut) = merged(pages);
    (entries.iter().map(|(name, entry)| format!("{} {}", name.unwrap(), entry.id)).collect(), is_cut)
}

#[test]
fn rows_of_clusters_stand_in_the_order_of_time() {
    let (east, west) = (rows(&[9, 5, 1], None), rows(&[7, 5], None));
    let expected = ["east 9", "west 7", "east 5", "west 5", "east 1"].map(str::to_owned).to_vec();
    assert_eq!(told(&[(Some("east"), &east), (Some("west"), &west)]), (expected, false));
}

#[test]
fn a_page_has_the_newest_rows_and_says_that_there_are_more() {
    let seconds: Vec<u32> = (0..PAGE).rev().collect();
    let (east, west) = (rows(&seconds, None), rows(&[200], None));
    let (entries, is_cut) = told(&[(Some("east"), &east), (Some("west"), &west)]);
    assert_eq!((entries.len(), entries.first().map(String::as_str), is_cut), (100, Some("west 200"), true));
    assert_eq!(entries.last().map(String::as_str), Some("east 1"));
    assert!(told(&[(Some("east"), &rows(&[1], Some("7")))]).1);
}

#[test]
fn name_of_file_says_whose_rows_it_has_and_that_rows_are_missing() {
    for (namespace, is_partial, form, expected) in [
        (None, false, ExportFormat::Csv, "ledger.csv"),
        (Some("shop"), false, ExportFormat::Json, "ledger-shop.json"),
        (None, true, ExportFormat::Json, "ledger-partial.json"),
        (Some("shop"), true, ExportFormat::Csv, "ledger-shop-partial.csv"),
        (Some("a\"; b"), true, ExportFormat::Csv, "ledger-partial.csv"),
    ] {
        assert_eq!(file(namespace, is_partial, form), expected);
    }
}

#[test]
fn export_without_rows_of_a_replica_breaks_off_unless_its_name_says_so() {
    assert!(refuse(&[]).is_ok());
    let missing = "rows that pod b keeps are not shown: \u{1b}[31mgone\r\nset-cookie: a=b".to_owned();
    let refused = refuse(std::slice::from_ref(&missing)).unwrap_err().to_string();
    assert!(refused.contains("rows that pod b keeps"), "{refused}");
    let header = plain(&[missing.clone(), missing]);
    assert!(header::HeaderValue::from_str(&header).is_ok() && !header.contains('\n'), "{header}");
}
