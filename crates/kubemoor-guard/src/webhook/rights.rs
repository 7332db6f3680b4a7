//! What a user may do, for the words of a message: whether they may create exceptions, and whether they may read the
//! object, whose values the message would show.
//!
//! Entry points: [`UserRights::tell_exceptions`], [`UserRights::hide_values`]. Invariant: a message never waits for an answer
//! longer than its budget; an answer that comes later serves the next message. Nothing is granted by it but the sight of
//! values, for which an old answer may serve for half a minute.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::case::{Case, Judgement};
use super::look::Looker;
use super::review::Resource;
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_declare::model::Actor;
use kubemoor_verdict::edit::Outcome;

/// How long a denial waits to know whether the user may create exceptions.
const BUDGET: Duration = Duration::from_millis(10);

/// How long a message with values waits to know whether the user may read them, if the review has as much time left.
const READ_BUDGET: Duration = Duration::from_millis(500);

/// How long the API server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// For how long an answer serves.
const FRESH: Duration = Duration::from_secs(30);

/// The most answers that are remembered, and the most questions at once.
const REMEMBERED: usize = 1000;
const AT_ONCE: usize = 32;

/// The answers, by user and right; none where the API server gave none.
type Known = HashMap<u64, (Instant, Option<bool>)>;

/// What users may do, as far as that was asked.
pub(super) struct UserRights {
    known: Arc<Mutex<Known>>,
    asking: Arc<Semaphore>,
    keys: RandomState,
}

/// A right that is asked for, as [`Right`] has it.
#[derive(Clone, Hash)]
struct AskedRight {
    verb: &'static str,
    group: String,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

impl Default for UserRights {
    fn default() -> Self {
        Self { known: Arc::default(), asking: Arc::new(Semaphore::new(AT_ONCE)), keys: RandomState::new() }
    }
}

impl UserRights {
    /// Has the message of a refusal say who has to allow changes for a time, where the user may not.
    pub(super) async fn tell_exceptions(
        &self,
        looker: &Looker<'_>,
        case: &Case<'_>,
        judgement: &mut Judgement,
    ) {
        let (Some(live), Some(grounds)) = (looker.live(), judgement.verdict.grounds.clone()) else { return };
        if !judgement.verdict.outcome.is_refusal() {
            return;
        }
        let namespace = case.subject.object.namespace.as_deref().unwrap_or(&grounds.release.namespace);
        let asked = AskedRight {
            verb: "create",
            group: "kubemoor.dev".to_owned(),
            resource: "driftallowances".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: None,
        };
        if self.may(&live.client, &case.actor, asked, BUDGET).await == Some(false) {
            judgement.message.ask_others(namespace);
        }
    }

    /// Hides the values in a message to a user of whom the API server does not say that they may `get` the object, which
    /// lies in `resource`. RBAC grants `create`, `update` and `patch` without `get` too, and of these a PUT's answer does not
    /// show what it overwrites. A guard without a cluster can ask nobody and hides nothing.
    pub(super) async fn hide_values(
        &self,
        looker: &Looker<'_>,
        case: &Case<'_>,
        resource: &Resource<'_>,
        judgement: &mut Judgement,
    ) {
        let Some(live) = looker.live() else { return };
        if judgement.verdict.outcome < Outcome::Warn || !judgement.message.has_values() {
            return;
        }
        let object = &case.subject.object;
        let asked = AskedRight {
            verb: "get",
            group: resource.group.clone().into_owned(),
            resource: resource.resource.clone().into_owned(),
            namespace: object.namespace.as_deref().map(str::to_owned),
            name: Some(object.name.to_string()),
        };
        let budget = (looker.left() / 2).min(READ_BUDGET);
        if self.may(&live.client, &case.actor, asked, budget).await != Some(true) {
            judgement.message.hide_values();
        }
    }

    /// Whether the user has a right; none where the API server has not said so in time.
    async fn may(
        &self,
        client: &kube::Client,
        actor: &Actor,
        asked: AskedRight,
        budget: Duration,
    ) -> Option<bool> {
        let Actor { user, groups, uid, extra } = actor;
        let key = self.keys.hash_one((user, groups, uid, extra, &asked));
        if let Some((at, may)) = self.known.lock().get(&key)
            && at.elapsed() < FRESH
        {
            return *may;
        }
        let turn = Arc::clone(&self.asking).try_acquire_owned().ok()?;
        let (client, actor) = (client.clone(), actor.clone());
        let known = Arc::clone(&self.known);
        let asking = tokio::spawn(async move {
            let AskedRight { verb, group, resource, namespace, name } = &asked;
            let (namespace, name) = (namespace.as_deref(), name.as_deref());
            let right = Right { verb, group, resource, namespace, name };
            let answer = timeout(PATIENCE, access::may(&client, &actor, &right)).await;
            drop(turn);
            // Who cannot be asked is not asked again at once.
            let may = answer.ok().and_then(Result::ok);
            remember(&mut known.lock(), key, may);
            may
        });
        timeout(budget, asking).await.ok()?.ok()?
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn reading(name: &str) -> AskedRight {
        AskedRight {
            verb: "get",
            group: String::new(),
            resource: "configmaps".to_owned(),
            namespace: Some("shop".to_owned()),
            name: Some(name.to_owned()),
        }
    }

    /// An API server by which everybody may get `readable`; that fails on `broken`, and is silent on `silent`. Counts what
    /// it is asked.
    fn api_server() -> (kube::Client, Arc<AtomicUsize>) {
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        let service = tower::service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let asked: Value = serde_json::from_slice(&body).unwrap();
                let attributes = &asked["spec"]["resourceAttributes"];
                let named = |name: &str| attributes["name"] == name;
                if named("silent") {
                    std::future::pending::<()>().await;
                }
                let answer = json!({"status": {"allowed": named("readable") && attributes["verb"] == "get"}});
                let status = if named("broken") { 500 } else { 201 };
                let answer =
                    Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::io::Error>(answer.unwrap())
            }
        });
        (kube::Client::new(service, "default"), count)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_plain_answer_in_time_says_what_a_user_may_read() {
        let (client, count) = api_server();
        let rights = UserRights::default();
        let alice = Actor { user: "alice".to_owned(), ..Actor::default() };
        for (name, expected) in
            [("readable", Some(true)), ("hidden", Some(false)), ("broken", None), ("silent", None)]
        {
            assert_eq!(rights.may(&client, &alice, reading(name), READ_BUDGET).await, expected, "{name}");
        }
        let asked = count.load(Ordering::Relaxed);
        assert_eq!(rights.may(&client, &alice, reading("readable"), READ_BUDGET).await, Some(true));
        assert_eq!(count.load(Ordering::Relaxed), asked, "it is remembered");
        let bob = Actor { user: "bob".to_owned(), ..Actor::default() };
        assert_eq!(rights.may(&client, &bob, reading("hidden"), READ_BUDGET).await, Some(false));
        assert_eq!(count.load(Ordering::Relaxed), asked + 1, "each user is asked for");
        tokio::time::advance(FRESH).await;
        assert_eq!(rights.may(&client, &alice, reading("readable"), READ_BUDGET).await, Some(true));
        assert_eq!(count.load(Ordering::Relaxed), asked + 2, "not for ever");
    }

    #[test]
    fn answers_are_remembered_within_a_bound() {
        let mut known = HashMap::new();
        (0..=1000).for_each(|key| remember(&mut known, key, Some(true)));
        assert_eq!(known.len(), 1, "so many at once begin anew");
        remember(&mut known, 1000, Some(false));
        assert_eq!(known[&1000].1, Some(false));
    }
}
