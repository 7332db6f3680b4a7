//! Writes of Helm's own operations that differ from the last document of an object.

use super::*;
use kubemoor_helm::record::ApplyMethod;

const CONTAINERS: &str = "/spec/template/spec/containers";

/// Two documents of the object, with these replicas.
fn twice(first: u32, last: u32) -> String {
    let with = |replicas: u32| MANIFEST.replace("replicas: 2", &format!("replicas: {replicas}"));
    format!("{}---{}", with(first), with(last))
}

#[test]
fn each_document_of_an_object_may_be_written_while_an_operation_runs() {
    let case = |status, old: u32, new: u32| JudgeCase {
        claims: vec![second(status, &twice(3, 4), MANIFEST)],
        old: scaled(old),
        new: scaled(new),
        ..JudgeCase::default()
    };
    for status in
        [ReleaseStatus::PendingInstall, ReleaseStatus::PendingUpgrade, ReleaseStatus::PendingRollback]
    {
        check(case(status, 2, 3), "Allow as-declared");
        check(case(status, 3, 4), "Allow as-declared");
        check(case(status, 2, 5), "Deny drift? /spec/replicas");
        check(case(status, 4, 2), "Deny drift? /spec/replicas");
        let create = JudgeCase { operation: Operation::Create, old: None, ..case(status, 0, 3) };
        check(create, "Allow unchanged");
    }
    check(case(ReleaseStatus::Failed, 2, 3), "Allow as-declared");
    // Afterwards the last one counts.
    for status in [ReleaseStatus::Deployed, ReleaseStatus::Superseded] {
        check(case(status, 2, 4), "Allow as-declared");
        check(case(status, 4, 3), "Deny drift /spec/replicas");
    }
    let delete = |status| JudgeCase { operation: Operation::Delete, new: None, ..case(status, 3, 3) };
    check(delete(ReleaseStatus::PendingUpgrade), "Deny deletion");
    check(delete(ReleaseStatus::Uninstalling), "Allow in-band");
}

#[test]
fn a_doubt_about_an_earlier_document_never_stops_an_operation() {
    let tolerations = "/spec/template/spec/tolerations";
    let first = MANIFEST.replace("tolerations: []", "tolerations: [{key: gpu}]");
    let unheard = || json!([{"key": "gpu", "yetUnheardOf": 1}]);
    let case = |status, evidence| JudgeCase {
        claims: vec![second(status, &format!("{first}---{MANIFEST}"), MANIFEST)],
        old: Some(live(&[(tolerations, json!([{"key": "old"}]))])),
        new: Some(live(&[(tolerations, unheard())])),
        evidence,
        ..JudgeCase::default()
    };
    // The arbiter knows how the API server stores the last one.
    let canonical = live(&[]);
    let pending = ReleaseStatus::PendingUpgrade;
    check(case(pending, DryRunEvidence::None), &format!("Deny drift? {tolerations}"));
    check(case(pending, DryRunEvidence::Canonical(&canonical)), &format!("Record unsettled {tolerations}"));
    let deployed = case(ReleaseStatus::Deployed, DryRunEvidence::Canonical(&canonical));
    check(deployed, &format!("Deny drift {tolerations}"));
}

/// The manifest with these variables, as names with values.
fn with_env(env: &Value) -> String {
    MANIFEST.replace("image: \"app:1\"", &format!("image: \"app:1\", env: {env}"))
}

fn env(variables: &[(&str, &str)]) -> Value {
    variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// An upgrade between manifests with these variables that changes a live object in this way.
fn upgrade([before, after]: [&Value; 2], [old, new]: [&Value; 2]) -> JudgeCase<'static> {
    let app = |env: &Value| json!([{"name": "app", "image": "app:1", "env": env}]);
    let mut release = second(ReleaseStatus::PendingUpgrade, &with_env(after), &with_env(before));
    release.state.apply_method = ApplyMethod::ClientSide;
    let live = |env| Some(live(&[(CONTAINERS, app(env))]));
    JudgeCase { claims: vec![release], old: live(old), new: live(new), ..JudgeCase::default() }
}

fn variable(name: &str) -> String {
    format!("{CONTAINERS}/[name=app]/env/[name={name}]")
}

