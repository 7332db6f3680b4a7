//! `kubemoor policy`: `test` shows the verdicts of policies on a table of example changes, and `replay` those on recorded
//! changes; `lint` reports rules without effect; `import` converts the rules of other tools.
//!
//! A verdict here equals the webhook's verdict with the case's release and policies, without an API server to ask.

mod edit;
mod import;
mod lint;
mod replay;
mod suite;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

pub(super) use self::lint::Row as LintRow;
use self::suite::Suite;
use super::output::{self, BAD, Form, GOOD, HEAD, PLAIN, Text};
use super::{Outcome, connect, policy_files, warn};

/// The flags of `kubemoor policy`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Judge the cases of every PolicyTest in a directory; exit 1 if one fails
    Test(Test),
    /// Judge recorded changes by the policies of a directory; exit 1 if one that passed would be refused
    Replay(Box<replay::Args>),
    /// Find values and rules of policies that have no effect, and subjects that are everybody; exit 1 if there are any
    Lint(lint::Args),
    /// Convert rules of other tools to policies
    Import(import::Args),
}

#[derive(Debug, clap::Args)]
struct Test {
    /// The directory, with all directories below it
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// How the results are printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Form<People>,
}

/// How results are printed for people and CI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum People {
    /// For people
    Table,
    /// For CI: JUnit's XML
    Junit,
}

/// The deepest folder that is read, counted from the one that was named.
const MAX_DEPTH: usize = 8;

/// What became of all cases.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub(super) struct Tally {
    suites: Vec<Judged>,
    passed: usize,
    failed: usize,
}

/// What became of the cases of one suite.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Judged {
    name: String,
    file: PathBuf,
    cases: Vec<CaseResult>,
}

/// What became of one case.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct CaseResult {
    name: String,
    /// What is wrong with the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.command {
        Command::Test(args) => run_tests(args),
        Command::Replay(args) => connect::run(replay::run(*args)),
        Command::Lint(args) => lint::run(args),
        Command::Import(args) => import::run(args),
    }
}

fn run_tests(args: Test) -> anyhow::Result<Outcome> {
    let Test { directory, output } = args;
    let tally = test(&directory, Timestamp::now())?;
    match output {
        Form::People(People::Table) => output::write(tally.text().as_str())?,
        Form::People(People::Junit) => output::write(&tally.junit("kubemoor policy test")?)?,
        Form::Data(data) => data.print(&tally)?,
    };
    Ok(if tally.failed == 0 { Outcome::Clean } else { Outcome::Found })
}

fn test(directory: &Path, now: Timestamp) -> anyhow::Result<Tally> {
    let mut paths = Vec::new();
    collect(directory, 0, &mut paths)?;
    paths.sort();
    let mut tally = Tally::default();
    for path in paths {
        for suite in suite::read(&path)? {
            let judged = judge(&path, &suite, now)
                .with_context(|| format!("the test {} in {} cannot be run", suite.name, path.display()))?;
            tally.add(judged);
        }
    }
    if tally.suites.is_empty() {
        return Err(anyhow::anyhow!("no PolicyTest is in {}", directory.display()));
    }
    Ok(tally)
}

/// The YAML files below a directory, without names that begin with a dot.
fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let cannot_list = || format!("cannot list {}", folder.display());
    if depth > MAX_DEPTH {
        return Err(anyhow::anyhow!("it is nested more than {MAX_DEPTH} folders deep"))
            .with_context(cannot_list);
    }
    for entry in fs::read_dir(folder).with_context(cannot_list)? {
        let entry = entry.with_context(cannot_list)?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // A link could lead back up.
        if entry.file_type().with_context(cannot_list)?.is_dir() {
            collect(&path, depth + 1, found)?;
        } else if policy_files::is_yaml(&path) {
            found.push(path);
        }
    }
    Ok(())
}

fn judge(path: &Path, suite: &Suite, now: Timestamp) -> anyhow::Result<Judged> {
    let ground = suite.prepare(path)?;
    for tie in &ground.policy().ties {
        warn(&format!("{}: {tie}", path.display()));
    }
    for idle in ground.idle() {
        warn(&format!("{}: policy {idle} does not match release {}", path.display(), ground.release()));
    }
    for doubt in ground.doubts() {
        warn(&format!("{}: {doubt}", path.display()));
    }
    let judged = suite.spec.cases.iter().map(|case| {
        let failure = case.judge(&ground, now).with_context(|| format!("case {:?}", case.name))?;
        Ok(CaseResult { name: case.name.clone(), failure })
    });
    let cases = judged.collect::<anyhow::Result<_>>()?;
    Ok(Judged { name: suite.name.clone(), file: path.to_owned(), cases })
}

impl Tally {
    fn add(&mut self, judged: Judged) {
        let failed = judged.cases.iter().filter(|case| case.failure.is_some()).count();
        self.failed += failed;
        self.passed += judged.cases.len() - failed;
        self.suites.push(judged);
    }

    /// JUnit's XML, which CI systems read.
    fn junit(&self, command: &str) -> anyhow::Result<String> {
        let values = json!({"command": command, "tally": self});
        output::render("junit.xml", include_str!("policy/junit.xml"), &values)
    }

    fn text(&self) -> Text {
        let mut text = Text::default();
        for Judged { name, file, cases } in &self.suites {
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

#[cfg(test)]
mod tests;
