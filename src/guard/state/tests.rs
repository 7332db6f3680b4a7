use super::*;

fn report(reason: Reason) -> ReleaseReport {
    ReleaseReport {
        release: ReleaseId { namespace: "shop".to_owned(), name: "web".to_owned() },
        revision: 1,
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
        reason,
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_is_told() {
    let state = State::default();
    let changes = state.changes();
    let told = async |changes: &Changes<ReleaseId>| {
        tokio::time::timeout(std::time::Duration::from_secs(1), changes.next()).await.ok()
    };
    let id = report(Reason::InSync).release;
    state.publish(report(Reason::InSync));
    assert_eq!(told(&changes).await, Some(id.clone()));
    state.publish(report(Reason::InSync));
    assert_eq!(told(&changes).await, None);
    state.publish(report(Reason::Drifted));
    assert_eq!(told(&changes).await, Some(id.clone()));
    assert_eq!(state.of(&id).map(|report| report.reason), Some(Reason::Drifted));
    state.withdraw(&id);
    state.withdraw(&id);
    assert_eq!((told(&changes).await, told(&changes).await), (Some(id.clone()), None));
    assert_eq!(state.of(&id), None);
}

#[tokio::test]
async fn whoever_listens_late_begins_with_all_there_is() {
    let state = State::default();
    state.publish(report(Reason::InSync));
    assert_eq!(state.changes().next().await.name, "web");
}
