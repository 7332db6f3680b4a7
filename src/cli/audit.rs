//! `kubemoor audit`: lists who did what, when, and with which result.
//!
//! Entry point: [`run`]. Reads a ledger's database, or asks a guard over HTTPS with the credentials of the
//! kubeconfig. Invariant: rows are shown as they are stored, oldest first unless the user asks for another
//! order. The user is told when rows are left out. Nothing is written.

pub(super) mod permit;
mod report;
mod rows;
mod show;
pub(super) mod source;

use std::io::{self, Write};

use jiff::Timestamp;

use self::show::{People, Show};
use self::source::SourceArgs;
pub(super) use self::source::parse_server;
use super::connect;
use super::list::RowsArgs;
use super::output::Form;
use super::serve::ConflictError;
use super::{Outcome, warn};
use kubemoor_declare::model::{NamedObject, Operation};
use kubemoor_inspect::ledger;
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::{self, Filter};
use kubemoor_verdict::edit;

/// The outcomes under which an edit passes that `Deny` may refuse.
const PASSED: [edit::Outcome; 3] = [edit::Outcome::Record, edit::Outcome::Warn, edit::Outcome::Revert];

/// The flags of `kubemoor audit`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Show only the newest NUMBER rows; 0 for all
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    limit: u32,

    /// Print the rows, then new rows as they are added
    #[arg(long, short)]
    follow: bool,

    /// Show the changes that passed and that Deny would deny, and the policies that would permit them
    #[arg(long)]
    would_deny: bool,

    /// How the rows are printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Form<People>,

    #[command(flatten)]
    rows: RowsArgs,

    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Report a period: denied changes, exceptions, repairs, time in drift
    Report(Box<report::Args>),
}

/// Which rows.
#[derive(Debug, clap::Args)]
struct FilterArgs {
    /// Only rows of this cluster, by its guard's --cluster-name; with --ledger
    #[arg(long, value_name = "NAME", requires = "ledger")]
    cluster_name: Option<String>,

    /// Only this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,

    /// Only this object, such as deployment/web or deployments.apps/web
    #[arg(long, value_name = "KIND/NAME")]
    object: Option<NamedObject>,

    /// Only changes by this user
    #[arg(long, value_name = "USER")]
    by: Option<String>,

    /// Only this operation: CREATE, UPDATE or DELETE; may be repeated
    #[arg(long, value_name = "OPERATION", value_delimiter = ',', value_parser = query::parse_operation)]
    operation: Vec<Operation>,

    /// Only rows with this verdict: Deny, Warn, Record, Recreated, Failed, deployed ...; may be repeated
    #[arg(long, value_name = "VERDICT", value_delimiter = ',', value_parser = query::parse_verdict)]
    verdict: Vec<&'static str>,

    /// Only rows since this time or age: 30d, 24h, 90m, 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", default_value = "24h")]
    since: Moment,

    /// Only rows before this time or age
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(What::Report(args)) = args.what {
        return connect::run(report::run(*args));
    }
    match connect::run(audit(args)) {
        // A reader that went away (`| head`) is no error.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(is_broken_pipe) => Ok(Outcome::Clean),
        done => done.map(|()| Outcome::Clean),
    }
}

async fn audit(args: Args) -> anyhow::Result<()> {
    args.check()?;
    let Args { what: _, filter, limit, follow, would_deny, output, rows: list, source } = args;
    let (source, namespace) = source.open().await?;
    let mut filter = filter.filter(namespace.as_deref(), Timestamp::now());
    let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let page = match would_deny {
        true => {
            filter.verdicts = PASSED.iter().map(|outcome| outcome.as_str().to_owned()).collect();
            ledger::rows(&source, &filter, most, Entry::would_be_denied).await?
        }
        false => ledger::rows(&source, &filter, most, |_| true).await?,
    };
    source.unheard().iter().for_each(|sentence| warn(sentence));
    let (mut entries, is_cut) = (page.items, page.next.is_some());
    entries.reverse();
    if let Some(oldest) = entries.first().filter(|_| is_cut) {
        warn(&format!(
            "only the newest {limit} rows are shown: `--limit 0` shows all, `--until {}` those before",
            oldest.time
        ));
    }
    list.sort(&mut entries)?;
    let is_table = output == Form::People(People::Table);
    let mut show = Show::new(output, follow).with_headers(!list.no_headers);
    if would_deny {
        return put(&show.permits(&entries)?);
    }
    if entries.is_empty() && !follow && is_table {
        warn(&nothing(namespace.as_deref(), &filter));
        return Ok(());
    }
    put(&show.rows(&entries)?)?;
    match follow {
        true => rows::follow(&source, filter, &entries, show).await,
        false => Ok(()),
    }
}

/// The sentence for an empty result, with the place that was searched.
fn nothing(namespace: Option<&str>, filter: &Filter) -> String {
    let since = filter.since.map(|since| format!(" since {}", since.strftime("%Y-%m-%dT%H:%M:%SZ")));
    let since = since.unwrap_or_default();
    match namespace {
        Some(namespace) => {
            format!(
                "no rows found in namespace {namespace}{since}: `-A` looks in all namespaces, `--since` further back"
            )
        }
        None => format!("no rows found in any namespace{since}: `--since` looks further back"),
    }
}

/// Writes at once: a user who follows wants to see it.
fn put(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        if is_broken_pipe(&error) {
            return anyhow::Error::new(error);
        }
        anyhow::Error::new(error).context("cannot write to standard output")
    })
}

fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

impl Args {
    /// Whether the flags go together.
    fn check(&self) -> Result<(), ConflictError> {
        let would_deny = ("--would-deny", self.would_deny);
        let follow = ("--follow", self.follow);
        ConflictError::check_exclusions([
            [would_deny, follow],
            [would_deny, ("--verdict", !self.filter.verdict.is_empty())],
            [follow, ("--until", self.filter.until.is_some())],
        ])?;
        self.source.check()
    }
}

impl FilterArgs {
    /// The filter, seen from `now`.
    fn filter(self, namespace: Option<&str>, now: Timestamp) -> Filter {
        let Self { cluster_name, release, object, by, operation, verdict, since, until } = self;
        Filter {
            cluster: cluster_name,
            namespace: namespace.map(str::to_owned),
            release,
            user: by,
            verdicts: verdict.into_iter().map(str::to_owned).collect(),
            operations: operation,
            object,
            since: Some(since.time(now)),
            until: until.map(|until| until.time(now)),
            ..Filter::default()
        }
    }
}

#[cfg(test)]
mod tests;
