use std::time::Duration;

use super::*;
use kubemoor_declare::model::{ObjectId, ReleaseId};

const WITHIN: Duration = Duration::from_secs(1);

fn refused(code: u16) -> CallError {
    CallError::Refused {
        code,
        reason: String::new(),
        message: String::new(),
        causes: Vec::new(),
        retry_after: None,
        names_absent: false,
    }
}

fn unreachable() -> CallError {
    CallError::Unreachable { reason: "refused".to_owned() }
}

fn release() -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: "web".into() }
}

fn object() -> ObjectId {
    ObjectId { group: "".into(), kind: "Secret".into(), namespace: None, name: "web".into() }
}

fn check(error: Unreached, is_outage: bool) {
    assert_eq!(error.is_outage(), is_outage, "{error:?}");
    assert_eq!(error.unless_answered().is_err(), is_outage);
}

/// Whether a call that ends like this was answered.
fn calls() -> Vec<(CallError, bool)> {
    vec![
        (unreachable(), true),
        (CallError::Late { within: WITHIN }, true),
        (refused(500), true),
        (refused(502), true),
        (refused(503), true),
        (refused(504), true),
        (refused(429), true),
        (refused(400), false),
        (refused(401), false),
        (refused(403), false),
        (refused(404), false),
        (refused(409), false),
        (refused(410), false),
        (refused(422), false),
        (CallError::Unserved, false),
        (CallError::TooLarge { cap: 1 }, false),
        (CallError::Unreadable { line: 1, column: 1 }, false),
        (CallError::Unformed { reason: "x".to_owned() }, false),
    ]
}

#[test]
fn only_an_unresponsive_api_server_counts_as_an_outage() {
    for (error, is_outage) in calls() {
        check(Unreached::Own(Box::new(error.clone())), is_outage);
        check(Unreached::Ask(Box::new(error.clone())), is_outage);
        let look = CallError::Records { release: release(), source: Box::new(error) };
        check(Unreached::Look(Box::new(look)), is_outage);
    }
}

#[test]
fn slow_or_changing_record_reads_are_not_an_outage() {
    let late = Box::new(CallError::Late { within: WITHIN });
    for (error, is_outage) in [
        (CallError::Records { release: release(), source: late }, true),
        (CallError::Slow { what: "too large".to_owned(), within: WITHIN }, false),
        (CallError::Moving { release: release() }, false),
    ] {
        check(Unreached::Look(Box::new(error)), is_outage);
    }
}

#[test]
fn a_dry_run_that_fails_is_no_outage() {
    let arbitrate = |error| Unreached::Arbitrate(Box::new(error));
    for (error, is_outage) in [
        (refused(404), false),
        (refused(409), false),
        (refused(403), false),
        (refused(422), false),
        (CallError::NotLeading, false),
        (refused(400), false),
        // What a live object makes of server-side apply comes as this.
        (refused(500), false),
        (refused(503), true),
        (refused(429), true),
        (unreachable(), true),
        (CallError::Late { within: WITHIN }, true),
        (CallError::Unserved, false),
    ] {
        let source = Box::new(error);
        check(arbitrate(CallError::DryRun { object: object(), source }), is_outage);
    }
    for (error, is_outage) in calls() {
        let what = "revision 1 of release web could not be read".to_owned();
        check(arbitrate(CallError::During { what, source: Box::new(error) }), is_outage);
    }
    for error in [
        CallError::Slow { what: "no dry run ended".to_owned(), within: WITHIN },
        CallError::NotDeclared { object: object(), release: release(), revision: 1 },
        CallError::NoRecord { release: release(), revision: 1 },
    ] {
        check(arbitrate(error), false);
    }
}
