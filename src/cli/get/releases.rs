//! `kubemoor get releases`: how releases stand, and which are not guarded.
//!
//! Entry point: [`run`]. Invariant: reads only. What a release's records say and
//! what the guard says of it are shown side by side; a release that no guard
//! speaks of is shown as not guarded, with the reason as far as it can be known,
//! and so is one that has no record.

mod unrecorded;
mod watching;

use std::collections::{BTreeMap, BTreeSet};

use anstyle::Style;
use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;

use self::unrecorded::Unrecorded;
use crate::cli::connect::{self, ClusterArgs, NamespacesArgs, failed};
use crate::cli::list::{self, ListArgs, Listed, WatchArgs};
use crate::cli::output::{BAD, GOOD, NOTE, PLAIN};
use crate::cli::pulses::Pulses;
use crate::cli::reading::{Reader, RecordArgs};
use crate::cli::{Outcome, standing, warn};
use crate::client::guarded;
use crate::helm::record::Status;
use crate::model::ReleaseId;
use crate::policy::guarded::{GuardedRelease, GuardedReleaseSpec, ObjectCounts};
use crate::policy::resolver::Labels;
use crate::policy::suspension::Suspension;
use crate::verdict::health::Reason;
use crate::verdict::health::told::Told;

/// Releases whose records are read at once, where no guard speaks of them.
const READ_AT_ONCE: usize = 8;

/// The flags of `kubemoor get releases`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    watch: WatchArgs,

    /// Only releases in this state: drifted, in-sync, not-guarded, or another reason of the list; may be repeated
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = parse_state)]
    state: Vec<State>,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The reason of a release whose status nobody keeps any more.
const STALE: &str = "Stale";

/// A state that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotGuarded,
    /// No guard keeps it any more.
    Stale,
    /// The guard has not looked at it yet.
    Unknown,
    Reason(Reason),
}

/// One release.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    guarded: bool,
    /// `True`, `False`, `Unknown`; none for releases that are not guarded.
    ready: Option<String>,
    reason: Option<String>,
    revision: Option<u64>,
    declared: Option<u64>,
    drifted: Option<u64>,
    /// How the other objects stand.
    counts: Option<ObjectCounts>,
    edits: Option<String>,
    drift: Option<String>,
    /// That a person has suspended repairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended: Option<Suspended>,
    /// Since when no guard keeps this, where it is stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_since: Option<Timestamp>,
    /// What the guard says, or why the release is not guarded.
    message: String,
}

/// A suspension that has not ended.
#[derive(Debug, PartialEq, Serialize)]
struct Suspended {
    /// When it ends; none where a person ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { namespaces, list, watch, state, records, cluster } = args;
    connect::run(async move {
        let connection = cluster.connect().await?;
        let namespace = namespaces.chosen(&connection);
        standing::say(&connection, namespace.as_deref()).await;
        let reader = Reader::new(connection, records, &Labels::new()).await?;
        let Answer { mut rows, notes } = rows(&reader, namespace.as_deref(), &list).await?;
        notes.iter().for_each(|note| warn(note));
        rows.retain(|row| is_wanted(row, &state));
        match watch.watch {
            true => watching::watched(&reader, namespace.as_deref(), (list, state), rows).await,
            false => list::print(&list, rows, namespace.as_deref()),
        }
    })
}

/// Whether a row is in one of the states that are asked for.
fn is_wanted(row: &Row, states: &[State]) -> bool {
    states.is_empty() || states.iter().any(|state| state.is_of(row))
}

/// What was found.
struct Answer {
    rows: Vec<Row>,
    /// What could not be read.
    notes: Vec<String>,
}

