//! The ledger rows that the user may read: from a database, or from a guard.
//!
//! Entry points: [`Source`], [`rows`]. Invariant: reads only. A guard is asked with the user's own
//! credentials, and returns no row that they may not see.

pub mod columns;
pub mod facts;
pub(crate) mod repeats;
pub mod spans;

use std::path::Path;
use std::time::Duration;

use super::failure::Failure;
use super::guard::ForwardedGuard;
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::connection::{self, Access};
use kubemoor_cluster::client::guard_api;
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::{Filter, PAGE, Page};
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::LedgerUrl;

/// Time limit for the guard, which asks the API server first.
const PATIENCE: Duration = Duration::from_secs(30);

/// A source of rows.
pub enum Source {
    Database(Store),
    /// A guard at an address.
    Guard {
        /// Its name in a sentence.
        name: String,
        client: kube::Client,
    },
    /// A guard behind the API server.
    Forwarded(Box<ForwardedGuard>),
}

impl Source {
    pub async fn database(url: &LedgerUrl) -> Result<Self, Failure> {
        Ok(Self::Database(Store::read(url).await?))
    }

    /// With the credentials of the kubeconfig, which are sent only to a guard whose certificate `authority`
    /// has signed.
    pub async fn guard(
        server: &http::Uri,
        authority: Option<&Path>,
        access: &Access,
    ) -> Result<Self, Failure> {
        let client = connection::connect_to(server, authority, access).await?;
        Ok(Self::Guard { name: format!("the guard at {server}"), client })
    }

    /// Passes every row to `take`, newest first, with at most one page of them in memory.
    pub async fn each(&self, filter: Filter, mut take: impl FnMut(Entry)) -> Result<(), Failure> {
        self.each_page(filter, async |rows| rows.into_iter().for_each(&mut take)).await
    }

    /// Passes all rows to `take`, newest first, page by page. The next page is read while one is taken.
    pub async fn each_page(
        &self,
        mut filter: Filter,
        mut take: impl AsyncFnMut(Vec<Entry>),
    ) -> Result<(), Failure> {
        filter.limit = Some(PAGE);
        let mut page = self.page(&filter).await?;
        while let Some(next) = page.next {
            filter.before = Some(place(&next)?);
            let (following, ()) = tokio::join!(self.page(&filter), take(page.items));
            page = following?;
        }
        take(page.items).await;
        Ok(())
    }

    pub async fn page(&self, filter: &Filter) -> Result<Page, Failure> {
        let (name, otherwise, answers, missing) = match self {
            Self::Database(store) => return Ok(store.page(filter).await?),
            Self::Guard { name, client } => {
                let answer = guard_api::get(client, &path(filter), PATIENCE).await;
                let otherwise = "leave --server out to reach a guard through the API server";
                (name.clone(), otherwise, answer.map(|body| vec![body]), Vec::new())
            }
            Self::Forwarded(guard) => {
                let otherwise = "read its database with --ledger";
                let (answers, missing) = guard.get(&path(filter), PATIENCE).await?;
                (guard.name(), otherwise, answers, missing)
            }
        };
        let bodies = answers.map_err(|error| said(&name, otherwise, &error))?;
        let read = |body: &Vec<u8>| {
            serde_json::from_slice::<Page>(body).map_err(|error| {
                Failure::Named(format!("{name} is no guard: its answer is no ledger's: {error}"))
            })
        };
        let pages: Vec<_> = bodies.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Page { missing, ..Page::merge(pages, filter) })
    }

    /// Sentences about replicas whose rows are missing, each once.
    pub fn unheard(&self) -> Vec<String> {
        match self {
            Self::Forwarded(guard) => guard.unheard(),
            Self::Database(_) | Self::Guard { .. } => Vec::new(),
        }
    }
}

/// The newest rows that `keep` takes, newest first, as one page; a next one is named where there may be more.
pub async fn rows(
    source: &Source,
    filter: &Filter,
    limit: usize,
    keep: impl Fn(&Entry) -> bool,
) -> Result<Page, Failure> {
    let (mut entries, mut missing) = (Vec::new(), Vec::new());
    let mut filter = filter.clone();
    loop {
        let left = u32::try_from(limit.saturating_sub(entries.len())).unwrap_or(u32::MAX);
        filter.limit = Some(left.min(PAGE));
        let page = source.page(&filter).await?;
        entries.extend(page.items.into_iter().filter(|entry| keep(entry)));
        add_new(&mut missing, page.missing);
        match page.next {
            Some(next) if entries.len() < limit => filter.before = Some(place(&next)?),
            next => return Ok(Page { items: entries, next, missing }),
        }
    }
}

/// Adds the sentences that are not there yet.
pub fn add_new(sentences: &mut Vec<String>, more: Vec<String>) {
    for sentence in more {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
}

/// The place at which the next page starts.
pub fn place(next: &str) -> Result<i64, Failure> {
    let unknown = "the ledger's answer names no next page; use a program of its version";
    next.parse().map_err(|_| Failure::Named(unknown.to_owned()))
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
        facts,
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
        ("facts", facts.then(|| "true".to_owned())),
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

/// The failure of a guard that does not answer, or refuses.
fn said(guard: &str, otherwise: &str, error: &CallError) -> Failure {
    Failure::Named(match error {
        CallError::Refused { code: 403, .. } => {
            return Failure::Forbidden(
                "you may not read this part of the ledger: it takes the right to list guardedreleases.kubemoor.dev \
                 in the namespace, and in all namespaces with -A"
                    .to_owned(),
            );
        }
        CallError::Refused { code: 401, .. } => format!(
            "{guard} does not know you: it takes a token that the API server takes, or a client certificate of the \
             cluster; choose others with --context, or name a database with --ledger"
        ),
        CallError::Refused { code: 400 | 503, message, .. } => format!("{guard} does not answer: {message}"),
        CallError::Refused { code, .. } => format!("{guard} is none of this version: it answers {code}"),
        CallError::Untrusted { reason } => format!(
            "{guard} cannot be trusted ({reason}): name the CA of its certificate with --certificate-authority"
        ),
        CallError::Unreachable { .. } | CallError::Late { .. } => {
            format!("{guard} does not answer: try again, or {otherwise}")
        }
        other => format!("{guard} gives no usable answer: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubemoor_declare::model::Operation;

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
}
