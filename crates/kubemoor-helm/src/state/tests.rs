use serde_json::json;

use super::*;
use crate::samples::{SampleRecord, assembled};

const HOUR: Duration = Duration::from_secs(3600);

/// When the records of these tests were made and last written.
const MADE: &str = "2026-05-01T12:00:00Z";

const PENDING: [ReleaseStatus; 3] =
    [ReleaseStatus::PendingInstall, ReleaseStatus::PendingUpgrade, ReleaseStatus::PendingRollback];

const UNDERWAY: [ReleaseStatus; 4] = [
    ReleaseStatus::PendingInstall,
    ReleaseStatus::PendingUpgrade,
    ReleaseStatus::PendingRollback,
    ReleaseStatus::Uninstalling,
];

const SETTLED: [ReleaseStatus; 5] = [
    ReleaseStatus::Unknown,
    ReleaseStatus::Deployed,
    ReleaseStatus::Uninstalled,
    ReleaseStatus::Superseded,
    ReleaseStatus::Failed,
];

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn object(name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "shop", name)
}

/// A manifest that declares these objects and says in each which record it is
/// of.
fn manifest(of: &str, names: [&str; 2], annotations: &str) -> String {
    let document = |name| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
             data: {{of: {of}}}\n"
        )
    };
    names.into_iter().map(document).collect()
}

/// A release whose latest record has this status, with `new` and `both` in
/// the latest manifest and `old` and `both` in the baseline's.
fn release(status: ReleaseStatus, latest_annotations: &str, baseline_annotations: &str) -> Release {
    let latest = manifest("latest", ["new", "both"], latest_annotations);
    let baseline = manifest("baseline", ["old", "both"], baseline_annotations);
    let given = |revision, status, manifest| SampleRecord {
        revision,
        status,
        manifest,
        created: MADE,
        touched: MADE,
        ..SampleRecord::default()
    };
    assembled(given(2, status, &latest), Some(given(1, ReleaseStatus::Deployed, &baseline)))
}

/// A standing as `manifests; deletion; pending`, or `nothing`.
fn describe(standing: Option<ReleaseClaim<'_>>) -> String {
    let Some(standing) = standing else { return "nothing".to_owned() };
    let of = |declared: &&Arc<DeclaredObject>| {
        declared.fields().get(&["data", "of"]).unwrap().as_str().unwrap().to_owned()
    };
    let mut parts = vec![standing.alternatives.iter().map(of).collect::<Vec<_>>().join(" or ")];
    match standing.deletion {
        Deletion::Never => {}
        Deletion::Dropped => parts.push("dropped".to_owned()),
        Deletion::Uninstalled => parts.push("uninstalled".to_owned()),
        Deletion::CreatedSince(since) => parts.push(format!("created since {since}")),
    }
    parts.extend(standing.pending.then(|| "pending".to_owned()));
    parts.join("; ")
}

/// What is said of an object that only the latest manifest has, of one that
/// only the baseline has, and of one that both have, so long after the latest
/// record was written.
#[track_caller]
fn check(statuses: &[ReleaseStatus], after: &str, [new, old, both]: [&str; 3]) {
    let now = at(MADE) + after.parse::<SignedDuration>().unwrap();
    for status in statuses {
        let release = release(*status, "", "");
        for (name, wanted) in [("new", new), ("old", old), ("both", both), ("other", "nothing")] {
            let found = describe(current_claim(&release, &object(name), HOUR, now));
            assert_eq!(found, wanted, "{name} under {status} after {after}");
        }
    }
}

#[test]
fn latest_record_status_selects_valid_manifests_and_helm_deletions() {
    let nothing = ["nothing"; 3];

    check(&PENDING, "PT0S", ["latest; pending", "baseline; dropped; pending", "latest; pending"]);
    check(&PENDING, "PT1H", ["latest; pending", "baseline; dropped; pending", "latest; pending"]);
    check(&PENDING, "PT1H1S", ["latest", "baseline", "latest or baseline"]);

    let uninstalling = [ReleaseStatus::Uninstalling];
    let all = "latest; uninstalled; pending";
    check(&uninstalling, "PT0S", [all, "nothing", all]);
    check(&uninstalling, "PT1H", [all, "nothing", all]);
    check(&uninstalling, "PT1H1S", ["latest", "nothing", "latest or baseline"]);

    let failed = [ReleaseStatus::Failed];
    let cleaned = [
        "latest; created since 2026-05-01T12:00:00Z",
        "baseline; created since 2026-05-01T12:00:00Z",
        "latest or baseline; created since 2026-05-01T12:00:00Z",
    ];
    check(&failed, "PT0S", cleaned);
    check(&failed, "PT10M", cleaned);
    check(&failed, "PT10M1S", ["latest", "baseline", "latest or baseline"]);
    check(&failed, "PT24H", ["latest", "baseline", "latest or baseline"]);

    for after in ["PT0S", "PT10M1S", "PT24H"] {
        let alone = [ReleaseStatus::Deployed, ReleaseStatus::Superseded, ReleaseStatus::Unknown];
        check(&alone, after, ["latest", "nothing", "latest"]);
        check(&[ReleaseStatus::Uninstalled], after, nothing);
    }
}

