//! Reads releases and live objects for a command that answers and ends.
//!
//! Entry point: [`Reader`]. Invariant: reads only, unless a doubt is to be
//! settled by a dry run; needs no guard, only a kubeconfig; every failure is a
//! sentence.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;

use super::connect::{self, failed, forbidden, spoken, unknown_release};
use crate::cluster::arbiter::{Arbiter, Question};
use crate::cluster::autoscalers::Scales;
use crate::cluster::call::CallError;
use crate::cluster::client::Connection;
use crate::cluster::kinds::Kinds;
use crate::cluster::objects::Objects;
use crate::cluster::policies::once;
use crate::cluster::releases::{LookError, Releases};
use crate::config::RecordDriver;
use crate::helm::release::Release;
use crate::model::{DriftMode, EditsMode, ObjectId, ReleaseId};
use crate::policy::Policy;
use crate::policy::allowance::Allowance;
use crate::policy::book::{Book, Labels, Policies};
use crate::verdict::exceptions::Circumstances;

/// How long a pending record may stay untouched: the default of `serve`.
pub(super) const OPERATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// Dry runs per second.
const DRY_RUNS: NonZeroU32 = match NonZeroU32::new(10) {
    Some(number) => number,
    None => NonZeroU32::MIN,
};

/// How long one dry run may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How Helm keeps its records.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct RecordArgs {
    /// The form in which Helm keeps its records (HELM_DRIVER)
    #[arg(long, env = "KUBEMOOR_RECORD_DRIVER", value_name = "DRIVER", default_value = "secret")]
    record_driver: RecordDriver,
}

/// Reads a cluster's releases and objects.
pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) kinds: Arc<Kinds>,
    releases: Arc<Releases>,
    objects: Objects,
    arbiter: Arbiter,
    /// The policies of the cluster; the guard's own flags are not known here.
    pub(super) book: Book,
    /// What of the policies could not be read.
    unread: Vec<String>,
    namespaces: Mutex<HashMap<String, Arc<Surroundings>>>,
}

/// What decides in a namespace beside releases and policies.
pub(super) struct Surroundings {
    allowances: Vec<Arc<Allowance>>,
    autoscalers: Vec<(ObjectId, Scales)>,
    /// What could not be read, and why.
    pub(super) unread: Vec<String>,
}

/// What is there of an object.
pub(super) enum Found {
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
    pub(super) async fn new(
        connection: Connection,
        records: RecordArgs,
        cluster: &Labels,
    ) -> anyhow::Result<Self> {
        let client = connection.client.clone();
        let kinds = connect::kinds(&connection).await?;
        let releases = Releases::once(client.clone(), records.record_driver, Arc::clone(&kinds));
        let objects = Objects::new(client, DRY_RUNS);
        let arbiter = Arbiter::new(objects.clone(), Arc::clone(&kinds), Arc::clone(&releases), DRY_RUNS);
        let mut unread = Vec::new();
        let policies = once::policies(&connection.client).await.unwrap_or_else(|error| {
            unread.push(format!("policies cannot be read: {error}"));
            Vec::new()
        });
        let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, OPERATION_TIMEOUT);
        let policies = Policies::new(defaults, cluster, policies);
        releases.trust(policies.storage());
        let book = Book::of_policies(policies);
        let namespaces = Mutex::default();
        Ok(Self { connection, kinds, releases, objects, arbiter, book, unread, namespaces })
    }

    /// The releases in a namespace; `None` for all.
    pub(super) async fn list(&self, namespace: Option<&str>) -> anyhow::Result<Vec<ReleaseId>> {
        let listed = self.releases.list(namespace).await;
        listed.map_err(|error| match namespace {
            Some(namespace) => {
                failed(&self.connection, &format!("list the releases in namespace {namespace}"), error)
            }
            None => failed(&self.connection, "list the releases in all namespaces", error),
        })
    }

    /// A release as its records say.
    pub(super) async fn release(&self, id: &ReleaseId) -> anyhow::Result<Arc<Release>> {
        match self.releases.read_once(id).await {
            Ok(Some(release)) => Ok(release),
            Ok(None) => Err(unknown_release(id)),
            Err(LookError::Call { release, reason }) => Err(failed(
                &self.connection,
                &format!("read the records of release {}", spoken(&release)),
                *reason,
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// A live object, in `version` when that is served.
    pub(super) async fn live(&self, object: &ObjectId, version: &str) -> Found {
        let Some(target) = self.kinds.target(object, version) else { return Found::NotServed };
        match self.objects.get(&target).await {
            Ok(Some(live)) => Found::Object(live),
            Ok(None) => Found::Absent,
            Err(CallError::Refused { code: 403, message, .. }) => Found::Unread(forbidden(&message)),
            Err(error) => Found::Unread(error.to_string()),
        }
    }

    /// How the API server would hold the object as `release` declares it.
    pub(super) async fn canonical(
        &self,
        release: &Release,
        object: &ObjectId,
        live: &Value,
    ) -> Result<Arc<Value>, String> {
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let question = Question {
            object: object.clone(),
            uid: uid.to_owned(),
            release: release.id.clone(),
            revision: release.state.revision,
        };
        self.arbiter.canonical(&question, PATIENCE).await.map_err(|error| error.to_string())
    }

    /// What else decides in a namespace; has the book know its labels. What
    /// cannot be read counts for nothing and is named in `unread`.
    pub(super) async fn surroundings(&self, namespace: &str) -> Arc<Surroundings> {
        let mut known = self.namespaces.lock().await;
        if let Some(surroundings) = known.get(namespace) {
            return Arc::clone(surroundings);
        }
        let client = &self.connection.client;
        let mut unread = self.unread.clone();
        let mut note = |what: &str, error: CallError| unread.push(format!("{what} cannot be read: {error}"));
        match once::labels(client, namespace).await {
            Ok(labels) => drop(self.book.set_namespace(namespace, Some(labels))),
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
        let surroundings = Arc::new(Surroundings { allowances, autoscalers, unread });
        known.insert(namespace.to_owned(), Arc::clone(&surroundings));
        surroundings
    }
}

impl Surroundings {
    /// What is known of an object of `release`, as its policy decides by it.
    /// That an autoscaler went only the guard remembers.
    pub(super) fn of(&self, release: &Release, object: &ObjectId) -> Circumstances {
        let declaring =
            |object: &ObjectId| release.objects.contains_key(object).then_some(release).into_iter().collect();
        let scaling = self.autoscalers.iter().filter(|(_, scales)| scales.target == *object);
        Circumstances {
            allowances: self.allowances.clone(),
            autoscalers: scaling.map(|(id, scales)| scales.autoscaler(id, declaring)).collect(),
            departed: None,
        }
    }
}
