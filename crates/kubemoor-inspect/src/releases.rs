//! The states of a cluster's releases, and which are not guarded.
//!
//! Entry points: [`read`], [`Row`]. Invariant: reads only. The facts from a release's records and from the
//! guard's status are shown side by side. A release without a status is shown as not guarded, with the likely
//! reason; so is a release without a record.

pub mod unrecorded;

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;

use self::unrecorded::Unrecorded;
use super::failure::{Failure, failed};
use super::pulses::Pulses;
use super::reading::Reader;
use kubemoor_cluster::client::guarded;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::Status;
use kubemoor_policy::guarded::{GuardedRelease, GuardedReleaseSpec, ObjectCounts};
use kubemoor_policy::suspension::Suspension;
use kubemoor_verdict::health::Reason;
use kubemoor_verdict::health::reported::ReportedHealth;

/// Releases whose records are read at once, where no guard speaks of them.
const READ_AT_ONCE: usize = 8;

/// The reason of a release whose status no guard maintains any more.
const STALE: &str = "Stale";

/// The reason of a release that the guard has not looked at yet, or of which the guard's word cannot be read.
pub const UNKNOWN: &str = "Unknown";

/// The reason of a release that no guard speaks of.
pub const NOT_GUARDED: &str = "NotGuarded";

/// A state that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    NotGuarded,
    /// No guard keeps it any more.
    Stale,
    /// The guard has not looked at it yet, or its word cannot be read.
    Unknown,
    Reason(Reason),
}

/// One release.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub namespace: String,
    pub name: String,
    pub guarded: bool,
    /// `True`, `False`, `Unknown`; none for releases that are not guarded.
    pub ready: Option<String>,
    pub reason: Option<String>,
    pub revision: Option<u64>,
    pub declared: Option<u64>,
    pub drifted: Option<u64>,
    /// Since when the oldest drift lasts that the guard names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_drift: Option<Timestamp>,
    /// How the other objects stand.
    pub counts: Option<ObjectCounts>,
    pub edits: Option<String>,
    pub drift: Option<String>,
    /// That a person has suspended repairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suspended: Option<Suspended>,
    /// Since when no guard keeps this, where it is stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stale_since: Option<Timestamp>,
    /// What the guard says, or why the release is not guarded.
    pub message: String,
}

/// A suspension that has not ended.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct Suspended {
    /// When it ends; none where a person ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// The rows and notes of a list.
pub struct Listing {
    pub rows: Vec<Row>,
    /// What could not be read.
    pub notes: Vec<String>,
}

/// The releases in a namespace, or in all; only those with these labels, if any are named.
pub async fn read(
    reader: &Reader,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Listing, Failure> {
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
    let Unrecorded { mut releases, mut notes } = unrecorded::find(reader, namespace).await;
    releases.retain(|release, _| !all.contains(release));
    all.extend(releases.keys().cloned());
    if let Some(labels) = labels {
        // A release without a record has none of its labels.
        all = reader.labelled(namespace, labels).await?;
    }
    let rows = all.into_iter().map(|release| {
        let (guarded, origin) = (known.remove(&release), releases.get(&release).copied());
        async move {
            let why = match (guarded, origin) {
                (Some(guarded), _) => return Row::current(&reader.pulses, release, guarded).await,
                (None, Some(origin)) => unrecorded::why(origin, &release),
                (None, None) => why_not(reader, &release, is_defined).await,
            };
            Row::unguarded(release, why)
        }
    });
    let rows = futures::stream::iter(rows.collect::<Vec<_>>()).buffered(READ_AT_ONCE).collect().await;
    notes.extend(reader.pulses.notes().await);
    let unread = reader.unread_records(namespace);
    notes.extend(unread.into_iter().map(|unread| format!("releases may be missing: {unread}")));
    Ok(Listing { rows, notes })
}

/// Why no guard speaks of a release.
pub async fn why_not(reader: &Reader, release: &ReleaseId, is_defined: bool) -> String {
    match reader.release(release).await {
        Err(error) => format!("its records cannot be read: {error}"),
        Ok(read) => match &read.invalid {
            Some(invalid) => format!("its record {} cannot be believed: {}", invalid.secret, invalid.reason),
            None if read.state.status == Status::Uninstalled => {
                "it is uninstalled; its history was kept".to_owned()
            }
            None if is_defined => "no guard that runs covers its namespace".to_owned(),
            None => {
                "there is no definition of GuardedRelease: `kubemoor manifests crds` prints it".to_owned()
            }
        },
    }
}

impl Suspended {
    fn of(spec: &GuardedReleaseSpec, now: Timestamp) -> Option<Self> {
        let suspension = Suspension::of(spec).filter(|suspension| !suspension.is_over(now));
        suspension.map(|Suspension { until, reason }| Self { until, reason })
    }
}

impl Row {
    /// The release.
    pub fn id(&self) -> ReleaseId {
        ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() }
    }

    /// The state in one word.
    pub fn state(&self) -> &str {
        match (self.reason.as_deref(), self.guarded) {
            (Some(reason), _) => reason,
            (None, true) => UNKNOWN,
            (None, false) => NOT_GUARDED,
        }
    }

    /// A release of which it is not known if a guard speaks of it.
    pub fn unread(release: ReleaseId, why: String) -> Self {
        let (ready, reason) = (Some(UNKNOWN.to_owned()), Some(UNKNOWN.to_owned()));
        Self { ready, reason, ..Self::unguarded(release, why) }
    }

    /// What the guard says of the release now.
    pub async fn current(pulses: &Pulses, release: ReleaseId, guarded: GuardedRelease) -> Self {
        let suspended = Suspended::of(&guarded.spec, Timestamp::now());
        let told = pulses.told(guarded.status.unwrap_or_default()).await;
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
        Self {
            namespace: release.namespace.to_string(),
            name: release.name.to_string(),
            guarded: false,
            ready: None,
            reason: None,
            revision: None,
            declared: None,
            drifted: None,
            oldest_drift: None,
            counts: None,
            edits: None,
            drift: None,
            suspended: None,
            stale_since: None,
            message: why,
        }
    }
}

