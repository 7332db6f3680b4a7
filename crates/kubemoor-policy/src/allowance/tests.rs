use serde_json::{Value, json};

use crate::allowance::*;
use crate::compile::typed;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn compile(spec: Value) -> Result<Allowance, Vec<Flaw>> {
    let resource = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "spec": spec,
        "metadata": {"name": "a", "namespace": "shop", "creationTimestamp": "2026-11-01T00:00:00Z"},
    });
    Allowance::compile(&typed(resource).unwrap())
}

fn object(kind: &str, namespace: Option<&str>) -> ObjectId {
    ObjectId { group: "".into(), kind: kind.into(), namespace: namespace.map(Into::into), name: "web".into() }
}

fn release(namespace: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.into(), name: "web".into() }
}

#[test]
fn an_allowance_says_what_until_when_why_and_who() {
    let allowance = compile(json!({
        "object": {"kind": "Service", "namespace": "shop", "name": "web"}, "paths": ["/spec/ports", "delete"],
        "until": "2026-11-02T00:00:00Z", "reason": "INC-1", "requestedBy": {"user": "alice", "groups": ["dev"]},
    }))
    .unwrap();
    assert!(
        allowance.is_active(at("2026-11-01T23:59:59Z")) && !allowance.is_active(at("2026-11-02T00:00:00Z"))
    );
    assert!(allowance.grant.mask.covers(&"/spec/ports/[port=80]".parse().unwrap()));
    assert!(!allowance.grant.mask.covers(&"/spec/type".parse().unwrap()) && allowance.grant.allows_delete);
    assert_eq!((allowance.by.user.as_str(), allowance.reason.as_str()), ("alice", "INC-1"));
    assert_eq!((allowance.name.as_str(), allowance.namespace.as_str()), ("a", "shop"));
}

#[test]
fn an_allowance_is_for_its_namespace_and_no_other() {
    let of = |namespace: Value| {
        compile(json!({
            "object": {"kind": "Service", "namespace": namespace, "name": "web"},
            "paths": ["*"], "until": "2026-11-02T00:00:00Z",
        }))
        .unwrap()
    };
    let check = |namespace: Value, object: ObjectId, of_release: &str, expected: bool| {
        let allowance = of(namespace.clone());
        let is_for = allowance.is_for(&object, &release(of_release));
        assert_eq!(is_for, expected, "{namespace}: {object} of a release in {of_release}");
        assert!(!is_for || allowance.objects().contains(&object), "{object} is not found");
    };
    check(json!("shop"), object("Service", Some("shop")), "shop", true);
    check(json!("shop"), object("Service", Some("shop")), "other", true);
    check(json!("shop"), object("Service", Some("other")), "shop", false);
    check(json!("shop"), object("Service", None), "shop", false);
    check(json!(null), object("Service", None), "shop", true);
    check(json!(null), object("Service", None), "other", false);
    check(json!(null), object("Service", Some("shop")), "shop", true);
    check(json!(null), object("Service", Some("other")), "shop", false);
    check(json!("shop"), object("Deployment", Some("shop")), "shop", false);
}

