//! How the releases of a cluster stand, followed by a watch for as long as somebody looks.
//!
//! Nothing is kept but what the visitor may read, and after a right has ended, what it permitted is shown for at most some
//! seconds. What a page costs does not depend on how many releases there are, beyond going through them. A failure takes
//! nothing away and is told. No release counts as not guarded before all GuardedReleases are known.

mod exceptions;
mod follower;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::exceptions::Exceptions;
use self::follower::Follower;
pub(super) use self::follower::Scope;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::labelled::Origin;
use kubemoor_cluster::client::watch::Form;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::allowances;
use kubemoor_inspect::releases::{Row, unrecorded};
use kubemoor_policy::guarded::{GuardedRelease, GuardedReleaseStatus};
use kubemoor_verdict::health::reported::{Pulse, ReportedHealth, STALE_AFTER};

/// How long a page waits for the first listing; then it shows what is there.
const FIRST: Duration = Duration::from_secs(5);

/// How long it is believed that the visitor may list the releases.
const BELIEVED: Duration = Duration::from_secs(15);

/// Of a release that may have a guard.
const UNREAD: &str = "it is not known if a guard covers it: not all GuardedReleases are read";

/// How the releases stand.
pub(super) struct ReleaseStates {
    pub(super) namespace: Option<String>,
    known: Arc<RwLock<Known>>,
    changes: watch::Receiver<u64>,
    /// Whether somebody has looked since it was asked last.
    is_looked_at: Arc<AtomicBool>,
    /// Asks for an answer about the visitor's rights.
    wish: Arc<Notify>,
    /// When it came last.
    asked: watch::Receiver<Option<Instant>>,
    task: JoinHandle<()>,
}

impl ReleaseStates {
    /// Follows the releases with the credentials of `connection`, until it is dropped.
    pub(super) fn follow(connection: Connection, scope: Scope) -> Self {
        let known = Arc::new(RwLock::new(Known::default()));
        let (changed, changes) = watch::channel(0);
        let (answered, asked) = watch::channel(None);
        let namespace = scope.namespace.clone();
        let (is_looked_at, wish) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let follower = Follower {
            connection,
            scope,
            known: Arc::clone(&known),
            changed,
            is_looked_at: Arc::clone(&is_looked_at),
            wish: Arc::clone(&wish),
            asked: answered,
        };
        let task = tokio::spawn(follower.run());
        Self { namespace, known, changes, is_looked_at, wish, asked, task }
    }

    /// Waits until it is known of late what the visitor may list, and until that was listed, or could not be; but not for
    /// long.
    pub(super) async fn ready(&self) {
        let (mut changes, mut asked) = (self.changes.clone(), self.asked.clone());
        let is_believed = |asked: &Option<Instant>| asked.is_some_and(|at| at.elapsed() < BELIEVED);
        let wait = async {
            if !is_believed(&self.asked.borrow()) {
                self.wish.notify_one();
                drop(asked.wait_for(is_believed).await);
            }
            while !self.known.read().is_ready() && changes.changed().await.is_ok() {}
        };
        // What is there by then is shown.
        let _ = timeout(FIRST, wait).await;
    }

    /// The only namespace that is shown, where nobody chose it.
    pub(super) fn only(&self, chosen: Option<&str>) -> Option<&str> {
        self.namespace.as_deref().filter(|_| chosen.is_none())
    }

    /// Whether the visitor may not list these releases.
    pub(super) fn is_forbidden(&self) -> bool {
        self.known.read().is_forbidden
    }

