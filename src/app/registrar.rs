//! Says what is to be registered, as releases and certificates change, and has
//! it kept.
//!
//! Entry point: [`Registrar::run`]. Invariant: one configuration that is
//! withdrawn ends the keeping of both; only the leader writes any.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::lease::Leadership;
use crate::cluster::policies::InForce;
use crate::cluster::releases::Releases;
use crate::config;
use crate::policy::book::Book;
use crate::tls::Certificates;
use crate::webhook::registration::keep::{self, Configuration, Wish};
use crate::webhook::registration::{Resource, Surface, configuration, reverting};

/// What decides about the webhook configurations.
pub(super) struct Registrar {
    pub(super) registration: config::Registration,
    pub(super) own_namespace: Option<String>,
    pub(super) record_driver: config::RecordDriver,
    pub(super) certificates: Certificates,
    pub(super) releases: Arc<Releases>,
    pub(super) book: Arc<Book>,
    /// Whether the emergency switch is off; none while that is not known.
    pub(super) open: watch::Receiver<Option<bool>>,
    pub(super) leadership: Leadership,
    pub(super) in_force: Arc<InForce>,
}

impl Registrar {
    /// Keeps the configurations until `stop`, or until they are withdrawn.
    pub(super) async fn run(self, client: kube::Client, stop: CancellationToken) {
        let stop = stop.child_token();
        let (validating, wanted) = watch::channel(Wish::Unknown);
        let judging = keep::maintain(client.clone(), wanted, self.leadership.clone(), stop.clone());
        let (mutating, wanted) = watch::channel(Wish::Unknown);
        let reverting = keep::maintain(client, wanted, self.leadership.clone(), stop.clone());
        tokio::pin!(judging, reverting);
        tokio::select! {
            () = self.wish(&validating, &mutating) => {}
            () = &mut judging => {}
            () = &mut reverting => {}
        }
        stop.cancel();
    }

    async fn wish(
        &self,
        validating: &watch::Sender<Wish<ValidatingWebhookConfiguration>>,
        mutating: &watch::Sender<Wish<MutatingWebhookConfiguration>>,
    ) {
        let changes = self.releases.changes();
        let mut authority = self.certificates.ca_bundle();
        let (mut open, mut leading) = (self.open.clone(), self.leadership.watch());
        let mut policies = self.in_force.changes();
        loop {
            let resources: BTreeSet<Resource> =
                self.releases.index().read().resources().into_iter().map(Resource::from).collect();
            let bundle = authority.borrow_and_update().clone();
            let surface = Surface {
                endpoint: &self.registration.endpoint,
                ca_bundle: bundle.as_deref().map(str::as_bytes),
                own_namespace: self.own_namespace.as_deref(),
                record_driver: self.record_driver,
                select_all: self.registration.select_all,
                reverts: self.book.policies().reverts(),
            };
            let armed = *open.borrow_and_update() == Some(false);
            if armed && *leading.borrow_and_update() {
                send(validating, Wish::Present(configuration(&resources, &surface)));
                send(mutating, reverting(&resources, &surface).map_or(Wish::Absent, Wish::Present));
            } else {
                send(validating, Wish::Unknown);
                send(mutating, Wish::Unknown);
            }
            tokio::select! {
                _ = changes.next() => {}
                Ok(()) = policies.changed() => {}
                changed = open.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                changed = leading.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                changed = authority.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }
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
