//! The ledger rows that a person may read, from a database or from a guard, which receives the person's own credentials
//! and returns only rows that they may see. Also formats rows as cells of text.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::failure::InspectError;
use super::guard::ForwardedGuard;
use kubemoor_cluster::client::call::{self, ClusterError};
use kubemoor_cluster::client::connection::{self, ClusterAccess};
use kubemoor_declare::model::text::one_line;
use kubemoor_ledger::entry::{EntryField, EntryObject, LedgerEntry};
use kubemoor_ledger::query::{EntryPage, Filter, PAGE};
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::LedgerUrl;

/// Time limit for the guard, which asks the API server first.
const PATIENCE: Duration = Duration::from_secs(30);

pub enum LedgerSource {
    Database(Store),
    Guard { name: String, client: kube::Client },
    Forwarded(Box<ForwardedGuard>),
}

impl LedgerSource {
    pub async fn database(url: &LedgerUrl) -> Result<Self, InspectError> {
        Ok(Self::Database(Store::read(url).await?))
    }

    /// Uses the credentials of the kubeconfig, which are sent only to a guard whose certificate `authority` has signed.
    pub async fn guard(
        server: &http::Uri,
        authority: Option<&Path>,
        access: &ClusterAccess,
    ) -> Result<Self, InspectError> {
        let client = connection::connect_to(server, authority, access).await?;
        Ok(Self::Guard { name: format!("the guard at {server}"), client })
    }

    /// Passes all rows to `take`, newest first, page by page; the next page is read while one is taken. Returns
    /// messages about replicas whose rows are missing.
    pub async fn each_page(
        &self,
        mut filter: Filter,
        mut take: impl AsyncFnMut(Vec<LedgerEntry>) -> Result<(), InspectError>,
    ) -> Result<Vec<String>, InspectError> {
        filter.limit = Some(PAGE);
        let (mut page, mut missing) = (self.page(&filter).await?, Vec::new());
        loop {
            add_new(&mut missing, page.missing);
            let Some(next) = page.next else {
                take(page.items).await?;
                return Ok(missing);
            };
            filter.before = Some(parse_position(&next)?);
            let (following, taken) = tokio::join!(self.page(&filter), take(page.items));
            taken?;
            page = following?;
        }
    }

    pub async fn page(&self, filter: &Filter) -> Result<EntryPage, InspectError> {
        let (name, otherwise, answers, missing) = match self {
            Self::Database(store) => return Ok(store.page(filter).await?),
            Self::Guard { name, client } => {
                let answer = call::read(client, &path(filter), PATIENCE).await;
                let otherwise = "remove --server to reach a guard through the API server";
                (name.clone(), otherwise, answer.map(|body| vec![body]), Vec::new())
            }
            Self::Forwarded(guard) => {
                let otherwise = "read its database with --ledger";
                let (answers, missing) = guard.get(&path(filter), PATIENCE).await?;
                (guard.name(), otherwise, answers, missing)
            }
        };
        let bodies = answers.map_err(|error| guard_error(&name, otherwise, &error))?;
        let read = |body: &Vec<u8>| {
            serde_json::from_slice::<EntryPage>(body).map_err(|error| {
                InspectError::InvalidInput(format!(
                    "{name} is not a guard: its answer is not from a ledger: {error}"
                ))
            })
        };
        let pages: Vec<_> = bodies.iter().map(read).collect::<Result<_, _>>()?;
        Ok(EntryPage { missing, ..EntryPage::merge(pages, filter) })
    }
}

/// The newest rows that `keep` accepts, newest first, as one page; it has a `next` if there may be more.
pub async fn rows(
    source: &LedgerSource,
    filter: &Filter,
    limit: usize,
    keep: impl Fn(&LedgerEntry) -> bool,
) -> Result<EntryPage, InspectError> {
    let (mut entries, mut missing) = (Vec::new(), Vec::new());
    let mut filter = filter.clone();
    loop {
        let left = u32::try_from(limit.saturating_sub(entries.len())).unwrap_or(u32::MAX);
        filter.limit = Some(left.min(PAGE));
        let page = source.page(&filter).await?;
        entries.extend(page.items.into_iter().filter(|entry| keep(entry)));
        add_new(&mut missing, page.missing);
        match page.next {
            Some(next) if entries.len() < limit => filter.before = Some(parse_position(&next)?),
            next => return Ok(EntryPage { items: entries, next, missing }),
        }
    }
}

