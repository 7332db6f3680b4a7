//! Records suspensions that the guard sees and no review reported: they began or ended while no webhook was called.
//!
//! The row of the review takes precedence, because it names the user; only if the ledger has none, a row says that the
//! guard saw the suspension. While the ledger does not answer, a bounded number of suspensions waits.

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

/// How long the row of a review may take to reach the ledger.
const SETTLING: Duration = Duration::from_secs(5);

/// The maximum number of releases that wait for the ledger.
const MOST: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspensionSeen {
    release: Option<ReleaseId>,
    uid: String,
    generation: i64,
    /// Until when and why repairs are suspended; `None` if they are not.
    words: Option<String>,
    /// Whether the guard saw the change; otherwise it found this state at the start.
    is_change: bool,
    at: Timestamp,
}

/// What still has to be recorded: the last state of each release.
#[derive(Default)]
struct WaitingSuspensions {
    last: HashMap<ReleaseId, SuspensionSeen>,
    failures: FailureLog,
}

pub struct SuspensionRecorder {
    pub ledger: LedgerHandle,
    pub releases: Arc<Releases>,
    pub seen: mpsc::Receiver<Vec<SuspensionSeen>>,
}

impl SuspensionSeen {
    /// The state after the deletion of a GuardedRelease: nothing is suspended any more.
    pub(super) fn removed(guarded: &GuardedRelease) -> Self {
        Self { words: None, ..Self::now(guarded, true) }
    }

    /// The current state of a GuardedRelease, either changed or found at the start.
    pub(super) fn now(guarded: &GuardedRelease, is_change: bool) -> Self {
        let words = guarded.spec.suspend.then(|| Suspension::describe(&guarded.spec));
        Self {
            release: guarded.release(),
            uid: guarded.metadata.uid.clone().unwrap_or_default(),
            generation: guarded.metadata.generation.unwrap_or_default(),
            words,
            is_change,
            at: Timestamp::now(),
        }
    }

    /// Whether the last row about it already records this state.
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

impl SuspensionRecorder {
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

    /// Records what waits, as far as the ledger answers.
    async fn keep(&self, waiting: &mut WaitingSuspensions) {
        let Some(rows) = self.rows(None, &mut waiting.failures).await else { return };
        let releases: Vec<_> = waiting.last.keys().cloned().collect();
        for release in releases {
            let is_suspended = waiting.last.get(&release).is_some_and(|seen| seen.words.is_some());
            let mut told = rows.iter().find(|row| is_about(row, &release)).cloned();
            if told.is_none() && is_suspended {
                // Its row may be older than this page.
                let Some(rows) = self.rows(Some(&release), &mut waiting.failures).await else { return };
                told = rows.into_iter().find(|row| is_about(row, &release));
            }
            if let Some(seen) = waiting.last.remove(&release).filter(|seen| !seen.is_told_by(told.as_ref())) {
                self.ledger.record(self.row(release, seen));
            }
        }
    }

    /// The newest rows about suspensions, of all releases or of one; `None` if the ledger does not answer: then it is
    /// not known whether a review reported one.
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
                    tracing::warn!("failed to add missing suspensions to the ledger; retrying: {error}");
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
            (false, None) => "it was no longer suspended when the guard started; the user is not known",
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
