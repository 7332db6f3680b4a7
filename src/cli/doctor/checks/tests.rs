use jiff::SignedDuration;
use kubemoor_runtime::config::{Endpoint, ServiceRef};

use super::*;

const NOW: &str = "2026-11-21T08:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn resource(group: &str, version: &str, plural: &str, scale: bool) -> WebhookResource {
    WebhookResource { group: group.to_owned(), version: version.to_owned(), plural: plural.to_owned(), scale }
}

fn declared() -> BTreeSet<WebhookResource> {
    BTreeSet::from([resource("", "v1", "configmaps", false), resource("apps", "v1", "deployments", true)])
}

/// What a guard of this version registers.
fn written(reverts: bool) -> (ValidatingWebhookConfiguration, MutatingWebhookConfiguration) {
    let service = ServiceRef { namespace: "kubemoor-system".to_owned(), name: NAME.to_owned(), port: 443 };
    let authority = rcgen::generate_simple_self_signed(["kubemoor".to_owned()]).unwrap().cert.pem();
    let surface = WebhookSettings {
        endpoint: &Endpoint::Service(service),
        address: WebhookAddress::Bare,
        ca_bundle: Some(authority.as_bytes()),
        own_namespace: Some("kubemoor-system"),
        record_driver: RecordDriver::Secret,
        select_all: false,
        reverts,
        conditions: true,
    };
    (configuration(&declared(), &surface), mutating(&declared(), &surface))
}

/// An installation in which all is well.
fn healthy() -> Observation {
    let (validating, mutating) = written(false);
    let hour = SignedDuration::from_hours(1);
    let (begin, end) = (now() - hour * 24, now() + hour * 24 * 89);
    let metrics = format!(
        "# TYPE kubemoor_ledger_up gauge\nkubemoor_ledger_up 1\n\
         kubemoor_ledger_rows_total{{outcome=\"lost\"}} 0\n\
         kubemoor_certificate_not_before_timestamp_seconds {}\n\
         kubemoor_certificate_expiration_timestamp_seconds {}\n",
        begin.as_second(),
        end.as_second()
    );
    Observation {
        now: now(),
        skew: SignedDuration::ZERO,
        client: "0.1.0".to_owned(),
        server: Ok((1, 34)),
        place: LeaseReference { namespace: "kubemoor-system".to_owned(), name: NAME.to_owned() },
        lease: Ok(Some(LeaderInfo {
            holder: "kubemoor-1_a".to_owned(),
            renewed: Some(now() - SignedDuration::from_secs(3)),
            version: Some("0.1.0".to_owned()),
            ..LeaderInfo::default()
        })),
        workload: Ok(Some(Workload { wanted: 2, ready: 2, account: NAME.to_owned(), registers: true })),
        is_open: Ok(false),
        validating: Ok(Some(validating)),
        mutating: Ok(Some(mutating)),
        probe: Ok(true),
        kinds: Ok(DeclaredKinds { resources: declared(), releases: 1, unread: 0 }),
        rights: Ok(Vec::new()),
        policies: Ok(vec![policy("True", "Accepted")]),
        releases: Ok(Some(vec![state("InSync", "Warn")])),
        ledger: Ok(Vec::new()),
        metrics: Ok(vec![metrics]),
    }
}

fn policy(accepted: &str, reason: &str) -> ListedPolicy {
    ListedPolicy::from_resource(&serde_json::json!({
        "metadata": {"name": "production", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": [
            {"type": "Accepted", "status": accepted, "reason": reason, "message": "it says why"},
        ]},
    }))
}

fn state(reason: &str, edits: &str) -> ReleaseReadiness {
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    ReleaseReadiness { release, reason: reason.to_owned(), edits: edits.to_owned() }
}

fn first(observation: &mut Observation) -> &mut ValidatingWebhook {
    let Ok(Some(live)) = &mut observation.validating else { panic!("it is there") };
    &mut live.webhooks.as_mut().unwrap()[0]
}

/// What one check finds in an installation that differs from the healthy one, which all others find ok or do not see.
fn check(name: &str, state: CheckState, says: &str, change: impl FnOnce(&mut Observation)) {
    let mut observation = healthy();
    change(&mut observation);
    let results = all(&observation);
    let result = results.iter().find(|result| result.check == name).unwrap();
    assert_eq!(result.state, state, "{name}: {result:?}");
    assert!(result.message.contains(says), "{name}: {says:?} is not in {result:?}");
    if state != CheckState::Attention {
        let attention: Vec<_> = results.iter().filter(|it| it.state == CheckState::Attention).collect();
        assert!(attention.is_empty(), "{name}: {attention:?}");
    }
}

