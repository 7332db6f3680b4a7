//! Writes a webhook configuration, keeps it, and withdraws it.
//!
//! Entry points: [`maintain`] for as long as the guard runs, [`keep`] once,
//! [`withdraw`] for good; each for configurations that validate and for those
//! that mutate. Invariant: when nothing of Kubemoor's own changed,
//! nothing is written. Own are a webhook's address, CA, rules, object selector
//! and the version it speaks, and the conditions by which a status is sent. The admin's are `failurePolicy`,
//! `timeoutSeconds`, `namespaceSelector`, `matchConditions` and foreign labels
//! and annotations: once the object exists they are taken from it.
//!
//! A configuration deleted by accident comes back, with the admin's settings as this process saw them last. One that
//! was withdrawn does not: it carries an annotation when it goes, which the watch still delivers.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ValidatingWebhook, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::known::Known;
use self::sight::{Next, Sight, WITHDRAWN, is_withdrawn};
use super::{EDITS, NAME, REVERTS, STATUS, address};
use crate::client::call::CallError;
use crate::client::lease::Leadership;
use crate::client::registrations::Registrations;
use crate::client::watch::Event;
use crate::client::writer::SendError;

pub use self::kinds::Configuration;
pub use self::known::OutsideChange;

mod conditions;
mod kinds;
mod known;
mod sight;

/// The number of tries of a write with conflicts.
const ATTEMPTS: usize = 5;

/// The wait of [`maintain`] after a failed write.
const RETRY: Duration = Duration::from_secs(5);

/// The desired state of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish<C> {
    /// Nothing is known yet: it is left as it is.
    Unknown,
    /// It has to have this content.
    Present(C),
}

/// The result of keeping the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It was absent and has been created.
    Created,
    /// Own fields differed and were written.
    Updated,
    /// Nothing differed, nothing was written.
    Unchanged,
    /// It is being withdrawn; nothing was written.
    Withdrawn,
    /// It is absent and must not be created; nothing was written.
    Absent,
}

