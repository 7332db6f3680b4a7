//! The present knowledge about one object, besides its releases.
//!
//! Entry point: [`Circumstances`]. Invariant: plain values, which the judge was given. Must not decide what they
//! let differ: that is [`super::exceptions`].

use std::sync::Arc;

use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{Autoscaler, ObjectId, ReleaseId};
use kubemoor_helm::release::Declared;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::declaration::Declaration;
use kubemoor_policy::settled::Settled;

/// One object, as a manifest of its release declares it.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredObject<'a> {
    /// The object.
    pub object: &'a ObjectId,
    /// The release.
    pub release: &'a ReleaseId,
    /// The manifest's declaration of it.
    pub declared: &'a Arc<Declared>,
}

/// The present knowledge about one object, besides its releases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Circumstances {
    /// The allowances for it.
    pub allowances: Vec<Arc<Allowance>>,
    /// The ranges of the autoscalers that scale it.
    pub autoscalers: Vec<Autoscaler>,
    /// An autoscaler that scaled it has disappeared since its release last changed, with the
    /// releases that declared it: its removal was not meant to change the replicas, so a live
    /// object that nothing else scales keeps them.
    pub departed: Option<Vec<ReleaseId>>,
    /// Values of it that a dry run has settled.
    pub settled: Option<Arc<Settled>>,
}

impl Circumstances {
    /// Whether a dry run has settled that the new value of a field is the declared one.
    pub fn have_settled(&self, of: DeclaredObject<'_>, change: &FieldChange) -> bool {
        let DeclaredObject { object, release, declared } = of;
        self.settled.as_ref().zip(declared.digest.as_ref()).is_some_and(|(settled, digest)| {
            let declaration = Declaration { release, object, digest, seal: None };
            settled.holds(&declaration, &change.path, change.new.as_ref())
        })
    }
}
