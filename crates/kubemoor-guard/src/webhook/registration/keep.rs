//! Writes, maintains and withdraws the webhook configurations.
//!
//! [`maintain`] runs for as long as the guard, [`keep()`] writes once, [`withdraw`] removes for good; each for
//! validating and mutating configurations. Kubemoor owns a webhook's address, CA, rules, object selector, review
//! versions and its own conditions; if none of these changed, nothing is written. The admin owns `failurePolicy`,
//! `timeoutSeconds`, `namespaceSelector`, further `matchConditions` and foreign labels and annotations, which are taken
//! from the live object once it exists.
//!
//! A configuration deleted by accident is re-created, with the admin's settings as this process last saw them. A
//! withdrawn one is not: it gets an annotation before its deletion, which the watch still delivers. The value of an
//! address is never published: it holds the token by which the API server proves that it calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ManagedFieldsEntry, ObjectMeta};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{EDITS, NAME, OWN_CONDITIONS, REVERTS, STATUS, redact_tokens};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::lease::{self, Leadership};
use kubemoor_cluster::client::registrations::{Registrations, WebhookKind};
use kubemoor_cluster::client::watch::{ObjectEvent, Typed};
use kubemoor_policy::guarded::LeaseReference;

const ATTEMPTS: usize = 5;

const RETRY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq)]
pub enum DesiredState<C> {
    /// Nothing is known yet: the configuration is left unchanged.
    Unknown,
    Present(C),
    /// It is deleted once, if it exists: a leader that had not seen the emergency marker may have re-created it. After
    /// that it is left unchanged.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Created,
    Updated,
    Unchanged,
    /// It is being withdrawn; nothing was written.
    Withdrawn,
    /// It is absent and must not be created; nothing was written.
    Absent,
}

