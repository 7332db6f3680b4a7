//! Keeps suspensions that the guard sees and no review told of: those that began or ended while no webhook was asked.
//!
//! Entry point: [`Witness::run`]. Invariant: of one suspension the row of the review counts, which names the user; only
//! where the ledger has none, one says that the guard saw it. Must not steer anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client::guarded::KIND;
use crate::client::resource::GROUP;
use crate::ledger::Ledger;
use crate::ledger::entry::Entry;
use crate::ledger::query::Filter;
use crate::ledger::row::{Act, ReviewedEdit, Row};
use crate::mirror::releases::Releases;
use crate::model::{NamedObject, ObjectId, ReleaseId};
use crate::policy::guarded::GuardedRelease;
use crate::policy::suspension::Suspension;

/// How long the row of a review may take to be in the ledger.
const SETTLING: Duration = Duration::from_secs(5);

/// What a GuardedRelease says of the suspension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    release: Option<ReleaseId>,
    uid: String,
    generation: i64,
    /// Until when and why repairs are suspended; none if they are not.
    words: Option<String>,
    /// Whether the guard saw it change. Otherwise it was there at the start.
    is_change: bool,
}

/// What keeps them.
pub struct Witness {
    /// Where they are kept, and looked up.
    pub ledger: Ledger,
    /// The releases, for their revisions.
    pub releases: Arc<Releases>,
    /// What was seen.
    pub seen: mpsc::Receiver<Vec<Seen>>,
}

impl Seen {
    /// The last state of a GuardedRelease that is gone: it suspends nothing any more.
    pub(super) fn of_removed(guarded: &GuardedRelease) -> Self {
        Self { words: None, ..Self::of(guarded, true) }
    }

    /// What a GuardedRelease says now, which is a change or was there at the start.
    pub(super) fn of(guarded: &GuardedRelease, is_change: bool) -> Self {
        let words = guarded.spec.suspend.then(|| Suspension::words(&guarded.spec));
        Self {
            release: guarded.release(),
            uid: guarded.metadata.uid.clone().unwrap_or_default(),
            generation: guarded.metadata.generation.unwrap_or_default(),
            words,
            is_change,
        }
    }

    /// Whether the last row about it tells the same.
    fn is_told_by(&self, last: Option<&Entry>) -> bool {
        match (&self.words, last) {
            (None, None) => !self.is_change,
            (None, Some(last)) => last.verdict == Act::Resume.as_str(),
            (Some(words), last) => last.is_some_and(|last| {
                last.verdict == Act::Suspend.as_str() && last.detail.starts_with(&**words)
            }),
        }
    }
}

