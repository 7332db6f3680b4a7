//! What happened to a release, as one line of time.
//!
//! Entry points: [`read`], [`Timeline::shown`]. Invariant: what cannot be read is named, and hides nothing else.

use jiff::Timestamp;
use maud::{Markup, html};

use super::super::html::{self as write, notes};
use crate::client::connection::Connection;
use crate::client::{event_list, guarded};
use crate::inspect::failure::failed;
use crate::model::ReleaseId;

/// The most that is shown.
const MOST: usize = 50;

/// What happened, newest first.
pub(super) struct Timeline {
    moments: Vec<Moment>,
    notes: Vec<String>,
}

/// One thing that happened.
struct Moment {
    time: Timestamp,
    what: String,
    is_warning: bool,
    text: String,
}

/// Reads what happened to a release.
pub(super) async fn read(connection: &Connection, release: &ReleaseId) -> Timeline {
    let ReleaseId { namespace, name } = release;
    let mut timeline = Timeline { moments: Vec::new(), notes: Vec::new() };
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
    timeline.moments.sort_by_key(|moment| std::cmp::Reverse(moment.time));
    timeline
}

impl Timeline {
    /// What happened, for people.
    pub(super) fn shown(&self, now: Timestamp) -> Markup {
        html! {
            (notes(&self.notes))
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
                @if self.moments.len() > MOST { p.quiet { "and " (self.moments.len() - MOST) " more" } }
            }
        }
    }
}
