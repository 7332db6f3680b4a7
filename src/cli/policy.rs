//! `kubemoor policy`: `test` judges example changes by policies, `replay` judges recorded changes; `lint` reports rules
//! without effect; `import` converts the rules of other tools.

mod import;
mod replay;
mod suite;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use self::suite::Suite;
use super::connect::{self, ClusterArgs, RecordArgs};
use super::list::Items;
use super::output::{self, BAD, GOOD, HEAD, OutputFormat, PLAIN, StyledText, counted};
use super::{CommandOutcome, check, warn};
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::guarded;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;
use kubemoor_inspect::policies;
use kubemoor_inspect::reading::ClusterReader;
use kubemoor_policy::compile;
use kubemoor_policy::flaw::{Flaw, FlawReason};
use kubemoor_policy::lint::{LintFinding, lint, releases_with_targets, unmatched_globs, unmatched_targets};
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::resource::DriftPolicy;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the cases of every PolicyTest in a directory; exit 1 if one fails
    Test(PolicyTestArgs),
    /// Replay recorded changes with the policies of a directory; exit 1 if one that passed would be denied
    Replay(Box<replay::Args>),
    /// Find values and rules of policies that have no effect, and subjects that include everybody; exit 1 if there are any
    Lint(LintArgs),
    /// Convert rules of other tools to policies
    Import(import::Args),
}

#[derive(Debug, clap::Args)]
struct PolicyTestArgs {
    /// The directory, including subdirectories
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: OutputFormat<SuiteFormat>,
}

/// The output formats of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SuiteFormat {
    /// For people
    Table,
    /// For CI: JUnit XML
    Junit,
}

/// The results of all cases.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub(super) struct TestTally {
    suites: Vec<SuiteResult>,
    passed: usize,
    failed: usize,
}

/// The results of one suite.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct SuiteResult {
    name: String,
    file: PathBuf,
    cases: Vec<CaseResult>,
}

/// The result of one case.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct CaseResult {
    name: String,
    /// What is wrong with the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    match args.command {
        Command::Test(args) => run_tests(args),
        Command::Replay(args) => connect::run(replay::run(*args)),
        Command::Lint(args) => run_lint(args),
        Command::Import(args) => import::run(args),
    }
}

fn run_tests(args: PolicyTestArgs) -> anyhow::Result<CommandOutcome> {
    let PolicyTestArgs { directory, output } = args;
    let tally = test(&directory, Timestamp::now())?;
    match output {
        OutputFormat::People(SuiteFormat::Table) => output::write(tally.text().as_str())?,
        OutputFormat::People(SuiteFormat::Junit) => output::write(&tally.junit("kubemoor policy test")?)?,
        OutputFormat::Data(data) => data.print(&tally)?,
    };
    Ok(if tally.failed == 0 { CommandOutcome::Clean } else { CommandOutcome::Found })
}

fn test(directory: &Path, now: Timestamp) -> anyhow::Result<TestTally> {
    let mut tally = TestTally::default();
    for path in check::yaml_files(directory, true)? {
        for suite in suite::read(&path)? {
            let judged = judge(&path, &suite, now).with_context(|| {
                format!("the test {} in {} cannot be run", suite.metadata.name, path.display())
            })?;
            tally.add(judged);
        }
    }
    if tally.suites.is_empty() {
        return Err(anyhow::anyhow!("no PolicyTest found in {}", directory.display()));
    }
    Ok(tally)
}

fn judge(path: &Path, suite: &Suite, now: Timestamp) -> anyhow::Result<SuiteResult> {
    let ground = suite.prepare(path)?;
    for doubt in ground.fixture_warnings() {
        warn(&format!("{}: {doubt}", path.display()));
    }
    let judged = suite.spec.cases.iter().map(|case| {
        let failure = case.judge(&ground, now).with_context(|| format!("case {:?}", case.name))?;
        Ok(CaseResult { name: case.name.clone(), failure })
    });
    let cases = judged.collect::<anyhow::Result<_>>()?;
    Ok(SuiteResult { name: suite.metadata.name.clone(), file: path.to_owned(), cases })
}

impl TestTally {
    fn add(&mut self, judged: SuiteResult) {
        let failed = judged.cases.iter().filter(|case| case.failure.is_some()).count();
        self.failed += failed;
        self.passed += judged.cases.len() - failed;
        self.suites.push(judged);
    }

