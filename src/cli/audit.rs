//! `kubemoor audit`: who did what, when, and with which result, from a ledger's database or from a guard.
//! `--would-deny` also prints policies that permit exactly the releases, objects and fields of the listed changes.

mod report;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::connect::{self, ClusterArgs, GuardArgs, NamespacesArgs};
use super::list::Items;
use super::output::{self, Data, OutputFormat, Table, seconds};
use super::{CommandOutcome, warn};
use crate::app::settings::ConflictError;
use kubemoor_declare::model::{NamedObject, Operation};
use kubemoor_inspect::guard::ForwardedGuard;
use kubemoor_inspect::ledger::{self, COLUMNS, LedgerSource, add_new, changes, columns, plain};
use kubemoor_inspect::report::Sheet;
use kubemoor_inspect::times::AgeOrTime;
use kubemoor_ledger::entry::{EntryObject, LedgerEntry};
use kubemoor_ledger::query::{self, Filter};
use kubemoor_policy::resource::{IgnoreRule, MAX_PATHS, MAX_RULES, ReleaseSelector, TargetSpec};
use kubemoor_runtime::config::LedgerUrl;
use kubemoor_verdict::edit;

/// The outcomes of changes that passed and that `Deny` may refuse.
const PASSED: [edit::EditOutcome; 3] =
    [edit::EditOutcome::Record, edit::EditOutcome::Warn, edit::EditOutcome::Revert];

const HEAD: [&str; 8] = ["TIME", "VERDICT", "REASON", "RELEASE", "OBJECT", "OPERATION", "USER", "WHAT"];

/// The minimum widths of the columns, so that rows printed later align with earlier ones.
const WIDTHS: [usize; 7] = [20, 9, 13, 16, 22, 9, 12];

/// The number of fields that a table row names; the rest are counted.
const FIELDS: usize = 3;

/// How often the ledger is polled for new rows.
const EVERY: Duration = Duration::from_secs(2);

/// How far back new rows are looked for: a row is written a moment after its timestamp, or later if the database was
/// unavailable.
const OVERLAP: SignedDuration = SignedDuration::from_secs(15);

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<AuditCommand>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Show only the newest NUMBER rows; 0 for all
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    limit: u32,

    /// Print the rows, then new rows as they are added
    #[arg(long, short)]
    follow: bool,

    /// Show the changes that passed but that Deny would deny, and policies that would permit them
    #[arg(long)]
    would_deny: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: OutputFormat<AuditFormat>,

    /// Omit the column names
    #[arg(long)]
    no_headers: bool,

    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Report a period: denied changes, exceptions, repairs, time in drift
    Report(Box<report::Args>),
}

/// Filters of rows.
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
    since: AgeOrTime,

    /// Only rows before this time or age
    #[arg(long, value_name = "TIME")]
    until: Option<AgeOrTime>,
}

/// The flags that choose where rows come from.
#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
    /// Read this database: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    ledger: Option<LedgerUrl>,

    /// Ask the guard at this address (its --admin-listen) [default: a pod of the guard, through the API server]
    #[arg(long, env = "KUBEMOOR_SERVER", value_name = "URL", value_parser = parse_server)]
    server: Option<http::Uri>,

    /// The CA of the guard's certificate (PEM) [default: the guard's own; with --server the system's]
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,

    #[command(flatten)]
    guard: GuardArgs,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The output formats of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AuditFormat {
    /// For people
    Table,
    /// For spreadsheets
    Csv,
}

struct RowPrinter {
    form: OutputFormat<AuditFormat>,
    widths: Vec<usize>,
    has_head: bool,
    begun: bool,
    /// Whether more rows follow (`--follow`): then each row is printed as a document of its own instead of in a list.
    goes_on: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    match args.what {
        Some(AuditCommand::Report(args)) => connect::run(report::run(*args)),
        None => connect::run(audit(args)),
    }
}

