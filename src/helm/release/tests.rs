use super::*;
use crate::declaration::catalog::Catalog;
use crate::helm::record::RecordError;
use crate::helm::storage::Storage;

mod assembling;

/// What a record of the release `shop/web` is to be, for tests.
pub(crate) struct Given<'a> {
    pub(crate) revision: u64,
    pub(crate) status: Status,
    pub(crate) manifest: &'a str,
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    /// When the record was made and last written.
    pub(crate) created: &'a str,
    pub(crate) touched: &'a str,
    pub(crate) appearance: Appearance,
}

impl Default for Given<'_> {
    fn default() -> Self {
        Self {
            revision: 1,
            status: Status::Deployed,
            manifest: "",
            name: "web",
            namespace: "shop",
            created: "2026-05-01T12:00:00Z",
            touched: "2026-05-01T12:00:00Z",
            appearance: Appearance::Listed,
        }
    }
}

impl Given<'_> {
    pub(crate) fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.into(), name: self.name.into() }
    }

    pub(crate) fn head(&self) -> Arc<Head> {
        Arc::new(Head {
            secret: super::super::record::record_name(self.name, self.revision),
            uid: format!("uid-{}", self.revision),
            resource_version: "1".to_owned(),
            revision: self.revision,
            status: self.status,
            created: self.created.parse().unwrap(),
            touched: self.touched.parse().unwrap(),
            appearance: self.appearance,
            writer: Writer::Other,
        })
    }

    pub(crate) fn payload(&self) -> Payload {
        let record = Record {
            name: self.name.to_owned(),
            namespace: self.namespace.to_owned(),
            revision: self.revision,
            status: self.status,
            manifest: self.manifest.to_owned(),
            digest: digest(self.manifest),
            values: [0; 32],
            apply_method: ApplyMethod::ServerSide,
            chart: None,
            last_deployed: None,
            deleted: None,
        };
        Payload::whole(Ok(record))
    }
}

/// A release of these two records.
pub(crate) fn assembled(latest: Given<'_>, baseline: Option<Given<'_>>) -> Release {
    let base = baseline.map(|given| (given.head(), given.payload()));
    let base = base.as_ref().map(|(head, payload)| (head, payload));
    let catalog = Catalog::with_core();
    assemble(
        StoredRecords { stored: &latest.id(), latest: (&latest.head(), &latest.payload()), baseline: base },
        None,
        &Storage::default(),
        &catalog,
        &Arc::default(),
    )
    .release
}

/// The release whose first revision is deployed, of this manifest.
pub(crate) fn deployed(manifest: &str) -> Release {
    assembled(Given { manifest, ..Given::default() }, None)
}

/// The release whose second revision has this status and manifest, over a deployed first one.
pub(crate) fn second(status: Status, manifest: &str, baseline: &str) -> Release {
    let latest = Given { revision: 2, status, manifest, ..Given::default() };
    assembled(latest, Some(Given { manifest: baseline, ..Given::default() }))
}

/// The revisions of latest and baseline among records such as
/// `1 superseded, 2 deployed`.
#[track_caller]
fn check_choice(records: &str, wanted: (Option<u64>, Option<u64>)) {
    let mut heads: Vec<Arc<Head>> = records
        .split(',')
        .filter_map(|record| record.trim().split_once(' '))
        .map(|(revision, status)| {
            let (revision, status) = (revision.parse().unwrap(), status.parse().unwrap());
            Given { revision, status, ..Given::default() }.head()
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
fn check_belief(metadata: &Given<'_>, payload: &Given<'_>, wanted: Option<&str>) {
    let payload = payload.payload();
    let disbelief = believe(&metadata.id(), &metadata.head(), &payload, &Storage::default()).err();
    assert_eq!(disbelief.map(|it| it.to_string()).as_deref(), wanted);
}

#[test]
fn record_is_invalid_when_metadata_and_payload_disagree() {
    let given = Given::default;
    check_belief(&given(), &given(), None);
    check_belief(
        &given(),
        &Given { name: "api", ..given() },
        Some("its release is web by its metadata and api by its payload"),
    );
    check_belief(
        &given(),
        &Given { namespace: "bank", ..given() },
        Some("its namespace is shop by its metadata and bank by its payload"),
    );
    check_belief(
        &given(),
        &Given { revision: 7, ..given() },
        Some("its revision is 1 by its metadata and 7 by its payload"),
    );
    check_belief(
        &Given { status: Status::PendingUpgrade, ..given() },
        &given(),
        Some("its status is pending-upgrade by its metadata and deployed by its payload"),
    );
}

#[test]
fn a_payload_that_does_not_decode_is_not_believed() {
    let (head, error) = (Given::default().head(), RecordError::Missing { field: "manifest" });
    let payload = Payload::whole(Err(error));
    let disbelief = believe(&Given::default().id(), &head, &payload, &Storage::default()).unwrap_err();
    assert_eq!(disbelief, Disbelief::Decode("the record has no `manifest`".to_owned()));
}
