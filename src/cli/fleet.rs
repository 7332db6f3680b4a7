//! `kubemoor fleet`: the states of releases in many clusters, from the ledger that their guards share. Contacts no
//! cluster.

use anstyle::Style;
use anyhow::Context;
use jiff::Timestamp;

use super::CommandOutcome;
use super::connect::{self, parse_namespace, parse_release};
use super::list::{self, ListArgs, ListRow};
use super::output::{BAD, GOOD, NOTE, PLAIN, seconds};
use kubemoor_inspect::fleet::{self, ClusterRow, ReleaseRow};
use kubemoor_inspect::releases::{ReleaseFilter, parse_state};
use kubemoor_ledger::fleet::FleetFilter;
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::LedgerUrl;

const NO_LEDGER: &str = "fleet reads the PostgreSQL that the guards share: set it with --ledger, or ask each \
     cluster with `kubemoor get releases -A --contexts NAMES`";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<FleetCommand>,

    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Debug, clap::Subcommand)]
enum FleetCommand {
    /// List the releases of all clusters, or compare one release across them
    #[command(visible_alias = "release")]
    Releases(FleetReleasesArgs),
}

#[derive(Debug, clap::Args)]
struct FleetReleasesArgs {
    /// Compare this release across the clusters: revision, chart, values and drift
    #[arg(value_name = "RELEASE", value_parser = parse_release)]
    release: Option<String>,

    #[command(flatten)]
    fleet: FleetArgs,
}

/// Filters of clusters and their releases.
#[derive(Debug, clap::Args)]
struct FleetArgs {
    #[command(flatten)]
    list: ListArgs,

    /// Only this cluster, by its --cluster-name; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cluster: Vec<String>,

    /// Only releases in this state: drifted, in-sync, stale, or another reason of the list; may be repeated
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = parse_state)]
    state: Vec<ReleaseFilter>,

    /// Only releases in this namespace [default: all namespaces]
    #[arg(long, short, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<String>,

    /// The PostgreSQL database that the guards share: postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    ledger: Option<LedgerUrl>,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    match args.what {
        Some(FleetCommand::Releases(FleetReleasesArgs { release, fleet })) => {
            connect::run(list(release, fleet))
        }
        None => connect::run(overview(args.fleet)),
    }
}

async fn overview(args: FleetArgs) -> anyhow::Result<CommandOutcome> {
    let rows = fleet::clusters(&args.store().await?, &args.filter(None), &args.state).await?;
    list::print(&args.list, &rows, true, "no cluster found: give each guard the same PostgreSQL as --ledger")
}

async fn list(release: Option<String>, args: FleetArgs) -> anyhow::Result<CommandOutcome> {
    let what = release.as_ref().map_or("releases".to_owned(), |name| format!("release {name}"));
    let rows = fleet::ledger_releases(&args.store().await?, &args.filter(release), &args.state).await?;
    list::print(&args.list, &rows, true, &format!("no {what} found in any cluster"))
}

impl FleetArgs {
    async fn store(&self) -> anyhow::Result<Store> {
        Ok(Store::read(self.ledger.as_ref().context(NO_LEDGER)?).await?)
    }

    fn filter(&self, release: Option<String>) -> FleetFilter {
        FleetFilter { clusters: self.cluster.clone(), namespace: self.namespace.clone(), release }
    }
}

impl ListRow for ClusterRow {
    const RESOURCE: &'static str = "cluster";
    const COLUMNS: &'static str = "cluster releases drifted states oldestDrift version certificateUntil lastSeen \
        staleSince";
    const HEAD: &'static str =
        "CLUSTER,RELEASES,DRIFTED,OLDEST DRIFT,GUARD,CERTIFICATE UNTIL,LAST HEARD,STATES";

    fn key(&self) -> (&str, &str) {
        ("", &self.cluster)
    }

    fn cells(&self) -> Vec<(String, Style)> {
        let heard = match self.stale_since {
            Some(since) => (format!("stale since {}", seconds(since)), BAD),
            None => (time(self.last_seen), PLAIN),
        };
        let drifted = if self.drifted > 0 { BAD } else { GOOD };
        let states = fleet::states([self]).into_iter().map(|(state, count)| format!("{state} {count}"));
        vec![
            (self.cluster.clone(), PLAIN),
            (self.releases.to_string(), PLAIN),
            (self.drifted.to_string(), drifted),
            (time(self.oldest_drift), PLAIN),
            (self.version.clone().unwrap_or_else(|| "-".to_owned()), PLAIN),
            (time(self.certificate_until), PLAIN),
            heard,
            (states.collect::<Vec<_>>().join(", "), PLAIN),
        ]
    }
}

impl ListRow for ReleaseRow {
    const RESOURCE: &'static str = "release";
    const COLUMNS: &'static str = "cluster namespace name ready reason revision chart values drifted oldestDrift edits \
        drift staleSince differs message";
    const HEAD: &'static str = "CLUSTER,NAMESPACE,NAME,READY,REASON,REVISION,CHART,VALUES,DRIFTED,OLDEST DRIFT,DIFFERS,\
        +EDITS,+DRIFT,+MESSAGE";

    fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn cells(&self) -> Vec<(String, Style)> {
        let style = match (self.stale_since, self.ready.as_deref()) {
            (None, Some("True")) => GOOD,
            (None, Some("False")) => BAD,
            (_, _) => NOTE,
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reason = match self.stale_since {
            Some(since) if self.reason != "Stale" => {
                format!("{}, stale since {}", self.reason, seconds(since))
            }
            _ => self.reason.clone(),
        };
        vec![
            (self.cluster.clone(), PLAIN),
            (self.namespace.clone(), PLAIN),
            (self.name.clone(), PLAIN),
            (text(&self.ready), style),
            (reason, style),
            (self.revision.map_or_else(|| "-".to_owned(), |it| it.to_string()), PLAIN),
            (text(&self.chart), PLAIN),
            (text(&self.values), PLAIN),
            (self.drifted.to_string(), if self.drifted > 0 { BAD } else { PLAIN }),
            (time(self.oldest_drift), PLAIN),
            (if self.differs.is_empty() { "-".to_owned() } else { self.differs.join(",") }, NOTE),
            (text(&self.edits), PLAIN),
            (text(&self.drift), PLAIN),
            (self.message.clone(), PLAIN),
        ]
    }
}

fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".to_owned(), seconds)
}
