//! Reads a cluster with a person's own rights: kinds, policies, releases by their records, live objects, and the
//! guard's statuses. Writes nothing; a dry run settles uncertain differences. Needs no guard, only a kubeconfig.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Mutex;

use super::failure::{InspectError, describe_release, failed, forbidden, unknown_release};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::lease::read_pulse;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::client::{by_short_name, guarded};
use kubemoor_cluster::mirror::arbiter::{Arbiter, DryRunQuestion};
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_cluster::mirror::policies::{self, Autoscaled};
use kubemoor_cluster::mirror::releases::{Releases, UnreadableNamespace};
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::model::{DriftMode, EditsMode, NamedObject, ObjectId, ReleaseId};
use kubemoor_helm::record::ChartSource;
use kubemoor_helm::release::Release;
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::guarded::{DriftedObject, GuardedReleaseStatus, LeaseReference};
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_policy::resource::AllowedAutoscalers;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::edit::ObjectContext;
use kubemoor_verdict::health::{GuardLeaseState, ReportedHealth};

/// How long a pending record may stay untouched: the default of `serve`.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(3600);

pub(crate) const DRY_RUNS: NonZeroU32 = match NonZeroU32::new(10) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

const PATIENCE: Duration = Duration::from_secs(10);

const AT_ONCE: usize = 8;

/// How many revisions are read for their charts and values.
const SOURCES: usize = 5;

pub struct ClusterReader {
    pub connection: ClusterConnection,
    pub(crate) kinds: Arc<ServedKinds>,
    releases: Arc<Releases>,
    objects: Objects,
    arbiter: Arbiter,
    /// The policies of the cluster; the guard's own flags are not known here.
    pub resolver: PolicyResolver,
    /// Why the policies could not be read, which also name the trusted namespaces of records.
    unread: Option<String>,
    /// Why records cannot be read, by the namespace of the releases and the trusted namespace of the records.
    unreadable_records: parking_lot::Mutex<BTreeMap<(String, String), String>>,
    namespaces: Mutex<HashMap<String, Arc<NamespaceInputs>>>,
    /// Whether guards still maintain their statuses.
    pub pulses: LeaseCache,
}

/// The inputs for judging a release's objects, besides its records and policies.
pub(crate) struct ReleaseInputs {
    place: Arc<NamespaceInputs>,
    others: Vec<Arc<Release>>,
    pub(crate) unread: Vec<String>,
}

struct NamespaceInputs {
    allowances: Vec<Arc<Allowance>>,
    autoscalers: Vec<Autoscaled>,
    unread: Vec<String>,
}

pub enum FoundObject {
    Object(Value),
    Absent,
    NotServed,
    /// The user may not read it, or the API server failed, for this reason.
    Unread(String),
}

impl ClusterReader {
    /// Reads the kinds that the cluster serves, and the policies that apply to a cluster with the labels `cluster`.
    pub async fn new(
        connection: ClusterConnection,
        driver: RecordDriver,
        cluster: &Labels,
    ) -> Result<Self, InspectError> {
        let kinds = kinds(&connection).await?;
        Ok(Self::of_kinds(connection, kinds, driver, cluster).await)
    }

