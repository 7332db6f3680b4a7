//! Follows the switch for the guard.
//!
//! Entry point: [`follow`]. Invariant: nothing is published before the API server has answered once. Must not write.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::keep::by_hand;
use super::marker::Markers;
use super::marker::{says_open, told};
use super::{MARKER, Turn};
use kubemoor_cluster::client::watch::{Event, Typed};
use kubemoor_runtime::telemetry::FailureLog;

/// Publishes through `open` whether the switch is off, from the first known state until `stop`.
/// Without the permission to read, it counts as armed. Calls `keep` for each turn.
pub async fn follow(
    client: kube::Client,
    open: watch::Sender<Option<bool>>,
    keep: impl Fn(Turn) + Send,
    stop: CancellationToken,
) {
    let markers: Markers = by_hand(&client);
    let mut events = markers.follow(MARKER);
    let mut listed = false;
    let mut failures = FailureLog::default();
    let mut turn = Turn::default();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        if let Event::Listed(Typed(marker)) | Event::Applied(Typed(marker)) | Event::Deleted(Typed(marker)) =
            &event
        {
            turn = told(marker);
        }
        let said = match event {
            Event::Broken(error) => {
                if failures.note_failure() {
                    tracing::warn!("the emergency switch cannot be watched, trying again: {error}");
                }
                if !error.is_forbidden() || open.borrow().is_some() {
                    continue;
                }
                false
            }
            event => match said(event, &mut listed, &mut failures) {
                Some(said) => said,
                None => continue,
            },
        };
        let was_open = *open.borrow() == Some(true);
        if open.send_if_modified(|open| open.replace(said) != Some(said)) && (said || was_open) {
            keep(Turn { open: said, ..turn.clone() });
        }
    }
}

/// The state of the switch by an event; `None` where the event says nothing of it, as a listing that begins, which does
/// not prove yet that the API server answers.
fn said(
    event: Event<Typed<ValidatingWebhookConfiguration>>,
    listed: &mut bool,
    failures: &mut FailureLog,
) -> Option<bool> {
    let said = match event {
        Event::Relisting => {
            *listed = false;
            return None;
        }
        Event::Broken(_) => return None,
        Event::Listed(Typed(marker)) => {
            *listed = says_open(&marker);
            Some(*listed)
        }
        Event::Synced => Some(*listed),
        Event::Applied(Typed(marker)) => Some(says_open(&marker)),
        Event::Deleted(_) => Some(false),
        Event::Watching => None,
    };
    failures.note_success();
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_logged_again_once_the_switch_was_read() {
        let read = |event| {
            let mut failures = FailureLog::default();
            assert!(failures.note_failure());
            said(event, &mut false, &mut failures);
            failures.note_failure()
        };
        let marker = || Typed(ValidatingWebhookConfiguration::default());
        assert!(!read(Event::Relisting), "a listing that begins may fail");
        for event in [
            Event::Listed(marker()),
            Event::Synced,
            Event::Watching,
            Event::Applied(marker()),
            Event::Deleted(marker()),
        ] {
            assert!(read(event));
        }
    }
}
