//! Keeps suspensions that the guard sees and no review told of: those that began or ended while no webhook was asked.
//!
//! Of one suspension the row of the review counts, which names the user; only where the ledger has none, one says that the
//! guard saw it. What a ledger that does not answer cannot keep waits for it, within a bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::client::guarded::KIND;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{NamedObject, ObjectId, ReleaseId};
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::entry::LedgerEntry;
use kubemoor_ledger::query::Filter;
use kubemoor_ledger::row::{Act, LedgerRow, ReviewedEdit};
use kubemoor_policy::guarded::{GuardedRelease, Suspension};
use kubemoor_runtime::telemetry::FailureLog;

/// How long the row of a review may take to be in the ledger.
const SETTLING: Duration = Duration::from_secs(5);

/// How many releases wait for a ledger that is not open.
const MOST: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspensionSeen {
    release: Option<ReleaseId>,
    uid: String,
    generation: i64,
    /// Until when and why repairs are suspended; none if they are not.
    words: Option<String>,
    /// Whether the guard saw it change. Otherwise it was there at the start.
    is_change: bool,
    at: Timestamp,
}

/// What has still to be kept: the last of each release.
#[derive(Default)]
struct WaitingSuspensions {
    last: HashMap<ReleaseId, SuspensionSeen>,
    failures: FailureLog,
}

pub struct Witness {
    pub ledger: LedgerHandle,
    pub releases: Arc<Releases>,
    pub seen: mpsc::Receiver<Vec<SuspensionSeen>>,
}

impl SuspensionSeen {
    /// The last state of a GuardedRelease that is gone: it suspends nothing any more.
    pub(super) fn removed(guarded: &GuardedRelease) -> Self {
        Self { words: None, ..Self::now(guarded, true) }
    }

    /// What a GuardedRelease says now, which is a change or was there at the start.
    pub(super) fn now(guarded: &GuardedRelease, is_change: bool) -> Self {
        let words = guarded.spec.suspend.then(|| Suspension::words(&guarded.spec));
        Self {
            release: guarded.release(),
            uid: guarded.metadata.uid.clone().unwrap_or_default(),
            generation: guarded.metadata.generation.unwrap_or_default(),
            words,
            is_change,
            at: Timestamp::now(),
        }
    }

    /// Whether the last row about it tells the same.
    fn is_told_by(&self, last: Option<&LedgerEntry>) -> bool {
        match (&self.words, last) {
            (None, None) => !self.is_change,
            (None, Some(last)) => last.verdict == Act::Resume.as_str(),
            (Some(words), last) => last.is_some_and(|last| {
                last.verdict == Act::Suspend.as_str() && last.detail.starts_with(&**words)
            }),
        }
    }
}

impl WaitingSuspensions {
    fn add(&mut self, all: Vec<SuspensionSeen>) {
        for seen in all {
            let Some(release) = seen.release.clone() else { continue };
            if self.last.len() >= MOST && !self.last.contains_key(&release) {
                continue;
            }
            let is_change = seen.is_change || self.last.get(&release).is_some_and(|it| it.is_change);
            self.last.insert(release, SuspensionSeen { is_change, ..seen });
        }
    }
}

impl Witness {
    pub async fn run(mut self, stop: CancellationToken) {
        let mut waiting = WaitingSuspensions::default();
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => return,
                seen = self.seen.recv() => seen,
                () = tokio::time::sleep(SETTLING), if !waiting.last.is_empty() => Some(Vec::new()),
            };
            let Some(seen) = first else { return stop.cancelled().await };
            waiting.add(seen);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SETTLING) => {}
            }
            while let Ok(seen) = self.seen.try_recv() {
                waiting.add(seen);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.keep(&mut waiting) => {}
            }
        }
    }

    /// Keeps what waits, as far as the ledger answers.
    async fn keep(&self, waiting: &mut WaitingSuspensions) {
        let Some(rows) = self.rows(None, &mut waiting.failures).await else { return };
        let releases: Vec<_> = waiting.last.keys().cloned().collect();
        for release in releases {
            let is_suspended = waiting.last.get(&release).is_some_and(|seen| seen.words.is_some());
            let mut told = rows.iter().find(|row| is_about(row, &release)).cloned();
            if told.is_none() && is_suspended {
                // Its row may be older than those.
                let Some(rows) = self.rows(Some(&release), &mut waiting.failures).await else { return };
                told = rows.into_iter().find(|row| is_about(row, &release));
            }
            if let Some(seen) = waiting.last.remove(&release).filter(|seen| !seen.is_told_by(told.as_ref())) {
                self.ledger.record(self.row(release, seen));
            }
        }
    }

    /// The newest rows about suspensions, of all releases or of one; `None` where the ledger does not answer: then it
    /// is not known whether a review told of one.
    async fn rows(&self, release: Option<&ReleaseId>, failures: &mut FailureLog) -> Option<Vec<LedgerEntry>> {
        let store = self.ledger.store()?;
        let verdicts = [Act::Suspend, Act::Resume].map(|act| act.as_str().to_owned());
        let cluster = self.ledger.cluster().map(str::to_owned);
        let namespace = release.map(|release| release.namespace.to_string());
        let object = release.map(|release| NamedObject {
            kind: KIND.to_lowercase(),
            group: Some(GROUP.to_owned()),
            name: release.name.to_string(),
        });
        let filter = Filter { cluster, verdicts: verdicts.into(), namespace, object, ..Filter::default() };
        match store.page(&filter).await {
            Ok(page) => {
                failures.note_success();
                Some(page.items)
            }
            Err(error) => {
                if failures.note_failure() {
                    tracing::warn!(
                        "suspensions that no review told of are not kept in the ledger, trying again: {error}"
                    );
                }
                None
            }
        }
    }

    fn row(&self, release: ReleaseId, seen: SuspensionSeen) -> LedgerRow {
        let SuspensionSeen { uid, generation, words, is_change, at, .. } = seen;
        let act = if words.is_some() { Act::Suspend } else { Act::Resume };
        let how = match (is_change, &words) {
            (true, _) => "the guard saw it; the user is not known",
            (false, Some(_)) => "it was suspended when the guard started; the user is not known",
            (false, None) => "it was not suspended any more when the guard started; the user is not known",
        };
        let words = words.filter(|words| !words.is_empty());
        let detail = words.iter().map(String::as_str).chain([how]).collect::<Vec<_>>().join("; ");
        let object = ObjectId::namespaced(GROUP, KIND, &release.namespace, &release.name);
        let revision = self.releases.index().read().release(&release).map(|it| it.state.revision);
        let of = revision.map(|revision| (release, revision));
        let same = Some(format!("{uid} {generation} {act:?} seen"));
        LedgerRow { same, detail, ..LedgerRow::act(at, ReviewedEdit::watched(object, None), of, act) }
    }
}

fn is_about(row: &LedgerEntry, release: &ReleaseId) -> bool {
    row.object.kind == KIND
        && row.object.namespace.as_deref() == Some(&*release.namespace)
        && row.object.name == release.name
}

#[cfg(test)]
mod tests;
