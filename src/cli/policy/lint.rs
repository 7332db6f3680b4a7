//! `kubemoor policy lint`: reports rules in policies that have no effect, or another effect than it seems.
//!
//! Entry point: [`run`]. Invariant: reads policies as the guard reads them; changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;

use super::{CaseResult, Judged, People, Tally, collect};
use crate::cli::connect::{self, ClusterArgs, RecordArgs};
use crate::cli::list::Items;
use crate::cli::output::{self, BAD, Form, HEAD, PLAIN, Text, counted};
use crate::cli::{Outcome, policy_files, warn};
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::{guarded, policy_statuses};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;
use kubemoor_inspect::reading::Reader;
use kubemoor_policy::flaw::{Flaw, FlawReason};
use kubemoor_policy::lint::{Finding, aimless, lint, targeted, unmatched};
use kubemoor_policy::read;
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::resource::DriftPolicy;
use kubemoor_runtime::config::RecordDriver;

/// The flags of `kubemoor policy lint`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory, with all directories below it [default: the policies of the cluster]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// How the findings are printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Form<People>,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The policies that were read, and what was found.
#[derive(Debug, Default)]
struct Read {
    /// The path of each policy, and its name.
    all: Vec<(PathBuf, String)>,
    /// Those that are accepted.
    accepted: Vec<DriftPolicy>,
    rows: Vec<Row>,
}

/// One finding.
#[derive(Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(in crate::cli) struct Row {
    /// The file; none where the policy is the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The policy's name, or which document of the file it is, from 1.
    policy: String,
    /// Where in the policy.
    field: String,
    /// What sort of thing.
    check: &'static str,
    /// What is wrong and what to do.
    message: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { directory, output, records, cluster } = args;
    let read = match directory {
        Some(directory) => of_files(&directory)?,
        None => connect::run(of_cluster(cluster, records.record_driver))?,
    };
    match output {
        Form::People(People::Table) => output::write(read.text().as_str())?,
        Form::People(People::Junit) => output::write(&read.tally().junit("kubemoor policy lint")?)?,
        Form::Data(data) => data.print(&Items::of(&read.rows))?,
    };
    Ok(if read.rows.is_empty() { Outcome::Clean } else { Outcome::Found })
}

/// The findings in the policies of a directory.
fn of_files(directory: &Path) -> anyhow::Result<Read> {
    let mut paths = Vec::new();
    collect(directory, 0, &mut paths)?;
    paths.sort();
    let mut read = Read::default();
    for path in paths {
        let text = policy_files::text(&path)?;
        if !text.contains("DriftPolicy") {
            continue;
        }
        let (documents, unreadable) = read::documents(&text);
        for (place, flaw) in unreadable {
            read.rows.push(Row::of_flaw(Some(&path), &place, flaw));
        }
        let is_policy =
            |document: &Value| document.get("kind").and_then(Value::as_str) == Some("DriftPolicy");
        for document in documents.into_iter().filter(is_policy) {
            read.take(Some(&path), document);
        }
    }
    if read.all.is_empty() && read.rows.is_empty() {
        return Err(anyhow!("no DriftPolicy is in {}", directory.display()));
    }
    read.find(lint(&read.accepted));
    Ok(read)
}

/// The findings in the policies of a cluster, checked against its releases and their objects too.
async fn of_cluster(cluster: ClusterArgs, driver: RecordDriver) -> anyhow::Result<Read> {
    let connection = cluster.connect().await?;
    let found = policy_statuses::list(&connection.client, None).await.map_err(|error| {
        match error.is_not_found() {
            true => anyhow!("there is no definition of DriftPolicy: `kubemoor manifests crds` prints it"),
            false => connect::failed(&connection, "list the policies", error),
        }
    })?;
    let mut read = Read::default();
    for mut document in found {
        if let Some(object) = document.as_object_mut() {
            object.retain(|field, _| field != "status");
        }
        read.take(None, document);
    }
    read.find(lint(&read.accepted));
    if let Some(releases) = releases(&connection).await {
        read.find(unmatched(&read.accepted, &releases));
        let targeted = targeted(&read.accepted, &releases);
        let declared = declared(connection, driver, targeted).await;
        read.find(aimless(&read.accepted, &declared));
    }
    Ok(read)
}

/// Releases with their objects; says if one cannot be read.
async fn declared(
    connection: Connection,
    driver: RecordDriver,
    releases: Vec<ReleaseId>,
) -> Vec<(ReleaseId, Option<Arc<Release>>)> {
    if releases.is_empty() {
        return Vec::new();
    }
    let reader = match Reader::new(connection, driver, &Labels::new()).await {
        Ok(reader) => reader,
        Err(error) => {
            warn(&format!("the targets of policies are not compared with declared objects: {error}"));
            return Vec::new();
        }
    };
    let read = reader.all(&releases).await;
    if let Some(error) = read.iter().find_map(|read| read.as_ref().err()) {
        warn(&format!("the targets of some policies are not compared with declared objects: {error}"));
    }
    releases.into_iter().zip(read.into_iter().map(Result::ok)).collect()
}

