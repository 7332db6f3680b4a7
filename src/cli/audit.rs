//! `kubemoor audit`: who did what, when, and what became of it.
//!
//! Entry point: [`run`]. Reads a ledger's database, or asks a guard over HTTPS
//! with the credentials of the kubeconfig. Invariant: rows are shown as they
//! are kept, the oldest first; nothing is written anywhere.

mod permit;
mod show;
mod source;

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};

use self::show::Show;
use self::source::Source;
use super::connect::{self, ClusterArgs};
use super::output::Format;
use super::serve::ConflictError;
use super::{Outcome, warn};
use crate::config::LedgerUrl;
use crate::ledger::entry::Entry;
use crate::ledger::query::{Filter, PAGE};
use crate::verdict::edit;

/// Where `kubectl port-forward` leads to the guard.
const SERVER: &str = "https://localhost:9080";

/// The outcomes under which an edit passes that `Deny` may refuse.
const PASSED: [edit::Outcome; 3] = [edit::Outcome::Record, edit::Outcome::Warn, edit::Outcome::Revert];

/// How often it is looked for new rows.
const EVERY: Duration = Duration::from_secs(2);

/// A row is written a moment after its time, and a database that was away for a
/// moment takes it later still: that far back new rows are looked for.
const OVERLAP: SignedDuration = SignedDuration::from_secs(15);

/// The flags of `kubemoor audit`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Read this database: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    ledger: Option<LedgerUrl>,

    /// Ask the guard at this address (its --admin-listen), with the kubeconfig's credentials [default: https://localhost:9080]
    #[arg(long, env = "KUBEMOOR_SERVER", value_name = "URL", value_parser = source::parse_server)]
    server: Option<http::Uri>,

    /// The CA of the guard's certificate (PEM) [default: the system's]
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// Only this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,

    /// Only the releases of this namespace; without it all, which needs the right to all
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Only changes by this user
    #[arg(long = "user", value_name = "USER")]
    editor: Option<String>,

    /// Show rows since this time or age: 24h, 90m, 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_since)]
    since: Since,

    /// Only rows with this verdict: Deny, Warn, Record, Recreated, Failed, deployed ...
    #[arg(long, value_name = "VERDICT")]
    verdict: Option<String>,

    /// Show at most NUMBER rows, newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Watch for new rows
    #[arg(long, short)]
    follow: bool,

    /// Show the changes that passed and that Deny would deny, and the policies that would permit them
    #[arg(long)]
    would_deny: bool,

    /// How to print: table, json (a row on each line) or yaml (a document for each row)
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Ago(Duration),
    At(Timestamp),
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match connect::run(audit(args)) {
        // A reader that went away (`| head`) is no error.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(is_broken_pipe) => Ok(Outcome::Clean),
        done => done.map(|()| Outcome::Clean),
    }
}

async fn audit(args: Args) -> anyhow::Result<()> {
    args.check()?;
    let Args { ledger, server, certificate_authority, cluster, release, namespace, editor, .. } = args;
    let source = open(ledger, server, certificate_authority, cluster).await?;
    let since = Some(args.since.time(Timestamp::now()));
    let verdict = args.verdict;
    let filter = Filter { namespace, release, user: editor, verdict, since, ..Filter::default() };
    let (mut entries, more) = match args.would_deny {
        true => denied_entries(&source, &filter, args.limit).await?,
        false => rows(&source, &filter, args.limit).await?,
    };
    entries.reverse();
    if more {
        warn(&format!(
            "there are more rows; the newest {} are shown: give --limit or narrow the filter",
            args.limit
        ));
    }
    let mut show = Show::new(args.output);
    if args.would_deny {
        return put(&show.permits(&entries)?);
    }
    put(&show.rows(&entries)?)?;
    match args.follow {
        true => follow(&source, filter, &entries, show).await,
        false => Ok(()),
    }
}

