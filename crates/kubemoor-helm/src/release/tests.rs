use super::*;
use crate::record::RecordError;
use crate::samples::{SampleRecord, assembled};
use crate::storage::TrustedRecordNamespaces;

mod assembling;

/// The revisions of latest and baseline among records such as
/// `1 superseded, 2 deployed`.
#[track_caller]
fn check_choice(records: &str, wanted: (Option<u64>, Option<u64>)) {
    let mut heads: Vec<Arc<RecordHead>> = records
        .split(',')
        .filter_map(|record| record.trim().split_once(' '))
        .map(|(revision, status)| {
            let (revision, status) = (revision.parse().unwrap(), status.parse().unwrap());
            SampleRecord { revision, status, ..SampleRecord::default() }.head()
        })
        .collect();
    for _ in 0..2 {
        let found = (latest(&heads).map(|head| head.revision), baseline(&heads).map(|head| head.revision));
        assert_eq!(found, wanted, "{records}");
        heads.reverse();
    }
}

#[test]
fn latest_is_highest_revision_and_baseline_matches_helm_comparison() {
    check_choice("", (None, None));
    check_choice("1 pending-install", (Some(1), None));
    check_choice("1 deployed", (Some(1), None));
    check_choice("1 failed", (Some(1), None));
    check_choice("1 superseded", (Some(1), None));
    check_choice("1 superseded, 2 deployed", (Some(2), None));
    check_choice("1 deployed, 2 pending-upgrade", (Some(2), Some(1)));
    check_choice("1 superseded, 2 pending-upgrade", (Some(2), Some(1)));
    check_choice("1 deployed, 2 failed", (Some(2), Some(1)));
    check_choice("1 deployed, 2 failed, 3 pending-rollback", (Some(3), Some(1)));
    check_choice("1 failed, 2 pending-upgrade", (Some(2), None));
    check_choice("1 superseded, 2 superseded, 3 failed", (Some(3), Some(2)));
    check_choice("1 deployed, 2 superseded, 3 pending-upgrade", (Some(3), Some(1)));
    check_choice("9 superseded, 10 deployed, 11 uninstalling", (Some(11), Some(10)));
    check_choice("2 deployed, 3 deployed, 4 pending-upgrade", (Some(4), Some(3)));
}

#[test]
fn a_stale_pending_record_is_no_baseline() {
    check_choice("1 superseded, 2 pending-upgrade, 3 deployed", (Some(3), None));
    check_choice("1 superseded, 2 pending-upgrade, 3 deployed, 4 failed", (Some(4), Some(3)));
    check_choice("1 pending-install, 2 pending-upgrade", (Some(2), None));
}

/// Why the record that is `payload` is not believed under what is `metadata`.
#[track_caller]
fn check_belief(metadata: &SampleRecord<'_>, payload: &SampleRecord<'_>, wanted: Option<&str>) {
    let payload = payload.payload();
    let disbelief =
        validate_record(&metadata.id(), &metadata.head(), &payload, &TrustedRecordNamespaces::default())
            .err();
    assert_eq!(disbelief.map(|it| it.to_string()).as_deref(), wanted);
}

#[test]
fn record_is_invalid_when_metadata_and_payload_disagree() {
    let given = SampleRecord::default;
    check_belief(&given(), &given(), None);
    check_belief(
        &given(),
        &SampleRecord { name: "api", ..given() },
        Some("its release is web in the metadata but api in the payload"),
    );
    check_belief(
        &given(),
        &SampleRecord { namespace: "bank", ..given() },
        Some("its namespace is shop in the metadata but bank in the payload"),
    );
    check_belief(
        &given(),
        &SampleRecord { revision: 7, ..given() },
        Some("its revision is 1 in the metadata but 7 in the payload"),
    );
    check_belief(
        &SampleRecord { status: ReleaseStatus::PendingUpgrade, ..given() },
        &given(),
        Some("its status is pending-upgrade in the metadata but deployed in the payload"),
    );
}

#[test]
fn a_payload_that_does_not_decode_is_not_believed() {
    let (head, error) = (SampleRecord::default().head(), RecordError::Missing { field: "manifest" });
    let payload = RecordPayload::whole(Err(error));
    let disbelief =
        validate_record(&SampleRecord::default().id(), &head, &payload, &TrustedRecordNamespaces::default())
            .unwrap_err();
    assert_eq!(disbelief, RecordMismatch::Decode("the record has no `manifest`".to_owned()));
}
