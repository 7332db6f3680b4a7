use super::*;

#[test]
fn failure_is_logged_again_once_the_switch_was_read() {
    let read = |event| {
        let mut failures = FailureLog::default();
        assert!(failures.note_failure());
        is_open_by(event, &mut false, &mut failures);
        failures.note_failure()
    };
    let marker = || Typed(ValidatingWebhookConfiguration::default());
    assert!(!read(ObjectEvent::Relisting), "a listing that begins may fail");
    for event in [
        ObjectEvent::Listed(marker()),
        ObjectEvent::Synced,
        ObjectEvent::Watching,
        ObjectEvent::Applied(marker()),
        ObjectEvent::Deleted(marker()),
    ] {
        assert!(read(event));
    }
}
