//! What guards read from the simulated API server.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::super::event::{Fault, ManifestDocument, Secret, WorkFailure, WorkOutcome};
use super::stored::fields;
use super::world::{CATALOG, Records, Revision, World};
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::{ObjectId, PROBE_MANAGER, ReleaseId};
use kubemoor_declare::packed::FieldsCache;
use kubemoor_helm::record::Record;
use kubemoor_helm::release::{self, Appearance, Payload, RecordHead, Release, StoredRecords, assemble};
use kubemoor_helm::storage::Storage;

static CACHE: LazyLock<Arc<FieldsCache>> = LazyLock::new(Arc::default);

/// The document of an object that the arbiter is asked about.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) revision: u64,
    pub(super) digest: Option<Digest>,
}

impl World {
    /// What tells a state of a release's records from others.
    pub(super) fn state_of(&self, id: &ReleaseId) -> Records {
        self.records.get(id).into_iter().flatten().map(|it| (it.revision, it.version)).collect()
    }

    /// A release as its records say.
    pub(super) fn release(
        &self,
        id: &ReleaseId,
        previous: Option<&Release>,
        appearances: &BTreeMap<(String, u64), Appearance>,
    ) -> Option<Release> {
        let records = self.records.get(id)?;
        let head = |record: &Revision| RecordHead {
            secret: format!("sh.helm.release.v1.{}.v{}", id.name, record.revision),
            uid: record.uid.clone(),
            resource_version: record.version.to_string(),
            revision: record.revision,
            status: record.status,
            created: record.created,
            touched: record.touched,
            appearance: *appearances
                .get(&(record.uid.clone(), record.revision))
                .unwrap_or(&Appearance::Seen(record.status)),
            writer: release::RecordWriter::Other,
        };
        let heads: Vec<Arc<RecordHead>> = records.iter().map(head).map(Arc::new).collect();
        let payload = |head: &RecordHead| {
            let record = records.iter().find(|record| record.revision == head.revision).unwrap();
            Payload::whole(Ok(Record {
                name: id.name.to_string(),
                namespace: id.namespace.to_string(),
                revision: record.revision,
                status: record.status,
                manifest: record.manifest.to_string(),
                digest: release::digest(&record.manifest),
                values: [0; 32],
                apply_method: record.method,
                chart: None,
                last_deployed: None,
                deleted: None,
            }))
        };
        let latest = release::latest(&heads)?;
        let baseline = release::baseline(&heads).map(|head| (head, payload(head)));
        let baseline = baseline.as_ref().map(|(head, payload)| (*head, payload));
        let latest = (latest, &payload(latest));
        Some(
            assemble(
                StoredRecords { stored: id, latest, baseline },
                previous,
                &Storage::default(),
                &CATALOG,
                &CACHE,
            )
            .release,
        )
    }

    /// An object as the manifest of a revision has it.
    pub(super) fn document(&self, id: &ReleaseId, revision: u64, object: &ObjectId) -> WorkOutcome {
        let records = self.records.get(id).into_iter().flatten();
        match records.clone().find(|record| record.revision == revision) {
            Some(record) => WorkOutcome::Document(ManifestDocument {
                status: record.status,
                apply_method: record.method,
                digest: release::digest(&record.manifest),
                object: release::document(id, &record.manifest, object, &CATALOG).map(Secret),
            }),
            None => failed(Fault::NoRecord, "there is no record of the revision"),
        }
    }

    /// How an object would be held if the manifest of a revision were applied. Where the record names another
    /// document by now than was asked about, there is no answer.
    pub(super) fn canonical(
        &self,
        id: &ReleaseId,
        (object, uid): (&ObjectId, &str),
        asked: Asked,
    ) -> WorkOutcome {
        let stored = self.objects.get(object).filter(|stored| stored.uid == uid);
        match (self.document(id, asked.revision, object), stored) {
            (WorkOutcome::Document(ManifestDocument { object: Some(Secret(document)), .. }), _)
                if Digest::new(&document) != asked.digest =>
            {
                failed(Fault::Unanswered, "the record has changed")
            }
            (
                WorkOutcome::Document(ManifestDocument { object: Some(Secret(document)), .. }),
                Some(stored),
            ) => {
                let mut stored = stored.clone();
                stored.apply(PROBE_MANAGER, &fields(&document), self.now);
                self.admit(&mut stored);
                WorkOutcome::Canonical(Arc::new(Secret(stored.value())))
            }
            (WorkOutcome::Failed(failure), _) => WorkOutcome::Failed(failure),
            _ => failed(Fault::NotFound, "the object is another one, or undeclared"),
        }
    }
}

pub(super) fn failed(fault: Fault, message: &str) -> WorkOutcome {
    WorkOutcome::Failed(WorkFailure { fault, message: message.to_owned() })
}
