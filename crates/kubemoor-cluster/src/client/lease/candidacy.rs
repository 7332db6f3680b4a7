//! One candidate's view of the Lease, and its next step.
//!
//! Entry point: [`Candidacy::step`]. Invariant: values only; `now` is passed.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::{LIFE, RENEWAL};

/// One candidate's view.
pub(super) struct Candidacy {
    me: String,
    view: View,
    /// When this candidate's own Lease is to be renewed.
    renew_at: Option<Instant>,
    not_before: Option<Instant>,
}

/// What the candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before this instant.
    Wait(Instant),
    /// Read the Lease.
    Read,
    /// Create it in its own name.
    Create,
    /// Take it over.
    Take,
    /// Renew it.
    Renew,
}

enum View {
    Unknown,
    Absent,
    Lease { version: String, holder: String, life: Duration, since: Instant },
}

impl Candidacy {
    pub(super) fn new(me: String) -> Self {
        Self { me, view: View::Unknown, renew_at: None, not_before: None }
    }

    pub(super) fn me(&self) -> &str {
        &self.me
    }

    /// What to do at `now`.
    pub(super) fn step(&self, now: Instant) -> Step {
        if let Some(pause) = self.not_before.filter(|pause| *pause > now) {
            return Step::Wait(pause);
        }
        match &self.view {
            View::Unknown => Step::Read,
            View::Absent => Step::Create,
            View::Lease { holder, .. } if *holder == self.me => match self.renew_at {
                Some(at) if at > now => Step::Wait(at),
                _ => Step::Renew,
            },
            View::Lease { holder, life, since, .. } if holder.is_empty() || *since + *life <= now => {
                Step::Take
            }
            View::Lease { life, since, .. } => Step::Wait(*since + *life),
        }
    }

    /// The Lease is like this, or is not there.
    pub(super) fn see(&mut self, lease: Option<&Lease>, now: Instant) {
        let Some(lease) = lease else {
            self.view = View::Absent;
            return;
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        if matches!(&self.view, View::Lease { version: known, .. } if *known == version) {
            return;
        }
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let life = seconds.filter(|seconds| *seconds > 0).map_or(LIFE, Duration::from_secs);
        let holder = spec.holder_identity.unwrap_or_default();
        self.view = View::Lease { version, holder, life, since: now };
    }

    /// This candidate's own write was granted; it was asked for at `asked`.
    pub(super) fn renewed(&mut self, asked: Instant) {
        self.renew_at = Some(asked + RENEWAL);
        self.not_before = None;
    }

    /// Discards the knowledge of the Lease.
    pub(super) fn unknown(&mut self) {
        self.view = View::Unknown;
    }

    /// Nothing is tried before `pause`.
    pub(super) fn failed(&mut self, pause: Instant) {
        self.not_before = Some(pause);
    }

    /// Whether the Lease is in this candidate's name.
    pub(super) fn is_holder(&self) -> bool {
        matches!(&self.view, View::Lease { holder, .. } if *holder == self.me)
    }
}
