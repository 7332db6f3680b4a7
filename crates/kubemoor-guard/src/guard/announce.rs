//! Reports incidents of objects as Kubernetes events on the object and on its GuardedRelease. Only the leader writes events;
//! the loop never waits for them, and events beyond the capacity are counted as missed.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::LiveCluster;
use kubemoor_cluster::client::events::{Events, Notice, Regarding};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::objects::ObjectTarget;
use kubemoor_cluster::client::resource::ApiResource;
use kubemoor_declare::model::text::one_line;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_reconcile::report::{DriftKind, Incident, LoopAnnouncement};
use kubemoor_runtime::metrics::{EventFate, NoticeMetrics};
use kubemoor_runtime::telemetry::FailureLog;
use kubemoor_verdict::message::patch;

const PATCH: usize = 500;

pub struct EventPublisher {
    pub cluster: Arc<LiveCluster>,
    pub events: Events,
    pub leadership: Leadership,
    pub metrics: NoticeMetrics,
}

impl EventPublisher {
    pub async fn run(self, stop: CancellationToken) {
        let mut happenings = self.cluster.state.happenings();
        let mut failures = FailureLog::default();
        loop {
            let happening = tokio::select! {
                () = stop.cancelled() => return,
                happening = happenings.recv() => happening,
            };
            match happening {
                Ok(happening) => {
                    if let LoopAnnouncement::Object(incident) = &*happening
                        && self.leadership.is_leader()
                    {
                        self.publish(incident, &mut failures).await;
                    }
                }
                Err(RecvError::Lagged(missed)) => self.metrics.missed(missed),
                Err(RecvError::Closed) => return,
            }
        }
    }

    async fn publish(&self, incident: &Incident, failures: &mut FailureLog) {
        let object = self.object(&incident.release, &incident.drifted.object).await;
        let release = guarded(&incident.release);
        let uid = self.uid(&place(&incident.release)).await;
        let notice = notice(incident);
        let on_object = Notice {
            regarding: object.clone(),
            related: uid.is_some().then(|| release.clone()),
            ..notice.clone()
        };
        // Without the CustomResourceDefinition there is no GuardedRelease for the event.
        let on_release = uid.map(|uid| Notice {
            regarding: Regarding { uid: Some(uid), ..release },
            related: Some(object),
            ..notice
        });
        for notice in std::iter::once(on_object).chain(on_release) {
            let fate = match self.events.publish(&notice).await {
                Ok(fate) => fate,
                Err(error) => {
                    // A namespace that is being deleted takes no events.
                    if !error.is_not_found() && !error.is_terminating() && failures.note_failure() {
                        tracing::warn!("failed to write events: {error}");
                    }
                    EventFate::Failed
                }
            };
            if fate == EventFate::Written {
                failures.note_success();
            }
            self.metrics.event(fate);
        }
    }

    /// An event's reference to an object, with its current uid, by which `kubectl describe` finds the event.
    async fn object(&self, release: &ReleaseId, object: &ObjectId) -> Regarding {
        let version = {
            let index = self.cluster.releases.index().read();
            index.release(release).and_then(|release| Some(release.declared(object)?.version.to_string()))
        };
        let version = version.unwrap_or_else(|| "v1".to_owned());
        let target = self.cluster.kinds.target(object, &version);
        let uid = match &target {
            Some(target) => self.uid(target).await,
            None => None,
        };
        let group = &object.group;
        let api_version = match &target {
            Some(target) => target.resource.api_version(),
            None if group.is_empty() => version,
            None => format!("{group}/{version}"),
        };
        Regarding {
            api_version,
            kind: object.kind.to_string(),
            namespace: object.namespace.as_deref().map(str::to_owned),
            name: object.name.to_string(),
            uid,
        }
    }

    async fn uid(&self, target: &ObjectTarget) -> Option<String> {
        Some(self.cluster.objects.sight(target).await.ok()??.uid)
    }
}

fn place(release: &ReleaseId) -> ObjectTarget {
    ObjectTarget {
        resource: ApiResource::new("kubemoor.dev", "v1alpha1", "GuardedRelease", "guardedreleases"),
        namespace: Some(release.namespace.to_string()),
        name: release.name.to_string(),
    }
}

fn guarded(release: &ReleaseId) -> Regarding {
    Regarding {
        api_version: "kubemoor.dev/v1alpha1".to_owned(),
        kind: "GuardedRelease".to_owned(),
        namespace: Some(release.namespace.to_string()),
        name: release.name.to_string(),
        uid: None,
    }
}

/// The event for an incident; `regarding` is replaced later.
fn notice(incident: &Incident) -> Notice {
    let Incident { release, revision, drifted } = incident;
    let what = match drifted.kind {
        DriftKind::Missing => "is missing".to_owned(),
        DriftKind::Changed => format!("does not match its release: {}", patch(&drifted.findings, PATCH)),
        DriftKind::Ownership => {
            format!(
                "has fields that may make the next helm upgrade fail: {}",
                patch(&drifted.findings, PATCH)
            )
        }
        DriftKind::Terminating if !drifted.findings.is_empty() => {
            format!("is being deleted, and does not match its release: {}", patch(&drifted.findings, PATCH))
        }
        DriftKind::Terminating => "is being deleted, and a finalizer may be blocking the deletion".to_owned(),
        DriftKind::Unreadable => "is nested too deeply to be checked".to_owned(),
    };
    let by = drifted.by.as_deref().filter(|by| !by.is_empty()).map(|by| format!(", by {by}"));
    let outcome = match (&drifted.repaired, &drifted.unrepaired_reason) {
        (Some(Ok(())), _) => "; repaired".to_owned(),
        (Some(Err(error)), _) => format!("; not repaired: {error}"),
        (None, Some(kept)) => format!("; {kept}"),
        (None, None) => String::new(),
    };
    let (reason, action, warning) = match &drifted.repaired {
        Some(Ok(())) => ("Repaired", "Repair", false),
        Some(Err(_)) => ("NotRepaired", "Repair", true),
        None => ("Drifted", "Judge", true),
    };
    let note = format!(
        "{} of Helm release {release} (revision {revision}) {what}{}{outcome}",
        drifted.object,
        by.unwrap_or_default()
    );
    let note = one_line(&note).into_owned();
    Notice { regarding: guarded(release), related: None, warning, reason, action, note }
}

#[cfg(test)]
mod tests;
