//! Computes the webhook configurations from releases and certificates, and keeps them registered.
//!
//! Only the leader writes. If a user withdraws one of the two configurations, the guard stops keeping both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Services;
use kubemoor_cluster::client::discovery;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_declare::model::{ObjectId, Operation};
use kubemoor_guard::LiveCluster;
use kubemoor_guard::admin::ReadinessCondition;
use kubemoor_guard::webhook::registration::keep::{self, Configuration, DesiredState, OutsideChange};
use kubemoor_guard::webhook::registration::{
    CONDITIONS, NAME, WebhookAddress, WebhookResource, WebhookSettings, configuration, emergency, left_out,
    mutating,
};
use kubemoor_ledger::row::{Act, LedgerRow, ReviewedEdit};
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::callers::CallerToken;
use kubemoor_runtime::config::Endpoint;
use kubemoor_verdict::replay::NAMESPACE_NAME;

/// How often the version of the API server is read again: it may be upgraded while the guard runs.
const ASK_AGAIN: Duration = Duration::from_secs(600);

const RETRY: Duration = Duration::from_secs(5);

/// The pause between checks of the namespaces' labels.
const LOOK: Duration = Duration::from_secs(10);

pub(super) struct Registrar {
    pub(super) endpoint: Endpoint,
    pub(super) cluster: Arc<LiveCluster>,
    pub(super) services: Services,
    /// Until when no webhook is registered, because a user withdrew them.
    pub(super) withdrawn: watch::Receiver<Option<Instant>>,
    /// Whether an emergency is open, which disables enforcement; `None` until that is known.
    pub(super) enforcement_disabled: watch::Receiver<Option<bool>>,
    pub(super) leadership: Leadership,
}

struct DesiredStates {
    validating: watch::Sender<DesiredState<ValidatingWebhookConfiguration>>,
    mutating: watch::Sender<DesiredState<MutatingWebhookConfiguration>>,
}

/// The version of the API server, which decides whether webhooks can have match conditions. If the guard may not read
/// it, the server counts as old; while the server does not answer, nothing is registered.
struct WatchedVersion {
    known: Option<(u32, u32)>,
    is_forbidden: bool,
    ask_at: Instant,
}

impl Registrar {
    /// Keeps the configurations until they are withdrawn. Returns only when the guard stops, because the reconcile loop
    /// continues after a withdrawal.
    pub(super) async fn run(self) {
        let (client, stop) = (&self.cluster.client, self.services.stop.child_token());
        let (validating, wanted) = watch::channel(DesiredState::Unknown);
        let told = || (self.leadership.clone(), self.keep_change());
        let judging = keep::maintain(client.clone(), wanted, told(), stop.clone());
        let (mutating, wanted) = watch::channel(DesiredState::Unknown);
        let answering = keep::maintain(client.clone(), wanted, told(), stop.clone());
        tokio::pin!(judging, answering);
        let desired = DesiredStates { validating, mutating };
        tokio::select! {
            () = self.send_desired_states(&desired) => {}
            () = &mut judging => {}
            () = &mut answering => {}
        }
        stop.cancel();
        self.services.stop.cancelled().await;
    }

    /// Records changes of the configurations by others in the ledger. A deletion by `kubemoor emergency open` has its
    /// own row; it is recognized by the marker, which the command creates before it deletes.
    fn keep_change(&self) -> impl Fn(OutsideChange) {
        let (client, ledger) = (self.cluster.client.clone(), self.services.ledger.clone());
        move |change| {
            let (client, ledger, time) = (client.clone(), ledger.clone(), Timestamp::now());
            tokio::spawn(async move {
                if change.is_deletion && emergency::is_enforcement_disabled(&client).await.unwrap_or_default()
                {
                    return;
                }
                tracing::warn!(
                    registration.managers = change.managers.join(", "),
                    "another client changed the {} {NAME}: {}",
                    change.kind,
                    change.what
                );
                ledger.record(row(change, time));
            });
        }
    }

