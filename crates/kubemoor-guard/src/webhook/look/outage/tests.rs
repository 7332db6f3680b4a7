use std::time::Duration;

use super::*;
use kubemoor_cluster::client::objects::WriteError;
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
        let look = LookError::Call { release: release(), reason: Box::new(error) };
        check(Unreached::Look(Box::new(look)), is_outage);
    }
}

#[test]
fn slow_or_changing_record_reads_are_not_an_outage() {
    for (error, is_outage) in [
        (LookError::Late { release: release(), within: WITHIN }, true),
        (LookError::Slow { release: release(), within: WITHIN }, false),
        (LookError::Moving { release: release() }, false),
    ] {
        check(Unreached::Look(Box::new(error)), is_outage);
    }
}

#[test]
fn a_dry_run_that_fails_is_no_outage() {
    let message = String::new;
    let arbitrate = |error| Unreached::Arbitrate(Box::new(error));
    for (reason, is_outage) in [
        (WriteError::NotFound { message: message() }, false),
        (WriteError::AlreadyExists { message: message() }, false),
        (WriteError::Conflict { message: message() }, false),
        (WriteError::Forbidden { message: message() }, false),
        (WriteError::Terminating { message: message() }, false),
        (WriteError::Invalid { message: message(), causes: Vec::new() }, false),
        (WriteError::NotLeading, false),
        (WriteError::Failed(refused(400)), false),
        // What a live object makes of server-side apply comes as this.
        (WriteError::Failed(refused(500)), false),
        (WriteError::Failed(refused(503)), true),
        (WriteError::Failed(refused(429)), true),
        (WriteError::Failed(unreachable()), true),
        (WriteError::Failed(CallError::Late { within: WITHIN }), true),
    ] {
        check(arbitrate(ArbiterError::Refused { object: object(), reason }), is_outage);
    }
    for (error, is_outage) in calls() {
        let reason = Box::new(error);
        let document = DocumentError::Call { release: release(), revision: 1, reason };
        check(arbitrate(ArbiterError::Document(document)), is_outage);
    }
    let slow = DocumentError::Slow { release: release(), revision: 1, within: WITHIN };
    for error in [
        ArbiterError::Late { object: object(), within: WITHIN },
        ArbiterError::NotServed { object: object() },
        ArbiterError::NotDeclared { object: object(), release: release(), revision: 1 },
        ArbiterError::Document(DocumentError::NoRecord { release: release(), revision: 1 }),
        ArbiterError::Document(slow),
    ] {
        check(arbitrate(error), false);
    }
}