#[test]
fn a_clock_behind_the_servers_takes_no_right_from_helm() {
    check(&PENDING, "-PT2H", ["latest; pending", "baseline; dropped; pending", "latest; pending"]);
    let all = "latest; uninstalled; pending";
    check(&[ReleaseStatus::Uninstalling], "-PT2H", [all, "nothing", all]);
    check(
        &[ReleaseStatus::Failed],
        "-PT2H",
        [
            "latest; created since 2026-05-01T12:00:00Z",
            "baseline; created since 2026-05-01T12:00:00Z",
            "latest or baseline; created since 2026-05-01T12:00:00Z",
        ],
    );
}

/// What is said of `name` right after the record was written, if each manifest
/// has these annotations.
#[track_caller]
fn check_kept(status: ReleaseStatus, (latest, baseline): (&str, &str), name: &str, wanted: &str) {
    let release = release(status, latest, baseline);
    let found = describe(current_claim(&release, &object(name), HOUR, at(MADE)));
    assert_eq!(found, wanted, "{name} under {status} with `{latest}` and `{baseline}`");
}

#[test]
fn an_uninstallation_spares_what_its_own_manifest_keeps() {
    let keep = "helm.sh/resource-policy: keep";
    for spelled in [keep, "helm.sh/resource-policy: ' Keep '"] {
        check_kept(ReleaseStatus::Uninstalling, (spelled, ""), "new", "latest; pending");
        check_kept(ReleaseStatus::Uninstalling, (spelled, ""), "both", "latest; pending");
    }
    let deleted = "latest; uninstalled; pending";
    check_kept(ReleaseStatus::Uninstalling, ("", keep), "both", deleted);
    check_kept(ReleaseStatus::Uninstalling, ("helm.sh/resource-policy: delete", ""), "both", deleted);
    // Of what an upgrade drops, Helm asks the live object, not a manifest.
    check_kept(ReleaseStatus::PendingUpgrade, ("", keep), "old", "baseline; dropped; pending");
}

#[test]
fn failed_upgrade_cleanup_lasts_from_its_start_until_after_failure() {
    let mut release = release(ReleaseStatus::Failed, "", "");
    release.state.last_written = at("2026-05-01T12:55:00Z");
    let found = |now| describe(current_claim(&release, &object("new"), HOUR, at(now)));
    assert_eq!(found("2026-05-01T13:05:00Z"), "latest; created since 2026-05-01T12:00:00Z");
    assert_eq!(found("2026-05-01T13:05:01Z"), "latest");
}

/// Whether an operation with this status counts as dead under a timeout of an
/// hour.
#[track_caller]
fn check_locked(statuses: &[ReleaseStatus], (created, touched): (&str, &str), now: &str, wanted: bool) {
    for status in statuses {
        let mut release = release(*status, "", "");
        release.state.created = at(created);
        release.state.last_written = at(touched);
        let found = is_locked(&release, HOUR, at(now));
        assert_eq!(found, wanted, "{status}, created {created}, touched {touched}, at {now}");
    }
}

#[test]
fn operation_is_locked_when_record_stays_unchanged_beyond_the_timeout() {
    let made = (MADE, MADE);
    check_locked(&UNDERWAY, made, "2026-05-01T12:00:00Z", false);
    check_locked(&UNDERWAY, made, "2026-05-01T13:00:00Z", false);
    check_locked(&UNDERWAY, made, "2026-05-01T13:00:01Z", true);
    // Hooks write the record anew.
    let touched = (MADE, "2026-05-01T12:30:00Z");
    check_locked(&UNDERWAY, touched, "2026-05-01T13:30:00Z", false);
    check_locked(&UNDERWAY, touched, "2026-05-01T13:30:01Z", true);
    // A restored record is younger than what its managedFields tell.
    let restored = (MADE, "2026-04-01T12:00:00Z");
    check_locked(&UNDERWAY, restored, "2026-05-01T13:00:00Z", false);
    check_locked(&UNDERWAY, restored, "2026-05-01T13:00:01Z", true);
    // Nothing is under way.
    check_locked(&SETTLED, made, "2027-05-01T12:00:00Z", false);
}

#[test]
fn the_operation_timeout_may_be_anything() {
    let release = release(ReleaseStatus::PendingUpgrade, "", "");
    let soon = at(MADE) + SignedDuration::from_secs(1);
    assert!(is_locked(&release, Duration::ZERO, soon));
    assert!(!is_locked(&release, Duration::ZERO, at(MADE)));
    assert!(!is_locked(&release, Duration::MAX, Timestamp::MAX));
}

#[track_caller]
fn check_covers(deletion: Deletion, live: &Value, wanted: bool) {
    assert_eq!(deletion.covers(live), wanted, "{deletion:?} of {live}");
}

