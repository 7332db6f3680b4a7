//! Releases of many clusters as rows of a table and of a spreadsheet.
//!
//! Entry points: the traits [`Listed`] and [`Columned`]. Must not read anything.

use anstyle::Style;

use super::show::{Columned, moment, seconds, time};
use crate::cli::list::Listed;
use crate::cli::output::{BAD, GOOD, NOTE, PLAIN};
use kubemoor_inspect::fleet::ReleaseRow;

impl Listed for ReleaseRow {
    const PLURAL: &'static str = "releases";
    const RESOURCE: &'static str = "release";

    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn head(_all: bool, wide: bool) -> Vec<&'static str> {
        let mut head = vec!["CLUSTER", "NAMESPACE", "NAME", "READY", "REASON", "REVISION", "CHART", "VALUES"];
        head.extend(["DRIFTED", "OLDEST DRIFT", "DIFFERS"]);
        head.extend(wide.then_some(["EDITS", "DRIFT", "MESSAGE"]).into_iter().flatten());
        head
    }

    fn cells(&self, _all: bool, wide: bool) -> Vec<(String, Style)> {
        let style = match (self.stale_since, self.ready.as_deref()) {
            (None, Some("True")) => GOOD,
            (None, Some("False")) => BAD,
            (_, _) => NOTE,
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reason = match self.stale_since {
            Some(since) if self.reason != "Stale" => {
                format!("{}, stale since {}", self.reason, seconds(since))
            }
            _ => self.reason.clone(),
        };
        let mut cells = vec![
            (self.cluster.clone(), PLAIN),
            (self.namespace.clone(), PLAIN),
            (self.name.clone(), PLAIN),
            (text(&self.ready), style),
            (reason, style),
            (self.revision.map_or_else(|| "-".to_owned(), |it| it.to_string()), PLAIN),
            (text(&self.chart), PLAIN),
            (text(&self.values), PLAIN),
            (self.drifted.to_string(), if self.drifted > 0 { BAD } else { PLAIN }),
            (time(self.oldest_drift), PLAIN),
            (if self.differs.is_empty() { "-".to_owned() } else { self.differs.join(",") }, NOTE),
        ];
        if wide {
            cells.extend([text(&self.edits), text(&self.drift), self.message.clone()].map(|it| (it, PLAIN)));
        }
        cells
    }
}

impl Columned for ReleaseRow {
    const COLUMNS: &'static [&'static str] = &[
        "cluster",
        "namespace",
        "name",
        "ready",
        "reason",
        "revision",
        "chart",
        "values",
        "drifted",
        "oldestDrift",
        "edits",
        "drift",
        "staleSince",
        "differs",
        "message",
    ];

    fn columns(&self) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![
            self.cluster.clone(),
            self.namespace.clone(),
            self.name.clone(),
            text(&self.ready),
            self.reason.clone(),
            self.revision.map(|revision| revision.to_string()).unwrap_or_default(),
            text(&self.chart),
            text(&self.values),
            self.drifted.to_string(),
            moment(self.oldest_drift),
            text(&self.edits),
            text(&self.drift),
            moment(self.stale_since),
            self.differs.join(","),
            self.message.clone(),
        ]
    }
}
