//! Resources that large reviews share: the memory for their bodies ([`MemoryShares`]), and the turns for judging or
//! decoding them ([`FairTurns`]).
//!
//! Nobody can take everything. At one peer, a user or a namespace gets at most two thirds of the memory that others
//! leave, and a peer gets at most three quarters; of the turns, a user or a namespace gets at most half.
//! [`ShortageCause`] says whether a review's own user or namespace is the cause: then the mode decides, so that no user
//! can bypass the guard by load.
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout_at};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShortageCause {
    /// The review's own namespace or user has used its share.
    Own,
    Others,
}

/// Whose review it is. Names are hashed: they can be long, and are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    namespace: u64,
    user: u64,
}

const KEYS: [fn(&Holder) -> u64; 2] = [|it| it.namespace, |it| it.user];

#[derive(Debug)]
pub(super) struct MemoryShares {
    total: usize,
    taken: Mutex<HashMap<(IpAddr, Holder), usize>>,
    given: Notify,
    hasher: RandomState,
}

#[derive(Debug)]
pub(super) struct TakenShare {
    shares: Arc<MemoryShares>,
    peer: IpAddr,
    holder: Holder,
    amount: usize,
}

/// A number of turns, first come first served, up to a limit per user and namespace.
#[derive(Debug)]
pub(super) struct FairTurns {
    total: usize,
    /// Fair: waiters get permits in order.
    free: Arc<Semaphore>,
    taken: Mutex<HashMap<Holder, usize>>,
    given: Notify,
    hasher: RandomState,
}

#[derive(Debug)]
pub(super) struct HeldTurn {
    turns: Arc<FairTurns>,
    holder: Holder,
    _permit: OwnedSemaphorePermit,
}

impl Holder {
    fn new(hasher: &RandomState, namespace: &str, user: &str) -> Self {
        let [namespace, user] = [namespace, user].map(|name| hasher.hash_one(name));
        Self { namespace, user }
    }
}

/// Why `holder`, who asks for `more`, gets too little: the own load is the cause if it exceeds an equal share of all
/// holders.
fn lack(taken: &[(Holder, usize)], holder: Holder, more: usize, total: usize) -> ShortageCause {
    let is_own = KEYS.iter().any(|key| {
        let others = taken.iter().map(|(it, _)| key(it)).filter(|it| *it != key(&holder));
        let fair = total / (others.collect::<HashSet<_>>().len() + 2);
        let own = taken.iter().filter(|(it, _)| key(it) == key(&holder)).map(|(_, amount)| *amount);
        own.sum::<usize>().saturating_add(more) > fair.max(more).min(total / 2)
    });
    if is_own { ShortageCause::Own } else { ShortageCause::Others }
}

impl MemoryShares {
    pub(super) fn new(total: usize) -> Arc<Self> {
        let (taken, given, hasher) = (Mutex::default(), Notify::new(), RandomState::new());
        Arc::new(Self { total, taken, given, hasher })
    }

    /// An empty share for the reviews of a user in a namespace that `peer` sends.
    pub(super) fn share(self: &Arc<Self>, peer: IpAddr, namespace: &str, user: &str) -> TakenShare {
        let holder = Holder::new(&self.hasher, namespace, user);
        TakenShare { shares: Arc::clone(self), peer, holder, amount: 0 }
    }

    fn take(&self, peer: IpAddr, holder: Holder, more: usize) -> Result<(), ShortageCause> {
        let mut taken = self.taken.lock();
        let sum = |counts: &dyn Fn(IpAddr, &Holder) -> bool| -> usize {
            let amounts = taken.iter().filter(|((at, it), _)| counts(*at, it)).map(|(_, amount)| *amount);
            amounts.sum::<usize>().saturating_add(more)
        };
        let at_peer = sum(&|at, _| at == peer);
        let most_at_peer = self.total - self.total / 4;
        let exceeds = |key: fn(&Holder) -> u64| {
            let own = sum(&|at, it| at == peer && key(it) == key(&holder));
            // Both sums include `more`.
            own > most_at_peer.saturating_sub(at_peer - own) / 3 * 2
        };
        if sum(&|_, _| true) > self.total || at_peer > most_at_peer || KEYS.into_iter().any(exceeds) {
            // Over all peers.
            let all: Vec<_> = taken.iter().map(|((_, it), amount)| (*it, *amount)).collect();
            return Err(lack(&all, holder, more, self.total));
        }
        *taken.entry((peer, holder)).or_default() += more;
        Ok(())
    }
}

