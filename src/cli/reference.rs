//! Hidden commands for developers and packagers that generate documentation: the command reference in Markdown
//! (`docs/cli.md`), the manual pages, and the JSON Schemas of `-o json` (`docs/schemas`).

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgAction, Command};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use super::audit::PermitPolicy;
use super::list::Items;
use super::{
    CommandOutcome, ProgramName, allow, certs, check, command, diff, doctor, emergency, forecast, notify,
    output, policy, reconcile, uninstall, version,
};
use kubemoor_inspect::comparison::ReleaseDiff;
use kubemoor_inspect::exceptions::{Allowed, ListedAllowance};
use kubemoor_inspect::explanation::Explanation;
use kubemoor_inspect::fleet::{ClusterRow, ReleaseRow};
use kubemoor_inspect::policies::ListedPolicy;
use kubemoor_inspect::releases::ListedRelease;
use kubemoor_inspect::replay::ReplayReport;
use kubemoor_ledger::entry::LedgerEntry;

const INTRODUCTION: &str = include_str!("reference/introduction.md");

pub(super) fn run() -> anyhow::Result<CommandOutcome> {
    output::write(&text())
}

fn text() -> String {
    let mut root = command(ProgramName::Program);
    root.build();
    let mut text = INTRODUCTION.to_owned();
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        add(&mut text, command);
    }
    text
}

fn add(text: &mut String, command: &Command) {
    if command.get_name() == "help" {
        return;
    }
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    // Writing to a String cannot fail.
    let _ =
        write!(text, "\n## `{name}`\n\n{about}.\n\n```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    if !arguments.is_empty() {
        // Leave out the column if it would be empty.
        let with_environment = arguments.iter().any(|argument| argument.get_env().is_some());
        text.push_str(match with_environment {
            true => "\n| argument | environment | meaning |\n|---|---|---|\n",
            false => "\n| argument | meaning |\n|---|---|\n",
        });
        for argument in arguments {
            add_argument(text, argument, with_environment);
        }
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(text, below);
    }
}

fn add_argument(text: &mut String, argument: &Arg, with_environment: bool) {
    let value = argument.get_value_names().unwrap_or_default().iter().map(|name| name.as_str());
    let value = value.collect::<Vec<_>>().join(" ");
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let value = if takes_value { value } else { String::new() };
    let spelled = match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("`--{long} {value}`, `-{short}`").replace(" `, ", "`, "),
        (Some(long), None) => format!("`--{long} {value}`").replace(" `", "`"),
        (None, Some(short)) => format!("`-{short} {value}`"),
        (None, None) => format!("`{value}`"),
    };
    let variable = argument.get_env().map(|env| format!("`{}`", env.to_string_lossy())).unwrap_or_default();
    let environment = if with_environment { format!("| {variable} ") } else { String::new() };
    let mut meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|_| takes_value)
        .map(|choice| format!("`{}`", choice.get_name()))
        .collect();
    if !choices.is_empty() {
        let _ = write!(meaning, ": {}", choices.join(", "));
    }
    if let [default] = argument.get_default_values()
        && takes_value
    {
        let _ = write!(meaning, " (default `{}`)", default.to_string_lossy());
    }
    let _ = writeln!(text, "| {spelled} {environment}| {} |", meaning.replace('|', "\\|"));
}

#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// The directory for the pages
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run_man(args: &ManArgs) -> anyhow::Result<CommandOutcome> {
    let directory = &args.directory;
    let cannot_write = || format!("cannot write the manual pages to {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot_write)?;
    clap_mangen::generate_to(command(ProgramName::Program), directory).with_context(cannot_write)?;
    Ok(CommandOutcome::Clean)
}

#[derive(Debug, clap::Args)]
pub(super) struct SchemasArgs {
    /// The directory for the schemas
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run_schemas(args: &SchemasArgs) -> anyhow::Result<CommandOutcome> {
    let directory = &args.directory;
    let cannot_write = || format!("cannot write the schemas to {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot_write)?;
    for (command, schema) in lists().into_iter().chain(answers()) {
        let text = serde_json::to_string_pretty(&schema).with_context(cannot_write)? + "\n";
        let file = directory.join(command.replace(" --", "-").replace(' ', "-") + ".json");
        fs::write(file, text).with_context(cannot_write)?;
    }
    Ok(CommandOutcome::Clean)
}

fn lists() -> Vec<(&'static str, Schema)> {
    vec![
        list::<ListedRelease>("get releases"),
        list::<ListedAllowance>("get allowances"),
        list::<ListedPolicy>("get policies"),
        list::<ReleaseDiff>("diff"),
        list::<LedgerEntry>("audit"),
        list::<PermitPolicy>("audit --would-deny"),
        list::<reconcile::ReconcileAnswer>("reconcile --all"),
        list::<diff::Preview>("reconcile --dry-run"),
        list::<policy::LintRow>("policy lint"),
        list::<doctor::CheckResult>("doctor"),
        list::<ClusterRow>("fleet"),
        list::<ReleaseRow>("fleet releases"),
    ]
}

fn answers() -> Vec<(&'static str, Schema)> {
    vec![
        schema::<Explanation>("explain"),
        schema::<forecast::Forecast>("forecast"),
        schema::<check::CheckReport>("check"),
        schema::<policy::TestTally>("policy test"),
        schema::<ReplayReport>("policy replay"),
        schema::<version::VersionReport>("version"),
        schema::<Allowed>("allow"),
        schema::<allow::Revoked>("revoke"),
        schema::<reconcile::ReconcileAnswer>("reconcile"),
        schema::<reconcile::SuspensionAnswer>("suspend"),
        schema::<reconcile::SuspensionAnswer>("resume"),
        schema::<emergency::EmergencyAnswer>("emergency"),
        schema::<uninstall::UninstallAnswer>("uninstall"),
        schema::<certs::CertsReport>("certs"),
        schema::<notify::NotifyAnswer>("notify test"),
    ]
}

fn list<T: JsonSchema>(command: &'static str) -> (&'static str, Schema) {
    schema::<Items<Vec<T>>>(command)
}

fn schema<T: JsonSchema>(command: &'static str) -> (&'static str, Schema) {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut root = generator.into_root_schema_for::<T>();
    root.insert("title".to_owned(), format!("kubemoor {command} -o json").into());
    (command, root)
}