/// The releases of a namespace, or of all.
async fn rows(reader: &Reader, namespace: Option<&str>, list: &ListArgs) -> anyhow::Result<Answer> {
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
    if let Some(labels) = &list.selector.labels {
        // What has no record has none of its labels.
        all = reader.labelled(namespace, labels).await?;
    }
    let rows = all.into_iter().map(|release| {
        let (guarded, origin) = (known.remove(&release), releases.get(&release).copied());
        async move {
            let why = match (guarded, origin) {
                (Some(guarded), _) => return Row::guarded(&reader.pulses, release, guarded).await,
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
    Ok(Answer { rows, notes })
}

/// Why no guard speaks of a release.
async fn why_not(reader: &Reader, release: &ReleaseId, is_defined: bool) -> String {
    match reader.release(release).await {
        Err(error) => format!("its records cannot be read: {error:#}"),
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
    async fn guarded(pulses: &Pulses, release: ReleaseId, guarded: GuardedRelease) -> Self {
        let suspended = Suspended::of(&guarded.spec, Timestamp::now());
        let told = pulses.told(guarded.status.unwrap_or_default()).await;
        Self { suspended, ..Self::told(release, told) }
    }

    fn told(release: ReleaseId, told: Told) -> Self {
        let Told { ready, reason, revision, declared, drifted, counts, edits, drift, stale_since, message } =
            told;
        Self {
            namespace: release.namespace,
            name: release.name,
            guarded: true,
            ready: Some(ready),
            reason,
            revision: Some(revision),
            declared: Some(declared),
            drifted: Some(drifted),
            counts: Some(counts),
            edits: Some(edits),
            drift: Some(drift),
            suspended: None,
            stale_since,
            message,
        }
    }

    fn unguarded(release: ReleaseId, why: String) -> Self {
        Self {
            namespace: release.namespace,
            name: release.name,
            guarded: false,
            ready: None,
            reason: None,
            revision: None,
            declared: None,
            drifted: None,
            counts: None,
            edits: None,
            drift: None,
            suspended: None,
            stale_since: None,
            message: why,
        }
    }
}

impl Listed for Row {
    const PLURAL: &'static str = "releases";
    const RESOURCE: &'static str = "release";

    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn head(_all: bool, wide: bool) -> Vec<&'static str> {
        let mut head = vec!["NAMESPACE", "NAME", "READY", "REASON", "REVISION", "DRIFTED", "EDITS", "DRIFT"];
        head.extend(wide.then_some(["OBJECTS", "MATCHING", "IN DOUBT", "ALLOWED"]).into_iter().flatten());
        head.push("MESSAGE");
        head
    }

    fn cells(&self, _all: bool, wide: bool) -> Vec<(String, Style)> {
        let style = match (self.guarded, self.ready.as_deref()) {
            (false, _) | (true, Some("Unknown") | None) => NOTE,
            (true, Some("True")) => GOOD,
            (true, Some(_)) => BAD,
        };
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reason = if self.guarded { text(&self.reason) } else { "NotGuarded".to_owned() };
        let mut cells = vec![
            (self.namespace.clone(), PLAIN),
            (self.name.clone(), PLAIN),
            (text(&self.ready), style),
            (reason, style),
            (number(self.revision), PLAIN),
            (number(self.drifted), PLAIN),
            (text(&self.edits), PLAIN),
            (text(&self.drift), PLAIN),
        ];
        if wide {
            let counts = self.counts.as_ref();
            let counted = [
                self.declared,
                counts.map(|it| it.matching),
                counts.map(|it| it.in_doubt),
                counts.map(|it| it.allowed),
            ];
            cells.extend(counted.map(|count| (number(count), PLAIN)));
        }
        cells.push((self.message.clone(), PLAIN));
        cells
    }
}

impl State {
    fn is_of(self, row: &Row) -> bool {
        match self {
            Self::NotGuarded => !row.guarded,
            Self::Stale => row.stale_since.is_some() || row.reason.as_deref() == Some(STALE),
            Self::Unknown => row.guarded && row.reason.is_none(),
            // However its drift is dealt with.
            Self::Reason(Reason::Drifted) => row.drifted.is_some_and(|drifted| drifted > 0),
            Self::Reason(reason) => row.reason.as_deref() == Some(reason.as_str()),
        }
    }
}

/// A state as people write it: `in-sync` and `InSync` are the same.
fn parse_state(text: &str) -> Result<State, String> {
    let plain = |text: &str| text.replace('-', "").to_lowercase();
    let states = Reason::ALL.map(|reason| (reason.as_str(), State::Reason(reason)));
    let others = [("NotGuarded", State::NotGuarded), (STALE, State::Stale), ("Unknown", State::Unknown)];
    let mut known = states.into_iter().chain(others);
    known.find(|(name, _)| plain(name) == plain(text)).map(|(_, state)| state).ok_or_else(|| {
        let names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        format!("there is no state {text:?}: use some of {}, NotGuarded, Stale, Unknown", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::guarded::GuardedReleaseStatus;
    use crate::verdict::health::told::Pulse;

    #[test]
    fn what_is_not_guarded_stands_beside_what_is() {
        let id = |name: &str| ReleaseId { namespace: "shop".to_owned(), name: name.to_owned() };
        let rows = [
            Row::told(
                id("new"),
                Told::of(GuardedReleaseStatus::default(), &Pulse::Unknown, Timestamp::UNIX_EPOCH),
            ),
            Row::unguarded(id("old"), "it is uninstalled; its history was kept".to_owned()),
        ];
        let lines = rows.each_ref().map(|row| {
            let cells: Vec<_> = row.cells(true, true).into_iter().map(|(text, _)| text).collect();
            assert_eq!(cells.len(), Row::head(true, true).len());
            cells.join(" ")
        });
        assert!(lines[0].contains("Unknown") && lines[0].contains("not looked at it yet"), "{lines:?}");
        assert!(lines[1].contains("NotGuarded") && lines[1].ends_with("its history was kept"), "{lines:?}");
        let states = |text: &str| rows.each_ref().map(|row| parse_state(text).unwrap().is_of(row));
        assert_eq!(states("unknown"), [true, false]);
        assert_eq!(states("not-guarded"), [false, true]);
        assert_eq!(states("drifted"), [false, false]);
    }

    #[test]
    fn releases_are_drifted_however_their_drift_is_dealt_with() {
        let row = |reason: &str, drifted: u64| {
            let id = ReleaseId { namespace: "shop".to_owned(), name: "web".to_owned() };
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
