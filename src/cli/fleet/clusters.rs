//! Clusters as rows of a table and of a spreadsheet.
//!
//! Entry points: the traits [`Listed`] and [`Columned`]. Must not read anything.

use anstyle::Style;

use super::show::{Columned, moment, seconds, time};
use crate::cli::list::Listed;
use crate::cli::output::{BAD, GOOD, PLAIN};
use kubemoor_inspect::fleet::{self, ClusterRow};

impl Listed for ClusterRow {
    const PLURAL: &'static str = "clusters";
    const RESOURCE: &'static str = "cluster";

    fn name(&self) -> &str {
        &self.cluster
    }

    fn namespace(&self) -> &str {
        ""
    }

    fn head(_all: bool, wide: bool) -> Vec<&'static str> {
        let mut head = vec![
            "CLUSTER",
            "RELEASES",
            "DRIFTED",
            "OLDEST DRIFT",
            "GUARD",
            "CERTIFICATE UNTIL",
            "LAST HEARD",
            "STATES",
        ];
        head.extend(wide.then_some("ERROR"));
        head
    }

    fn cells(&self, _all: bool, wide: bool) -> Vec<(String, Style)> {
        let heard = match (&self.error, self.stale_since) {
            (Some(_), _) => ("could not be read".to_owned(), BAD),
            (None, Some(since)) => (format!("stale since {}", seconds(since)), BAD),
            (None, None) => (time(self.last_heard), PLAIN),
        };
        let drifted = if self.drifted > 0 { BAD } else { GOOD };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            (self.cluster.clone(), PLAIN),
            (self.releases.to_string(), PLAIN),
            (self.drifted.to_string(), drifted),
            (time(self.oldest_drift), PLAIN),
            (text(&self.version), PLAIN),
            (time(self.certificate_until), PLAIN),
            heard,
            (states(self), PLAIN),
        ];
        cells.extend(wide.then(|| (text(&self.error), BAD)));
        cells
    }
}

impl Columned for ClusterRow {
    const COLUMNS: &'static [&'static str] = &[
        "cluster",
        "releases",
        "drifted",
        "states",
        "oldestDrift",
        "version",
        "certificateUntil",
        "lastHeard",
        "staleSince",
        "error",
    ];

    fn columns(&self) -> Vec<String> {
        vec![
            self.cluster.clone(),
            self.releases.to_string(),
            self.drifted.to_string(),
            states(self),
            moment(self.oldest_drift),
            self.version.clone().unwrap_or_default(),
            moment(self.certificate_until),
            moment(self.last_heard),
            moment(self.stale_since),
            self.error.clone().unwrap_or_default(),
        ]
    }
}

/// `InSync 12, Drifted 1`.
fn states(row: &ClusterRow) -> String {
    let states = fleet::states([row]).into_iter().map(|(state, count)| format!("{state} {count}"));
    states.collect::<Vec<_>>().join(", ")
}
