//! One release, assembled from its records: [`latest`] and [`baseline`] select the records, [`assemble()`] makes a
//! [`Release`] of them. Its declarations come from a record whose name, labels and payload agree; a record that
//! contradicts itself only marks the release invalid. A long manifest is kept compressed, and is in memory only while
//! it is read.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::manifest::{self, SkippedDocument};
use super::record::{ApplyMethod, ChartVersion, PackedRecord, Record, RecordError, ReleaseStatus};
use super::storage::TrustedRecordNamespaces;
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::declare::{Digest, declare, fill_null_entries};
use kubemoor_declare::fields::DeclaredFields;
use kubemoor_declare::model::{ALLOW, ALLOW_REASON, ALLOW_UNTIL, Gvk, ObjectId, ReleaseId};
use kubemoor_declare::packed::{FieldsCache, PackedFields};
use kubemoor_declare::path::Path;
use kubemoor_declare::schema::KindSchema;

#[derive(Clone, Debug)]
pub struct Release {
    /// The release, as the annotations of its objects name it.
    pub id: ReleaseId,
    /// The namespace that holds its records.
    pub storage: String,
    /// The latest record's metadata, to tell whether this is stale.
    pub latest: Arc<RecordHead>,
    /// The baseline's metadata, if it is another record than the latest.
    pub baseline: Option<Arc<RecordHead>>,
    /// Set while the latest record is not valid; then everything below comes from the last valid one.
    pub invalid: Option<InvalidRecord>,
    pub state: ReleaseState,
    /// The declared objects. Shared, because a release that becomes invalid keeps them.
    pub objects: Arc<HashMap<Arc<ObjectId>, ObjectDeclarations>>,
    /// The approximate memory of this in bytes, without cached fields.
    pub weight: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseState {
    pub revision: u64,
    pub status: ReleaseStatus,
    pub created: Timestamp,
    /// When it was last written.
    pub last_written: Timestamp,
    pub appearance: Appearance,
    pub apply_method: ApplyMethod,
    /// The chart that it was made from, where that is known.
    pub chart: Option<ChartVersion>,
    pub digest: [u8; 32],
    /// SHA-256 of the values that the user gave, zeros where they are not known. It must not be shown as it is.
    pub values: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRecord {
    pub secret: String,
    /// The reason, as one clause.
    pub reason: String,
}

#[derive(Clone, Debug, Default)]
pub struct ObjectDeclarations {
    /// The declaration in the latest record's manifest. If several documents declare the object, this is the last one:
    /// Helm applies each, and a server-side apply of the last one removes what only earlier ones set.
    pub latest: Option<Arc<DeclaredObject>>,
    /// The declarations in earlier documents, which Helm also writes during its operation.
    pub earlier: Vec<Arc<DeclaredObject>>,
    /// The declaration in the baseline's manifest, if that is another record.
    pub baseline: Option<Arc<DeclaredObject>>,
}

/// The latest record: as in Helm, the one with the highest revision.
pub fn latest(heads: &[Arc<RecordHead>]) -> Option<&Arc<RecordHead>> {
    heads.iter().max_by_key(|head| head.revision)
}

/// The record that Helm compares with in its next operation: the last
/// `deployed`, else the highest `superseded`. None if that is the latest.
pub fn baseline(heads: &[Arc<RecordHead>]) -> Option<&Arc<RecordHead>> {
    let highest = |status| heads.iter().filter(|head| head.status == status).max_by_key(|head| head.revision);
    let chosen = highest(ReleaseStatus::Deployed).or_else(|| highest(ReleaseStatus::Superseded))?;
    (latest(heads)?.revision != chosen.revision).then_some(chosen)
}

/// SHA-256 of a manifest, to tell whether a revision still declares the same.
pub fn digest(manifest: &str) -> [u8; 32] {
    Sha256::digest(manifest.as_bytes()).into()
}

impl Release {
    /// The namespace of its records, with the release's name.
    pub fn stored(&self) -> ReleaseId {
        ReleaseId { namespace: self.storage.clone().into(), name: self.id.name.clone() }
    }

    /// Whether it was uninstalled with its history kept. Its record then declares nothing.
    pub fn is_uninstalled(&self) -> bool {
        self.state.status == ReleaseStatus::Uninstalled
    }

    /// Drops its declarations and marks it invalid, for this reason.
    pub fn drop_declarations(&mut self, reason: String) {
        self.invalid = Some(InvalidRecord { secret: self.latest.secret.clone(), reason });
        (self.objects, self.weight) = (Arc::default(), 0);
    }

    /// The release at its baseline, which `apply_method` wrote from a manifest with this digest, without any
    /// later record. `None` without a baseline.
    pub fn at_baseline(&self, apply_method: ApplyMethod, digest: [u8; 32]) -> Option<Self> {
        let head = self.baseline.clone()?;
        let declared = self.objects.iter().filter_map(|(object, it)| Some((object, it.baseline.clone()?)));
        let objects = declared
            .map(|(object, declared)| {
                (
                    Arc::clone(object),
                    ObjectDeclarations { latest: Some(declared), ..ObjectDeclarations::default() },
                )
            })
            .collect();
        let state = ReleaseState {
            status: ReleaseStatus::Deployed,
            apply_method,
            digest,
            ..ReleaseState::unknown(&head)
        };
        Some(Self { latest: head, baseline: None, state, objects: Arc::new(objects), ..self.clone() })
    }

    /// Whether its records are at `stored`.
    pub fn is_stored_as(&self, stored: &ReleaseId) -> bool {
        self.storage == stored.namespace && self.id.name == stored.name
    }

    /// The declaration of the object in the latest record, else in the baseline.
    pub fn declared(&self, object: &ObjectId) -> Option<&Arc<DeclaredObject>> {
        let declarations = self.objects.get(object)?;
        declarations.latest.as_ref().or(declarations.baseline.as_ref())
    }
}

impl ObjectDeclarations {
    pub fn all(&self) -> impl Iterator<Item = &Arc<DeclaredObject>> {
        self.latest.iter().chain(&self.earlier).chain(&self.baseline)
    }
}

impl ReleaseState {
    /// Whether it comes from a trusted record.
    pub(super) fn is_known(&self) -> bool {
        self.digest != [0; 32]
    }

    fn from_record(head: &RecordHead, record: &Record) -> Self {
        Self {
            revision: record.revision,
            status: record.status,
            apply_method: record.apply_method,
            chart: record.chart.clone(),
            digest: record.digest,
            values: record.values,
            ..Self::unknown(head)
        }
    }

    fn unknown(head: &RecordHead) -> Self {
        Self {
            revision: head.revision,
            status: ReleaseStatus::Unknown,
            created: head.created,
            last_written: head.last_written,
            appearance: head.appearance,
            apply_method: ApplyMethod::ClientSide,
            chart: None,
            digest: [0; 32],
            values: [0; 32],
        }
    }
}

/// The prefix of the field managers of Terraform's provider for Helm, in every version.
const TERRAFORM: &str = "terraform-provider-helm";

/// The field manager of Flux's controller for Helm.
pub const FLUX: &str = "helm-controller";

/// The prefix of the field managers of Argo CD: `argocd-controller`, `argocd-application-controller`.
const ARGO: &str = "argocd-";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHead {
    pub secret: String,
    pub uid: String,
    pub resource_version: String,
    pub revision: u64,
    pub status: ReleaseStatus,
    pub created: Timestamp,
    /// When it was last written: the newest time in its managedFields.
    pub last_written: Timestamp,
    /// How the guard first saw the record.
    pub appearance: Appearance,
    pub writer: RecordWriter,
}

/// How the guard first saw a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appearance {
    /// It was there when the guard first listed records.
    Listed,
    /// It appeared while the guard ran, with this status.
    Seen(ReleaseStatus),
}

/// The program that deploys a release, as a field manager of its record or of its objects names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordWriter {
    Terraform,
    Flux,
    Argo,
    #[default]
    Other,
}