#[test]
fn merge_of_a_repeated_variable_is_recorded_and_passes() {
    let doubled = &env(&[("A", "1"), ("B", "2"), ("A", "3")]);
    let single = &env(&[("A", "1"), ("B", "2")]);
    let lost = &env(&[("B", "2")]);
    let case = || upgrade([doubled, single], [doubled, lost]);
    check(case(), &format!("Record unsettled {}", variable("A")));
    check(JudgeCase { mode: EditsMode::Warn, ..case() }, &format!("Record unsettled {}", variable("A")));
    check(JudgeCase { mode: EditsMode::Allow, ..case() }, &format!("Allow unsettled {}", variable("A")));
    // The live object alone repeats it.
    let changed = &env(&[("A", "5"), ("B", "2")]);
    let first = &env(&[("A", "5"), ("B", "2"), ("A", "3")]);
    check(upgrade([single, changed], [doubled, first]), &format!("Record unsettled {}", variable("A")));
    // The new manifest repeats it: the merge changes the element that is there.
    let of_list = format!("{CONTAINERS}/[name=app]/env");
    let last = &env(&[("A", "3"), ("B", "2")]);
    check(upgrade([single, doubled], [single, last]), &format!("Record unsettled {of_list}"));
}

#[test]
fn only_a_client_side_operation_merges_and_only_repeated_elements() {
    let doubled = &env(&[("A", "1"), ("B", "2"), ("A", "3")]);
    let single = &env(&[("A", "1"), ("B", "2")]);
    let lost = &env(&[("B", "2")]);
    let case = || upgrade([doubled, single], [doubled, lost]);
    let with = |change: fn(&mut Release)| {
        let mut case = case();
        change(&mut case.claims[0]);
        case
    };
    let server_side = with(|release| release.state.apply_method = ApplyMethod::ServerSide);
    check(server_side, &format!("Deny drift? {}", variable("A")));
    check(
        with(|release| release.state.status = ReleaseStatus::Deployed),
        &format!("Deny drift {}", variable("A")),
    );
    let late = JudgeCase { now: "2026-05-01T14:00:00Z", ..case() };
    assert_eq!(late.verdict().outcome, EditOutcome::Deny);
    // What the merge cannot have made of the others is refused with all that it comes with.
    let nothing = &env(&[]);
    let both = format!("Deny drift? {} {}", variable("A"), variable("B"));
    check(upgrade([doubled, single], [doubled, nothing]), &both);
    let other = &env(&[("B", "7")]);
    let value = format!("Deny drift? {} {}/value", variable("A"), variable("B"));
    check(upgrade([doubled, single], [doubled, other]), &value);
    check(upgrade([single, single], [single, lost]), &format!("Deny drift? {}", variable("A")));
}

#[test]
fn ports_that_a_merge_confuses_are_recorded_and_pass() {
    let manifest =
        |ports: &str| MANIFEST.replace("image: \"app:1\"", &format!("image: \"app:1\", ports: {ports}"));
    let port = |protocol: &str| json!({"containerPort": 53, "protocol": protocol});
    let app = |ports: Value| {
        Some(live(&[(CONTAINERS, json!([{"name": "app", "image": "app:1", "ports": ports}]))]))
    };
    let both = "[{containerPort: 53, protocol: UDP}, {containerPort: 53, protocol: TCP}]";
    let mut release = second(
        ReleaseStatus::PendingUpgrade,
        &manifest(both),
        &manifest("[{containerPort: 53, protocol: UDP}]"),
    );
    release.state.apply_method = ApplyMethod::ClientSide;
    let case = JudgeCase {
        claims: vec![release],
        old: app(json!([port("UDP")])),
        new: app(json!([port("TCP")])),
        ..JudgeCase::default()
    };
    let udp = format!("{CONTAINERS}/[name=app]/ports/[containerPort=53,protocol=UDP]");
    check(case, &format!("Record unsettled {udp}"));
}

#[test]
fn a_lost_list_element_is_shown_with_its_values() {
    let doubled = &env(&[("A", "1"), ("B", "2"), ("A", "3")]);
    let single = &env(&[("A", "1"), ("B", "2")]);
    let found = |case: JudgeCase<'_>| {
        let verdict = case.verdict();
        let field = verdict.grounds.unwrap().fields[0].clone();
        [field.declared, field.old, field.new].map(|shown| shown.map(|it| it.as_str().to_owned()))
    };
    let text = |text: &str| Some(text.to_owned());
    let one = || text(r#"{"name":"A","value":"1"}"#);
    let two = || text(r#"[{"name":"A","value":"1"},{"name":"A","value":"3"}]"#);
    let lost = &env(&[("B", "2")]);
    assert_eq!(found(upgrade([doubled, single], [doubled, lost])), [one(), two(), None]);
    assert_eq!(found(upgrade([single, single], [single, lost])), [one(), one(), None]);
    assert_eq!(found(upgrade([single, single], [single, doubled])), [one(), one(), two()]);
}
