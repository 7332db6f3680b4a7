use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;

fn at(time: &str) -> Timestamp {
    format!("2026-03-01T{time}Z").parse().unwrap()
}

fn key(name: &str) -> AllowanceKey {
    ("shop".to_owned(), name.to_owned())
}

fn resource(name: &str, object: &str, until: &str) -> DriftAllowance {
    let resource = json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": object},
                 "paths": ["/spec/replicas"], "until": at(until).to_string()},
    });
    serde_json::from_value(resource).unwrap()
}

fn allowance(name: &str, object: &str, until: &str) -> Allowance {
    Allowance::compile(&resource(name, object, until)).unwrap()
}

fn deployment(name: &str) -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", "shop", name)
}

fn life(clearing: Option<&str>) -> AllowanceLife {
    AllowanceLife { version: "1".to_owned(), uid: "u".to_owned(), clearing: clearing.map(at) }
}

fn put(known: &mut AllowanceIndex, name: &str, object: &str, until: &str, now: &str) -> Vec<ObjectId> {
    known.put(&key(name), life(None), Some(allowance(name, object, until)), at(now))
}

#[test]
fn exception_is_active_until_exactly_its_end() {
    let mut known = AllowanceIndex::default();
    assert_eq!(put(&mut known, "a", "web", "12:00:00", "11:00:00"), [deployment("web")]);
    assert_eq!(known.next_due(), Some(at("12:00:00")));
    assert_eq!(known.end(at("11:59:59")).0, []);
    assert_eq!(known.by_object[&deployment("web")].len(), 1);
    assert_eq!(known.end(at("12:00:00")).0, [deployment("web")]);
    assert!(known.by_object.is_empty() && known.next_due().is_none());
}

#[test]
fn allowance_that_moves_to_another_object_touches_both() {
    let mut known = AllowanceIndex::default();
    put(&mut known, "a", "web", "12:00:00", "11:00:00");
    let touched = put(&mut known, "a", "db", "12:00:00", "11:00:00");
    assert_eq!(touched, [deployment("web"), deployment("db")]);
    assert_eq!(known.by_object.keys().collect::<Vec<_>>(), [&deployment("db")]);
    assert_eq!(known.open.len(), 1);
}

#[test]
fn deleted_allowance_leaves_the_others() {
    let mut known = AllowanceIndex::default();
    put(&mut known, "a", "web", "12:00:00", "11:00:00");
    put(&mut known, "b", "web", "13:00:00", "11:00:00");
    assert_eq!(known.take(&key("a")), [deployment("web")]);
    assert_eq!(known.by_object[&deployment("web")][0].name, "b");
    assert_eq!(known.take(&key("a")), []);
}