impl RecordHead {
    /// Whether both are the same record in the same version.
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }
}

impl RecordWriter {
    /// The program with this field manager. Helm as a library uses the name of the program that embeds it.
    pub fn from_manager(manager: &str) -> Self {
        match manager {
            FLUX => Self::Flux,
            _ if manager.starts_with(TERRAFORM) => Self::Terraform,
            _ if manager.starts_with(ARGO) => Self::Argo,
            _ => Self::Other,
        }
    }
}

/// The longest manifest that is kept unpacked, in bytes; longer ones are unpacked when they are read.
const SHORT: usize = 1 << 20;

pub struct RecordPayload {
    /// The record, or why the payload is not one.
    pub record: Result<Record, RecordError>,
    /// The compressed source of a manifest that is too long to be kept.
    pub packed: Option<PackedRecord>,
}

/// The longest manifest that is read concurrently with others, in bytes.
const LIGHT: usize = 256 << 10;

impl RecordPayload {
    /// Whether reading its manifest needs so much memory that only one is read at a time.
    pub fn is_heavy(&self) -> bool {
        self.packed.is_some() || self.record.as_ref().is_ok_and(|record| record.manifest.len() > LIGHT)
    }

    /// A payload whose manifest is in memory.
    pub fn whole(record: Result<Record, RecordError>) -> Self {
        Self { record, packed: None }
    }

