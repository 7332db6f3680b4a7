//! Which failures are logged, and how lines are written.

use super::*;

#[test]
fn first_failure_of_each_run_is_logged() {
    let mut failures = FailureLog::default();
    failures.note_success();
    assert_eq!([failures.note_failure(), failures.note_failure()], [true, false]);
    failures.note_success();
    assert_eq!([failures.note_failure(), failures.note_failure()], [true, false]);
}

#[test]
fn line_of_the_log_escapes_bidirectional_controls() {
    let mut written = Vec::new();
    let mut writer = EscapingWriter(&mut written);
    writer.write_all("{\"user\":\"a\u{202e}b\"}\n".as_bytes()).unwrap();
    writer.write_all(b"\xff\n").unwrap();
    assert_eq!(written, [&b"{\"user\":\"a\\u202eb\"}\n"[..], b"\xff\n"].concat());
}
