//! Where rows come from: a database, or a guard.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::cli::connect::{ClusterArgs, NamespacesArgs};
use crate::cli::guard::GuardArgs;
use crate::cli::serve::ConflictError;
use crate::client::call::CallError;
use crate::client::connection::Access;
use crate::client::{connection, guard_api};
use crate::config::LedgerUrl;
use crate::ledger::query::{Filter, Page};
use crate::ledger::store::Store;

/// How long the guard may take, which asks the API server first.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flags that choose where rows come from.
#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
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
    /// Whether the flags go together. An address in the environment is for when no database is named.
    pub(super) fn check(&self) -> Result<(), ConflictError> {
        let authority = ("--certificate-authority", self.certificate_authority.is_some());
        ConflictError::check_exclusions([[("--ledger", self.ledger.is_some()), authority]])
    }

    /// The source, and the one namespace whose rows are wanted.
    pub(super) async fn open(self) -> anyhow::Result<(Source, Option<String>)> {
        let Self { ledger, server, certificate_authority, guard, namespaces, cluster } = self;
        if let Some(url) = ledger {
            let source = Source::database(&url).await?;
            let namespace = namespaces.of(&cluster).await;
            let namespace =
                namespace.context("no kubeconfig names a namespace: give -n NAMESPACE, or -A for all")?;
            return Ok((source, namespace));
        }
        let (access, authority) = (cluster.access(), certificate_authority.as_deref());
        if access.user.is_some() {
            bail!(
                "a guard looks at your own token or certificate, not at whom you act as: leave --as out, or choose others with --context"
            );
        }
        let source = match server {
            Some(server) => Source::guard(&server, authority, &access).await?,
            None => {
                let (client, name) = guard.connect(&cluster, authority).await?;
                Source::Guard { name, otherwise: "read its database with --ledger", client }
            }
        };
        Ok((source, namespaces.of(&cluster).await?))
    }
}

/// Where rows come from.
pub(super) enum Source {
    Database(Store),
    Guard {
        /// How it is called in a sentence.
        name: String,
        /// What to do if it does not answer.
        otherwise: &'static str,
        client: kube::Client,
    },
}

impl Source {
    async fn database(url: &LedgerUrl) -> anyhow::Result<Self> {
        Ok(Self::Database(Store::read(url).await?))
    }

    /// With the credentials of the kubeconfig, which go to nobody but a guard
    /// whose certificate `authority` vouches for.
    async fn guard(server: &http::Uri, authority: Option<&Path>, access: &Access) -> anyhow::Result<Self> {
        let client = connection::connect_to(server, authority, access).await?;
        let otherwise = "leave --server out to reach a guard through the API server";
        Ok(Self::Guard { name: format!("the guard at {server}"), otherwise, client })
    }

    pub(super) async fn page(&self, filter: &Filter) -> anyhow::Result<Page> {
        let (name, otherwise, client) = match self {
            Self::Database(store) => return Ok(store.page(filter).await?),
            Self::Guard { name, otherwise, client } => (name, otherwise, client),
        };
        let body = guard_api::get(client, &path(filter), PATIENCE)
            .await
            .map_err(|error| said(name, otherwise, &error))?;
        serde_json::from_slice(&body)
            .with_context(|| format!("{name} is no guard: its answer is no ledger's"))
    }
}

/// The address and query of a page.
fn path(filter: &Filter) -> String {
    let Filter {
        cluster: _,
        namespace,
        release,
        user,
        verdicts,
        operations,
        object,
        since,
        until,
        before,
        limit,
    } = filter;
    let list = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(","));
    let pairs = [
        ("namespace", namespace.clone()),
        ("release", release.clone()),
        ("user", user.clone()),
        ("verdict", list(verdicts.iter().map(String::as_str).collect())),
        ("operation", list(operations.iter().map(|operation| operation.as_str()).collect())),
        ("object", object.as_ref().map(ToString::to_string)),
        ("since", since.map(|since| since.to_string())),
        ("until", until.map(|until| until.to_string())),
        ("continue", before.map(|before| before.to_string())),
        ("limit", limit.map(|limit| limit.to_string())),
    ];
    let pairs = pairs.into_iter().filter_map(|(name, value)| {
        let value = value?;
        let value = percent_encoding::utf8_percent_encode(&value, percent_encoding::NON_ALPHANUMERIC);
        Some(format!("{name}={value}"))
    });
    format!("/api/v1/ledger?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// What a guard that does not answer, or refuses, means for who asks.
fn said(guard: &str, otherwise: &str, error: &CallError) -> anyhow::Error {
    match error {
        CallError::Refused { code: 401, .. } => anyhow::anyhow!(
            "{guard} does not know you: it takes a token that the API server takes, or a client certificate of the \
             cluster; choose others with --context, or name a database with --ledger"
        ),
        CallError::Refused { code: 403, .. } => anyhow::anyhow!(
            "you may not read this part of the ledger: it takes the right to list guardedreleases.kubemoor.dev \
             in the namespace, and in all namespaces with -A"
        ),
        CallError::Refused { code: 400 | 503, message, .. } => {
            anyhow::anyhow!("{guard} does not answer: {message}")
        }
        CallError::Refused { code, .. } => {
            anyhow::anyhow!("{guard} is none of this version: it answers {code}")
        }
        CallError::Unreachable { reason } if reason.contains("certificate") => anyhow::anyhow!(
            "{guard} cannot be trusted ({reason}): name the CA of its certificate with \
             --certificate-authority"
        ),
        CallError::Unreachable { .. } | CallError::Late { .. } => {
            anyhow::anyhow!("{guard} does not answer: try again, or {otherwise}")
        }
        other => anyhow::anyhow!("{guard} gives no usable answer: {other}"),
    }
}

/// A server is `https://`, a host and perhaps a port: a token is never sent in the
/// clear, and no guard would answer.
pub(super) fn parse_server(text: &str) -> Result<http::Uri, &'static str> {
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
    use crate::model::Operation;

    #[test]
    fn a_filter_becomes_a_query_that_keeps_every_character() {
        let filter = Filter {
            namespace: Some("shop".to_owned()),
            user: Some("system:serviceaccount:ci:a&b".to_owned()),
            verdicts: vec!["Deny".to_owned(), "Warn".to_owned()],
            operations: vec![Operation::Delete],
            object: Some("Deployments.apps/web".parse().unwrap()),
            since: Some("2026-11-21T08:00:00Z".parse().unwrap()),
            until: Some("2026-11-21T09:00:00Z".parse().unwrap()),
            limit: Some(7),
            ..Filter::default()
        };
        let query = [
            "namespace=shop",
            "user=system%3Aserviceaccount%3Aci%3Aa%26b",
            "verdict=Deny%2CWarn",
            "operation=DELETE",
            "object=deployments%2Eapps%2Fweb",
            "since=2026%2D11%2D21T08%3A00%3A00Z",
            "until=2026%2D11%2D21T09%3A00%3A00Z",
            "limit=7",
        ];
        assert_eq!(path(&filter), format!("/api/v1/ledger?{}", query.join("&")));
    }

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
