//! Messages about exceptions that an edit requests by annotations.
//!
//! Entry points: [`refused`], [`without_effect`], [`withdrawn`], [`granted`].

use jiff::Timestamp;

use super::remedy::{argument, details};
use super::{Message, named, of_release};
use crate::model::{ALLOW, ObjectId, ReleaseId};

/// A request is not granted, and the edit does not pass.
pub fn refused(object: &ObjectId, release: &ReleaseId, reason: &str) -> Message {
    let claim =
        format!("{} is managed by Helm release {}", named(object, release), of_release(object, release));
    let way = super::allow(object, release, &["PATH".to_owned()]);
    Message {
        what: format!("its annotation {ALLOW} requests an exception that is not granted: {reason}"),
        denied: format!("Its annotation {ALLOW} requests an exception that is not granted: {reason}"),
        ..Message::of(
            claim,
            vec![
                format!(
                    "Remove the annotation, or ask a user with the right to create DriftAllowances to run: {way}"
                )
                .into(),
                details(object, Some(release), &[]),
            ],
        )
    }
}

/// A request is not granted, and the edit passes.
pub fn without_effect(object: &ObjectId, reason: &str) -> Message {
    let ObjectId { kind, name, .. } = object;
    let claim = format!("{ALLOW} of {kind} {name:?} has no effect here: {reason}");
    Message::of(claim, vec![details(object, None, &[])])
}

/// The annotations were removed, and the exceptions go on.
pub fn withdrawn(object: &ObjectId, release: &ReleaseId) -> Message {
    let ObjectId { kind, name, namespace, .. } = object;
    let namespace = namespace.as_ref().unwrap_or(&release.namespace);
    let claim = format!("Exceptions for {kind} {name:?} stay open without its annotation {ALLOW}");
    Message::of(
        claim,
        vec![format!("To end them: kubectl moor revoke {} -n {namespace}", argument(object)).into()],
    )
}

/// An exception was created, or would be.
pub fn granted(
    object: &ObjectId,
    (namespace, name): (&str, &str),
    (paths, until): (&[String], Timestamp),
    is_dry_run: bool,
) -> Message {
    let verb = if is_dry_run { "would be" } else { "was" };
    let paths = paths.join(", ");
    let claim = format!(
        "DriftAllowance {name:?} {verb} created in namespace {namespace:?}: {paths} of {} {:?} may change until {until}",
        object.kind, object.name
    );
    Message::of(claim, vec![details(object, None, &[])])
}
