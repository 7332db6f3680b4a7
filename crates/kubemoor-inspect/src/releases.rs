//! The states of a cluster's releases, and which are not guarded and why: by the guard's statuses, by Helm's records,
//! and by objects that name a release without a record (Helm's SQL driver, Argo CD, `helm template`).

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;

use super::failure::{InspectError, failed};
use super::reading::{ClusterReader, LeaseCache};
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::objects::{self, LabelOrigin};
use kubemoor_declare::model::{Gvk, ReleaseId};
use kubemoor_policy::guarded::{GuardedRelease, GuardedReleaseSpec, ObjectCounts, Suspension};
use kubemoor_verdict::health::{HealthReason, ReportedHealth};

/// How many releases without a GuardedRelease are read at one time.
const READ_AT_ONCE: usize = 8;

/// The reason of a release whose status no guard maintains any more.
const STALE: &str = "Stale";

/// The reason of a release that the guard has not checked yet, or whose GuardedRelease cannot be read.
pub const UNKNOWN: &str = "Unknown";

/// The state of a release without a GuardedRelease.
pub const NOT_GUARDED: &str = "NotGuarded";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseFilter {
    NotGuarded,
    /// No guard maintains its status any more.
    Stale,
    /// The guard has not checked it yet, or its GuardedRelease cannot be read.
    Unknown,
    Reason(HealthReason),
}

/// One release.
#[derive(Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedRelease {
    pub namespace: String,
    pub name: String,
    pub guarded: bool,
    /// `True`, `False` or `Unknown`; null for releases that are not guarded.
    pub ready: Option<String>,
    pub reason: Option<String>,
    pub revision: Option<u64>,
    pub declared: Option<u64>,
    pub drifted: Option<u64>,
    /// The time of the oldest drift that the guard reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_drift: Option<Timestamp>,
    /// The other objects, by state.
    pub counts: Option<ObjectCounts>,
    pub edits: Option<String>,
    pub drift: Option<String>,
    /// Set if a user has suspended repairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suspended: Option<ActiveSuspension>,
    /// Since when no guard has updated the status, if it is stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
    /// The guard's message, or why the release is not guarded.
    pub message: String,
}

/// A suspension that has not ended.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct ActiveSuspension {
    /// When it ends; omitted if a user has to end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// The reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

pub struct ReleaseList {
    pub rows: Vec<ListedRelease>,
    pub notes: Vec<String>,
}

