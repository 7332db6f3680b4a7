//! `/mutate`: sets back what of an edit drifts, where a policy says `Revert`.
//!
//! Entry point: [`answer`]. Invariant: says something only of edits that are
//! to be set back. All else passes here without a word, and is judged at
//! `/validate`, which the API server asks afterwards about the object that
//! results: what is set back is no drift there, and what could not be set back
//! is refused.

use super::case::{Aspect, Case, Judgement};
use super::review::{self, Answer};
use crate::declaration::outline::Excerpt;
use crate::helm::release::Release;
use crate::helm::values::Candidate;
use crate::policy::resolver::PolicyResolver;
use crate::verdict::edit::{Outcome, Verdict};
use crate::verdict::revert::{self, Irreversible, Plan, Whole};

/// Whether an edit may be set back here: of a declared object. In another version
/// than a release declares it the release has no say.
pub(super) fn concerns(case: &Case<'_>, judgement: &Judgement) -> bool {
    judgement.verdict.outcome == Outcome::Revert && case.subject.aspect == Aspect::Object
}

/// The answer to an edit that is to be set back; `values` probably set its fields. Turns the judgement into a
/// refusal where it cannot be.
pub(super) fn answer(
    case: &Case<'_>,
    judgement: &mut Judgement,
    resolver: &PolicyResolver,
    values: &[Option<Candidate>],
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

/// The release that the verdict hangs on.
fn releasing(judgement: &Judgement) -> Option<&Release> {
    let grounds = judgement.verdict.grounds.as_ref()?;
    judgement.claims.iter().map(|claim| &**claim).find(|claim| claim.id == grounds.release)
}