async fn audit(args: Args) -> anyhow::Result<CommandOutcome> {
    args.check()?;
    let Args { what: _, filter, limit, follow, would_deny, output, no_headers, source } = args;
    let (source, namespace) = source.open().await?;
    let mut filter = filter.filter(namespace.as_deref(), Timestamp::now());
    let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let page = match would_deny {
        true => {
            filter.verdicts = PASSED.iter().map(|outcome| outcome.as_str().to_owned()).collect();
            ledger::rows(&source, &filter, most, LedgerEntry::would_be_denied).await?
        }
        false => ledger::rows(&source, &filter, most, |_| true).await?,
    };
    page.missing.iter().for_each(|sentence| warn(sentence));
    let (mut entries, is_cut) = (page.items, page.next.is_some());
    entries.reverse();
    if let Some(oldest) = entries.first().filter(|_| is_cut) {
        warn(&format!(
            "only the newest {limit} rows are shown: `--limit 0` shows all, `--until {}` older ones",
            oldest.time
        ));
    }
    let is_table = output == OutputFormat::People(AuditFormat::Table);
    let mut show = RowPrinter::new(output, follow, !no_headers);
    if would_deny {
        return output::write(&show.permits(&entries)?);
    }
    if entries.is_empty() && !follow && is_table {
        warn(&nothing(namespace.as_deref(), &filter));
        return Ok(CommandOutcome::Clean);
    }
    let is_open = output::stream(&show.rows(&entries)?)?;
    if follow && is_open {
        follow_rows(&source, filter, (entries.as_slice(), page.missing), show).await?;
    }
    Ok(CommandOutcome::Clean)
}

/// Prints the rows that are added after those that are already `shown`. Ends when the output is closed.
async fn follow_rows(
    source: &LedgerSource,
    mut filter: Filter,
    (shown, mut missing): (&[LedgerEntry], Vec<String>),
    mut show: RowPrinter,
) -> anyhow::Result<()> {
    // Only rows within the overlap can be returned again.
    let mut known: HashSet<i64> = shown.iter().map(|entry| entry.id).collect();
    let mut newest = shown.iter().map(|entry| entry.time).max();
    loop {
        tokio::time::sleep(EVERY).await;
        if let Some(newest) = newest {
            let from = newest.checked_sub(OVERLAP).unwrap_or(Timestamp::MIN);
            filter.since = filter.since.map(|since| since.max(from));
        }
        let page = ledger::rows(source, &filter, usize::MAX, |_| true).await?;
        let mut entries = page.items;
        page.missing.iter().filter(|it| !missing.contains(it)).for_each(|sentence| warn(sentence));
        add_new(&mut missing, page.missing);
        entries.reverse();
        let seen = entries.iter().map(|entry| entry.id).collect();
        entries.retain(|entry| !known.contains(&entry.id));
        known = seen;
        newest = newest.max(entries.last().map(|entry| entry.time));
        if !output::stream(&show.rows(&entries)?)? {
            return Ok(());
        }
    }
}

