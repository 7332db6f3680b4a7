//! Whether a user may create exceptions, for the words of a denial.
//!
//! Entry point: [`ExceptionRights::tell`]. Invariant: a denial never waits for it longer than `BUDGET`; an answer that comes
//! later serves the next denial. Nothing is granted by it: what is remembered may be old.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::case::{Case, Judgement};
use super::look::Looker;
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_declare::model::Actor;

/// How long a denial waits for the answer.
const BUDGET: Duration = Duration::from_millis(10);

/// How long the API server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// For how long an answer serves.
const FRESH: Duration = Duration::from_secs(30);

/// The most answers that are remembered, and the most questions at once.
const REMEMBERED: usize = 1000;
const AT_ONCE: usize = 8;

/// The answers, by user and namespace; none where the API server gave none.
type Known = HashMap<u64, (Instant, Option<bool>)>;

/// Who may create exceptions, as far as that was asked.
pub(super) struct ExceptionRights {
    known: Arc<Mutex<Known>>,
    asking: Arc<Semaphore>,
    keys: RandomState,
}

impl Default for ExceptionRights {
    fn default() -> Self {
        Self { known: Arc::default(), asking: Arc::new(Semaphore::new(AT_ONCE)), keys: RandomState::new() }
    }
}

impl ExceptionRights {
    /// Has the message of a refusal say who has to allow changes for a time, where the user may not.
    pub(super) async fn tell(&self, looker: &Looker<'_>, case: &Case<'_>, judgement: &mut Judgement) {
        let (Some(live), Some(grounds)) = (looker.live(), judgement.verdict.grounds.clone()) else { return };
        if !judgement.verdict.outcome.is_refusal() {
            return;
        }
        let namespace = case.subject.object.namespace.as_deref().unwrap_or(&grounds.release.namespace);
        if self.may(&live.client, &case.actor, namespace).await == Some(false) {
            judgement.message.ask_others(namespace);
        }
    }

    /// Whether the user may create exceptions in the namespace; none where the API server has not said so in time.
    async fn may(&self, client: &kube::Client, actor: &Actor, namespace: &str) -> Option<bool> {
        let Actor { user, groups, uid, extra } = actor;
        let key = self.keys.hash_one((user, groups, uid, extra, namespace));
        if let Some((at, may)) = self.known.lock().get(&key)
            && at.elapsed() < FRESH
        {
            return *may;
        }
        let turn = Arc::clone(&self.asking).try_acquire_owned().ok()?;
        let (client, actor, namespace) = (client.clone(), actor.clone(), namespace.to_owned());
        let known = Arc::clone(&self.known);
        let asked = tokio::spawn(async move {
            let right = Right {
                verb: "create",
                group: "kubemoor.dev",
                resource: "driftallowances",
                namespace: Some(&namespace),
                name: None,
            };
            let answer = timeout(PATIENCE, access::may(&client, &actor, &right)).await;
            drop(turn);
            // Who cannot be asked is not asked again at once.
            let may = answer.ok().and_then(Result::ok);
            remember(&mut known.lock(), key, may);
            may
        });
        timeout(BUDGET, asked).await.ok()?.ok()?
    }
}

fn remember(known: &mut Known, key: u64, may: Option<bool>) {
    if known.len() >= REMEMBERED {
        known.retain(|_, (at, _)| at.elapsed() < FRESH);
    }
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(key, (Instant::now(), may));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_remembered_within_a_bound() {
        let mut known = HashMap::new();
        (0..=1000).for_each(|key| remember(&mut known, key, Some(true)));
        assert_eq!(known.len(), 1, "so many at once begin anew");
        remember(&mut known, 1000, Some(false));
        assert_eq!(known[&1000].1, Some(false));
    }
}
