//! The report as one table for spreadsheets.
//!
//! Entry point: [`text`]. Invariant: the head never changes, but for columns that are added behind.

use kubemoor_inspect::ledger::facts::{Breakdown, Report};
use kubemoor_inspect::sheet::Sheet;

/// Each row is one number of `section`; cells that do not apply to it are empty.
const COLUMNS: [&str; 10] =
    ["section", "name", "count", "seconds", "longestSeconds", "time", "user", "object", "fields", "detail"];

pub(super) fn text(report: &Report) -> anyhow::Result<String> {
    let mut sheet = Sheet::new();
    sheet.row(COLUMNS)?;
    let count = |sheet: &mut Sheet, section: &str, name: &str, count: u64| {
        sheet.row([section, name, &count.to_string(), "", "", "", "", "", "", ""])
    };
    for (what, number) in report.summary() {
        count(&mut sheet, "summary", what, number)?;
    }
    for (what, breakdown) in [("denied", &report.denied), ("exception", &report.excepted)] {
        let Breakdown { total: _, releases, users, fields } = breakdown;
        for (by, counts) in [("release", releases), ("user", users), ("field", fields)] {
            for (name, number) in counts {
                count(&mut sheet, &format!("{what} by {by}"), name, *number)?;
            }
        }
    }
    for it in &report.exceptions {
        let (release, time, fields) = (it.release.to_string(), it.opened.to_string(), it.fields.join("; "));
        sheet.row(["opened", &release, "1", "", "", &time, &it.user, &it.object, &fields, &it.detail])?;
    }
    for (release, verdict, number) in &report.repairs {
        let section = format!("repair {verdict}");
        count(&mut sheet, &section, &release.to_string(), *number)?;
    }
    for stay in &report.drift {
        let [drifts, total, longest] = [stay.drifts, stay.total, stay.longest].map(|it| it.to_string());
        let release = stay.release.to_string();
        sheet.row(["drift", &release, &drifts, &total, &longest, "", "", "", "", ""])?;
    }
    Ok(sheet.text()?)
}
