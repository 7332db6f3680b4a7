//! The ledger rows of the program itself: its start and end, emergencies, and changes of records, exceptions, policies
//! and autoscalers. Each event is stored once, even if several replicas see it or a replica restarts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Services;
use super::settings::Settings;
use kubemoor_cluster::client::access;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_cluster::mirror::autoscalers::Scaling;
use kubemoor_cluster::mirror::policies::{ActivePolicies, NamespacePolicyChange, PolicyChange, PolicyFate};
use kubemoor_cluster::mirror::policy_files::{FileChange, PolicyDirectory};
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId, build};
use kubemoor_guard::LiveCluster;
use kubemoor_guard::admin::ReadinessCondition;
use kubemoor_guard::webhook::autoscaling::{ScalingChange, declaring_release, scaling_row};
use kubemoor_guard::webhook::registration::emergency::{EmergencyChange, MARKER};
use kubemoor_helm::release::Release;
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::{Act, ExceptionEvent, LedgerRow, ReviewedEdit};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message::{Notification, NotificationSubject};
use kubemoor_policy::allowance::Allowance;
use kubemoor_runtime::config::CallerProof;
use kubemoor_runtime::metrics::EmergencyMetrics;
use kubemoor_runtime::tls::CertificateSource;
use kubemoor_verdict::exceptions::may_scale;

/// Records the start of a guard with its settings and policy files, but no token, password or path of a secret file.
/// A guard that is killed leaves no row about its end.
pub(super) fn record_start(ledger: &LedgerHandle, settings: &Settings, folder: Option<&PolicyDirectory>) {
    let mut told = enforced(settings);
    let files = folder.map(PolicyDirectory::digests).unwrap_or_default();
    let files: Vec<_> = files.iter().map(|(file, digest)| format!("{file} ({digest})")).collect();
    told.extend((!files.is_empty()).then(|| format!("policy files {}", files.join(", "))));
    record(ledger, Act::Start, told.join("; "));
}

/// The settings that decide what is enforced. Those of unbounded length come last.
fn enforced(settings: &Settings) -> Vec<String> {
    let Settings { edits, drift, operation_timeout, ledger, ledger_age, ledger_rows, .. } = settings;
    let mut told = vec![
        format!("version {}", build::VERSION),
        format!("edits {edits:?}"),
        format!("drift {drift:?}"),
        format!("operation timeout {} s", operation_timeout.as_secs()),
        format!("ledger {ledger}, {} h, {ledger_rows} rows", ledger_age.as_secs() / 3600),
        format!("certificate {}", certificate(&settings.certificate())),
        format!("callers {}", proof(settings)),
        format!("notifiers {}", if settings.notifiers.is_some() { "yes" } else { "no" }),
    ];
    match &settings.store {
        Some(path) => told.push(format!("releases of the directory {}", path.display())),
        None => told.extend(of_cluster(settings)),
    }
    told.extend(settings.policies.as_ref().map(|path| format!("policies {}", path.display())));
    let labels = settings.cluster_labels();
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    told.extend((!labels.is_empty()).then(|| format!("cluster labels {}", labels.join(", "))));
    told
}

/// Records an action of the guard itself.
pub(super) fn record(ledger: &LedgerHandle, act: Act, detail: String) {
    let name = hostname::get().unwrap_or_default().to_string_lossy().into_owned();
    let guard = ObjectId::cluster_scoped("", "Guard", &name);
    let row = LedgerRow::act(Timestamp::now(), ReviewedEdit::watched(guard, None), None, act);
    ledger.record(LedgerRow { detail, ..row });
}

fn of_cluster(settings: &Settings) -> Vec<String> {
    let mut told = vec![format!("record driver {:?}", settings.record_driver()).to_lowercase()];
    told.extend(settings.read_only.then(|| "read-only".to_owned()));
    told.extend(settings.service.as_ref().map(|it| format!("service {}/{}", it.namespace, it.name)));
    let registered = match (settings.register, settings.select_all) {
        (false, _) => "webhooks registered by others",
        (true, true) => "registers webhooks for all objects",
        (true, false) => "registers webhooks for objects with Helm's label",
    };
    told.push(registered.to_owned());
    told.push(match settings.namespace.as_slice() {
        [] => "all namespaces".to_owned(),
        names => format!("namespaces {}", names.join(", ")),
    });
    told
}

