//! `kubemoor policy import`: converts the rules of other tools to policies. Warns about rules that no policy can
//! express.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::Value;

use crate::cli::connect::{self, ClusterArgs, NamespacesArgs};
use crate::cli::list::nothing;
use crate::cli::{CommandOutcome, check, output, warn};
use kubemoor_cluster::client::pages::Pages;
use kubemoor_declare::model::Gvk;
use kubemoor_inspect::reading::kinds;
use kubemoor_policy::compile;
use kubemoor_policy::flux::{self, UnsupportedPart};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    from: ImportSource,
}

#[derive(Debug, clap::Subcommand)]
enum ImportSource {
    /// Print DriftPolicies with the ignore rules of Flux HelmReleases (spec.driftDetection.ignore)
    Flux(FluxArgs),
}

#[derive(Debug, clap::Args)]
struct FluxArgs {
    /// Files with HelmReleases; - for standard input [default: the HelmReleases of the cluster]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let ImportSource::Flux(FluxArgs { files, namespaces, cluster }) = args.from;
    let (found, namespace) = match files.is_empty() {
        true => connect::run(of_cluster(namespaces, cluster))?,
        false => (of_files(&files)?, None),
    };
    let mut documents = Vec::new();
    for helm_release in &found {
        let imported = flux::import(helm_release);
        for UnsupportedPart { field, reason } in imported.unsupported {
            warn(&format!("{} is not imported: {field}: {reason}", spoken(helm_release)));
        }
        if let Some(policy) = imported.policy {
            documents.push(serde_saphyr::to_string(&policy).context("cannot write the policy as YAML")?);
        }
    }
    if documents.is_empty() {
        warn(&match files.is_empty() {
            true => nothing("HelmReleases with ignore rules", namespace.as_deref()),
            false => "no HelmReleases with ignore rules found in the files".to_owned(),
        });
    }
    output::write(&documents.join("---\n"))
}

fn of_files(files: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for file in files {
        let (documents, unreadable) = compile::documents(&text(file)?);
        if let Some((place, flaw)) = unreadable.into_iter().next() {
            return Err(anyhow!("cannot read {}: document {place}: {}", file.display(), flaw.message));
        }
        found.extend(documents.into_iter().filter(is_helm_release));
    }
    Ok(found)
}

fn text(file: &Path) -> anyhow::Result<String> {
    if file != Path::new("-") {
        return check::read_text(file);
    }
    let mut text = String::new();
    // One byte more than the limit, so that the parser reports the size.
    let most = u64::try_from(compile::MAX_FILE)?.saturating_add(1);
    io::stdin().lock().take(most).read_to_string(&mut text).context("cannot read standard input")?;
    Ok(text)
}

async fn of_cluster(
    namespaces: NamespacesArgs,
    cluster: ClusterArgs,
) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let connection = cluster.connect().await?;
    let namespace = namespaces.chosen(&connection);
    let kinds = kinds(&connection).await?;
    let gvk = Gvk { group: flux::GROUP.to_owned(), version: "v2".to_owned(), kind: flux::KIND.to_owned() };
    let resource = kinds.resource(&gvk).context(
        "the cluster serves no HelmReleases: pass files with HelmReleases, or choose another cluster with \
         --context",
    )?;
    let listing = async { Pages::objects(&connection.client, &resource, namespace.as_deref())?.all().await };
    let found =
        listing.await.map_err(|error| connect::failed(&connection, "list the HelmReleases", error))?;
    Ok((found, namespace))
}

fn is_helm_release(document: &Value) -> bool {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
    text("kind") == flux::KIND && text("apiVersion").split('/').next() == Some(flux::GROUP)
}

fn spoken(helm_release: &Value) -> String {
    let text = |pointer: &str| helm_release.pointer(pointer).and_then(Value::as_str);
    let namespace = text("/metadata/namespace").map(|namespace| format!("{namespace}/"));
    format!("HelmRelease {}{}", namespace.unwrap_or_default(), text("/metadata/name").unwrap_or_default())
}

#[cfg(test)]
mod tests;
