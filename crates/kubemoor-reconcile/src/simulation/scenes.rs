//! Histories that hardly any seed leads to, each written out, with what has to come of it.
//!
//! Whatever a guard does here is held to the invariants as in any other run.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use super::helm::manifest;
use super::world::{World, object};
use super::{INSISTENCE, Plan, SEALS, SimulationRun};
use crate::event::ApiWork;

/// The field that people change here.
const FIELD: (&str, &str) = ("data", "a");

/// The releases, of which one is written by server-side apply and the other by patches.
const BOTH: [usize; 2] = [0, 1];

/// Whether a piece of work is the one that is awaited.
type IsNext = fn(&ApiWork) -> bool;

fn chart(release: &str, count: usize, value: &str) -> Arc<str> {
    let data = BTreeMap::from([("a".to_owned(), value.to_owned())]);
    manifest(&(0..count).map(|number| (format!("{release}-{number}"), data.clone())).collect())
}

/// A run in which nothing happens by itself, with a release of so many ConfigMaps installed and
/// seen.
fn installed(trouble: u32, place: usize, count: usize) -> SimulationRun {
    let mut run = SimulationRun::new(Plan { seed: 1, steps: 0, trouble });
    run.insists = None;
    let chart = chart(&run.helms[place].id.name, count, "v1");
    run.helms[place].upgrade(&mut run.world, &chart);
    while run.helms[place].is_at_work() {
        run.helms[place].step(&mut run.world);
        // Else the record would appear as deployed.
        run.settle(SignedDuration::from_millis(10));
    }
    settle(&mut run, 1);
    assert_eq!(run.world.drift(), Vec::<String>::new());
    run
}

fn assert_sound(world: &World) {
    assert_eq!(world.violation, None, "{}", world.history.join("\n"));
}

/// So many minutes go by.
fn settle(run: &mut SimulationRun, minutes: i64) {
    run.settle(SignedDuration::from_mins(minutes));
    assert_sound(&run.world);
}

/// The guard ends, and another one begins.
fn restart(run: &mut SimulationRun) {
    run.guards[0] = run.guard(0);
}

/// Somebody gives the field of an object this value, or deletes the object.
fn harm(run: &mut SimulationRun, name: &str, value: Option<&str>) {
    match value {
        Some(value) => {
            let changes = BTreeMap::from([((FIELD.0, FIELD.1.to_owned()), Some(value.to_owned()))]);
            run.world.change(&object(name), "kubectl", |stored, now| stored.update("kubectl", &changes, now));
        }
        None => run.world.remove(&object(name), "kubectl"),
    }
}

/// The guard hears of objects and works until this is what it does next. Whoever asks the API
/// server about a doubt looks again a moment later, so time goes by where nothing is left to do.
fn work_until(run: &mut SimulationRun, is: IsNext) {
    let SimulationRun { world, guards, random, .. } = run;
    let guard = &mut guards[0];
    for _ in 0..100 {
        if guard.is_next(is) {
            return;
        }
        if !guard.has_work() {
            world.now = guard.due().map_or(world.now, |due| due.max(world.now));
        }
        guard.lead(world);
        guard.wake(world);
        guard.hear_object(world);
        guard.work(world, random, false);
        guard.tell(world, random);
    }
    panic!("that is never next: {}", world.history.join("\n"));
}

/// What is read last before a write, by release and what was done to the object.
const LAST_READS: [(usize, Option<&str>, IsNext); 4] =
    [(0, Some("x"), is_document), (0, None, is_document), (1, Some("x"), is_records), (1, None, is_document)];

/// The guard does what it does next, and learns what came of it.
fn do_next(run: &mut SimulationRun) {
    run.guards[0].work(&mut run.world, &mut run.random, false);
    run.guards[0].tell(&mut run.world, &mut run.random);
}

fn is_object(work: &ApiWork) -> bool {
    matches!(work, ApiWork::ReadObject { .. })
}