fn certificate(source: &CertificateSource) -> &'static str {
    match source {
        CertificateSource::SelfMade { .. } => "made in a directory",
        CertificateSource::Shared { .. } => "shared by a Secret",
        CertificateSource::Files { .. } => "from files",
    }
}

fn proof(settings: &Settings) -> &'static str {
    match (settings.caller_proof(), &settings.client_ca) {
        (CallerProof::Certificate, _) => "by certificate",
        (CallerProof::File(_), None) => "by a token from a file",
        (CallerProof::File(_), Some(_)) => "by a token from a file and a certificate",
        (CallerProof::Kept { .. }, None) => "by a token of the guard",
        (CallerProof::Kept { .. }, Some(_)) => "by a token of the guard and a certificate",
    }
}

/// The pauses in seconds between attempts to read the cluster's uid: the guard may start a moment before its rights are
/// granted.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// Sends the cluster's name to the ledger's writer: its uid, or its URL if the uid cannot be read for a minute. Rows
/// wait meanwhile. Returns at `stop`, because a part that ends earlier ends the process.
pub(super) async fn send_cluster_name(
    naming: oneshot::Sender<String>,
    connection: ClusterConnection,
    mut uid: Option<String>,
    stop: CancellationToken,
) {
    let name = async move {
        for pause in PAUSES {
            if uid.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(pause)).await;
            uid = access::cluster_uid(&connection.client).await.unwrap_or_default();
        }
        // The writer no longer receives while it shuts down.
        let _ = naming.send(uid.unwrap_or(connection.url));
    };
    stop.run_until_cancelled(name).await;
    stop.cancelled().await;
}

pub(super) fn record_emergencies(
    ledger: LedgerHandle,
    notifiers: Notifiers,
) -> impl Fn(EmergencyChange) + Send {
    move |turn| {
        notifiers.send(&[], emergency_message(&turn));
        ledger.record(emergency_row(turn));
    }
}

/// Disables enforcement while an emergency is open. The condition is met once that is known.
pub(super) fn apply_emergency(
    in_force: Arc<ActivePolicies>,
    condition: ReadinessCondition,
    metrics: EmergencyMetrics,
) -> impl FnMut(&Option<bool>) + Send {
    let mut was_open = false;
    move |open| {
        let Some(is_open) = *open else { return };
        if is_open != was_open {
            in_force.set_enforcement_disabled(is_open);
            metrics.set_enforcement_disabled(is_open);
            was_open = is_open;
            if is_open {
                tracing::warn!("the emergency is open: no change is checked and nothing is repaired");
                return condition.noted(
                    "open: no change is checked and nothing is repaired until `kubemoor emergency close`",
                );
            }
            tracing::info!("the emergency is over: changes are checked and drift is repaired again");
        }
        if !is_open {
            condition.met();
        }
    }
}

fn emergency_message(turn: &EmergencyChange) -> Notification {
    let subject = if turn.enforcement_disabled {
        NotificationSubject::EnforcementDisabled
    } else {
        NotificationSubject::EnforcementEnabled
    };
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Notification {
        by: said(&turn.by),
        detail: said(&turn.reason),
        ..Notification::new(subject, Timestamp::now())
    }
}

/// The ledger's row, which is stored once even if several guards see the change.
fn emergency_row(turn: EmergencyChange) -> LedgerRow {
    let act = if turn.enforcement_disabled { Act::Open } else { Act::Close };
    let edit = ReviewedEdit {
        object: ObjectId::cluster_scoped(
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            MARKER,
        ),
        operation: None,
        actor: Actor { user: turn.by, ..Actor::default() },
        uid: String::new(),
    };
    let same = Some(format!("{} {act:?}", turn.emergency)).filter(|_| !turn.emergency.is_empty());
    LedgerRow { same, detail: turn.reason, ..LedgerRow::act(Timestamp::now(), edit, None, act) }
}

/// Records changes of release records, exceptions and autoscalers in the ledger.
#[derive(Clone)]
pub(super) struct History {
    pub(super) cluster: Arc<LiveCluster>,
    pub(super) services: Services,
}

