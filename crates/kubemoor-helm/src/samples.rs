//! Releases for tests, as records would make them. Other crates' tests include this file by its path.

use std::sync::Arc;

use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::{ApplyMethod, Record, ReleaseStatus, record_name};
use kubemoor_helm::release::{
    Appearance, RecordHead, RecordPayload, RecordWriter, Release, StoredRecords, assemble, digest,
};
use kubemoor_helm::storage::TrustedRecordNamespaces;

/// What a record of the release `shop/web` is to be, for tests.
pub(crate) struct SampleRecord<'a> {
    pub(crate) revision: u64,
    pub(crate) status: ReleaseStatus,
    pub(crate) manifest: &'a str,
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    /// When the record was made and last written.
    pub(crate) created: &'a str,
    pub(crate) touched: &'a str,
    pub(crate) appearance: Appearance,
}

impl Default for SampleRecord<'_> {
    fn default() -> Self {
        Self {
            revision: 1,
            status: ReleaseStatus::Deployed,
            manifest: "",
            name: "web",
            namespace: "shop",
            created: "2026-05-01T12:00:00Z",
            touched: "2026-05-01T12:00:00Z",
            appearance: Appearance::Listed,
        }
    }
}

impl SampleRecord<'_> {
    pub(crate) fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.into(), name: self.name.into() }
    }

    pub(crate) fn head(&self) -> Arc<RecordHead> {
        Arc::new(RecordHead {
            secret: record_name(self.name, self.revision),
            uid: format!("uid-{}", self.revision),
            resource_version: "1".to_owned(),
            revision: self.revision,
            status: self.status,
            created: self.created.parse().unwrap(),
            last_written: self.touched.parse().unwrap(),
            appearance: self.appearance,
            writer: RecordWriter::Other,
        })
    }

    pub(crate) fn payload(&self) -> RecordPayload {
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
        RecordPayload::whole(Ok(record))
    }
}

/// A release of these two records.
pub(crate) fn assembled(latest: SampleRecord<'_>, baseline: Option<SampleRecord<'_>>) -> Release {
    let base = baseline.map(|given| (given.head(), given.payload()));
    let base = base.as_ref().map(|(head, payload)| (head, payload));
    let catalog = Catalog::with_core();
    assemble(
        StoredRecords { stored: &latest.id(), latest: (&latest.head(), &latest.payload()), baseline: base },
        None,
        &TrustedRecordNamespaces::default(),
        &catalog,
        &Arc::default(),
    )
    .release
}

/// The release whose first revision is deployed, of this manifest.
pub(crate) fn deployed(manifest: &str) -> Release {
    assembled(SampleRecord { manifest, ..SampleRecord::default() }, None)
}

/// The release whose second revision has this status and manifest, over a deployed first one.
pub(crate) fn second(status: ReleaseStatus, manifest: &str, baseline: &str) -> Release {
    let latest = SampleRecord { revision: 2, status, manifest, ..SampleRecord::default() };
    assembled(latest, Some(SampleRecord { manifest: baseline, ..SampleRecord::default() }))
}