    /// The same with kinds that are already known.
    pub async fn of_kinds(
        connection: ClusterConnection,
        kinds: Arc<ServedKinds>,
        driver: RecordDriver,
        cluster: &Labels,
    ) -> Self {
        let client = connection.client.clone();
        let releases = Releases::once(client.clone(), driver, Arc::clone(&kinds));
        let objects = Objects::new(client, DRY_RUNS);
        let arbiter = Arbiter::new(objects.clone(), Arc::clone(&kinds), Arc::clone(&releases), DRY_RUNS);
        let mut unread = None;
        let policies = policies::read_policies(&connection.client).await.unwrap_or_else(|error| {
            unread = Some(format!(
                "policies cannot be read, including those that trust records in another namespace: {error}"
            ));
            Vec::new()
        });
        let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, OPERATION_TIMEOUT);
        let policies = Policies::new(defaults, cluster, policies);
        releases.trust(policies.storage());
        let resolver = PolicyResolver::of_policies(policies);
        let (closed, namespaces) = (parking_lot::Mutex::default(), Mutex::default());
        let pulses = LeaseCache::new(connection.client.clone());
        Self {
            connection,
            kinds,
            releases,
            objects,
            arbiter,
            resolver,
            unread,
            unreadable_records: closed,
            namespaces,
            pulses,
        }
    }

    /// The releases in a namespace; `None` for all.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<ReleaseId>, InspectError> {
        let listed = self.releases.list(namespace).await.map_err(|error| match namespace {
            Some(namespace) => {
                failed(&self.connection, &format!("list the releases in namespace {namespace}"), error)
            }
            None => failed(&self.connection, "list the releases in all namespaces", error),
        })?;
        if let Some(namespace) = namespace {
            self.note_closed(namespace, &listed.closed);
        }
        Ok(listed.found)
    }

    pub async fn labelled(
        &self,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<BTreeSet<ReleaseId>, InspectError> {
        let found = self.releases.labelled(namespace, labels).await;
        found.map_err(|error| failed(&self.connection, "list the releases with these labels", error))
    }

    pub async fn release(&self, id: &ReleaseId) -> Result<Arc<Release>, InspectError> {
        self.find(id).await?.ok_or_else(|| unknown_release(id, self.unread.as_deref()))
    }

    /// Reads these releases from their records, several at once.
    pub async fn all(&self, ids: &[ReleaseId]) -> Vec<Result<Arc<Release>, InspectError>> {
        futures::stream::iter(ids.iter().map(|id| self.release(id))).buffered(AT_ONCE).collect().await
    }

    /// The records of releases in `namespace` (`None`: in all) that could not be read so far: releases may be
    /// missing, or have another history too.
    pub fn unread_records(&self, namespace: Option<&str>) -> Vec<String> {
        let closed = self.unreadable_records.lock();
        let here = closed.iter().filter(|((releases, _), _)| namespace.is_none_or(|it| it == releases));
        self.unread.iter().chain(here.map(|(_, why)| why)).cloned().collect()
    }

    /// A live object, in `version` if that is served.
    pub async fn live(&self, object: &ObjectId, version: &str) -> FoundObject {
        let Some(target) = self.kinds.target(object, version) else { return FoundObject::NotServed };
        match self.objects.get(&target).await {
            Ok(Some(live)) => FoundObject::Object(live),
            Ok(None) => FoundObject::Absent,
            Err(ClusterError::Refused { code: 403, message, .. }) => FoundObject::Unread(forbidden(&message)),
            Err(error) => FoundObject::Unread(error.to_string()),
        }
    }

    /// The sources of a release's latest revisions, newest first: of its latest record and some before. Adds
    /// the reason to `unread` if the latest cannot be read.
    pub(crate) async fn sources(&self, release: &Release, unread: &mut Vec<String>) -> Vec<ChartSource> {
        let mut found = Vec::new();
        let known = self.releases.revisions(&release.id).into_iter();
        for revision in known.filter(|revision| *revision <= release.state.revision).take(SOURCES) {
            match self.releases.source(&release.id, revision, PATIENCE).await {
                Ok(source) => found.push(source),
                Err(error) => {
                    if found.is_empty() {
                        unread.push(format!("the chart's values are not known: {error}"));
                    }
                    break;
                }
            }
        }
        found
    }

    /// The object as the API server would store it from the declaration in `release`.
    pub(crate) async fn canonical(
        &self,
        release: &Release,
        object: &ObjectId,
        live: &Value,
    ) -> Result<Arc<Value>, ClusterError> {
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let question = DryRunQuestion {
            object: object.clone(),
            uid: uid.to_owned(),
            release: release.id.clone(),
            revision: release.state.revision,
            digest: release.declared(object).and_then(|declared| declared.digest),
        };
        match self.arbiter.canonical(&question, PATIENCE).await {
            Ok(canonical) => Ok(canonical),
            Err(error) => Err(self.arbiter.cause(&question, error, PATIENCE).await),
        }
    }

    /// The other inputs for judging a release's objects. Also sets the labels of its namespace in the resolver. An
    /// input that cannot be read is left out, and named in `unread`.
    pub(crate) async fn release_inputs(&self, release: &Release) -> ReleaseInputs {
        let namespace = &release.id.namespace;
        let place = self.place(namespace).await;
        let mut others: Vec<Arc<Release>> = Vec::new();
        let mut notes = Vec::new();
        let policy = self.resolver.policy(&release.id);
        let asks = match policy.autoscalers {
            Some(AllowedAutoscalers::Any) => false,
            Some(AllowedAutoscalers::Declared) => true,
            None => policy.edits >= EditsMode::Revert,
        };
        if asks {
            for Autoscaled { id, scales, named } in &place.autoscalers {
                let target = &scales.target;
                let own = scales.autoscaler(id, |object| declaring([release], object));
                if !release.objects.contains_key(target) || !own.declared_by.is_empty() {
                    continue;
                }
                let named = named.as_ref().filter(|named| named.namespace == *namespace);
                let doubt = match named {
                    Some(named) if *named == release.id || others.iter().any(|it| it.id == *named) => None,
                    Some(named) => match self.find(named).await {
                        Ok(found) => {
                            others.extend(found);
                            None
                        }
                        Err(error) => Some(format!("{error}")),
                    },
                    None if own.by_keda => Some("KEDA created it, and it names no release".to_owned()),
                    None => None,
                };
                notes.extend(doubt.map(|why| {
                    format!("cannot tell whether a release declares {id}, which scales {target}: {why}")
                }));
            }
        }
        let unread = [self.unread_records(Some(namespace)), place.unread.clone(), notes].concat();
        ReleaseInputs { place, others, unread }
    }

    /// A release from its records; `None` without records.
    pub async fn find(&self, id: &ReleaseId) -> Result<Option<Arc<Release>>, InspectError> {
        let failed = |what: &str, error| failed(&self.connection, &format!("read {what}"), error);
        let read = match self.releases.read_once(id).await {
            Ok(read) => read,
            Err(ClusterError::Records { release, source }) => {
                return Err(failed(
                    &format!("the records of release {}", describe_release(&release)),
                    *source,
                ));
            }
            Err(error) => return Err(error.into()),
        };
        self.note_closed(&id.namespace, &read.closed);
        match (read.found, read.closed.into_iter().next()) {
            // The release may exist in the namespace that cannot be read.
            (None, Some(UnreadableNamespace { records, reason })) => {
                let what = format!(
                    "the records of release {}, which may be in namespace {records}",
                    describe_release(id)
                );
                Err(failed(&what, reason))
            }
            (found, _) => Ok(found),
        }
    }

    fn note_closed(&self, releases: &str, closed: &[UnreadableNamespace]) {
        let mut known = self.unreadable_records.lock();
        for UnreadableNamespace { records, reason } in closed {
            let why = format!(
                "records in namespace {records} that may belong to releases in {releases} cannot be read: \
                 {reason}"
            );
            known.insert((releases.to_owned(), records.clone()), why);
        }
    }

    async fn place(&self, namespace: &str) -> Arc<NamespaceInputs> {
        let mut known = self.namespaces.lock().await;
        if let Some(place) = known.get(namespace) {
            return Arc::clone(place);
        }
        let client = &self.connection.client;
        let mut unread = Vec::new();
        let mut note =
            |what: &str, error: ClusterError| unread.push(format!("{what} cannot be read: {error}"));
        match policies::read_labels(client, namespace).await {
            Ok(labels) => drop(self.resolver.set_namespace(namespace, Some(labels))),
            Err(error) => note("the namespace's labels", error),
        }
        let allowances = policies::read_allowances(client, namespace).await.unwrap_or_else(|error| {
            note("allowances", error);
            Vec::new()
        });
        let autoscalers = policies::autoscaled(client, namespace).await.unwrap_or_else(|error| {
            note("autoscalers", error);
            Vec::new()
        });
        let allowances = allowances.into_iter().map(Arc::new).collect();
        let place = Arc::new(NamespaceInputs { allowances, autoscalers, unread });
        known.insert(namespace.to_owned(), Arc::clone(&place));
        place
    }
}

