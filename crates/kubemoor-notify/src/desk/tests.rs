//! Tables of events and of what each receiver is told of them.

use super::quiet::QuietSpec;
use super::route::RouteSpec;
use super::*;
use crate::format::Format;

/// Minutes after ten o'clock (UTC) on a Monday.
fn at(minutes: i64) -> Timestamp {
    let ten: Timestamp = "2026-11-23T10:00:00Z".parse().unwrap();
    ten + SignedDuration::from_mins(minutes)
}

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: name.into() }
}

fn object(name: &str) -> ObjectId {
    let namespace = Some("shop".into());
    ObjectId { group: "".into(), kind: "ConfigMap".into(), namespace, name: name.into() }
}

fn about(subject: Subject, name: &str, now: Timestamp) -> Message {
    Message { release: Some(release("web")), object: Some(object(name)), ..Message::new(subject, now) }
}

fn rules(name: &str, routes: &str, quiet: &str, reminders: bool) -> Rules {
    let routes: Vec<RouteSpec> = serde_saphyr::from_str(routes).unwrap();
    let quiet: Vec<QuietSpec> = serde_saphyr::from_str(quiet).unwrap();
    Rules {
        name: name.to_owned(),
        routes: Routes::compile(&routes, &Format::Slack).unwrap(),
        quiet: QuietHours::compile(&quiet).unwrap(),
        reminders,
    }
}

fn desk(receivers: Vec<Rules>) -> NotificationScheduler {
    NotificationScheduler::new(receivers, SignedDuration::from_mins(5))
}

/// One receiver that gets all.
fn plain() -> NotificationScheduler {
    desk(vec![rules("a", "[]", "[]", false)])
}

fn tell(desk: &mut NotificationScheduler, message: Message, now: Timestamp) -> Vec<Output> {
    desk.take(Event::Told(Box::new(message), Vec::new()), true, now)
}

fn deny(desk: &mut NotificationScheduler, user: &str, release: &ReleaseId, name: &str, now: Timestamp) {
    let denial = Denial { release: Some((release.clone(), 3)), object: object(name), user: user.to_owned() };
    assert_eq!(desk.take(Event::Denied(denial, Vec::new()), false, now), []);
}

/// What is sent, as `receiver: event of object`.
fn sent(outputs: &[Output]) -> Vec<String> {
    let said = |message: &Arc<Message>| {
        let name = message.object.as_ref().map_or("-", |object| object.name.as_str());
        format!("{} of {name}", message.subject.as_str())
    };
    let of = |output: &Output| match output {
        Output::Send(number, messages) => {
            messages.iter().map(|message| format!("{number}: {}", said(message))).collect()
        }
        Output::Count(fate, count) => vec![format!("{fate:?} {count}")],
    };
    outputs.iter().flat_map(of).collect()
}

#[test]
fn repeated_denials_yield_one_message_per_release_and_user() {
    let mut desk = plain();
    for number in 0..1000 {
        deny(&mut desk, "alice", &release("web"), &format!("{}", number % 7), at(0));
    }
    deny(&mut desk, "bob", &release("web"), "a", at(1));
    deny(&mut desk, "alice", &release("api"), "a", at(2));
    assert_eq!((desk.next(), desk.tick(false, at(4))), (Some(at(5)), Vec::new()));
    let mut told = Vec::new();
    for minute in 5..8 {
        for output in desk.tick(false, at(minute)) {
            let Output::Send(0, messages) = output else { panic!("{output:?}") };
            told.extend(messages.iter().map(|it| {
                let name = it.release.as_ref().unwrap().name.to_string();
                (name, it.by.clone().unwrap(), it.count, it.object.is_some(), it.detail.clone().unwrap())
            }));
        }
    }
    let of = |kind: &str| format!("ConfigMap/{kind} in namespace shop");
    let many: Vec<_> = ["0", "1", "2", "3", "4"].map(of).into_iter().chain(["others".to_owned()]).collect();
    assert_eq!(
        told,
        [
            ("web".to_owned(), "alice".to_owned(), 1000, false, many.join(", ")),
            ("web".to_owned(), "bob".to_owned(), 1, true, of("a")),
            ("api".to_owned(), "alice".to_owned(), 1, true, of("a")),
        ]
    );
    assert_eq!(desk.next(), None);
    // The next window is another message.
    deny(&mut desk, "alice", &release("web"), "a", at(8));
    assert_eq!(sent(&desk.tick(false, at(13))), ["0: changes.denied of a"]);
}