#[test]
fn expired_exception_is_ignored_and_deleted_after_its_retention() {
    let mut known = AllowanceIndex::default();
    let ended = allowance("a", "web", "10:00:00");
    assert_eq!(known.put(&key("a"), life(Some("11:30:00")), Some(ended), at("11:00:00")), []);
    assert!(known.open.is_empty());
    assert!(known.end(at("11:29:59")).1.is_empty());
    let garbage = known.end(at("11:30:00")).1;
    assert_eq!(garbage.iter().map(|(key, _)| key.1.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn ended_allowance_is_cleared_away_later() {
    let mut known = AllowanceIndex::default();
    let open = allowance("a", "web", "12:00:00");
    known.put(&key("a"), life(Some("13:00:00")), Some(open), at("11:00:00"));
    assert!(known.end(at("12:00:00")).1.is_empty());
    assert_eq!(known.next_due(), Some(at("13:00:00")));
    assert_eq!(known.end(at("13:00:00")).1.len(), 1);
    known.take(&key("a"));
    assert!(known.next_due().is_none() && known.versions.is_empty());
}

#[test]
fn exception_that_is_extended_after_a_failed_deletion_stays_open() {
    let mut known = AllowanceIndex::default();
    let put = |known: &mut AllowanceIndex, until: &str, clearing: &str, now: &str| {
        known.put(&key("a"), life(Some(clearing)), Some(allowance("a", "web", until)), at(now));
    };
    put(&mut known, "10:00:00", "11:00:00", "10:30:00");
    assert_eq!(known.end(at("11:00:00")).1.len(), 1);
    known.clear_at(at("12:00:00"), &key("a"));
    put(&mut known, "14:00:00", "15:00:00", "11:30:00");
    assert!(known.end(at("12:00:00")).1.is_empty() && known.open.contains_key(&key("a")));
    assert_eq!(known.next_due(), Some(at("14:00:00")));
    // Of one that is gone, nothing is due.
    known.take(&key("a"));
    known.clear_at(at("13:00:00"), &key("a"));
    assert_eq!(known.next_due(), None);
}

#[test]
fn timer_waits_for_next_exception_end_and_follows_clock_changes() {
    let left = |due: Option<&str>, now: &str| {
        let slept = wake(due.map(at), at(now)).saturating_duration_since(Instant::now());
        slept.as_secs_f64().round()
    };
    assert_eq!(left(Some("12:00:00"), "11:59:30"), 30.0);
    assert_eq!(left(Some("12:00:00"), "12:00:01"), 0.0);
    assert_eq!(left(Some("12:00:00"), "02:00:00"), 60.0);
    assert_eq!(left(None, "12:00:00"), 60.0);
}

/// So many open ones of a namespace, by number.
fn fill(known: &mut AllowanceIndex, namespace: &str, count: usize) {
    for number in 0..count {
        let key = (namespace.to_owned(), format!("n{number:05}"));
        known.put(&key, life(None), Some(allowance("a", "web", "12:00:00")), at("11:00:00"));
    }
}

#[test]
fn full_namespace_leaves_room_to_others_and_admits_next_exception() {
    let mut known = AllowanceIndex::default();
    fill(&mut known, "greedy", requests::MOST_HERE + 5);
    assert_eq!(known.open.len(), requests::MOST_HERE);
    let of = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    assert!(!known.has_room_for(&of("greedy", "another")) && known.has_room_for(&of("greedy", "n00000")));
    assert!(known.has_room_for(&of("shop", "a")));
    assert_eq!(put(&mut known, "a", "db", "12:00:00", "11:00:00"), [deployment("db")]);

    // One goes, and one that was left out may come with the next listing.
    known.take(&of("greedy", "n00007"));
    let next = of("greedy", "n00250");
    assert!(known.has_room_for(&next));
    known.put(&next, life(None), Some(allowance("a", "web", "12:00:00")), at("11:00:00"));
    assert_eq!(known.open.len(), requests::MOST_HERE + 1);
    assert!(!known.has_room_for(&of("greedy", "n00251")));
    let (ended, garbage) = known.end(at("12:00:00"));
    assert_eq!(ended.len(), requests::MOST_HERE + 1);
    assert!(garbage.is_empty() && known.open.is_empty() && known.next_due().is_none());
}

#[test]
fn all_namespaces_together_have_a_limit_as_well() {
    let mut known = AllowanceIndex::default();
    for number in 0..41 {
        fill(&mut known, &format!("tenant-{number}"), requests::MOST_HERE);
    }
    assert_eq!(known.open.len(), 10_000);
    let next = ("tenant-40".to_owned(), "n00000".to_owned());
    assert!(!known.has_room_for(&next));
    known.take(&("tenant-0".to_owned(), "n00000".to_owned()));
    assert!(known.has_room_for(&next));
}

#[tokio::test]
async fn allowance_that_cannot_be_made_gives_the_reason() {
    // An API server without kinds.
    let service = tower::service_fn(|request: Request<Body>| {
        let (code, body) = if request.method() == Method::GET { (200_u16, "{}") } else { (404, "not found") };
        std::future::ready(Response::builder().status(code).body(Body::from(body.as_bytes().to_vec())))
    });
    let client = kube::Client::new(service, "default");
    let kinds = ServedKinds::read(client.clone()).await.unwrap();
    let undefined = "the cluster has no CustomResourceDefinition of DriftAllowance: apply the output of `kubemoor \
         manifests crds`";
    let read_only = "the guard runs with --read-only and creates no allowances";
    for (leadership, reason) in [(Some(Leadership::alone()), undefined), (None, read_only)] {
        let allowances = Allowances::new(client.clone(), Arc::clone(&kinds), Vec::new(), leadership);
        let made = allowances.make(&resource("a", "web", "12:00:00"), Duration::from_secs(10)).await;
        assert_eq!(made.unwrap_err().to_string(), reason);
    }
}