fn is_document(work: &ApiWork) -> bool {
    matches!(work, ApiWork::ReadDocument { .. })
}

fn is_records(work: &ApiWork) -> bool {
    matches!(work, ApiWork::ReadRecords { .. })
}

#[test]
fn a_sweep_stops_repairs_until_somebody_orders_them() {
    let mut run = installed(0, 0, 30);
    for number in 0..20 {
        harm(&mut run, &format!("web-{number}"), None);
    }
    settle(&mut run, 30);
    assert_eq!(run.world.writes, 0);
    assert!(run.guards[0].reports.values().all(|report| report.control.braked));
    run.world.orders.insert(run.helms[0].id.clone(), "order".to_owned());
    settle(&mut run, 1);
    assert_eq!((run.world.drift(), run.world.orders.len()), (Vec::new(), 0));
    assert_eq!(run.world.writes, 20);
}

#[test]
fn report_names_the_manager_that_keeps_reverting_a_repair() {
    let mut run = installed(INSISTENCE, 0, 3);
    run.insists = Some("web-0");
    settle(&mut run, 10);
    let report = run.guards[0].reports.values().next().unwrap();
    let contested = report.drifted.iter().map(|it| (it.object.name.as_str(), it.contested_by()));
    assert_eq!(contested.collect::<Vec<_>>(), [("web-0", Some("insister"))]);
    run.insists = None;
    settle(&mut run, 6);
    assert_eq!(run.world.drift(), Vec::<String>::new());
}

#[test]
fn record_rewritten_during_its_read_is_not_applied() {
    for (place, value) in [(0, Some("x")), (0, None), (1, None)] {
        let mut run = installed(0, place, 3);
        let id = run.helms[place].id.clone();
        harm(&mut run, &format!("{}-0", id.name), value);
        work_until(&mut run, is_document);
        run.world.tamper(&id);
        do_next(&mut run);
        settle(&mut run, 30);
        assert_eq!(run.world.writes, 0, "{id} {value:?}");
    }
}

#[test]
fn record_rewritten_before_its_read_is_not_applied() {
    for place in BOTH {
        for value in [Some("x"), None] {
            let mut run = installed(0, place, 3);
            let id = run.helms[place].id.clone();
            harm(&mut run, &format!("{}-0", id.name), value);
            work_until(&mut run, is_records);
            // What it declares of this object stays the same.
            let (first, other) = (chart(&id.name, 1, "v1"), chart(&id.name, 3, "e1"));
            run.world.rewrite(&id, |_| other.replacen(&*chart(&id.name, 1, "e1"), &first, 1));
            do_next(&mut run);
            settle(&mut run, 30);
            assert_eq!(run.world.writes, 0, "{id} {value:?}");
        }
    }
}

#[test]
fn nothing_is_written_once_the_lead_is_lost() {
    for (place, value, next) in LAST_READS {
        let mut run = installed(0, place, 3);
        let name = format!("{}-0", run.helms[place].id.name);
        harm(&mut run, &name, value);
        work_until(&mut run, next);
        run.world.now += SignedDuration::from_secs(11);
        run.guards[0].note_lead(&mut run.world);
        do_next(&mut run);
        assert!(!run.guards[0].is_next(ApiWork::is_write), "{place} {value:?}");
        settle(&mut run, 1);
        assert_eq!((run.world.writes, run.world.drift()), (1, Vec::new()), "{place} {value:?}");
    }
}

#[test]
fn change_just_before_the_repair_write_is_also_repaired() {
    for place in BOTH {
        let mut run = installed(0, place, 3);
        let name = format!("{}-0", run.helms[place].id.name);
        harm(&mut run, &name, Some("x"));
        work_until(&mut run, ApiWork::is_write);
        harm(&mut run, &name, Some("y"));
        do_next(&mut run);
        settle(&mut run, 1);
        assert_eq!((run.world.writes, run.world.drift()), (2, Vec::new()), "{name}");
    }
}

