use super::*;

fn at() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn drifting(declared: usize, counts: &[(&str, usize)]) -> Drifting {
    let by_namespace = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Drifting { by_namespace, declared }
}

/// A brake after so much has drifted for long enough, everybody having pulled it.
fn after(declared: usize, counts: &[(&str, usize)]) -> Brake {
    let mut brake = Brake::default();
    pull_for_long(&mut brake, &drifting(declared, counts));
    brake
}

fn pull_for_long(brake: &mut Brake, drifting: &Drifting) {
    let start = at();
    for second in 0..=3 {
        for namespace in drifting.by_namespace.keys() {
            brake.update_state(namespace, drifting, start + Duration::from_secs(second));
        }
    }
}

#[test]
fn brake_stops_repairs_after_sustained_mass_drift_until_manual_request() {
    let mut brake = Brake::default();
    let start = at();
    let of = |count, declared| drifting(declared, &[("a", count)]);
    for (count, declared) in [(10, 20), (11, 110), (1000, 10_000)] {
        assert_eq!(
            brake.update_state("a", &of(count, declared), start),
            BrakeState::Free,
            "{count} of {declared}"
        );
    }
    let second = Duration::from_secs(1);
    assert_eq!(brake.update_state("a", &of(11, 109), start), BrakeState::Pending);
    assert_eq!(brake.update_state("a", &of(10, 109), start + second), BrakeState::Free);
    for at in [2, 3, 4] {
        assert_eq!(brake.update_state("a", &of(11, 109), start + second * at), BrakeState::Pending);
    }
    assert_eq!(
        brake.update_state("a", &of(12, 109), start + second * 5),
        BrakeState::JustEngaged(Some("a".to_owned()))
    );
    // Less drift alone is no person's word.
    assert_eq!(brake.update_state("a", &of(0, 109), start + second * 6), BrakeState::On);
    assert!(brake.release_by_order("a", &of(11, 109)).is_empty() && brake.is_on("a"));
    assert!(!brake.release_by_order("a", &of(10, 109)).is_empty() && !brake.is_on("a"));
    assert!(brake.release_by_order("a", &of(0, 109)).is_empty());
    assert_eq!(brake.update_state("a", &of(11, 109), start + second * 7), BrakeState::Pending);
}

#[test]
fn two_moments_far_apart_do_not_set_it() {
    let mut brake = Brake::default();
    let (start, much) = (at(), drifting(30, &[("a", 30)]));
    assert_eq!(brake.update_state("a", &much, start), BrakeState::Pending);
    // Nothing drifted in between, so nobody pulled.
    assert_eq!(brake.update_state("a", &much, start + Duration::from_secs(3600)), BrakeState::Pending);
    assert_eq!(brake.update_state("a", &much, start + Duration::from_secs(3602)), BrakeState::Pending);
    assert_eq!(
        brake.update_state("a", &much, start + Duration::from_secs(3603)),
        BrakeState::JustEngaged(Some("a".to_owned()))
    );
}

/// For which of the namespaces it is on after so much has drifted of a hundred objects.
#[track_caller]
fn check(counts: &[(&str, usize)], on: &[&str]) {
    let brake = after(100, counts);
    let found: Vec<&str> =
        ["a", "b", "c", "elsewhere"].into_iter().filter(|namespace| brake.is_on(namespace)).collect();
    assert_eq!(found, on, "{counts:?}");
}

#[test]
fn one_namespace_stops_its_own_repairs_and_several_stop_all() {
    let all = ["a", "b", "c", "elsewhere"];
    check(&[("a", 10)], &[]);
    check(&[("a", 11)], &["a"]);
    check(&[("a", 100)], &["a"]);
    check(&[("a", 30), ("b", 1)], &["a"]);
    check(&[("a", 30), ("b", 5), ("c", 5)], &["a"]);
    // Besides the one, too much drifts as well.
    check(&[("a", 30), ("b", 6), ("c", 5)], &all);
    check(&[("a", 30), ("b", 30)], &all);
    // None is by itself what is too much.
    check(&[("a", 6), ("b", 5)], &all);
    check(&[("a", 10), ("b", 1)], &all);
    check(&[("a", 5), ("b", 5)], &[]);
}

#[test]
fn mass_drift_in_one_namespace_does_not_delay_other_namespaces() {
    let mut brake = Brake::default();
    let (start, much) = (at(), drifting(100, &[("a", 30), ("b", 1)]));
    assert_eq!(brake.update_state("a", &much, start), BrakeState::Pending);
    assert_eq!(brake.update_state("b", &much, start), BrakeState::Free);
}

#[test]
fn brake_of_one_namespace_does_not_count_for_others() {
    let mut brake = after(100, &[("a", 30)]);
    pull_for_long(&mut brake, &drifting(100, &[("a", 30), ("b", 10)]));
    assert!(brake.is_on("a") && !brake.is_on("b"));
    pull_for_long(&mut brake, &drifting(100, &[("a", 30), ("b", 11), ("c", 2)]));
    assert!(brake.is_on("b") && !brake.is_on("c"));
    pull_for_long(&mut brake, &drifting(100, &[("a", 30), ("b", 11), ("c", 6), ("d", 6)]));
    assert!(brake.is_on("c") && brake.is_on("elsewhere"));
}

#[test]
fn a_person_eases_what_he_asks_for() {
    let mut brake = after(100, &[("a", 30)]);
    // Of a release elsewhere.
    assert!(brake.release_by_order("b", &drifting(100, &[("a", 30)])).is_empty());
    // Of one of two releases in it.
    assert!(brake.release_by_order("a", &drifting(100, &[("a", 15)])).is_empty());
    assert_eq!(brake.release_by_order("a", &drifting(100, &[("a", 5), ("b", 30)])), [Some("a".to_owned())]);
    assert!(!brake.is_on("a"));

    let mut brake = after(100, &[("a", 30), ("b", 30)]);
    assert!(brake.release_by_order("a", &drifting(100, &[("b", 30)])).is_empty() && brake.is_on("a"));
    assert!(
        !brake.release_by_order("b", &drifting(100, &[("a", 3)])).is_empty() && !brake.is_on("elsewhere")
    );
}

#[test]
fn tally_counts_by_namespace_and_knows_the_oldest() {
    let release = |namespace: &str, name: &str| ReleaseId { namespace: namespace.into(), name: name.into() };
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let mut tally = DriftTally::default();
    for (namespace, name, drifting, oldest) in
        [("a", "x", 2, at(5)), ("a", "y", 1, at(3)), ("b", "z", 0, at(4)), ("a", "y", 3, at(9))]
    {
        tally.set(&release(namespace, name), ReleaseTally { drifting, oldest });
    }
    assert_eq!(tally.oldest(), at(4));
    let drifting = tally.drifting(10, None);
    assert_eq!(
        (drifting.in_namespace("a"), drifting.in_namespace("b"), drifting.total(), drifting.declared),
        (5, 0, 5, 10)
    );
    assert_eq!(tally.drifting(10, Some(&release("a", "x"))).total(), 3);
    for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "z")] {
        tally.set(&release(namespace, name), ReleaseTally::default());
    }
    assert!(tally.oldest().is_none() && tally.drifting(10, None).by_namespace.is_empty());
}