    /// Unpacks a payload. A long manifest is kept only in its compressed form.
    pub fn unpack(packed: PackedRecord) -> Self {
        match packed.decode(SHORT) {
            Ok((record, length)) => Self { record: Ok(record), packed: (length > SHORT).then_some(packed) },
            Err(error) => Self::whole(Err(error)),
        }
    }

    /// Reads the manifest of its record.
    pub fn with_text<T>(&self, record: &Record, read: impl FnOnce(&str) -> T) -> Result<T, RecordError> {
        match &self.packed {
            Some(packed) => packed.manifest().map(|text| read(&text)),
            None => Ok(read(&record.manifest)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordMismatch {
    #[error("{0}")]
    Decode(String),
    #[error("its {what} is {metadata} in the metadata but {payload} in the payload")]
    Disagree { what: &'static str, metadata: String, payload: String },
}

/// The record at `stored`, if its name, its labels and its payload agree and `storage` trusts it for the namespace in
/// its payload.
pub fn validate_record<'p>(
    stored: &ReleaseId,
    head: &RecordHead,
    payload: &'p RecordPayload,
    storage: &TrustedRecordNamespaces,
) -> Result<&'p Record, RecordMismatch> {
    let record = payload.record.as_ref().map_err(|error| RecordMismatch::Decode(error.to_string()))?;
    // A trusted namespace counts as the record's own.
    let namespace = match storage.can_store(&stored.namespace, &record.namespace) {
        true => record.namespace.as_str(),
        false => stored.namespace.as_str(),
    };
    let told = [
        ("release", stored.name.to_string(), record.name.clone()),
        ("namespace", namespace.to_owned(), record.namespace.clone()),
        ("revision", head.revision.to_string(), record.revision.to_string()),
        ("status", head.status.to_string(), record.status.to_string()),
    ];
    match told.into_iter().find(|(_, metadata, payload)| metadata != payload) {
        Some((what, metadata, payload)) => Err(RecordMismatch::Disagree { what, metadata, payload }),
        None => Ok(record),
    }
}

/// The annotations of one object that ask for an exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowAnnotations {
    pub allow: Option<String>,
    pub until: Option<String>,
    pub reason: Option<String>,
}

impl AllowAnnotations {
    pub fn from_document(document: &Value) -> Option<Self> {
        let annotations = document.pointer("/metadata/annotations");
        let text = |name| Some(annotations?.get(name)?.as_str()?.to_owned());
        let read = Self { allow: text(ALLOW), until: text(ALLOW_UNTIL), reason: text(ALLOW_REASON) };
        (read != Self::default()).then_some(read)
    }

    /// Whether each text that differs from `before` matches the declared one.
    pub fn follows(&self, before: &Self, declared: &Self) -> bool {
        let follows =
            |text: fn(&Self) -> &Option<String>| text(self) == text(before) || text(self) == text(declared);
        follows(|it| &it.allow) && follows(|it| &it.until) && follows(|it| &it.reason)
    }
}

/// The annotations that opt an object out of the guard, with their values.
const OPT_OUTS: [(&str, &str); 2] =
    [("kubemoor.dev/guard", "disabled"), ("helm.toolkit.fluxcd.io/driftDetection", "disabled")];

#[derive(Clone, Debug)]
pub struct DeclaredObject {
    /// The declared fields, in memory or packed.
    pub packed: PackedFields,
    /// The exception in the manifest's annotations; usually none.
    pub allow: Option<Box<AllowAnnotations>>,
    /// The object's API version in the manifest.
    pub version: Arc<str>,
    /// The facts about its kind; `None` while the kind is unknown.
    pub facts: Option<Arc<KindFacts>>,
    /// The manifest's document says `helm.sh/resource-policy: keep`.
    pub keep: bool,
    pub opted_out: bool,
    /// The approximate memory of its fields in the cache, in bytes.
    pub weight: u32,
    /// The digest of this declaration; `None` if it is nested too deep.
    pub digest: Option<Digest>,
}

impl DeclaredObject {
    pub fn fields(&self) -> Arc<DeclaredFields> {
        self.packed.fields()
    }

    /// The version in which the API server returns the object: the manifest's, or the preferred one if that is no
    /// longer served.
    pub fn served(&self) -> &str {
        self.facts.as_ref().and_then(|facts| facts.served(&self.version)).unwrap_or(&self.version)
    }

    /// The resource's plural; `None` while the kind is unknown.
    pub fn plural(&self) -> Option<&str> {
        self.facts.as_ref().map(|facts| facts.plural.as_str())
    }

    /// The approximate memory of its fields in the cache, in bytes.
    pub fn weight(&self) -> usize {
        usize::try_from(self.weight).unwrap_or(usize::MAX)
    }

    /// The path of the replicas that its `scale` subresource sets.
    pub fn scale(&self) -> Option<&Path> {
        self.facts.as_ref().and_then(|facts| facts.scale_replicas_path.as_ref())
    }

    /// Whether another declaration of the object is equivalent, so that one comparison holds for both.
    pub fn is_alike(&self, other: &Self) -> bool {
        let is_typed_alike = self.digest.is_some() && self.packed.is_typed_as(&other.packed);
        self.version == other.version
            && self.opted_out == other.opted_out
            && self.digest == other.digest
            && (is_typed_alike || self.fields() == other.fields())
    }

    /// The approximate memory of this without cached fields, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<(Arc<ObjectId>, ObjectDeclarations, ObjectId)>() + size_of::<Self>() + self.packed.weight()
    }

    /// The object that `document` declares. The digest is of the document as the manifest has it; `keep` says whether
    /// an uninstall keeps the object.
    fn new(
        (document, digest): (&Value, Option<Digest>),
        keep: bool,
        schema: Option<Arc<KindSchema>>,
        catalog: &Catalog,
        cache: &Arc<FieldsCache>,
    ) -> Self {
        let gvk = gvk(document);
        let annotation = |name: &str| document.pointer("/metadata/annotations")?.get(name)?.as_str();
        let fields = declare(document, schema.as_deref());
        let weight =
            size_of::<(Arc<ObjectId>, ObjectDeclarations, ObjectId)>() + size_of::<Self>() + fields.weight();
        Self {
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            allow: AllowAnnotations::from_document(document).map(Box::new),
            keep,
            opted_out: OPT_OUTS.iter().any(|(name, value)| annotation(name) == Some(value)),
            packed: PackedFields::new(document, fields, schema, cache),
            version: gvk.version.into(),
            facts: catalog.facts(&gvk.group, &gvk.kind).cloned(),
            digest,
        }
    }
}

/// The objects of a manifest as Helm sends them: in its order, with Helm's metadata and their namespaces.
pub fn documents(
    id: &ReleaseId,
    manifest: &str,
    catalog: &Catalog,
) -> (Vec<(ObjectId, Value)>, Vec<SkippedDocument>) {
    let parsed = manifest::parse(manifest);
    (parsed.objects.into_iter().map(|object| placed(id, object, catalog)).collect(), parsed.skipped)
}

/// One object of a manifest as Helm sends it; of several documents the last one, which Helm applies last.
pub fn document(id: &ReleaseId, manifest: &str, object: &ObjectId, catalog: &Catalog) -> Option<Value> {
    let mut found = None;
    manifest::each(manifest, |written| {
        let (name, value) = placed(id, written.value, catalog);
        if name == *object {
            found = Some(value);
        }
        ControlFlow::Continue(())
    });
    found
}

fn placed(id: &ReleaseId, mut object: Value, catalog: &Catalog) -> (ObjectId, Value) {
    let gvk = gvk(&object);
    let namespaced = catalog.facts(&gvk.group, &gvk.kind).map(|facts| facts.namespaced);
    let name = manifest::identify(&object, id, namespaced);
    manifest::set_helm_metadata(&mut object, id);
    manifest::set_object_namespace(&mut object, &name);
    (name, object)
}

pub fn gvk(object: &Value) -> Gvk {
    let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
    Gvk::from_api_version(text("apiVersion"), text("kind"))
}

pub const MAX_OBJECTS: usize = 10_000;

/// The maximum memory for the declared fields of one release, in bytes.
pub const MAX_WEIGHT: usize = 12 << 20;

pub struct Assembled {
    pub release: Release,
    /// The documents of the latest manifest that are not objects.
    pub skipped: Vec<SkippedDocument>,
}

#[derive(Clone, Copy)]
pub struct StoredRecords<'a> {
    pub stored: &'a ReleaseId,
    pub latest: (&'a Arc<RecordHead>, &'a RecordPayload),
    pub baseline: Option<(&'a Arc<RecordHead>, &'a RecordPayload)>,
}

