//! What the index of releases holds in memory for each declared object: ten thousand releases of ten
//! objects, read from their manifests as they are read from records.
//!
//! `cargo bench --bench memory` prints the growth of resident memory for each object, and what the
//! guard itself counts for their declared fields.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stdout)]

#[path = "cluster/objects.rs"]
#[allow(dead_code, reason = "another benchmark uses all of it")]
mod objects;

use std::fs;
use std::sync::Arc;

use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::packed::FieldsCache;
use kubemoor_helm::index::Index;
use kubemoor_helm::record::{ApplyMethod, Record, ReleaseStatus};
use kubemoor_helm::release::{
    Appearance, RecordHead, RecordPayload, RecordWriter, StoredRecords, assemble, digest,
};
use kubemoor_helm::storage::TrustedRecordNamespaces;
use objects::{OBJECTS, declared};

/// The program's allocator, so that the figures hold for the program.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const RELEASES: usize = 10_000;
const NAMESPACES: usize = 200;

fn main() {
    let catalog = Catalog::with_core();
    let cache = Arc::default();
    // What is made once is no object's.
    let mut index = Index::default();
    index.set(release(0, &catalog, &cache));
    let before = resident();
    let mut weight = 0;
    for number in 1..=RELEASES {
        let release = release(number, &catalog, &cache);
        weight += release.weight;
        index.set(release);
    }
    let objects = RELEASES * OBJECTS;
    println!(
        "the index of {RELEASES} releases with {objects} objects: {} bytes an object; {} by the guard's own count",
        (resident() - before) / objects,
        weight / objects,
    );
}

fn release(number: usize, catalog: &Catalog, cache: &Arc<FieldsCache>) -> kubemoor_helm::release::Release {
    let name = format!("shop-{number:05}");
    let namespace = format!("releases-{:03}", number % NAMESPACES);
    let manifest: String =
        declared(&name).iter().map(|object| format!("---\n{object}\n")).collect::<Vec<_>>().concat();
    let stored = ReleaseId { namespace: namespace.clone().into(), name: name.clone().into() };
    let created = "2026-05-01T12:00:00Z".parse().unwrap();
    let head = Arc::new(RecordHead {
        secret: format!("sh.helm.release.v1.{name}.v1"),
        uid: format!("00000000-0000-0000-0000-{number:012}"),
        resource_version: number.to_string(),
        revision: 1,
        status: ReleaseStatus::Deployed,
        created,
        last_written: created,
        appearance: Appearance::Listed,
        writer: RecordWriter::Other,
    });
    let record = Record {
        name,
        namespace,
        revision: 1,
        status: ReleaseStatus::Deployed,
        digest: digest(&manifest),
        values: [0; 32],
        manifest,
        apply_method: ApplyMethod::ServerSide,
        chart: None,
        last_deployed: None,
        deleted: None,
    };
    let payload = RecordPayload::whole(Ok(record));
    let records = StoredRecords { stored: &stored, latest: (&head, &payload), baseline: None };
    assemble(records, None, &TrustedRecordNamespaces::default(), catalog, cache).release
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
