//! Several clusters at once, by the contexts of a kubeconfig.
//!
//! Entry points: [`ContextsArgs`] to flatten into the flags of a command that has kubectl's, [`each`] to ask all of them
//! at once, [`that_answer`] for all of a kubeconfig. Invariant: a cluster that fails affects no other, and the user is
//! told which one failed and why.

use std::time::Duration;

use clap_complete::ArgValueCandidates;
use futures::StreamExt;

use super::connect::ClusterArgs;
use super::{candidates, warn};
use kubemoor_cluster::client::connection::{self, Access};
use kubemoor_cluster::client::discovery;

/// Clusters that are asked at once.
const AT_ONCE: usize = 16;

/// Time limit for each of several clusters.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Time limit for a cluster that the user did not name; a slower one is left out.
const ANSWER: Duration = Duration::from_secs(5);

/// The flag for several contexts.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ContextsArgs {
    /// Contexts of the kubeconfig whose clusters are asked all at once, such as prod-eu,prod-us
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["context", "cluster", "account", "token"], add = ArgValueCandidates::new(candidates::contexts))]
    contexts: Vec<String>,
}

/// The answers and errors of all clusters.
pub(super) struct Answers<T> {
    pub(super) found: Vec<(String, T)>,
    /// How many failed.
    failed: usize,
}

impl ContextsArgs {
    /// Whether only the current cluster is asked, as without the flag.
    pub(super) fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// The clusters by the names of their contexts, each once.
    pub(super) fn clusters(&self, cluster: &ClusterArgs) -> Vec<(String, Access)> {
        of(&self.contexts, &cluster.access())
    }
}

/// The clusters of some contexts, each once, with the credentials of `access`.
pub(super) fn of(contexts: &[String], access: &Access) -> Vec<(String, Access)> {
    let mut clusters: Vec<(String, Access)> = Vec::new();
    for context in contexts {
        if clusters.iter().all(|(known, _)| known != context) {
            clusters.push((context.clone(), Access { context: Some(context.clone()), ..access.clone() }));
        }
    }
    clusters
}

/// Those clusters whose API servers answer, if only to refuse; says on standard error which ones do not.
pub(super) async fn that_answer(clusters: Vec<(String, Access)>) -> Vec<(String, Access)> {
    let ask = async |_: &str, access: Access| {
        let connection = connection::connect_by(&access).await?;
        match discovery::version(&connection.client).await {
            Err(error) if error.is_outage() => Err(anyhow::Error::from(error)),
            _ => Ok(access),
        }
    };
    each(clusters, ANSWER, ask).await.found
}

/// Asks each cluster, which may take the time `within`; says on standard error which ones failed, and why. The answers
/// are in the order of the clusters.
pub(super) async fn each<T>(
    clusters: Vec<(String, Access)>,
    within: Duration,
    ask: impl AsyncFn(&str, Access) -> anyhow::Result<T>,
) -> Answers<T> {
    let ask = &ask;
    let asked = clusters.into_iter().map(|(name, access)| async move {
        let answer = match tokio::time::timeout(within, ask(&name, access)).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("it did not answer within {} s: try again", within.as_secs())),
        };
        (name, answer)
    });
    let answers: Vec<_> = futures::stream::iter(asked).buffered(AT_ONCE).collect().await;
    let mut all = Answers { found: Vec::new(), failed: 0 };
    for (name, answer) in answers {
        match answer {
            Ok(answer) => all.found.push((name, answer)),
            Err(error) => {
                warn(&format!("{name}: {error:#}"));
                all.failed += 1;
            }
        }
    }
    all
}

impl<T> Answers<T> {
    /// The error of a command whose answer lacks clusters; `None` if the answer is complete.
    pub(super) fn incomplete(&self) -> Option<anyhow::Error> {
        let (failed, clusters) = (self.failed, self.found.len() + self.failed);
        (failed > 0).then(|| {
            anyhow::anyhow!(
                "the answer is incomplete: {failed} of {clusters} clusters could not be read, see above"
            )
        })
    }
}
