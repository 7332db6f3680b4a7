//! `kubemoor policy replay`: judges recorded changes by other policies, and lists the verdicts that would change.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::cli::audit::SourceArgs;
use crate::cli::check::OPERATION_TIMEOUT;
use crate::cli::output::{self, BAD, Form, GOOD, PLAIN, Table, Text};
use crate::cli::serve::ConflictError;
use crate::cli::{Outcome, policy_files, warn};
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_inspect::replay::{Changed, Judging, Key, REFUSED, Report};
use kubemoor_inspect::sheet::Sheet;
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::query::Filter;
use kubemoor_policy::Policy;

const HEAD: [&str; 8] = ["RELEASE", "USER", "FIELD", "WAS", "NOW", "RULE", "CHANGES", "LAST"];

/// The columns of a spreadsheet. They stay as they are: others may only be added behind them.
const COLUMNS: [&str; 12] = [
    "cluster",
    "namespace",
    "release",
    "user",
    "kind",
    "field",
    "was",
    "now",
    "rule",
    "changes",
    "first",
    "last",
];

/// How the answer is printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum People {
    /// For people
    Table,
    /// For spreadsheets: the verdicts that would change
    Csv,
}

/// The flags of `kubemoor policy replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory of the policies
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// How to answer a change that causes drift, unless a policy decides
    #[arg(long, value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,

    /// Only this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,

    /// Changes since this time or age: 30d, 24h, 90m, 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: Moment,

    /// Only changes before this time or age
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,

    /// How the answer is printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Form<People>,

    #[command(flatten)]
    source: SourceArgs,
}

impl Args {
    /// Whether the flags go together.
    fn check(&self) -> Result<(), ConflictError> {
        self.source.check()
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<Outcome> {
    args.check()?;
    let Args { directory, edits, release, since, until, output: form, source } = args;
    let accepted = policy_files::folder(&directory)?;
    if accepted.is_empty() {
        warn(&format!("no policy is in {}: {edits:?} holds for every release", directory.display()));
    }
    let defaults = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let (source, namespace) = source.open().await?;
    let now = Timestamp::now();
    let since = since.time(now);
    let filter = Filter {
        namespace,
        release,
        since: Some(since),
        until: until.map(|until| until.time(now)),
        facts: true,
        ..Filter::default()
    };
    let judging = Judging::start(defaults, accepted, since);
    source.each_page(filter, async |rows| judging.add(rows).await).await?;
    source.unheard().iter().for_each(|sentence| warn(sentence));
    let report = judging.finish().await?;
    output::write(&text(&report, &form)?)?;
    Ok(if report.refused == 0 { Outcome::Clean } else { Outcome::Found })
}

fn text(report: &Report, form: &Form<People>) -> anyhow::Result<String> {
    match form {
        Form::Data(data) => data.text(report),
        Form::People(People::Csv) => {
            for line in summary(report) {
                warn(&line);
            }
            sheet(report)
        }
        Form::People(People::Table) => Ok(table(report).as_str().to_owned()),
    }
}

fn sheet(report: &Report) -> anyhow::Result<String> {
    let mut sheet = Sheet::new();
    sheet.row(COLUMNS)?;
    for Changed { key, edits, first, last } in &report.changes {
        let Key { cluster, namespace, release, user, kind, field, was, now, rule } = key;
        let (edits, first, last) = (edits.to_string(), first.to_string(), last.to_string());
        let cells: [&str; 12] =
            [cluster, namespace, release, user, kind, field, was, now, rule, &edits, &first, &last];
        sheet.row(cells)?;
    }
    Ok(sheet.text()?)
}

fn table(report: &Report) -> Text {
    let mut text = Text::default();
    if !report.changes.is_empty() {
        let mut table = Table::new(HEAD);
        for Changed { key, edits, last, .. } in &report.changes {
            let Key { namespace, release, user, kind, field, was, now, rule, .. } = key;
            let refused = REFUSED.contains(now);
            let place = if field.is_empty() { "(the object)" } else { field };
            table.styled([
                (format!("{namespace}/{release}"), PLAIN),
                (user.clone(), PLAIN),
                (format!("{kind} {place}"), PLAIN),
                (was.clone(), PLAIN),
                ((*now).to_owned(), if refused { BAD } else { GOOD }),
                (rule.clone(), PLAIN),
                (edits.to_string(), PLAIN),
                (last.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), PLAIN),
            ]);
        }
        text.append(&table.text()).line();
    }
    for line in summary(report) {
        text.add(PLAIN, &line).line();
    }
    text
}

fn summary(report: &Report) -> Vec<String> {
    let Report { since, edits, replayed, refused, permitted, .. } = report;
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
    let mut lines = vec![
        format!("{edits} changes recorded since {since}, {replayed} judged by these policies:"),
        format!("  {refused} passed and would be refused"),
        format!("  {permitted} were refused and would pass"),
    ];
    lines.extend(report.unjudged().map(|(count, words)| format!("{count} not judged: {words}")));
    if report.more_changes > 0 {
        lines.push(format!("{} more changed verdicts are not listed", report.more_changes));
    }
    lines
}
