use std::time::Duration;

use serde_json::json;

use super::*;

const UID: &str = "2c6b4f6e-0000-4000-8000-000000000001";

fn meta(name: &str, version: &str, labels: serde_json::Value) -> Meta {
    serde_json::from_value(json!({
        "name": name, "namespace": "shop", "uid": UID, "resourceVersion": version, "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"time": "2026-01-01T00:00:05Z"}, {"time": "2026-01-01T00:00:03Z"}, {}],
    }))
    .unwrap()
}

fn record(revision: u64, status: &str, version: u64) -> KnownRecord {
    let labels = json!({"name": "web", "version": revision.to_string(), "status": status, "owner": "helm"});
    read_record(meta(&format!("sh.helm.release.v1.web.v{revision}"), &version.to_string(), labels)).unwrap().1
}

fn web() -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: "web".into() }
}

fn revisions(records: &Records) -> Vec<(u64, ReleaseStatus)> {
    records.all(&web()).iter().map(|known| (known.head.revision, known.head.status)).collect()
}

#[test]
fn metadata_tells_release_revision_status_and_the_last_touch() {
    let labels = json!({"name": "web", "version": "3", "status": "pending-upgrade", "owner": "helm"});
    let (id, known) = read_record(meta("sh.helm.release.v1.web.v3", "77", labels)).unwrap();
    assert_eq!(id, web());
    assert_eq!(known.flaw, None);
    assert_eq!((known.head.revision, known.head.status), (3, ReleaseStatus::PendingUpgrade));
    assert_eq!(known.head.created, "2026-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(known.head.last_written, "2026-01-01T00:00:05Z".parse().unwrap());
}

#[test]
fn deployer_is_detected_by_the_newest_field_manager_of_record() {
    let writer = |managers: [(&str, &str); 2]| {
        let mut meta = meta("sh.helm.release.v1.web.v1", "1", json!({"name": "web"}));
        let entry = |(manager, time): (&str, &str)| json!({"manager": manager, "time": time});
        meta.managed_fields = serde_json::from_value(json!(managers.map(entry))).unwrap();
        read_record(meta).unwrap().1.head.writer
    };
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let terraform = "terraform-provider-helm_v3.0.2_x5";
    assert_eq!(writer([(terraform, new), ("Helm", old)]), RecordWriter::Terraform);
    assert_eq!(writer([(terraform, old), ("Helm", new)]), RecordWriter::Other);
    assert_eq!(writer([("kubectl", old), ("helm", new)]), RecordWriter::Other);
    assert_eq!(writer([("helm", old), ("helm-controller", new)]), RecordWriter::Flux);
    assert_eq!(writer([("argocd-application-controller", new), ("helm", old)]), RecordWriter::Argo);
}

#[test]
fn record_labels_contradicting_its_name_authorise_nothing() {
    let cases = [
        (json!({"name": "web", "version": "4", "status": "pending-upgrade"}), "`version`"),
        (json!({"name": "web", "version": "x", "status": "pending-upgrade"}), "`version`"),
        (json!({"name": "web", "version": "3"}), "`status`"),
    ];
    for (labels, named) in cases {
        let (_, known) = read_record(meta("sh.helm.release.v1.web.v3", "1", labels.clone())).unwrap();
        assert!(known.flaw.as_deref().unwrap().contains(named), "{labels}");
        assert_eq!(known.head.status, ReleaseStatus::Unknown, "{labels}");
    }
}

#[test]
fn a_name_that_helm_does_not_give_is_a_stray() {
    for name in ["web", "sh.helm.release.v1.web", "sh.helm.release.v1.web.v0", "sh.helm.release.v1.web.vx"] {
        assert_eq!(
            read_record(meta(name, "1", json!({"name": "web"}))).unwrap_err(),
            InvalidRecordObject::Name,
            "{name}"
        );
    }
    for labels in [json!({"name": "db", "version": "3", "status": "deployed"}), json!(null)] {
        let error = read_record(meta("sh.helm.release.v1.web.v3", "1", labels.clone())).unwrap_err();
        assert!(matches!(error, InvalidRecordObject::Label { .. }), "{labels}");
    }
}

#[test]
fn events_come_and_go() {
    let mut records = Records::default();
    assert!(records.apply(web(), record(2, "deployed", 20)));
    assert!(records.apply(web(), record(1, "superseded", 21)));
    assert!(!records.apply(web(), record(1, "superseded", 21)), "nothing new");
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Superseded), (2, ReleaseStatus::Deployed)]);
    assert!(!records.delete(&web(), "sh.helm.release.v1.web.v1", "another uid", "22"));
    assert!(records.delete(&web(), "sh.helm.release.v1.web.v1", UID, "22"));
    assert!(records.delete(&web(), "sh.helm.release.v1.web.v2", UID, "23"));
    assert_eq!(records.count(), (0, 0));
}