impl State {
    /// The word of a state that is one; `None` where releases in several states are meant.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Self::NotGuarded => Some(NOT_GUARDED),
            Self::Unknown => Some(UNKNOWN),
            Self::Stale | Self::Reason(Reason::Drifted) => None,
            Self::Reason(reason) => Some(reason.as_str()),
        }
    }

    /// Whether all releases with drift are meant.
    pub(crate) fn is_drifted(self) -> bool {
        self == Self::Reason(Reason::Drifted)
    }

    pub fn is_of(self, row: &Row) -> bool {
        let is_stale = row.stale_since.is_some() || row.reason.as_deref() == Some(STALE);
        self.is_of_reason(row.state(), row.drifted.unwrap_or_default(), is_stale)
    }

    /// The state of a release with the reason `reason` and `drifted` drifted objects.
    pub(crate) fn is_of_reason(self, reason: &str, drifted: u64, is_stale: bool) -> bool {
        match self {
            Self::NotGuarded => reason == NOT_GUARDED,
            Self::Stale => is_stale,
            Self::Unknown => reason == UNKNOWN,
            // However its drift is dealt with.
            Self::Reason(Reason::Drifted) => drifted > 0,
            Self::Reason(wanted) => reason == wanted.as_str(),
        }
    }
}

/// A state as people write it: `in-sync` and `InSync` are the same.
pub fn parse_state(text: &str) -> Result<State, String> {
    let plain = |text: &str| text.replace('-', "").to_lowercase();
    let states = Reason::ALL.map(|reason| (reason.as_str(), State::Reason(reason)));
    let others = [(NOT_GUARDED, State::NotGuarded), (STALE, State::Stale), (UNKNOWN, State::Unknown)];
    let mut known = states.into_iter().chain(others);
    known.find(|(name, _)| plain(name) == plain(text)).map(|(_, state)| state).ok_or_else(|| {
        let names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        format!("there is no state {text:?}: use some of {}, NotGuarded, Stale, Unknown", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_drifted_however_their_drift_is_dealt_with() {
        let row = |reason: &str, drifted: u64| {
            let id = ReleaseId { namespace: "shop".into(), name: "web".into() };
            let row = Row::unguarded(id, String::new());
            Row { guarded: true, reason: Some(reason.to_owned()), drifted: Some(drifted), ..row }
        };
        let is = |text: &str, row: &Row| parse_state(text).unwrap().is_of(row);
        for reason in ["Drifted", "Contested", "Braked", "Unconfirmed", "Suspended"] {
            assert!(is("drifted", &row(reason, 1)) && is(reason, &row(reason, 1)), "{reason}");
        }
        assert!(is("in-sync", &row("InSync", 0)) && !is("Drifted", &row("InSync", 0)));
        let error = parse_state("broken").unwrap_err();
        assert!(error.contains("Drifted") && error.ends_with("NotGuarded, Stale, Unknown"), "{error}");
    }
}
