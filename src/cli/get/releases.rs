//! `kubemoor get releases`: how releases stand, and which are not guarded.
//!
//! Entry point: [`run`]. Invariant: reads only. What a release's records say and
//! what the guard says of it are shown side by side; a release that no guard
//! speaks of is shown as not guarded, with the reason as far as it can be known,
//! and so is one that has no record.

mod unrecorded;

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;

use self::unrecorded::Unrecorded;
use super::nothing;
use crate::cli::connect::{self, ClusterArgs, NamespacesArgs, failed};
use crate::cli::output::{self, BAD, GOOD, NOTE, OutputArgs, PLAIN, Table, Text};
use crate::cli::reading::{Reader, RecordArgs};
use crate::cli::{Outcome, warn};
use crate::client::guarded;
use crate::helm::record::Status;
use crate::model::ReleaseId;
use crate::policy::guarded::{GuardedRelease, ObjectCounts};
use crate::policy::resolver::Labels;
use crate::verdict::health::told::Told;

/// Releases whose records are read at once, where no guard speaks of them.
const READ_AT_ONCE: usize = 8;

/// The flags of `kubemoor get releases`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Answer {
    releases: Vec<Row>,
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
    /// Since when no guard keeps this, where it is stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_since: Option<Timestamp>,
    /// What the guard says, or why the release is not guarded.
    message: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { namespaces, output, records, cluster } = args;
    let (answer, notes, namespace) = connect::run(async move {
        let connection = cluster.connect().await?;
        let namespace = namespaces.chosen(&connection);
        let reader = Reader::new(connection, records, &Labels::new()).await?;
        let listed = guarded::list(&reader.connection.client, namespace.as_deref()).await;
        let listed = listed.map_err(|error| failed(&reader.connection, "list the GuardedReleases", error))?;
        let is_defined = listed.is_some();
        let mut known: BTreeMap<ReleaseId, GuardedRelease> = listed
            .unwrap_or_default()
            .into_iter()
            .filter_map(|guarded| Some((guarded.release()?, guarded)))
            .collect();
        let stored = reader.list(namespace.as_deref()).await?;
        let mut all: BTreeSet<_> = stored.iter().chain(known.keys()).cloned().collect();
        let Unrecorded { mut releases, mut notes } = unrecorded::find(&reader, namespace.as_deref()).await;
        releases.retain(|release, _| !all.contains(release));
        all.extend(releases.keys().cloned());
        let rows = all.into_iter().map(|release| {
            let (guarded, origin) = (known.remove(&release), releases.get(&release).copied());
            let reader = &reader;
            async move {
                let why = match (guarded, origin) {
                    (Some(guarded), _) => {
                        let told = reader.pulses.told(guarded.status.unwrap_or_default()).await;
                        return Row::guarded(release, told);
                    }
                    (None, Some(origin)) => unrecorded::why(origin, &release),
                    (None, None) => why_not(reader, &release, is_defined).await,
                };
                Row::unguarded(release, why)
            }
        });
        let rows = futures::stream::iter(rows.collect::<Vec<_>>()).buffered(READ_AT_ONCE).collect().await;
        notes.extend(reader.pulses.notes().await);
        let unread = reader.unread_records(namespace.as_deref());
        notes.extend(unread.into_iter().map(|unread| format!("releases may be missing: {unread}")));
        Ok((Answer { releases: rows }, notes, namespace))
    })?;
    notes.iter().for_each(|note| warn(note));
    output::print(output.output, &answer, || table(&answer.releases, namespace.as_deref()))
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

impl Row {
    fn guarded(release: ReleaseId, told: Told) -> Self {
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
            stale_since: None,
            message: why,
        }
    }
}

fn table(rows: &[Row], namespace: Option<&str>) -> Text {
    if rows.is_empty() {
        return nothing("releases", namespace);
    }
    let mut table = Table::new([
        "NAMESPACE",
        "NAME",
        "READY",
        "REASON",
        "REVISION",
        "DRIFTED",
        "EDITS",
        "DRIFT",
        "MESSAGE",
    ]);
    for row in rows {
        let style = match (row.guarded, row.ready.as_deref()) {
            (false, _) | (true, Some("Unknown") | None) => NOTE,
            (true, Some("True")) => GOOD,
            (true, Some(_)) => BAD,
        };
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reason = if row.guarded { text(&row.reason) } else { "NotGuarded".to_owned() };
        table.styled([
            (row.namespace.clone(), PLAIN),
            (row.name.clone(), PLAIN),
            (text(&row.ready), style),
            (reason, style),
            (number(row.revision), PLAIN),
            (number(row.drifted), PLAIN),
            (text(&row.edits), PLAIN),
            (text(&row.drift), PLAIN),
            (row.message.clone(), PLAIN),
        ]);
    }
    table.text()
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
            Row::guarded(
                id("new"),
                Told::of(GuardedReleaseStatus::default(), &Pulse::Unknown, Timestamp::UNIX_EPOCH),
            ),
            Row::unguarded(id("old"), "it is uninstalled; its history was kept".to_owned()),
        ];
        let text = table(&rows, None);
        let plain = anstream::adapter::strip_str(text.as_str()).to_string();
        let lines: Vec<_> = plain.lines().collect();
        assert!(lines[1].contains("Unknown") && lines[1].contains("not looked at it yet"), "{plain}");
        assert!(lines[2].contains("NotGuarded") && lines[2].ends_with("its history was kept"), "{plain}");
    }
}