/// The releases in a namespace, or in all; only those with these labels, if any are named.
pub async fn read(
    reader: &ClusterReader,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<ReleaseList, InspectError> {
    let listed = guarded::list(&reader.connection.client, namespace).await;
    let listed = listed.map_err(|error| failed(&reader.connection, "list the GuardedReleases", error))?;
    let is_defined = listed.is_some();
    let mut known: BTreeMap<ReleaseId, GuardedRelease> = listed
        .unwrap_or_default()
        .into_iter()
        .filter_map(|guarded| Some((guarded.release()?, guarded)))
        .collect();
    let stored = reader.list(namespace).await?;
    let mut all: BTreeSet<_> = stored.iter().chain(known.keys()).cloned().collect();
    let Unrecorded { mut releases, mut notes } = find_unrecorded(reader, namespace).await;
    releases.retain(|release, _| !all.contains(release));
    all.extend(releases.keys().cloned());
    if let Some(labels) = labels {
        // A release without a record has none of these labels.
        all = reader.labelled(namespace, labels).await?;
    }
    let rows = all.into_iter().map(|release| {
        let (guarded, origin) = (known.remove(&release), releases.get(&release).copied());
        async move {
            let why = match (guarded, origin) {
                (Some(guarded), _) => return ListedRelease::current(&reader.pulses, release, guarded).await,
                (None, Some(origin)) => why_unrecorded(origin, &release),
                (None, None) => why_not(reader, &release, is_defined).await,
            };
            ListedRelease::unguarded(release, why)
        }
    });
    let rows = futures::stream::iter(rows.collect::<Vec<_>>()).buffered(READ_AT_ONCE).collect().await;
    notes.extend(reader.pulses.notes().await);
    let unread = reader.unread_records(namespace);
    notes.extend(unread.into_iter().map(|unread| format!("releases may be missing: {unread}")));
    Ok(ReleaseList { rows, notes })
}

pub async fn why_not(reader: &ClusterReader, release: &ReleaseId, is_defined: bool) -> String {
    match reader.release(release).await {
        Err(error) => format!("its records cannot be read: {error}"),
        Ok(read) => match &read.invalid {
            Some(invalid) => format!("its record {} is not accepted: {}", invalid.secret, invalid.reason),
            None if read.is_uninstalled() => "it is uninstalled; its history was kept".to_owned(),
            None if is_defined => "no running guard covers its namespace".to_owned(),
            None => {
                "the cluster has no CustomResourceDefinition of GuardedRelease: `kubemoor manifests crds` \
                 prints it"
                    .to_owned()
            }
        },
    }
}

impl ActiveSuspension {
    fn from_spec(spec: &GuardedReleaseSpec, now: Timestamp) -> Option<Self> {
        let suspension = Suspension::from_spec(spec).filter(|suspension| !suspension.is_over(now));
        suspension.map(|Suspension { until, reason }| Self { until, reason })
    }
}

impl ListedRelease {
    pub fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() }
    }

    pub fn state(&self) -> &str {
        match (self.reason.as_deref(), self.guarded) {
            (Some(reason), _) => reason,
            (None, true) => UNKNOWN,
            (None, false) => NOT_GUARDED,
        }
    }

    pub fn unread(release: ReleaseId, why: String) -> Self {
        let (ready, reason) = (Some(UNKNOWN.to_owned()), Some(UNKNOWN.to_owned()));
        Self { ready, reason, ..Self::unguarded(release, why) }
    }

    pub async fn current(pulses: &LeaseCache, release: ReleaseId, guarded: GuardedRelease) -> Self {
        let suspended = ActiveSuspension::from_spec(&guarded.spec, Timestamp::now());
        let told = pulses.reported(guarded.status.unwrap_or_default()).await;
        Self { suspended, ..Self::guarded(release, told) }
    }

    pub fn guarded(release: ReleaseId, told: ReportedHealth) -> Self {
        Self {
            guarded: true,
            ready: Some(told.ready),
            reason: told.reason,
            revision: Some(told.revision),
            declared: Some(told.declared),
            drifted: Some(told.drifted),
            oldest_drift: told.oldest_drift,
            counts: Some(told.counts),
            edits: Some(told.edits),
            drift: Some(told.drift),
            stale_since: told.stale_since,
            ..Self::unguarded(release, told.message)
        }
    }

    pub fn unguarded(release: ReleaseId, why: String) -> Self {
        let (namespace, name) = (release.namespace.to_string(), release.name.to_string());
        Self { namespace, name, message: why, ..Self::default() }
    }
}

impl ReleaseFilter {
    /// The reason that the filter selects; `None` if it selects releases with several reasons.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Self::NotGuarded => Some(NOT_GUARDED),
            Self::Unknown => Some(UNKNOWN),
            Self::Stale | Self::Reason(HealthReason::Drifted) => None,
            Self::Reason(reason) => Some(reason.as_str()),
        }
    }

    pub(crate) fn is_drifted(self) -> bool {
        self == Self::Reason(HealthReason::Drifted)
    }

    pub fn is_of(self, row: &ListedRelease) -> bool {
        let is_stale = row.stale_since.is_some() || row.reason.as_deref() == Some(STALE);
        self.is_of_reason(row.state(), row.drifted.unwrap_or_default(), is_stale)
    }

    /// Whether the filter selects a release with this reason and number of drifted objects.
    pub(crate) fn is_of_reason(self, reason: &str, drifted: u64, is_stale: bool) -> bool {
        match self {
            Self::NotGuarded => reason == NOT_GUARDED,
            Self::Stale => is_stale,
            Self::Unknown => reason == UNKNOWN,
            // Whether or not the drift is repaired.
            Self::Reason(HealthReason::Drifted) => drifted > 0,
            Self::Reason(wanted) => reason == wanted.as_str(),
        }
    }
}

