use super::*;
use kubemoor_declare::model::DriftMode;
use kubemoor_verdict::health::{Control, RecordFacts, RecordState};

fn report(braked: bool) -> ReleaseReport {
    ReleaseReport {
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
        records: RecordFacts { revision: 1, deployed: None, state: RecordState::Deployed },
        control: Control { braked, ..Control::of(DriftMode::Repair) },
        leads: true,
        answer: None,
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_is_told() {
    let state = State::default();
    let changes = state.changes();
    let told = async |changes: &Changes<ReleaseId>| {
        tokio::time::timeout(std::time::Duration::from_secs(1), changes.next()).await.ok()
    };
    let id = report(false).release;
    state.publish(report(false));
    assert_eq!(told(&changes).await, Some(id.clone()));
    state.publish(report(false));
    assert_eq!(told(&changes).await, None);
    state.publish(report(true));
    assert_eq!(told(&changes).await, Some(id.clone()));
    assert_eq!(state.of(&id).map(|report| report.control.braked), Some(true));
    state.withdraw(&id);
    state.withdraw(&id);
    assert_eq!((told(&changes).await, told(&changes).await), (Some(id.clone()), None));
    assert_eq!(state.of(&id), None);
}

#[tokio::test]
async fn late_subscriber_receives_all_existing_reports() {
    let state = State::default();
    state.publish(report(false));
    assert_eq!(state.changes().next().await.name, "web");
}