struct ValidRecord<'a> {
    head: &'a RecordHead,
    payload: &'a RecordPayload,
    record: &'a Record,
}

/// The records of a release whose id has been determined.
struct Assembly<'a> {
    id: ReleaseId,
    records: StoredRecords<'a>,
    /// The baseline, if it is valid.
    believed: Option<ValidRecord<'a>>,
    catalog: &'a Catalog,
    cache: &'a Arc<FieldsCache>,
}

/// Why the declarations of a valid record are not kept.
#[derive(Debug, thiserror::Error)]
enum DeclarationLimitError {
    #[error("its manifest declares more than {MAX_OBJECTS} objects, so it is not checked")]
    Objects,
    #[error("its declared fields take more than {MAX_WEIGHT} bytes, so it is not checked")]
    Weight,
    #[error(transparent)]
    Record(#[from] RecordError),
}

struct ManifestDeclarations {
    objects: Vec<(Arc<ObjectId>, Arc<DeclaredObject>)>,
    skipped: Vec<SkippedDocument>,
}

/// Assembles a release from its records.
///
/// The release has the records' name and the namespace of their payloads, if `storage` trusts them for it. If the
/// latest record is not valid, the release keeps its `previous` declarations while these are trusted, else those of the
/// baseline, and is marked invalid. Recently used fields go into `cache`.
pub fn assemble(
    records: StoredRecords<'_>,
    previous: Option<&Release>,
    storage: &TrustedRecordNamespaces,
    catalog: &Catalog,
    cache: &Arc<FieldsCache>,
) -> Assembled {
    let StoredRecords { stored, latest, baseline } = records;
    let told = validate_record(stored, latest.0, latest.1, storage);
    let believed = baseline.and_then(|(head, payload)| {
        let record = validate_record(stored, head, payload, storage).ok()?;
        Some(ValidRecord { head, payload, record })
    });
    // Previous declarations are dropped if these records are not trusted for that release, and unknown ones if the
    // baseline is valid.
    let previous = previous.filter(|previous| {
        storage.can_store(&stored.namespace, &previous.id.namespace)
            && (previous.state.is_known() || believed.is_none())
    });
    let home =
        |record: &Record| ReleaseId { namespace: record.namespace.clone().into(), name: stored.name.clone() };
    let id = match (&told, previous, &believed) {
        (Ok(record), _, _) => home(record),
        (Err(_), Some(previous), _) => previous.id.clone(),
        (Err(_), None, Some(ValidRecord { record, .. })) => home(record),
        (Err(_), None, None) => stored.clone(),
    };
    // The records of one history are of one release.
    let believed = believed.filter(|ValidRecord { record, .. }| record.namespace == id.namespace);
    let assembly = Assembly { id, records, believed, catalog, cache };
    match told {
        Ok(record) => assembly.by_latest(record),
        Err(disbelief) => {
            let release = assembly.by_earlier(previous, &disbelief.to_string());
            Assembled { release, skipped: Vec::new() }
        }
    }
}

impl Assembly<'_> {
    fn by_latest(&self, record: &Record) -> Assembled {
        let (head, payload) = self.records.latest;
        let state = ReleaseState::from_record(head, record);
        let found = match self.read(payload, record) {
            Ok(found) => found,
            Err(unkept) => {
                let release = self.release(state, HashMap::new(), Some(unkept.to_string()));
                return Assembled { release, skipped: Vec::new() };
            }
        };
        let mut objects = by_object(found.objects);
        // A baseline that cannot be kept counts as unknown.
        let base = self.believed.as_ref().and_then(|it| self.read(it.payload, it.record).ok());
        for (object, declared) in base.into_iter().flat_map(|found| found.objects) {
            objects.entry(object).or_default().baseline = Some(declared);
        }
        objects.shrink_to_fit();
        Assembled { release: self.release(state, objects, None), skipped: found.skipped }
    }

