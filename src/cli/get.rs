//! `kubemoor get`: lists releases, temporary exceptions and policies, read with the user's own rights.

use anstyle::Style;
use anyhow::bail;
use jiff::Timestamp;

use super::connect::{
    self, CLUSTER_PATIENCE, ClusterArgs, ContextsArgs, NamespacesArgs, RecordArgs, query_clusters,
    warn_of_guard,
};
use super::list::{self, Follow, InCluster, ListArgs, ListRow, SelectorArgs, changes, nothing};
use super::output::{BAD, GOOD, NOTE, PLAIN};
use super::{CommandOutcome, warn};
use kubemoor_cluster::client::allowances::allowance_resource;
use kubemoor_cluster::client::connection::{self, ClusterAccess, ClusterConnection};
use kubemoor_cluster::client::guarded;
use kubemoor_inspect::exceptions::{self, AllowanceState, ListedAllowance};
use kubemoor_inspect::policies::{self, ListedPolicy};
use kubemoor_inspect::reading::{ClusterReader, LeaseCache};
use kubemoor_inspect::releases::{self, ListedRelease, NOT_GUARDED, ReleaseFilter, ReleaseList, parse_state};
use kubemoor_policy::resolver::Labels;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: GetResource,
}

#[derive(Debug, clap::Subcommand)]
enum GetResource {
    /// List temporary exceptions
    #[command(visible_aliases = ["allowance", "exceptions", "exception"])]
    Allowances(AllowancesArgs),
    /// List policies, and whether they are in force
    #[command(visible_alias = "policy")]
    Policies(PoliciesArgs),
    /// List releases, their state, and which are not guarded and why
    #[command(visible_alias = "release")]
    Releases(ReleasesArgs),
}

/// The flags of each list.
#[derive(Debug, clap::Args)]
struct WatchedListArgs {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    selector: SelectorArgs,

    /// Print the list, then each new or changed row
    #[arg(long, short = 'w')]
    watch: bool,
}

#[derive(Debug, clap::Args)]
struct AllowancesArgs {
    #[command(flatten)]
    what: WatchedListArgs,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, clap::Args)]
struct PoliciesArgs {
    #[command(flatten)]
    what: WatchedListArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, clap::Args)]
struct ReleasesArgs {
    #[command(flatten)]
    what: WatchedListArgs,

    /// Only releases in this state: drifted, in-sync, not-guarded, or another reason of the list; may be repeated
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = parse_state)]
    state: Vec<ReleaseFilter>,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    contexts: ContextsArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    match args.what {
        GetResource::Allowances(args) => connect::run(list_allowances(args)),
        GetResource::Policies(args) => connect::run(list_policies(args)),
        GetResource::Releases(args) if !args.contexts.is_empty() => connect::run(list_everywhere(args)),
        GetResource::Releases(args) => connect::run(list_releases(args)),
    }
}

/// Prints the allowances; with `--watch` also each that is added, changed or deleted.
async fn list_allowances(args: AllowancesArgs) -> anyhow::Result<CommandOutcome> {
    let AllowancesArgs { what: WatchedListArgs { list, selector, watch }, namespaces, cluster } = args;
    let (connection, namespace) = namespaces.open(cluster.connect().await?, None).await;
    let (namespace, labels) = (namespace.as_deref(), selector.labels.as_deref());
    let rows = exceptions::read(&connection, namespace, labels, Timestamp::now()).await?;
    if !watch {
        return print(&list, &rows, "allowances", namespace);
    }
    let mut follow = Follow::begin(list, &rows, namespace)?;
    let (resource, doing) = (allowance_resource(), "watch the allowances");
    changes(&connection, (&resource, namespace, labels), doing, async |object, is_gone| {
        // Skip an object that does not match the CRD.
        let Ok(allowance) = serde_json::from_value(object) else { return Ok(true) };
        let mut row = ListedAllowance::from_resource(allowance, Timestamp::now());
        if is_gone {
            row.state = AllowanceState::Deleted;
        }
        follow.print(&row)
    })
    .await
}

