use super::*;

#[test]
fn order_from_before_another_replica_led_is_not_carried_out() {
    let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
    let mut asked = RepairOrders::default();
    asked.add_order(release.clone(), "1".to_owned(), None);
    asked.end_term();
    assert!(asked.take(&release).is_none());
    // Nor is one that was under way.
    asked.add_order(release.clone(), "2".to_owned(), None);
    let order = asked.take(&release).unwrap();
    asked.end_term();
    asked.give_back(&release, order);
    assert!(asked.take(&release).is_none());
    // It is given again to whoever leads then.
    asked.add_order(release.clone(), "2".to_owned(), None);
    let order = asked.take(&release).unwrap();
    asked.give_back(&release, order);
    assert!(asked.take(&release).is_some());
}

#[test]
fn answer_from_before_another_replica_led_counts_once_its_order_is_given_again() {
    let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
    let answer = |result| OrderAnswer { at: "1".to_owned(), result, message: String::new() };
    // Never, after the answer, and while it is carried out.
    for given_again in [None, Some(false), Some(true)] {
        let mut asked = RepairOrders::default();
        asked.add_order(release.clone(), "1".to_owned(), None);
        let order = asked.take(&release).unwrap();
        asked.end_term();
        if given_again == Some(true) {
            asked.add_order(release.clone(), "1".to_owned(), None);
        }
        asked.set_answer(&release, Some(&order), answer(OrderResult::Repaired));
        assert!(asked.is_done(&release, "1") && asked.take(&release).is_none());
        if given_again == Some(false) {
            asked.renew_answer(&release);
        }
        assert_eq!(asked.answer(&release).is_some(), given_again.is_some(), "{given_again:?}");
    }
}

#[test]
fn reconcile_request_stays_for_waiting_objects_until_a_new_request() {
    let object = |name: &str| ObjectId::namespaced("", "ConfigMap", "n", name);
    let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
    let mut asked = RepairOrders::default();
    assert!(asked.take(&release).is_none());
    asked.add_order(release.clone(), "1".to_owned(), None);
    assert_eq!(asked.waits(&release).as_deref(), Some("1"));
    let order = asked.take(&release).unwrap();
    assert!(order.includes(&object("a")));
    asked.leave(&release, order, HashSet::from([object("b")]));
    let rest = asked.take(&release).unwrap();
    assert!(rest.includes(&object("b")) && !rest.includes(&object("a")));
    asked.leave(&release, rest.clone(), HashSet::new());
    assert!(asked.take(&release).is_none());
    // Asked for while the first was under way.
    asked.add_order(release.clone(), "2".to_owned(), None);
    asked.leave(&release, rest, HashSet::from([object("b")]));
    assert!(asked.take(&release).is_some_and(|order| order.at == "2" && order.includes(&object("a"))));
}

#[test]
fn an_order_that_is_told_again_is_the_same_order() {
    let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
    let answer = |result| OrderAnswer { at: "1".to_owned(), result, message: String::new() };
    let tell = |asked: &mut RepairOrders, at: &str| asked.add_order(release.clone(), at.to_owned(), None);
    let mut asked = RepairOrders::default();
    tell(&mut asked, "1");
    let mut order = asked.take(&release).unwrap();
    order.rest = Some(HashSet::new());
    // While it is carried out, and while some of it waits.
    tell(&mut asked, "1");
    asked.set_answer(&release, None, answer(OrderResult::Waiting));
    asked.give_back(&release, order);
    assert!(asked.take(&release).is_some_and(|order| order.rest.is_some()));
    tell(&mut asked, "1");
    asked.set_answer(&release, None, answer(OrderResult::Repaired));
    assert!(asked.take(&release).is_none());
    // After it was answered.
    tell(&mut asked, "1");
    assert!(asked.take(&release).is_none());
    tell(&mut asked, "2");
    assert!(asked.take(&release).is_some());
}

#[test]
fn answer_says_what_was_done_and_what_was_not() {
    let object = |name: &str| ObjectId {
        group: "".into(),
        kind: "ConfigMap".into(),
        namespace: None,
        name: name.into(),
    };
    let some = |name: &str| vec![(object(name), "because".to_owned())];
    for (repaired, waiting, left, result, message) in [
        (0, vec![], vec![], OrderResult::NothingToDo, "nothing had to be repaired"),
        (1, vec![], vec![], OrderResult::Repaired, "1 object is repaired"),
        (
            2,
            vec![],
            some("a"),
            OrderResult::Refused,
            "2 objects are repaired; 1 object stays as it is: ConfigMap/a: because",
        ),
        (
            0,
            some("a"),
            some("b"),
            OrderResult::Waiting,
            "1 object has to wait: ConfigMap/a: because; 1 object stays as it is: ConfigMap/b: because",
        ),
    ] {
        let given = answer("now", repaired, &waiting, &left, None);
        assert_eq!((given.at.as_str(), given.result, given.message.as_str()), ("now", result, message));
    }
}
