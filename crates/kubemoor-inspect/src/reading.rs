//! Reads releases and live objects for a command.
//!
//! Entry point: [`Reader`]. Invariant: reads only, except for a dry run that settles a doubt. Needs no guard,
//! only a kubeconfig. Every failure is a sentence.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::Mutex;

use super::failure::{Failure, failed, forbidden, spoken, unknown_release};
use super::pulses::Pulses;
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::arbiter::{Arbiter, ArbiterError, Question};
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_cluster::mirror::policies::once::{self, Autoscaled};
use kubemoor_cluster::mirror::releases::{Closed, LookError, Releases};
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId, ReleaseId};
use kubemoor_helm::record::ChartSource;
use kubemoor_helm::release::Release;
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_policy::resource::Autoscalers;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::circumstances::Circumstances;

/// How long a pending record may stay untouched: the default of `serve`.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// Dry runs per second.
const DRY_RUNS: NonZeroU32 = match NonZeroU32::new(10) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

/// How long one dry run may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Releases that are read at once.
const AT_ONCE: usize = 8;

/// The revisions of which charts and values are read.
const SOURCES: usize = 5;

/// Reads a cluster's releases and objects.
pub struct Reader {
    pub connection: Connection,
    pub(crate) kinds: Arc<Kinds>,
    releases: Arc<Releases>,
    objects: Objects,
    arbiter: Arbiter,
    /// The policies of the cluster; the guard's own flags are not known here.
    pub resolver: PolicyResolver,
    /// Why the policies could not be read, and with them where records may lie.
    unread: Option<String>,
    /// By the namespaces of releases and of records that are trusted for them
    /// and may not be read: why.
    closed: parking_lot::Mutex<BTreeMap<(String, String), String>>,
    namespaces: Mutex<HashMap<String, Arc<Place>>>,
    /// Whether guards still maintain their statuses.
    pub pulses: Pulses,
}

/// The inputs for judging a release's objects, besides its records and policies.
pub(crate) struct Surroundings {
    place: Arc<Place>,
    /// Other releases that declare autoscalers of its objects.
    others: Vec<Arc<Release>>,
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

/// The inputs for judging objects in a namespace.
struct Place {
    allowances: Vec<Arc<Allowance>>,
    autoscalers: Vec<Autoscaled>,
    /// What could not be read, and why.
    unread: Vec<String>,
}

/// What is there of an object.
pub enum Found {
    /// The object, in this version.
    Object(Value),
    /// It does not exist.
    Absent,
    /// The API server serves no such kind.
    NotServed,
    /// It may not be read, or the API server failed: why.
    Unread(String),
}

impl Reader {
    /// Learns which kinds the cluster serves and which policies are in force
    /// where clusters have the labels `cluster`.
    pub async fn new(
        connection: Connection,
        driver: RecordDriver,
        cluster: &Labels,
    ) -> Result<Self, Failure> {
        let kinds = kinds(&connection).await?;
        Ok(Self::of_kinds(connection, kinds, driver, cluster).await)
    }

    /// The same where it is known which kinds the cluster serves.
    pub async fn of_kinds(
        connection: Connection,
        kinds: Arc<Kinds>,
        driver: RecordDriver,
        cluster: &Labels,
    ) -> Self {
        let client = connection.client.clone();
        let releases = Releases::once(client.clone(), driver, Arc::clone(&kinds));
        let objects = Objects::new(client, DRY_RUNS);
        let arbiter = Arbiter::new(objects.clone(), Arc::clone(&kinds), Arc::clone(&releases), DRY_RUNS);
        let mut unread = None;
        let policies = once::policies(&connection.client).await.unwrap_or_else(|error| {
            unread = Some(format!(
                "policies cannot be read, those that trust records in another namespace included: {error}"
            ));
            Vec::new()
        });
        let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, OPERATION_TIMEOUT);
        let policies = Policies::new(defaults, cluster, policies);
        releases.trust(policies.storage());
        let resolver = PolicyResolver::of_policies(policies);
        let (closed, namespaces) = (parking_lot::Mutex::default(), Mutex::default());
        let pulses = Pulses::new(connection.client.clone());
        Self { connection, kinds, releases, objects, arbiter, resolver, unread, closed, namespaces, pulses }
    }

    /// The releases in a namespace; `None` for all.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<ReleaseId>, Failure> {
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

