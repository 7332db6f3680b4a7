use serde_json::json;

use super::*;

/// A page of rows at these seconds, the newest first.
fn rows(seconds: &[u32], next: Option<&str>) -> Page {
    let entry = |second: &u32| {
        json!({
            "id": second.to_string(), "time": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60),
            "kind": "verdict", "cluster": "here", "namespace": "shop", "release": "web", "revision": 1,
            "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "operation": "UPDATE", "user": "alice", "groups": [], "verdict": "Deny", "reason": "drift", "detail": "",
            "fields": [], "moreFields": 0, "uid": "",
        })
    };
    let items: Vec<Entry> =
        seconds.iter().map(|second| serde_json::from_value(entry(second)).unwrap()).collect();
    Page { items, next: next.map(str::to_owned), missing: Vec::new() }
}

fn told(pages: &[(&str, &Page)]) -> (Vec<String>, bool) {
    let (entries, is_cut) = merged(pages);
    (entries.iter().map(|(name, entry)| format!("{name} {}", entry.id)).collect(), is_cut)
}

#[test]
fn rows_of_clusters_stand_in_the_order_of_time() {
    let (east, west) = (rows(&[9, 5, 1], None), rows(&[7, 5], None));
    let expected = ["east 9", "west 7", "east 5", "west 5", "east 1"].map(str::to_owned).to_vec();
    assert_eq!(told(&[("east", &east), ("west", &west)]), (expected, false));
}

#[test]
fn a_page_has_the_newest_rows_and_says_that_there_are_more() {
    let seconds: Vec<u32> = (0..PAGE).rev().collect();
    let (east, west) = (rows(&seconds, None), rows(&[200], None));
    let (entries, is_cut) = told(&[("east", &east), ("west", &west)]);
    assert_eq!((entries.len(), entries.first().map(String::as_str), is_cut), (100, Some("west 200"), true));
    assert_eq!(entries.last().map(String::as_str), Some("east 1"));
    assert!(told(&[("east", &rows(&[1], Some("7")))]).1);
}