/// The guarded releases; `None` where they cannot be read.
async fn releases(connection: &Connection) -> Option<Vec<ReleaseId>> {
    let unknown = |why: String| {
        warn(&format!(
            "the globs and targets of policies are not compared with releases, whose secrets declare the objects: {why}"
        ));
    };
    match guarded::list(&connection.client, None).await {
        Ok(Some(listed)) => Some(listed.iter().filter_map(|it| it.release()).collect()),
        Ok(None) => {
            unknown("there is no definition of GuardedRelease".to_owned());
            None
        }
        Err(error) => {
            unknown(connect::failed(connection, "list the GuardedReleases", error).to_string());
            None
        }
    }
}

impl Read {
    /// Takes in a policy, or notes what is wrong with it.
    fn take(&mut self, file: Option<&Path>, document: Value) {
        let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let place = file.unwrap_or(Path::new("")).to_owned();
        let first = self.all.iter().find(|(_, other)| *other == name).map(|(first, _)| first.clone());
        let flaws = match (read::policy(document.clone()), first) {
            (Err(flaws), _) => flaws,
            (Ok(_), Some(first)) => {
                let message = format!("{} has a policy of this name: rename one of them", first.display());
                let (field, reason) = ("metadata.name".to_owned(), FlawReason::DuplicateName);
                vec![Flaw { field, reason, message }]
            }
            (Ok(_), None) => match read::typed(document) {
                Ok(policy) => {
                    self.accepted.push(policy);
                    Vec::new()
                }
                Err(flaw) => vec![flaw],
            },
        };
        self.rows.extend(flaws.into_iter().map(|flaw| Row::of_flaw(file, &name, flaw)));
        self.all.push((place, name));
    }

    /// Adds findings, each with the file of its policy.
    fn find(&mut self, findings: Vec<Finding>) {
        for Finding { policy, field, check, message } in findings {
            let place = self.all.iter().find(|(_, name)| *name == policy).map(|(file, _)| file.clone());
            let file = place.filter(|file| !file.as_os_str().is_empty());
            self.rows.push(Row { file, policy, field, check: check.as_str(), message });
        }
    }

    /// The same as the results of tests: a suite for each file, a case for each policy.
    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let mut files: Vec<&PathBuf> = self.all.iter().map(|(file, _)| file).collect();
        files.dedup();
        for file in files {
            let of_file = |row: &&Row| row.file.as_deref().unwrap_or(Path::new("")) == *file;
            let names = self.all.iter().filter(|(place, _)| place == file).map(|(_, name)| name);
            let unnamed = self.rows.iter().filter(of_file).map(|row| &row.policy);
            let mut names: Vec<&String> = names.chain(unnamed).collect();
            names.sort();
            names.dedup();
            let cases = names.into_iter().map(|name| {
                let rows = self.rows.iter().filter(of_file).filter(|row| row.policy == *name);
                let told: Vec<_> = rows.map(Row::told).collect();
                let failure = (!told.is_empty()).then(|| told.join("\n"));
                CaseResult { name: name.clone(), failure }
            });
            let name =
                if file.as_os_str().is_empty() { "cluster".to_owned() } else { file.display().to_string() };
            tally.add(Judged { name, file: file.clone(), cases: cases.collect() });
        }
        tally
    }

    fn text(&self) -> Text {
        let mut text = Text::default();
        for row in &self.rows {
            if let Some(file) = &row.file {
                text.add(HEAD, &format!("{}: ", file.display()));
            }
            text.add(PLAIN, &format!("policy {}: ", row.policy)).add(BAD, &row.told()).line();
        }
        let (policies, findings) = (self.all.len(), self.rows.len());
        let policies = match policies {
            1 => "1 policy".to_owned(),
            _ => format!("{policies} policies"),
        };
        text.add(PLAIN, &format!("{policies}, {}", counted(findings, "finding"))).line();
        text
    }
}

impl Row {
    fn of_flaw(file: Option<&Path>, policy: &str, flaw: Flaw) -> Self {
        let Flaw { field, reason, message } = flaw;
        let check = reason.as_str();
        Self { file: file.map(Path::to_owned), policy: policy.to_owned(), field, check, message }
    }

    /// Everything but the policy.
    fn told(&self) -> String {
        format!("{}: {}: {}", self.field, self.check, self.message)
    }
}
