//! Allowances that an edit asks for by annotations.
//!
//! Entry points: [`answer`], then [`Granted::make`] once the edit is known to
//! pass. Invariant: an annotation allows nothing by itself; it is a request,
//! granted to whoever may create DriftAllowances there, and only those count.
//! What the chart says of itself is no request, whoever writes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::case::{Aspect, Case};
use super::look::{Live, Unreached};
use crate::cluster::access;
use crate::cluster::allowances::requests::{MakeError, Wish, resource};
use crate::cluster::call::CallError;
use crate::helm::index::Index;
use crate::helm::release::{Declared, Release};
use crate::model::{ALLOW, ALLOW_REASON, ALLOW_UNTIL, ObjectId, ReleaseId};
use crate::policy::allowance::{Allowance, Request};
use crate::policy::flaw::Flaw;
use crate::policy::grant::DELETE;
use crate::policy::resource::DriftAllowance;

/// What becomes of the annotations of an edit.
#[derive(Debug)]
pub(super) enum Asked {
    /// They ask for nothing.
    Nothing,
    /// They were removed, which ends no allowance.
    Withdrawn,
    /// They ask for what is not given, for this reason.
    Refused(String),
    /// They ask for what may be given.
    Granted(Granted),
}

/// An allowance that may be made.
#[derive(Debug)]
pub(super) struct Granted {
    /// What it will be.
    pub(super) allowance: Arc<Allowance>,
    resource: Box<DriftAllowance>,
}

/// The annotations' texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Texts {
    allow: Option<String>,
    until: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Annotated {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: Option<BTreeMap<String, Value>>,
}

/// What the annotations of a case ask for, and whether whoever made the edit
/// may have it. Without a cluster nobody may.
pub(super) async fn answer(
    case: &Case<'_>,
    live: Option<&Live>,
    index: &parking_lot::RwLock<Index>,
    now: Timestamp,
    left: impl Fn() -> Duration,
) -> Result<Asked, Unreached> {
    if case.subject.aspect != Aspect::Object {
        return Ok(Asked::Nothing);
    }
    let (old, new) = case.texts();
    let Some(new) = new else { return Ok(Asked::Nothing) };
    let (before, after) = (Texts::of(old), Texts::of(Some(new)));
    if before == after {
        return Ok(Asked::Nothing);
    }
    let object = &case.subject.object;
    if is_charts_own(&after, object, index) {
        return Ok(Asked::Nothing);
    }
    // Helm may be a moment ahead of what is known of its records.
    if let Some(live) = live {
        let claims: Vec<ReleaseId> = index.read().claims(object).iter().map(|claim| claim.id.clone()).collect();
        for release in &claims {
            let fresh = live.releases.fresh(release, left()).await;
            fresh.map_err(|error| Unreached::Look(Box::new(error)))?;
        }
        if is_charts_own(&after, object, index) {
            return Ok(Asked::Nothing);
        }
    }
    let Some(allow) = &after.allow else {
        return Ok(if before.allow.is_some() { Asked::Withdrawn } else { Asked::Nothing });
    };
    let Some(release) = index.read().claims(object).first().map(|claim| claim.id.clone()) else {
        return Ok(Asked::Nothing);
    };
    let request = match Request::read(allow, after.until.as_deref(), after.reason.as_deref()) {
        Ok(request) => request,
        Err(flaws) => return Ok(Asked::Refused(told(&flaws))),
    };
    let until = match request.until_from(now) {
        Ok(until) => until,
        Err(flaw) => return Ok(Asked::Refused(told(&[flaw]))),
    };
    let Some(live) = live else {
        return Ok(Asked::Refused("NoCluster: there is no cluster to keep an allowance in".to_owned()));
    };
    let namespace = object.namespace.as_deref().unwrap_or(&release.namespace);
    let asking =
        access::may(&live.client, &case.actor, "create", "kubemoor.dev", "driftallowances", Some(namespace));
    let within = left();
    let may = timeout(within, asking).await.unwrap_or(Err(CallError::Late { within }));
    if !may.map_err(|error| Unreached::Ask(Box::new(error)))? {
        let user = &case.actor.user;
        let missing = format!("NoRight: {user} may not create driftallowances.kubemoor.dev in namespace {namespace}");
        return Ok(Asked::Refused(missing));
    }
    let patterns = request.grant.mask.0.iter().map(ToString::to_string);
    let wish = Wish {
        object,
        namespace,
        paths: patterns.chain(request.grant.deletes.then(|| DELETE.to_owned())).collect(),
        until,
        reason: after.reason.as_deref(),
        by: Some(&case.actor),
    };
    let resource = resource(&wish);
    Ok(match Allowance::compile(&resource) {
        Ok(allowance) => {
            Asked::Granted(Granted { allowance: Arc::new(allowance), resource: Box::new(resource) })
        }
        Err(flaws) => Asked::Refused(told(&flaws)),
    })
}

