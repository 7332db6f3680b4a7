//! What large reviews share: the memory for their bodies, and the turns to be judged or decoded.
//!
//! Nobody takes all of it. A user and a namespace each have at most two thirds of what others leave at one peer, and a peer
//! three quarters. Who lacks a share is told whether the own load is the cause: then the mode decides, and no editor gets an
//! edit past it by load.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout_at};

/// An amount of something, and who has how much of it now.
#[derive(Debug)]
pub(super) struct Shares {
    total: usize,
    /// Whether all ask for the same amount, and so get it in the order in which they asked.
    is_in_order: bool,
    taken: Mutex<HashMap<Holder, usize>>,
    /// Those who wait because of others, in this order.
    line: Mutex<BTreeSet<u64>>,
    tickets: AtomicU64,
    /// Notified when something is given back, or somebody leaves the line.
    given: Notify,
    hasher: RandomState,
}

/// Whose review it is. Names are hashed: they can be long, and are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    /// `None` where it does not matter which peer sends a review.
    peer: Option<IpAddr>,
    namespace: u64,
    user: u64,
}

/// A part of the total, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    holder: Holder,
    amount: usize,
}

/// Why there is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The review's own namespace or user has its part.
    Own,
    /// Others have left too little.
    Others,
}

impl Shares {
    pub(super) fn memory(total: usize) -> Arc<Self> {
        Self::new(total, false)
    }

    pub(super) fn turns(total: usize) -> Arc<Self> {
        Self::new(total, true)
    }

    fn new(total: usize, is_in_order: bool) -> Arc<Self> {
        Arc::new(Self {
            total,
            is_in_order,
            taken: Mutex::default(),
            line: Mutex::default(),
            tickets: AtomicU64::default(),
            given: Notify::new(),
            hasher: RandomState::new(),
        })
    }

    /// An empty share for reviews of a user in a namespace.
    pub(super) fn share(self: &Arc<Self>, peer: Option<IpAddr>, namespace: &str, user: &str) -> Share {
        let [namespace, user] = [namespace, user].map(|name| self.hasher.hash_one(name));
        Share { shares: Arc::clone(self), holder: Holder { peer, namespace, user }, amount: 0 }
    }

    /// Takes an amount, unless others are before `ticket` in the line.
    fn take_in_order(&self, holder: Holder, more: usize, ticket: u64) -> Result<(), Lack> {
        let mut line = self.line.lock();
        let is_next = !self.is_in_order || line.first().is_none_or(|first| *first >= ticket);
        let taken = self.take(holder, more, is_next);
        // Who lacks because of the own load does not hold up others.
        if self.is_in_order && taken == Err(Lack::Others) {
            line.insert(ticket);
        } else if line.remove(&ticket) {
            self.given.notify_waiters();
        }
        taken
    }

    fn take(&self, holder: Holder, more: usize, is_next: bool) -> Result<(), Lack> {
        let mut taken = self.taken.lock();
        let sum = |counts: &dyn Fn(&Holder) -> bool| -> usize {
            let amounts = taken.iter().filter(|(it, _)| counts(it)).map(|(_, amount)| *amount);
            amounts.sum::<usize>().saturating_add(more)
        };
        let is_of_peer = |it: &Holder| it.peer == holder.peer;
        let keys: [fn(&Holder) -> u64; 2] = [|it| it.namespace, |it| it.user];
        let of_peer = self.total - self.total / 4;
        let exceeds = |key: fn(&Holder) -> u64| {
            let own = sum(&|it| is_of_peer(it) && key(it) == key(&holder));
            // Both sums hold what is asked for.
            let most = match holder.peer {
                Some(_) => of_peer.saturating_sub(sum(&is_of_peer) - own) / 3 * 2,
                None => self.total / 2,
            };
            own > most
        };
        let lacks = sum(&|_| true) > self.total
            || (holder.peer.is_some() && sum(&is_of_peer) > of_peer)
            || keys.into_iter().any(exceeds);
        if lacks || !is_next {
            // At whatever peer: who has as much as all would have if they had the same.
            let is_own = keys.iter().any(|key| {
                let others = taken.keys().map(key).filter(|it| *it != key(&holder)).collect::<HashSet<_>>();
                let fair = self.total / (others.len() + 2);
                sum(&|it| key(it) == key(&holder)) > fair.max(more).min(self.total / 2)
            });
            return Err(if is_own { Lack::Own } else { Lack::Others });
        }
        *taken.entry(holder).or_default() += more;
        Ok(())
    }

    fn give(&self, holder: Holder, amount: usize) {
        let mut taken = self.taken.lock();
        if let Some(present) = taken.get_mut(&holder) {
            *present = present.saturating_sub(amount);
        }
        taken.retain(|_, amount| *amount > 0);
        drop(taken);
        self.given.notify_waiters();
    }
}

impl Share {
    /// Grows the share to `amount`, and waits for it until `until`.
    pub(super) async fn grow(&mut self, amount: usize, until: Instant) -> Result<(), Lack> {
        let more = amount.saturating_sub(self.amount);
        let ticket = self.shares.tickets.fetch_add(1, Ordering::Relaxed);
        let shares = Arc::clone(&self.shares);
        let _place = Place { shares: &shares, ticket };
        loop {
            // Before the check, so that a release in between wakes this task.
            let mut given = pin!(self.shares.given.notified());
            given.as_mut().enable();
            match self.shares.take_in_order(self.holder, more, ticket) {
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

/// A place in the line, until it is dropped: a caller that gives up leaves it as well.
struct Place<'a> {
    shares: &'a Shares,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.shares.line.lock().remove(&self.ticket) {
            self.shares.given.notify_waiters();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.shares.give(self.holder, self.amount);
        }
    }
}

/// Polls a future that computes for long so that other requests go on: its thread hands them to another one.
pub(super) async fn aside<F: Future>(work: F) -> F::Output {
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