    /// Whether the API server does not know the visitor any more.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.known.read().is_unauthorized
    }

    /// The changes of all releases, or of one.
    pub(super) fn changes(&self, release: Option<Followed>) -> Changes {
        match release {
            Some(release) => Changes::of_release(self.changes.clone(), Arc::clone(&self.known), release),
            None => Changes::of_all(self.changes.clone()),
        }
    }

    /// How all releases stand, by namespace and name.
    pub(super) fn rows(&self, now: Timestamp) -> Rows {
        self.is_looked_at.store(true, Ordering::Relaxed);
        self.known.read().rows(now)
    }

    /// The exceptions, as far as the watch tells of them at this moment.
    pub(super) fn exceptions(&self, now: Timestamp) -> Option<Vec<allowances::Row>> {
        // They are judged without the lock.
        let exceptions = self.known.read().exceptions.all();
        exceptions.map(|exceptions| allowances::rows(exceptions, now))
    }

    /// The fields that drift, by kind and path, of the releases of `namespace` (`None`: of all).
    pub(super) fn fields(&self, namespace: Option<&str>) -> Fields {
        self.known.read().fields(namespace)
    }

    /// The releases of which this field drifts.
    pub(super) fn with_field(&self, field: &str) -> HashSet<ReleaseId> {
        self.known.read().with_field(field)
    }
}

impl Drop for ReleaseStates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The changes of all that is followed, or of one release.
pub(super) struct Changes {
    changes: watch::Receiver<u64>,
    one: Option<One>,
}

/// One release.
struct One {
    known: Arc<RwLock<Known>>,
    followed: Followed,
    /// Its state when it was told of last.
    told: Mark,
}

impl Changes {
    /// The changes of all, from now on.
    pub(super) fn of_all(mut changes: watch::Receiver<u64>) -> Self {
        changes.mark_unchanged();
        Self { changes, one: None }
    }

    /// The changes of one release, from now on.
    fn of_release(changes: watch::Receiver<u64>, known: Arc<RwLock<Known>>, followed: Followed) -> Self {
        let told = known.read().mark(&followed);
        Self { one: Some(One { known, followed, told }), ..Self::of_all(changes) }
    }

    /// Waits for the next change; an error once nobody follows any more. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<(), RecvError> {
        loop {
            self.changes.changed().await?;
            if self.one.as_mut().is_none_or(One::note_state) {
                return Ok(());
            }
        }
    }

    /// What has changed so far is told.
    pub(super) fn settle(&mut self) {
        self.changes.mark_unchanged();
        if let Some(one) = &mut self.one {
            one.note_state();
        }
    }
}

impl One {
    /// Notes its state. Returns whether it had another one the last time.
    fn note_state(&mut self) -> bool {
        let now = self.known.read().mark(&self.followed);
        let has_changed = now != self.told;
        self.told = now;
        has_changed
    }
}

/// What a page shows of the releases.
pub(super) struct Rows {
    pub(super) rows: Vec<Arc<Row>>,
    /// What could not be read, or not yet: a sentence each.
    pub(super) notes: Vec<String>,
    /// Whether nothing could be read.
    pub(super) is_blind: bool,
    /// Whether there are no other releases.
    pub(super) is_complete: bool,
}

/// A release whose page is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) release: ReleaseId,
    /// The namespaces of its objects, in which exceptions may be for them.
    pub(super) namespaces: BTreeSet<String>,
}

/// What is known.
#[derive(Default)]
struct Known {
    guarded: BTreeMap<ReleaseId, Guarded>,
    /// By records and by objects; with the origin where there is no record.
    others: BTreeMap<ReleaseId, Option<Origin>>,
    pulses: HashMap<(String, String), Pulse>,
    exceptions: Exceptions,
    is_whole: bool,
    /// Whether records and objects were looked at.
    has_others: bool,
    is_forbidden: bool,
    /// Whether the API server does not know the visitor any more.
    is_unauthorized: bool,
    /// Whether there is a definition of GuardedRelease.
    is_undefined: bool,
    /// Why the GuardedReleases cannot be followed.
    trouble: Option<String>,
    /// What else could not be read.
    notes: Vec<String>,
}

/// A release that a guard speaks of.
struct Guarded {
    row: Arc<Row>,
    /// Without what only the guard needs.
    status: GuardedReleaseStatus,
    version: String,
}

