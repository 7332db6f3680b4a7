//! `kubemoor audit report`: a period of the ledger for people who were not there.
//!
//! Entry point: [`run`]. Invariant: what users wrote (names, reasons, annotations) is text in every
//! form of the report, never markup, script or a formula.

mod html;
mod markdown;
mod section;
mod table;

use jiff::Timestamp;

use super::source::SourceArgs;
use crate::cli::serve::ConflictError;
use crate::cli::{Outcome, output, warn};
use kubemoor_inspect::ledger::facts::{self, Facts, Period};
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::query::Filter;

/// The flags of `kubemoor audit report`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,

    /// From this time or age on: 30d, 24h, 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", default_value = "30d")]
    since: Moment,

    /// Up to this time or age [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,

    /// The form of the report
    #[arg(long, short, value_name = "FORMAT", default_value = "md")]
    output: Form,

    #[command(flatten)]
    source: SourceArgs,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// One page for a browser or a printer, with charts
    Html,
    /// Markdown
    Md,
    /// For spreadsheets
    Csv,
}

impl Args {
    /// Whether the flags go together.
    pub(super) fn check(&self) -> Result<(), ConflictError> {
        self.source.check()
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<Outcome> {
    args.check()?;
    let Args { release, since, until, output: form, source } = args;
    let (source, namespace) = source.open().await?;
    let now = Timestamp::now();
    let period = Period { since: since.time(now), until: until.map_or(now, |until| until.time(now)) };
    let mut facts = Facts::new(period, namespace.clone(), release.clone());
    let filter = Filter {
        namespace,
        release,
        verdicts: facts::VERDICTS.map(str::to_owned).to_vec(),
        since: Some(period.since),
        until: Some(period.until),
        ..Filter::default()
    };
    source.each(filter, |entry| facts.add(&entry)).await?;
    source.unheard().iter().for_each(|sentence| warn(sentence));
    let report = facts.finish();
    output::write(&match form {
        Form::Html => html::page(&report)?,
        Form::Md => markdown::text(&report),
        Form::Csv => table::text(&report)?,
    })
}

#[cfg(test)]
mod tests;
