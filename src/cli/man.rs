//! `kubemoor man`: the manual pages. Not shown in the help: it is for packagers of the program.
//!
//! Entry point: [`run`]. Invariant: everything comes from the command line itself.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::{Name, Outcome, command};

/// The flags of `kubemoor man`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory for the pages
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let directory = &args.directory;
    let cannot_write = || format!("cannot write the manual pages to {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot_write)?;
    clap_mangen::generate_to(command(Name::Program), directory).with_context(cannot_write)?;
    Ok(Outcome::Clean)
}
