//! Follows the switch for the guard.
//!
//! Entry point: [`follow`]. Invariant: nothing is published before the API server has answered once. Must not write.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::runtime::watcher;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::keep::by_hand;
use super::marker::Markers;
use super::marker::{says_open, told};
use super::{MARKER, Turn};
use crate::client::registrations::is_forbidden;
use crate::telemetry::FailureLog;

/// Publishes through `open` whether the switch is off, from the first known state until `stop`.
/// Without the permission to read, it counts as armed. Calls `keep` for each turn.
pub async fn follow(
    client: kube::Client,
    open: watch::Sender<Option<bool>>,
    keep: impl Fn(Turn) + Send,
    stop: CancellationToken,
) {
    let markers: Markers = by_hand(&client);
    let mut events = pin!(markers.follow(MARKER));
    let mut listed = false;
    let mut failures = FailureLog::default();
    let mut turn = Turn::default();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        if let Some(Ok(
            watcher::Event::InitApply(marker)
            | watcher::Event::Apply(marker)
            | watcher::Event::Delete(marker),
        )) = &event
        {
            turn = told(marker);
        }
        let said = match event {
            Some(Ok(event)) => match said(event, &mut listed, &mut failures) {
                Some(said) => said,
                None => continue,
            },
            Some(Err(error)) => {
                let forbidden = is_forbidden(&error);
                if failures.note_failure() {
                    let error = anyhow::Error::new(error);
                    tracing::warn!("the emergency switch cannot be watched, trying again: {error:#}");
                }
                if !forbidden || open.borrow().is_some() {
                    continue;
                }
                false
            }
            None => return,
        };
        let was_open = *open.borrow() == Some(true);
        if open.send_if_modified(|open| open.replace(said) != Some(said)) && (said || was_open) {
            keep(Turn { open: said, ..turn.clone() });
        }
    }
}

/// The state of the switch by an event; `None` while a listing begins, which does not prove yet
/// that the API server answers.
fn said(
    event: watcher::Event<ValidatingWebhookConfiguration>,
    listed: &mut bool,
    failures: &mut FailureLog,
) -> Option<bool> {
    let said = match event {
        watcher::Event::Init => {
            *listed = false;
            return None;
        }
        watcher::Event::InitApply(marker) | watcher::Event::Apply(marker) => {
            *listed = says_open(&marker);
            *listed
        }
        watcher::Event::InitDone => *listed,
        watcher::Event::Delete(_) => false,
    };
    failures.note_success();
    Some(said)
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
        let marker = ValidatingWebhookConfiguration::default;
        assert!(!read(watcher::Event::Init), "a listing that begins may fail");
        for event in [
            watcher::Event::InitApply(marker()),
            watcher::Event::InitDone,
            watcher::Event::Apply(marker()),
            watcher::Event::Delete(marker()),
        ] {
            assert!(read(event));
        }
    }
}
