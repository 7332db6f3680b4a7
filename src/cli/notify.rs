//! `kubemoor notify`: tests the receivers of notifications.
//!
//! The message says that it is a test. No credentials are printed.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::output::{self, OutputArgs};
use super::{CommandOutcome, connect};
use kubemoor_notify::{self as notify, file};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Send a test message to one receiver and print its answer; exit 1 if it does not accept the message
    Test(NotifyTestArgs),
}

#[derive(Debug, clap::Args)]
struct NotifyTestArgs {
    /// The receiver, by its name in the file
    #[arg(value_name = "NAME")]
    name: String,

    /// The file that names the receivers, as for `kubemoor serve`
    #[arg(long, value_name = "FILE")]
    notifiers: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

/// The result of a test message.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct NotifyAnswer {
    name: String,
    /// The host of the receiver, without parts that may be a credential.
    host: String,
    delivered: bool,
    code: u16,
    answer: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let Command::Test(NotifyTestArgs { name, notifiers, output }) = args.command;
    let known = file::read(&notifiers)?;
    let notifier = known.iter().find(|it| it.name == name).cloned().ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|it| it.name.as_str()).collect();
        anyhow!("{} has no receiver {name:?}, only: {}", notifiers.display(), names.join(", "))
    })?;
    let host = notifier.host();
    let sent = connect::run(async { Ok(notify::test(notifier, "urn:kubemoor:test").await) })?;
    let (code, answer) = sent
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("the receiver {name:?} at {host} cannot be reached"))?;
    let delivered = (200..300).contains(&code);
    let what = if delivered { "accepts the message" } else { "does not accept the message" };
    let said = if answer.is_empty() { String::new() } else { format!(": {answer}") };
    let text = format!("The receiver {name:?} at {host} {what}. It answers {code}{said}");
    let outcome =
        output::print_text(&output.output, &NotifyAnswer { name, host, delivered, code, answer }, &text)?;
    Ok(if delivered { outcome } else { CommandOutcome::Found })
}
