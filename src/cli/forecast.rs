//! `kubemoor forecast`: the fields on which the next Helm 4 upgrade will conflict.

use std::sync::Arc;

use anyhow::bail;
use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use serde::Serialize;
use serde_json::Value;

use super::connect::{self, PlaceArgs, RecordArgs, parse_release, spoken, warn_of_guard};
use super::output::{self, NOTE, OutputArgs, PLAIN, StyledText, Table};
use super::{CommandOutcome, completions, warn};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Segment;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::{DeclaredObject, Release};
use kubemoor_inspect::comparison::{self, LeftBehindKey, ObjectConflict};
use kubemoor_inspect::reading::FoundObject;
use kubemoor_policy::resolver::Labels;
use kubemoor_verdict::owners::{self, FieldManager, ManagerOperation, Owners};
use kubemoor_verdict::ownership::{self, FieldConflict};

const AT_ONCE: usize = 8;

/// The flags of `kubemoor forecast`.
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

/// What the next upgrade will meet.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Forecast {
    release: ReleaseId,
    revision: u64,
    apply_method: &'static str,
    /// Helm's own field manager; none where no object has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    conflicts: Vec<ObjectConflict>,
    /// What earlier upgrades left behind, and the next one leaves too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_behind: Vec<LeftBehindKey>,
    /// The objects of which nothing is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<Unread>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Unread {
    object: ObjectId,
    reason: String,
}

struct Living {
    id: ObjectId,
    declared: Arc<DeclaredObject>,
    object: Value,
    owners: Owners,
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
    let reader = &records.reader(connection, &Labels::new()).await?;
    let release = reader.release(&id).await?;
    for unread in reader.unread_records(Some(&id.namespace)) {
        warn(&format!("not considered: {unread}"));
    }
    if let Some(invalid) = &release.invalid {
        let (record, reason) = (&invalid.secret, &invalid.reason);
        warn(&format!("the record {record} does not count, and an older one is looked at: {reason}"));
    }
    let mut objects: Vec<(ObjectId, Arc<DeclaredObject>)> = release
        .objects
        .keys()
        .filter_map(|object| Some((ObjectId::clone(object), Arc::clone(release.declared(object)?))))
        .collect();
    objects.sort_by(|(one, _), (other, _)| one.cmp(other));
    let found: Vec<_> = futures::stream::iter(objects)
        .map(|(id, declared)| async move {
            let found = reader.live(&id, &declared.version).await;
            (id, declared, found)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let (mut living, mut unread) = (Vec::new(), Vec::new());
    for (id, declared, found) in found {
        match found {
            FoundObject::Object(object) => {
                living.push(Living { id, declared, owners: Owners::from_object(&object), object });
            }
            // A missing object has no owners.
            FoundObject::Absent => {}
            FoundObject::NotServed => {
                unread.push(Unread { object: id, reason: "the cluster serves no such kind".to_owned() });
            }
            FoundObject::Unread(reason) => unread.push(Unread { object: id, reason }),
        }
    }
    let objects = living.iter().map(|living| (&living.id, &living.object)).collect();
    let left_behind = comparison::left_behind(reader, &release, objects).await;
    Ok(Forecast { unread, left_behind, ..Forecast::new(&release, &living) })
}

impl Forecast {
    fn new(release: &Release, living: &[Living]) -> Self {
        let method = release.state.apply_method;
        let helm = owners::helms(living.iter().map(|living| &living.owners), method);
        let mut conflicts = Vec::new();
        for Living { id, declared, object, owners } in living {
            for skipped in owners.skipped() {
                warn(&format!("an entry of managedFields of {id} is left out: {skipped}"));
            }
            let met = ownership::conflicts(&declared.fields(), object, owners, helm.as_ref(), method);
            conflicts.extend(met.into_iter().map(|conflict| ObjectConflict { object: id.clone(), conflict }));
        }
        Self {
            release: release.id.clone(),
            revision: release.state.revision,
            apply_method: match method {
                ApplyMethod::ServerSide => "ssa",
                ApplyMethod::ClientSide => "csa",
            },
            manager: helm.map(|manager| manager.name),
            conflicts,
            left_behind: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn table(&self) -> StyledText {
        let Self { release, revision, apply_method, conflicts, .. } = self;
        if conflicts.is_empty() {
            let why = match *apply_method {
                "csa" => "Helm applies this release client-side, which meets no conflicts",
                _ => "nobody but Helm owns what it declares, or Helm forces its applies",
            };
            let mut text = StyledText::default();
            let said =
                format!("No conflicts ahead of release {} (revision {revision}): {why}.", spoken(release));
            text.add(PLAIN, &said).line();
            self.add_left_behind(&mut text);
            return text;
        }
        let mut table = Table::new(["OBJECT", "FIELD", "MANAGER", "OPERATION", "SINCE", "CONFLICTS"]);
        for ObjectConflict { object, conflict } in conflicts {
            let FieldConflict { path, manager, since, differs, moved_to } = conflict;
            let operation = match manager.operation {
                ManagerOperation::Apply => "Apply",
                ManagerOperation::Update => "Update",
            };
            let when = if *differs { ("always", NOTE) } else { ("when it changes", PLAIN) };
            table.styled([
                (object.to_string(), PLAIN),
                (
                    match (moved_to, path.0.last()) {
                        (None, _) => path.to_string(),
                        (Some(to), Some(Segment::Key(_))) => format!("{path} (moved to {to})"),
                        (Some(by), _) => format!("{path} (excluded by {by})"),
                    },
                    PLAIN,
                ),
                (named(manager), PLAIN),
                (operation.to_owned(), PLAIN),
                (since.map_or_else(|| "-".to_owned(), |since| since.to_string()), PLAIN),
                (when.0.to_owned(), when.1),
            ]);
        }
        let mut text = table.text();
        self.add_left_behind(&mut text);
        text
    }

    fn add_left_behind(&self, text: &mut StyledText) {
        for left in &self.left_behind {
            text.line().add(NOTE, &format!("Left behind: {}", left.text())).line();
        }
    }
}

/// A manager, with the subresource through which it wrote.
fn named(manager: &FieldManager) -> String {
    match manager.subresource.as_str() {
        "" => manager.name.clone(),
        subresource => format!("{} ({subresource})", manager.name),
    }
}