impl ReleaseInputs {
    /// The circumstances of an object of `release` for its policy. Only the guard remembers deleted autoscalers.
    pub(crate) fn circumstances(&self, release: &Release, object: &ObjectId) -> ObjectContext {
        let releases = || std::iter::once(release).chain(self.others.iter().map(Arc::as_ref));
        let scaling = self.place.autoscalers.iter().filter(|it| it.scales.target == *object);
        let autoscaler =
            |it: &Autoscaled| it.scales.autoscaler(&it.id, |object| declaring(releases(), object));
        ObjectContext {
            allowances: self.place.allowances.clone(),
            autoscalers: scaling.map(autoscaler).collect(),
            departed: None,
            settled: None,
        }
    }
}

pub async fn kinds(connection: &ClusterConnection) -> Result<Arc<ServedKinds>, InspectError> {
    let read = ServedKinds::read(connection.client.clone()).await;
    read.map_err(|error| failed(connection, "list the API's kinds", error))
}

/// Whether the guard repairs drift of a release. The guard's own flags matter too, and only its status shows them.
pub(crate) fn is_repaired(guard: Option<&ReportedHealth>, policy: &Policy) -> bool {
    let repair = format!("{:?}", DriftMode::Repair);
    guard.map_or(policy.drift == DriftMode::Repair, |guard| guard.drift == repair)
}

fn declaring<'r>(releases: impl IntoIterator<Item = &'r Release>, object: &ObjectId) -> Vec<&'r Release> {
    releases.into_iter().filter(|release| release.objects.contains_key(object)).collect()
}

pub struct LeaseCache {
    client: kube::Client,
    /// By namespace and name.
    known: Mutex<HashMap<(String, String), Result<GuardLeaseState, String>>>,
}