pub fn add_new(sentences: &mut Vec<String>, more: Vec<String>) {
    for sentence in more {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
}

pub fn parse_position(next: &str) -> Result<i64, InspectError> {
    let unknown = "the ledger's answer has no next page; use a program of its version";
    next.parse().map_err(|_| InspectError::InvalidInput(unknown.to_owned()))
}

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

fn guard_error(guard: &str, otherwise: &str, error: &ClusterError) -> InspectError {
    InspectError::InvalidInput(match error {
        ClusterError::Refused { code: 403, .. } => {
            return InspectError::Forbidden(
                "you may not read this part of the ledger: this requires the right to list \
                 guardedreleases.kubemoor.dev in the namespace, and in all namespaces with -A"
                    .to_owned(),
            );
        }
        ClusterError::Refused { code: 401, .. } => format!(
            "{guard} does not accept your credentials: it needs a token that the API server accepts, or a \
             client certificate of the cluster; choose others with --context, or set a database with \
             --ledger"
        ),
        ClusterError::Refused { code: 400 | 503, message, .. } => {
            format!("{guard} does not answer: {message}")
        }
        ClusterError::Refused { code, .. } => format!("{guard} has another version: it answers {code}"),
        ClusterError::Untrusted { reason } => format!(
            "{guard} cannot be trusted ({reason}): name the CA of its certificate with --certificate-authority"
        ),
        ClusterError::Unreachable { .. } | ClusterError::Late { .. } => {
            format!("{guard} does not answer: try again, or {otherwise}")
        }
        other => format!("{guard} gives an unusable answer: {other}"),
    })
}

/// The columns of the CSV export. They are stable: new ones may only be appended.
#[rustfmt::skip]
pub const COLUMNS: [&str; 21] = [
    "time", "kind", "verdict", "reason", "cluster", "namespace", "release", "revision", "objectGroup",
    "objectKind", "objectNamespace", "objectName", "operation", "user", "groups", "changes", "detail",
    "moreFields", "uid", "id", "repeats",
];

pub fn columns(entry: &LedgerEntry) -> [String; 21] {
    let LedgerEntry { id, time, kind, cluster, namespace, release, revision, object, .. } = entry;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        time.to_string(),
        kind.clone(),
        entry.verdict.clone(),
        entry.reason.clone(),
        cluster.clone(),
        namespace.clone(),
        text(release),
        revision.map(|revision| revision.to_string()).unwrap_or_default(),
        object.group.clone(),
        object.kind.clone(),
        text(&object.namespace),
        object.name.clone(),
        text(&entry.operation),
        entry.user.clone(),
        entry.groups.join("; "),
        changes(entry, usize::MAX).join("; "),
        entry.detail.clone(),
        entry.more_fields.to_string(),
        entry.uid.clone(),
        id.to_string(),
        entry.repeats.to_string(),
    ]
}

/// The first fields, with old and new values.
pub fn changes(entry: &LedgerEntry, most: usize) -> Vec<String> {
    let value = |value: &Option<String>| value.as_deref().map_or_else(|| "absent".to_owned(), plain);
    // Only an edit has an old and a new value; the reconcile loop finds one value.
    let is_edit = entry.kind == "verdict";
    let field = |field: &EntryField| {
        // For long values, the place at which they differ.
        let EntryField { path, declared, old, new, line, .. } = field.difference.as_deref().unwrap_or(field);
        let place = line.map_or_else(|| plain(path), |line| format!("{} line {line}", plain(path)));
        match (old, new, declared) {
            (None, None, None) => place,
            (_, live, declared) if !is_edit => {
                format!("{place} live {} (declared {})", value(live), value(declared))
            }
            (old, new, declared) => {
                format!("{place} {} -> {} (declared {})", value(old), value(new), value(declared))
            }
        }
    };
    entry.fields.iter().take(most).map(field).collect()
}

/// Text without control characters, so that it cannot move the cursor or colour the terminal.
pub fn plain(text: &str) -> String {
    one_line(text).into_owned()
}

/// If an API server sends two reviews of one change, it does so within this time.
const TWICE: SignedDuration = SignedDuration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct RepeatFilter(VecDeque<(Timestamp, ChangeKey)>);

type ChangeKey = (EntryObject, String, Option<String>, String, Vec<EntryField>);

impl RepeatFilter {
    /// Records a change. Returns whether it differs from those just before it.
    pub(crate) fn insert_if_new(&mut self, entry: &LedgerEntry) -> bool {
        let is_over = |(time, _): &(Timestamp, ChangeKey)| time.duration_since(entry.time) > TWICE;
        while self.0.front().is_some_and(is_over) {
            self.0.pop_front();
        }
        let LedgerEntry { object, user, operation, verdict, fields, .. } = entry;
        let is_same = |known: &ChangeKey| {
            (&known.0, &known.1, &known.2, &known.3, &known.4) == (object, user, operation, verdict, fields)
        };
        let is_first = self.0.iter().all(|(_, known)| !is_same(known));
        if is_first {
            let change = (object.clone(), user.clone(), operation.clone(), verdict.clone(), fields.clone());
            self.0.push_back((entry.time, change));
        }
        is_first
    }
}

#[cfg(test)]
mod tests;