impl History {
    pub(super) async fn keep_transitions(self) {
        let releases = &self.cluster.releases;
        let changes = releases.changes();
        let mut told: HashMap<ReleaseId, Arc<Release>> = HashMap::new();
        loop {
            let id = self.services.stop.run_until_cancelled(changes.next()).await;
            let Some(id) = id else { return };
            let release = releases.index().read().release(&id).cloned();
            let row = match (release, told.remove(&id)) {
                (Some(now), before) => {
                    let row = (!before.is_some_and(|before| is_same_state(&before, &now)))
                        .then(|| LedgerRow::transition(Timestamp::now(), &now, false));
                    told.insert(id, now);
                    row
                }
                (None, Some(before)) => Some(LedgerRow::transition(Timestamp::now(), &before, true)),
                (None, None) => None,
            };
            if let Some(row) = row {
                self.services.ledger.record(row);
            }
        }
    }
}

/// Whether both versions have the same state. Helm may write a record without changing its content.
fn is_same_state(before: &Release, now: &Release) -> bool {
    let said = |release: &Release| {
        let head = &release.latest;
        (head.revision, head.status, head.uid.clone(), release.invalid.clone())
    };
    said(before) == said(now)
}

/// How long before an exception ends a notification announces it; at most a quarter of the exception's duration.
const ENDING: SignedDuration = SignedDuration::from_hours(1);

/// Older exceptions are not announced: this process found them when it started.
const MAX_ANNOUNCED_AGE: SignedDuration = SignedDuration::from_mins(10);

/// The longest sleep before the clock is read again, because the clock may be changed.
const LOOK: Duration = Duration::from_secs(60);

/// The ends that still have to be announced, by the version of the allowance.
type PendingEnds = BTreeMap<(String, i64), (Timestamp, Notification)>;

impl History {
    pub(super) async fn keep_exceptions(self) {
        let changes = self.cluster.allowances.changes();
        let mut told: HashMap<ObjectId, Vec<Arc<Allowance>>> = HashMap::new();
        let mut ending = PendingEnds::new();
        loop {
            let next = ending.values().map(|(at, _)| *at).min();
            let object = tokio::select! {
                () = self.services.stop.cancelled() => return,
                object = changes.next() => object,
                () = until(next) => {
                    let now = Timestamp::now();
                    for (_, (_, message)) in ending.extract_if(.., |_, (at, _)| *at <= now) {
                        self.send(Notification { at: now, ..message });
                    }
                    continue;
                }
            };
            let open = self.cluster.allowances.named(&object);
            let before = told.remove(&object).unwrap_or_default();
            for allowance in before.iter().filter(|it| !open.iter().any(|other| it.version == other.version))
            {
                ending.remove(&allowance.version);
                self.record_exception(&object, allowance, ExceptionEvent::Closed);
            }
            for allowance in open.iter().filter(|it| !before.iter().any(|other| it.version == other.version))
            {
                let opened = self.record_exception(&object, allowance, ExceptionEvent::Opened);
                let Some(opened) = opened else { continue };
                let at = announced_at(&opened, allowance.until);
                if at > Timestamp::now() {
                    let message = Notification { subject: NotificationSubject::ExceptionEnding, ..opened };
                    ending.insert(allowance.version.clone(), (at, message));
                }
            }
            if !open.is_empty() {
                told.insert(object, open);
            }
        }
    }

    /// Records and announces that an exception opened or closed. Returns the notification, or `None` if the allowance
    /// does not apply to this object.
    fn record_exception(
        &self,
        object: &ObjectId,
        allowance: &Allowance,
        permitted: ExceptionEvent,
    ) -> Option<Notification> {
        let release = release_concerned(&self.cluster.releases, object, allowance);
        // An allowance of a namespaced or a cluster-scoped object is reported once: for the one that a release
        // declares.
        let is_of_release =
            |other: &ObjectId| release_concerned(&self.cluster.releases, other, allowance).is_some();
        let is_other = object.namespace != allowance.object.namespace;
        if release.is_none() && (is_other || allowance.objects().iter().any(is_of_release)) {
            return None;
        }
        let now = Timestamp::now();
        let message = exception_message(now, release.clone(), object, allowance, permitted);
        if now.duration_since(message.at) <= MAX_ANNOUNCED_AGE {
            self.send(message.clone());
        }
        self.services.ledger.record(LedgerRow::allowance(now, release, object, allowance, permitted));
        Some(message)
    }

