//! `kubemoor schemas`: JSON Schemas of the commands' output with `-o json`, as in `docs/schemas`. The help
//! does not list it: it is for developers who change a command's output.
//!
//! Entry point: [`run`]. Invariant: each schema comes from the type that the command prints, and from nothing
//! else.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use super::audit::permit::PermitPolicy;
use super::list::Items;
use super::{Outcome, allow, certs, check, diff, emergency, forecast, notify, policy, reconcile, steer};
use super::{uninstall, version};
use kubemoor_inspect::comparison::ReleaseReport;
use kubemoor_inspect::exceptions::Allowed;
use kubemoor_inspect::{allowances, explanation, fleet, policies, releases, replay};
use kubemoor_ledger::entry::Entry;

/// The flags of `kubemoor schemas`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory for the schemas
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let directory = &args.directory;
    let cannot_write = || format!("cannot write the schemas to {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot_write)?;
    for (command, schema) in lists().into_iter().chain(answers()) {
        let text = serde_json::to_string_pretty(&schema).with_context(cannot_write)? + "\n";
        let file = directory.join(command.replace(" --", "-").replace(' ', "-") + ".json");
        fs::write(file, text).with_context(cannot_write)?;
    }
    Ok(Outcome::Clean)
}

/// The commands that print a list.
fn lists() -> Vec<(&'static str, Schema)> {
    vec![
        list::<releases::Row>("get releases"),
        list::<allowances::Row>("get allowances"),
        list::<policies::Row>("get policies"),
        list::<ReleaseReport>("diff"),
        list::<Entry>("audit"),
        list::<PermitPolicy>("audit --would-deny"),
        list::<reconcile::Answer>("reconcile --all"),
        list::<diff::Preview>("reconcile --dry-run"),
        list::<policy::LintRow>("policy lint"),
        list::<fleet::ClusterRow>("fleet"),
        list::<fleet::ReleaseRow>("fleet releases"),
    ]
}

/// The commands that print one answer.
fn answers() -> Vec<(&'static str, Schema)> {
    vec![
        of::<explanation::report::Report>("explain"),
        of::<forecast::Forecast>("forecast"),
        of::<check::Report>("check"),
        of::<policy::Tally>("policy test"),
        of::<replay::Report>("policy replay"),
        of::<version::Versions>("version"),
        of::<Allowed>("allow"),
        of::<allow::Revoked>("revoke"),
        of::<reconcile::Answer>("reconcile"),
        of::<steer::Answer>("suspend"),
        of::<steer::Answer>("resume"),
        of::<emergency::Answer>("emergency"),
        of::<uninstall::Answer>("uninstall"),
        of::<certs::Report>("certs"),
        of::<notify::Answer>("notify test"),
    ]
}

fn list<T: JsonSchema>(command: &'static str) -> (&'static str, Schema) {
    of::<Items<Vec<T>>>(command)
}

fn of<T: JsonSchema>(command: &'static str) -> (&'static str, Schema) {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_owned(), format!("kubemoor {command} -o json").into());
    (command, schema)
}
