//! The guard's address for the ledger: a flag, or a variable that is set for all commands.
//!
//! Entry point: [`ServerArgs`]. Invariant: the variable refuses no command. Where it cannot apply the command works as
//! without it; a flag that cannot apply is an error.

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::cli::audit::parse_server;

const ID: &str = "server";

/// The variable for all commands.
const VARIABLE: &str = "KUBEMOOR_SERVER";

const HELP: &str = "Ask the guard at this address (its --admin-listen) for the ledger [default: a pod of each cluster's \
                    guard, through the API server]";

/// The address as it was given.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerArgs {
    text: Option<String>,
    is_flag: bool,
}

impl ServerArgs {
    /// The address; `None` if neither the flag nor the variable is set, or if the variable cannot apply because of `obstacle`.
    pub(super) fn address(self, obstacle: Option<&str>) -> anyhow::Result<Option<http::Uri>> {
        match (self.text, obstacle) {
            (None, _) => Ok(None),
            (Some(_), Some(why)) if self.is_flag => bail!("{why}"),
            (Some(_), Some(_)) => Ok(None),
            (Some(text), None) => {
                let name = if self.is_flag { "--server" } else { VARIABLE };
                let uri = parse_server(&text).map_err(anyhow::Error::msg);
                uri.map(Some).with_context(|| format!("{name} {text:?}"))
            }
        }
    }
}

impl clap::FromArgMatches for ServerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let text = matches.get_one::<String>(ID).cloned();
        Ok(Self { text, is_flag: matches.value_source(ID) == Some(ValueSource::CommandLine) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ServerArgs {
    fn augment_args(command: Command) -> Command {
        command.arg(Arg::new(ID).long("server").env(VARIABLE).value_name("URL").help(HELP))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
