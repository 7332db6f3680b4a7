//! Records in the ledger when autoscalers begin and cease to set the replicas of declared workloads.
//!
//! Entry point: [`ScalingHistory::run`]. Invariant: only the leader records; another replica keeps the newest rows until
//! it leads. The ledger stores each state of an autoscaler once, also after a restart. An autoscaler that is deleted
//! while no guard runs is in [`super::missed`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::app::policing::{Subject, Witnessed};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::mirror::autoscalers::{Autoscalers, Scaling};
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{Act, ReviewedEdit, Row};
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::circumstances::DeclaredObject;
use kubemoor_verdict::exceptions::may_scale;

/// How the details of all rows begin, before the autoscaler's name.
const KIND: &str = "HorizontalPodAutoscaler ";

/// The most rows that a replica keeps until it leads.
const HELD: usize = 1000;

/// Records the history of autoscalers.
#[derive(Clone)]
pub(super) struct ScalingHistory {
    pub(super) autoscalers: Arc<Autoscalers>,
    pub(super) releases: Arc<Releases>,
    pub(super) resolver: Arc<PolicyResolver>,
    pub(super) ledger: Ledger,
    pub(super) leadership: Leadership,
    pub(super) witnessed: Arc<Witnessed>,
}

/// Rows that wait until this replica leads.
#[derive(Default)]
struct Held(VecDeque<Row>);

/// The autoscalers of each declared workload, as far as they were told.
#[derive(Default)]
struct Told(HashMap<ObjectId, Vec<Scaling>>);

/// One change: what happened, the autoscaler now or last, and its range before.
type Change = (Act, Scaling, Option<(i32, i32)>);

impl ScalingHistory {
    /// Records until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let (workloads, releases) = (self.autoscalers.changes(), self.releases.changes());
        let mut leading = self.leadership.watch();
        let (mut told, mut held) = (Told::default(), Held::default());
        loop {
            let changed = tokio::select! {
                () = stop.cancelled() => return,
                workload = workloads.next() => vec![workload],
                release = releases.next() => self.scaled_by(&release, &told),
                gained = leading.changed() => match gained {
                    Ok(()) => Vec::new(),
                    Err(_) => return stop.cancelled().await,
                },
            };
            for workload in changed {
                held.0.extend(self.rows(&workload, &mut told));
            }
            held.take(self.leadership.holds()).for_each(|row| self.ledger.record(row));
        }
    }

    /// The workloads that a release declares and something scales, and those of which it was told so.
    fn scaled_by(&self, release: &ReleaseId, told: &Told) -> Vec<ObjectId> {
        let index = self.releases.index().read();
        let declares = |workload: &ObjectId| {
            index.release(release).is_some_and(|release| release.declared(workload).is_some())
        };
        let mut scaled = self.autoscalers.workloads();
        scaled.retain(|workload| told.0.contains_key(workload) || declares(workload));
        scaled
    }

    /// The rows about what has changed around a workload.
    fn rows(&self, workload: &ObjectId, told: &mut Told) -> Vec<Row> {
        let index = self.releases.index().read();
        let Some((release, replicas)) = declared(&index, workload) else {
            // What is not declared is not enforced, and the release's own rows tell when that began.
            told.0.remove(workload);
            return Vec::new();
        };
        let policy = self.resolver.of(&release.id);
        let Some(declared) = release.declared(workload) else { return Vec::new() };
        let declared = DeclaredObject { object: workload, release: &release.id, declared };
        // A release may come to declare its autoscaler after that appeared.
        let mut counting = self.autoscalers.scalings(workload, &index);
        counting.retain(|it| may_scale(&policy, declared, &it.declared_by, it.range));
        let of = Some((release.id.clone(), release.state.revision));
        let changes = told.note(workload, counting);
        for (_, scaling, _) in &changes {
            let (object, autoscaler) = (workload.clone(), scaling.name.clone());
            self.witnessed.note(Subject { object, autoscaler });
        }
        changes.into_iter().map(|change| row(workload, of.clone(), replicas, change)).collect()
    }
}

impl Held {
    /// All rows if this replica leads. Otherwise none, and of too many the oldest are forgotten.
    fn take(&mut self, leads: bool) -> impl Iterator<Item = Row> {
        let all = if leads { std::mem::take(&mut self.0) } else { VecDeque::new() };
        self.0.drain(..self.0.len().saturating_sub(HELD));
        all.into_iter()
    }
}

impl Told {
    /// Takes in the present autoscalers of a workload. Returns what has changed.
    fn note(&mut self, workload: &ObjectId, now: Vec<Scaling>) -> Vec<Change> {
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

/// The release that declares a workload with its replicas, and their place.
pub(super) fn declared<'i>(index: &'i Index, workload: &ObjectId) -> Option<(&'i Release, &'i Path)> {
    let claims = index.claims(workload);
    claims.into_iter().find_map(|release| Some((&**release, replicas(release, workload)?)))
}

/// The sentence about an autoscaler that sets replicas no more.
pub(super) fn ended(name: &str, replicas: &Path) -> String {
    format!("{KIND}{name:?} no longer sets {replicas}")
}

/// The autoscaler of which the detail of a row tells.
pub(super) fn named(detail: &str) -> Option<&str> {
    let (name, _) = detail.strip_prefix(KIND)?.strip_prefix('"')?.split_once('"')?;
    Some(name)
}

/// The place of the replicas of a workload, where the release declares them.
fn replicas<'r>(release: &'r Release, workload: &ObjectId) -> Option<&'r Path> {
    let declared = release.declared(workload)?;
    let path = declared.scale()?;
    declared.fields().leaves().iter().any(|(leaf, _)| leaf == path).then_some(path)
}

