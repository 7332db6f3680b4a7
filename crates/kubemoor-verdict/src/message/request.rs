//! Messages about exceptions that an edit requests by annotations, and about an order to repair.
//!
//! Entry points: [`refused`], [`without_effect`], [`withdrawn`], [`granted`], [`of_order`].

use jiff::Timestamp;

use super::lines::at_a_word;
use super::remedy::{argument, details};
use super::{Message, named, of_release};
use kubemoor_declare::model::text::one_line;
use kubemoor_declare::model::{ALLOW, ObjectId, ReleaseId};

/// Why an order does not repair an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten<'a> {
    /// Writing it needs rights that depend on the values.
    OnlyHelm,
    /// The user may not do this to the object.
    NoRight {
        /// The user.
        user: &'a str,
        /// `create` or `update`.
        verb: &'a str,
    },
    /// The API server could not be asked whether the user may do this to the object.
    Unchecked {
        /// The user.
        user: &'a str,
        /// `create` or `update`.
        verb: &'a str,
        /// Why it could not be asked.
        error: &'a str,
        /// Whether it did not answer, so that it may another time.
        is_outage: bool,
    },
    /// One order is asked about so many objects only.
    OrderAgain,
}

/// An order of a repair leaves an object as it is: one line, as short as the API server wants a warning.
pub fn of_order(object: &ObjectId, release: &ReleaseId, why: Unwritten<'_>) -> String {
    let named = format!("{} (Helm release {})", named(object, release), of_release(object, release));
    let text = match why {
        Unwritten::OnlyHelm => format!("{named} stays as it is: only a write by Helm can confirm its values"),
        Unwritten::NoRight { user, verb } => format!(
            "{named} stays as it is: the guard has never seen its declared values, and {user} may not {verb} it"
        ),
        Unwritten::Unchecked { user, verb, error, is_outage: true } => format!(
            "{named} stays as it is: order the repair once more, because the guard could not check if {user} may {verb} it: {error}"
        ),
        Unwritten::Unchecked { user, verb, error, is_outage: false } => {
            format!("{named} stays as it is: the guard may not check if {user} may {verb} it: {error}")
        }
        Unwritten::OrderAgain => format!("{named} stays as it is: order the repair once more for it"),
    };
    at_a_word(one_line(&text).into_owned())
}

/// The message for a request that is not granted, with a denied edit.
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

/// The message for a request that is not granted, with an allowed edit.
pub fn without_effect(object: &ObjectId, reason: &str) -> Message {
    let ObjectId { kind, name, .. } = object;
    let claim = format!("{ALLOW} of {kind} {name:?} has no effect here: {reason}");
    Message::of(claim, vec![details(object, None, &[])])
}

/// The message after the annotations were removed, while the exceptions stay.
pub fn withdrawn(object: &ObjectId, release: &ReleaseId) -> Message {
    let ObjectId { kind, name, namespace, .. } = object;
    let namespace = namespace.as_ref().unwrap_or(&release.namespace);
    let claim = format!("Exceptions for {kind} {name:?} stay open without its annotation {ALLOW}");
    Message::of(
        claim,
        vec![format!("To end them: kubectl moor revoke {} -n {namespace}", argument(object)).into()],
    )
}

/// The message for an exception that was created, or would be.
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