async fn open(
    ledger: Option<LedgerUrl>,
    server: Option<http::Uri>,
    authority: Option<PathBuf>,
    cluster: ClusterArgs,
) -> anyhow::Result<Source> {
    if let Some(url) = ledger {
        return Source::database(&url).await;
    }
    let server = server.unwrap_or_else(|| http::Uri::from_static(SERVER));
    let access = cluster.access();
    if access.user.is_some() {
        bail!(
            "a guard asks whose your token is, not whom you act as: leave --as out, or choose others with --context"
        );
    }
    Source::guard(server, authority.as_deref(), &access).await
}

/// Shows the rows that are added to those that are `shown` already. Ends with an error alone.
async fn follow(source: &Source, mut filter: Filter, shown: &[Entry], mut show: Show) -> anyhow::Result<()> {
    // Only rows within the overlap can come again.
    let mut known: HashSet<i64> = shown.iter().map(|entry| entry.id).collect();
    let mut newest = shown.last().map(|entry| entry.time);
    loop {
        tokio::time::sleep(EVERY).await;
        if let Some(newest) = newest {
            let from = newest.checked_sub(OVERLAP).unwrap_or(Timestamp::MIN);
            filter.since = filter.since.map(|since| since.max(from));
        }
        let (mut entries, _) = rows(source, &filter, u32::MAX).await?;
        entries.reverse();
        let seen = entries.iter().map(|entry| entry.id).collect();
        entries.retain(|entry| !known.contains(&entry.id));
        known = seen;
        newest = newest.max(entries.last().map(|entry| entry.time));
        put(&show.rows(&entries)?)?;
    }
}

/// Of the edits that passed the newest that Deny would have refused, newest first, and
/// whether there may be more.
async fn denied_entries(source: &Source, filter: &Filter, limit: u32) -> anyhow::Result<(Vec<Entry>, bool)> {
    let (mut found, mut any_more) = (Vec::new(), false);
    for outcome in PASSED {
        let filter = Filter { verdict: Some(outcome.as_str().to_owned()), ..filter.clone() };
        let (entries, more) = rows(source, &filter, limit).await?;
        any_more |= more;
        found.extend(entries.into_iter().filter(Entry::would_be_denied));
    }
    found.sort_by_key(|entry| std::cmp::Reverse(entry.id));
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    any_more |= found.len() > most;
    found.truncate(most);
    Ok((found, any_more))
}

/// The newest rows, newest first, and whether there are more.
async fn rows(source: &Source, filter: &Filter, limit: u32) -> anyhow::Result<(Vec<Entry>, bool)> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut filter = filter.clone();
    loop {
        let left = limit.saturating_sub(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        filter.limit = Some(left.min(PAGE));
        let page = source.page(&filter).await?;
        entries.extend(page.items);
        let Some(next) = page.next else { return Ok((entries, false)) };
        if entries.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
            return Ok((entries, true));
        }
        filter.before = Some(
            next.parse().context("the ledger's answer names no next page; use a program of its version")?,
        );
    }
}

/// Writes at once: whoever follows wants to see it.
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
        let ledger = ("--ledger", self.ledger.is_some());
        let would_deny = ("--would-deny", self.would_deny);
        ConflictError::check_exclusions([
            [ledger, ("--server", self.server.is_some())],
            [ledger, ("--certificate-authority", self.certificate_authority.is_some())],
            [would_deny, ("--follow", self.follow)],
            [would_deny, ("--verdict", self.verdict.is_some())],
        ])
    }
}

impl Since {
    fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(age) => {
                let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
                now.checked_sub(age).unwrap_or(Timestamp::MIN)
            }
        }
    }
}

fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(time) = text.parse() {
        return Ok(Since::At(time));
    }
    let age: Option<SignedDuration> = text.parse().ok();
    let age = age.and_then(|age| Duration::try_from(age).ok()).filter(|age| !age.is_zero());
    age.map(Since::Ago).ok_or_else(|| {
        "give a time back from now, such as 24h or 90m, or a moment, such as 2026-11-21T08:00:00Z".to_owned()
    })
}

#[cfg(test)]
mod tests;
