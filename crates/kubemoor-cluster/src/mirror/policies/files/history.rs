//! Which policies in files changed, each change told once.
//!
//! Entry point: `History::note`. Invariant: guards that read the same files tell of a change alike, though at slightly
//! different times; what was there at the start is no change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;

use crate::mirror::policies::change::{FileChange, PolicyFate};
use kubemoor_policy::compile::Compiled;

/// Guards that see one change tell it within the same hour, nearly always.
const PERIOD: i64 = 3600;

/// Policies by name, each with the file that it comes from.
pub(super) type Placed = BTreeMap<String, (Arc<Compiled>, String)>;

/// What was told.
pub(super) struct History {
    /// The last state of each policy: its digest and its file; none before the files were read.
    last: Option<BTreeMap<String, (String, String)>>,
    /// How often each change was made in this period.
    told: BTreeMap<String, u32>,
    period: i64,
    /// Who keeps a history.
    pub(super) keep: Box<dyn Fn(FileChange) + Send + Sync>,
}

impl Default for History {
    fn default() -> Self {
        Self { last: None, told: BTreeMap::new(), period: 0, keep: Box::new(drop) }
    }
}

impl History {
    /// Reports the differences from the previous policies.
    pub(super) fn note(&mut self, policies: &Placed, now: Timestamp) {
        let state = |(name, (policy, file)): (&String, &(Arc<Compiled>, String))| {
            (name.clone(), (short(&policy.digest), file.clone()))
        };
        let present: BTreeMap<_, _> = policies.iter().map(state).collect();
        let Some(last) = self.last.replace(present.clone()) else { return };
        let period = now.as_second() / PERIOD;
        if std::mem::replace(&mut self.period, period) != period {
            self.told.clear();
        }
        for (policy, (digest, file)) in &present {
            match last.get(policy) {
                None => self.tell(policy, file, PolicyFate::Created, &format!("-{digest}")),
                Some((before, _)) if before != digest => {
                    self.tell(policy, file, PolicyFate::Changed, &format!("{before}-{digest}"));
                }
                Some(_) => {}
            }
        }
        for (policy, (digest, file)) in last.iter().filter(|(policy, _)| !present.contains_key(*policy)) {
            self.tell(policy, file, PolicyFate::Deleted, &format!("{digest}-"));
        }
    }

    fn tell(&mut self, policy: &str, file: &str, fate: PolicyFate, change: &str) {
        let change = format!("file {file} {policy} {change}");
        let count = self.told.entry(change.clone()).or_default();
        *count += 1;
        let same = format!("{change} {} {count}", self.period);
        (self.keep)(FileChange { policy: policy.to_owned(), file: file.to_owned(), fate, same });
    }
}

/// The first digits of a digest.
pub(super) fn short(digest: &[u8]) -> String {
    digest.iter().take(6).fold(String::new(), |mut text, byte| {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
