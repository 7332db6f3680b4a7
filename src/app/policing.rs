//! What may change in a cluster: policies, allowances,
//! labels of namespaces and autoscalers, each followed by a task of its own.
//!
//! Entry points: [`PolicySources::follow`], then [`Policing::known`]. Invariant: no
//! edit is judged before all of them were listed once, since each can turn a
//! refusal into an allow.

mod witnessed;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) use self::witnessed::{Subject, Witnessed};
use super::parts::Parts;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::autoscalers::Autoscalers;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_cluster::mirror::namespaces::{Namespaces, Relabelling};
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::policies::change::{FileChange, PolicyChange, PolicyFate};
use kubemoor_cluster::mirror::policies::watch::PolicyWatch;
use kubemoor_cluster::mirror::progress::Progress;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ObjectId, Operation};
use kubemoor_guard::admin::Condition;
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{Act, ReviewedEdit, Row};

/// How the detail of a row about a policy in a file begins.
pub(super) const IN_FILE: &str = "in the policy file ";

/// The sources of a cluster's policies, and the rights to act on them.
pub(super) struct PolicySources<'a> {
    pub(super) client: &'a kube::Client,
    pub(super) kinds: &'a Arc<Kinds>,
    pub(super) releases: &'a Arc<Releases>,
    pub(super) in_force: &'a Arc<InForce>,
    /// The namespaces whose allowances and autoscalers are followed; empty for all.
    pub(super) namespaces: &'a [String],
    /// While this replica leads, it writes policy statuses and deletes allowances that ended long ago;
    /// without a leadership nothing is written.
    pub(super) leadership: Option<&'a Leadership>,
    /// The ledger that records policy changes.
    pub(super) ledger: &'a Ledger,
}

/// The followed sources of a cluster's policies.
pub(super) struct Policing {
    pub(super) allowances: Arc<Allowances>,
    pub(super) autoscalers: Arc<Autoscalers>,
    /// The policies and autoscalers that rows in the ledger are about.
    pub(super) witnessed: Arc<Witnessed>,
    listings: Vec<watch::Receiver<Progress>>,
}

impl PolicySources<'_> {
    /// Starts to follow them, as tasks of `parts`.
    pub(super) fn follow(self, parts: &mut Parts, stop: &CancellationToken) -> Policing {
        let Self { client, kinds, releases, in_force, namespaces: watched, leadership, ledger } = self;
        let witnessed = Arc::new(Witnessed::default());
        let policies = PolicyWatch::new(
            client.clone(),
            Arc::clone(kinds),
            Arc::clone(releases),
            Arc::clone(in_force),
            leadership.cloned().unwrap_or_else(Leadership::never),
        )
        .keeping(keep(ledger.clone(), Arc::clone(&witnessed)));
        let namespaces =
            Namespaces::new(client.clone(), Arc::clone(in_force)).keeping(keep_relabelling(ledger.clone()));
        let allowances =
            Allowances::new(client.clone(), Arc::clone(kinds), watched.to_vec(), leadership.cloned());
        let autoscalers = Autoscalers::new(client.clone(), Arc::clone(kinds), watched.to_vec());
        let listings =
            vec![policies.progress(), namespaces.progress(), allowances.progress(), autoscalers.progress()];
        parts.spawn("following the policies", policies.run(stop.clone()));
        parts.spawn("following the namespaces", namespaces.run(stop.clone()));
        let (following, stopping) = (Arc::clone(&allowances), stop.clone());
        parts.spawn("following the allowances", async move { following.run(stopping).await });
        let (following, releases, stopping) = (Arc::clone(&autoscalers), Arc::clone(releases), stop.clone());
        parts.spawn(
            "following the autoscalers",
            async move { following.run(releases.index(), stopping).await },
        );
        Policing { allowances, autoscalers, witnessed, listings }
    }
}

impl Policing {
    /// Waits until all sources were listed. Meanwhile `condition` reports what is missing.
    pub(super) async fn known(&mut self, condition: &Condition) {
        for listing in &mut self.listings {
            loop {
                let reason = match &*listing.borrow_and_update() {
                    Progress::Listed => break,
                    Progress::Listing => {
                        "policies, allowances and autoscalers are not all listed yet".to_owned()
                    }
                    Progress::Failing(reason) => reason.clone(),
                };
                condition.unmet(reason);
                if listing.changed().await.is_err() {
                    return;
                }
            }
        }
        condition.met();
    }
}

/// Keeps each change of a policy in a file in the ledger, once for all replicas that read the same file.
pub(super) fn keep_files(ledger: Ledger) -> impl Fn(FileChange) + Send + Sync {
    move |FileChange { policy, file, fate, same }| {
        let (act, edit) = edit(policy, fate);
        let detail = format!("{IN_FILE}{file}");
        ledger.record(Row { same: Some(same), detail, ..Row::act(Timestamp::now(), edit, None, act) });
    }
}

/// Keeps each state of a policy in the ledger, once, whichever guard sees it first. Who made it no watch tells, but for the
/// name of the program.
fn keep(ledger: Ledger, witnessed: Arc<Witnessed>) -> impl Fn(PolicyChange) + Send + Sync {
    move |PolicyChange { name, uid, generation, fate, manager, time }| {
        let (act, edit) = edit(name, fate);
        witnessed.note(Subject { object: edit.object.clone(), autoscaler: String::new() });
        let same = Some(format!("{uid} {generation} {act:?}"));
        let detail = if manager.is_empty() { String::new() } else { format!("by field manager {manager}") };
        ledger.record(Row { same, detail, ..Row::act(time.unwrap_or_else(Timestamp::now), edit, None, act) });
    }
}

/// Keeps in the ledger that labels of a namespace change the policies that hold there.
fn keep_relabelling(ledger: Ledger) -> impl Fn(Relabelling) + Send + Sync {
    move |Relabelling { namespace, uid, resource_version, before, after }| {
        let named = |names: &[String]| match names {
            [] => "no policy".to_owned(),
            names => names.join(", "),
        };
        let detail =
            format!("policies that can match a release there: {} → {}", named(&before), named(&after));
        let same = Some(format!("{uid} {resource_version} labels"));
        let object = ObjectId {
            group: "".into(),
            kind: "Namespace".into(),
            namespace: Some(namespace.clone().into()),
            name: namespace.into(),
        };
        let edit = ReviewedEdit::watched(object, Some(Operation::Update));
        ledger.record(Row { same, detail, ..Row::act(Timestamp::now(), edit, None, Act::LabelNamespace) });
    }
}

/// What was done to a policy.
fn edit(name: String, fate: PolicyFate) -> (Act, ReviewedEdit) {
    let (act, operation) = match fate {
        PolicyFate::Created => (Act::CreatePolicy, Operation::Create),
        PolicyFate::Changed => (Act::ChangePolicy, Operation::Update),
        PolicyFate::Deleted => (Act::DeletePolicy, Operation::Delete),
    };
    let object =
        ObjectId { group: GROUP.into(), kind: "DriftPolicy".into(), namespace: None, name: name.into() };
    (act, ReviewedEdit::watched(object, Some(operation)))
}
