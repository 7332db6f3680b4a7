//! The chart values that probably set the fields of an edit, for a message.
//!
//! Entry point: `values`. Invariant: a verdict never waits for this longer than `BUDGET`, and does
//! not depend on it; for a Secret, no new value is named. Must not judge.

use std::time::Duration;

use serde_json::Value;

use super::case::{Case, Judgement};
use super::look::Looker;
use super::shares::aside;
use kubemoor_declare::model::Operation;
use kubemoor_helm::values::{self, Candidate, Question};
use kubemoor_verdict::edit::{Finding, Outcome};
use kubemoor_verdict::shown::Shown;

/// The most time to spend on it.
const BUDGET: Duration = Duration::from_millis(300);

/// The most fields that are looked for.
const FIELDS: usize = 8;

/// What stands where a text was cut.
const CUT: char = '…';

/// The chart values that probably set each field of the verdict. Empty if the record is not
/// available.
pub(super) async fn values(
    looker: &Looker<'_>,
    case: &Case<'_>,
    judgement: &Judgement,
) -> Vec<Vec<Candidate>> {
    let (Some(live), Some(grounds)) = (looker.live(), &judgement.verdict.grounds) else { return Vec::new() };
    let is_told = judgement.verdict.outcome >= Outcome::Warn && case.operation != Operation::Delete;
    if !is_told || grounds.fields.is_empty() {
        return Vec::new();
    }
    let within = (looker.left() / 2).min(BUDGET);
    let source = live.releases.source_at_hand(&grounds.release, grounds.revision, within).await;
    let Some(source) = source else { return Vec::new() };
    let object = &case.subject.object;
    let fields = grounds.fields.iter().take(FIELDS);
    let likeliest = |finding: &Finding| {
        let new = wanted(finding);
        let place = finding.difference.as_ref().map(|difference| difference.path.as_str());
        let question = Question { object, path: &finding.path, place, new: new.as_ref() };
        values::likeliest(values::candidates(std::slice::from_ref(&*source), question))
    };
    aside(async { fields.map(likeliest).collect() }).await
}

/// The value that the edit gives to a field, where it is known whole.
fn wanted(finding: &Finding) -> Option<Value> {
    let new: Option<&Shown> = match finding.difference.as_deref() {
        Some(difference) if difference.line.is_some() => None,
        Some(difference) => difference.new.as_ref(),
        None => finding.new.as_ref(),
    };
    let new = new.filter(|new| !new.is_masked() && !new.as_str().contains(CUT))?;
    serde_json::from_str(new.as_str()).ok()
}