/// What is another one once the page of a release would show something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mark {
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
    fn is_ready(&self) -> bool {
        self.has_others && (self.is_whole || self.trouble.is_some())
    }

    /// How all releases stand, by namespace and name.
    fn rows(&self, now: Timestamp) -> Rows {
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
    fn fields(&self, namespace: Option<&str>) -> Fields {
        let mut fields = Fields::default();
        let here = self.guarded.iter().filter(|(id, _)| namespace.is_none_or(|it| it == id.namespace));
        here.for_each(|(_, guarded)| fields.add(&guarded.status));
        fields
    }

    /// The releases of which this field drifts.
    fn with_field(&self, field: &str) -> HashSet<ReleaseId> {
        let has = |guarded: &Guarded| named_fields(&guarded.status).contains(field);
        self.guarded.iter().filter(|(_, it)| has(it)).map(|(release, _)| release.clone()).collect()
    }

    /// The state of one release.
    fn mark(&self, Followed { release, namespaces }: &Followed) -> Mark {
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
    fn new(object: GuardedRelease, version: String) -> Option<(ReleaseId, Self)> {
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

/// An object of the watch.
struct Wire {
    version: String,
    object: Option<Box<GuardedRelease>>,
}

impl Form for Wire {
    type Wire = Value;
    const PAGE: u32 = 250;
    const METADATA: bool = false;

    fn read(wire: Value) -> Self {
        let version = wire.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Self { version: version.unwrap_or_default().to_owned(), object: guarded::typed(wire) }
    }

    fn version(&self) -> &str {
        &self.version
    }
}

impl Wire {
    /// The release, with what a page shows of it.
    fn guarded(self) -> Option<(ReleaseId, Guarded)> {
        Guarded::new(*self.object?, self.version)
    }
}

/// The fields that drift in some releases.
#[derive(Debug, Default)]
pub(super) struct Fields {
    counts: BTreeMap<String, Count>,
    /// The releases whose statuses name only a part of their drift.
    cut: usize,
}

/// A field that drifts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its kind and path.
    pub(super) name: String,
    /// The releases that have such drift.
    pub(super) releases: usize,
    /// Whether further ones may have it.
    pub(super) is_least: bool,
}

#[derive(Debug, Default)]
struct Count {
    releases: usize,
    /// Those among them whose statuses name only a part of their drift.
    cut: usize,
}

impl Fields {
    /// Adds the drift of a release.
    fn add(&mut self, status: &GuardedReleaseStatus) {
        let is_cut = is_cut(status);
        self.cut += usize::from(is_cut);
        for field in named_fields(status) {
            let count = self.counts.entry(field).or_default();
            count.releases += 1;
            count.cut += usize::from(is_cut);
        }
    }

    /// The fields, those of most releases first.
    pub(super) fn ranked(self) -> Vec<Field> {
        let Self { counts, cut } = self;
        let of = |(name, count): (String, Count)| Field {
            name,
            releases: count.releases,
            is_least: cut > count.cut,
        };
        let mut fields: Vec<_> = counts.into_iter().map(of).collect();
        fields.sort_by(|left, right| {
            right.releases.cmp(&left.releases).then_with(|| left.name.cmp(&right.name))
        });
        fields
    }
}

/// The fields that drift in a release, by kind and path.
fn named_fields(status: &GuardedReleaseStatus) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for drift in status.drifts.iter().take(drifted(status)) {
        let kind = &drift.object.kind;
        if drift.fields.is_empty() {
            names.insert(format!("{kind} ({})", drift.r#type.to_lowercase()));
        }
        names.extend(drift.fields.iter().map(|field| format!("{kind} {}", field.path)));
    }
    names
}

/// Whether a status names only a part of the drift.
fn is_cut(status: &GuardedReleaseStatus) -> bool {
    let drifted = drifted(status);
    drifted > status.drifts.len() || status.drifts.iter().take(drifted).any(|it| it.more_fields > 0)
}

/// The number of drifted objects. They come before objects that may differ.
fn drifted(status: &GuardedReleaseStatus) -> usize {
    usize::try_from(status.drifted).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    /// What is known of one release that has a record, once all was looked at.
    fn known() -> Known {
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        Known {
            others: BTreeMap::from([(release, None)]),
            has_others: true,
            is_whole: true,
            ..Known::default()
        }
    }

    /// The states of all rows.
    fn states(known: &Known) -> Vec<String> {
        let rows = known.rows(Timestamp::UNIX_EPOCH).rows;
        rows.iter().map(|row| row.state().to_owned()).collect()
    }

    #[test]
    fn release_counts_as_not_guarded_once_all_statuses_are_read() {
        let trouble = Some("the API server does not answer".to_owned());
        for (what, known, state) in [
            ("all is read", known(), "NotGuarded"),
            ("there is no definition", Known { is_undefined: true, ..known() }, "NotGuarded"),
            ("the first listing runs", Known { is_whole: false, ..known() }, "Unknown"),
            ("the listing failed", Known { is_whole: false, trouble: trouble.clone(), ..known() }, "Unknown"),
            ("the watch failed", Known { trouble, ..known() }, "Unknown"),
        ] {
            assert_eq!(states(&known), [state], "{what}");
        }
    }

    #[test]
    fn visitor_who_may_not_list_statuses_sees_no_release() {
        let trouble = Some("no permission".to_owned());
        for known in [
            Known { is_forbidden: true, trouble: trouble.clone(), ..known() },
            Known { is_unauthorized: true, trouble, ..known() },
        ] {
            assert!(states(&known).is_empty());
            assert!(known.rows(Timestamp::UNIX_EPOCH).is_blind);
        }
    }

    /// A status with so many drifted objects, which names those with these fields.
    fn status(drifted: u64, named: &[&[&str]], more_fields: u64) -> GuardedReleaseStatus {
        let drift = |(index, paths): (usize, &&[&str])| {
            let fields: Vec<_> = paths.iter().map(|path| json!({"path": path})).collect();
            json!({
                "object": {"kind": "Deployment", "name": format!("web-{index}")},
                "type": if paths.is_empty() { "missing" } else { "changed" },
                "fields": fields, "moreFields": more_fields, "since": "2026-01-01T00:00:00Z",
            })
        };
        let drifts: Vec<_> = named.iter().enumerate().map(drift).collect();
        GuardedReleaseStatus {
            drifted,
            drifts: serde_json::from_value(json!(drifts)).unwrap(),
            ..GuardedReleaseStatus::default()
        }
    }

    fn ranked(statuses: &[GuardedReleaseStatus]) -> Vec<(String, usize, bool)> {
        let mut fields = Fields::default();
        statuses.iter().for_each(|status| fields.add(status));
        fields.ranked().into_iter().map(|it| (it.name, it.releases, it.is_least)).collect()
    }

    #[test]
    fn each_field_is_counted_once_for_each_release() {
        let statuses = [
            status(3, &[&["/a"], &["/a", "/b"], &[]], 0),
            status(1, &[&["/a"]], 0),
            status(0, &[&["/c"]], 0),
        ];
        let named = [("Deployment /a", 2), ("Deployment (missing)", 1), ("Deployment /b", 1)];
        assert_eq!(ranked(&statuses), named.map(|(name, count)| (name.to_owned(), count, false)));
    }

    #[test]
    fn number_is_a_lower_bound_where_statuses_name_less_than_drifts() {
        let check = |cut: GuardedReleaseStatus| {
            let statuses = [status(2, &[&["/a"], &["/b"]], 0), cut];
            // The second release is among those of the first field already.
            let named = [("Deployment /a", 2, false), ("Deployment /b", 1, true)];
            assert_eq!(
                ranked(&statuses),
                named.map(|(name, count, is_least)| (name.to_owned(), count, is_least))
            );
        };
        check(status(2, &[&["/a"]], 0));
        check(status(1, &[&["/a"]], 1));
    }
}
