//! Temporary allowances for one object, as `DriftAllowance` resources and as the annotations that
//! request them.
//!
//! Entry points: [`Allowance::compile`], [`Request::read`]. Invariant: no allowance lasts longer
//! than [`LONGEST`] after its request, and an allowance in one namespace has no effect on objects
//! in another. Must not judge.

mod request;

use jiff::{SignedDuration, Timestamp};

pub use self::request::Request;
use super::flaw::{Flaw, FlawReason, Flaws};
use super::grant::Grant;
use super::known::UnknownField;
use super::nearest;
use super::resource::{DriftAllowance, DriftAllowanceSpec, MAX_PATHS};
use kubemoor_declare::model::{Actor, ObjectId, ReleaseId};
use kubemoor_declare::schema::KindSchema;

/// How long an allowance may last.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(31 * 24);

/// The longest reason, in bytes.
const MAX_REASON: usize = 1024;

/// An allowance that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowance {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The object as the allowance names it. Without a namespace, it is in the allowance's
    /// namespace or cluster-scoped.
    pub object: ObjectId,
    /// The changes that are allowed.
    pub grant: Grant,
    /// The end.
    pub until: Timestamp,
    /// The reason; empty if none was given.
    pub reason: String,
    /// The user who requested it; unknown if the user name is empty.
    pub by: Actor,
    /// The resource's uid and generation, which distinguish one allowance from another and from its
    /// earlier state. Empty before the API server has stored it.
    pub version: (String, i64),
    /// The creation time of the resource; `None` before that.
    pub created: Option<Timestamp>,
}

impl Allowance {
    /// Checks an allowance.
    ///
    /// # Errors
    /// Everything that is wrong with it; then it allows nothing.
    pub fn compile(resource: &DriftAllowance) -> Result<Self, Vec<Flaw>> {
        let DriftAllowanceSpec { object, paths, until, reason, requested_by } = &resource.spec;
        let mut flaws = Flaws::default();
        let namespace = resource.metadata.namespace.clone().unwrap_or_default();
        if object.namespace.as_ref().is_some_and(|other| *other != namespace) {
            let message = format!("an allowance is for objects in its own namespace, {namespace}");
            flaws.add("spec.object.namespace", FlawReason::ForeignNamespace, message);
        }
        for (field, text) in [("spec.object.kind", &object.kind), ("spec.object.name", &object.name)] {
            if text.is_empty() {
                flaws.add(field, FlawReason::Missing, "an allowance names one object by kind and name");
            }
        }
        let grant = granted(paths.iter().map(String::as_str), paths.len(), "spec.paths", &mut flaws);
        let created = resource.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let until = time(until, "spec.until", created, &mut flaws);
        let by = requested_by.clone().unwrap_or_default();
        let until = flaws.or(until)?.ok_or_else(Vec::new)?;
        Ok(Self {
            name: resource.metadata.name.clone().unwrap_or_default(),
            object: ObjectId {
                group: object.group.clone().into(),
                kind: object.kind.clone().into(),
                namespace: object.namespace.as_deref().map(Into::into),
                name: object.name.clone().into(),
            },
            namespace,
            grant,
            until,
            reason: reason.clone().unwrap_or_default(),
            by: Actor { user: by.user, groups: by.groups, ..Actor::default() },
            version: (
                resource.metadata.uid.clone().unwrap_or_default(),
                resource.metadata.generation.unwrap_or_default(),
            ),
            created,
        })
    }

    /// Its paths that no object of its kind has, where the kind is one of Kubernetes.
    pub fn unknown_fields(&self) -> Vec<UnknownField> {
        let schemas = nearest::schemas(Some(&self.object.group), &self.object.kind);
        let of = |schema: &KindSchema| -> Vec<_> {
            self.grant.mask.0.iter().filter_map(|path| path.unknown_field(schema)).collect()
        };
        schemas.first().map(|schema| of(schema)).unwrap_or_default()
    }

    /// Whether the allowance holds at `now`.
    pub fn open(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// Whether the allowance applies to this object, which this release declares: an object in its
    /// namespace, or a cluster-scoped one of a release there.
    pub fn is_for(&self, object: &ObjectId, release: &ReleaseId) -> bool {
        let same = self.object.group == object.group
            && self.object.kind == object.kind
            && self.object.name == object.name;
        same && match &object.namespace {
            Some(namespace) => *namespace == self.namespace,
            None => self.object.namespace.is_none() && release.namespace == self.namespace,
        }
    }

    /// The objects that the allowance may apply to; it is indexed by these.
    pub fn objects(&self) -> Vec<ObjectId> {
        let inside = ObjectId { namespace: Some(self.namespace.clone().into()), ..self.object.clone() };
        match self.object.namespace {
            Some(_) => vec![inside],
            None => vec![inside, self.object.clone()],
        }
    }
}

fn granted<'t>(paths: impl Iterator<Item = &'t str>, count: usize, at: &str, flaws: &mut Flaws) -> Grant {
    if count == 0 {
        flaws.add(at, FlawReason::Missing, "name at least one path, * or delete");
    }
    match flaws.within(at, count, MAX_PATHS) {
        true => Grant::read(paths, |index| format!("{at}[{index}]"), flaws),
        false => Grant::default(),
    }
}

fn time(text: &str, at: &str, from: Option<Timestamp>, flaws: &mut Flaws) -> Option<Timestamp> {
    let time = text
        .parse::<Timestamp>()
        .map_err(|_| format!("{text:?} is no time: write one as RFC 3339, such as 2026-12-24T18:00:00Z"));
    let time = flaws.take(at, FlawReason::InvalidTime, time)?;
    match from {
        Some(from) => flaws.take(at, FlawReason::TooFar, bounded(time, from)),
        None => Some(time),
    }
}

fn bounded(until: Timestamp, from: Timestamp) -> Result<Timestamp, String> {
    if until.duration_since(from) <= LONGEST {
        return Ok(until);
    }
    let days = LONGEST.as_hours() / 24;
    Err(format!("{until} is more than {days} days off: ask for less, and again when that is over"))
}

#[cfg(test)]
mod tests;