/// Prints the policies; with `--watch` also each that is added, changed or deleted.
async fn list_policies(args: PoliciesArgs) -> anyhow::Result<CommandOutcome> {
    let PoliciesArgs { what: WatchedListArgs { list, selector, watch }, cluster } = args;
    let connection = cluster.connect().await?;
    let labels = selector.labels.as_deref();
    warn_of_guard(&connection, None, None).await;
    let rows = policies::read(&connection, labels).await?;
    if !watch {
        return print(&list, &rows, "policies", None);
    }
    let mut follow = Follow::begin(list, &rows, None)?;
    let (resource, doing) = (guarded::policy_resource(), "watch the policies");
    changes(&connection, (&resource, None, labels), doing, async |policy, is_gone| {
        follow.print(&if is_gone {
            ListedPolicy::deleted(&policy)
        } else {
            ListedPolicy::from_resource(&policy)
        })
    })
    .await
}

/// Prints the releases; with `--watch` also each whose GuardedRelease is added, changed or deleted.
async fn list_releases(args: ReleasesArgs) -> anyhow::Result<CommandOutcome> {
    let (reader, namespace, rows) = args.read(args.cluster.connect().await?, None).await?;
    let WatchedListArgs { list, selector, watch } = &args.what;
    let (namespace, labels) = (namespace.as_deref(), selector.labels.as_deref());
    if !watch {
        return print(list, &rows, "releases", namespace);
    }
    let mut selected = match labels {
        Some(labels) => reader.labelled(namespace, labels).await?,
        None => Default::default(),
    };
    let mut follow = Follow::begin(list.clone(), &rows, namespace)?;
    let (resource, doing) = (guarded::resource(), "watch the GuardedReleases");
    changes(&reader.connection, (&resource, namespace, None), doing, async |object, is_gone| {
        let Some(guarded) = guarded::typed(object) else { return Ok(true) };
        let Some(release) = guarded.release() else { return Ok(true) };
        if let Some(labels) = labels
            && !selected.contains(&release)
        {
            // The labels are those of records, and a new record may match.
            selected = reader.labelled(namespace, labels).await?;
            if !selected.contains(&release) {
                return Ok(true);
            }
        }
        let row = match is_gone {
            true => ListedRelease::unguarded(release, "its GuardedRelease was deleted".to_owned()),
            false => {
                // Read the Lease again each time: a cached one would be stale.
                let pulses = LeaseCache::new(reader.connection.client.clone());
                ListedRelease::current(&pulses, release, *guarded).await
            }
        };
        if args.is_wanted(&row) { follow.print(&row) } else { Ok(true) }
    })
    .await
}

/// Prints the releases of several clusters. One that fails does not affect the others.
async fn list_everywhere(args: ReleasesArgs) -> anyhow::Result<CommandOutcome> {
    if args.what.watch {
        bail!("--watch follows one cluster: choose it with --context");
    }
    let ask = async |name: &str, access: ClusterAccess| {
        let (_, _, rows) = args.read(connection::connect_by(&access).await?, Some(name)).await?;
        Ok(rows)
    };
    let (found, incomplete) =
        query_clusters(args.contexts.clusters(&args.cluster), CLUSTER_PATIENCE, ask).await;
    let of_cluster = |(cluster, rows): (String, Vec<ListedRelease>)| {
        rows.into_iter().map(move |row| InCluster { cluster: cluster.clone(), row })
    };
    let rows: Vec<_> = found.into_iter().flat_map(of_cluster).collect();
    let outcome = print(&args.what.list, &rows, "releases", args.namespaces.named())?;
    incomplete.map_or(Ok(outcome), Err)
}

fn print<T: ListRow>(
    list: &ListArgs,
    rows: &[T],
    what: &str,
    namespace: Option<&str>,
) -> anyhow::Result<CommandOutcome> {
    list::print(list, rows, namespace.is_none(), &nothing(what, namespace))
}

impl ReleasesArgs {
    /// Reads the selected releases of a cluster. `name` is its name if there are several. Also returns the namespace,
    /// `None` for all.
    async fn read(
        &self,
        connection: ClusterConnection,
        name: Option<&str>,
    ) -> anyhow::Result<(ClusterReader, Option<String>, Vec<ListedRelease>)> {
        let (connection, namespace) = self.namespaces.open(connection, name).await;
        let reader = ClusterReader::new(connection, self.records.record_driver, &Labels::new()).await?;
        let labels = self.what.selector.labels.as_deref();
        let ReleaseList { mut rows, notes } = releases::read(&reader, namespace.as_deref(), labels).await?;
        let about = name.map(|name| format!("{name}: ")).unwrap_or_default();
        notes.iter().for_each(|note| warn(&format!("{about}{note}")));
        rows.retain(|row| self.is_wanted(row));
        Ok((reader, namespace, rows))
    }

