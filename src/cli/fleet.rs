//! `kubemoor fleet`: shows the states of releases in many clusters.
//!
//! Entry point: [`run`]. Invariant: reads only. With the guards' shared ledger no cluster is contacted. With
//! several contexts each one fails alone.

mod clusters;
mod releases;
mod show;

use std::path::PathBuf;

use anyhow::bail;
use clap_complete::ArgValueCandidates;

use self::show::People;
use super::connect::{self, RecordArgs, RequestArgs, parse_namespace, parse_release};
use super::contexts::{self, Answers};
use super::list::RowsArgs;
use super::output::Form;
use super::{Outcome, candidates};
use kubemoor_cluster::client::connection::{self, Access};
use kubemoor_inspect::fleet::{self, Asked, ClusterRow, ReleaseRow, Wanted};
use kubemoor_inspect::releases::{State, parse_state};
use kubemoor_ledger::store::{Store, fresh_key};
use kubemoor_runtime::config::LedgerUrl;

/// The flags of `kubemoor fleet`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the releases of all clusters, or compare one release across them
    #[command(visible_alias = "release")]
    Releases(ReleasesArgs),
}

/// The flags of `kubemoor fleet releases`.
#[derive(Debug, clap::Args)]
struct ReleasesArgs {
    /// Compare this release across the clusters: revision, chart, values and drift
    #[arg(value_name = "RELEASE", value_parser = parse_release)]
    release: Option<String>,

    #[command(flatten)]
    fleet: FleetArgs,
}

/// Which clusters, and which of their releases.
#[derive(Debug, clap::Args)]
struct FleetArgs {
    /// How the answer is printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Form<People>,

    #[command(flatten)]
    rows: RowsArgs,

    /// Only this cluster, by its --cluster-name or its context; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cluster: Vec<String>,

    /// Only releases in this state: drifted, in-sync, stale, or another reason of the list; may be repeated
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = parse_state)]
    state: Vec<State>,

    /// Only releases of this namespace [default: of all]
    #[arg(long, short, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<String>,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    source: SourceArgs,
}

/// Where the answer comes from.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clusters")]
struct SourceArgs {
    /// Read the PostgreSQL that the guards share, and ask no cluster: postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL", conflicts_with_all = ["contexts", "kubeconfig", "user", "request_timeout"])]
    ledger: Option<LedgerUrl>,

    /// The contexts of the kubeconfig whose clusters are asked [default: all that answer]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', add = ArgValueCandidates::new(candidates::contexts))]
    contexts: Vec<String>,

    /// The kubeconfig [default: kubectl's, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The user to act as
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,

    /// A group to act as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,

    #[command(flatten)]
    requests: RequestArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.what {
        Some(What::Releases(ReleasesArgs { release, fleet })) => connect::run(list(release, fleet)),
        None => connect::run(overview(args.fleet)),
    }
}

/// Prints the clusters.
async fn overview(args: FleetArgs) -> anyhow::Result<Outcome> {
    let wanted = args.wanted(None);
    let nothing = "no cluster found: give each guard the same PostgreSQL as --ledger, or name contexts";
    if let Some(url) = &args.source.ledger {
        let rows = fleet::clusters(&Store::read(url).await?, &wanted).await?;
        return show::print((&args.output, &args.rows), rows, nothing);
    }
    let is_asked_for = !args.source.contexts.is_empty();
    let answers = args.ask(&wanted).await?;
    let failed = answers.incomplete().filter(|_| is_asked_for || answers.found.is_empty());
    let mut rows: Vec<ClusterRow> = answers.found.into_iter().map(|(_, (cluster, _))| cluster).collect();
    rows.retain(|row| wanted.states.is_empty() || row.releases > 0);
    rows.extend(answers.errors.iter().map(|(name, error)| ClusterRow::failed(name, error.clone())));
    let outcome = show::print((&args.output, &args.rows), rows, nothing)?;
    failed.map_or(Ok(outcome), Err)
}

/// Prints releases of all clusters.
async fn list(release: Option<String>, args: FleetArgs) -> anyhow::Result<Outcome> {
    let what = release.as_ref().map_or("releases".to_owned(), |name| format!("release {name}"));
    let (wanted, nothing) = (args.wanted(release), format!("no {what} found in any cluster"));
    if let Some(url) = &args.source.ledger {
        let rows = fleet::kept(&Store::read(url).await?, &wanted).await?;
        return show::print((&args.output, &args.rows), rows, &nothing);
    }
    let is_asked_for = !args.source.contexts.is_empty();
    let answers = args.ask(&wanted).await?;
    let failed = answers.incomplete().filter(|_| is_asked_for || answers.found.is_empty());
    let mut rows: Vec<ReleaseRow> = answers.found.into_iter().flat_map(|(_, (_, rows))| rows).collect();
    fleet::compare(&mut rows);
    rows.retain(|row| wanted.is_met(row));
    let outcome = show::print((&args.output, &args.rows), rows, &nothing)?;
    failed.map_or(Ok(outcome), Err)
}

impl FleetArgs {
    fn wanted(&self, release: Option<String>) -> Wanted {
        let Self { cluster, state, namespace, .. } = self;
        Wanted { clusters: cluster.clone(), namespace: namespace.clone(), release, states: state.clone() }
    }

    /// Asks each cluster.
    async fn ask(&self, wanted: &Wanted) -> anyhow::Result<Answers<(ClusterRow, Vec<ReleaseRow>)>> {
        let clusters = self.source.clusters(&self.cluster).await?;
        let (driver, key) = (self.records.record_driver, fresh_key()?);
        let ask = async |name: &str, access: Access| {
            let asked = Asked { name: name.to_owned(), access, driver };
            Ok(fleet::live(&asked, wanted, &key).await?)
        };
        Ok(contexts::each(clusters, contexts::PATIENCE, ask).await)
    }
}

impl SourceArgs {
    /// The clusters to ask, by the names of their contexts; only those in `wanted`, unless that is empty.
    async fn clusters(&self, wanted: &[String]) -> anyhow::Result<Vec<(String, Access)>> {
        let Self { ledger: _, contexts, kubeconfig, user, groups, requests } = self;
        requests.tell();
        let access = Access {
            kubeconfig: kubeconfig.clone(),
            user: user.clone(),
            groups: groups.clone(),
            timeout: requests.timeout(),
            ..Access::default()
        };
        let mut named = match contexts.is_empty() {
            true => connection::contexts(access.kubeconfig.as_deref()),
            false => contexts.clone(),
        };
        named.retain(|name| wanted.is_empty() || wanted.contains(name));
        if named.is_empty() && !wanted.is_empty() {
            bail!("no context has the name {}: `kubectl config get-contexts` lists them", wanted.join(", "));
        }
        if named.is_empty() {
            // In a pod there is one cluster and no context; without a kubeconfig there is nothing to show.
            connection::connect_by(&access).await?;
            return Ok(vec![("cluster".to_owned(), access)]);
        }
        Ok(contexts::of(&named, &access))
    }
}