impl LeaseCache {
    pub fn new(client: kube::Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// The guard's status of the release, and the drifted objects in it; `None` if there is no status.
    pub async fn status(
        &self,
        release: &ReleaseId,
    ) -> Result<Option<(ReportedHealth, Vec<DriftedObject>)>, ClusterError> {
        let guarded = guarded::get(&self.client, release).await?;
        let Some(status) = guarded.and_then(|guarded| guarded.status) else { return Ok(None) };
        let drifts = status.drifts.clone();
        Ok(Some((self.reported(status).await, drifts)))
    }

    pub async fn reported(&self, status: GuardedReleaseStatus) -> ReportedHealth {
        let pulse = match &status.lease {
            Some(lease) => self.pulse(lease).await,
            None => GuardLeaseState::Unknown,
        };
        ReportedHealth::new(status, &pulse, Timestamp::now())
    }

    /// A message about each Lease that could not be read.
    pub(crate) async fn notes(&self) -> Vec<String> {
        let known = self.known.lock().await;
        let failed = known.iter().filter_map(|((namespace, name), read)| {
            let why = read.as_ref().err()?;
            Some(format!(
                "cannot tell whether a guard still updates the statuses: the Lease {name} in namespace \
                 {namespace} cannot be read: {why}"
            ))
        });
        failed.collect()
    }

    async fn pulse(&self, lease: &LeaseReference) -> GuardLeaseState {
        let mut known = self.known.lock().await;
        let key = (lease.namespace.clone(), lease.name.clone());
        if !known.contains_key(&key) {
            let read = read_pulse(&self.client, lease).await.map_err(|error| error.to_string());
            known.insert(key.clone(), read);
        }
        known.get(&key).and_then(|read| read.clone().ok()).unwrap_or(GuardLeaseState::Unknown)
    }
}

/// A legacy API group: other groups serve all of its kinds.
const LEGACY: &str = "extensions";

/// The object with this name; `namespace` applies if its kind is namespaced.
pub(crate) async fn resolve_object(
    named: &NamedObject,
    connection: &ClusterConnection,
    kinds: &ServedKinds,
    namespace: &str,
) -> Result<ObjectId, InspectError> {
    let catalog = kinds.catalog();
    let unknown = match kind(named, &catalog) {
        Ok(kind) => return Ok(with_kind(named, kind, namespace)),
        Err(error) => error,
    };
    let found = by_short_name(&connection.client, &named.kind).await;
    let found = found.map_err(|error| failed(connection, "list the API's kinds", error))?;
    let is_meant = |group: &String| named.group.as_ref().is_none_or(|meant| meant == group);
    let found: Vec<_> = found.into_iter().filter(|(group, _)| is_meant(group)).collect();
    match found.as_slice() {
        [] => Err(unknown),
        [(group, plural)] => {
            let full =
                NamedObject { kind: plural.clone(), group: Some(group.clone()), name: named.name.clone() };
            Ok(with_kind(&full, kind(&full, &catalog)?, namespace))
        }
        several => {
            let names = several.iter().map(|(group, plural)| format!("{plural}.{group}")).collect();
            Err(ambiguous(named, names))
        }
    }
}

fn kind<'c>(named: &NamedObject, catalog: &'c Catalog) -> Result<&'c KindFacts, InspectError> {
    let is_named = |facts: &&KindFacts| {
        (facts.kind.to_lowercase() == named.kind || facts.plural == named.kind)
            && named.group.as_ref().is_none_or(|group| *group == facts.group)
    };
    let mut found: Vec<_> = catalog.kinds().filter(is_named).collect();
    if found.len() > 1 {
        found.retain(|facts| facts.group != LEGACY);
    }
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(InspectError::InvalidInput(format!(
            "the cluster serves no kind {}: write the kind as in manifests, such as deployment/web",
            named.kind
        ))),
        several => {
            let mut names: Vec<_> = several.iter().map(|it| format!("{}.{}", it.plural, it.group)).collect();
            names.sort();
            Err(ambiguous(named, names))
        }
    }
}

fn ambiguous(named: &NamedObject, names: Vec<String>) -> InspectError {
    let names = names.join(" or ");
    InspectError::InvalidInput(format!("{} may be {names}: write one of these before the name", named.kind))
}

fn with_kind(named: &NamedObject, kind: &KindFacts, namespace: &str) -> ObjectId {
    ObjectId {
        group: kind.group.clone().into(),
        kind: kind.kind.clone().into(),
        namespace: kind.namespaced.then(|| namespace.into()),
        name: named.name.clone().into(),
    }
}

#[cfg(test)]
mod tests;