#[test]
fn an_allowance_with_a_flaw_is_none() {
    let check = |change: Value, field: &str, reason: FlawReason| {
        let mut spec = json!({
            "object": {"kind": "Service", "namespace": "shop", "name": "web"},
            "paths": ["/spec/ports"], "until": "2026-11-02T00:00:00Z",
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let flaws = compile(spec).unwrap_err();
        assert_eq!((flaws[0].field.as_str(), flaws[0].reason), (field, reason), "{change}: {flaws:?}");
    };
    let other = json!({"kind": "Service", "namespace": "kube-system", "name": "web"});
    check(json!({"object": other}), "spec.object.namespace", FlawReason::ForeignNamespace);
    check(json!({"object": {"kind": "", "name": "web"}}), "spec.object.kind", FlawReason::Missing);
    check(json!({"paths": []}), "spec.paths", FlawReason::Missing);
    check(json!({"paths": ["/a", "spec"]}), "spec.paths[1]", FlawReason::InvalidPath);
    check(json!({"paths": vec!["/a"; 65]}), "spec.paths", FlawReason::TooMany);
    check(json!({"until": "tomorrow"}), "spec.until", FlawReason::InvalidTime);
    check(json!({"until": "2026-11-02"}), "spec.until", FlawReason::InvalidTime);
    check(json!({"until": "2026-12-03T00:00:00Z"}), "spec.until", FlawReason::TooFar);
    check(json!({"until": "9999-01-01T00:00:00Z"}), "spec.until", FlawReason::TooFar);
    check(json!({"until": "9999-12-31T23:59:59Z"}), "spec.until", FlawReason::InvalidTime);
}

#[test]
fn a_request_by_annotation_is_read_and_bounded() {
    let now = at("2026-11-01T00:00:00Z");
    let check = |until: Option<&str>, expected: Result<&str, FlawReason>| {
        let request = RequestedAllowance::read("/spec/replicas", until, None);
        let found = match request {
            Ok(request) => request.until_from(now).map_err(|flaw| flaw.reason),
            Err(flaws) => Err(flaws[0].reason),
        };
        assert_eq!(found, expected.map(at), "{until:?}");
    };
    check(Some("2026-11-01T02:00:00Z"), Ok("2026-11-01T02:00:00Z"));
    check(None, Err(FlawReason::Missing));
    check(Some("2026-10-31T02:00:00Z"), Err(FlawReason::InvalidTime));
    check(Some("2027-11-01T02:00:00Z"), Err(FlawReason::TooFar));
    check(Some("9999-01-01T00:00:00Z"), Err(FlawReason::TooFar));
    check(Some("soon"), Err(FlawReason::InvalidTime));
}

#[test]
fn commas_within_brackets_part_nothing() {
    let check = |text: &str, expected: &[&str]| {
        let request =
            RequestedAllowance::read(text, None, None).unwrap_or_else(|flaws| panic!("{text}: {flaws:?}"));
        let paths: Vec<String> = request.grant.mask.0.iter().map(ToString::to_string).collect();
        assert_eq!(paths, expected, "{text}");
    };
    check("/a,/b", &["/a", "/b"]);
    check(" /a , /b ,", &["/a", "/b"]);
    check("/p/[port=80,protocol=TCP]/x,/b", &["/p/[port=80,protocol=TCP]/x", "/b"]);
    check("/p/[name=\"a,]b\"],/b", &["/p/[name=\"a,]b\"]", "/b"]);
    check("/a[b,/c", &["/a[b", "/c"]);
    check("*,delete", &["*"]);
}

#[test]
fn unknown_paths_of_built_in_kinds_are_told() {
    let told = |kind: &str, group: &str, paths: Value| {
        let spec = json!({
            "object": {"group": group, "kind": kind, "name": "web"}, "paths": paths, "until": "2030-01-01T00:00:00Z",
        });
        let mut resource = DriftAllowance::new("a", serde_json::from_value(spec).unwrap());
        resource.metadata.namespace = Some("shop".to_owned());
        let allowance = Allowance::compile(&resource).unwrap();
        allowance.unknown_fields()
    };
    let slip = "there is no field /spec/replcas: did you mean replicas?";
    assert_eq!(told("Deployment", "apps", json!(["/spec/replcas", "/spec/paused"])), [slip]);
    for (kind, group, path) in [
        ("Deployment", "apps", "/spec/replicas"),
        ("Deployment", "apps", "delete"),
        ("Deployment", "apps", "*"),
        ("Deployment", "example.org", "/spec/replcas"),
        ("Widget", "example.org", "/spec/x"),
    ] {
        assert_eq!(told(kind, group, json!([path])), [] as [&str; 0], "{kind} {path}");
    }
}

mod standing {
    use std::collections::BTreeMap;

    use crate::allowance::*;
    use crate::samples::{declared, policies, policy};
    use kubemoor_declare::model::ReleaseId;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn chart(annotations: &str) -> DeclaredObject {
        declared(&format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: shop, annotations: {{{annotations}}}}}}}"
    ))
    .1
    }

    #[test]
    fn a_chart_allows_by_its_annotations() {
        let declared =
            chart("kubemoor.dev/allow: '/spec/replicas, delete', kubemoor.dev/allow-reason: INC-123");
        let standing = allowance_from_annotations(&declared).unwrap().unwrap();
        assert!(standing.grant.allows_delete);
        assert!(standing.grant.mask.covers(&"/spec/replicas".parse().unwrap()));
        assert!(!standing.grant.mask.covers(&"/spec/paused".parse().unwrap()));
        assert!(standing.is_active(Timestamp::MAX) && standing.applies_to(&Actor::default()));
        assert_eq!(standing.next_change(at("2026-01-01T00:00:00Z")), None);
        assert_eq!(standing.origin.to_string(), "annotation kubemoor.dev/allow of the chart (INC-123)");
        assert!(allowance_from_annotations(&chart("a: b")).unwrap().is_none());
    }

    #[test]
    fn an_annotation_of_a_chart_ends_when_it_says_so() {
        let declared =
            chart("kubemoor.dev/allow: '*', kubemoor.dev/allow-until: '2026-12-24T18:00:00+01:00'");
        let standing = allowance_from_annotations(&declared).unwrap().unwrap();
        let until = at("2026-12-24T17:00:00Z");
        assert!(standing.is_active(until - jiff::SignedDuration::from_secs(1)) && !standing.is_active(until));
        assert_eq!(standing.next_change(at("2026-01-01T00:00:00Z")), Some(until));
        assert_eq!(standing.next_change(until), None);
        assert!(!standing.grant.allows_delete);
    }

    #[test]
    fn a_broken_annotation_allows_nothing_and_is_named() {
        let check = |annotations: &str, field: &str| {
            let flaws = allowance_from_annotations(&chart(annotations)).unwrap_err();
            assert_eq!(flaws[0].field, field, "{annotations}: {flaws:?}");
            let declared = chart(annotations);
            let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
            let object = declared_id();
            let rules = policies([]).resolve(&release, &BTreeMap::new()).rules(&object, &Arc::new(declared));
            assert!(rules.standing.is_empty() && rules.flaws == flaws);
        };
        check("kubemoor.dev/allow: spec.replicas", "kubemoor.dev/allow[0]");
        check("kubemoor.dev/allow: ''", "kubemoor.dev/allow");
        check("kubemoor.dev/allow: '*', kubemoor.dev/allow-until: tomorrow", "kubemoor.dev/allow-until");
        check("kubemoor.dev/allow: '*', kubemoor.dev/allow-until: ''", "kubemoor.dev/allow-until");
    }

    fn declared_id() -> kubemoor_declare::model::ObjectId {
        declared("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}").0
    }

    #[test]
    fn policy_allowance_applies_only_in_its_schedule_and_to_subjects() {
        let jenkins = policy(
            "jenkins",
            "allow:
- name: weekend
  paths: [/spec/replicas]
  schedule: {cron: '30 7 * * SAT,SUN', duration: 10h, timeZone: America/New_York}
  subjects: [{kind: Group, name: jenkins-admins}]",
        );
        let (_, standing) = &jenkins.allow[0];
        assert!(
            standing.is_active(at("2026-11-21T13:00:00Z")) && !standing.is_active(at("2026-11-20T13:00:00Z"))
        );
        let actor = |group: &str| Actor {
            user: "alice".to_owned(),
            groups: vec![group.to_owned()],
            ..Actor::default()
        };
        assert!(standing.applies_to(&actor("jenkins-admins")) && !standing.applies_to(&actor("developers")));
        assert_eq!(standing.next_change(at("2026-11-20T13:00:00Z")), Some(at("2026-11-21T12:30:00Z")));
        assert_eq!(standing.origin.to_string(), "allowance weekend of policy jenkins");
    }
}

