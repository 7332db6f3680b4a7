//! The command line: arguments in, output and an exit code out.
//!
//! Entry point: [`run`]. One file per command family. Invariant: an exit code
//! of 0 means that all is well, 1 that something was found (a refusal, drift),
//! 2 that the command could not be carried out; then one sentence on standard
//! error says what failed and what to do. No rule is decided here.

mod allow;
mod check;
mod connect;
mod diff;
mod get;
mod manifests;
mod object;
mod output;
mod policy;
mod policy_files;
mod reading;
mod serve;
mod steer;
mod uninstall;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps Helm releases where Helm put them: an admission webhook that judges
/// edits by the release's own record, and a loop that finds and repairs drift.
#[derive(Debug, Parser)]
#[command(name = "kubemoor", bin_name = "kubemoor", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the webhook and run the loop
    Serve(Box<serve::Args>),
    /// Judge one AdmissionReview by one release, offline; exit 1 when it is refused
    Check(check::Args),
    /// Compare what lives with what releases declare; exit 1 when anything has drifted
    Diff(diff::Args),
    /// Allow named fields of one object to be changed for a time
    Allow(allow::Args),
    /// End allowances of an object
    Revoke(allow::RevokeArgs),
    /// List what there is
    Get(get::Args),
    /// Repair a release now, whatever its policy says
    Reconcile(steer::Args),
    /// Have the loop leave a release alone
    Suspend(steer::Args),
    /// Have the loop go on with a release
    Resume(steer::Args),
    /// Print the manifests that install Kubemoor
    Manifests(manifests::Args),
    /// Try policies without a cluster
    Policy(policy::Args),
    /// Withdraw the webhooks from the cluster
    Uninstall(uninstall::Args),
    /// Print the version
    Version,
}

/// What a command that came to its end found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All is well.
    Clean,
    /// Something was found: a refusal.
    Found,
}

/// Parses the process's arguments, carries the command out and returns its
/// exit code. Ends the process itself for `--help` and for a bad flag.
pub fn run() -> ExitCode {
    match Cli::parse().command.carry_out() {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Err(error) => {
            warn(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

impl Command {
    fn carry_out(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Serve(args) => serve::run(*args),
            Self::Check(args) => check::run(args),
            Self::Diff(args) => diff::run(args),
            Self::Allow(args) => allow::run(args),
            Self::Revoke(args) => allow::revoke(args),
            Self::Get(args) => get::run(args),
            Self::Reconcile(args) => steer::reconcile(args),
            Self::Suspend(args) => steer::suspend(args),
            Self::Resume(args) => steer::resume(args),
            Self::Manifests(args) => manifests::run(args),
            Self::Policy(args) => policy::run(args),
            Self::Uninstall(args) => uninstall::run(args),
            Self::Version => output::write(concat!("kubemoor ", env!("CARGO_PKG_VERSION"), "\n")),
        }
    }
}

/// Says a sentence on standard error.
fn warn(sentence: &str) {
    // There is nowhere left to report a broken standard error to.
    let _ = writeln!(io::stderr(), "kubemoor: {sentence}");
}

#[cfg(test)]
mod tests;
