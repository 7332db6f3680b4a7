use super::*;

fn workload(name: &str) -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", "shop", name)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn shop() -> Vec<ReleaseId> {
    vec![ReleaseId { namespace: "shop".into(), name: "shop".into() }]
}

#[test]
fn number_of_remembered_departed_autoscalers_is_bounded() {
    let mut departed = Departed::default();
    let room = i64::try_from(REMEMBERED).unwrap();
    for number in 0..room + 3 {
        let forgotten = departed.note(&workload(&number.to_string()), Vec::new(), at(number));
        let oldest = number.checked_sub(room).filter(|oldest| *oldest >= 0);
        assert_eq!(forgotten, oldest.map(|oldest| workload(&oldest.to_string())), "{number}");
    }
    assert_eq!(departed.0.len(), REMEMBERED);
    assert!(departed.of(&workload("2")).is_none() && departed.of(&workload("3")).is_some());
}

#[test]
fn departed_autoscaler_counts_only_for_times_before_its_deletion() {
    let mut departed = Departed::default();
    let since = |departed: &Departed, second| departed.of(&workload("web")).unwrap().since(at(second));
    departed.note(&workload("web"), shop(), at(10));
    assert_eq!(since(&departed, 9), Some(shop()));
    assert_eq!(since(&departed, 10), None);
    // Somebody's own goes later, beside the memory of the declared one.
    departed.note(&workload("web"), Vec::new(), at(20));
    assert_eq!(since(&departed, 9), Some(shop()));
    assert_eq!(since(&departed, 10), Some(Vec::new()));
    assert_eq!(since(&departed, 20), None);
}

#[test]
fn somebodys_own_autoscaler_is_no_successor_of_a_declared_one() {
    let mut departed = Departed::default();
    departed.note(&workload("web"), shop(), at(10));
    departed.succeed(&workload("web"), false);
    assert!(departed.of(&workload("web")).is_some());
    departed.succeed(&workload("web"), true);
    assert!(departed.of(&workload("web")).is_none());
    departed.note(&workload("web"), Vec::new(), at(30));
    departed.succeed(&workload("web"), false);
    assert!(departed.of(&workload("web")).is_none());
    departed.note(&workload("web"), shop(), at(40));
    departed.forget(&workload("web"));
    assert!(departed.of(&workload("web")).is_none());
}