mod schedule {
    use crate::allowance::*;

    fn compile(cron: &str, duration: &str, zone: &str) -> Result<Schedule, Vec<crate::flaw::Flaw>> {
        let spec = ScheduleSpec {
            cron: cron.to_owned(),
            duration: duration.to_owned(),
            time_zone: (!zone.is_empty()).then(|| zone.to_owned()),
        };
        let mut flaws = Flaws::default();
        let schedule = Schedule::compile(&spec, "at", &mut flaws);
        flaws.or(schedule).map(Option::unwrap)
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Checks that a window is open just from `start` to before `end`.
    fn check(schedule: (&str, &str, &str), start: &str, end: &str) {
        let compiled = compile(schedule.0, schedule.1, schedule.2).unwrap();
        let (start, end) = (at(start), at(end));
        let instant = SignedDuration::from_nanos(1);
        assert!(!compiled.is_window_open(start - instant), "{schedule:?} is open before {start}");
        assert!(compiled.is_window_open(start), "{schedule:?} is not open at {start}");
        assert!(compiled.is_window_open(end - instant), "{schedule:?} is not open before {end}");
        assert!(!compiled.is_window_open(end), "{schedule:?} is open at {end}");
        assert_eq!(compiled.next_change(start - instant), Some(start), "{schedule:?} before {start}");
        assert_eq!(compiled.next_change(start), Some(end), "{schedule:?} from {start}");
        assert_eq!(compiled.next_change(end - instant), Some(end), "{schedule:?} before {end}");
        assert!(compiled.next_change(end).unwrap() > end, "{schedule:?} after {end}");
    }

    #[test]
    fn window_includes_its_start_and_excludes_its_end() {
        let weekend = ("30 7 * * SAT,SUN", "10h", "America/New_York");
        check(weekend, "2026-11-21T12:30:00Z", "2026-11-21T22:30:00Z");
        check(weekend, "2026-07-04T11:30:00Z", "2026-07-04T21:30:00Z");
        check(("0 0 * * *", "1h30m", ""), "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z");
        check(("0 12 29 2 *", "10s", "UTC"), "2028-02-29T12:00:00Z", "2028-02-29T12:00:10Z");
        check(("*/30 9-10 * * MON-FRI", "10m", "UTC"), "2026-11-23T09:30:00Z", "2026-11-23T09:40:00Z");
    }

    #[test]
    fn window_start_skipped_by_daylight_saving_moves_after_the_jump() {
        // New York jumps from 02:00 to 03:00 at 07:00Z.
        check(("30 2 * * *", "1h", "America/New_York"), "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z");
        check(("30 2,14 * * *", "1h", "America/New_York"), "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z");
        check(("0 2 * * *", "30m", "America/New_York"), "2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z");
        // Lord Howe jumps by half an hour, at 15:30Z.
        check(("15 2 * * *", "1h", "Australia/Lord_Howe"), "2026-10-03T15:30:00Z", "2026-10-03T16:30:00Z");
    }

    #[test]
    fn a_start_that_the_clocks_repeat_comes_once() {
        // New York falls back from 02:00 to 01:00 at 06:00Z.
        let nightly = ("30 1 * * *", "20m", "America/New_York");
        check(nightly, "2026-11-01T05:30:00Z", "2026-11-01T05:50:00Z");
        assert!(
            !compile(nightly.0, nightly.1, nightly.2).unwrap().is_window_open(at("2026-11-01T06:35:00Z"))
        );
    }

    #[test]
    fn a_length_is_elapsed_time() {
        // Over the night in which Berlin falls back at 01:00Z.
        check(("0 20 * * SAT", "12h", "Europe/Berlin"), "2026-10-24T18:00:00Z", "2026-10-25T06:00:00Z");
        // And over the one in which it jumps.
        check(("0 20 * * SAT", "12h", "Europe/Berlin"), "2026-03-28T19:00:00Z", "2026-03-29T07:00:00Z");
    }

    #[test]
    fn a_frequent_window_opens_in_the_repeated_hour_as_well() {
        let often = compile("*/15 * * * *", "5m", "America/New_York").unwrap();
        for minute in ["05:15", "05:45", "06:15", "06:45"] {
            assert!(often.is_window_open(at(&format!("2026-11-01T{minute}:00Z"))), "{minute}");
        }
        assert!(!often.is_window_open(at("2026-11-01T06:20:00Z")));
    }

    #[test]
    fn windows_that_meet_are_one() {
        let all_day = compile("0 0,12 * * *", "12h", "").unwrap();
        assert!(
            all_day.is_window_open(at("2026-11-21T12:00:00Z"))
                && all_day.is_window_open(at("2026-11-21T11:59:59Z"))
        );
        let change = all_day.next_change(at("2026-11-21T12:00:00Z")).unwrap();
        assert!(change > at("2027-06-21T00:00:00Z"), "{change}");
        let working_days = compile("0 0 * * MON-FRI", "24h", "").unwrap();
        assert_eq!(working_days.next_change(at("2026-11-18T10:00:00Z")), Some(at("2026-11-21T00:00:00Z")));
        assert_eq!(working_days.next_change(at("2026-11-21T10:00:00Z")), Some(at("2026-11-23T00:00:00Z")));
    }

    #[test]
    fn a_schedule_that_cannot_be_is_named() {
        let check = |schedule: (&str, &str, &str), field: &str, reason: FlawReason| {
            let flaws = compile(schedule.0, schedule.1, schedule.2).unwrap_err();
            assert_eq!(
                (flaws[0].field.as_str(), flaws[0].reason),
                (field, reason),
                "{schedule:?}: {flaws:?}"
            );
        };
        use FlawReason::{InvalidSchedule, NeverFires, UnknownTimeZone};
        check(("30 7 * *", "1h", ""), "at.cron", InvalidSchedule);
        check(("0 30 7 * * *", "1h", ""), "at.cron", InvalidSchedule);
        check(("61 7 * * *", "1h", ""), "at.cron", InvalidSchedule);
        check(("", "1h", ""), "at.cron", InvalidSchedule);
        check(("@daily", "1h", ""), "at.cron", InvalidSchedule);
        check(("x 7 * * *", "1h", ""), "at.cron", InvalidSchedule);
        check(("0,30 1,2,3 30 2 *", "1h", ""), "at.cron", NeverFires);
        check(("0 0 30 2 *", "1h", ""), "at.cron", NeverFires);
        check(("0 0 31 4,6 *", "1h", ""), "at.cron", NeverFires);
        check(("0 0 * * *", "", ""), "at.duration", InvalidSchedule);
        check(("0 0 * * *", "0s", ""), "at.duration", InvalidSchedule);
        check(("0 0 * * *", "-1h", ""), "at.duration", InvalidSchedule);
        check(("0 0 * * *", "745h", ""), "at.duration", InvalidSchedule);
        check(("0 0 * * *", "ten hours", ""), "at.duration", InvalidSchedule);
        check(("0 0 * * *", "1h", "Mars/Olympus"), "at.timeZone", UnknownTimeZone);
        check(("0 0 * * *", "1h", "../etc/passwd"), "at.timeZone", UnknownTimeZone);
    }

    #[test]
    fn any_time_gives_an_answer() {
        let schedule = compile("0 0 29 2 *", "1h", "Pacific/Apia").unwrap();
        for now in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH, at("2011-12-30T12:00:00Z")] {
            let _ = (schedule.is_window_open(now), schedule.next_change(now));
        }
    }

    #[test]
    fn the_machine_has_no_say_in_time_zones() {
        for zone in
            ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "UTC", "Etc/UTC"]
        {
            assert!(compile("0 0 * * *", "1h", zone).is_ok(), "{zone}");
        }
    }
}