    /// Of the releases that were listed in a namespace those with these labels.
    pub async fn labelled(
        &self,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<BTreeSet<ReleaseId>, Failure> {
        let found = self.releases.labelled(namespace, labels).await;
        found.map_err(|error| failed(&self.connection, "list the releases with these labels", error))
    }

    /// A release as its records say.
    pub async fn release(&self, id: &ReleaseId) -> Result<Arc<Release>, Failure> {
        self.find(id).await?.ok_or_else(|| unknown_release(id, self.unread.as_deref()))
    }

    /// These releases as their records say, several at once.
    pub async fn all(&self, ids: &[ReleaseId]) -> Vec<Result<Arc<Release>, Failure>> {
        futures::stream::iter(ids.iter().map(|id| self.release(id))).buffered(AT_ONCE).collect().await
    }

    /// The records of releases in `namespace` (`None`: in all) that could not be read so far: releases may be
    /// missing, or have another history too.
    pub fn unread_records(&self, namespace: Option<&str>) -> Vec<String> {
        let closed = self.closed.lock();
        let here = closed.iter().filter(|((releases, _), _)| namespace.is_none_or(|it| it == releases));
        self.unread.iter().chain(here.map(|(_, why)| why)).cloned().collect()
    }

    /// A live object, in `version` when that is served.
    pub async fn live(&self, object: &ObjectId, version: &str) -> Found {
        let Some(target) = self.kinds.target(object, version) else { return Found::NotServed };
        match self.objects.get(&target).await {
            Ok(Some(live)) => Found::Object(live),
            Ok(None) => Found::Absent,
            Err(CallError::Refused { code: 403, message, .. }) => Found::Unread(forbidden(&message)),
            Err(error) => Found::Unread(error.to_string()),
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
    ) -> Result<Arc<Value>, ArbiterError> {
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let question = Question {
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

    /// The other inputs for judging a release's objects; also tells the resolver the labels of its namespace.
    /// An input that cannot be read is left out, and named in `unread`.
    pub(crate) async fn surroundings(&self, release: &Release) -> Surroundings {
        let namespace = &release.id.namespace;
        let place = self.place(namespace).await;
        let mut others: Vec<Arc<Release>> = Vec::new();
        let mut notes = Vec::new();
        let policy = self.resolver.of(&release.id);
        let asks = match policy.autoscalers {
            Some(Autoscalers::Any) => false,
            Some(Autoscalers::Declared) => true,
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
                    None if own.by_keda => Some("KEDA made it, and it names no release".to_owned()),
                    None => None,
                };
                notes.extend(doubt.map(|why| {
                    format!("whether a release declares {id}, which scales {target}, is not known: {why}")
                }));
            }
        }
        let unread = [self.unread_records(Some(namespace)), place.unread.clone(), notes].concat();
        Surroundings { place, others, unread }
    }

    /// A release from its records; `None` without records.
    pub async fn find(&self, id: &ReleaseId) -> Result<Option<Arc<Release>>, Failure> {
        let failed = |what: &str, error| failed(&self.connection, &format!("read {what}"), error);
        let read = match self.releases.read_once(id).await {
            Ok(read) => read,
            Err(LookError::Records { release, source }) => {
                return Err(failed(&format!("the records of release {}", spoken(&release)), *source));
            }
            Err(error) => return Err(error.into()),
        };
        self.note_closed(&id.namespace, &read.closed);
        match (read.found, read.closed.into_iter().next()) {
            // It may well be there.
            (None, Some(Closed { records, reason })) => {
                let what =
                    format!("the records of release {}, which may lie in namespace {records}", spoken(id));
                Err(failed(&what, reason))
            }
            (found, _) => Ok(found),
        }
    }

    fn note_closed(&self, releases: &str, closed: &[Closed]) {
        let mut known = self.closed.lock();
        for Closed { records, reason } in closed {
            let why = format!(
                "records in namespace {records} that may be those of releases in {releases} cannot be read: {reason}"
            );
            known.insert((releases.to_owned(), records.clone()), why);
        }
    }

    async fn place(&self, namespace: &str) -> Arc<Place> {
        let mut known = self.namespaces.lock().await;
        if let Some(place) = known.get(namespace) {
            return Arc::clone(place);
        }
        let client = &self.connection.client;
        let mut unread = Vec::new();
        let mut note = |what: &str, error: CallError| unread.push(format!("{what} cannot be read: {error}"));
        match once::labels(client, namespace).await {
            Ok(labels) => drop(self.resolver.set_namespace(namespace, Some(labels))),
            Err(error) => note("the namespace's labels", error),
        }
        let allowances = once::allowances(client, namespace).await.unwrap_or_else(|error| {
            note("allowances", error);
            Vec::new()
        });
        let autoscalers = once::autoscaled(client, &self.kinds, namespace).await.unwrap_or_else(|error| {
            note("autoscalers", error);
            Vec::new()
        });
        let allowances = allowances.into_iter().map(Arc::new).collect();
        let place = Arc::new(Place { allowances, autoscalers, unread });
        known.insert(namespace.to_owned(), Arc::clone(&place));
        place
    }
}

impl Surroundings {
    /// The circumstances of an object of `release` for its policy. Only the guard remembers autoscalers that
    /// were deleted.
    pub(crate) fn of(&self, release: &Release, object: &ObjectId) -> Circumstances {
        let releases = || std::iter::once(release).chain(self.others.iter().map(Arc::as_ref));
        let scaling = self.place.autoscalers.iter().filter(|it| it.scales.target == *object);
        let autoscaler =
            |it: &Autoscaled| it.scales.autoscaler(&it.id, |object| declaring(releases(), object));
        Circumstances {
            allowances: self.place.allowances.clone(),
            autoscalers: scaling.map(autoscaler).collect(),
            departed: None,
            settled: None,
        }
    }
}

/// The kinds that the cluster serves.
pub async fn kinds(connection: &Connection) -> Result<Arc<Kinds>, Failure> {
    let read = Kinds::read(connection.client.clone()).await;
    read.map_err(|error| failed(connection, "list the API's kinds", error))
}

/// Those of some releases that declare an object.
fn declaring<'r>(releases: impl IntoIterator<Item = &'r Release>, object: &ObjectId) -> Vec<&'r Release> {
    releases.into_iter().filter(|release| release.objects.contains_key(object)).collect()
}