#[derive(Debug, Error)]
pub enum RegistrationError {
    #[error("cannot read the {0} {NAME}; the account needs get on it")]
    Get(&'static str, #[source] ClusterError),
    #[error("cannot write the {0} {NAME}; the account needs create and update")]
    Write(&'static str, #[source] ClusterError),
    #[error("cannot delete the {0} {NAME}; the account needs update and delete")]
    Delete(&'static str, #[source] ClusterError),
    #[error("the {0} {NAME} changed during each of {ATTEMPTS} attempts to write it")]
    Contested(&'static str),
}

enum ReconcileOutcome {
    Done,
    Failed,
    Withdrawn,
}

/// Keeps the configuration equal to `desired` until `stop`: at the start, on each change of
/// `desired`, and when another writer changes or deletes it. While nothing is known (the guard is
/// not ready, or does not lead) nothing is changed. While this replica leads, `tell` receives the
/// changes by others. Returns early only when the configuration is withdrawn.
pub async fn maintain<C: Configuration>(
    client: kube::Client,
    mut desired: watch::Receiver<DesiredState<C>>,
    (leadership, tell): (Leadership, impl Fn(OutsideChange)),
    stop: CancellationToken,
) {
    let registrations = Registrations::<C>::new(client, leadership.clone());
    let mut events = registrations.follow(NAME);
    let mut state = WatchState::new();
    let tell_all = |state: &mut WatchState<C>| match state.leads && leadership.is_leader() {
        true => state.known.take_changes().into_iter().for_each(&tell),
        false => state.known.set_aside(Instant::now()),
    };
    loop {
        let wanted = desired.borrow_and_update().clone();
        // A process that was stopped for a while may have an outdated desired state.
        let outcome = if leadership.is_leader() {
            reconcile(&registrations, wanted, &mut state).await
        } else {
            state.leads = false;
            ReconcileOutcome::Done
        };
        tell_all(&mut state);
        let again = match outcome {
            ReconcileOutcome::Done => false,
            ReconcileOutcome::Failed => true,
            ReconcileOutcome::Withdrawn => return stand_down::<C>(),
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
                    if let ObjectEvent::Broken(error) = &event {
                        tracing::warn!("failed to watch the webhook configuration; retrying: {error}");
                    }
                    let next = state.after(event);
                    tell_all(&mut state);
                    match next {
                        WatchStep::Wait => {}
                        WatchStep::Keep => break,
                        WatchStep::StandDown => return stand_down::<C>(),
                    }
                }
            }
        }
    }
}

/// Writes the fields of the configuration that differ from `desired`.
pub async fn keep<C: Configuration>(
    client: &kube::Client,
    desired: &C,
) -> Result<WriteOutcome, RegistrationError> {
    write(&registrations_for_command(client), desired, true, &mut KnownConfiguration::default()).await
}

/// Removes the configuration, so that a running guard does not write it again.
/// Returns whether there was one.
pub async fn withdraw<C: Configuration>(client: &kube::Client) -> Result<bool, RegistrationError> {
    let registrations = registrations_for_command::<C>(client);
    let failed = |error| RegistrationError::Delete(C::KIND, error);
    for _ in 0..ATTEMPTS {
        let Some(mut live) = read(&registrations).await? else { return Ok(false) };
        let annotations = live.meta_mut().annotations.get_or_insert_default();
        annotations.insert(WITHDRAWN.to_owned(), "true".to_owned());
        let Some(marked) = registrations.replace(&live).await.map_err(failed)? else { continue };
        if registrations.delete(NAME, Some(&marked)).await.map_err(failed)? {
            return Ok(true);
        }
    }
    Err(RegistrationError::Contested(C::KIND))
}

/// Access for commands, which write whether this process leads or not.
pub(super) fn registrations_for_command<C: Configuration>(client: &kube::Client) -> Registrations<C> {
    Registrations::new(client.clone(), Leadership::alone())
}

async fn reconcile<C: Configuration>(
    registrations: &Registrations<C>,
    desired: DesiredState<C>,
    state: &mut WatchState<C>,
) -> ReconcileOutcome {
    let wanted = match desired {
        DesiredState::Present(wanted) => wanted,
        DesiredState::Absent => return clear(registrations, state).await,
        DesiredState::Unknown => return ReconcileOutcome::Done,
    };
    state.is_cleared = false;
    let written = write(registrations, &wanted, state.may_create, &mut state.known).await;
    if !std::mem::replace(&mut state.leads, true) {
        state.known.take_over(Instant::now());
    }
    match written {
        Ok(WriteOutcome::Withdrawn) => return ReconcileOutcome::Withdrawn,
        Ok(outcome) => {
            state.may_create = false;
            if let WriteOutcome::Created | WriteOutcome::Updated = outcome {
                let kind = C::KIND;
                tracing::info!(registration.kept = ?outcome, "the {kind} {NAME} was written");
            }
        }
        Err(RegistrationError::Write(_, ClusterError::NotLeading)) => {}
        Err(error) => {
            let error = redact_tokens(&format!("{:#}", anyhow::Error::new(error)));
            tracing::warn!("failed to reconcile the webhook configuration; retrying: {error}");
            return ReconcileOutcome::Failed;
        }
    }
    ReconcileOutcome::Done
}

async fn clear<C: Configuration>(
    registrations: &Registrations<C>,
    state: &mut WatchState<C>,
) -> ReconcileOutcome {
    if state.is_cleared {
        return ReconcileOutcome::Done;
    }
    // If a user restores it meanwhile, its uid or resource version differs, and it is not deleted.
    let deleted = match registrations.read(NAME).await {
        Ok(Some(live)) => registrations.delete(NAME, Some(&live)).await.map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    state.is_cleared = matches!(deleted, Ok(None | Some(true)));
    match deleted {
        Ok(Some(true)) => tracing::info!("the {} {NAME} was deleted, because the emergency is open", C::KIND),
        Ok(Some(false)) => return ReconcileOutcome::Failed,
        Ok(None) | Err(ClusterError::NotLeading) => {}
        Err(error) => {
            tracing::warn!("failed to delete the webhook configuration; retrying: {error}");
            return ReconcileOutcome::Failed;
        }
    }
    ReconcileOutcome::Done
}

async fn write<C: Configuration>(
    registrations: &Registrations<C>,
    desired: &C,
    may_create: bool,
    known: &mut KnownConfiguration<C>,
) -> Result<WriteOutcome, RegistrationError> {
    for _ in 0..ATTEMPTS {
        let live = read(registrations).await?;
        match &live {
            Some(live) if !is_withdrawn(live) => known.record_live_state(live),
            // A listing may be older than this answer.
            None if may_create => known.note_gone("deleted"),
            _ => {}
        }
        let (written, outcome) = match live {
            None if !may_create => return Ok(WriteOutcome::Absent),
            None => {
                (registrations.create(&revived(known.last.as_ref(), desired)).await, WriteOutcome::Created)
            }
            Some(live) if is_withdrawn(&live) => return Ok(WriteOutcome::Withdrawn),
            Some(live) => match merge(&live, desired) {
                None => return Ok(WriteOutcome::Unchanged),
                Some(merged) => (registrations.replace(&merged).await, WriteOutcome::Updated),
            },
        };
        if let Some(written) = written.map_err(|error| RegistrationError::Write(C::KIND, error))? {
            known.note_own(&written);
            return Ok(outcome);
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
        "the {kind} {NAME} was withdrawn: changes are not checked until the guard restarts, 10 minutes later at the earliest"
    );
}

/// Marks on the Lease of the guards that they must not register for a while.
pub async fn note_withdrawal(client: &kube::Client) -> Result<(), ClusterError> {
    let mut place = lease_place::<ValidatingWebhookConfiguration>(client).await;
    if place.is_none() {
        place = lease_place::<MutatingWebhookConfiguration>(client).await;
    }
    match place {
        Some(place) => lease::note_withdrawal(client, &place, Timestamp::now()).await,
        None => Ok(()),
    }
}

/// The Lease of the guards behind the webhooks: it has the name of their Service.
async fn lease_place<C: Configuration>(client: &kube::Client) -> Option<LeaseReference> {
    // A user who cannot read it cannot withdraw it either, and gets an error there.
    let live = registrations_for_command::<C>(client).read(NAME).await.ok().flatten()?;
    let service = live.webhooks().into_iter().find_map(|webhook| webhook.client_config.service)?;
    Some(LeaseReference { namespace: service.namespace, name: service.name })
}

pub trait Configuration:
    WebhookKind + k8s_openapi::Resource<Scope = ClusterResourceScope> + Default + PartialEq + Sync
{
    fn webhooks(&self) -> Vec<ValidatingWebhook>;

    fn set_webhooks(&mut self, webhooks: Vec<ValidatingWebhook>);
}

impl Configuration for ValidatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<ValidatingWebhook> {
        self.webhooks.clone().unwrap_or_default()
    }

    fn set_webhooks(&mut self, webhooks: Vec<ValidatingWebhook>) {
        self.webhooks = Some(webhooks);
    }
}

impl Configuration for MutatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<ValidatingWebhook> {
        let webhooks = self.webhooks.clone().unwrap_or_default().into_iter();
        webhooks
            .map(|webhook| ValidatingWebhook {
                admission_review_versions: webhook.admission_review_versions,
                client_config: webhook.client_config,
                failure_policy: webhook.failure_policy,
                match_conditions: webhook.match_conditions,
                match_policy: webhook.match_policy,
                name: webhook.name,
                namespace_selector: webhook.namespace_selector,
                object_selector: webhook.object_selector,
                rules: webhook.rules,
                side_effects: webhook.side_effects,
                timeout_seconds: webhook.timeout_seconds,
            })
            .collect()
    }

    fn set_webhooks(&mut self, webhooks: Vec<ValidatingWebhook>) {
        let webhooks = webhooks.into_iter().map(|webhook| MutatingWebhook {
            admission_review_versions: webhook.admission_review_versions,
            client_config: webhook.client_config,
            failure_policy: webhook.failure_policy,
            match_conditions: webhook.match_conditions,
            match_policy: webhook.match_policy,
            name: webhook.name,
            namespace_selector: webhook.namespace_selector,
            object_selector: webhook.object_selector,
            // Changes of other webhooks have to be seen too.
            reinvocation_policy: Some("IfNeeded".to_owned()),
            rules: webhook.rules,
            side_effects: webhook.side_effects,
            timeout_seconds: webhook.timeout_seconds,
        });
        self.webhooks = Some(webhooks.collect());
    }
}

/// The desired configuration with the admin's settings of the live one; `None` if they are equal.
pub fn merge<C: Configuration>(live: &C, desired: &C) -> Option<C> {
    let mut merged = live.clone();
    if let Some(labels) = &desired.meta().labels {
        merged.meta_mut().labels.get_or_insert_default().extend(labels.clone());
    }
    let known = live.webhooks();
    let webhooks =
        desired.webhooks().into_iter().map(|new| match known.iter().find(|old| old.name == new.name) {
            Some(old) => {
                let ca_bundle = new.client_config.ca_bundle.or_else(|| old.client_config.ca_bundle.clone());
                let client_config = WebhookClientConfig { ca_bundle, ..new.client_config };
                with_settings(ValidatingWebhook { client_config, ..new }, old)
            }
            None => with_siblings_settings(new, &known),
        });
    merged.set_webhooks(webhooks.collect());
    (merged != *live).then_some(merged)
}

/// The webhook with the admin's settings of `old`, and with the API server's default where it selects all objects.
fn with_settings(new: ValidatingWebhook, old: &ValidatingWebhook) -> ValidatingWebhook {
    let mut conditions = admins_conditions(old.match_conditions.as_deref()).unwrap_or_default();
    conditions.extend(new.match_conditions.into_iter().flatten());
    ValidatingWebhook {
        failure_policy: old.failure_policy.clone(),
        timeout_seconds: old.timeout_seconds,
        namespace_selector: old.namespace_selector.clone(),
        object_selector: new
            .object_selector
            .or_else(|| old.object_selector.is_some().then(LabelSelector::default)),
        match_conditions: (!conditions.is_empty()).then_some(conditions),
        ..new
    }
}

/// A webhook for a new group and version gets the admin's settings of its siblings, where they
/// agree.
fn with_siblings_settings(new: ValidatingWebhook, known: &[ValidatingWebhook]) -> ValidatingWebhook {
    let Some(suffix) = [EDITS, REVERTS, STATUS].into_iter().find(|suffix| new.name.ends_with(suffix)) else {
        return new;
    };
    let mut siblings =
        known.iter().filter(|old| old.name.ends_with(suffix)).map(|old| with_settings(new.clone(), old));
    let Some(first) = siblings.next() else { return new };
    if siblings.all(|other| other == first) { first } else { new }
}

pub fn admins_conditions(all: Option<&[MatchCondition]>) -> Option<Vec<MatchCondition>> {
    let is_admins = |it: &&MatchCondition| !OWN_CONDITIONS.contains(&it.name.as_str());
    let admins: Vec<_> = all.unwrap_or_default().iter().filter(is_admins).cloned().collect();
    (!admins.is_empty()).then_some(admins)
}

const WITHDRAWN: &str = "kubemoor.dev/withdrawn";

struct WatchState<C> {
    /// Whether it may be created: it never existed, or its deletion was seen and was not a
    /// withdrawal. An absence alone can be a withdrawal whose event has not arrived yet.
    may_create: bool,
    listed: bool,
    /// Whether this replica has led since it last read the configuration itself.
    leads: bool,
    /// Whether this replica deleted it for an emergency, and has not kept it since.
    is_cleared: bool,
    known: KnownConfiguration<C>,
}

enum WatchStep {
    Wait,
    Keep,
    StandDown,
}

impl<C: Configuration> WatchState<C> {
    fn new() -> Self {
        Self {
            may_create: true,
            listed: false,
            leads: false,
            is_cleared: false,
            known: KnownConfiguration::default(),
        }
    }

    fn after(&mut self, event: ObjectEvent<Typed<C>>) -> WatchStep {
        match event {
            ObjectEvent::Applied(Typed(live))
            | ObjectEvent::Listed(Typed(live))
            | ObjectEvent::Deleted(Typed(live))
                if is_withdrawn(&live) =>
            {
                self.known.note_gone("withdrawn for good");
                WatchStep::StandDown
            }
            ObjectEvent::Applied(Typed(live)) => {
                self.known.record_live_state(&live);
                WatchStep::Keep
            }
            ObjectEvent::Deleted(_) => {
                self.known.note_gone("deleted");
                self.may_create = true;
                WatchStep::Keep
            }
            ObjectEvent::Relisting => {
                self.listed = false;
                WatchStep::Wait
            }
            ObjectEvent::Listed(Typed(live)) => {
                self.known.record_live_state(&live);
                self.listed = true;
                WatchStep::Wait
            }
            // A deletion that fell into a gap of the watch shows only here.
            ObjectEvent::Synced => {
                self.may_create = !self.listed;
                WatchStep::Keep
            }
            ObjectEvent::Watching | ObjectEvent::Broken(_) => WatchStep::Wait,
        }
    }
}

fn is_withdrawn<C: Configuration>(live: &C) -> bool {
    live.meta().annotations.as_ref().is_some_and(|annotations| annotations.contains_key(WITHDRAWN))
}

/// How many webhooks are named for a change that several share.
const NAMED: usize = 3;

const GUARD: &str = "kubemoor";

/// How long there may be no leader after a leader is gone.
const LEADERLESS: Duration = Duration::from_secs(60);

const ASIDE: usize = 16;

/// A change or deletion by others of a configuration that the guard keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideChange {
    pub kind: &'static str,
    pub is_deletion: bool,
    /// The field managers that wrote it, as far as its managed fields show.
    pub managers: Vec<String>,
    /// Identifies this change, in the same way for every guard.
    pub same: String,
    /// The change, such as `failurePolicy Fail → Ignore (scale.kubemoor.dev)`.
    pub what: String,
}

#[derive(Default)]
struct KnownConfiguration<C> {
    /// The last known state, even if the configuration is gone by now.
    last: Option<C>,
    is_gone: bool,
    changes: Vec<OutsideChange>,
    /// Changes that were seen while this replica did not lead, and when.
    aside: Vec<(Instant, OutsideChange)>,
}

impl OutsideChange {
    /// Whether it was written, but by no guard. If a guard wrote too, the change may be its own.
    fn is_by_others(&self) -> bool {
        !self.managers.is_empty() && !self.managers.iter().any(|manager| manager == GUARD)
    }
}

impl<C: Configuration> KnownConfiguration<C> {
    fn note_own(&mut self, written: &C) {
        self.last = Some(written.clone());
        self.is_gone = false;
    }

