//! The chart values that probably set the fields that drift.
//!
//! Entry point: [`add`]. Invariant: the candidates are those of `kubemoor explain`, by the same records, and only
//! names of values are kept. The work is bounded, whatever drifts and however large the manifest is.

use std::time::{Duration, Instant};

use super::ReleaseReport;
use crate::reading::Reader;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ChartSource;
use kubemoor_helm::release::Release;
use kubemoor_helm::values::{self, Candidate, Question};

/// The most fields of a release whose values are looked for, and the most time to spend on them.
const FIELDS: usize = 100;
const BUDGET: Duration = Duration::from_millis(500);

/// The places of an object in the report and of a field in the object.
type Place = (usize, usize);

/// A field whose value is looked for.
struct Asked {
    place: Place,
    object: ObjectId,
    path: Path,
    /// Where a long value differs.
    below: Option<String>,
}

/// Adds to each field the likeliest chart values; to the report, if some were not looked for.
pub async fn add(reader: &Reader, release: &Release, report: &mut ReleaseReport) {
    let mut asked = asked(report);
    if asked.is_empty() {
        return;
    }
    let is_all = asked.len() <= FIELDS;
    asked.truncate(FIELDS);
    let sources = reader.sources(release, &mut report.not_considered).await;
    // A large manifest would hold up the answers to others.
    let looking = tokio::task::spawn_blocking(move || look_for(&sources, asked));
    let (found, is_done) = looking.await.unwrap_or_default();
    for ((object, field), candidates) in found {
        let object = report.objects.get_mut(object);
        if let Some(field) = object.and_then(|object| object.fields.get_mut(field)) {
            field.chart_values = candidates;
        }
    }
    if !(is_all && is_done) {
        let many =
            "too many fields drift to look for the chart values of all: run kubemoor explain for an object";
        report.not_considered.push(many.to_owned());
    }
}

fn asked(report: &ReleaseReport) -> Vec<Asked> {
    let mut asked = Vec::new();
    for (at, report) in report.objects.iter().enumerate() {
        for (place, field) in report.fields.iter().enumerate() {
            let Ok(path) = field.path.parse::<Path>() else { continue };
            let below = field.difference.as_deref().map(|difference| difference.path.clone());
            asked.push(Asked { place: (at, place), object: report.object.clone(), path, below });
        }
    }
    asked
}

/// What was found, and whether the time was enough for all.
fn look_for(sources: &[ChartSource], asked: Vec<Asked>) -> (Vec<(Place, Vec<Candidate>)>, bool) {
    let (began, mut found) = (Instant::now(), Vec::new());
    for Asked { place, object, path, below } in asked {
        if began.elapsed() > BUDGET {
            return (found, false);
        }
        let question = Question { object: &object, path: &path, place: below.as_deref(), new: None };
        found.push((place, values::likeliest(values::candidates(sources, question))));
    }
    (found, true)
}
