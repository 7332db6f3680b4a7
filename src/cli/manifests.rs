//! `kubemoor manifests`: prints what installs Kubemoor.
//!
//! Entry point: [`run`].

use super::Outcome;

/// The flags of `kubemoor manifests`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args {} = args;
    super::print("")
}