#[test]
fn a_deletion_covers_what_helms_own_operation_deletes() {
    let since = Deletion::CreatedSince(at(MADE));
    let live = |annotations: Value, created: Value| {
        let metadata = json!({"annotations": annotations, "creationTimestamp": created});
        json!({ "metadata": metadata })
    };
    let policy = |value: Value| live(json!({"helm.sh/resource-policy": value}), MADE.into());
    let created = |time: &str| live(json!({}), time.into());

    let all = [
        policy("keep".into()),
        policy("Keep".into()),
        created("2026-04-01T12:00:00Z"),
        created("2026-06-01T12:00:00Z"),
        json!({}),
        json!({"metadata": null}),
        Value::Null,
    ];
    for live in &all {
        check_covers(Deletion::Never, live, false);
        check_covers(Deletion::Uninstalled, live, true);
    }

    check_covers(Deletion::Dropped, &policy("keep".into()), false);
    // Helm compares the live annotation with exactly this word.
    for other in [json!("Keep"), json!(" keep "), json!("delete"), json!(""), json!(null), json!(["keep"])] {
        check_covers(Deletion::Dropped, &policy(other), true);
    }
    check_covers(Deletion::Dropped, &live(json!(null), json!(null)), true);
    check_covers(Deletion::Dropped, &live(json!({"example.com/resource-policy": "keep"}), json!(null)), true);
    check_covers(Deletion::Dropped, &json!({}), true);

    check_covers(since, &created("2026-05-01T12:00:00Z"), true);
    check_covers(since, &created("2026-05-01T12:00:01Z"), true);
    check_covers(since, &created("2026-05-01T11:59:59Z"), false);
    check_covers(since, &created("2026-05-01T13:59:59+02:00"), false);
    check_covers(since, &created("2026-05-01T14:00:00+02:00"), true);
    // What was made by the operation goes, whatever its annotations.
    check_covers(since, &policy("keep".into()), true);
    // Without a time nothing is known of it.
    for none in [json!(null), json!(""), json!("yesterday"), json!(1_777_636_800)] {
        check_covers(since, &live(json!({}), none), false);
    }
    check_covers(since, &json!({}), false);
}

/// The same for an object of which the latest manifest has two documents, the first one first, with these
/// annotations.
#[track_caller]
fn check_twice(status: ReleaseStatus, after: &str, annotations: [&str; 2], wanted: &str) {
    let document = |of, annotations| manifest(of, ["both", "other"], annotations);
    let latest = document("first", annotations[0]) + &document("last", annotations[1]);
    let baseline = document("baseline", "");
    let given = |revision, status, manifest| SampleRecord {
        revision,
        status,
        manifest,
        created: MADE,
        touched: MADE,
        ..SampleRecord::default()
    };
    let release = assembled(given(2, status, &latest), Some(given(1, ReleaseStatus::Deployed, &baseline)));
    let now = at(MADE) + after.parse::<SignedDuration>().unwrap();
    let found = describe(current_claim(&release, &object("both"), HOUR, now));
    assert_eq!(found, wanted, "{status} after {after}");
}

#[test]
fn each_document_of_an_object_counts_until_the_operation_is_over() {
    let none = [""; 2];
    for status in PENDING {
        check_twice(status, "PT0S", none, "last or first; pending");
        check_twice(status, "PT1H1S", none, "last or first or baseline");
    }
    let failed = "last or first or baseline";
    check_twice(ReleaseStatus::Failed, "PT24H", none, failed);
    check_twice(
        ReleaseStatus::Failed,
        "PT0S",
        none,
        &format!("{failed}; created since 2026-05-01T12:00:00Z"),
    );
    for status in [ReleaseStatus::Deployed, ReleaseStatus::Superseded, ReleaseStatus::Unknown] {
        check_twice(status, "PT0S", none, "last");
    }
}

#[test]
fn an_uninstallation_spares_what_every_document_keeps() {
    let keep = "helm.sh/resource-policy: keep";
    check_twice(ReleaseStatus::Uninstalling, "PT0S", [keep, keep], "last; pending");
    for annotations in [[keep, ""], ["", keep], ["", ""]] {
        check_twice(ReleaseStatus::Uninstalling, "PT0S", annotations, "last; uninstalled; pending");
    }
}

#[test]
fn an_uninstallation_deletes_a_lists_items_whatever_they_say() {
    let list = |own: &str| {
        let item = "{apiVersion: v1, kind: ConfigMap, metadata: {name: both, annotations: \
                    {helm.sh/resource-policy: keep}}, data: {of: item}}";
        format!("{{apiVersion: v1, kind: List, metadata: {{annotations: {{{own}}}}}, items: [{item}]}}\n")
    };
    for (own, wanted) in
        [("", "item; uninstalled; pending"), ("helm.sh/resource-policy: keep", "item; pending")]
    {
        let manifest = list(own);
        let given = SampleRecord {
            status: ReleaseStatus::Uninstalling,
            manifest: &manifest,
            ..SampleRecord::default()
        };
        let release = assembled(given, None);
        assert_eq!(describe(current_claim(&release, &object("both"), HOUR, at(MADE))), wanted, "{own}");
    }
}