    /// The release by its previous declarations, else by its baseline, if the latest record is not valid.
    fn by_earlier(&self, previous: Option<&Release>, disbelief: &str) -> Release {
        let invalid = Some(disbelief.to_owned());
        match (previous, &self.believed) {
            (Some(previous), _) => Release {
                objects: Arc::clone(&previous.objects),
                weight: previous.weight,
                ..self.release(previous.state.clone(), HashMap::new(), invalid)
            },
            (None, Some(ValidRecord { head, payload, record })) => {
                let found = self.read(payload, record).map(|found| found.objects).unwrap_or_default();
                self.release(ReleaseState::from_record(head, record), by_object(found), invalid)
            }
            (None, None) => {
                self.release(ReleaseState::unknown(self.records.latest.0), HashMap::new(), invalid)
            }
        }
    }

    fn read(
        &self,
        payload: &RecordPayload,
        record: &Record,
    ) -> Result<ManifestDeclarations, DeclarationLimitError> {
        payload.with_text(record, |text| self.find(text, record.apply_method))?
    }

    fn find(
        &self,
        manifest: &str,
        method: ApplyMethod,
    ) -> Result<ManifestDeclarations, DeclarationLimitError> {
        let (mut objects, mut excess, mut weight) = (Vec::new(), None, 0_usize);
        let skipped = manifest::each(manifest, |written| {
            let (object, mut document) = placed(&self.id, written.value, self.catalog);
            let schema = self.catalog.schema(&gvk(&document));
            let digest = Digest::new(&document);
            // A client-side upgrade by Helm removes such entries.
            if method == ApplyMethod::ServerSide {
                fill_null_entries(&mut document, schema.as_deref());
            }
            let declared =
                DeclaredObject::new((&document, digest), written.is_kept, schema, self.catalog, self.cache);
            weight = weight.saturating_add(declared.weight());
            objects.push((Arc::new(object), Arc::new(declared)));
            excess = match (objects.len() > MAX_OBJECTS, weight > MAX_WEIGHT) {
                (true, _) => Some(DeclarationLimitError::Objects),
                (false, true) => Some(DeclarationLimitError::Weight),
                (false, false) => return ControlFlow::Continue(()),
            };
            ControlFlow::Break(())
        });
        excess.map_or_else(|| Ok(ManifestDeclarations { objects, skipped }), Err)
    }