#[test]
fn object_that_goes_while_nobody_watches_is_missed() {
    for place in BOTH {
        for is_known in [true, false] {
            let mut run = installed(0, place, 3);
            let name = format!("{}-0", run.helms[place].id.name);
            harm(&mut run, &name, None);
            if is_known {
                run.guards[0].expire();
            } else {
                run.world.kept.clear();
                restart(&mut run);
            }
            settle(&mut run, 1);
            // What it has never seen alive the guard reports.
            assert_eq!(run.world.drift().len(), usize::from(!is_known), "{place} {is_known}");
            assert!(run.guards[0].reports.values().all(|it| it.drifted.len() == usize::from(!is_known)));
        }
    }
}

#[test]
fn manifest_that_helm_has_left_behind_is_not_written() {
    for (place, value) in [(0, Some("x")), (0, None), (1, None)] {
        for count in [1, 2] {
            let mut run = installed(0, place, 2);
            let id = run.helms[place].id.clone();
            harm(&mut run, &format!("{}-1", id.name), value);
            work_until(&mut run, is_document);
            let chart = chart(&id.name, count, "v1");
            run.helms[place].upgrade(&mut run.world, &chart);
            while run.helms[place].is_at_work() {
                run.helms[place].step(&mut run.world);
            }
            do_next(&mut run);
            assert!(!run.guards[0].is_next(ApiWork::is_write), "{id} {value:?} {count}");
            settle(&mut run, 30);
            assert_eq!((run.world.writes, run.world.drift()), (0, Vec::new()), "{id} {value:?} {count}");
        }
    }
}

#[test]
fn object_uninstalled_during_its_recreation_is_deleted_again() {
    for place in BOTH {
        for is_answered in [true, false] {
            let mut run = installed(0, place, 2);
            let name = format!("{}-1", run.helms[place].id.name);
            harm(&mut run, &name, None);
            work_until(&mut run, ApiWork::is_write);
            run.helms[place].uninstall(&mut run.world);
            while run.helms[place].is_at_work() {
                run.helms[place].step(&mut run.world);
            }
            if is_answered {
                do_next(&mut run);
            } else {
                run.guards[0].work_unanswered(&mut run.world);
            }
            settle(&mut run, 30);
            assert!(!run.world.objects.contains_key(&object(&name)), "{name} {is_answered}");
        }
    }
}

#[test]
fn guard_writes_nothing_after_it_learns_of_a_helm_operation() {
    for (place, value, next) in LAST_READS {
        let mut run = installed(0, place, 3);
        let id = run.helms[place].id.clone();
        harm(&mut run, &format!("{}-0", id.name), value);
        work_until(&mut run, next);
        let chart = chart(&id.name, 3, "v2");
        run.helms[place].upgrade(&mut run.world, &chart);
        run.helms[place].step(&mut run.world);
        run.guards[0].hear_record(&mut run.world);
        settle(&mut run, 10);
        assert_eq!(run.world.writes, 0, "{id} {value:?}");
    }
}

#[test]
fn ownership_is_not_returned_during_a_known_helm_operation() {
    for is_at_work in [false, true] {
        let mut run = installed(0, 0, 2);
        let id = run.helms[0].id.clone();
        run.helms[0].upgrade(&mut run.world, &chart(&id.name, 2, "v2"));
        run.helms[0].step(&mut run.world);
        run.helms[0].fail(&run.world, false);
        run.helms[0].step(&mut run.world);
        // A writer that changes a value back owns it.
        harm(&mut run, "web-0", Some("x"));
        harm(&mut run, "web-0", Some("v1"));
        settle(&mut run, 1);
        run.world.orders.insert(id.clone(), "order".to_owned());
        work_until(&mut run, is_document);
        do_next(&mut run);
        work_until(&mut run, is_object);
        if is_at_work {
            run.helms[0].upgrade(&mut run.world, &chart(&id.name, 2, "v2"));
            run.helms[0].step(&mut run.world);
            run.guards[0].hear_record(&mut run.world);
        }
        settle(&mut run, 10);
        assert_eq!(run.world.writes, usize::from(!is_at_work));
    }
}

