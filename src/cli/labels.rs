//! The labels of the cluster, by which policies select clusters.
//!
//! Entry points: [`LabelArgs`] to flatten into the flags of a command that
//! resolves policies, [`collect`] and [`parse_label`] for `serve`. Invariant: with the same labels, the same
//! policies are in force.

use kubemoor_policy::resolver::Labels;

/// The labels of the cluster.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LabelArgs {
    /// A label of this cluster, for policies that select clusters; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    cluster_label: Vec<(String, String)>,
}

/// Why labels cannot be those of one cluster.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LabelError {
    /// One of them has two values.
    #[error("--cluster-label {0} is given with two values: leave one of them out")]
    Twice(String),
}

impl LabelArgs {
    /// The labels.
    ///
    /// # Errors
    /// One is given with two values.
    pub(super) fn labels(self) -> Result<Labels, LabelError> {
        collect(self.cluster_label)
    }
}

/// The labels that pairs of key and value amount to.
///
/// # Errors
/// One is given with two values.
pub(super) fn collect(pairs: Vec<(String, String)>) -> Result<Labels, LabelError> {
    let mut labels = Labels::new();
    for (key, value) in pairs {
        if labels.insert(key.clone(), value.clone()).is_some_and(|before| before != value) {
            return Err(LabelError::Twice(key));
        }
    }
    Ok(labels)
}

/// A label as everywhere in Kubernetes: `[PREFIX/]NAME=VALUE`.
pub(super) fn parse_label(text: &str) -> Result<(String, String), &'static str> {
    let form = "a label is KEY=VALUE, such as env=prod";
    let (key, value) = text.split_once('=').ok_or(form)?;
    let known = |text: &str, more: &str| {
        text.chars().all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
    };
    let fits = !key.is_empty() && key.len() <= 317 && value.len() <= 63;
    if fits && known(key, "-_./") && known(value, "-_.") {
        Ok((key.to_owned(), value.to_owned()))
    } else {
        Err(form)
    }
}
