//! What happened to a release, as one line of time.
//!
//! Entry points: [`read`], [`of_ledger`], [`Timeline::shown`]. Invariant: what cannot be read is named, and hides nothing
//! else.

use jiff::Timestamp;
use maud::{Markup, html};

use super::super::cluster::Cluster;
use super::super::html::{self as write, notes};
use super::super::ledger_reader::LedgerReader;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::{event_list, guarded};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::ledger::columns::changes;
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::{Filter, Page};

/// The most that is shown.
const MOST: usize = 50;

/// Fields that a row of the ledger names.
const FIELDS: usize = 3;

/// What happened, newest first.
pub(crate) struct Timeline {
    moments: Vec<Moment>,
    notes: Vec<String>,
    /// Whether the ledger has older rows.
    is_cut: bool,
}

/// One thing that happened.
struct Moment {
    time: Timestamp,
    what: String,
    is_warning: bool,
    text: String,
}

impl Timeline {
    /// What happened, for people.
    pub(crate) fn shown(&self, now: Timestamp) -> Markup {
        html! {
            (notes("timeline", &self.notes))
            @if self.moments.is_empty() { p.quiet { "Nothing is known." } } @else {
                ol.timeline {
                    @for moment in self.moments.iter().take(MOST) {
                        li {
                            (write::time(moment.time, now))
                            span class=(if moment.is_warning { "badge bad" } else { "badge" }) { (moment.what) }
                            span { (moment.text) }
                        }
                    }
                }
                @if self.is_cut || self.moments.len() > MOST {
                    p.quiet { "These are the newest " (self.moments.len().min(MOST)) ": the ledger has older rows." }
                }
            }
        }
    }

    fn take(&mut self, rows: Result<Page, Failure>) {
        match rows {
            Ok(rows) => {
                self.moments.extend(rows.items.iter().map(moment));
                self.notes.extend(rows.missing);
                self.is_cut = rows.next.is_some();
            }
            Err(error) => self.notes.push(error.to_string()),
        }
        self.moments.sort_by_key(|moment| std::cmp::Reverse(moment.time));
    }
}

/// Reads what happened to a release.
pub(super) async fn read(cluster: &Cluster, connection: &Connection, release: &ReleaseId) -> Timeline {
    let ReleaseId { namespace, name } = release;
    let mut timeline = Timeline { moments: Vec::new(), notes: Vec::new(), is_cut: false };
    match event_list::about(&connection.client, namespace, guarded::KIND, name).await {
        Ok(events) => timeline.moments.extend(events.into_iter().filter_map(|event| {
            let again = event.count.filter(|count| *count > 1);
            let text = again
                .map_or_else(|| event.message.clone(), |count| format!("{} ({count} times)", event.message));
            let is_warning = event.r#type == "Warning";
            Some(Moment { time: event.time()?, what: event.reason.clone(), is_warning, text })
        })),
        Err(error) => timeline.notes.push(failed(connection, "list the events", error).to_string()),
    }
    let rows = async { rows(&cluster.ledger().await?, release).await };
    timeline.take(rows.await);
    timeline
}

/// Reads what the ledger alone says of a release.
pub(crate) async fn of_ledger(ledger: &LedgerReader, release: &ReleaseId) -> Timeline {
    let mut timeline = Timeline { moments: Vec::new(), notes: Vec::new(), is_cut: false };
    timeline.take(rows(ledger, release).await);
    timeline
}

/// The newest rows of the ledger.
async fn rows(ledger: &LedgerReader, release: &ReleaseId) -> Result<Page, Failure> {
    let filter = Filter {
        namespace: Some(release.namespace.to_string()),
        release: Some(release.name.to_string()),
        ..Filter::default()
    };
    ledger.newest(&filter, MOST).await
}

fn moment(entry: &Entry) -> Moment {
    let mut parts = vec![entry.object.short()];
    parts.extend(changes(entry, FIELDS));
    parts.extend((!entry.detail.is_empty()).then(|| entry.detail.clone()));
    parts.extend((!entry.user.is_empty()).then(|| format!("by {}", entry.user)));
    let is_warning = matches!(entry.verdict.as_str(), "Deny" | "Failed" | "Error");
    Moment { time: entry.time, what: entry.verdict.clone(), is_warning, text: parts.join("; ") }
}
