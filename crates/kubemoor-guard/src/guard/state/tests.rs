use super::*;
use kubemoor_declare::model::{DriftMode, ObjectId};
use kubemoor_policy::agreement::ObservedObject;
use kubemoor_verdict::health::{RecordHealth, RecordState, RepairControl};

fn report(braked: bool) -> LoopReport {
    LoopReport {
        release: ReleaseId { namespace: "shop".into(), name: "web".into() },
        record: None,
        digest: [0; 32],
        declared: 1,
        seen_alive: Vec::new(),
        confirmed: 0,
        unconfirmed: Vec::new(),
        drifted: Vec::new(),
        flaws: Vec::new(),
        foreign: Vec::new(),
        unwatched: Vec::new(),
        excused: Vec::new(),
        records: RecordHealth { revision: 1, deployed: None, state: RecordState::Deployed },
        control: RepairControl { braked, ..RepairControl::by_mode(DriftMode::Repair) },
        manager: None,
        leads: true,
        answer: None,
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_is_told() {
    let state = LoopState::default();
    let changes = state.changes();
    let told = async |changes: &ChangeQueue<ReleaseId>| {
        tokio::time::timeout(std::time::Duration::from_secs(1), changes.next()).await.ok()
    };
    let id = report(false).release;
    state.publish(report(false));
    assert_eq!(told(&changes).await, Some(id.clone()));
    state.publish(report(false));
    assert_eq!(told(&changes).await, None);
    state.publish(report(true));
    assert_eq!(told(&changes).await, Some(id.clone()));
    assert_eq!(state.report(&id).map(|report| report.control.braked), Some(true));
    state.withdraw(&id);
    state.withdraw(&id);
    assert_eq!((told(&changes).await, told(&changes).await), (Some(id.clone()), None));
    assert_eq!(state.report(&id), None);
}

#[tokio::test]
async fn late_subscriber_receives_all_existing_reports() {
    let state = LoopState::default();
    state.publish(report(false));
    assert_eq!(state.changes().next().await.name, "web");
}

#[test]
fn reports_with_new_agreements_are_announced_on_their_own() {
    let state = LoopState::default();
    let agreements = state.agreements();
    let seen = |name: &str| {
        let object = ObjectId::namespaced("", "ConfigMap", "shop", name);
        ObservedObject { object: object.into(), agreement: None, settled: None }
    };
    let release = report(false).release;
    for (braked, names, expected) in [
        (false, vec![], None),
        (true, vec![], None),
        (true, vec!["a"], Some(release.clone())),
        (false, vec!["a"], None),
        (false, vec!["a", "b"], Some(release.clone())),
    ] {
        let seen_alive = names.iter().map(|name| seen(name)).collect();
        state.publish(LoopReport { seen_alive, ..report(braked) });
        assert_eq!(agreements.take(), expected, "{braked} {names:?}");
    }
}
