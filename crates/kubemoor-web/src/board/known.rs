//! What is known of the releases of a cluster, and how a page shows it.
//!
//! Entry points: [`Known::rows`], [`Known::mark`]. Invariant: what a visitor may not read any more is forgotten at once;
//! no release counts as not guarded before all GuardedReleases are known; who may not list them sees no release.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::super::drifting_fields::{self, Fields};
use super::exceptions::Exceptions;
use kubemoor_cluster::client::labelled::Origin;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::releases::{Row, unrecorded};
use kubemoor_policy::guarded::{GuardedRelease, GuardedReleaseStatus};
use kubemoor_verdict::health::reported::{Pulse, ReportedHealth, STALE_AFTER};

/// Of a release that may have a guard.
const UNREAD: &str = "it is not known if a guard covers it: not all GuardedReleases are read";

/// What a page shows of the releases.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Arc<Row>>,
    /// What could not be read, or not yet: a sentence each.
    pub(crate) notes: Vec<String>,
    /// Whether nothing could be read.
    pub(crate) is_blind: bool,
    /// Whether there are no other releases.
    pub(crate) is_complete: bool,
}

/// A release whose page is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub(crate) release: ReleaseId,
    /// The namespaces of its objects, in which exceptions may be for them.
    pub(crate) namespaces: BTreeSet<String>,
}

/// What is known.
#[derive(Default)]
pub(super) struct Known {
    pub(super) guarded: BTreeMap<ReleaseId, Guarded>,
    /// By records and by objects; with the origin where there is no record.
    pub(super) others: BTreeMap<ReleaseId, Option<Origin>>,
    pub(super) pulses: HashMap<(String, String), Pulse>,
    pub(super) exceptions: Exceptions,
    pub(super) is_whole: bool,
    /// Whether records and objects were looked at.
    pub(super) has_others: bool,
    pub(super) is_forbidden: bool,
    /// Whether the API server does not know the visitor any more.
    pub(super) is_unauthorized: bool,
    /// Whether there is a definition of GuardedRelease.
    pub(super) is_undefined: bool,
    /// Why the GuardedReleases cannot be followed.
    pub(super) trouble: Option<String>,
    /// What else could not be read.
    pub(super) notes: Vec<String>,
}

/// A release that a guard speaks of.
pub(super) struct Guarded {
    row: Arc<Row>,
    /// Without what only the guard needs.
    pub(super) status: GuardedReleaseStatus,
    pub(super) version: String,
}

/// What is another one once the page of a release would show something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    version: Option<String>,
    /// Whether it has no guard, and by what it was found then.
    is_other: bool,
    origin: Option<Origin>,
    /// How often exceptions may have changed that may be for its objects.
    exceptions: u64,
    is_forbidden: bool,
}

impl Known {
    /// Whether everything was listed, or could not be.
    pub(super) fn is_ready(&self) -> bool {
        self.has_others && (self.is_whole || self.trouble.is_some())
    }

    /// How all releases stand, by namespace and name.
    pub(super) fn rows(&self, now: Timestamp) -> Rows {
        let mut rows: BTreeMap<&ReleaseId, Arc<Row>> = BTreeMap::new();
        for (release, guarded) in &self.guarded {
            rows.insert(release, self.row(release, guarded, now));
        }
        if !self.is_forbidden && !self.is_unauthorized {
            for (release, origin) in &self.others {
                rows.entry(release).or_insert_with(|| Arc::new(self.other(release, *origin)));
            }
        }
        let mut notes: Vec<_> = self.trouble.iter().chain(&self.notes).cloned().collect();
        if !self.has_others || (!self.is_whole && self.trouble.is_none()) {
            notes.push(format!("still reading: {} releases so far", rows.len()));
        }
        if self.is_undefined {
            notes.push("no guard is installed here: there is no definition of GuardedRelease".to_owned());
        }
        Rows {
            is_blind: rows.is_empty() && self.trouble.is_some(),
            is_complete: self.has_others && self.is_whole && self.trouble.is_none() && self.notes.is_empty(),
            rows: rows.into_values().collect(),
            notes,
        }
    }

    /// The fields that drift in the releases of `namespace` (`None`: of all).
    pub(super) fn fields(&self, namespace: Option<&str>) -> Fields {
        let mut fields = Fields::default();
        let here = self.guarded.iter().filter(|(id, _)| namespace.is_none_or(|it| it == id.namespace));
        here.for_each(|(_, guarded)| fields.add(&guarded.status));
        fields
    }

    /// The releases of which this field drifts.
    pub(super) fn with_field(&self, field: &str) -> HashSet<ReleaseId> {
        let has = |guarded: &Guarded| drifting_fields::named(&guarded.status).contains(field);
        self.guarded.iter().filter(|(_, it)| has(it)).map(|(release, _)| release.clone()).collect()
    }

    /// The state of one release.
    pub(super) fn mark(&self, Followed { release, namespaces }: &Followed) -> Mark {
        Mark {
            version: self.guarded.get(release).map(|guarded| guarded.version.clone()),
            is_other: self.others.contains_key(release),
            origin: self.others.get(release).copied().flatten(),
            exceptions: self.exceptions.changes(namespaces),
            is_forbidden: self.is_forbidden,
        }
    }

    /// A release that no known GuardedRelease speaks of.
    fn other(&self, release: &ReleaseId, origin: Option<Origin>) -> Row {
        if self.is_whole && self.trouble.is_none() {
            return Row::unguarded(release.clone(), why(origin, release));
        }
        Row::unread(release.clone(), UNREAD.to_owned())
    }

    fn row(&self, release: &ReleaseId, guarded: &Guarded, now: Timestamp) -> Arc<Row> {
        let lease = guarded.status.lease.as_ref();
        let pulse = lease.and_then(|lease| self.pulses.get(&(lease.namespace.clone(), lease.name.clone())));
        let is_kept = |pulse: &Pulse| match pulse {
            Pulse::Renewed(at) => now.duration_since(*at) <= STALE_AFTER,
            Pulse::Gone => false,
            Pulse::Unknown => true,
        };
        match pulse.filter(|pulse| !is_kept(pulse)) {
            Some(pulse) => Arc::new(Row::guarded(
                release.clone(),
                ReportedHealth::of(guarded.status.clone(), pulse, now),
            )),
            None => Arc::clone(&guarded.row),
        }
    }
}

impl Guarded {
    /// A release as its object says, in this version of it.
    pub(super) fn new(object: GuardedRelease, version: String) -> Option<(ReleaseId, Self)> {
        let release = object.release()?;
        let mut status = object.status.unwrap_or_default();
        status.seen = Vec::new();
        let told = ReportedHealth::of(status.clone(), &Pulse::Unknown, Timestamp::UNIX_EPOCH);
        Some((release.clone(), Self { row: Arc::new(Row::guarded(release, told)), status, version }))
    }
}

/// Why no guard speaks of a release, as far as the list can tell.
fn why(origin: Option<Origin>, release: &ReleaseId) -> String {
    match origin {
        Some(origin) => unrecorded::why(origin, release),
        None => "not guarded: its page says why".to_owned(),
    }
}

#[cfg(test)]
mod tests;
