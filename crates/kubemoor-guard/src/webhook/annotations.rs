//! Allowances that an edit requests by annotations: [`read`] before the edit is judged, [`settle`] after.
//!
//! An annotation is only a request, granted to users who may create DriftAllowances in that namespace. An annotation
//! with the value that the chart's manifest declares is no request, whoever writes it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::case::{Aspect, Judgement, ReviewCase, policy_for_object};
use super::look::{CaseJudge, JudgementError, LOOKS};
use crate::LiveCluster;
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::allowances::{AllowanceRequest, resource};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::model::{ALLOW, ALLOW_REASON, ALLOW_UNTIL, Actor, ObjectId};
use kubemoor_helm::release::{AllowAnnotations, ObjectDeclarations, Release};
use kubemoor_policy::allowance::{Allowance, RequestedAllowance};
use kubemoor_policy::flaw::{self, Flaw};
use kubemoor_policy::resource::DriftAllowance;
use kubemoor_verdict::edit::{Verdict, VerdictReason};
use kubemoor_verdict::message;

#[derive(Debug)]
pub(super) enum AnnotationRequest {
    Nothing,
    /// They were removed, which ends no allowance.
    Withdrawn,
    Refused(String),
    Granted(GrantedRequest),
    Unknown(JudgementError),
}

#[derive(Debug)]
pub(super) struct GrantedRequest {
    pub(super) allowance: Arc<Allowance>,
    resource: Box<DriftAllowance>,
}

/// Reads the request in the annotations of a case, and checks whether the user may have it. Without a cluster, no
/// request is granted.
pub(super) async fn read(case: &ReviewCase<'_>, looker: &CaseJudge<'_>) -> AnnotationRequest {
    let [old, new] = case.texts();
    let Some(new) = new.filter(|_| case.subject.aspect == Aspect::Object) else {
        return AnnotationRequest::Nothing;
    };
    let (before, after) = (excerpted(old), excerpted(Some(new)));
    if before == after {
        return AnnotationRequest::Nothing;
    }
    // The mode decides the effect of an error. The calls are boxed, so that the future of every request stays small.
    Box::pin(looked_into(case, looker, before, after)).await.unwrap_or_else(AnnotationRequest::Unknown)
}

/// Creates the requested allowance if the edit is allowed; denies the edit if the allowance may not
/// be created and the mode is strict. Returns the warnings for the user.
///
/// # Errors
/// The request could not be checked, and the edit would be refused.
pub(super) async fn settle(
    asked: AnnotationRequest,
    case: &ReviewCase<'_>,
    judgement: &mut Judgement,
    looker: &CaseJudge<'_>,
) -> Result<Vec<String>, JudgementError> {
    let object = &case.subject.object;
    if matches!(asked, AnnotationRequest::Nothing) || judgement.verdict.outcome.is_refusal() {
        return asked.known().map(|_| Vec::new());
    }
    let policy = policy_for_object(looker.rules.resolver, object, &judgement.claims);
    let is_exempt = policy.exempt.iter().any(|subject| subject.matches(&case.actor));
    let passes_anyway = matches!(
        judgement.verdict.reason,
        VerdictReason::BeingDeleted | VerdictReason::Identity | VerdictReason::OptedOut
    );
    let verdict = Verdict::by_mode(&policy, VerdictReason::Request, None);
    let is_strict = verdict.outcome.is_refusal() && !is_exempt && !passes_anyway;
    let refused = match (asked, looker.live()) {
        (AnnotationRequest::Nothing, _) => return Ok(Vec::new()),
        (AnnotationRequest::Withdrawn, live) => {
            let goes_on = |release: &Arc<Release>| {
                live.is_some_and(|live| !live.allowances.of_release(object, &release.id).is_empty())
            };
            let going_on = judgement.claims.iter().find(|release| goes_on(release));
            let message = going_on.map(|release| message::withdrawn(object, &release.id));
            return Ok(message.map(|message| message.warnings()).unwrap_or_default());
        }
        (AnnotationRequest::Refused(reason), _) => reason,
        (AnnotationRequest::Unknown(error), _) if is_strict => return Err(error),
        (AnnotationRequest::Unknown(error), _) => error.to_string(),
        (AnnotationRequest::Granted(granted), _) if case.dry_run => return Ok(granted.warnings(object, true)),
        (AnnotationRequest::Granted(_), None) => return Ok(Vec::new()),
        (AnnotationRequest::Granted(granted), Some(live)) => {
            let within = looker.time_left();
            let making = Box::pin(live.allowances.make(&granted.resource, within));
            let making = timeout(within, making).await;
            match making.unwrap_or_else(|_| Err(ClusterError::Late { within }.into())) {
                Ok(_) => return Ok(granted.warnings(object, false)),
                Err(error) => format!("NotMade: {error}"),
            }
        }
    };
    match judgement.claims.first() {
        Some(release) if is_strict => {
            judgement.message = message::refused(object, &release.id, &refused);
            judgement.verdict = verdict;
            judgement.request_refused = Some(refused);
            Ok(Vec::new())
        }
        _ => Ok(message::without_effect(object, &refused).warnings()),
    }
}