/// Parses a state; `in-sync` and `InSync` are the same.
pub fn parse_state(text: &str) -> Result<ReleaseFilter, String> {
    let plain = |text: &str| text.replace('-', "").to_lowercase();
    let states = HealthReason::ALL.iter().map(|reason| (reason.as_str(), ReleaseFilter::Reason(*reason)));
    let others = [
        (NOT_GUARDED, ReleaseFilter::NotGuarded),
        (STALE, ReleaseFilter::Stale),
        (UNKNOWN, ReleaseFilter::Unknown),
    ];
    let mut known = states.chain(others);
    known.find(|(name, _)| plain(name) == plain(text)).map(|(_, state)| state).ok_or_else(|| {
        let names: Vec<_> = HealthReason::ALL.iter().map(|reason| reason.as_str()).collect();
        format!("unknown state {text:?}: use some of {}, NotGuarded, Stale, Unknown", names.join(", "))
    })
}

/// Most releases have an object of one of these kinds: group, preferred version, kind.
const KINDS: [(&str, &str, &str); 5] = [
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "DaemonSet"),
    ("batch", "v1", "CronJob"),
    ("", "v1", "Service"),
];

#[derive(Debug, Default)]
pub struct Unrecorded {
    /// All releases that objects name, also those with records.
    pub releases: BTreeMap<ReleaseId, LabelOrigin>,
    /// A message about each place that was not searched.
    pub notes: Vec<String>,
}

/// Searches objects with Helm's label, in `namespace` or in all.
pub async fn find_unrecorded(reader: &ClusterReader, namespace: Option<&str>) -> Unrecorded {
    let kinds = KINDS.map(|(group, version, kind)| Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    });
    let lists = kinds.iter().filter_map(|kind| reader.kinds.resource(kind)).map(|resource| async move {
        let named = objects::named_releases(&reader.connection.client, &resource, namespace).await;
        (resource.plural, named)
    });
    let mut found = Unrecorded::default();
    let (mut forbidden, mut cut) = (Vec::new(), Vec::new());
    for (plural, named) in futures::future::join_all(lists).await {
        match named {
            Ok(named) => {
                if named.cut {
                    cut.push(plural);
                }
                for (release, origin) in named.releases {
                    // An object can name a release of any namespace; only the requested namespace is shown.
                    if namespace.is_none_or(|namespace| release.namespace == namespace) {
                        let known = found.releases.entry(release).or_insert(origin);
                        *known = origin.min(*known);
                    }
                }
            }
            Err(error) if error.is_forbidden() => forbidden.push(plural),
            Err(error) => {
                found.notes.push(format!("cannot look for releases without records among {plural}: {error}"))
            }
        }
    }
    let place = namespace.map_or("all namespaces".to_owned(), |namespace| format!("namespace {namespace}"));
    if !forbidden.is_empty() {
        found.notes.push(format!(
            "cannot look for releases without records among {}: you may not list them in {place}",
            forbidden.join(", ")
        ));
    }
    if !cut.is_empty() {
        found.notes.push(format!(
            "releases without records may be missing: there are too many {} in {place} to check all of them",
            cut.join(", ")
        ));
    }
    found
}

pub fn why_unrecorded(origin: LabelOrigin, release: &ReleaseId) -> String {
    let namespace = &release.namespace;
    match origin {
        LabelOrigin::Helm => format!(
            "no record: Helm's annotations name it, but its record is not in namespace {namespace} (SQL driver, \
             another --record-driver, deleted, or in another namespace that no policy trusts or that you may not read)"
        ),
        LabelOrigin::ArgoCd => "no record: Argo CD renders it".to_owned(),
        LabelOrigin::Unknown => {
            "no record: its objects have Helm's label without Helm's annotations (Argo CD, `helm template`)"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