fn nobody<T>() -> CheckInput<T> {
    Err(Problem::Unknown("you may not look".to_owned()))
}

#[test]
fn healthy_installation_is_ok_in_every_check() {
    let results = all(&healthy());
    assert_eq!(results.len(), CHECKS.len());
    for result in results {
        assert_eq!(result.state, CheckState::Ok, "{result:?}");
    }
}

#[test]
fn missing_rights_leave_checks_unknown_and_find_nothing() {
    let observation = Observation {
        server: nobody(),
        lease: nobody(),
        workload: nobody(),
        is_open: nobody(),
        validating: nobody(),
        mutating: nobody(),
        probe: nobody(),
        kinds: nobody(),
        rights: nobody(),
        policies: nobody(),
        releases: nobody(),
        ledger: nobody(),
        metrics: nobody(),
        ..healthy()
    };
    for result in all(&observation) {
        assert_eq!(result.state, CheckState::Unknown, "{result:?}");
        assert_eq!(result.message, "not checked: you may not look");
    }
}

#[test]
fn versions_are_compared_and_the_one_behind_is_named() {
    use CheckState::{Attention, Ok as Fine, Unknown};
    let guard = |version: &str| {
        let version = Some(version.to_owned());
        move |it: &mut Observation| it.lease = Ok(Some(LeaderInfo { version, ..LeaderInfo::default() }))
    };
    check("versions", Attention, "the guard (0.0.9) is behind", guard("0.0.9"));
    check("versions", Attention, "the guard (0.10.0) is ahead", guard("0.10.0"));
    check("versions", Fine, "Kubernetes is 1.34", |_| {});
    check("versions", Attention, "1.20 or later", |it| it.server = Ok((1, 19)));
    check("versions", Unknown, "may not look", |it| it.lease = nobody());
    check("settings", Unknown, "another version", |it| {
        guard("0.2.0")(it);
        it.client = "0.1.0".to_owned();
        it.lease.as_mut().unwrap().as_mut().unwrap().renewed = Some(now());
        it.lease.as_mut().unwrap().as_mut().unwrap().holder = "a".to_owned();
        // Only this check is meant here.
        it.server = nobody();
    });
}

#[test]
fn guard_that_does_not_run_is_found() {
    use CheckState::{Attention, Unknown};
    check("emergency", Attention, "kubemoor emergency close", |it| it.is_open = Ok(true));
    check("replicas", Attention, "1 of 2 pods", |it| {
        it.workload.as_mut().unwrap().as_mut().unwrap().ready = 1;
    });
    check("replicas", Unknown, "no Deployment kubemoor", |it| it.workload = Ok(None));
    check("leader", Attention, "--guard-namespace", |it| it.lease = Ok(None));
    let renewed = |seconds: i64| {
        move |it: &mut Observation| {
            it.lease.as_mut().unwrap().as_mut().unwrap().renewed =
                Some(now() - SignedDuration::from_secs(seconds));
        }
    };
    check("leader", Attention, "since 2026-11-21T07:58:00Z", renewed(120));
    check("leader", Attention, "120 s ahead", renewed(-120));
    // The clock of this machine alone is behind.
    check("leader", CheckState::Ok, "renewed the Lease 2 s ago", |it| {
        renewed(-120)(it);
        it.skew = SignedDuration::from_secs(122);
    });
    check("leader", Attention, "no replica leads", |it| {
        it.lease.as_mut().unwrap().as_mut().unwrap().holder.clear();
    });
}

