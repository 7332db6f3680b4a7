//! `kubemoor diff --contexts`: the comparison in several clusters, one after the other.
//!
//! Entry point: [`run`]. Invariant: all output names its cluster. A cluster that fails does not affect the
//! others.

use anyhow::bail;
use serde::Serialize;

use super::{Args, People, Report, compare, show, unified};
use crate::cli::contexts;
use crate::cli::list::Items;
use crate::cli::output::{self, Form, HEAD, Text};
use crate::cli::{Outcome, standing, warn};
use kubemoor_cluster::client::connection::{self, Access};
use kubemoor_inspect::comparison::ReleaseReport;

/// A release of one of several clusters.
#[derive(Serialize)]
struct Placed<'r> {
    /// The context.
    cluster: &'r str,
    #[serde(flatten)]
    release: &'r ReleaseReport,
}

/// Compares in each context.
pub(super) async fn run(args: Args) -> anyhow::Result<Outcome> {
    let ask = async |name: &str, access: Access| {
        let connection = connection::connect_by(&access).await?;
        standing::say_of(name, &connection, args.namespaces.chosen(&connection).as_deref()).await;
        compare(args.clone(), connection).await
    };
    let answers = contexts::each(args.contexts.clusters(&args.cluster), contexts::PATIENCE, ask).await;
    let reports = &answers.found;
    print(&args.output, reports)?;
    let mut failures = 0;
    for (cluster, report) in reports {
        for sentence in report.failures() {
            warn(&format!("{cluster}: {sentence}"));
            failures += 1;
        }
    }
    let has_drift = reports.iter().any(|(_, report)| report.has_drift());
    let has_doubt = args.strict && reports.iter().any(|(_, report)| report.has_doubt());
    match (answers.incomplete(), failures) {
        _ if has_drift || has_doubt => Ok(Outcome::Found),
        (Some(incomplete), _) => Err(incomplete),
        (None, 0) => Ok(Outcome::Clean),
        (None, count) => bail!("the comparison is incomplete: {count} of its parts failed, see above"),
    }
}

fn print(form: &Form<People>, reports: &[(String, Report)]) -> anyhow::Result<()> {
    let data = match form {
        Form::People(form) => {
            for (cluster, report) in reports {
                let mut text = Text::default();
                text.add(HEAD, &format!("# Cluster {cluster}")).line();
                text.append(&if *form == People::Unified {
                    unified::text(report)
                } else {
                    show::text(report)
                });
                output::write(text.as_str())?;
            }
            return Ok(());
        }
        Form::Data(data) => data,
    };
    let releases = reports
        .iter()
        .flat_map(|(cluster, report)| report.releases.iter().map(move |release| Placed { cluster, release }));
    data.print(&Items::of(releases.collect::<Vec<_>>()))?;
    Ok(())
}
