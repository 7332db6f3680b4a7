//! Elements that were moved in a list, such as a port of a Service that got another number.
//!
//! Entry point: `Task::apply`. An apply leaves the moved element to whoever moved it and adds the declared one, and the
//! API server may not take both: two ports of one name. Then the moved one becomes Helm's, so that the same apply takes
//! it away. Invariant: it stays where an applier owns it.

use serde_json::Value;

use super::super::blame::returned;
use super::{Situation, Task, body};
use crate::cluster::objects::{Live, Target, WriteError};
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::verdict::ownership;

impl Task<'_> {
    /// Applies `body` as `manager`, in the place of what was moved if need be. Gives the object as it is then.
    pub(super) async fn apply(
        &self,
        situation: &Situation,
        target: &Target,
        (seen, changes): (&Live, &[FieldChange]),
        mut body: Value,
        manager: &str,
    ) -> Result<Value, WriteError> {
        let objects = &self.shared.guard.objects;
        let applied = objects.apply(target, &body, manager, true).await;
        let Err(WriteError::Invalid { .. }) = &applied else { return applied };
        let Some(patch) = freed(situation, seen, changes, manager) else { return applied };
        let now = objects.merge(target, &patch, manager).await?;
        body::set_version(&mut body, &now);
        objects.apply(target, &body, manager, true).await
    }
}

/// The patch that makes Helm's what was moved; none if nothing was.
fn freed(situation: &Situation, seen: &Live, changes: &[FieldChange], manager: &str) -> Option<Value> {
    let whole = seen.whole()?;
    let fields = &situation.declared.fields;
    let missing = changes.iter().filter(|change| change.declared.is_none() && change.new.is_none());
    let moved: Vec<Path> = missing.flat_map(|change| fields.moved(&change.path, &whole)).collect();
    if moved.is_empty() {
        return None;
    }
    let operation = ownership::Operation::Apply;
    let helm = ownership::Manager { name: manager.to_owned(), operation, subresource: String::new() };
    returned(&whole, &helm, &moved)
}