    fn record_live_state(&mut self, live: &C) {
        if self.last.as_ref().is_some_and(|last| !is_newer(live, last)) {
            return;
        }
        self.is_gone = false;
        let Some(before) = self.last.replace(live.clone()) else { return };
        let what = differences(&before.webhooks(), &live.webhooks());
        if !what.is_empty() {
            self.changes.push(OutsideChange {
                kind: C::KIND,
                is_deletion: false,
                managers: writers(&before, live),
                same: identity(live),
                what: what.join("; "),
            });
        }
    }

    fn note_gone(&mut self, what: &str) {
        let Some(last) = self.last.as_ref().filter(|_| !std::mem::replace(&mut self.is_gone, true)) else {
            return;
        };
        let (what, same) = (what.to_owned(), format!("{} {what}", identity(last)));
        self.changes.push(OutsideChange {
            kind: C::KIND,
            is_deletion: true,
            managers: Vec::new(),
            same,
            what,
        });
    }

    /// Sets aside changes that were seen while another replica leads, or none does.
    fn set_aside(&mut self, now: Instant) {
        self.aside.extend(std::mem::take(&mut self.changes).into_iter().map(|change| (now, change)));
        let surplus = self.aside.len().saturating_sub(ASIDE);
        self.aside.drain(..surplus);
    }

