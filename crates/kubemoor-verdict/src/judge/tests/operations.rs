//! Writes of Helm's own operations that differ from the last document of an object.

use super::*;

/// Two documents of the object, with these replicas.
fn twice(first: u32, last: u32) -> String {
    let with = |replicas: u32| MANIFEST.replace("replicas: 2", &format!("replicas: {replicas}"));
    format!("{}---{}", with(first), with(last))
}

#[test]
fn each_document_of_an_object_may_be_written_while_an_operation_runs() {
    let case = |status, old: u32, new: u32| Case {
        claims: vec![second(status, &twice(3, 4), MANIFEST)],
        old: scaled(old),
        new: scaled(new),
        ..Case::default()
    };
    for status in [Status::PendingInstall, Status::PendingUpgrade, Status::PendingRollback] {
        check(case(status, 2, 3), "Allow as-declared");
        check(case(status, 3, 4), "Allow as-declared");
        check(case(status, 2, 5), "Deny drift? /spec/replicas");
        check(case(status, 4, 2), "Deny drift? /spec/replicas");
        let create = Case { operation: Operation::Create, old: None, ..case(status, 0, 3) };
        check(create, "Allow unchanged");
    }
    check(case(Status::Failed, 2, 3), "Allow as-declared");
    // Afterwards the last one counts.
    for status in [Status::Deployed, Status::Superseded] {
        check(case(status, 2, 4), "Allow as-declared");
        check(case(status, 4, 3), "Deny drift /spec/replicas");
    }
    let delete = |status| Case { operation: Operation::Delete, new: None, ..case(status, 3, 3) };
    check(delete(Status::PendingUpgrade), "Deny deletion");
    check(delete(Status::Uninstalling), "Allow in-band");
}

#[test]
fn a_doubt_about_an_earlier_document_never_stops_an_operation() {
    let tolerations = "/spec/template/spec/tolerations";
    let first = MANIFEST.replace("tolerations: []", "tolerations: [{key: gpu}]");
    let unheard = || json!([{"key": "gpu", "yetUnheardOf": 1}]);
    let case = |status, evidence| Case {
        claims: vec![second(status, &format!("{first}---{MANIFEST}"), MANIFEST)],
        old: Some(live(&[(tolerations, json!([{"key": "old"}]))])),
        new: Some(live(&[(tolerations, unheard())])),
        evidence,
        ..Case::default()
    };
    // The arbiter knows how the API server stores the last one.
    let canonical = live(&[]);
    let pending = Status::PendingUpgrade;
    check(case(pending, Evidence::None), &format!("Deny drift? {tolerations}"));
    check(case(pending, Evidence::Canonical(&canonical)), &format!("Record unsettled {tolerations}"));
    let deployed = case(Status::Deployed, Evidence::Canonical(&canonical));
    check(deployed, &format!("Deny drift {tolerations}"));
}