/// The message for an empty result, with the namespace and time that were searched.
fn nothing(namespace: Option<&str>, filter: &Filter) -> String {
    let since = filter.since.map(|since| format!(" since {}", seconds(since)));
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

impl Args {
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

impl SourceArgs {
    /// Checks that the flags can be combined. With `--ledger`, a guard's address in the environment has no effect.
    pub(super) fn check(&self) -> Result<(), ConflictError> {
        let authority = ("--certificate-authority", self.certificate_authority.is_some());
        ConflictError::check_exclusions([[("--ledger", self.ledger.is_some()), authority]])
    }

    /// Opens the source. Also returns the selected namespace, `None` for all.
    pub(super) async fn open(self) -> anyhow::Result<(LedgerSource, Option<String>)> {
        let Self { ledger, server, certificate_authority, guard, namespaces, cluster } = self;
        if let Some(url) = ledger {
            let source = LedgerSource::database(&url).await?;
            let namespace = namespaces.without_cluster(&cluster).await;
            let namespace =
                namespace.context("the kubeconfig sets no namespace: use -n NAMESPACE, or -A for all")?;
            return Ok((source, namespace));
        }
        let access = cluster.access();
        if access.user.is_some() {
            bail!(
                "a guard authenticates your own token or certificate and ignores impersonation: remove --as, \
                 or choose others with --context"
            );
        }
        let connection = cluster.connect().await?;
        let (connection, namespace) = namespaces.open(connection, None).await;
        let source = match server {
            Some(server) => LedgerSource::guard(&server, certificate_authority.as_deref(), &access).await?,
            None => {
                let forwarded = ForwardedGuard::new(connection, guard.place(), certificate_authority, access);
                LedgerSource::Forwarded(Box::new(forwarded))
            }
        };
        Ok((source, namespace))
    }
}

impl RowPrinter {
    fn new(form: OutputFormat<AuditFormat>, goes_on: bool, has_head: bool) -> Self {
        Self { form, widths: WIDTHS.to_vec(), has_head, begun: false, goes_on }
    }

    fn rows(&mut self, entries: &[LedgerEntry]) -> anyhow::Result<String> {
        match &self.form {
            OutputFormat::People(AuditFormat::Table) => Ok(self.table(entries)),
            OutputFormat::People(AuditFormat::Csv) => self.sheet(entries),
            OutputFormat::Data(data) if self.goes_on => {
                entries.iter().map(|entry| data.part(entry)).collect()
            }
            OutputFormat::Data(data) => data.text(&Items::new(entries)),
        }
    }

    /// The changes that passed and that mode Deny would refuse, with the policies that would permit them; in YAML and
    /// JSON only the policies.
    fn permits(&mut self, entries: &[LedgerEntry]) -> anyhow::Result<String> {
        let permits = permits(entries);
        let policies: Vec<_> = permits.iter().flat_map(Permit::policies).collect();
        match &self.form {
            // As documents of a policy file.
            OutputFormat::Data(Data::Yaml) => documents(&policies),
            OutputFormat::Data(data) => data.text(&Items::new(&policies)),
            OutputFormat::People(AuditFormat::Csv) => self.sheet(entries),
            OutputFormat::People(AuditFormat::Table) if entries.is_empty() => {
                Ok("Deny would not have refused any recorded change.\n".to_owned())
            }
            OutputFormat::People(AuditFormat::Table) => {
                let mut text = self.table(entries);
                text.push('\n');
                let uncovered = permits.iter().map(|permit| permit.uncovered).sum::<usize>();
                if !policies.is_empty() {
                    text.push_str(
                        "# Policies that would allow these changes. Allow only what is intended.\n",
                    );
                    text.push_str(&documents(&policies)?);
                }
                if uncovered > 0 {
                    let _ = writeln!(
                        text,
                        "# {uncovered} more would be refused, and ignored fields cannot allow them: \
                         deletions, records, changes too large to check."
                    );
                }
                Ok(text)
            }
        }
    }

    fn table(&mut self, entries: &[LedgerEntry]) -> String {
        let mut table = Table::with_min_widths(&self.widths);
        if !std::mem::replace(&mut self.begun, true) && self.has_head {
            table.row(HEAD);
        }
        for entry in entries {
            table.row(cells(entry));
        }
        self.widths = table.widths();
        table.text().as_str().to_owned()
    }

    fn sheet(&mut self, entries: &[LedgerEntry]) -> anyhow::Result<String> {
        let mut sheet = Sheet::new();
        if !std::mem::replace(&mut self.begun, true) && self.has_head {
            sheet.row(COLUMNS)?;
        }
        for entry in entries {
            sheet.row(columns(entry))?;
        }
        Ok(sheet.text()?)
    }
}

fn cells(entry: &LedgerEntry) -> [String; 8] {
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { plain(text) };
    let release = match (&entry.release, entry.revision) {
        (Some(name), Some(revision)) => format!("{}/{name} v{revision}", entry.namespace),
        _ => dash(""),
    };
    [
        seconds(entry.time),
        dash(&entry.verdict),
        dash(if entry.reason.is_empty() { &entry.kind } else { &entry.reason }),
        plain(&release),
        plain(&entry.object.short()),
        dash(entry.operation.as_deref().unwrap_or_default()),
        dash(&entry.user),
        what(entry, FIELDS),
    ]
}

/// The changed fields with their old and new values, then the detail text and the number of repetitions.
fn what(entry: &LedgerEntry, most: usize) -> String {
    let mut parts = changes(entry, most);
    let more = i64::try_from(entry.fields.len().saturating_sub(most)).unwrap_or(i64::MAX);
    let more = more.saturating_add(entry.more_fields);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    if !entry.detail.is_empty() {
        parts.push(plain(&entry.detail));
    }
    if entry.repeats > 0 {
        parts.push(format!("{} times more within a minute", entry.repeats));
    }
    parts.join("; ")
}

fn documents(policies: &[PermitPolicy]) -> anyhow::Result<String> {
    policies.iter().map(|policy| Data::Yaml.part(policy)).collect()
}

/// Parses a server's URL. It must be `https://`: a token is never sent unencrypted, and no guard answers plain HTTP.
pub(super) fn parse_server(text: &str) -> Result<http::Uri, &'static str> {
    let form = "a server must be https://HOST[:PORT]: a guard answers only over TLS";
    let uri: http::Uri = text.parse().map_err(|_| form)?;
    if uri.scheme_str() == Some("https")
        && uri.host().is_some_and(|host| !host.is_empty())
        && !text.contains(['?', '#', '@'])
    {
        return Ok(uri);
    }
    Err(form)
}

const API_VERSION: &str = "kubemoor.dev/v1alpha1";
const KIND: &str = "DriftPolicy";

/// A DriftPolicy that would permit the changes that passed, ready to apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct PermitPolicy {
    #[schemars(extend("const" = API_VERSION))]
    api_version: &'static str,
    #[schemars(extend("const" = KIND))]
    kind: &'static str,
    metadata: PermitName,
    spec: PermitSpec,
}

