//! The parts that keep in the ledger how records, allowances and autoscalers change.
//!
//! Invariant: they begin once the index is whole: what was there before is no change.

use std::sync::Arc;

use super::missed::MissedEnds;
use super::scaling::ScalingHistory;
use super::{Link, Work};
use crate::app::parts::Parts;
use crate::app::permitting::Permitting;
use crate::app::{Services, transitions};
use kubemoor_cluster::client::lease::Leadership;

impl Work {
    /// Starts to record how records, allowances and autoscalers change.
    pub(super) fn keep_histories(&self, link: &Link, parts: &mut Parts) {
        let Services { resolver, ledger, notifiers, stop, .. } = &self.services;
        let Link { releases, policing, .. } = link;
        let transitions = transitions::run(Arc::clone(releases), ledger.clone(), stop.clone());
        parts.spawn("keeping the records' history", transitions);
        let permitting = Permitting {
            allowances: Arc::clone(&policing.allowances),
            releases: Arc::clone(releases),
            ledger: ledger.clone(),
            notifiers: notifiers.clone(),
            resolver: Arc::clone(resolver),
        };
        parts.spawn("keeping the allowances' history", permitting.run(stop.clone()));
        let scaling = ScalingHistory {
            autoscalers: Arc::clone(&policing.autoscalers),
            releases: Arc::clone(releases),
            resolver: Arc::clone(resolver),
            ledger: ledger.clone(),
            leadership: if self.cluster.read_only { Leadership::alone() } else { link.leadership.clone() },
            witnessed: Arc::clone(&policing.witnessed),
        };
        parts.spawn("recording the ends that no guard saw", MissedEnds(scaling.clone()).run(stop.clone()));
        parts.spawn("keeping the autoscalers' history", scaling.run(stop.clone()));
    }
}
