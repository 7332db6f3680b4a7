//! `kubemoor completions`, and completion candidates from the cluster. If the cluster does not answer within seconds,
//! there are none. Errors are not printed, because they would appear in the middle of a command line.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap_complete::Shell;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::Shells;

use super::{CommandOutcome, ProgramName, command, output};
use kubemoor_cluster::client::connection::{self, ClusterAccess};
use kubemoor_cluster::client::guarded;
use kubemoor_policy::guarded::GuardedRelease;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<CommandOutcome> {
    let (shell, name) = (args.shell.to_string(), ProgramName::called().file());
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).with_context(|| format!("{shell} is not supported"))?;
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, name, name, name, &mut script)
        .context("cannot write the completion script")?;
    output::write(&String::from_utf8_lossy(&script))
}

/// The environment variable that a shell sets to request completions.
pub(super) const VARIABLE: &str = "KUBEMOOR_COMPLETE";

/// Time limit for candidates, because a user is waiting.
const PATIENCE: Duration = Duration::from_secs(2);

/// The maximum number of candidates.
const MOST: usize = 500;

/// The directive that keeps kubectl from completing file names.
const NO_FILES: &str = ":4\n";

pub(super) fn releases() -> Vec<CompletionCandidate> {
    candidates(guarded(false).iter().filter_map(|it| it.metadata.name.clone()))
}

/// The objects of the guarded releases, as `KIND/NAME`.
pub(super) fn objects() -> Vec<CompletionCandidate> {
    let guarded = guarded(false);
    let seen = guarded.iter().filter_map(|it| it.status.as_ref()).flat_map(|status| &status.seen);
    candidates(seen.map(|it| format!("{}/{}", it.object.kind.to_lowercase(), it.object.name)))
}

pub(super) fn namespaces() -> Vec<CompletionCandidate> {
    candidates(guarded(true).iter().filter_map(|it| it.metadata.namespace.clone()))
}

pub(super) fn contexts() -> Vec<CompletionCandidate> {
    let kubeconfig = flag(&words(), "--kubeconfig", None).map(PathBuf::from);
    candidates(connection::contexts(kubeconfig.as_deref()).into_iter())
}

/// Prints the candidates for the last word after `kubectl moor` in kubectl's format: one per line, then the directive.
pub(super) fn for_kubectl() -> anyhow::Result<CommandOutcome> {
    let words: Vec<OsString> =
        [OsString::from(ProgramName::Plugin.file())].into_iter().chain(std::env::args_os().skip(1)).collect();
    let last = words.len().saturating_sub(1);
    let found = complete(&mut command(ProgramName::Plugin), words, last, Some(Path::new(".")));
    let found = found.context("cannot complete the command line")?;
    let mut text = String::new();
    for candidate in found.iter().filter(|candidate| !candidate.is_hide_set()) {
        text.push_str(&candidate.get_value().to_string_lossy());
        if let Some(help) = candidate.get_help() {
            let help = help.to_string();
            text.push('\t');
            text.push_str(help.lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    output::write(&(text + NO_FILES))
}

fn candidates(values: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let values: BTreeSet<String> = values.take(MOST).collect();
    values.into_iter().map(CompletionCandidate::new).collect()
}

/// The GuardedReleases of the namespace that the command line selects, or of all namespaces (`everywhere`).
fn guarded(everywhere: bool) -> Vec<GuardedRelease> {
    let words = words();
    let access = ClusterAccess {
        kubeconfig: flag(&words, "--kubeconfig", None).map(PathBuf::from),
        context: flag(&words, "--context", None),
        timeout: Some(PATIENCE),
        ..ClusterAccess::default()
    };
    let all = everywhere || words.iter().any(|word| word == "-A" || word == "--all-namespaces");
    let namespace = flag(&words, "--namespace", Some("-n"));
    let listing = async move {
        let connection = connection::connect_by(&access).await.ok()?;
        let namespace = namespace.unwrap_or_else(|| connection.namespace.clone());
        let listing = guarded::list(&connection.client, Some(namespace.as_str()).filter(|_| !all));
        tokio::time::timeout(PATIENCE, listing).await.ok()?.ok()?
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.ok().and_then(|runtime| runtime.block_on(listing)).unwrap_or_default()
}

/// The words of the command line that is being completed.
fn words() -> Vec<String> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    match std::env::var_os(VARIABLE) {
        // A shell passes them after `--`.
        Some(_) => words.skip_while(|word| word != "--").skip(1).collect(),
        None => words.collect(),
    }
}

fn flag(words: &[String], long: &str, short: Option<&str>) -> Option<String> {
    let value = |(place, word): (usize, &String)| {
        if word == long || Some(word.as_str()) == short {
            return words.get(place + 1).cloned();
        }
        let joined = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        let glued = || short.and_then(|short| word.strip_prefix(short)).filter(|rest| !rest.is_empty());
        joined.or_else(glued).map(|value| value.trim_start_matches('=').to_owned())
    };
    words.iter().enumerate().find_map(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;
