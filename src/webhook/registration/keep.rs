//! Writes the webhook configuration, keeps it, and withdraws it.
//!
//! Entry points: [`maintain`] for as long as the guard runs, [`keep`] once,
//! [`withdraw`] for good. Invariant: when nothing of Kubemoor's own changed,
//! nothing is written. Own are a webhook's address, CA, rules, object selector
//! and the version it speaks. The admin's are `failurePolicy`,
//! `timeoutSeconds`, `namespaceSelector`, `matchConditions` and foreign labels
//! and annotations: once the object exists they are taken from it.
//!
//! A configuration deleted by accident comes back. One that was withdrawn does
//! not: it carries an annotation when it goes, which the watch still delivers.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{EDITS, NAME};
use crate::cluster::lease::Leadership;

/// The annotation of a configuration that goes for good.
const WITHDRAWN: &str = "kubemoor.dev/withdrawn";

/// How often a write is tried when somebody else writes at the same time.
const ATTEMPTS: usize = 5;

/// How long a failed write waits for the next attempt of [`maintain`].
const RETRY: Duration = Duration::from_secs(5);

type Configurations = Api<ValidatingWebhookConfiguration>;

/// What became of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It was absent and is there now.
    Created,
    /// Own fields differed and were written.
    Updated,
    /// Nothing differed, nothing was written.
    Unchanged,
    /// It is being withdrawn; nothing was written.
    Withdrawn,
    /// It is absent and was not to be created; nothing was written.
    Absent,
}

/// Why the configuration could not be kept or withdrawn.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// Reading it failed.
    #[error("cannot read the ValidatingWebhookConfiguration {NAME}; the account needs get on it")]
    Get(#[source] kube::Error),
    /// Writing it failed.
    #[error("cannot write the ValidatingWebhookConfiguration {NAME}; the account needs create and update")]
    Write(#[source] kube::Error),
    /// Deleting it failed.
    #[error("cannot delete the ValidatingWebhookConfiguration {NAME}; the account needs update and delete")]
    Delete(#[source] kube::Error),
    /// Somebody else keeps writing it.
    #[error(
        "the ValidatingWebhookConfiguration {NAME} changed during each of {ATTEMPTS} attempts to write it"
    )]
    Contested,
}

/// Keeps the configuration as `desired` says until `stop`: at the start, on
/// each change of `desired`, and when somebody else changes or deletes it.
/// While `desired` is `None` (the guard is not ready, or does not lead) nothing
/// is touched.
/// Returns early only when the configuration is withdrawn.
pub async fn maintain(
    client: kube::Client,
    mut desired: watch::Receiver<Option<ValidatingWebhookConfiguration>>,
    leadership: Leadership,
    stop: CancellationToken,
) {
    let api = Configurations::all(client);
    let selected = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut events = pin!(watcher(api.clone(), selected).default_backoff());
    let mut sight = Sight { may_create: true, listed: false };
    loop {
        let wanted = desired.borrow_and_update().clone();
        let mut again = false;
        // A process that was stopped for a while may be wished for what was true then.
        if let Some(wanted) = wanted.filter(|_| leadership.holds()) {
            match write(&api, &wanted, sight.may_create).await {
                Ok(Kept::Withdrawn) => return stand_down(),
                Ok(kept) => {
                    sight.may_create = false;
                    if let Kept::Created | Kept::Updated = kept {
                        tracing::info!(registration.kept = ?kept, "the webhook configuration {NAME} was written");
                    }
                }
                Err(error) => {
                    again = true;
                    let error = anyhow::Error::new(error);
                    tracing::warn!("the webhook configuration is not kept, trying again: {error:#}");
                }
            }
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = desired.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = tokio::time::sleep(RETRY), if again => break,
                event = events.next() => match event {
                    Some(Ok(event)) => match sight.after(event) {
                        Next::Wait => {}
                        Next::Keep => break,
                        Next::StandDown => return stand_down(),
                    },
                    Some(Err(error)) => {
                        let error = anyhow::Error::new(error);
                        tracing::warn!("the webhook configuration cannot be watched, trying again: {error:#}");
                    }
                    None => return,
                },
            }
        }
    }
}

