//! The flags that select the source of rows: a database, or a guard.
//!
//! Entry points: `SourceArgs::check`, `SourceArgs::open`. Must not read rows.

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::cli::connect::{ClusterArgs, NamespacesArgs};
use crate::cli::guard::GuardArgs;
use crate::cli::serve::ConflictError;
use crate::cli::standing;
use kubemoor_inspect::ledger::Source;
use kubemoor_runtime::config::LedgerUrl;

/// The flags that choose where rows come from.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SourceArgs {
    /// Read this database: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    ledger: Option<LedgerUrl>,

    /// Ask the guard at this address (its --admin-listen) [default: a pod of the guard, through the API server]
    #[arg(long, env = "KUBEMOOR_SERVER", value_name = "URL", value_parser = parse_server)]
    server: Option<http::Uri>,

    /// The CA of the guard's certificate (PEM) [default: the guard's own; with --server the system's]
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,

    #[command(flatten)]
    guard: GuardArgs,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

impl SourceArgs {
    /// Checks that the flags can be combined. A guard's address in the environment applies only when no
    /// database is named.
    pub(in crate::cli) fn check(&self) -> Result<(), ConflictError> {
        let authority = ("--certificate-authority", self.certificate_authority.is_some());
        ConflictError::check_exclusions([[("--ledger", self.ledger.is_some()), authority]])
    }

    /// The source, and the one namespace whose rows are wanted.
    pub(in crate::cli) async fn open(self) -> anyhow::Result<(Source, Option<String>)> {
        let Self { ledger, server, certificate_authority, guard, namespaces, cluster } = self;
        if let Some(url) = ledger {
            let source = Source::database(&url).await?;
            let namespace = namespaces.of(&cluster).await;
            let namespace =
                namespace.context("no kubeconfig names a namespace: give -n NAMESPACE, or -A for all")?;
            return Ok((source, namespace));
        }
        let access = cluster.access();
        if access.user.is_some() {
            bail!(
                "a guard looks at your own token or certificate, not at whom you act as: leave --as out, or choose others with --context"
            );
        }
        let connection = cluster.connect().await?;
        let namespace = namespaces.chosen(&connection);
        standing::say(&connection, namespace.as_deref()).await;
        let source = match server {
            Some(server) => Source::guard(&server, certificate_authority.as_deref(), &access).await?,
            None => Source::Forwarded(Box::new(guard.forwarded(connection, access, certificate_authority))),
        };
        Ok((source, namespace))
    }
}

/// A server is `https://`, a host and perhaps a port: a token is never sent in the
/// clear, and no guard would answer.
pub(in crate::cli) fn parse_server(text: &str) -> Result<http::Uri, &'static str> {
    let form = "a server is https://HOST[:PORT]: a guard answers over TLS alone";
    let uri: http::Uri = text.parse().map_err(|_| form)?;
    if uri.scheme_str() == Some("https")
        && uri.host().is_some_and(|host| !host.is_empty())
        && !text.contains(['?', '#', '@'])
    {
        return Ok(uri);
    }
    Err(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_without_extras() {
        for text in ["https://127.0.0.1:9080", "https://guard.example"] {
            assert!(parse_server(text).is_ok(), "{text}");
        }
        for text in ["", "guard", "http://localhost", "https://u@guard", "https://guard?x=y"] {
            assert!(parse_server(text).is_err(), "{text}");
        }
    }
}