#[test]
fn restarted_guard_does_not_write_values_only_a_record_declares() {
    for place in BOTH {
        for is_gone in [false, true] {
            let mut run = installed(0, place, 3);
            let name = run.helms[place].id.name.clone();
            run.helms[place].forge(&mut run.world, &chart(&name, 4, "e1"));
            if is_gone {
                harm(&mut run, &format!("{name}-0"), None);
            }
            restart(&mut run);
            settle(&mut run, 30);
            assert_eq!(run.world.writes, 0, "{name} {is_gone}");
        }
    }
}

#[test]
fn repairs_wait_when_a_record_appears_as_deployed() {
    for place in BOTH {
        let mut run = installed(0, place, 3);
        let name = run.helms[place].id.name.clone();
        run.helms[place].forge(&mut run.world, &chart(&name, 3, "v1"));
        harm(&mut run, &format!("{name}-0"), None);
        settle(&mut run, 9);
        assert_eq!(run.world.writes, 0, "{name}");
        settle(&mut run, 3);
        assert_eq!(run.world.drift(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn addition_that_was_there_before_the_guard_stays() {
    for place in BOTH {
        let mut run = installed(SEALS, place, 3);
        let changed = object(&format!("{}-0", run.helms[place].id.name));
        let note = ("data", "note".to_owned());
        let changes = BTreeMap::from([(note.clone(), Some("n".to_owned()))]);
        // No guard runs, and none has left word of what it saw.
        run.world.change(&changed, "kubectl", |stored, now| stored.update("kubectl", &changes, now));
        run.world.kept.clear();
        restart(&mut run);
        settle(&mut run, 30);
        assert!(run.world.objects[&changed].fields.contains_key(&note));
        assert_eq!(run.world.writes, 0);
    }
}

#[test]
fn value_ignored_when_its_record_appeared_is_not_written() {
    for place in BOTH {
        let mut run = installed(0, place, 3);
        let name = run.helms[place].id.name.clone();
        run.rule(true);
        let foreign = chart(&name, 3, "v1").replace("data:\n", "data:\n  b: \"e1\"\n").into();
        run.helms[place].forge(&mut run.world, &foreign);
        settle(&mut run, 15);
        run.rule(false);
        settle(&mut run, 30);
        assert_eq!(run.world.writes, 0, "{name}");
        assert_eq!(run.world.drift().len(), 3, "{name}");
    }
}

#[test]
fn answered_order_is_not_executed_again_when_it_is_repeated() {
    let mut run = installed(0, 0, 30);
    let id = run.helms[0].id.clone();
    run.world.orders.insert(id.clone(), "order".to_owned());
    run.guards[0].note_lead(&mut run.world);
    // The guard does what it was told, leads no more by then, and nobody stores its answer.
    run.world.now += SignedDuration::from_secs(11);
    run.guards[0].note_lead(&mut run.world);
    while run.guards[0].has_work() {
        do_next(&mut run);
    }
    assert!(run.world.orders.contains_key(&id) && run.guards[0].has_answered(&id, "order"));
    // An order would let all of this be put right.
    for number in 0..20 {
        harm(&mut run, &format!("web-{number}"), None);
    }
    settle(&mut run, 30);
    assert_eq!((run.world.writes, run.world.orders.len()), (0, 0));
}

#[test]
fn object_that_goes_while_no_guard_runs_returns_by_helms_own_field_manager() {
    for place in BOTH {
        let mut run = installed(0, place, 1);
        let name = format!("{}-0", run.helms[place].id.name);
        harm(&mut run, &name, None);
        restart(&mut run);
        settle(&mut run, 1);
        assert_eq!((run.world.writes, run.world.drift()), (1, Vec::new()), "{name}");
    }
}