async fn looked_into(
    case: &ReviewCase<'_>,
    looker: &CaseJudge<'_>,
    before: AllowAnnotations,
    after: AllowAnnotations,
) -> Result<AnnotationRequest, JudgementError> {
    let (object, live) = (&case.subject.object, looker.live());
    let claims = || case.claims(looker.source.index(), looker.rules.resolver);
    let Some(allow) = &after.allow else {
        return Ok(if before.allow.is_some() {
            AnnotationRequest::Withdrawn
        } else {
            AnnotationRequest::Nothing
        });
    };
    if is_charts_own(&before, &after, object, &claims()) {
        return Ok(AnnotationRequest::Nothing);
    }
    // Helm may have written a record that is not known yet.
    if let Some(live) = live {
        for claim in claims().iter().take(LOOKS) {
            let fresh = live.releases.refresh_release(&claim.id, looker.time_left()).await;
            fresh.map(drop).or_else(|error| JudgementError::Look(Box::new(error)).unless_answered())?;
        }
        if is_charts_own(&before, &after, object, &claims()) {
            return Ok(AnnotationRequest::Nothing);
        }
    }
    let Some(release) = claims().first().map(|claim| claim.id.clone()) else {
        return Ok(AnnotationRequest::Nothing);
    };
    let (request, until) = match parse(&after, allow) {
        Ok(read) => read,
        Err(flaws) => return Ok(AnnotationRequest::Refused(flaw::join(&flaws))),
    };
    let Some(live) = live else {
        return Ok(AnnotationRequest::Refused(
            "NoCluster: there is no cluster to store an allowance in".to_owned(),
        ));
    };
    let namespace = object.namespace.as_deref().unwrap_or(&release.namespace);
    if let Some(reason) = without_right(&case.actor, live, namespace, looker.time_left()).await? {
        return Ok(AnnotationRequest::Refused(reason));
    }
    let request = AllowanceRequest {
        object,
        namespace,
        paths: request.grant.paths().collect(),
        until,
        reason: after.reason.as_deref(),
        by: Some(&case.actor),
    };
    let resource = resource(&request);
    Ok(match Allowance::compile(&resource) {
        Ok(allowance) => AnnotationRequest::Granted(GrantedRequest {
            allowance: Arc::new(allowance),
            resource: Box::new(resource),
        }),
        Err(flaws) => AnnotationRequest::Refused(flaw::join(&flaws)),
    })
}

/// The reason why a user may not have an allowance; `None` if they have the permission to create
/// one.
async fn without_right(
    actor: &Actor,
    live: &LiveCluster,
    namespace: &str,
    within: Duration,
) -> Result<Option<String>, JudgementError> {
    let right = Right {
        verb: "create",
        group: "kubemoor.dev",
        resource: "driftallowances",
        namespace: Some(namespace),
        name: None,
    };
    let asking = access::is_user_allowed(&live.client, actor, &right);
    let may = timeout(within, asking).await.unwrap_or(Err(ClusterError::Late { within }));
    let right = "create driftallowances.kubemoor.dev in namespace";
    let user = &actor.user;
    match may {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(format!("NoRight: {user} may not {right} {namespace}"))),
        Err(error) => {
            let unknown =
                format!("NoRight: the guard cannot check if {user} may {right} {namespace}: {error}");
            JudgementError::Ask(Box::new(error)).unless_answered()?;
            Ok(Some(unknown))
        }
    }
}

impl AnnotationRequest {
    /// This result, unless the request could not be checked.
    pub(super) fn known(self) -> Result<Self, JudgementError> {
        match self {
            Self::Unknown(error) => Err(error),
            known => Ok(known),
        }
    }
}

impl GrantedRequest {
    fn warnings(&self, object: &ObjectId, is_dry_run: bool) -> Vec<String> {
        let Allowance { name, namespace, until, .. } = &*self.allowance;
        let what = (self.resource.spec.paths.as_slice(), *until);
        message::granted(object, (namespace.as_str(), name.as_str()), what, is_dry_run).warnings()
    }
}

fn excerpted(object: Option<&Excerpt<'_>>) -> AllowAnnotations {
    let Some(object) = object else { return AllowAnnotations::default() };
    let [allow, until, reason] =
        object.texts(&["metadata", "annotations"], [ALLOW, ALLOW_UNTIL, ALLOW_REASON]);
    AllowAnnotations { allow, until, reason }
}

fn parse(annotations: &AllowAnnotations, allow: &str) -> Result<(RequestedAllowance, Timestamp), Vec<Flaw>> {
    let request =
        RequestedAllowance::read(allow, annotations.until.as_deref(), annotations.reason.as_deref())?;
    let until = request.until_from(Timestamp::now()).map_err(|flaw| vec![flaw])?;
    Ok((request, until))
}

/// Whether all changed annotations get the values of a manifest of the object: annotations that a
/// person has added stay when Helm writes.
fn is_charts_own(
    before: &AllowAnnotations,
    after: &AllowAnnotations,
    object: &ObjectId,
    claims: &[Arc<Release>],
) -> bool {
    let none = AllowAnnotations::default();
    let says = |release: &Arc<Release>| {
        let declarations = release.objects.get(object);
        let declared = declarations.into_iter().flat_map(ObjectDeclarations::all);
        let mut annotations = declared.map(|it| it.allow.as_deref().unwrap_or(&none));
        annotations.any(|declared| after.follows(before, declared))
    };
    claims.iter().any(says)
}

#[cfg(test)]
mod tests;