impl TakenShare {
    /// Grows the share to `amount`, and waits for it until `until`.
    pub(super) async fn grow(&mut self, amount: usize, until: Instant) -> Result<(), ShortageCause> {
        let more = amount.saturating_sub(self.amount);
        let shares = Arc::clone(&self.shares);
        loop {
            // Before the check, so that a release in between wakes this task.
            let mut given = pin!(shares.given.notified());
            given.as_mut().enable();
            match shares.take(self.peer, self.holder, more) {
                Ok(()) => {
                    self.amount = amount;
                    return Ok(());
                }
                Err(lack) if timeout_at(until, given).await.is_err() => return Err(lack),
                Err(_) => {}
            }
        }
    }
}

impl Drop for TakenShare {
    fn drop(&mut self) {
        if self.amount > 0 {
            give(&mut self.shares.taken.lock(), &(self.peer, self.holder), self.amount);
            self.shares.given.notify_waiters();
        }
    }
}

impl FairTurns {
    pub(super) fn new(total: usize) -> Arc<Self> {
        let (taken, given, hasher) = (Mutex::default(), Notify::new(), RandomState::new());
        Arc::new(Self { total, free: Arc::new(Semaphore::new(total)), taken, given, hasher })
    }

    /// Waits until `until` for a turn for a user's review in a namespace. A caller that is over its own limit does not
    /// hold up others.
    pub(super) async fn take(
        self: &Arc<Self>,
        namespace: &str,
        user: &str,
        until: Instant,
    ) -> Result<HeldTurn, ShortageCause> {
        let holder = Holder::new(&self.hasher, namespace, user);
        loop {
            let mut given = pin!(self.given.notified());
            given.as_mut().enable();
            let ended = if self.has_room(&self.taken.lock(), holder) {
                match timeout_at(until, Arc::clone(&self.free).acquire_owned()).await {
                    Ok(Ok(permit)) => match self.begin(holder, permit) {
                        Some(turn) => return Ok(turn),
                        None => false,
                    },
                    Ok(Err(_)) | Err(_) => true,
                }
            } else {
                timeout_at(until, given).await.is_err()
            };
            if ended {
                let all: Vec<_> = self.taken.lock().iter().map(|(it, amount)| (*it, *amount)).collect();
                return Err(lack(&all, holder, 1, self.total));
            }
        }
    }

    /// Whether a user and a namespace have less than half of all turns.
    fn has_room(&self, taken: &HashMap<Holder, usize>, holder: Holder) -> bool {
        KEYS.iter().all(|key| {
            let own = taken.iter().filter(|(it, _)| key(it) == key(&holder)).map(|(_, amount)| *amount);
            own.sum::<usize>() < self.total / 2
        })
    }

    /// `None` if others of the same user or namespace have begun meanwhile.
    fn begin(self: &Arc<Self>, holder: Holder, permit: OwnedSemaphorePermit) -> Option<HeldTurn> {
        let mut taken = self.taken.lock();
        if !self.has_room(&taken, holder) {
            return None;
        }
        *taken.entry(holder).or_default() += 1;
        Some(HeldTurn { turns: Arc::clone(self), holder, _permit: permit })
    }
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        give(&mut self.turns.taken.lock(), &self.holder, 1);
        self.turns.given.notify_waiters();
    }
}

fn give<K: std::hash::Hash + Eq>(taken: &mut HashMap<K, usize>, holder: &K, amount: usize) {
    if let Some(present) = taken.get_mut(holder) {
        *present = present.saturating_sub(amount);
    }
    taken.retain(|_, amount| *amount > 0);
}

/// Polls a future that computes for long, while other requests continue: its thread hands them to another thread.
pub(super) async fn run_blocking_future<F: Future>(work: F) -> F::Output {
    let mut work = Box::pin(work);
    let is_possible = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    poll_fn(|context| match is_possible {
        true => block_in_place(|| work.as_mut().poll(context)),
        false => work.as_mut().poll(context),
    })
    .await
}

#[cfg(test)]
mod tests;
