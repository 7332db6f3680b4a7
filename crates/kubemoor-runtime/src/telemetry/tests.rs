//! Filters as they are given on the command line, and which failures are logged.

use super::*;

#[test]
fn levels_and_targets_are_understood() {
    for filter in ["info", "info,kubemoor=debug", "kubemoor::webhook=trace,warn", "off"] {
        assert!(parse(filter).is_ok(), "{filter}");
    }
}

#[test]
fn a_filter_that_is_none_is_said_in_one_sentence() {
    for filter in ["info,=", "kubemoor=loud"] {
        let error = parse(filter).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the log filter {filter:?} is not understood")), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

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