    /// Starts to lead: recent changes by others than a guard count, even if the previous leader reported them.
    fn take_over(&mut self, now: Instant) {
        let aside = std::mem::take(&mut self.aside).into_iter();
        let recent = aside.filter(|(at, _)| now.duration_since(*at) < LEADERLESS).map(|(_, change)| change);
        let all = recent.chain(std::mem::take(&mut self.changes));
        self.changes = all.filter(|change| change.is_deletion || change.is_by_others()).collect();
    }

    fn take_changes(&mut self) -> Vec<OutsideChange> {
        std::mem::take(&mut self.changes)
    }
}

/// Whether a state is newer than another: resource versions grow. Versions that are not numbers are only equal or not.
fn is_newer<C: Configuration>(state: &C, other: &C) -> bool {
    let versions = [state, other].map(|it| it.meta().resource_version.as_deref().unwrap_or_default());
    match versions.map(str::parse::<u64>) {
        [Ok(state), Ok(other)] => state > other,
        _ => versions[0] != versions[1],
    }
}

/// Identifies a state of a configuration, by uid and resource version.
fn identity<C: Configuration>(state: &C) -> String {
    let ObjectMeta { uid, resource_version, .. } = state.meta();
    format!("{} {}", uid.as_deref().unwrap_or_default(), resource_version.as_deref().unwrap_or_default())
}

/// The field managers that wrote between the two states. One that only lost a field to another wrote nothing. Times are
/// whole seconds, so only the fields may show a second write.
fn writers<C: Configuration>(before: &C, after: &C) -> Vec<String> {
    let entries =
        |of: &C| -> Vec<ManagedFieldsEntry> { of.meta().managed_fields.clone().unwrap_or_default() };
    let (before, after) = (entries(before), entries(after));
    let is_later = |new: &&ManagedFieldsEntry| {
        let is_same = |old: &ManagedFieldsEntry| {
            (&old.manager, &old.operation, &old.time) == (&new.manager, &new.operation, &new.time)
        };
        !before.iter().any(is_same)
    };
    let mut wrote: Vec<&ManagedFieldsEntry> = after.iter().filter(is_later).collect();
    if wrote.is_empty() {
        wrote = after.iter().filter(|new| !before.contains(new)).collect();
    }
    wrote.iter().filter_map(|it| it.manager.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

const TOLD: [&str; 4] = ["failurePolicy", "matchPolicy", "sideEffects", "timeoutSeconds"];

fn differences(before: &[ValidatingWebhook], after: &[ValidatingWebhook]) -> Vec<String> {
    let (before, after) = (by_name(before), by_name(after));
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, old) in &before {
        match after.get(name) {
            None => found.entry("webhook removed".to_owned()).or_default().push(name),
            Some(new) => {
                for change in changed(old, new) {
                    found.entry(change).or_default().push(name);
                }
            }
        }
    }
    for name in after.keys().filter(|name| !before.contains_key(*name)) {
        found.entry("webhook added".to_owned()).or_default().push(name);
    }
    found.into_iter().map(|(change, names)| format!("{change} ({})", listed(&names, NAMED))).collect()
}

fn by_name(webhooks: &[ValidatingWebhook]) -> BTreeMap<String, Map<String, Value>> {
    let fields = |webhook| match serde_json::to_value(webhook) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    webhooks.iter().map(|webhook| (webhook.name.clone(), fields(webhook))).collect()
}

fn changed(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |name: &&&String| old.get(**name) != new.get(**name);
    let told = |name: &String| match TOLD.contains(&name.as_str()) {
        true => format!("{name} {} → {}", shown(old.get(name)), shown(new.get(name))),
        false => name.clone(),
    };
    names.iter().filter(differs).map(|name| told(name)).collect()
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "unset".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// The first `most` of these names, and how many more there are.
pub fn listed(names: &[impl AsRef<str>], most: usize) -> String {
    let named: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    let named = named.join(", ");
    match names.len().saturating_sub(most) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