fn row(
    workload: &ObjectId,
    release: Option<(ReleaseId, u64)>,
    replicas: &Path,
    (act, scaling, before): Change,
) -> Row {
    let Scaling { name, uid, range, written: (manager, time), .. } = scaling;
    let (from, to) = range;
    let what = match (act, before) {
        (Act::StopAutoscaling, _) => ended(&name, replicas),
        (_, Some((least, most))) => {
            format!("{KIND}{name:?} sets {replicas} from {from} to {to} (before: from {least} to {most})")
        }
        _ => format!("{KIND}{name:?} sets {replicas} from {from} to {to}"),
    };
    let is_known = act != Act::StopAutoscaling && !manager.is_empty();
    let by = is_known.then(|| format!("by field manager {manager:?}"));
    let detail = [Some(what), by].into_iter().flatten().collect::<Vec<_>>().join("; ");
    // A guard that starts cannot tell a change from a start.
    let state = match act {
        // One that scales it again may cease again.
        Act::StopAutoscaling => format!("until {time}"),
        _ => format!("{from} {to} {time}"),
    };
    let same = Some(format!("{uid} scales {workload} {state}"));
    let edit = ReviewedEdit::watched(workload.clone(), None);
    Row { same, detail, ..Row::act(Timestamp::now(), edit, release, act) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> ObjectId {
        ObjectId::namespaced("apps", "Deployment", "shop", "web")
    }

    fn scaling(uid: &str, range: (i32, i32), time: &str) -> Scaling {
        let written = ("kubectl".to_owned(), time.to_owned());
        Scaling { name: "web".to_owned(), uid: uid.to_owned(), range, declared_by: Vec::new(), written }
    }

    #[test]
    fn only_coming_going_and_other_ranges_of_autoscalers_are_told() {
        let mut told = Told::default();
        let mut note = |now: &[Scaling]| -> Vec<String> {
            let changes = told.note(&web(), now.to_vec());
            changes.iter().map(|(act, it, _)| format!("{} {}", act.as_str(), it.uid)).collect()
        };
        let one = scaling("a", (2, 9), "1");
        assert_eq!(note(std::slice::from_ref(&one)), ["StartAutoscaling a"]);
        // A resync, and labels of the autoscaler.
        assert_eq!(note(std::slice::from_ref(&one)), Vec::<String>::new());
        assert_eq!(note(&[scaling("a", (2, 9), "2")]), Vec::<String>::new());
        assert_eq!(note(&[scaling("a", (3, 9), "3")]), ["ChangeAutoscaling a"]);
        let [changed, other] = [scaling("a", (3, 9), "3"), scaling("b", (1, 2), "4")];
        assert_eq!(note(&[changed, other.clone()]), ["StartAutoscaling b"]);
        assert_eq!(note(&[other]), ["StopAutoscaling a"]);
        assert_eq!(note(&[scaling("c", (1, 2), "5")]), ["StopAutoscaling b", "StartAutoscaling c"]);
        assert_eq!(note(&[]), ["StopAutoscaling c"]);
        assert!(told.0.is_empty());
    }

    #[test]
    fn replica_keeps_the_newest_rows_until_it_leads() {
        let path: Path = "/spec/replicas".parse().unwrap();
        let mut held = Held::default();
        for number in 0..HELD + 2 {
            let change = (Act::StartAutoscaling, scaling(&number.to_string(), (2, 9), "1"), None);
            held.0.push_back(row(&web(), None, &path, change));
            assert_eq!(held.take(false).count(), 0);
        }
        let rows: Vec<_> = held.take(true).collect();
        assert!(rows.len() == HELD && rows[0].same.as_ref().unwrap().starts_with("2 "), "{:?}", rows[0]);
        assert_eq!(held.take(true).count(), 0);
    }

    #[test]
    fn row_about_one_state_is_the_same_after_restart() {
        let path: Path = "/spec/replicas".parse().unwrap();
        let row = |act, it: &Scaling, before| row(&web(), None, &path, (act, it.clone(), before));
        let one = scaling("a", (2, 9), "1");
        let changed = row(Act::ChangeAutoscaling, &one, Some((1, 9)));
        let started = row(Act::StartAutoscaling, &one, None);
        assert_eq!(changed.same, started.same);
        assert_eq!(
            changed.detail,
            "HorizontalPodAutoscaler \"web\" sets /spec/replicas from 2 to 9 (before: from 1 to 9); by field manager \"kubectl\""
        );
        let again = row(Act::ChangeAutoscaling, &scaling("a", (2, 9), "2"), Some((3, 9)));
        assert_ne!(again.same, started.same);
        let stopped = row(Act::StopAutoscaling, &one, None);
        assert!(stopped.same != started.same && !stopped.detail.contains("kubectl"), "{stopped:?}");
        assert_eq!(
            [changed, started, again, stopped].each_ref().map(|it| named(&it.detail)),
            [Some("web"); 4]
        );
    }
}
