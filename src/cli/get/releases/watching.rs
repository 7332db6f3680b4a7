//! `kubemoor get releases --watch`: prints each release whose state changes.
//!
//! Entry point: [`watched`]. Invariant: follows the guard's statuses of releases. A release without a status
//! appears only in the first list.

use super::is_wanted;
use crate::cli::Outcome;
use crate::cli::follow::{self, Change, Follow};
use crate::cli::list::ListArgs;
use kubemoor_cluster::client::guarded;
use kubemoor_inspect::pulses::Pulses;
use kubemoor_inspect::reading::Reader;
use kubemoor_inspect::releases::{Row, State};

/// Prints the rows, and each that comes, changes or goes.
pub(super) async fn watched(
    reader: &Reader,
    namespace: Option<&str>,
    (list, states): (ListArgs, Vec<State>),
    rows: Vec<Row>,
) -> anyhow::Result<Outcome> {
    let labels = list.selector.labels.clone();
    let mut selected = match &labels {
        Some(labels) => reader.labelled(namespace, labels).await?,
        None => Default::default(),
    };
    let mut follow = Follow::begin(list, rows, namespace)?;
    let (resource, doing) = (guarded::resource(), "watch the GuardedReleases");
    follow::changes(&reader.connection, (&resource, namespace, None), doing, async |change| {
        let (object, is_gone) = match change {
            Change::There(object) => (object, false),
            Change::Gone(object) => (object, true),
        };
        let Some(guarded) = guarded::typed(object) else { return Ok(true) };
        let Some(release) = guarded.release() else { return Ok(true) };
        if let Some(labels) = &labels
            && !selected.contains(&release)
        {
            // Records bear the labels, and one may have come.
            selected = reader.labelled(namespace, labels).await?;
            if !selected.contains(&release) {
                return Ok(true);
            }
        }
        let row = match is_gone {
            true => Row::unguarded(release, "its GuardedRelease was deleted".to_owned()),
            false => {
                // The Lease of a minute ago says nothing of now.
                let pulses = Pulses::new(reader.connection.client.clone());
                Row::current(&pulses, release, *guarded).await
            }
        };
        if is_wanted(&row, &states) { follow.print(&row) } else { Ok(true) }
    })
    .await?;
    Ok(Outcome::Clean)
}
