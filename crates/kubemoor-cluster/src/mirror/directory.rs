//! Releases in files: the store of a guard without a cluster, a directory of `NAMESPACE/RELEASE.yaml`. A file is a
//! manifest in the form of `helm get manifest`, or an exported record: the Secret or ConfigMap as YAML or JSON, or its
//! payload alone. A file that cannot be read is reported with the reason and does not affect the others. No content is
//! quoted: it may contain secrets.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{ReleaseId, is_dns_label};
use kubemoor_helm::manifest::{self, SkipReason};
use kubemoor_helm::record::{
    self, ApplyMethod, DEFAULT_CAP, MANIFEST_CAP, PackedRecord, Record, RecordError, ReleaseStatus, is_base64,
};
use kubemoor_helm::release::{self, Appearance, Assembled, RecordHead, RecordPayload, RecordWriter};
use kubemoor_helm::storage::TrustedRecordNamespaces;

const RECORD_TYPE: &str = "helm.sh/release.v1";

pub struct Directory {
    /// The releases, by namespace and name.
    pub releases: Vec<Assembled>,
    /// The files that are not served, with the reasons.
    pub unreadable: Vec<UnreadableError>,
}

pub enum ReleaseFile {
    /// A manifest, which does not name its release.
    Manifest(String),
    /// A record, which names its release.
    Record(Box<Record>),
}

#[derive(Debug, Error)]
#[error("cannot list the releases in {path}")]
pub struct DirectoryError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// A file that is not a release.
#[derive(Debug, Error)]
#[error("{path} is not used as a release")]
pub struct UnreadableError {
    pub path: PathBuf,
    #[source]
    pub source: ReadError,
}

/// Why a file is not a release.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    #[error("it has more than {DEFAULT_CAP} bytes")]
    TooLarge,
    #[error("it is not UTF-8 text")]
    Utf8,
    #[error("a store may contain only NAMESPACE/RELEASE.yaml files")]
    Place,
    #[error("its record cannot be decoded")]
    Record(#[from] RecordError),
    #[error("it is a record without data.release")]
    NoPayload,
    #[error("its record belongs to release {found}, but its path to {expected}")]
    OtherRelease { expected: ReleaseId, found: ReleaseId },
    #[error("document {index} is not a Kubernetes object: {reason}")]
    NoObject {
        /// The first document that is not an object, from 0.
        index: usize,
        reason: SkipReason,
    },
}

/// Reads every `NAMESPACE/RELEASE.yaml` below `path`; `catalog` knows the kinds that they declare. Skips names that
/// begin with a dot: a mounted ConfigMap has such folders of its own.
pub fn load(path: &Path, catalog: &Catalog) -> Result<Directory, DirectoryError> {
    let failed = |source| DirectoryError { path: path.to_owned(), source };
    let mut directory = Directory { releases: Vec::new(), unreadable: Vec::new() };
    for folder in entries(path).map_err(failed)? {
        directory.take_folder(folder, catalog);
    }
    Ok(directory)
}

