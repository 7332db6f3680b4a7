//! Explains the state of an object or a field, and how to change it.
//!
//! Entry points: [`explain`], [`Denial::parse`] for pasted messages. Invariant: the explanation comes from
//! the same records, policies and comparison as the guard's verdicts. Nothing is written.

mod advice;
mod compare;
mod exceptions;
pub mod fields;
mod pasted;
pub mod report;

use std::sync::Arc;

use jiff::Timestamp;

pub use self::pasted::{Denial, advice as advice_on_message};
use self::report::{Inquiry, Report};
use super::failure::Failure;
use super::object;
use super::reading::{Found, Reader};
use kubemoor_declare::model::{NamedObject, ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::Release;
use kubemoor_policy::pattern::Pattern;

/// The object and the fields in question.
pub struct Question {
    pub object: String,
    pub namespace: String,
    /// The release that a denial names.
    pub release: Option<ReleaseId>,
    /// None for all fields that are not as declared.
    pub paths: Vec<String>,
}

/// The answer to a question.
pub async fn explain(reader: &Reader, question: Question, now: Timestamp) -> Result<Report, Failure> {
    let Question { object: text, namespace, release, paths } = question;
    let named: Result<NamedObject, _> = text.parse();
    let named = named.map_err(|error: &str| Failure::Named(format!("{text:?}: {error}")))?;
    let object = object::resolve(&named, &reader.connection, &reader.kinds, &namespace).await?;
    let preferred = reader
        .kinds
        .catalog()
        .facts(&object.group, &object.kind)
        .and_then(|facts| facts.versions.first().cloned());
    let live = match reader.live(&object, &preferred.unwrap_or_default()).await {
        Found::Object(live) => Some(live),
        Found::Absent => None,
        Found::NotServed => {
            let (kind, group) = (&object.kind, &object.group);
            return Err(Failure::Named(format!("the API server serves no {kind} in the group {group:?}")));
        }
        Found::Unread(reason) => return Err(Failure::Named(format!("cannot read {object}: {reason}"))),
    };
    let named = live.as_ref().and_then(ReleaseId::named_by);
    // The release that the object or the denial names, else any in its namespace.
    let named: Vec<ReleaseId> = named.into_iter().chain(release).collect();
    let mut release = declaring(reader, named, &object).await;
    if release.is_none() && object.namespace.is_some() {
        release = declaring(reader, reader.list(Some(&namespace)).await?, &object).await;
    }
    let patterns = paths.iter().filter_map(|path| Pattern::parse(path).ok()).collect();
    let inquiry = Inquiry { object, live, release, patterns };
    Ok(report::of(reader, inquiry, now).await)
}

/// A path as people write it, such as `/spec/replicas` or `spec.replicas`.
pub fn parse_path(text: &str) -> Result<String, String> {
    // As people write it.
    let pointer = match text.starts_with('/') {
        true => None,
        false => Path::from_plain(text).map(|path| path.to_string()),
    };
    let pointer = pointer.unwrap_or_else(|| text.to_owned());
    Pattern::parse(&pointer).map(|_| pointer.clone()).map_err(|error| error.to_string())
}

/// The first of these releases that declares the object. One that cannot be
/// read does not count: annotations and denials can name anything.
async fn declaring(reader: &Reader, releases: Vec<ReleaseId>, object: &ObjectId) -> Option<Arc<Release>> {
    for id in releases {
        match reader.release(&id).await {
            Ok(release) if release.objects.contains_key(object) => return Some(release),
            Ok(_) | Err(_) => {}
        }
    }
    None
}