    fn send(&self, message: Notification) {
        let policy =
            message.release.as_ref().map(|release| self.services.in_force.resolver().policy(release));
        let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
        self.services.notifiers.send(names, message);
    }
}

fn announced_at(opened: &Notification, until: Timestamp) -> Timestamp {
    let lead = (until.duration_since(opened.since) / 4).clamp(SignedDuration::ZERO, ENDING);
    until.checked_sub(lead).unwrap_or(until)
}

/// Sleeps until `at`, but at most for [`LOOK`]; forever without `at`.
async fn until(at: Option<Timestamp>) {
    let Some(at) = at else { return std::future::pending().await };
    let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(left.min(LOOK)).await;
}

fn exception_message(
    now: Timestamp,
    release: Option<(ReleaseId, u64)>,
    object: &ObjectId,
    allowance: &Allowance,
    permitted: ExceptionEvent,
) -> Notification {
    let Allowance { until, reason, by, version: (uid, generation), created, .. } = allowance;
    let since = created.filter(|_| *generation <= 1).unwrap_or(now);
    let (subject, at) = match permitted {
        ExceptionEvent::Opened => (NotificationSubject::ExceptionOpened, since),
        ExceptionEvent::Closed => (NotificationSubject::ExceptionClosed, now),
    };
    let (release, revision) = release.unzip();
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Notification {
        since,
        release,
        revision,
        object: Some(object.clone()),
        namespace: object.namespace.as_deref().map(str::to_owned),
        by: said(&by.user),
        detail: said(reason),
        until: Some(*until),
        key: uid.clone(),
        ..Notification::new(subject, at)
    }
}

fn release_concerned(
    releases: &Releases,
    object: &ObjectId,
    allowance: &Allowance,
) -> Option<(ReleaseId, u64)> {
    let index = releases.index().read();
    let claims = index.claims(object);
    let release = claims.iter().find(|release| allowance.is_for(object, &release.id))?;
    Some((release.id.clone(), release.state.revision))
}

pub(super) fn record_policy_files(ledger: LedgerHandle) -> impl Fn(FileChange) + Send + Sync {
    move |FileChange { policy, file, fate, same }| {
        let (act, edit) = policy_edit(&policy, fate);
        let row = LedgerRow::act(Timestamp::now(), edit, None, act);
        ledger.record(LedgerRow { same: Some(same), detail: format!("in the policy file {file}"), ..row });
    }
}

/// Records each change of a policy once, even if several guards see it. A watch event does not name the user, only the
/// field manager.
pub(super) fn record_policy_changes(ledger: LedgerHandle) -> impl Fn(PolicyChange) + Send + Sync {
    move |PolicyChange { name, uid, generation, fate, manager, time }| {
        let (act, edit) = policy_edit(&name, fate);
        let same = Some(format!("{uid} {generation} {act:?}"));
        let detail = if manager.is_empty() { String::new() } else { format!("by field manager {manager}") };
        ledger.record(LedgerRow {
            same,
            detail,
            ..LedgerRow::act(time.unwrap_or_else(Timestamp::now), edit, None, act)
        });
    }
}

/// Records that new labels of a namespace change which policies apply to it.
pub(super) fn record_relabelling(ledger: LedgerHandle) -> impl Fn(NamespacePolicyChange) + Send + Sync {
    move |NamespacePolicyChange { namespace, uid, resource_version, before, after }| {
        let named = |names: &[String]| match names {
            [] => "no policy".to_owned(),
            names => names.join(", "),
        };
        let detail =
            format!("policies that can match a release there: {} → {}", named(&before), named(&after));
        let same = Some(format!("{uid} {resource_version} labels"));
        let object = ObjectId::namespaced("", "Namespace", &namespace, &namespace);
        let edit = ReviewedEdit::watched(object, Some(Operation::Update));
        ledger.record(LedgerRow {
            same,
            detail,
            ..LedgerRow::act(Timestamp::now(), edit, None, Act::LabelNamespace)
        });
    }
}