impl Granted {
    /// Makes the allowance.
    pub(super) async fn make(&self, live: &Live, within: Duration) -> Result<(), MakeError> {
        live.allowances.make(&self.resource, within).await.map(drop)
    }

    /// What the editor is told.
    pub(super) fn told(&self, dry_run: bool) -> String {
        let Allowance { name, namespace, until, .. } = &*self.allowance;
        let paths = self.resource.spec.paths.join(", ");
        let verb = if dry_run { "would be made" } else { "was made" };
        format!("DriftAllowance {name} {verb} in namespace {namespace}: it lets {paths} change until {until}")
    }
}

/// What is said where annotations were removed and allowances go on.
pub(super) fn withdrawn(object: &ObjectId) -> String {
    let namespace = object.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    format!(
        "without {ALLOW} the allowances of this object go on until they end: `kubemoor revoke {}/{}{namespace}` ends them",
        object.kind.to_lowercase(),
        object.name
    )
}

/// What is said where a request is not granted and the edit passes.
pub(super) fn in_vain(reason: &str) -> String {
    format!("{ALLOW} counts for nothing here: {reason}")
}

/// What is said where a request is not granted and the edit does not pass.
pub(super) fn refusal(object: &ObjectId, release: &ReleaseId, reason: &str) -> String {
    format!(
        "{object} is declared by Helm release {} in namespace {}, and what its annotation {ALLOW} asks for is not \
         granted: {reason}. Leave the annotation out, or ask somebody who may create DriftAllowances: `kubemoor allow`.",
        release.name, release.namespace
    )
}

impl Texts {
    fn of(object: Option<&RawValue>) -> Self {
        let Some(object) = object.filter(|object| object.get().contains(ALLOW)) else { return Self::default() };
        let annotations = serde_json::from_str::<Annotated>(object.get()).ok();
        let annotations = annotations.and_then(|object| object.metadata.annotations).unwrap_or_default();
        let text = |name: &str| annotations.get(name).and_then(Value::as_str).map(str::to_owned);
        Self { allow: text(ALLOW), until: text(ALLOW_UNTIL), reason: text(ALLOW_REASON) }
    }

    fn declared(declared: &Declared) -> Self {
        let text = |name: &str| match declared.fields.get(&["metadata", "annotations", name]) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        Self { allow: text(ALLOW), until: text(ALLOW_UNTIL), reason: text(ALLOW_REASON) }
    }
}

/// Whether the annotations are what a manifest of the object says.
fn is_charts_own(texts: &Texts, object: &ObjectId, index: &parking_lot::RwLock<Index>) -> bool {
    let says = |release: &Arc<Release>| {
        let declarations = release.objects.get(object);
        let declared = declarations.into_iter().flat_map(|it| it.latest.iter().chain(&it.baseline));
        declared.map(|declared| Texts::declared(declared)).any(|declared| declared == *texts)
    };
    let without_any = *texts == Texts::default();
    !without_any && index.read().claims(object).iter().any(says)
}

fn told(flaws: &[Flaw]) -> String {
    flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
