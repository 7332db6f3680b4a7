use serde_json::json;

use super::*;

fn page(ids: &[i64], next: Option<i64>) -> EntryPage {
    let entry = |id: &i64| {
        json!({
            "id": id.to_string(), "time": "2026-11-21T08:00:00Z", "kind": "act", "cluster": "", "namespace": "",
            "release": null, "revision": null, "operation": null, "user": "", "groups": [], "verdict": "",
            "object": {"group": "", "kind": "", "namespace": null, "name": ""},
            "reason": "", "detail": "", "fields": [], "moreFields": 0, "uid": "",
        })
    };
    let items: Vec<_> = ids.iter().map(entry).collect();
    serde_json::from_value(json!({"items": items, "continue": next.map(|next| next.to_string())})).unwrap()
}

#[test]
fn pages_of_several_ledgers_become_one_in_the_order_of_time() {
    let filter = Filter { limit: Some(3), ..Filter::default() };
    for (pages, ids, next) in [
        (vec![page(&[9, 5], None)], vec![9, 5], None),
        (vec![page(&[9, 5], None), page(&[7], None)], vec![9, 7, 5], None),
        // Each of them has seen 7.
        (vec![page(&[9, 7], None), page(&[7, 5], None)], vec![9, 7, 5], None),
        (vec![page(&[9, 5, 4], Some(4)), page(&[7], None)], vec![9, 7, 5], Some(5)),
        (vec![page(&[9, 5], None), page(&[7, 2], None)], vec![9, 7, 5], Some(5)),
        (vec![page(&[9, 5, 4], Some(4)), page(&[9, 5, 4], Some(4))], vec![9, 5, 4], Some(4)),
        (vec![page(&[], None), page(&[], None)], vec![], None),
    ] {
        let merged = EntryPage::merge(pages, &filter);
        assert_eq!(merged.items.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids);
        assert_eq!(merged.next, next.map(|next: i64| next.to_string()));
    }
}

#[test]
fn of_one_row_in_several_ledgers_the_one_with_the_user_is_shown() {
    let filter = Filter::default();
    let mut known = page(&[7], None);
    known.items[0].user = "alice".to_owned();
    for pages in [vec![known.clone(), page(&[7], None)], vec![page(&[7], None), known]] {
        let merged = EntryPage::merge(pages, &filter);
        assert_eq!(merged.items.iter().map(|entry| &*entry.user).collect::<Vec<_>>(), ["alice"]);
    }
}

#[test]
fn an_object_is_named_as_kubectl_users_name_it() {
    for (text, kind) in [
        ("Deployment/web", "deployment"),
        ("deployments.apps/web", "deployment"),
        ("deploy/web", "deployment"),
        ("ingresses/web", "ingress"),
        ("NetworkPolicies/web", "networkpolicy"),
        ("svc/web", "service"),
    ] {
        let filter: NamedObject = text.parse().unwrap();
        assert!(possible_kinds(&filter).iter().any(|found| found == kind), "{text}: {filter:?}");
        assert_eq!(filter.to_string().parse(), Ok(filter), "{text}");
    }
    for text in ["web", "/web", "deployment/", "deployment/web/scale", ""] {
        assert!(text.parse::<NamedObject>().is_err(), "{text}");
    }
}

#[test]
fn verdict_parsing_ignores_case_unless_two_verdicts_collide() {
    for (text, verdict) in
        [("Deny", "Deny"), ("deny", "Deny"), ("failed", "failed"), ("Failed", "Failed"), ("GONE", "gone")]
    {
        assert_eq!(parse_verdict(text), Ok(verdict));
    }
    for text in ["FAILED", "Denied", "", "Deny,Warn"] {
        let error = parse_verdict(text).unwrap_err();
        assert!(error.contains("Deny, Revert") && error.ends_with("gone"), "{text}: {error}");
    }
}

#[test]
fn no_verdict_is_named_twice() {
    let distinct: std::collections::BTreeSet<_> = verdicts().collect();
    assert_eq!(distinct.len(), verdicts().count());
}
