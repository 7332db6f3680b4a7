//! `/mutate`: reverts the drifting fields of an edit, if a policy's mode is `Revert`.
//!
//! Entry point: [`answer`]. Invariant: changes only edits that have to be reverted. All others are
//! allowed here silently, and judged at `/validate`, which the API server calls afterwards with the
//! resulting object: reverted fields do not drift there, and edits that could not be reverted are
//! denied. Must not judge anything else.

use super::case::{Aspect, Case, Judgement};
use super::review::{self, Answer};
use kubemoor_declare::outline::Excerpt;
use kubemoor_helm::release::Release;
use kubemoor_helm::values::Candidate;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::edit::{Outcome, Reason, Verdict};
use kubemoor_verdict::revert::{self, Irreversible, Plan, Whole};

/// Whether an edit may be reverted here: an edit of a declared object, and none of a record. In another version than
/// the declared one, the release does not count.
pub(super) fn concerns(case: &Case<'_>, judgement: &Judgement) -> bool {
    let verdict = &judgement.verdict;
    verdict.outcome == Outcome::Revert
        && verdict.reason != Reason::Record
        && case.subject.aspect == Aspect::Object
}

/// The answer to an edit that has to be reverted; `values` are the chart values that probably set
/// its fields. Turns the judgement into a denial if the edit cannot be reverted.
pub(super) fn answer(
    case: &Case<'_>,
    judgement: &mut Judgement,
    resolver: &PolicyResolver,
    values: &[Vec<Candidate>],
) -> Answer {
    match plan(case, judgement, resolver) {
        Ok(plan) => {
            judgement.message = case.in_context(&judgement.verdict, &judgement.claims, resolver, |context| {
                context.of_revert(&judgement.verdict, &plan.set_back)
            });
            judgement.message.suggest(values);
            let warnings = judgement.message.warnings();
            warnings.into_iter().fold(Answer::allow().patch(plan.patch), Answer::warn)
        }
        Err(why) => {
            refuse(&mut judgement.verdict);
            judgement.message.add(format!("The change cannot be reverted in part: {why}."));
            Answer::deny(judgement.message.denial())
        }
    }
}

/// The verdict on an edit that should be reverted, when nobody is going to revert it.
pub(super) fn refuse(verdict: &mut Verdict) {
    if verdict.outcome == Outcome::Revert {
        verdict.outcome = Outcome::Deny;
    }
}

fn plan(case: &Case<'_>, judgement: &Judgement, resolver: &PolicyResolver) -> Result<Plan, Irreversible> {
    let (old, new) = case.texts();
    let read = |text: Option<&Excerpt<'_>>| text.and_then(|text| review::object(text.get()).ok());
    let (Some(old), Some(new)) = (read(old), read(new)) else { return Err(Irreversible::TooDeep) };
    let (Some(release), Some(grounds)) = (releasing(judgement), &judgement.verdict.grounds) else {
        return Err(Irreversible::Outdated);
    };
    let settled = judgement.settled.as_deref();
    let field_manager = case.field_manager();
    let edit = Whole { object: &case.subject.object, old: &old, new: &new, field_manager, settled };
    revert::plan(edit, release, &resolver.of(&release.id), &grounds.fields)
}

/// The release on which the verdict depends.
fn releasing(judgement: &Judgement) -> Option<&Release> {
    let grounds = judgement.verdict.grounds.as_ref()?;
    judgement.claims.iter().map(|claim| &**claim).find(|claim| claim.id == grounds.release)
}