/// The metadata of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
struct PermitName {
    /// The name, from the release and its namespace; numbered if one policy is not enough.
    name: String,
}

/// The spec of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
struct PermitSpec {
    /// The release.
    releases: ReleaseSelector,
    /// The changed fields.
    ignore: Vec<IgnoreRule>,
}

type AuditedObject = (String, String, Option<String>, String);

/// What the policies must permit for the recorded changes of one release to pass.
pub(super) struct Permit {
    namespace: String,
    release: String,
    objects: BTreeMap<AuditedObject, BTreeSet<String>>,
    /// The number of changes that no ignored field would permit.
    pub(super) uncovered: usize,
}

pub(super) fn permits(entries: &[LedgerEntry]) -> Vec<Permit> {
    let mut permits: BTreeMap<(String, String), Permit> = BTreeMap::new();
    for entry in entries {
        let release = entry.release.clone().unwrap_or_default();
        let permit = permits.entry((entry.namespace.clone(), release.clone())).or_insert_with(|| Permit {
            namespace: entry.namespace.clone(),
            release,
            objects: BTreeMap::new(),
            uncovered: 0,
        });
        let covered = entry.release.is_some() && entry.more_fields == 0 && !entry.fields.is_empty();
        if !covered {
            permit.uncovered += 1;
            continue;
        }
        let EntryObject { group, kind, namespace, name } = entry.object.clone();
        let paths = permit.objects.entry((group, kind, namespace, name)).or_default();
        paths.extend(entry.fields.iter().map(|field| field.path.clone()));
    }
    permits.into_values().collect()
}

impl Permit {
    /// The policies, ready to apply: more than one only if the rules do not fit into one.
    pub(super) fn policies(&self) -> Vec<PermitPolicy> {
        let rules: Vec<IgnoreRule> = self.objects.iter().flat_map(rules).collect();
        let policies = rules.chunks(MAX_RULES).enumerate().map(|(before, ignore)| {
            let Self { namespace, release, .. } = self;
            let number = if before == 0 { String::new() } else { format!("-{}", before + 1) };
            PermitPolicy {
                api_version: API_VERSION,
                kind: KIND,
                metadata: PermitName { name: format!("permit-{namespace}-{release}{number}") },
                spec: PermitSpec {
                    releases: ReleaseSelector {
                        names: vec![release.clone()],
                        namespaces: vec![namespace.clone()],
                        ..ReleaseSelector::default()
                    },
                    ignore: ignore.to_vec(),
                },
            }
        });
        policies.collect()
    }
}

fn rules((object, paths): (&AuditedObject, &BTreeSet<String>)) -> Vec<IgnoreRule> {
    let (group, kind, namespace, name) = object;
    // Selectors are regular expressions: escape the dots of a name.
    let literal = |text: &str| Some(text.replace('.', "\\.")).filter(|text| !text.is_empty());
    let target = TargetSpec {
        group: literal(group),
        kind: Some(kind.clone()),
        namespace: namespace.clone(),
        name: literal(name),
        ..TargetSpec::default()
    };
    let paths: Vec<String> = paths.iter().cloned().collect();
    let rule = |paths: &[String]| IgnoreRule { target: Some(target.clone()), paths: paths.to_vec() };
    paths.chunks(MAX_PATHS).map(rule).collect()
}

#[cfg(test)]
mod tests;
