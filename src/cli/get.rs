//! `kubemoor get`: lists Kubemoor's objects in a cluster.
//!
//! Entry point: [`run`]. Invariant: reads with the caller's own rights and changes nothing.

mod allowances;
mod policies;
mod releases;

use super::Outcome;

/// The flags of `kubemoor get`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List temporary exceptions
    #[command(visible_aliases = ["allowance", "exceptions", "exception"])]
    Allowances(allowances::Args),
    /// List policies, and whether they are in force
    #[command(visible_alias = "policy")]
    Policies(policies::Args),
    /// List releases, their state, and which are not guarded and why
    #[command(visible_alias = "release")]
    Releases(releases::Args),
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.what {
        What::Allowances(args) => allowances::run(args),
        What::Policies(args) => policies::run(args),
        What::Releases(args) => releases::run(args),
    }
}