/// Why the configuration could not be kept or withdrawn.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// Reading it failed.
    #[error("cannot read the {0} {NAME}; the account needs get on it")]
    Get(&'static str, #[source] CallError),
    /// Writing it failed.
    #[error("cannot write the {0} {NAME}; the account needs create and update")]
    Write(&'static str, #[source] SendError),
    /// Deleting it failed.
    #[error("cannot delete the {0} {NAME}; the account needs update and delete")]
    Delete(&'static str, #[source] SendError),
    /// Another writer keeps changing it.
    #[error("the {0} {NAME} changed during each of {ATTEMPTS} attempts to write it")]
    Contested(&'static str),
}

/// The outcome of following a wish.
enum Followed {
    Done,
    /// It has to be tried again.
    Failed,
    Withdrawn,
}

/// Keeps the configuration equal to `desired` until `stop`: at the start, on each change of
/// `desired`, and when another writer changes or deletes it. While nothing is known (the guard is
/// not ready, or does not lead) nothing is changed. While this replica leads, `tell` receives the
/// changes by others. Returns early only when the configuration is withdrawn.
pub async fn maintain<C: Configuration>(
    client: kube::Client,
    mut desired: watch::Receiver<Wish<C>>,
    (leadership, tell): (Leadership, impl Fn(OutsideChange)),
    stop: CancellationToken,
) {
    let registrations = Registrations::<C>::new(client, leadership.clone());
    let mut events = registrations.follow(NAME);
    let mut sight = Sight::new();
    let tell_all = |sight: &mut Sight<C>| match sight.leads && leadership.holds() {
        true => sight.known.take_changes().into_iter().for_each(&tell),
        false => sight.known.set_aside(Instant::now()),
    };
    loop {
        let wished = desired.borrow_and_update().clone();
        // A process that was stopped for a while may have an outdated wish.
        let followed = if leadership.holds() {
            follow(&registrations, wished, &mut sight).await
        } else {
            sight.leads = false;
            Followed::Done
        };
        tell_all(&mut sight);
        let again = match followed {
            Followed::Done => false,
            Followed::Failed => true,
            Followed::Withdrawn => return stand_down::<C>(),
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = desired.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = tokio::time::sleep(RETRY), if again => break,
                event = events.next() => {
                    if let Event::Broken(error) = &event {
                        tracing::warn!("the webhook configuration cannot be watched, trying again: {error}");
                    }
                    let next = sight.after(event);
                    tell_all(&mut sight);
                    match next {
                        Next::Wait => {}
                        Next::Keep => break,
                        Next::StandDown => return stand_down::<C>(),
                    }
                }
            }
        }
    }
}

/// Writes the fields of the configuration that differ from `desired`.
pub async fn keep<C: Configuration>(client: &kube::Client, desired: &C) -> Result<Kept, RegistrationError> {
    write(&by_hand(client), desired, true, &mut Known::new()).await
}

/// Removes the configuration, so that a running guard does not write it again.
/// Returns whether there was one.
pub async fn withdraw<C: Configuration>(client: &kube::Client) -> Result<bool, RegistrationError> {
    let registrations = by_hand::<C>(client);
    let failed = |error| RegistrationError::Delete(C::KIND, error);
    for _ in 0..ATTEMPTS {
        let Some(mut live) = read(&registrations).await? else { return Ok(false) };
        let annotations = live.meta_mut().annotations.get_or_insert_default();
        annotations.insert(WITHDRAWN.to_owned(), "true".to_owned());
        let Some(marked) = registrations.replace(&live).await.map_err(failed)? else { continue };
        if registrations.delete(NAME, marked.meta().uid.clone()).await.map_err(failed)? {
            return Ok(true);
        }
    }
    Err(RegistrationError::Contested(C::KIND))
}

/// Those that a command writes, whether this process leads or not.
pub(super) fn by_hand<C: Configuration>(client: &kube::Client) -> Registrations<C> {
    Registrations::new(client.clone(), Leadership::alone())
}

/// The live configuration with the guard's own fields of the desired one, or `None` if both have
/// the same meaning.
pub(super) fn merge<C: Configuration>(live: &C, desired: &C) -> Option<C> {
    let mut merged = live.clone();
    if let Some(labels) = &desired.meta().labels {
        merged.meta_mut().labels.get_or_insert_default().extend(labels.clone());
    }
    let (known, wanted) = (live.webhooks(), desired.webhooks());
    // In the live order: order has no meaning here and is no reason to write.
    let mut placed = BTreeSet::new();
    let mut webhooks: Vec<_> = known
        .iter()
        .filter_map(|old| Some((old, wanted.iter().find(|new| new.name == old.name)?)))
        .filter(|(_, new)| placed.insert(new.name.as_str()))
        .map(|(old, new)| with_own_fields(old.clone(), new))
        .collect();
    for new in wanted.iter().filter(|new| !placed.contains(new.name.as_str())) {
        webhooks.push(with_siblings_settings(new.clone(), &known));
    }
    merged.set_webhooks(webhooks);
    (merged != *live).then_some(merged)
}

async fn follow<C: Configuration>(
    registrations: &Registrations<C>,
    wished: Wish<C>,
    sight: &mut Sight<C>,
) -> Followed {
    let Wish::Present(wanted) = wished else { return Followed::Done };
    let kept = write(registrations, &wanted, sight.may_create, &mut sight.known).await;
    if !std::mem::replace(&mut sight.leads, true) {
        sight.known.take_over(Instant::now());
    }
    match kept {
        Ok(Kept::Withdrawn) => return Followed::Withdrawn,
        Ok(kept) => {
            sight.may_create = false;
            if let Kept::Created | Kept::Updated = kept {
                let kind = C::KIND;
                tracing::info!(registration.kept = ?kept, "the {kind} {NAME} was written");
            }
        }
        Err(RegistrationError::Write(_, SendError::NotLeading)) => {}
        Err(error) => {
            let error = address::veil(&format!("{:#}", anyhow::Error::new(error)));
            tracing::warn!("the webhook configuration is not kept, trying again: {error}");
            return Followed::Failed;
        }
    }
    Followed::Done
}

/// Writes what differs.
async fn write<C: Configuration>(
    registrations: &Registrations<C>,
    desired: &C,
    may_create: bool,
    known: &mut Known<C>,
) -> Result<Kept, RegistrationError> {
    for _ in 0..ATTEMPTS {
        let live = read(registrations).await?;
        match &live {
            Some(live) if !is_withdrawn(live) => known.meet(live),
            // A listing may be older than this answer.
            None if may_create => known.note_gone("deleted"),
            _ => {}
        }
        let (written, kept) = match live {
            None if !may_create => return Ok(Kept::Absent),
            None => (registrations.create(&revived(known.last(), desired)).await, Kept::Created),
            Some(live) if is_withdrawn(&live) => return Ok(Kept::Withdrawn),
            Some(live) => match merge(&live, desired) {
                None => return Ok(Kept::Unchanged),
                Some(merged) => (registrations.replace(&merged).await, Kept::Updated),
            },
        };
        if let Some(written) = written.map_err(|error| RegistrationError::Write(C::KIND, error))? {
            known.note_own(&written);
            return Ok(kept);
        }
    }
    Err(RegistrationError::Contested(C::KIND))
}

/// The desired configuration with the admin's settings of the last one.
fn revived<C: Configuration>(last: Option<&C>, desired: &C) -> C {
    let Some(last) = last else { return desired.clone() };
    let mut revived = merge(last, desired).unwrap_or_else(|| last.clone());
    let ObjectMeta { name, labels, annotations, .. } = std::mem::take(revived.meta_mut());
    *revived.meta_mut() = ObjectMeta { name, labels, annotations, ..ObjectMeta::default() };
    revived
}

async fn read<C: Configuration>(registrations: &Registrations<C>) -> Result<Option<C>, RegistrationError> {
    registrations.read(NAME).await.map_err(|error| RegistrationError::Get(C::KIND, error))
}

fn stand_down<C: Configuration>() {
    let kind = C::KIND;
    tracing::warn!(
        "the {kind} {NAME} was withdrawn: edits are no longer judged until the guard starts again"
    );
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
    conditions::merge(&mut old.match_conditions, new.match_conditions.as_deref());
    old.admission_review_versions.clone_from(&new.admission_review_versions);
    old
}

/// A webhook for a new group and version gets the admin's settings of its siblings, where they
/// agree.
fn with_siblings_settings(mut new: ValidatingWebhook, known: &[ValidatingWebhook]) -> ValidatingWebhook {
    let related = |suffix| move |name: &str| name.ends_with(suffix);
    let is_sibling = [EDITS, REVERTS, STATUS].map(related).into_iter().find(|related| related(&new.name));
    let mut siblings = known
        .iter()
        .filter(|old| is_sibling.as_ref().is_some_and(|is_sibling| is_sibling(&old.name)))
        .peekable();
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