fn policy_edit(name: &str, fate: PolicyFate) -> (Act, ReviewedEdit) {
    let (act, operation) = match fate {
        PolicyFate::Created => (Act::CreatePolicy, Operation::Create),
        PolicyFate::Changed => (Act::ChangePolicy, Operation::Update),
        PolicyFate::Deleted => (Act::DeletePolicy, Operation::Delete),
    };
    (act, ReviewedEdit::watched(ObjectId::cluster_scoped(GROUP, "DriftPolicy", name), Some(operation)))
}

/// How long the webhook may take to write its row to the ledger.
const WEBHOOK_ROW_DELAY: Duration = Duration::from_secs(2);

/// The autoscalers of each declared workload that were recorded last.
#[derive(Default)]
struct RecordedScalings(HashMap<ObjectId, Vec<Scaling>>);

impl History {
    pub(super) async fn keep_scalings(self) {
        let (workloads, releases) = (self.cluster.autoscalers.changes(), self.cluster.releases.changes());
        let mut told = RecordedScalings::default();
        // The ledger keeps the first of equal rows. These wait, because the webhook's row names the user.
        let mut waiting: VecDeque<(Instant, LedgerRow)> = VecDeque::new();
        loop {
            let due = waiting.front().map_or_else(Instant::now, |(due, _)| *due);
            let changed = tokio::select! {
                () = self.services.stop.cancelled() => break,
                () = sleep_until(due), if !waiting.is_empty() => {
                    waiting.pop_front().into_iter().for_each(|(_, row)| self.services.ledger.record(row));
                    continue;
                }
                workload = workloads.next() => vec![workload],
                release = releases.next() => self.scaled_by(&release, &told),
            };
            let due = Instant::now() + WEBHOOK_ROW_DELAY;
            for workload in &changed {
                waiting.extend(self.scaling_rows(workload, &mut told).into_iter().map(|row| (due, row)));
            }
        }
        waiting.into_iter().for_each(|(_, row)| self.services.ledger.record(row));
    }

    fn scaled_by(&self, release: &ReleaseId, told: &RecordedScalings) -> Vec<ObjectId> {
        let index = self.cluster.releases.index().read();
        let declares = |workload: &ObjectId| {
            index.release(release).is_some_and(|release| release.declared(workload).is_some())
        };
        let mut scaled = self.cluster.autoscalers.workloads();
        scaled.retain(|workload| told.0.contains_key(workload) || declares(workload));
        scaled
    }

    fn scaling_rows(&self, workload: &ObjectId, told: &mut RecordedScalings) -> Vec<LedgerRow> {
        let index = self.cluster.releases.index().read();
        let Some((release, declared, replicas)) = declaring_release(&index, workload) else {
            // Undeclared workloads are not enforced. The rows of the release show when that began.
            told.0.remove(workload);
            return Vec::new();
        };
        let policy = self.services.in_force.resolver().policy(&release.id);
        // A release may declare its autoscaler only after the autoscaler exists.
        let mut counting = self.cluster.autoscalers.scalings(workload, &index);
        counting.retain(|it| may_scale(&policy, declared, &it.declared_by, it.range));
        let of = Some((release.id.clone(), release.state.revision));
        let changes = told.diff_and_replace(workload, counting);
        let row =
            |change| scaling_row(ReviewedEdit::watched(workload.clone(), None), of.clone(), replicas, change);
        changes.into_iter().map(row).collect()
    }
}

impl RecordedScalings {
    fn diff_and_replace(&mut self, workload: &ObjectId, now: Vec<Scaling>) -> Vec<ScalingChange> {
        let before = match now.is_empty() {
            true => self.0.remove(workload),
            false => self.0.insert(workload.clone(), now.clone()),
        };
        let before = before.unwrap_or_default();
        let find = |all: &[Scaling], uid: &str| all.iter().find(|it| it.uid == uid).cloned();
        let gone = before.iter().filter(|it| find(&now, &it.uid).is_none());
        let gone = gone.map(|it| (Act::StopAutoscaling, it.clone(), None));
        let there = now.iter().filter_map(|it| match find(&before, &it.uid) {
            None => Some((Act::StartAutoscaling, it.clone(), None)),
            Some(old) if old.range != it.range => Some((Act::ChangeAutoscaling, it.clone(), Some(old.range))),
            Some(_) => None,
        });
        gone.chain(there).collect()
    }
}

#[cfg(test)]
mod tests;