pub fn read(path: &Path) -> Result<ReleaseFile, ReadError> {
    let mut bytes = Vec::new();
    // A file larger than any decompressed record is not a manifest either.
    File::open(path)?.take(DEFAULT_CAP as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > DEFAULT_CAP {
        return Err(ReadError::TooLarge);
    }
    interpret(String::from_utf8(bytes).map_err(|_| ReadError::Utf8)?)
}

/// The release that a single record represents.
pub fn assemble(record: Record, catalog: &Catalog) -> Assembled {
    let id = ReleaseId { namespace: record.namespace.clone().into(), name: record.name.clone().into() };
    // Without the Secret's metadata, the record's own times are the best available.
    let created = record.last_deployed.unwrap_or(Timestamp::UNIX_EPOCH);
    let head = RecordHead {
        secret: record::record_name(&record.name, record.revision),
        uid: String::new(),
        resource_version: String::new(),
        revision: record.revision,
        status: record.status,
        created,
        last_written: record.deleted.map_or(created, |deleted| deleted.max(created)),
        appearance: Appearance::Listed,
        writer: RecordWriter::Other,
    };
    let payload = RecordPayload::whole(Ok(record));
    release::assemble(
        release::StoredRecords { stored: &id, latest: (&Arc::new(head), &payload), baseline: None },
        None,
        &TrustedRecordNamespaces::default(),
        catalog,
        &Arc::default(),
    )
}

impl ReleaseFile {
    /// The record; a manifest becomes the deployed first revision of `id`.
    pub fn into_record(self, id: &ReleaseId) -> Record {
        match self {
            Self::Record(record) => *record,
            Self::Manifest(manifest) => Record {
                name: id.name.to_string(),
                namespace: id.namespace.to_string(),
                revision: 1,
                status: ReleaseStatus::Deployed,
                digest: release::digest(&manifest),
                values: [0; 32],
                manifest,
                apply_method: ApplyMethod::ClientSide,
                chart: None,
                last_deployed: None,
                deleted: None,
            },
        }
    }
}

impl Directory {
    fn take_folder(&mut self, folder: PathBuf, catalog: &Catalog) {
        match (name_of(&folder), folder.is_dir()) {
            (Some(namespace), true) if is_dns_label(&namespace) => match entries(&folder) {
                Ok(files) => files.into_iter().for_each(|file| self.take_file(&namespace, file, catalog)),
                Err(error) => self.refuse(folder, ReadError::Io(error)),
            },
            _ => self.refuse(folder, ReadError::Place),
        }
    }

    fn take_file(&mut self, namespace: &str, file: PathBuf, catalog: &Catalog) {
        let name = name_of(&file).and_then(|name| name.strip_suffix(".yaml").map(str::to_owned));
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return self.refuse(file, ReadError::Place);
        };
        let id = ReleaseId { namespace: namespace.into(), name: name.into() };
        match read(&file).map(|content| content.into_record(&id)) {
            Ok(record) if record.name == id.name && record.namespace == id.namespace => {
                self.releases.push(assemble(record, catalog));
            }
            Ok(Record { namespace, name, .. }) => {
                let found = ReleaseId { namespace: namespace.into(), name: name.into() };
                self.refuse(file, ReadError::OtherRelease { expected: id, found });
            }
            Err(error) => self.refuse(file, error),
        }
    }

    fn refuse(&mut self, path: PathBuf, source: ReadError) {
        self.unreadable.push(UnreadableError { path, source });
    }
}

/// The entries of a folder, sorted, without names that begin with a dot.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

fn interpret(text: String) -> Result<ReleaseFile, ReadError> {
    let payload = text.trim();
    if !payload.is_empty() && is_base64(payload.as_bytes()) {
        return Ok(ReleaseFile::Record(unpack(&PackedRecord::unlabelled(payload))?.into()));
    }
    let parsed = manifest::parse(&text);
    if let [object] = parsed.objects.as_slice()
        && is_record(object)
    {
        return Ok(ReleaseFile::Record(
            unpack(&PackedRecord::from_object(object).ok_or(ReadError::NoPayload)?)?.into(),
        ));
    }
    match parsed.skipped.into_iter().next() {
        Some(skipped) if parsed.objects.is_empty() => {
            Err(ReadError::NoObject { index: skipped.index, reason: skipped.reason })
        }
        _ => Ok(ReleaseFile::Manifest(text)),
    }
}

fn is_record(object: &Value) -> bool {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match text("/kind") {
        "Secret" => text("/type") == RECORD_TYPE,
        "ConfigMap" => {
            text("/metadata/labels/owner") == "helm"
                && record::parse_record_name(text("/metadata/name")).is_some()
        }
        _ => false,
    }
}

fn unpack(packed: &PackedRecord) -> Result<Record, RecordError> {
    packed.decode(MANIFEST_CAP).map(|(record, _)| record)
}

#[cfg(test)]
mod tests;
