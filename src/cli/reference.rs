//! `kubemoor reference`: the command reference in Markdown, as `docs/cli.md`
//! holds it. Not shown in the help: it is for developers who change a flag.
//!
//! Entry point: [`run`]. Invariant: everything comes from the command line
//! itself, except the introduction.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use super::{Name, Outcome, command, output};

const INTRODUCTION: &str = include_str!("reference/introduction.md");

pub(super) fn run() -> anyhow::Result<Outcome> {
    output::write(&text())
}

fn text() -> String {
    let mut root = command(Name::Program);
    root.build();
    let mut text = INTRODUCTION.to_owned();
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        add(&mut text, command);
    }
    text
}

/// Adds a command, and those below it.
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
        // A column only where it says something.
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
