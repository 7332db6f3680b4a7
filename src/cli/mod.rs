//! The command line: arguments in, output and an exit code out. One file per command family.
//!
//! Exit code 0 means success, 1 a finding (a denial, drift), 2 that the command failed; a message on standard error
//! then says what failed and what to do.

mod allow;
mod audit;
mod certs;
mod check;
mod completions;
mod connect;
mod diff;
mod doctor;
mod emergency;
mod explain;
mod fleet;
mod forecast;
mod get;
mod list;
mod manifests;
mod notify;
mod output;
mod policy;
mod reconcile;
mod reference;
mod ui;
mod uninstall;
mod version;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::CompleteEnv;

use crate::app;
use crate::app::settings::Settings;
use kubemoor_declare::model::text::escaped_but;

/// Guards Helm releases against drift: a webhook checks each change to their objects against Helm's own record, and a
/// loop finds and repairs objects that differ
#[derive(Debug, Parser)]
#[command(name = "kubemoor", bin_name = "kubemoor", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the guard: the webhook and the repairs
    Serve(Box<Settings>),
    /// Check one AdmissionReview against one release, offline; exit 1 if it is denied
    Check(check::Args),
    /// Compare live objects with their releases; exit 1 if anything drifts
    Diff(diff::Args),
    /// List the fields on which the next Helm 4 upgrade of a release will conflict; exit 1 if there are any
    Forecast(forecast::Args),
    /// Allow changes to named fields of one object for a while
    Allow(allow::Args),
    /// End the exceptions of an object
    Revoke(allow::RevokeArgs),
    /// List releases, exceptions or policies
    Get(get::Args),
    /// Show the state of the releases of many clusters
    Fleet(Box<fleet::Args>),
    /// Check the installation and say what to do; exit 1 if a user has to act
    Doctor(doctor::Args),
    /// Allow all changes in an emergency, until the guard is turned on again
    Emergency(emergency::Args),
    /// Explain which release, policy and exception apply to an object or a denial, and what to do
    Explain(explain::Args),
    /// Show who changed what, when, and what the guard did
    Audit(Box<audit::Args>),
    /// Repair releases now, whatever their policies say, and print the guard's answer
    Reconcile(reconcile::Args),
    /// Pause repairs of a release, for a while or until they are resumed
    Suspend(reconcile::SuspendArgs),
    /// Resume repairs of a release
    Resume(reconcile::ReleaseArgs),
    /// Print the manifests that install Kubemoor
    Manifests(manifests::Args),
    /// Test the receivers of notifications
    Notify(notify::Args),
    /// Test, check and import policies
    Policy(policy::Args),
    /// Show releases, drift and exceptions in the browser
    Ui(Box<ui::Args>),
    /// Remove the webhooks from the cluster
    Uninstall(uninstall::Args),
    /// Create or renew the guard's own certificates, and show them
    Certs(certs::Args),
    /// Print the shell completion script
    Completions(completions::Args),
    /// Print the command reference
    #[command(hide = true)]
    Reference,
    /// Write the manual pages
    #[command(hide = true)]
    Man(reference::ManArgs),
    /// Write the JSON Schemas of what commands print with -o json
    #[command(hide = true)]
    Schemas(reference::SchemasArgs),
    /// Print the versions of this program and of the guard in the cluster
    Version(version::Args),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramName {
    /// `kubemoor`.
    Program,
    /// `kubectl-moor`, which kubectl runs for `kubectl moor`.
    Plugin,
    /// `kubectl_complete-moor`, which kubectl runs to complete `kubectl moor`.
    Completer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandOutcome {
    Clean,
    Found,
}

/// Parses the arguments, runs the command and returns its exit code. For `--help` and an invalid flag it exits the
/// process.
pub fn run() -> ExitCode {
    if ProgramName::called() == ProgramName::Completer {
        return ended(completions::for_kubectl());
    }
    CompleteEnv::with_factory(|| command(ProgramName::called())).var(completions::VARIABLE).complete();
    let mut line = command(ProgramName::called());
    let parsed = line.try_get_matches_from_mut(std::env::args_os());
    let cli =
        parsed.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut line)));
    ended(cli.unwrap_or_else(|error| error.exit()).command.carry_out())
}

fn ended(result: anyhow::Result<CommandOutcome>) -> ExitCode {
    match result {
        Ok(CommandOutcome::Clean) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Found) => ExitCode::from(1),
        Err(error) => {
            warn(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

fn command(name: ProgramName) -> clap::Command {
    match name {
        ProgramName::Program => Cli::command(),
        ProgramName::Plugin | ProgramName::Completer => Cli::command().bin_name("kubectl moor"),
    }
}

impl ProgramName {
    fn called() -> Self {
        let called = std::env::args_os().next().map(PathBuf::from);
        let stem = called.as_deref().and_then(Path::file_stem).and_then(OsStr::to_str);
        let known = [Self::Plugin, Self::Completer].into_iter().find(|name| stem == Some(name.file()));
        known.unwrap_or(Self::Program)
    }

    fn file(self) -> &'static str {
        match self {
            Self::Program => "kubemoor",
            Self::Plugin => "kubectl-moor",
            Self::Completer => "kubectl_complete-moor",
        }
    }
}

impl Command {
    fn carry_out(self) -> anyhow::Result<CommandOutcome> {
        match self {
            Self::Serve(settings) => app::serve(*settings).map(|()| CommandOutcome::Clean),
            Self::Check(args) => check::run(args),
            Self::Diff(args) => diff::run(args),
            Self::Forecast(args) => forecast::run(args),
            Self::Allow(args) => allow::run(args),
            Self::Revoke(args) => allow::revoke(args),
            Self::Get(args) => get::run(args),
            Self::Fleet(args) => fleet::run(*args),
            Self::Doctor(args) => doctor::run(args),
            Self::Emergency(args) => emergency::run(args),
            Self::Explain(args) => explain::run(args),
            Self::Audit(args) => audit::run(*args),
            Self::Reconcile(args) => reconcile::run(args),
            Self::Suspend(args) => reconcile::suspend(args),
            Self::Resume(args) => reconcile::resume(args),
            Self::Manifests(args) => manifests::run(args),
            Self::Notify(args) => notify::run(args),
            Self::Policy(args) => policy::run(args),
            Self::Ui(args) => ui::run(*args),
            Self::Uninstall(args) => uninstall::run(args),
            Self::Certs(args) => certs::run(args),
            Self::Completions(args) => completions::run(&args),
            Self::Reference => reference::run(),
            Self::Man(args) => reference::run_man(&args),
            Self::Schemas(args) => reference::run_schemas(&args),
            Self::Version(args) => version::run(args),
        }
    }
}

fn warn(sentence: &str) {
    // A failure of standard error cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "kubemoor: {}", escaped_but(sentence, &['\n']));
}

#[cfg(test)]
mod tests;