#[test]
fn lagging_watch_event_does_not_undo_a_newer_read() {
    let mut records = Records::default();
    records.apply(web(), record(1, "deployed", 10));
    assert!(records.look(
        &web(),
        vec![record(2, "pending-upgrade", 30), record(1, "deployed", 10)],
        "35",
        Instant::now()
    ));
    assert!(!records.apply(web(), record(2, "deployed", 25)));
    assert!(!records.delete(&web(), "sh.helm.release.v1.web.v2", UID, "34"));
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Deployed), (2, ReleaseStatus::PendingUpgrade)]);
    assert!(records.apply(web(), record(2, "deployed", 36)));
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Deployed), (2, ReleaseStatus::Deployed)]);
}

#[test]
fn a_look_may_go_back_to_a_restored_state() {
    let mut records = Records::default();
    records.apply(web(), record(2, "deployed", 90));
    assert!(records.look(&web(), vec![record(1, "deployed", 10)], "15", Instant::now()));
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Deployed)]);
    assert!(records.apply(web(), record(2, "pending-upgrade", 16)));
    assert!(records.look(&web(), Vec::new(), "20", Instant::now()));
    assert_eq!(records.count(), (0, 0));
}

#[test]
fn a_listing_replaces_its_scope_alone() {
    let mut records = Records::default();
    let other = ReleaseId { namespace: "prod".into(), name: "db".into() };
    records.apply(web(), record(1, "deployed", 10));
    records.apply(other.clone(), record(1, "deployed", 11));
    let mut listing = RecordListing::new(Instant::now());
    let cart = ReleaseId { namespace: "shop".into(), name: "cart".into() };
    listing.add(cart.clone(), record(1, "deployed", 12));
    let mut changed = records.replace(Some("shop"), listing);
    changed.sort();
    assert_eq!(changed, [cart, web()]);
    assert_eq!(revisions(&records), []);
    assert_eq!(records.all(&other).len(), 1);
}

#[test]
fn list_after_etcd_restore_resets_known_resource_versions() {
    let mut records = Records::default();
    records.look(&web(), vec![record(2, "deployed", 90)], "95", Instant::now());
    let mut listing = RecordListing::new(Instant::now() + Duration::from_secs(1));
    listing.add(web(), record(1, "deployed", 10));
    assert_eq!(records.replace(None, listing), [web()]);
    assert!(
        records.apply(web(), record(2, "pending-upgrade", 16)),
        "an event below the old look counts again"
    );
}

#[test]
fn list_started_before_a_read_does_not_undo_it() {
    let mut records = Records::default();
    let began = Instant::now();
    let mut listing = RecordListing::new(began);
    listing.add(web(), record(1, "deployed", 10));
    records.look(&web(), vec![record(2, "pending-upgrade", 20)], "25", began + Duration::from_secs(1));
    assert_eq!(records.replace(None, listing), Vec::<ReleaseId>::new());
    assert_eq!(revisions(&records), [(2, ReleaseStatus::PendingUpgrade)]);
}