    /// Sends the desired configurations whenever they change.
    async fn send_desired_states(&self, desired: &DesiredStates) {
        let Services { in_force, certificates, answerer, .. } = &self.services;
        let LiveCluster { client, releases, .. } = &*self.cluster;
        let (changes, mut policies) = (releases.changes(), in_force.changes());
        let mut authority = certificates.ca_bundle();
        let (mut open, mut leading) = (self.enforcement_disabled.clone(), self.leadership.watch());
        let mut callers = answerer.caller_gate.callers().changes();
        let (mut withdrawn, mut was_held) = (self.withdrawn.clone(), false);
        let mut server = WatchedVersion { known: None, is_forbidden: false, ask_at: Instant::now() };
        let (mut was_open, mut clears) = (None, false);
        loop {
            let conditions = server.ask_for_conditions(client).await;
            let (bundle, secret) =
                (authority.borrow_and_update().clone(), callers.borrow_and_update().clone());
            let (is_open, leads) = (*open.borrow_and_update(), *leading.borrow_and_update());
            let held = withdrawn.borrow_and_update().filter(|until| *until > Instant::now());
            note_hold(leads && held.is_some(), &mut was_held);
            if is_open != Some(true) {
                clears = false;
            } else if was_open == Some(false) {
                desired.send(DesiredState::Unknown, DesiredState::Unknown);
                // Check again before deleting: if the emergency is closed by now, the command has restored the
                // configurations, and they must stay.
                let Ok(is_still_open) = emergency::is_enforcement_disabled(client).await else {
                    sleep(RETRY).await;
                    continue;
                };
                clears = is_still_open;
            }
            was_open = is_open.or(was_open);
            let is_armed = is_open == Some(false) && held.is_none();
            let armed = is_armed && !certificates.has_placeholder();
            match (secret.registered(), conditions) {
                (Some(token), Some(conditions)) if armed && leads => {
                    self.send_present(desired, bundle.as_deref(), token, conditions);
                }
                _ if clears && leads => desired.send(DesiredState::Absent, DesiredState::Absent),
                _ => desired.send(DesiredState::Unknown, DesiredState::Unknown),
            }
            let changed = tokio::select! {
                _ = changes.next() => Ok(()),
                Ok(()) = policies.changed() => Ok(()),
                Ok(()) = callers.changed() => Ok(()),
                changed = open.changed() => changed,
                changed = leading.changed() => changed,
                changed = authority.changed() => changed,
                Ok(()) = withdrawn.changed() => Ok(()),
                () = sleep_until(server.ask_at) => Ok(()),
                () = sleep_until(held.unwrap_or(server.ask_at)), if held.is_some() => Ok(()),
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Sends the configurations of all declared resources.
    fn send_present(
        &self,
        desired: &DesiredStates,
        bundle: Option<&str>,
        token: &CallerToken,
        conditions: bool,
    ) {
        let Services { settings, in_force, .. } = &self.services;
        let surface = WebhookSettings {
            endpoint: &self.endpoint,
            address: WebhookAddress::Token(token),
            ca_bundle: bundle.map(str::as_bytes),
            own_namespace: settings.own_namespace(),
            record_driver: settings.record_driver(),
            select_all: settings.select_all,
            reverts: in_force.resolver().policies().reverts(),
            conditions,
        };
        let resources: BTreeSet<WebhookResource> =
            self.cluster.releases.index().read().resources().into_iter().map(WebhookResource::from).collect();
        desired.send(
            DesiredState::Present(configuration(&resources, &surface)),
            DesiredState::Present(mutating(&resources, &surface)),
        );
    }
}

impl WatchedVersion {
    /// Reads the version if that is due. Returns whether webhooks can have match conditions, or `None` if that is not
    /// known yet.
    async fn ask_for_conditions(&mut self, client: &kube::Client) -> Option<bool> {
        if self.ask_at <= Instant::now() {
            match discovery::version(client).await {
                Ok(version) => self.known = Some(version),
                Err(error) => self.is_forbidden |= error.is_forbidden(),
            }
            let is_settled = self.known.is_some() || self.is_forbidden;
            self.ask_at = Instant::now() + if is_settled { ASK_AGAIN } else { RETRY };
        }
        self.known.map(|version| version >= CONDITIONS).or(self.is_forbidden.then_some(false))
    }
}

impl DesiredStates {
    fn send(
        &self,
        validating: DesiredState<ValidatingWebhookConfiguration>,
        mutating: DesiredState<MutatingWebhookConfiguration>,
    ) {
        send(&self.validating, validating);
        send(&self.mutating, mutating);
    }
}

/// Reports namespaces that the webhooks should exclude but that lack the label for it, until `stop`. `own` is the
/// guard's namespace.
pub(super) async fn note_unlabelled_namespaces(
    own: String,
    resolver: Arc<PolicyResolver>,
    labels: ReadinessCondition,
    stop: CancellationToken,
) {
    let mut known = Vec::new();
    loop {
        let unlabelled = unlabelled(&own, &resolver);
        if unlabelled.is_empty() {
            labels.met();
        } else if known != unlabelled {
            let names = unlabelled.join(", ");
            tracing::warn!(
                "namespaces lack the label {NAMESPACE_NAME}, so the webhooks cannot exclude them: {names}"
            );
            labels.noted(format!("namespaces without the label {NAMESPACE_NAME}: {names}"));
        }
        known = unlabelled;
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(LOOK) => {}
        }
    }
}

/// The namespaces with known labels that the webhooks should exclude and that lack the label for it.
fn unlabelled(own: &str, resolver: &PolicyResolver) -> Vec<String> {
    let is_named = |name: &str| {
        let labels = resolver.known_labels(name);
        labels.is_none_or(|labels| labels.get(NAMESPACE_NAME).is_some_and(|label| label == name))
    };
    left_out(Some(own)).filter(|name| !is_named(name)).map(str::to_owned).collect()
}

fn row(change: OutsideChange, time: Timestamp) -> LedgerRow {
    let OutsideChange { kind, is_deletion, managers, same, what } = change;
    let (act, operation) = match is_deletion {
        true => (Act::DeleteWebhooks, Operation::Delete),
        false => (Act::ChangeWebhooks, Operation::Update),
    };
    let object = ObjectId::cluster_scoped("admissionregistration.k8s.io", kind, NAME);
    let by = if managers.is_empty() {
        String::new()
    } else {
        format!("; by field manager {}", managers.join(", "))
    };
    let edit = ReviewedEdit::watched(object, Some(operation));
    let same = Some(format!("{kind} {same}"));
    LedgerRow { detail: format!("{what}{by}"), same, ..LedgerRow::act(time, edit, None, act) }
}

/// Warns once when a withdrawal begins to prevent the registration.
fn note_hold(is_held: bool, was_held: &mut bool) {
    if !std::mem::replace(was_held, is_held) && is_held {
        tracing::warn!("the webhooks were withdrawn less than 10 minutes ago; not registering them yet");
    }
}

fn send<C: Configuration>(sender: &watch::Sender<DesiredState<C>>, desired: DesiredState<C>) {
    sender.send_if_modified(|last| {
        let differs = *last != desired;
        *last = desired;
        differs
    });
}