#[test]
fn more_users_than_there_is_room_for_are_counted_together() {
    let mut desk = plain();
    for number in 0..5000 {
        deny(&mut desk, &format!("user-{number}"), &release("web"), "a", at(0));
    }
    let outputs = desk.tick(false, at(5));
    let counts: Vec<_> = outputs
        .iter()
        .map(|output| match output {
            Output::Send(0, messages) => messages[0].count,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (1025, 5000));
}

#[test]
fn messages_waiting_for_their_window_are_sent_at_shutdown() {
    let mut desk = plain();
    deny(&mut desk, "alice", &release("web"), "a", at(0));
    assert_eq!(sent(&desk.close(at(1))), ["0: changes.denied of a"]);
    assert_eq!(desk.close(at(1)), []);
}

#[test]
fn only_who_leads_tells_of_what_all_replicas_see() {
    let mut desk = plain();
    let drifted = about(Subject::Drifted, "a", at(0));
    assert_eq!(desk.take(Event::Told(Box::new(drifted), Vec::new()), false, at(0)), []);
    deny(&mut desk, "alice", &release("web"), "a", at(0));
    assert_eq!(sent(&desk.tick(false, at(5))), ["0: changes.denied of a"]);
}

#[test]
fn the_same_is_told_once_in_ten_minutes() {
    let mut desk = plain();
    let drifted = about(Subject::Drifted, "a", at(0));
    for (minute, expected) in [(0, "0: drift.detected of a"), (1, "Repeated 1"), (9, "Repeated 1")] {
        assert_eq!(sent(&tell(&mut desk, drifted.clone(), at(minute))), [expected], "{minute}");
    }
    assert_eq!(sent(&tell(&mut desk, drifted, at(20))), ["0: drift.detected of a"]);
}

#[test]
fn a_policy_names_receivers_and_routes_choose_besides() {
    let drift = about(Subject::Drifted, "a", at(0));
    let of_namespace = Message { namespace: Some("shop".to_owned()), ..Message::new(Subject::Braked, at(0)) };
    let of_cluster = Message::new(Subject::EmergencyOpened, at(0));
    for (routes, names, message, is_told) in [
        ("[]", &[][..], &drift, true),
        ("[]", &["a"], &drift, true),
        ("[]", &["b"], &drift, false),
        ("[{events: [drift]}]", &[], &drift, true),
        ("[{events: [emergency, brake]}]", &[], &drift, false),
        ("[{events: [emergency]}, {events: [drift]}]", &[], &drift, true),
        ("[{namespaces: [shop]}]", &[], &drift, true),
        ("[{namespaces: [\"sh*\"], releases: [web]}]", &[], &drift, true),
        ("[{namespaces: [other]}]", &[], &drift, false),
        ("[{releases: [\"api-*\"]}]", &[], &drift, false),
        (
            "[{namespaces: [other], events: [emergency]}, {namespaces: [shop], events: [denial]}]",
            &[],
            &drift,
            false,
        ),
        ("[{namespaces: [shop]}]", &[], &of_namespace, true),
        ("[{namespaces: [other]}]", &[], &of_namespace, false),
        ("[{releases: [api]}]", &[], &of_namespace, true),
        // What concerns the cluster concerns everybody in it.
        ("[{namespaces: [other], releases: [api]}]", &[], &of_cluster, true),
        ("[{events: [drift]}]", &[], &of_cluster, false),
        ("[{events: [drift]}]", &[], &Message::new(Subject::Test, at(0)), true),
    ] {
        let mut desk = desk(vec![rules("a", routes, "[]", false)]);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let outputs = desk.take(Event::Told(Box::new(message.clone()), names), true, at(0));
        assert_eq!(!outputs.is_empty(), is_told, "{routes} {message:?}");
    }
}

#[test]
fn quiet_hours_hold_back_what_is_not_urgent() {
    let quiet = "[{from: \"10:00\", to: \"11:00\", timeZone: UTC}]";
    let mut desk = desk(vec![rules("quiet", "[]", quiet, false), rules("loud", "[]", "[]", false)]);
    assert_eq!(
        sent(&tell(&mut desk, about(Subject::Drifted, "a", at(0)), at(0))),
        ["1: drift.detected of a"]
    );
    let urgent =
        [Subject::EmergencyOpened, Subject::EmergencyClosed, Subject::Braked, Subject::BrakeReleased];
    for subject in urgent {
        let told = sent(&tell(&mut desk, Message::new(subject, at(1)), at(1)));
        assert_eq!(told.len(), 2, "{told:?}");
    }
    assert_eq!((desk.tick(true, at(2)), desk.next()), (Vec::new(), Some(at(2) + LOOK)));
    // Other news put the next look off no further.
    tell(&mut desk, about(Subject::Drifted, "a", at(0)), at(2));
    assert_eq!((desk.next(), desk.tick(true, at(59))), (Some(at(2) + LOOK), Vec::new()));
    assert_eq!(sent(&desk.tick(true, at(60))), ["0: drift.detected of a"]);
    assert_eq!((desk.tick(true, at(61)), desk.next()), (Vec::new(), None));
}

#[test]
fn drift_that_starts_and_ends_in_quiet_hours_is_suppressed() {
    let quiet = "[{from: \"10:00\", to: \"11:00\", timeZone: UTC}]";
    let mut desk = desk(vec![rules("quiet", "[]", quiet, false)]);
    // It began before: its end is told.
    tell(&mut desk, about(Subject::Drifted, "before", at(-5)), at(-5));
    for (subject, name, expected) in [
        (Subject::Drifted, "a", &[][..]),
        (Subject::NotRepaired, "a", &[]),
        (Subject::Drifted, "b", &[]),
        (Subject::Repaired, "a", &["Settled 3"]),
        (Subject::DriftEnded, "before", &[]),
    ] {
        assert_eq!(sent(&tell(&mut desk, about(subject, name, at(1)), at(1))), expected);
    }
    assert_eq!(sent(&desk.tick(true, at(60))), ["0: drift.detected of b", "0: drift.ended of before"]);
}

#[test]
fn messages_held_back_in_quiet_hours_are_bounded_and_counted() {
    let mut desk = desk(vec![rules("quiet", "[]", "[{timeZone: UTC}]", false)]);
    let mut counted = Vec::new();
    for number in 0..300 {
        counted.extend(tell(&mut desk, about(Subject::Drifted, &number.to_string(), at(0)), at(0)));
    }
    assert_eq!(counted, vec![Output::Count(NotificationFate::Dropped, 1); 44]);
    assert_eq!(desk.close(at(1)), [Output::Count(NotificationFate::Dropped, 256)]);
}

#[test]
fn the_end_says_how_much_of_the_release_still_lasts() {
    let mut desk = plain();
    for name in ["a", "b", "c"] {
        tell(&mut desk, about(Subject::Drifted, name, at(0)), at(0));
    }
    tell(&mut desk, Message { release: Some(release("api")), ..about(Subject::Drifted, "d", at(0)) }, at(0));
    for (name, remaining) in [("a", 2), ("b", 1), ("b", 1), ("c", 0)] {
        let outputs = tell(&mut desk, about(Subject::Repaired, name, at(1)), at(1));
        match &outputs[..] {
            [Output::Send(0, messages)] => assert_eq!(messages[0].remaining, remaining, "{name}"),
            other => assert_eq!((sent(other), name), (vec!["Repeated 1".to_owned()], "b")),
        }
    }
}

#[test]
fn non_leader_sends_no_reminders_and_keeps_its_timer_interval() {
    let mut desk = desk(vec![rules("alerts", "[]", "[]", true)]);
    let drifted = about(Subject::Drifted, "a", at(0));
    assert_eq!(desk.take(Event::Told(Box::new(drifted), Vec::new()), false, at(0)), []);
    for minute in [0, 2, 4] {
        assert_eq!((desk.tick(false, at(minute)), desk.next()), (Vec::new(), Some(at(minute + 2))));
    }
    assert_eq!(sent(&desk.tick(true, at(6))), ["0: drift.detected of a"]);
}

#[test]
fn ongoing_drift_is_repeated_only_to_receivers_with_reminders() {
    let quiet = "[{from: \"10:30\", to: \"11:00\", timeZone: UTC}]";
    let mut desk = desk(vec![rules("alerts", "[]", quiet, true), rules("chat", "[]", "[]", false)]);
    assert_eq!(desk.next(), None);
    tell(&mut desk, about(Subject::Drifted, "a", at(0)), at(0));
    assert_eq!(sent(&desk.tick(true, at(0))), ["0: drift.detected of a"]);
    assert_eq!((desk.next(), desk.tick(true, at(1))), (Some(at(2)), Vec::new()));
    assert_eq!(sent(&desk.tick(true, at(2))), ["0: drift.detected of a"]);
    // Held back, it does not come as a reminder; what began before goes on.
    tell(&mut desk, about(Subject::Drifted, "b", at(31)), at(31));
    assert_eq!(sent(&desk.tick(true, at(32))), ["0: drift.detected of a"]);
    tell(&mut desk, about(Subject::Repaired, "a", at(33)), at(33));
    assert_eq!(sent(&desk.tick(false, at(40))), Vec::<String>::new());
    tell(&mut desk, about(Subject::Repaired, "b", at(41)), at(41));
    assert_eq!(sent(&desk.tick(true, at(60))), ["0: drift.repaired of a"]);
    assert_eq!(desk.next(), None);
}

#[test]
fn people_are_told_once_that_an_exception_ends_soon() {
    for (lasts, told) in [(8 * 60, 7 * 60), (60, 45), (4, 3)] {
        let mut desk = plain();
        let opened = Message {
            until: Some(at(lasts)),
            key: "exception".to_owned(),
            ..about(Subject::ExceptionOpened, "a", at(0))
        };
        assert_eq!(sent(&tell(&mut desk, opened.clone(), at(0))), ["0: exception.opened of a"]);
        assert_eq!((desk.next(), desk.tick(true, at(told - 1))), (Some(at(told)), Vec::new()));
        assert_eq!(sent(&desk.tick(true, at(told))), ["0: exception.ending of a"]);
        assert_eq!((desk.next(), desk.tick(true, at(lasts))), (None, Vec::new()));
        let closed = Message { subject: Subject::ExceptionClosed, ..opened };
        assert_eq!(sent(&tell(&mut desk, closed, at(lasts))), ["0: exception.closed of a"]);
    }
}

#[test]
fn an_exception_that_was_taken_back_ends_nothing_later() {
    let mut desk = plain();
    let opened = Message { until: Some(at(60)), ..about(Subject::ExceptionOpened, "a", at(0)) };
    tell(&mut desk, opened.clone(), at(0));
    tell(&mut desk, Message { subject: Subject::ExceptionClosed, ..opened }, at(1));
    assert_eq!((desk.next(), desk.tick(true, at(59))), (None, Vec::new()));
}

#[test]
fn quiet_hours_are_those_of_the_clock_on_the_wall() {
    let night = "{from: \"22:00\", to: \"07:00\", timeZone: Europe/Berlin}";
    let friday = "{days: [Fri], from: \"22:00\", to: \"07:00\", timeZone: Europe/Berlin}";
    let weekend = "{days: [Sat, Sun], timeZone: Europe/Berlin}";
    let noon = "{days: [Mon], from: \"12:00\", to: \"13:30\", timeZone: UTC}";
    for (window, moment, is_quiet) in [
        (night, "2026-11-23T20:59:59Z", false),
        (night, "2026-11-23T21:00:00Z", true),
        (night, "2026-11-24T05:59:59Z", true),
        (night, "2026-11-24T06:00:00Z", false),
        // In summer the clock is an hour ahead.
        (night, "2026-07-01T20:00:00Z", true),
        (night, "2026-07-01T05:00:00Z", false),
        // The night in which summer time ends has the hour from two to three twice.
        (night, "2026-10-25T00:30:00Z", true),
        (night, "2026-10-25T01:30:00Z", true),
        (night, "2026-10-25T05:59:59Z", true),
        (night, "2026-10-25T06:00:00Z", false),
        // It begins on Friday and ends on Saturday.
        (friday, "2026-11-27T20:59:59Z", false),
        (friday, "2026-11-27T21:00:00Z", true),
        (friday, "2026-11-28T05:00:00Z", true),
        (friday, "2026-11-28T21:30:00Z", false),
        (friday, "2026-11-27T03:00:00Z", false),
        (weekend, "2026-11-27T22:59:59Z", false),
        (weekend, "2026-11-27T23:00:00Z", true),
        (weekend, "2026-11-29T22:59:59Z", true),
        (weekend, "2026-11-29T23:00:00Z", false),
        (noon, "2026-11-23T12:00:00Z", true),
        (noon, "2026-11-23T13:29:59Z", true),
        (noon, "2026-11-23T13:30:00Z", false),
        (noon, "2026-11-24T12:30:00Z", false),
    ] {
        let specs: Vec<QuietSpec> = serde_saphyr::from_str(&format!("[{window}]")).unwrap();
        let hours = QuietHours::compile(&specs).unwrap();
        assert_eq!(hours.holds(moment.parse().unwrap()), is_quiet, "{window} at {moment}");
    }
    assert!(!QuietHours::default().holds(at(0)));
}

#[test]
fn hours_that_cannot_be_meant_are_refused() {
    for (window, said) in [
        ("{timeZone: Mars/Base}", "IANA"),
        ("{days: [Monday], timeZone: UTC}", "Mon, Tue"),
        ("{from: \"22:00\", timeZone: UTC}", "only one"),
        ("{from: \"22:00\", to: \"22:00\", timeZone: UTC}", "equal"),
        ("{from: \"25:00\", to: \"07:00\", timeZone: UTC}", "HH:MM"),
        ("{from: \"7:00\", to: \"08:00\", timeZone: UTC}", "HH:MM"),
        ("{from: \"+7:00\", to: \"08:00\", timeZone: UTC}", "HH:MM"),
        ("{from: \"07:60\", to: \"08:00\", timeZone: UTC}", "HH:MM"),
    ] {
        let specs: Vec<QuietSpec> = serde_saphyr::from_str(&format!("[{window}]")).unwrap();
        let error = QuietHours::compile(&specs).unwrap_err();
        assert!(error.contains(said), "{window}: {error}");
    }
}

#[test]
fn routes_that_cannot_be_meant_are_refused() {
    let pagerduty = Format::PagerDuty("".into());
    for (routes, format, said) in [
        ("[{events: [denial]}]", &pagerduty, "cannot tell of the event denial"),
        ("[{namespaces: [\"NO\"]}]", &Format::Slack, "matches no name"),
        ("[{releases: [\"\"]}]", &Format::Slack, "matches no name"),
    ] {
        let specs: Vec<RouteSpec> = serde_saphyr::from_str(routes).unwrap();
        let error = Routes::compile(&specs, format).unwrap_err();
        assert!(error.contains(said), "{routes}: {error}");
    }
    for routes in ["[{events: [test]}]", "[{events: [nothing]}]", "[{event: [drift]}]"] {
        assert!(serde_saphyr::from_str::<Vec<RouteSpec>>(routes).is_err(), "{routes}");
    }
}
