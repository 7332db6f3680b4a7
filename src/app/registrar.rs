//! Computes the webhook configurations as releases and certificates change, and keeps them registered.
//!
//! Entry points: [`Registrar::run`]; [`wait_until_trusted`] for the replica's own readiness. Invariant: when one
//! configuration is withdrawn, neither is kept any longer. Only the leader writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::admin::Condition;
use crate::callers::Callers;
use crate::client::discovery;
use crate::client::lease::{CaBundle, Leadership};
use crate::config;
use crate::ledger::Ledger;
use crate::ledger::row::{Act, ReviewedEdit, Row};
use crate::mirror::policies::InForce;
use crate::mirror::releases::Releases;
use crate::model::{ObjectId, Operation};
use crate::policy::resolver::PolicyResolver;
use crate::tls::Certificates;
use crate::webhook::registration::keep::{self, Configuration, OutsideChange, Wish};
use crate::webhook::registration::{
    Address, NAME, Resource, Surface, configuration, emergency, mutating, trust,
};

/// How long the version of the API server counts: it may be upgraded under a running guard.
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// The pause after it did not tell its version.
const RETRY: Duration = Duration::from_secs(30);

/// The first version of Kubernetes whose webhooks have match conditions by default.
const CONDITIONS: (u32, u32) = (1, 28);

/// The inputs that decide about the webhook configurations.
pub(super) struct Registrar {
    pub(super) registration: config::Registration,
    pub(super) callers: Callers,
    pub(super) own_namespace: Option<String>,
    pub(super) record_driver: config::RecordDriver,
    pub(super) certificates: Certificates,
    /// The authorities that the API server has to trust: those of all replicas' certificates.
    pub(super) trusted: CaBundle,
    pub(super) releases: Arc<Releases>,
    pub(super) resolver: Arc<PolicyResolver>,
    /// Whether the emergency switch is off; `None` until that is known.
    pub(super) open: watch::Receiver<Option<bool>>,
    pub(super) leadership: Leadership,
    pub(super) in_force: Arc<InForce>,
    pub(super) ledger: Ledger,
}

impl Registrar {
    /// Keeps the configurations until `stop`, or until they are withdrawn.
    pub(super) async fn run(self, client: kube::Client, stop: CancellationToken) {
        let stop = stop.child_token();
        let (validating, wanted) = watch::channel(Wish::Unknown);
        let told = || (self.leadership.clone(), self.keep_change(&client));
        let judging = keep::maintain(client.clone(), wanted, told(), stop.clone());
        let (changing, wanted) = watch::channel(Wish::Unknown);
        let answering = keep::maintain(client.clone(), wanted, told(), stop.clone());
        tokio::pin!(judging, answering);
        tokio::select! {
            () = self.wish(&client, &validating, &changing) => {}
            () = &mut judging => {}
            () = &mut answering => {}
        }
        stop.cancel();
    }

    /// Records other users' changes of the configurations in the ledger. The emergency switch has its own
    /// row. Its marker exists before anything is deleted, so the check for the marker comes last.
    fn keep_change(&self, client: &kube::Client) -> impl Fn(OutsideChange) {
        let (client, ledger) = (client.clone(), self.ledger.clone());
        move |change| {
            let (client, ledger, time) = (client.clone(), ledger.clone(), Timestamp::now());
            tokio::spawn(async move {
                if change.is_deletion && emergency::is_open(&client).await.unwrap_or_default() {
                    return;
                }
                tracing::warn!(
                    registration.managers = change.managers.join(", "),
                    "somebody else changed the {} {NAME}: {}",
                    change.kind,
                    change.what
                );
                ledger.record(row(change, time));
            });
        }
    }

