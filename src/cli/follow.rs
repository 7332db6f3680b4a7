//! Lists that continue: prints each row that is new or changes, as `kubectl get --watch` does.
//!
//! A row is printed when its text changes, and never twice for one change. The command ends when its output is closed.

use std::collections::HashMap;

use anyhow::Context;
use serde_json::Value;

use super::connect::failed;
use super::list::{self, ListArgs, Listed, People, table};
use super::output::{self, Form};
use super::warn;
use kubemoor_cluster::client::Resource;
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::watch::{Event, Watch};

/// A change of an object.
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
        rows: &[T],
        namespace: Option<&str>,
    ) -> anyhow::Result<Self> {
        let (all, widths) = (namespace.is_none(), Vec::new());
        let mut follow = Self { args, all, widths, printed: HashMap::new() };
        if let Form::People(form @ (People::Table | People::Wide)) = follow.args.output {
            let wide = form == People::Wide;
            let table = table(&follow.args, rows, all, wide);
            follow.widths = table.widths();
            output::write(table.text().as_str())?;
            for row in rows {
                follow.note(row)?;
            }
            return Ok(follow);
        }
        if follow.args.output == Form::People(People::Csv) && !follow.args.no_headers {
            output::write(&list::sheet::<T>(&[], true)?)?;
        }
        for row in rows {
            follow.print(row)?;
        }
        Ok(follow)
    }

    /// Prints a row if its text changed. Returns whether the output is still open.
    pub(super) fn print<T: Listed>(&mut self, row: &T) -> anyhow::Result<bool> {
        if !self.note(row)? {
            return Ok(true);
        }
        let text = match &self.args.output {
            Form::People(People::Name) => list::name(row),
            Form::People(People::Csv) => list::sheet(std::slice::from_ref(row), false)?,
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

    /// Remembers a row. Returns whether its text changed.
    fn note<T: Listed>(&mut self, row: &T) -> anyhow::Result<bool> {
        let mut text = serde_json::to_string(row).context("cannot write the row as JSON")?;
        if let Form::People(form @ (People::Table | People::Wide)) = self.args.output {
            // People also see what the JSON form leaves out.
            text.extend(row.cells(self.all, form == People::Wide).into_iter().map(|(cell, _)| cell));
        }
        let key = (row.namespace().to_owned(), row.name().to_owned());
        let before = self.printed.insert(key, text.clone());
        Ok(before.is_none_or(|before| before != text))
    }
}

/// Passes the existing objects of a resource and then their changes to `show`, until `show` reports that the
/// output is closed; `doing` completes "cannot …".
pub(super) async fn changes(
    connection: &Connection,
    (resource, namespace, labels): (&Resource, Option<&str>, Option<&str>),
    doing: &str,
    mut show: impl AsyncFnMut(Change) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut watch = Watch::<Value>::new(connection.client.clone(), resource, namespace, labels);
    let mut is_broken = false;
    loop {
        let change = match watch.next().await {
            Event::Relisting | Event::Synced => continue,
            Event::Watching => {
                is_broken = false;
                continue;
            }
            Event::Listed(object) | Event::Applied(object) => Change::There(object),
            Event::Deleted(object) => Change::Gone(object),
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

/// Whether a retry cannot help: the rights or the kind are missing.
fn is_final(error: &CallError) -> bool {
    error.is_not_found() || matches!(error, CallError::Refused { code: 401 | 403, .. })
}