    fn junit(&self, command: &str) -> anyhow::Result<String> {
        let values = json!({"command": command, "tally": self});
        output::render("junit.xml", include_str!("policy/junit.xml"), &values)
    }

    fn text(&self) -> StyledText {
        let mut text = StyledText::default();
        for SuiteResult { name, file, cases } in &self.suites {
            text.add(HEAD, name).add(PLAIN, &format!(" ({})", file.display())).line();
            for CaseResult { name, failure } in cases {
                match failure {
                    None => text.add(GOOD, "  ok    ").add(PLAIN, name),
                    Some(failure) => text.add(BAD, "  FAIL  ").add(PLAIN, &format!("{name}: {failure}")),
                };
                text.line();
            }
        }
        let Self { passed, failed, .. } = self;
        text.add(PLAIN, &format!("{} cases, {passed} passed, {failed} failed", passed + failed)).line();
        text
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct LintArgs {
    /// The directory, including subdirectories [default: the policies of the cluster]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: OutputFormat<SuiteFormat>,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Default)]
struct LintedPolicies {
    /// Each policy's file and name; no file if the policy is the cluster's.
    all: Vec<(Option<PathBuf>, String)>,
    accepted: Vec<DriftPolicy>,
    rows: Vec<LintRow>,
}

/// One finding.
#[derive(Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(in crate::cli) struct LintRow {
    /// The file; omitted if the policy is from the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The policy's name, or the number of its document in the file, from 1.
    policy: String,
    /// The field of the policy.
    field: String,
    /// The kind of finding.
    check: &'static str,
    /// What is wrong and what to do.
    message: String,
}

fn run_lint(args: LintArgs) -> anyhow::Result<CommandOutcome> {
    let LintArgs { directory, output, records, cluster } = args;
    let read = match directory {
        Some(directory) => of_files(&directory)?,
        None => connect::run(of_cluster(cluster, records))?,
    };
    match output {
        OutputFormat::People(SuiteFormat::Table) => output::write(read.text().as_str())?,
        OutputFormat::People(SuiteFormat::Junit) => {
            output::write(&read.tally().junit("kubemoor policy lint")?)?
        }
        OutputFormat::Data(data) => data.print(&Items::new(&read.rows))?,
    };
    Ok(if read.rows.is_empty() { CommandOutcome::Clean } else { CommandOutcome::Found })
}

fn of_files(directory: &Path) -> anyhow::Result<LintedPolicies> {
    let mut read = LintedPolicies::default();
    for path in check::yaml_files(directory, true)? {
        let text = check::read_text(&path)?;
        if !text.contains("DriftPolicy") {
            continue;
        }
        let (documents, unreadable) = compile::documents(&text);
        for (place, flaw) in unreadable {
            read.rows.push(LintRow::of_flaw(Some(&path), &place, flaw));
        }
        let is_policy =
            |document: &Value| document.get("kind").and_then(Value::as_str) == Some("DriftPolicy");
        for document in documents.into_iter().filter(is_policy) {
            read.take(Some(&path), document);
        }
    }
    if read.all.is_empty() && read.rows.is_empty() {
        return Err(anyhow!("no DriftPolicy found in {}", directory.display()));
    }
    read.find(lint(&read.accepted));
    Ok(read)
}

/// Lints the policies of a cluster, also against its releases and their declared objects.
async fn of_cluster(cluster: ClusterArgs, records: RecordArgs) -> anyhow::Result<LintedPolicies> {
    let connection = cluster.connect().await?;
    let mut read = LintedPolicies::default();
    for mut document in policies::documents(&connection, None).await? {
        if let Some(object) = document.as_object_mut() {
            object.retain(|field, _| field != "status");
        }
        read.take(None, document);
    }
    read.find(lint(&read.accepted));
    if let Some(releases) = releases(&connection).await {
        read.find(unmatched_globs(&read.accepted, &releases));
        let targeted = releases_with_targets(&read.accepted, &releases);
        let declared = declared(connection, records, targeted).await;
        read.find(unmatched_targets(&read.accepted, &declared));
    }
    Ok(read)
}

/// Reads releases with their declared objects; warns if one cannot be read.
async fn declared(
    connection: ClusterConnection,
    records: RecordArgs,
    releases: Vec<ReleaseId>,
) -> Vec<(ReleaseId, Option<Arc<Release>>)> {
    if releases.is_empty() {
        return Vec::new();
    }
    let reader = match ClusterReader::new(connection, records.record_driver, &Labels::new()).await {
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

/// The guarded releases; warns and returns `None` if they cannot be read.
async fn releases(connection: &ClusterConnection) -> Option<Vec<ReleaseId>> {
    let why = match guarded::list(&connection.client, None).await {
        Ok(Some(listed)) => return Some(listed.iter().filter_map(|it| it.release()).collect()),
        Ok(None) => "the cluster has no CustomResourceDefinition of GuardedRelease".to_owned(),
        Err(error) => connect::failed(connection, "list the GuardedReleases", error).to_string(),
    };
    warn(&format!(
        "the globs and targets of policies are not compared with releases, whose secrets declare the objects: {why}"
    ));
    None
}

impl LintedPolicies {
    /// Adds a policy, or a finding if it is invalid.
    fn take(&mut self, file: Option<&Path>, document: Value) {
        let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let first = self.all.iter().find(|(_, other)| *other == name);
        let flaws = match (compile::policy(document.clone()), first) {
            (Err(flaws), _) => flaws,
            (Ok(_), Some((first, _))) => {
                let first = first.as_deref().unwrap_or(Path::new("the cluster")).display();
                let message = format!("{first} already has a policy with this name: rename one of them");
                let (field, reason) = ("metadata.name".to_owned(), FlawReason::DuplicateName);
                vec![Flaw { field, reason, message }]
            }
            (Ok(_), None) => match compile::typed(document) {
                Ok(policy) => {
                    self.accepted.push(policy);
                    Vec::new()
                }
                Err(flaw) => vec![flaw],
            },
        };
        self.rows.extend(flaws.into_iter().map(|flaw| LintRow::of_flaw(file, &name, flaw)));
        self.all.push((file.map(Path::to_owned), name));
    }

    /// Adds findings, each with the file of its policy.
    fn find(&mut self, findings: Vec<LintFinding>) {
        for LintFinding { policy, field, check, message } in findings {
            let file = self.all.iter().find(|(_, name)| *name == policy).and_then(|(file, _)| file.clone());
            self.rows.push(LintRow { file, policy, field, check: check.as_str(), message });
        }
    }

    /// The findings as test results: a suite for each file, a case for each policy.
    fn tally(&self) -> TestTally {
        let mut tally = TestTally::default();
        let mut files: Vec<&Option<PathBuf>> = self.all.iter().map(|(file, _)| file).collect();
        files.dedup();
        for file in files {
            let of_file = |row: &&LintRow| row.file == *file;
            let names = self.all.iter().filter(|(place, _)| place == file).map(|(_, name)| name);
            let unnamed = self.rows.iter().filter(of_file).map(|row| &row.policy);
            let mut names: Vec<&String> = names.chain(unnamed).collect();
            names.sort();
            names.dedup();
            let cases = names.into_iter().map(|name| {
                let rows = self.rows.iter().filter(of_file).filter(|row| row.policy == *name);
                let told: Vec<_> = rows.map(LintRow::text).collect();
                let failure = (!told.is_empty()).then(|| told.join("\n"));
                CaseResult { name: name.clone(), failure }
            });
            let name = file.as_ref().map_or("cluster".to_owned(), |file| file.display().to_string());
            let file = file.clone().unwrap_or_default();
            tally.add(SuiteResult { name, file, cases: cases.collect() });
        }
        tally
    }

    fn text(&self) -> StyledText {
        let mut text = StyledText::default();
        for row in &self.rows {
            if let Some(file) = &row.file {
                text.add(HEAD, &format!("{}: ", file.display()));
            }
            text.add(PLAIN, &format!("policy {}: ", row.policy)).add(BAD, &row.text()).line();
        }
        let (policies, word) = (self.all.len(), if self.all.len() == 1 { "policy" } else { "policies" });
        text.add(PLAIN, &format!("{policies} {word}, {}", counted(self.rows.len(), "finding"))).line();
        text
    }
}

impl LintRow {
    fn of_flaw(file: Option<&Path>, policy: &str, flaw: Flaw) -> Self {
        let Flaw { field, reason, message } = flaw;
        let check = reason.as_str();
        Self { file: file.map(Path::to_owned), policy: policy.to_owned(), field, check, message }
    }

    fn text(&self) -> String {
        format!("{}: {}: {}", self.field, self.check, self.message)
    }
}

#[cfg(test)]
mod tests;