#[test]
fn record_first_seen_while_being_deleted_counts_for_nothing() {
    let ending = |revision, uid: &str, version| {
        let mut known = KnownRecord { is_deleted: true, ..record(revision, "deployed", version) };
        Arc::make_mut(&mut known.head).uid = uid.to_owned();
        known
    };
    let listed = |records: Vec<KnownRecord>| {
        let mut listing = RecordListing::new(Instant::now());
        records.into_iter().for_each(|known| listing.add(web(), known));
        listing
    };
    let mut records = Records::default();
    assert!(!records.apply(web(), ending(2, "forged", 11)));
    assert!(!records.look(&web(), vec![ending(2, "forged", 11)], "12", Instant::now()));
    assert_eq!(records.replace(None, listed(vec![ending(2, "forged", 11)])), Vec::<ReleaseId>::new());
    assert_eq!(records.count(), (0, 0));

    records.apply(web(), record(1, "deployed", 10));
    assert!(!records.apply(web(), ending(2, "forged", 11)));
    assert!(!records.look(
        &web(),
        vec![record(1, "deployed", 10), ending(2, "forged", 11)],
        "12",
        Instant::now()
    ));
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Deployed)]);
    // One that was seen alive counts until it is gone, or another one has its name.
    assert!(records.apply(web(), ending(1, UID, 13)));
    assert_eq!(records.replace(None, listed(vec![ending(1, UID, 13)])), Vec::<ReleaseId>::new());
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Deployed)]);
    assert!(records.apply(web(), ending(1, "forged", 14)));
    assert_eq!(records.count(), (0, 0));
}

#[test]
fn an_older_answer_about_the_same_record_is_no_news() {
    let mut records = Records::default();
    assert!(records.apply(web(), record(1, "deployed", 20)));
    assert!(!records.apply(web(), record(1, "failed", 19)));
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Deployed)]);
    let mut reborn = record(1, "pending-install", 19);
    Arc::make_mut(&mut reborn.head).uid = "another".to_owned();
    assert!(records.apply(web(), reborn), "another object of that name");
}

fn appearances(records: &Records) -> Vec<Appearance> {
    records.all(&web()).iter().map(|known| known.head.appearance).collect()
}

#[test]
fn records_of_the_first_list_count_as_already_existing() {
    let mut records = Records::default();
    let mut listing = RecordListing::new(Instant::now());
    listing.add(web(), record(1, "deployed", 10));
    records.replace(None, listing);
    assert_eq!(appearances(&records), [Appearance::Listed]);
    records.apply(web(), record(1, "superseded", 20));
    assert_eq!(appearances(&records), [Appearance::Listed], "a change is no appearance");
    let mut reborn = record(1, "deployed", 30);
    Arc::make_mut(&mut reborn.head).uid = "another".to_owned();
    let mut listing = RecordListing::new(Instant::now());
    listing.add(web(), reborn);
    records.replace(None, listing);
    assert_eq!(appearances(&records), [Appearance::Seen(ReleaseStatus::Deployed)]);
}

#[test]
fn a_record_appears_with_its_first_status() {
    let mut records = Records::default();
    records.replace(None, RecordListing::new(Instant::now()));
    records.apply(web(), record(1, "pending-install", 10));
    records.apply(web(), record(1, "deployed", 11));
    assert_eq!(appearances(&records), [Appearance::Seen(ReleaseStatus::PendingInstall)]);
}

#[test]
fn first_record_status_is_learned_when_read_overtakes_the_watch() {
    let mut records = Records::default();
    records.replace(None, RecordListing::new(Instant::now()));
    records.look(&web(), vec![record(1, "deployed", 11)], "15", Instant::now());
    assert_eq!(appearances(&records), [Appearance::Seen(ReleaseStatus::Deployed)]);
    assert!(records.apply(web(), record(1, "pending-install", 10)));
    assert!(!records.apply(web(), record(1, "deployed", 11)));
    assert_eq!(appearances(&records), [Appearance::Seen(ReleaseStatus::PendingInstall)]);
    assert_eq!(revisions(&records), [(1, ReleaseStatus::Deployed)]);
}

#[test]
fn record_that_is_listed_again_stays_in_the_same_memory() {
    let mut records = Records::default();
    let mut listed = |version| {
        let mut listing = RecordListing::new(Instant::now());
        listing.add(web(), record(1, "deployed", 10));
        listing.add(web(), record(2, "failed", version));
        records.replace(None, listing);
        records.all(&web())
    };
    let (before, now) = (listed(10), listed(30));
    let is_shared = |at: usize| Arc::ptr_eq(&before[at].head, &now[at].head);
    assert_eq!((is_shared(0), is_shared(1)), (true, false), "the second one has changed");
}