/// Makes the configuration as `desired` says, writing only what differs.
pub async fn keep(
    client: &kube::Client,
    desired: &ValidatingWebhookConfiguration,
) -> Result<Kept, RegistrationError> {
    write(&Configurations::all(client.clone()), desired, true).await
}

/// Removes the configuration, so that a running guard does not write it again.
/// Returns whether there was one.
pub async fn withdraw(client: &kube::Client) -> Result<bool, RegistrationError> {
    let api = Configurations::all(client.clone());
    for _ in 0..ATTEMPTS {
        let Some(mut live) = api.get_opt(NAME).await.map_err(RegistrationError::Get)? else {
            return Ok(false);
        };
        let annotations = live.metadata.annotations.get_or_insert_default();
        annotations.insert(WITHDRAWN.to_owned(), "true".to_owned());
        let written = api.replace(NAME, &PostParams::default(), &live).await;
        let gone = match written {
            Ok(marked) => {
                let preconditions = Preconditions { uid: marked.metadata.uid, resource_version: None };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                api.delete(NAME, &params).await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        match gone {
            Ok(()) => return Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(RegistrationError::Delete(error)),
        }
    }
    Err(RegistrationError::Contested)
}

/// What the watch has told of the configuration.
struct Sight {
    /// Whether it may be created: it was never there, or its deletion was seen
    /// and was none for good. A mere absence can be a withdrawal whose event is
    /// still on its way.
    may_create: bool,
    /// Whether the listing under way has it.
    listed: bool,
}

enum Next {
    Wait,
    Keep,
    StandDown,
}

impl Sight {
    fn after(&mut self, event: watcher::Event<ValidatingWebhookConfiguration>) -> Next {
        match event {
            watcher::Event::Apply(live) | watcher::Event::InitApply(live) | watcher::Event::Delete(live)
                if is_withdrawn(&live) =>
            {
                Next::StandDown
            }
            watcher::Event::Apply(_) => Next::Keep,
            watcher::Event::Delete(_) => {
                self.may_create = true;
                Next::Keep
            }
            watcher::Event::Init => {
                self.listed = false;
                Next::Wait
            }
            watcher::Event::InitApply(_) => {
                self.listed = true;
                Next::Wait
            }
            // A deletion that fell into a gap of the watch shows only here.
            watcher::Event::InitDone => {
                self.may_create = !self.listed;
                Next::Keep
            }
        }
    }
}

/// Writes what differs.
async fn write(
    api: &Configurations,
    desired: &ValidatingWebhookConfiguration,
    may_create: bool,
) -> Result<Kept, RegistrationError> {
    for _ in 0..ATTEMPTS {
        let live = api.get_opt(NAME).await.map_err(RegistrationError::Get)?;
        let (written, kept) = match live {
            None if !may_create => return Ok(Kept::Absent),
            None => (api.create(&PostParams::default(), desired).await, Kept::Created),
            Some(live) if is_withdrawn(&live) => return Ok(Kept::Withdrawn),
            Some(live) => match merge(&live, desired) {
                None => return Ok(Kept::Unchanged),
                Some(merged) => (api.replace(NAME, &PostParams::default(), &merged).await, Kept::Updated),
            },
        };
        match written {
            Ok(_) => return Ok(kept),
            // Somebody else was faster (409), or deleted it meanwhile (404).
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(RegistrationError::Write(error)),
        }
    }
    Err(RegistrationError::Contested)
}

fn stand_down() {
    tracing::warn!(
        "the webhook configuration {NAME} was withdrawn: edits are no longer judged until the guard starts again"
    );
}

fn is_withdrawn(live: &ValidatingWebhookConfiguration) -> bool {
    live.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(WITHDRAWN))
}

/// The live configuration with the own fields of the desired one, or `None`
/// when they mean the same already.
pub(super) fn merge(
    live: &ValidatingWebhookConfiguration,
    desired: &ValidatingWebhookConfiguration,
) -> Option<ValidatingWebhookConfiguration> {
    let mut merged = live.clone();
    if let Some(labels) = &desired.metadata.labels {
        merged.metadata.labels.get_or_insert_default().extend(labels.clone());
    }
    let known = live.webhooks.as_deref().unwrap_or_default();
    let wanted = desired.webhooks.as_deref().unwrap_or_default();
    // In the live order: order has no meaning here and is no reason to write.
    let mut placed = BTreeSet::new();
    let mut webhooks: Vec<_> = known
        .iter()
        .filter_map(|old| Some((old, wanted.iter().find(|new| new.name == old.name)?)))
        .filter(|(_, new)| placed.insert(new.name.as_str()))
        .map(|(old, new)| with_own_fields(old.clone(), new))
        .collect();
    for new in wanted.iter().filter(|new| !placed.contains(new.name.as_str())) {
        webhooks.push(with_siblings_settings(new.clone(), known));
    }
    merged.webhooks = Some(webhooks);
    (merged != *live).then_some(merged)
}

fn with_own_fields(mut old: ValidatingWebhook, new: &ValidatingWebhook) -> ValidatingWebhook {
    if !same_rules(old.rules.as_deref(), new.rules.as_deref()) {
        old.rules.clone_from(&new.rules);
    }
    if old.object_selector.clone().unwrap_or_default() != new.object_selector.clone().unwrap_or_default() {
        old.object_selector.clone_from(&new.object_selector);
    }
    if !same_address(&old.client_config, &new.client_config) {
        let ca_bundle = old.client_config.ca_bundle.take();
        old.client_config = WebhookClientConfig { ca_bundle, ..new.client_config.clone() };
    }
    if new.client_config.ca_bundle.is_some() {
        old.client_config.ca_bundle.clone_from(&new.client_config.ca_bundle);
    }
    old.match_policy = Some(new.match_policy.clone().unwrap_or_else(|| "Equivalent".to_owned()));
    old.side_effects.clone_from(&new.side_effects);
    old.admission_review_versions.clone_from(&new.admission_review_versions);
    old
}

/// A webhook for a group and version that nobody declared before follows what
/// the admin made of its siblings, where they agree.
fn with_siblings_settings(mut new: ValidatingWebhook, known: &[ValidatingWebhook]) -> ValidatingWebhook {
    let mut siblings =
        known.iter().filter(|old| new.name.ends_with(EDITS) && old.name.ends_with(EDITS)).peekable();
    if let Some(&first) = siblings.peek() {
        let settings = |webhook: &ValidatingWebhook| {
            (
                webhook.failure_policy.clone(),
                webhook.timeout_seconds,
                webhook.namespace_selector.clone(),
                webhook.match_conditions.clone(),
            )
        };
        let agreed = settings(first);
        if siblings.all(|sibling| settings(sibling) == agreed) {
            (new.failure_policy, new.timeout_seconds, new.namespace_selector, new.match_conditions) = agreed;
        }
    }
    new
}

fn same_address(left: &WebhookClientConfig, right: &WebhookClientConfig) -> bool {
    let service = |config: &WebhookClientConfig| {
        config.service.as_ref().map(|service| {
            let port = service.port.unwrap_or(443);
            (service.namespace.clone(), service.name.clone(), service.path.clone(), port)
        })
    };
    left.url == right.url && service(left) == service(right)
}

/// Whether the rules mean the same: the order of rules and of their lists has
/// no meaning, and an absent scope is every scope.
fn same_rules(left: Option<&[RuleWithOperations]>, right: Option<&[RuleWithOperations]>) -> bool {
    let sorted = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<BTreeSet<_>>();
    let meaning = |rules: Option<&[RuleWithOperations]>| {
        rules
            .unwrap_or_default()
            .iter()
            .map(|rule| {
                (
                    sorted(&rule.api_groups),
                    sorted(&rule.api_versions),
                    sorted(&rule.operations),
                    sorted(&rule.resources),
                    rule.scope.clone().unwrap_or_else(|| "*".to_owned()),
                )
            })
            .collect::<BTreeSet<_>>()
    };
    meaning(left) == meaning(right)
}
