//! `kubemoor completions`: prints the shell script that completes commands, flags and names from the cluster.
//!
//! Entry point: [`run`]. Invariant: the script calls the program itself, under the name that the user ran, so
//! that it always matches the program's version.

use anyhow::Context;
use clap_complete::Shell;
use clap_complete::env::Shells;

use super::candidates::VARIABLE;
use super::{Name, Outcome, output};

/// The flags of `kubemoor completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (shell, name) = (args.shell.to_string(), Name::called().file());
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).with_context(|| format!("{shell} cannot ask a program"))?;
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, name, name, name, &mut script)
        .context("cannot write the completion script")?;
    output::write(&String::from_utf8_lossy(&script))
}