#[test]
fn webhooks_that_are_missing_changed_or_unreachable_are_found() {
    use CheckState::{Attention, Ok as Fine, Unknown};
    check("webhooks", Attention, "no ValidatingWebhookConfiguration", |it| it.validating = Ok(None));
    check("webhooks", Attention, "no MutatingWebhookConfiguration", |it| it.mutating = Ok(None));
    check("webhooks", Attention, "no caBundle", |it| first(it).client_config.ca_bundle = None);
    check("webhooks", Attention, "cert-manager", |it| {
        first(it).client_config.ca_bundle = None;
        let Ok(Some(live)) = &mut it.validating else { panic!("it is there") };
        let inject = ("cert-manager.io/inject-ca-from".to_owned(), "a/b".to_owned());
        live.metadata.annotations = Some(BTreeMap::from([inject]));
    });
    let reverted = |it: &mut Observation| it.releases = Ok(Some(vec![state("InSync", "Revert")]));
    check("webhooks", Attention, "the mode of shop/web is Revert", reverted);
    check("webhooks", Fine, "registered", |it| {
        reverted(it);
        it.mutating = Ok(Some(written(true).1));
    });
    check("answer", Attention, "did not answer a dry run", |it| it.probe = Ok(false));
    check("answer", Unknown, "you may not look", |it| it.probe = nobody());
    check("settings", Attention, "v1.core.edits.kubemoor.dev", |it| {
        first(it).object_selector = None;
        first(it).match_conditions = None;
    });
    check("settings", Attention, "records.kubemoor.dev", |it| {
        let Ok(Some(live)) = &mut it.validating else { panic!("it is there") };
        live.webhooks.as_mut().unwrap().retain(|webhook| webhook.name != RECORDS);
    });
    check("settings", Fine, "Fail (1), Ignore", |it| first(it).failure_policy = Some("Fail".to_owned()));
    check("settings", Fine, "yours in v1.core.edits", |it| first(it).namespace_selector = None);
    check("rules", Attention, "widgets.example.org (v1)", |it| {
        it.kinds.as_mut().unwrap().resources.insert(resource("example.org", "v1", "widgets", false));
    });
    check("rules", Fine, "2 kinds of 1 release are sent; the records of 3 more releases", |it| {
        it.kinds.as_mut().unwrap().unread = 3;
    });
    let mut open = Observation { is_open: Ok(true), validating: Ok(None), mutating: Ok(None), ..healthy() };
    open.kinds = Ok(DeclaredKinds { resources: declared(), releases: 1, unread: 0 });
    let attention: Vec<_> = all(&open).into_iter().filter(|it| it.state == Attention).collect();
    assert_eq!(attention.len(), 1, "{attention:?}");
}

#[test]
fn certificate_that_nobody_renewed_needs_a_person() {
    let valid = |days_before: i64, days_left: i64| {
        let day = SignedDuration::from_hours(24);
        let (from, until) = (now() - day * days_before as i32, now() + day * days_left as i32);
        remaining("it", (from, until), now())
    };
    assert_eq!(valid(60, 30), Ok("it is valid for 30 days".to_owned()));
    assert!(matches!(valid(80, 10), Err(Problem::Attention(message)) if message.contains("in 10 days")));
    assert!(matches!(valid(80, -1), Err(Problem::Attention(message)) if message.contains("it ended at")));
    // One of a short life is renewed when a third of that is left.
    assert!(valid(1, 1).is_ok());
    check("certificates", CheckState::Ok, "was not checked: you may not look", |it| it.metrics = nobody());
    check("certificates", CheckState::Attention, "no readable certificate", |it| {
        first(it).client_config.ca_bundle = Some(k8s_openapi::ByteString(b"none".to_vec()));
    });
}

#[test]
fn rights_policies_releases_and_ledger_that_need_a_person_are_found() {
    use CheckState::{Attention, Ok as Fine};
    check("rights", Attention, "may not watch secrets", |it| {
        it.rights = Ok(vec!["watch secrets".to_owned()])
    });
    check("policies", Attention, "1 not accepted (production)", |it| {
        it.policies = Ok(vec![policy("False", "Invalid")]);
    });
    check("policies", Attention, "1 in conflict (production)", |it| {
        it.policies = Ok(vec![policy("True", "Conflict")]);
    });
    check("policies", Fine, "policies in force: 0", |it| it.policies = Ok(Vec::new()));
    check("releases", Attention, "manifests crds", |it| it.releases = Ok(None));
    check("releases", Attention, "1 Braked (shop/web), 1 Unconfirmed (shop/web): `kubemoor get", |it| {
        it.releases = Ok(Some(vec![state("Unconfirmed", "Warn"), state("Braked", "Warn")]));
    });
    check("releases", Fine, "none needs attention", |it| {
        it.releases = Ok(Some(vec![state("Drifted", "Warn")]));
    });
    check("ledger", Attention, "7 rows were lost", |it| {
        it.metrics = Ok(vec!["kubemoor_ledger_rows_total{outcome=\"lost\"} 7\n".to_owned()]);
    });
    check("ledger", Attention, "takes no rows", |it| {
        it.metrics = Ok(vec!["kubemoor_ledger_up 0\n".to_owned()])
    });
    check("ledger", Attention, "pod a", |it| it.ledger = Ok(vec!["rows of pod a are not shown".to_owned()]));
    check("ledger", Fine, "lost rows were not counted", |it| it.metrics = nobody());
}