    /// The release with these objects; `invalid` says why its latest record is not valid.
    fn release(
        &self,
        state: ReleaseState,
        objects: HashMap<Arc<ObjectId>, ObjectDeclarations>,
        invalid: Option<String>,
    ) -> Release {
        let StoredRecords { stored, latest: (latest, _), baseline } = self.records;
        Release {
            id: self.id.clone(),
            storage: stored.namespace.to_string(),
            latest: Arc::clone(latest),
            baseline: baseline.map(|(head, _)| Arc::clone(head)),
            invalid: invalid.map(|reason| InvalidRecord { secret: latest.secret.clone(), reason }),
            state,
            weight: weight(&objects),
            objects: Arc::new(objects),
        }
    }
}

/// Groups the declarations of one record by object.
fn by_object(found: Vec<(Arc<ObjectId>, Arc<DeclaredObject>)>) -> HashMap<Arc<ObjectId>, ObjectDeclarations> {
    let mut objects: HashMap<_, ObjectDeclarations> = HashMap::with_capacity(found.len());
    for (object, declared) in found {
        let declarations = objects.entry(object).or_default();
        declarations.earlier.extend(declarations.latest.replace(declared));
    }
    objects
}

/// The approximate memory of declarations in bytes.
fn weight(objects: &HashMap<Arc<ObjectId>, ObjectDeclarations>) -> usize {
    objects.values().flat_map(ObjectDeclarations::all).map(|declared| declared.memory()).sum()
}

#[cfg(test)]
pub(crate) mod tests;
