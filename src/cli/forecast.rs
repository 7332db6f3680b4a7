//! `kubemoor forecast`: the fields on which the next Helm 4 upgrade will conflict.

use anyhow::bail;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use serde::Serialize;

use super::connect::{self, PlaceArgs, RecordArgs, describe_release, parse_release, warn_of_guard};
use super::output::{self, NOTE, OutputArgs, PLAIN, StyledText, Table};
use super::{CommandOutcome, completions, warn};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Segment;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_inspect::comparison::{self, LeftBehindKey, ObjectConflict, ObjectDiff, ObjectDiffState};
use kubemoor_inspect::reading::ClusterReader;
use kubemoor_policy::resolver::Labels;
use kubemoor_verdict::ownership::FieldConflict;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The release
    #[arg(value_name = "RELEASE", value_parser = parse_release, add = ArgValueCandidates::new(completions::releases))]
    release: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

/// The conflicts of the next upgrade.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Forecast {
    release: ReleaseId,
    revision: u64,
    apply_method: &'static str,
    /// Helm's own field manager; omitted if no object has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    conflicts: Vec<ObjectConflict>,
    /// The Secret keys that earlier upgrades left behind and the next one will not remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_behind: Vec<LeftBehindKey>,
    /// The objects that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<Unread>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Unread {
    object: ObjectId,
    reason: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let form = args.output.output.clone();
    let forecast = connect::run(read(args))?;
    output::print(&form, &forecast, || forecast.table())?;
    for Unread { object, reason } in &forecast.unread {
        warn(&format!("cannot read {object}: {reason}"));
    }
    match forecast.unread.len() {
        _ if !forecast.conflicts.is_empty() => Ok(CommandOutcome::Found),
        0 => Ok(CommandOutcome::Clean),
        count => bail!(
            "the forecast is incomplete: {} could not be read, see above",
            output::counted(count, "object")
        ),
    }
}

async fn read(args: Args) -> anyhow::Result<Forecast> {
    let Args { release, output: _, records, place } = args;
    let (connection, namespace) = place.connect().await?;
    let id = ReleaseId { namespace: namespace.into(), name: release.into() };
    warn_of_guard(&connection, Some(&id.namespace), None).await;
    let reader = &ClusterReader::new(connection, records.record_driver, &Labels::new()).await?;
    let release = reader.release(&id).await?;
    for unread in reader.unread_records(Some(&id.namespace)) {
        warn(&format!("not considered: {unread}"));
    }
    if let Some(invalid) = &release.invalid {
        let (record, reason) = (&invalid.secret, &invalid.reason);
        warn(&format!("the record {record} is not accepted, so an older one is used: {reason}"));
    }
    let report = comparison::compare(reader, &release, false, Timestamp::now(), &|| ()).await;
    let unread = report.objects.into_iter().filter_map(|ObjectDiff { object, state, reason, .. }| {
        let is_unread = matches!(state, ObjectDiffState::Unread | ObjectDiffState::NotServed);
        reason.filter(|_| is_unread).map(|reason| Unread { object, reason })
    });
    Ok(Forecast {
        unread: unread.collect(),
        revision: release.state.revision,
        apply_method: match release.state.apply_method {
            ApplyMethod::ServerSide => "ssa",
            ApplyMethod::ClientSide => "csa",
        },
        release: report.release,
        manager: report.manager,
        conflicts: report.conflicts,
        left_behind: report.left_behind,
    })
}

impl Forecast {
    fn table(&self) -> StyledText {
        let Self { release, revision, apply_method, conflicts, .. } = self;
        let mut text = match conflicts.is_empty() {
            false => conflicts_table(conflicts).text(),
            true => {
                let why = match *apply_method {
                    "csa" => "Helm applies this release client-side, which has no conflicts",
                    _ => "only Helm owns the declared fields, or Helm forces conflicts",
                };
                let mut text = StyledText::default();
                let said = format!(
                    "No conflicts expected for release {} (revision {revision}): {why}.",
                    describe_release(release)
                );
                text.add(PLAIN, &said).line();
                text
            }
        };
        for left in &self.left_behind {
            text.line().add(NOTE, &format!("Left behind: {}", left.text())).line();
        }
        text
    }
}

fn conflicts_table(conflicts: &[ObjectConflict]) -> Table {
    let mut table = Table::new(["OBJECT", "FIELD", "MANAGER", "OPERATION", "SINCE", "CONFLICTS"]);
    for ObjectConflict { object, conflict } in conflicts {
        let FieldConflict { path, manager, since, differs, moved_to } = conflict;
        let field = match (moved_to, path.0.last()) {
            (None, _) => path.to_string(),
            (Some(to), Some(Segment::Key(_))) => format!("{path} (moved to {to})"),
            (Some(by), _) => format!("{path} (excluded by {by})"),
        };
        // The subresource through which the manager wrote.
        let manager_name = match manager.subresource.as_str() {
            "" => manager.name.clone(),
            subresource => format!("{} ({subresource})", manager.name),
        };
        let since = since.map_or_else(|| "-".to_owned(), |since| since.to_string());
        let (when, style) = if *differs { ("always", NOTE) } else { ("when it changes", PLAIN) };
        let cells = [object.to_string(), field, manager_name, format!("{:?}", manager.operation), since];
        let cells = cells.map(|cell| (cell, PLAIN)).into_iter();
        table.styled(cells.chain([(when.to_owned(), style)]));
    }
    table
}
