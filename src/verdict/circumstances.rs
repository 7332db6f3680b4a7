//! What is known of one object at the moment, beside its releases.
//!
//! Entry point: [`Circumstances`]. Invariant: plain values, which the judge was given. Must not decide what they
//! let differ: that is [`super::exceptions`].

use std::sync::Arc;

use crate::declaration::fields::FieldChange;
use crate::helm::release::Declared;
use crate::model::{Autoscaler, ObjectId, ReleaseId};
use crate::policy::allowance::Allowance;
use crate::policy::declaration::Declaration;
use crate::policy::settled::Settled;

/// One object, as a manifest of its release declares it.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredObject<'a> {
    /// The object.
    pub object: &'a ObjectId,
    /// The release.
    pub release: &'a ReleaseId,
    /// What the manifest says of it.
    pub declared: &'a Arc<Declared>,
}

/// What is known of one object at the moment, beside its releases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Circumstances {
    /// The allowances for it.
    pub allowances: Vec<Arc<Allowance>>,
    /// How far autoscalers may scale it, each by itself.
    pub autoscalers: Vec<Autoscaler>,
    /// An autoscaler went that scaled it since its release was last written,
    /// with the releases that declared it: nobody meant its replicas to change
    /// with that, so a live object that nothing else scales keeps them.
    pub departed: Option<Vec<ReleaseId>>,
    /// Values of it that a dry run has settled.
    pub settled: Option<Arc<Settled>>,
}

impl Circumstances {
    /// Whether a dry run has settled that what became of a field of the object is what its
    /// release declares.
    pub fn have_settled(&self, of: DeclaredObject<'_>, change: &FieldChange) -> bool {
        let DeclaredObject { object, release, declared } = of;
        self.settled.as_ref().zip(declared.digest.as_ref()).is_some_and(|(settled, digest)| {
            let declaration = Declaration { release, object, digest, seal: None };
            settled.holds(&declaration, &change.path, change.new.as_ref())
        })
    }
}
