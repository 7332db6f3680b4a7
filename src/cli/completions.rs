//! `kubemoor completions`: what a shell needs to complete commands and flags.
//!
//! Entry point: [`run`]. Invariant: made from the command line itself, under
//! the name by which the program was called.

use clap_complete::Shell;

use super::{Name, Outcome, command, output};

/// The flags of `kubemoor completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let name = Name::called();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(name), name.file(), &mut script);
    output::write(&String::from_utf8_lossy(&script))
}
