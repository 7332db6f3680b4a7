//! Limits the number of open connections, and shares it between peers.
//!
//! Entry point: [`Seats::take`]. Invariant: a new connection is refused only if its own peer has enough, or
//! no peer with as many has an idle one. The last eighth of the seats is kept for peers that hold less than
//! half of all, so that no peer can take the last one. When all are taken, an idle connection is closed:
//! preferably one without a successful answer, of the peer with the most connections, the oldest. A
//! connection with a request in flight is never closed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::patience::Turn;

/// The part of all seats that no peer with half of them may take.
const KEPT: usize = 8;

/// All seats of a port.
#[derive(Debug)]
pub(super) struct Seats {
    limit: usize,
    /// Idle times are counted from here.
    start: Instant,
    taken: Mutex<Taken>,
}

/// A connection's seat, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: u64,
    occupant: Arc<Occupant>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    occupants: HashMap<u64, Arc<Occupant>>,
    /// The number of seats of each peer.
    peers: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Occupant {
    peer: IpAddr,
    turn: Turn,
    /// Since when it is idle, in milliseconds from the start; stale while a
    /// request is served.
    since: AtomicU64,
    /// Whether one of its requests had a successful answer.
    is_proven: AtomicBool,
    leave: Notify,
}

impl Seats {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, start: Instant::now(), taken: Mutex::default() })
    }

    /// A seat for a connection of `peer`, with its requests in `turn`; if needed, that of an idle connection,
    /// which is told to leave.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, turn: &Turn) -> Option<Seat> {
        let mut taken = self.taken.lock();
        let mine = taken.count(peer);
        let free = self.limit.saturating_sub(taken.occupants.len());
        if free == 0 {
            taken.displace(|occupant, count| occupant.peer == peer || count >= mine).then_some(())?;
        } else if mine >= self.limit / 2 && free <= self.limit / KEPT {
            taken.displace(|occupant, _| occupant.peer == peer).then_some(())?;
        }
        let id = taken.next;
        taken.next += 1;
        let occupant = Arc::new(Occupant {
            peer,
            turn: turn.clone(),
            since: AtomicU64::new(self.now()),
            is_proven: AtomicBool::new(false),
            leave: Notify::new(),
        });
        taken.occupants.insert(id, Arc::clone(&occupant));
        *taken.peers.entry(peer).or_default() += 1;
        Some(Seat { seats: Arc::clone(self), id, occupant })
    }

    /// Tells an idle connection to leave, for want of something else than
    /// seats. Says whether there was one.
    pub(super) fn displace(&self) -> bool {
        self.taken.lock().displace(|_, _| true)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Taken {
    fn count(&self, peer: IpAddr) -> usize {
        self.peers.get(&peer).copied().unwrap_or_default()
    }

    /// Takes the seat of an idle connection among those that `may` give way,
    /// which are told the number of their peer's seats.
    fn displace(&mut self, may: impl Fn(&Occupant, usize) -> bool) -> bool {
        let idle = self.occupants.iter().filter_map(|(id, occupant)| {
            let count = self.count(occupant.peer);
            let gives_way = !occupant.turn.is_serving() && may(occupant, count);
            let is_proven = occupant.is_proven.load(Ordering::Relaxed);
            gives_way.then(|| ((is_proven, Reverse(count), occupant.since.load(Ordering::Relaxed), *id), *id))
        });
        let Some((_, id)) = idle.min() else { return false };
        if let Some(occupant) = self.remove(id) {
            occupant.leave.notify_one();
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Occupant>> {
        let occupant = self.occupants.remove(&id)?;
        if let Some(count) = self.peers.get_mut(&occupant.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&occupant.peer);
            }
        }
        Some(occupant)
    }
}

impl Seat {
    /// Waits until the seat is needed by others.
    pub(super) async fn needed(&self) {
        self.occupant.leave.notified().await;
    }

    /// A request was answered, well or not; the connection is idle from now on.
    pub(super) fn answered(&self, well: bool) {
        self.occupant.since.store(self.seats.now(), Ordering::Relaxed);
        if well {
            self.occupant.is_proven.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Nothing, if it was needed by others.
        self.seats.taken.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests;
