//! Who looks, and which clusters they see.
//!
//! Entry point: [`Visitor`]. Invariant: a cluster is seen with the visitor's credentials and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::address::{ALSO, Asked, FOLLOWED};
use super::board::{Changes, Followed};
use super::cluster::Cluster;
use super::ledger_reader::LedgerReader;
use super::shared_ledger::SharedLedger;
use kubemoor_inspect::failure::Failure;
use kubemoor_ledger::store::Store;
use kubemoor_policy::signing::SigningKey;

/// Purposes of marks.
const TOKEN: &str = "token of a form";
const NUMBER: &str = "number of a form";

/// How a visitor shows who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// They run the command.
    Owner,
    /// A proxy sends their token with each request.
    Proxy,
    /// They have logged in, and can log out.
    Login,
}

/// Who looks.
pub(super) struct Visitor {
    pub(super) clusters: Vec<Arc<Cluster>>,
    /// The database that is shown instead of clusters.
    pub(super) shared: Option<SharedLedger>,
    pub(super) entry: Entry,
    /// How the cluster calls them, where that is known.
    pub(super) user: Option<String>,
    /// What the tokens of their forms are made by.
    forms: SigningKey,
    written: AtomicU64,
    confirmed: Mutex<Instant>,
    /// Tells open pages that the visitor's login or token has ended.
    end: watch::Sender<u64>,
}

impl Visitor {
    /// Forms are told from others' by `forms`, which is the visitor's alone.
    pub(super) fn new(clusters: Vec<Cluster>, entry: Entry, user: Option<String>, forms: SigningKey) -> Self {
        let clusters = clusters.into_iter().map(Arc::new).collect();
        let (written, confirmed) = (AtomicU64::new(0), Mutex::new(Instant::now()));
        let end = watch::Sender::new(0);
        Self { clusters, shared: None, entry, user, forms, written, confirmed, end }
    }

    /// The owner, who is shown a database instead of clusters.
    pub(super) fn of_database(store: Store, forms: SigningKey) -> Self {
        Self { shared: Some(SharedLedger::new(store)), ..Self::new(Vec::new(), Entry::Owner, None, forms) }
    }

    /// The end of the login or token, and the changes of what is followed: of the release that is asked for, else of all.
    pub(super) async fn changes(&self, asked: &Asked) -> Vec<Changes> {
        let release = asked.release().map(|release| Followed {
            namespaces: std::iter::once(release.namespace.to_string())
                .chain(asked.all(ALSO).take(FOLLOWED).map(str::to_owned))
                .collect(),
            release,
        });
        // A page may be the first that somebody opens. What cannot be followed tells of nothing.
        let begun = self.asked(asked).map(|cluster| cluster.board(asked.get("namespace")));
        drop(join_all(begun).await);
        let boards = self.asked(asked).flat_map(|cluster| cluster.boards());
        let shared = self.shared.iter().map(|shared| Changes::of_all(shared.changes()));
        let changes = boards.map(|board| board.changes(release.clone())).chain(shared);
        std::iter::once(Changes::of_all(self.end.subscribe())).chain(changes).collect()
    }

    /// Tells open pages that the login or token has ended.
    pub(super) fn end(&self) {
        self.end.send_modify(|ends| *ends = ends.wrapping_add(1));
    }

    /// The ledger of the cluster that is asked for.
    pub(super) async fn ledger(&self, asked: &Asked) -> Result<LedgerReader, Failure> {
        match &self.shared {
            Some(shared) => Ok(shared.ledger(asked.get("cluster"))),
            None => self.cluster(asked)?.ledger().await,
        }
    }

    /// Begins to follow the clusters.
    pub(super) async fn begin(&self) {
        join_all(self.clusters.iter().map(|cluster| cluster.begin())).await;
    }

    /// Whether the API server has said within that time who they are, and nothing else since then.
    pub(super) fn is_confirmed_within(&self, time: Duration) -> bool {
        let mut boards = self.clusters.iter().flat_map(|cluster| cluster.boards());
        self.confirmed.lock().elapsed() < time && !boards.any(|board| board.is_unauthorized())
    }

    /// The API server has said who they are.
    pub(super) fn confirm(&self) {
        *self.confirmed.lock() = Instant::now();
    }

    /// The token of a form of theirs. It is another one on each page: pages are compressed, and the length of what is
    /// the same on all of them could be found out.
    pub(super) fn form_token(&self) -> String {
        let number = self.written.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let number = hex(&self.forms.mark(NUMBER, &[&number]));
        let mark = hex(&self.forms.mark(TOKEN, &[number.as_bytes()]));
        format!("{number}.{mark}")
    }

    /// Whether a form's token is theirs.
    pub(super) fn is_form_token(&self, token: &str) -> bool {
        let bytes = |mark: &str| -> Option<Vec<u8>> {
            let pairs = mark.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
            pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
        };
        let Some((number, mark)) = token.split_once('.') else { return false };
        bytes(mark).is_some_and(|mark| self.forms.is_mark(&mark, TOKEN, &[number.as_bytes()]))
    }

    /// The cluster that is asked for; the only one, where none is named.
    pub(super) fn cluster(&self, asked: &Asked) -> Result<&Arc<Cluster>, Failure> {
        let named = asked.get("cluster");
        let found = match (named, self.clusters.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), clusters) => clusters.iter().find(|cluster| cluster.name == name),
        };
        found.ok_or_else(|| Failure::Named("this address names no cluster of this page".to_owned()))
    }

    /// The clusters that are asked for: one, or all.
    pub(super) fn asked<'v>(&'v self, asked: &'v Asked) -> impl Iterator<Item = &'v Arc<Cluster>> {
        let named = asked.get("cluster");
        self.clusters.iter().filter(move |cluster| named.is_none_or(|name| name == cluster.name))
    }

    /// Whether there are several, so that each has to be named.
    pub(super) fn has_several(&self) -> bool {
        self.clusters.len() > 1
    }
}

/// Bytes as text.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_token_counts_for_its_visitor_alone() {
        let visitor = |byte| Visitor::new(Vec::new(), Entry::Owner, None, SigningKey::new([byte; 32]));
        let (alice, bob) = (visitor(1), visitor(2));
        let token = alice.form_token();
        assert!(alice.is_form_token(&token) && visitor(1).is_form_token(&token));
        assert!(!bob.is_form_token(&token));
        assert_ne!(alice.form_token(), token, "no two pages have the same");
        let (number, mark) = token.split_once('.').unwrap();
        for wrong in ["", ".", number, mark, &format!("{number}."), &format!("{mark}.{number}"), "é.é"] {
            assert!(!alice.is_form_token(wrong), "{wrong}");
        }
    }
}
