//! `kubemoor policy replay`: judges recorded changes by other policies.
//!
//! Entry point: [`run`]. Invariant: the verdicts are those of [`kubemoor_verdict::replay`]. A change that it
//! cannot judge is counted and never shown as a verdict.

mod show;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread::available_parallelism;

use jiff::Timestamp;

use self::show::People;
use crate::cli::audit::source::SourceArgs;
use crate::cli::check::OPERATION_TIMEOUT;
use crate::cli::output::{self, Form};
use crate::cli::serve::ConflictError;
use crate::cli::{Outcome, policy_files, warn};
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_inspect::replay::{Judges, Judging};
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::query::Filter;
use kubemoor_policy::Policy;

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
    let threads = available_parallelism().map_or(1, NonZeroUsize::get);
    let defaults = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let judges = Judges::new(threads, &defaults, &accepted);
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
    let judging = Judging::start(judges, since);
    source.each_page(filter, async |rows| judging.add(rows).await).await?;
    source.unheard().iter().for_each(|sentence| warn(sentence));
    let report = judging.finish().await?;
    output::write(&show::text(&report, &form)?)?;
    Ok(if report.refused == 0 { Outcome::Clean } else { Outcome::Found })
}