    async fn wish(
        &self,
        client: &kube::Client,
        validating: &watch::Sender<Wish<ValidatingWebhookConfiguration>>,
        changing: &watch::Sender<Wish<MutatingWebhookConfiguration>>,
    ) {
        let changes = self.releases.changes();
        let mut authority = self.trusted.clone();
        let (mut open, mut leading) = (self.open.clone(), self.leadership.watch());
        let mut policies = self.in_force.changes();
        let mut callers = self.callers.changes();
        let (mut server, mut ask_at) = (None, Instant::now());
        loop {
            if ask_at <= Instant::now() {
                server = discovery::version(client).await.ok().or(server);
                ask_at = Instant::now() + if server.is_some() { ASK_AGAIN } else { RETRY };
            }
            let resources: BTreeSet<Resource> =
                self.releases.index().read().resources().into_iter().map(Resource::from).collect();
            let bundle = authority.borrow_and_update().clone();
            let secret = callers.borrow_and_update().clone();
            let token = secret.registered();
            let surface = Surface {
                endpoint: &self.registration.endpoint,
                // Without a token nothing is wished.
                address: token.map_or(Address::Placeholder, Address::Token),
                ca_bundle: bundle.as_deref().map(str::as_bytes),
                own_namespace: self.own_namespace.as_deref(),
                record_driver: self.record_driver,
                select_all: self.registration.select_all,
                reverts: self.resolver.policies().reverts(),
                conditions: server.is_some_and(|version| version >= CONDITIONS),
            };
            // What is trusted follows the own authority a moment later.
            let is_known = bundle.is_some() || self.certificates.ca_bundle().borrow().is_none();
            let armed =
                *open.borrow_and_update() == Some(false) && !self.certificates.is_provisional() && is_known;
            if armed && token.is_some() && *leading.borrow_and_update() {
                send(validating, Wish::Present(configuration(&resources, &surface)));
                send(changing, Wish::Present(mutating(&resources, &surface)));
            } else {
                send(validating, Wish::Unknown);
                send(changing, Wish::Unknown);
            }
            let changed = tokio::select! {
                _ = changes.next() => Ok(()),
                Ok(()) = policies.changed() => Ok(()),
                Ok(()) = callers.changed() => Ok(()),
                changed = open.changed() => changed,
                changed = leading.changed() => changed,
                changed = authority.changed() => changed,
                () = sleep_until(ask_at) => Ok(()),
            };
            if changed.is_err() {
                return;
            }
        }
    }
}

/// Meets `trust` once the API server trusts this replica's certificate. Without a leader that has it trusted, edits
/// come to the other replicas as well, so the wait has an end.
pub(super) async fn wait_until_trusted(
    client: kube::Client,
    certificates: Certificates,
    trust: Condition,
    stop: CancellationToken,
) {
    let is_provisional = || certificates.is_provisional();
    let is_trusted = tokio::select! {
        () = stop.cancelled() => return,
        is_trusted = trust::wait_until_trusted(&client, certificates.ca_bundle(), is_provisional) => is_trusted,
    };
    if !is_trusted {
        tracing::warn!(
            "the leader does not have the authority of this replica's certificate trusted; the API server may refuse \
             its answers"
        );
    }
    trust.met();
    stop.cancelled().await;
}

fn row(change: OutsideChange, time: Timestamp) -> Row {
    let OutsideChange { kind, is_deletion, managers, same, what } = change;
    let (act, operation) = match is_deletion {
        true => (Act::DeleteWebhooks, Operation::Delete),
        false => (Act::ChangeWebhooks, Operation::Update),
    };
    let object = ObjectId {
        group: "admissionregistration.k8s.io".to_owned(),
        kind: kind.to_owned(),
        namespace: None,
        name: NAME.to_owned(),
    };
    let by = if managers.is_empty() {
        String::new()
    } else {
        format!("; by field manager {}", managers.join(", "))
    };
    let edit = ReviewedEdit::watched(object, Some(operation));
    let same = Some(format!("{kind} {same}"));
    Row { detail: format!("{what}{by}"), same, ..Row::act(time, edit, None, act) }
}

/// Says a wish, if it is another one.
fn send<C: Configuration>(sender: &watch::Sender<Wish<C>>, wish: Wish<C>) {
    sender.send_if_modified(|said| {
        let differs = *said != wish;
        if differs {
            *said = wish;
        }
        differs
    });
}