    fn is_wanted(&self, row: &ListedRelease) -> bool {
        self.state.is_empty() || self.state.iter().any(|state| state.is_of(row))
    }
}

impl ListRow for ListedRelease {
    const RESOURCE: &'static str = "release";
    const COLUMNS: &'static str = "namespace name guarded ready reason revision drifted declared edits drift oldestDrift \
        staleSince message";
    const HEAD: &'static str = "NAMESPACE,NAME,READY,REASON,REVISION,DRIFTED,EDITS,DRIFT,+OBJECTS,+MATCHING,+IN DOUBT,\
        +ALLOWED,MESSAGE";

    fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn cells(&self) -> Vec<(String, Style)> {
        let style = match (self.guarded, self.ready.as_deref()) {
            (false, _) | (true, Some("Unknown") | None) => NOTE,
            (true, Some("True")) => GOOD,
            (true, Some(_)) => BAD,
        };
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reason = if self.guarded { text(&self.reason) } else { NOT_GUARDED.to_owned() };
        let counts = self.counts.as_ref();
        vec![
            (self.namespace.clone(), PLAIN),
            (self.name.clone(), PLAIN),
            (text(&self.ready), style),
            (reason, style),
            (number(self.revision), PLAIN),
            (number(self.drifted), PLAIN),
            (text(&self.edits), PLAIN),
            (text(&self.drift), PLAIN),
            (number(self.declared), PLAIN),
            (number(counts.map(|it| it.matching)), PLAIN),
            (number(counts.map(|it| it.in_doubt)), PLAIN),
            (number(counts.map(|it| it.allowed)), PLAIN),
            (self.message.clone(), PLAIN),
        ]
    }
}

impl ListRow for ListedAllowance {
    const RESOURCE: &'static str = "driftallowance.kubemoor.dev";
    const HEAD: &'static str = "?NAMESPACE,NAME,OBJECT,PATHS,UNTIL,STATE,BY,REASON,+FLAWS";
    const COLUMNS: &'static str = "namespace name object.kind object.name paths until state by reason flaws";

    fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn cells(&self) -> Vec<(String, Style)> {
        let state = match self.state {
            AllowanceState::Open => ("Open", GOOD),
            AllowanceState::Ended => ("Ended", PLAIN),
            AllowanceState::Invalid => ("Invalid", BAD),
            AllowanceState::Deleted => ("Deleted", PLAIN),
        };
        let plain = |text: &str| (text.to_owned(), PLAIN);
        vec![
            plain(&self.namespace),
            plain(&self.name),
            plain(&format!("{}/{}", self.object.kind, self.object.name)),
            plain(&self.paths.join(",")),
            plain(&self.until),
            (state.0.to_owned(), state.1),
            plain(&self.by),
            plain(&self.reason),
            plain(&self.flaws.join("; ")),
        ]
    }
}

impl ListRow for ListedPolicy {
    const RESOURCE: &'static str = "driftpolicy.kubemoor.dev";
    const COLUMNS: &'static str = "name priority edits drift accepted reason releases namespaces message";
    const HEAD: &'static str = "NAME,PRIORITY,EDITS,DRIFT,ACCEPTED,REASON,+RELEASES,+NAMESPACES,MESSAGE";

    fn key(&self) -> (&str, &str) {
        ("", &self.name)
    }

    fn cells(&self) -> Vec<(String, Style)> {
        let plain = |text: &str| (if text.is_empty() { "-" } else { text }.to_owned(), PLAIN);
        let style = match self.accepted.as_str() {
            "True" => GOOD,
            "False" => BAD,
            _ => NOTE,
        };
        let globs = |globs: &[String]| if globs.is_empty() { "*".to_owned() } else { globs.join(",") };
        vec![
            plain(&self.name),
            plain(&self.priority.to_string()),
            plain(self.edits.as_deref().unwrap_or_default()),
            plain(self.drift.as_deref().unwrap_or_default()),
            (self.accepted.clone(), style),
            plain(&self.reason),
            plain(&globs(&self.releases)),
            plain(&globs(&self.namespaces)),
            // An accepted policy without a problem needs no message.
            plain(if self.reason == "Accepted" { "" } else { &self.told }),
        ]
    }
}

#[cfg(test)]
mod tests;
