//! The memory that large bodies share.
//!
//! Entry point: [`Room::share`]. Invariant: all shares together never exceed the room, and some of
//! it always stays free: a peer may use three quarters of the room that others leave, and a
//! namespace two thirds of its peer's part, and so may a user. So one of them alone may use half of the room.
//! Must not know the purpose of a share.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// A peer uses at most three parts of the room that others leave, and one stays free.
const OF_PEER: usize = 3;

/// A namespace uses at most two parts of its peer's room, and one stays free. The same for a user.
const OF_EACH: usize = 2;

/// Memory in bytes, shared by the present tenants.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    taken: Mutex<Vec<(Tenant, usize)>>,
    /// Notified when room is released.
    given: Notify,
}

/// Who has room: the edits of a user in a namespace, as a peer names them. Both are hashes, so that their names are
/// not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) peer: IpAddr,
    pub(super) namespace: Option<u64>,
    pub(super) user: u64,
}

/// A part of the room, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    room: Arc<Room>,
    tenant: Tenant,
    bytes: usize,
}

/// The cause of a lack of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The tenant's namespace or user has used its part.
    Own,
    /// The others have not left enough room.
    Others,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, taken: Mutex::default(), given: Notify::new() })
    }

    /// An empty share.
    pub(super) fn share(self: &Arc<Self>, tenant: Tenant) -> Share {
        Share { room: Arc::clone(self), tenant, bytes: 0 }
    }

    /// Adds `bytes` to the room of `tenant`.
    fn take(&self, tenant: Tenant, bytes: usize) -> Result<(), Lack> {
        let mut taken = self.taken.lock();
        let sum = |of: &dyn Fn(&Tenant) -> bool| -> usize {
            taken.iter().filter(|(it, _)| of(it)).map(|(_, bytes)| bytes).sum()
        };
        let peer = sum(&|it| it.peer == tenant.peer);
        let all = sum(&|_| true);
        let left = self.bytes.saturating_sub(all - peer);
        let of_peer = left / (OF_PEER + 1) * OF_PEER;
        // Whether there is too little for all tenants of the peer that are the same in some way, and whether they
        // themselves are the cause: they would have more than if each used as much as it may.
        let lacks = |key: &dyn Fn(&Tenant) -> Option<u64>| {
            let is_mine = |it: &Tenant| it.peer == tenant.peer && key(it) == key(&tenant);
            let mine = sum(&is_mine).saturating_add(bytes);
            let others = taken.iter().map(|(it, _)| it).filter(|it| it.peer == tenant.peer && !is_mine(it));
            let siblings = others.map(key).collect::<HashSet<_>>().len();
            let of_siblings = peer.saturating_add(bytes).saturating_sub(mine);
            let of_each = of_peer.saturating_sub(of_siblings) / (OF_EACH + 1) * OF_EACH;
            (mine > of_each, mine > of_peer / (siblings + 2))
        };
        let [by_namespace, by_user] = [lacks(&|it| it.namespace), lacks(&|it| Some(it.user))];
        if peer.saturating_add(bytes) > of_peer || by_namespace.0 || by_user.0 {
            return Err(if by_namespace.1 || by_user.1 { Lack::Own } else { Lack::Others });
        }
        let mine = sum(&|it| *it == tenant).saturating_add(bytes);
        match taken.iter_mut().find(|(it, _)| *it == tenant) {
            Some((_, present)) => *present = mine,
            None => taken.push((tenant, mine)),
        }
        Ok(())
    }

    fn give(&self, tenant: Tenant, bytes: usize) {
        let mut taken = self.taken.lock();
        if let Some((_, present)) = taken.iter_mut().find(|(it, _)| *it == tenant) {
            *present = present.saturating_sub(bytes);
        }
        taken.retain(|(_, bytes)| *bytes > 0);
        drop(taken);
        self.given.notify_waiters();
    }
}

impl Share {
    /// Grows the share to `bytes`, and waits for room until `until`.
    pub(super) async fn grow(&mut self, bytes: usize, until: Instant) -> Result<(), Lack> {
        let more = bytes.saturating_sub(self.bytes);
        loop {
            // Before the check, so that a release in between wakes this task.
            let given = self.room.given.notified();
            match self.room.take(self.tenant, more) {
                Ok(()) => {
                    self.bytes = bytes;
                    return Ok(());
                }
                Err(lack) if timeout_at(until, given).await.is_err() => return Err(lack),
                Err(_) => {}
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.give(self.tenant, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
