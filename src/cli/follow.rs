//! Lists that go on: each row that comes or changes, as `kubectl get --watch` prints it.
//!
//! Entry points: [`changes`] for what happens in the cluster, [`Follow`] for its rows. Invariant: a row
//! is printed when it says something else than before, and never twice for one change; it ends when
//! the reader goes away.

use std::collections::HashMap;

use anyhow::Context;
use serde_json::Value;

use super::connect::failed;
use super::list::{ListArgs, Listed, People, table};
use super::output::{self, Form};
use super::warn;
use crate::client::Resource;
use crate::client::call::CallError;
use crate::client::connection::Connection;
use crate::client::watch::{Event, Watch};
use crate::mirror::raw::Raw;

/// What happened to an object.
pub(super) enum Change {
    /// It is there, and may have changed.
    There(Value),
    /// It went; this it was last.
    Gone(Value),
}

/// The rows of a list that were printed.
pub(super) struct Follow {
    args: ListArgs,
    /// Whether several namespaces are listed.
    all: bool,
    /// How wide the columns of the table are.
    widths: Vec<usize>,
    /// Each row as it was printed last.
    printed: HashMap<(String, String), String>,
}

impl Follow {
    /// Prints the rows that are there.
    pub(super) fn begin<T: Listed>(
        args: ListArgs,
        mut rows: Vec<T>,
        namespace: Option<&str>,
    ) -> anyhow::Result<Self> {
        args.rows.sort(&mut rows)?;
        let (all, widths) = (namespace.is_none(), Vec::new());
        let mut follow = Self { args, all, widths, printed: HashMap::new() };
        if let Form::People(form @ (People::Table | People::Wide)) = follow.args.output {
            let wide = form == People::Wide;
            let table = table(&follow.args, &rows, all, wide);
            follow.widths = table.widths();
            output::write(table.text().as_str())?;
            for row in &rows {
                follow.note(row)?;
            }
        } else {
            for row in &rows {
                follow.print(row)?;
            }
        }
        Ok(follow)
    }

    /// Prints a row if it says something new; gives whether anybody still reads.
    pub(super) fn print<T: Listed>(&mut self, row: &T) -> anyhow::Result<bool> {
        if !self.note(row)? {
            return Ok(true);
        }
        let text = match &self.args.output {
            Form::People(People::Name) => format!("{}/{}\n", T::RESOURCE, row.name()),
            Form::People(form) => {
                let mut table = output::Table::at_least(&self.widths);
                table.styled(row.cells(self.all, *form == People::Wide));
                self.widths = table.widths();
                table.text().as_str().to_owned()
            }
            Form::Data(data) => data.part(row)?,
        };
        output::stream(&text)
    }

    /// Remembers a row; gives whether it says something new.
    fn note<T: Listed>(&mut self, row: &T) -> anyhow::Result<bool> {
        let text = serde_json::to_string(row).context("cannot write the row as JSON")?;
        let key = (row.namespace().to_owned(), row.name().to_owned());
        let before = self.printed.insert(key, text.clone());
        Ok(before.is_none_or(|before| before != text))
    }
}

/// Hands what happens to the objects of a resource to `show`, from those that are there on, until that
/// says that nobody reads any more; `doing` completes "cannot …".
pub(super) async fn changes(
    connection: &Connection,
    (resource, namespace, labels): (&Resource, Option<&str>, Option<&str>),
    doing: &str,
    mut show: impl AsyncFnMut(Change) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut watch = Watch::<Raw>::new(connection.client.clone(), resource, namespace, labels);
    let mut is_broken = false;
    loop {
        let change = match watch.next().await {
            Event::Relisting | Event::Synced => continue,
            Event::Watching => {
                is_broken = false;
                continue;
            }
            Event::Listed(object) | Event::Applied(object) => Change::There(object.0),
            Event::Deleted(object) => Change::Gone(object.0),
            Event::Broken(error) if is_final(&error) => return Err(failed(connection, doing, error)),
            Event::Broken(error) => {
                if !std::mem::replace(&mut is_broken, true) {
                    warn(&format!("{:#}, trying again", failed(connection, doing, error)));
                }
                continue;
            }
        };
        if !show(change).await? {
            return Ok(());
        }
    }
}

/// Whether trying again is of no use: the rights or the kind are missing.
fn is_final(error: &CallError) -> bool {
    error.is_not_found() || matches!(error, CallError::Refused { code: 401 | 403, .. })
}