impl Witness {
    /// Keeps them until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => return,
                seen = self.seen.recv() => seen,
            };
            let Some(mut all) = first else { return stop.cancelled().await };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SETTLING) => {}
            }
            while let Ok(seen) = self.seen.try_recv() {
                all.extend(seen);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.keep(all) => {}
            }
        }
    }

    async fn keep(&self, all: Vec<Seen>) {
        // What has changed since is another one's business.
        let mut last = HashMap::new();
        for seen in all {
            let Some(release) = seen.release.clone() else { continue };
            let is_change = seen.is_change || last.get(&release).is_some_and(|it: &Seen| it.is_change);
            last.insert(release, Seen { is_change, ..seen });
        }
        let Some(rows) = self.rows(None).await else { return };
        for (release, seen) in last {
            let mut told = rows.iter().find(|row| is_about(row, &release)).cloned();
            if told.is_none() && seen.words.is_some() {
                // Its row may be older than those.
                let Some(rows) = self.rows(Some(&release)).await else { return };
                told = rows.into_iter().find(|row| is_about(row, &release));
            }
            if !seen.is_told_by(told.as_ref()) {
                self.ledger.record(self.row(release, seen));
            }
        }
    }

    /// The newest rows about suspensions, of all releases or of one; `None` where the ledger does not answer: then it
    /// is not known whether a review told of one.
    async fn rows(&self, release: Option<&ReleaseId>) -> Option<Vec<Entry>> {
        let store = self.ledger.store()?;
        let verdicts = [Act::Suspend, Act::Resume].map(|act| act.as_str().to_owned());
        let cluster = self.ledger.cluster().map(str::to_owned);
        let namespace = release.map(|release| release.namespace.clone());
        let object = release.map(|release| NamedObject {
            kind: KIND.to_lowercase(),
            group: Some(GROUP.to_owned()),
            name: release.name.clone(),
        });
        let filter = Filter { cluster, verdicts: verdicts.into(), namespace, object, ..Filter::default() };
        match store.page(&filter).await {
            Ok(page) => Some(page.items),
            Err(error) => {
                tracing::warn!("suspensions that no review told of are not kept in the ledger: {error}");
                None
            }
        }
    }

    fn row(&self, release: ReleaseId, seen: Seen) -> Row {
        let Seen { uid, generation, words, is_change, .. } = seen;
        let act = if words.is_some() { Act::Suspend } else { Act::Resume };
        let how = match (is_change, &words) {
            (true, _) => "the guard saw it; the user is not known",
            (false, Some(_)) => "it was suspended when the guard started; the user is not known",
            (false, None) => "it was not suspended any more when the guard started; the user is not known",
        };
        let words = words.filter(|words| !words.is_empty());
        let detail = words.iter().map(String::as_str).chain([how]).collect::<Vec<_>>().join("; ");
        let ReleaseId { namespace, name } = release.clone();
        let (group, kind) = (GROUP.to_owned(), KIND.to_owned());
        let object = ObjectId { group, kind, namespace: Some(namespace), name };
        let revision = self.releases.index().read().release(&release).map(|it| it.state.revision);
        let of = revision.map(|revision| (release, revision));
        let same = Some(format!("{uid} {generation} {act:?} seen"));
        Row { same, detail, ..Row::act(Timestamp::now(), ReviewedEdit::watched(object, None), of, act) }
    }
}

fn is_about(row: &Entry, release: &ReleaseId) -> bool {
    row.object.kind == KIND
        && row.object.namespace.as_ref() == Some(&release.namespace)
        && row.object.name == release.name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(verdict: &str, detail: &str) -> Entry {
        serde_json::from_value(json!({
            "id": "1", "time": "2026-11-01T00:00:00Z", "kind": "act", "cluster": "c", "namespace": "shop",
            "object": {"group": GROUP, "kind": KIND, "namespace": "shop", "name": "web"},
            "user": "alice", "groups": [], "verdict": verdict, "reason": "", "detail": detail, "fields": [],
            "moreFields": 0, "uid": "",
        }))
        .unwrap()
    }

    fn seen(words: Option<&str>, is_change: bool) -> Seen {
        let release = Some(ReleaseId { namespace: "shop".to_owned(), name: "web".to_owned() });
        Seen { release, uid: "u".to_owned(), generation: 2, words: words.map(str::to_owned), is_change }
    }

    #[test]
    fn suspension_that_a_review_told_of_needs_no_other_row() {
        let check = |seen: Seen, last: Option<Entry>, expected: bool| {
            assert_eq!(seen.is_told_by(last.as_ref()), expected, "{seen:?} {last:?}");
        };
        for is_change in [false, true] {
            check(seen(Some("INC-7"), is_change), Some(entry("Suspend", "INC-7")), true);
            check(seen(Some("INC-7"), is_change), Some(entry("Suspend", "INC-8")), false);
            check(seen(Some("INC-7"), is_change), Some(entry("Resume", "")), false);
            check(seen(Some(""), is_change), None, false);
            check(seen(None, is_change), Some(entry("Resume", "")), true);
        }
        check(seen(None, true), None, false);
        check(seen(None, true), Some(entry("Suspend", "")), false);
        check(seen(None, false), None, true);
    }

    #[test]
    fn release_that_is_not_suspended_at_the_start_ended_a_suspension_that_the_ledger_has() {
        assert!(!seen(None, false).is_told_by(Some(&entry("Suspend", "INC-7"))));
    }
}
