mod requests {
    use serde_json::{Value, json};

    use super::super::*;
    use kubemoor_declare::model::ReleaseId;
    use kubemoor_declare::path::Path;
    use kubemoor_verdict::edit::{Grounds, VerdictReason};

    fn object(kind: &str) -> ObjectId {
        ObjectId::namespaced("", kind, "shop", "web")
    }

    fn refused(object: &ObjectId, outcome: EditOutcome, new: Value) -> Verdict {
        let path: Path = "/data/key".parse().unwrap();
        let grounds = Grounds {
            release: ReleaseId { namespace: "shop".into(), name: "shop".into() },
            revision: 1,
            fields: vec![FieldFinding::new(object, &path, [None, Some(&json!("YQ==")), Some(&new)])],
            exceptions: Vec::new(),
        };
        Verdict { outcome, reason: VerdictReason::Drift, grounds: Some(grounds.into()), arguable: false }
    }

    #[test]
    fn only_second_look_at_same_refused_update_counts_as_repeat() {
        let (start, kinds) = (Instant::now(), [object("ConfigMap"), object("Secret")]);
        let later = |millis| start + Duration::from_millis(millis);
        let check = |changed: (usize, Operation, &str, EditOutcome, &str), millis, expected| {
            let repeats = EditRepeats::default();
            let note = |(kind, operation, user, outcome, new): (usize, _, &str, _, &str), at| {
                let actor = Actor { user: user.to_owned(), ..Actor::default() };
                let object = &kinds[kind];
                repeats.is_repeat(
                    (object, operation, &actor),
                    &refused(object, outcome, json!(new)),
                    None,
                    at,
                )
            };
            let first = (changed.0, Operation::Update, "alice", EditOutcome::Deny, "Yg==");
            assert!(!note(first, start));
            assert_eq!(note(changed, later(millis)), expected, "{changed:?} {millis}");
        };
        for kind in [0, 1] {
            let same = (kind, Operation::Update, "alice", EditOutcome::Deny, "Yg==");
            check(same, 5, true);
            check(same, 1001, false);
            check((kind, Operation::Update, "bob", EditOutcome::Deny, "Yg=="), 5, false);
            check((kind, Operation::Update, "alice", EditOutcome::Deny, "Yw=="), 5, false);
            check((kind, Operation::Update, "alice", EditOutcome::Warn, "Yg=="), 5, false);
            check((kind, Operation::Delete, "alice", EditOutcome::Deny, "Yg=="), 5, false);
        }
    }

    #[test]
    fn three_refusals_within_a_moment_are_two_requests() {
        let (repeats, now, object) = (EditRepeats::default(), Instant::now(), object("ConfigMap"));
        let verdict = refused(&object, EditOutcome::Deny, json!("Yg=="));
        let actor = Actor::default();
        let times =
            [0; 4].map(|_| repeats.is_repeat((&object, Operation::Update, &actor), &verdict, None, now));
        assert_eq!(times, [false, true, false, true]);
    }

    #[test]
    fn passing_update_is_one_request_only_if_certainly_not_stored() {
        let object = object("ConfigMap");
        let actor = Actor::default();
        let check = |outcome, steps: &[(&str, &str, &str, bool)]| {
            let (repeats, now) = (EditRepeats::default(), Instant::now());
            for (place, (resource_version, generation, new, expected)) in steps.iter().enumerate() {
                let version = ObjectVersion::sample("u", resource_version, generation.parse().ok());
                let (what, verdict) =
                    ((&object, Operation::Update, &actor), refused(&object, outcome, json!(new)));
                let time = repeats.is_repeat(what, &verdict, Some(version), now + Duration::from_millis(5));
                assert_eq!(time, *expected, "{place} of {steps:?}");
            }
        };
        let (first, again) = (false, true);
        for outcome in [EditOutcome::Warn, EditOutcome::Record] {
            // The object changed meanwhile, but not by this update: its generation would be higher, or its value new.
            check(
                outcome,
                &[("10", "3", "Yg==", first), ("17", "3", "Yg==", again), ("19", "3", "Yg==", again)],
            );
            check(outcome, &[("10", "3", "Yg==", first), ("17", "4", "Yg==", again)]);
            check(outcome, &[("10", "", "Yg==", first), ("11", "", "Yg==", again)]);
            // It may have been stored and set back.
            check(outcome, &[("10", "3", "Yg==", first), ("17", "5", "Yg==", first)]);
            check(outcome, &[("10", "", "Yg==", first), ("12", "", "Yg==", first)]);
            check(outcome, &[("10", "", "Yg==", first), ("11", "1", "Yg==", first)]);
            check(outcome, &[("17", "4", "Yg==", first), ("10", "3", "Yg==", first)]);
            // Another update.
            check(outcome, &[("10", "3", "Yg==", first), ("17", "3", "Yw==", first)]);
            // Two requests at one time, each of which is asked about twice.
            check(
                outcome,
                &[
                    ("10", "3", "Yg==", first),
                    ("10", "3", "Yg==", first),
                    ("17", "3", "Yg==", again),
                    ("17", "3", "Yg==", again),
                    ("17", "3", "Yg==", first),
                ],
            );
        }
        // No version tells more of what is reverted at once.
        check(EditOutcome::Revert, &[("10", "3", "Yg==", first), ("17", "3", "Yg==", first)]);
    }

    #[test]
    fn passing_update_is_another_request_after_ten_seconds() {
        let (repeats, start, object) = (EditRepeats::default(), Instant::now(), object("ConfigMap"));
        let verdict = refused(&object, EditOutcome::Warn, json!("Yg=="));
        let actor = Actor::default();
        let note = |resource_version: &str, at| {
            let version = ObjectVersion::sample("u", resource_version, Some(3));
            repeats.is_repeat((&object, Operation::Update, &actor), &verdict, Some(version), at)
        };
        assert!(!note("10", start));
        assert!(note("11", start + PASSING));
        assert!(!note("12", start + PASSING * 3));
    }
}

mod versions {
    use serde_json::json;

    use super::super::*;

    #[test]
    fn generation_counts_only_where_a_compared_field_raises_it() {
        let version = |old: i64, new: i64, changed: &str| {
            let [old, new] = [(old, "7"), (new, "7")].map(|(generation, version)| {
                let metadata = json!({"uid": "u", "resourceVersion": version, "generation": generation});
                json!({"spec": {"replicas": generation}, "metadata": metadata}).to_string()
            });
            let changed: Path = changed.parse().unwrap();
            ObjectVersion::before(&Excerpt::new(&old), &Excerpt::new(&new), [&changed])
        };
        assert_eq!(version(3, 4, "/spec/replicas"), Some(ObjectVersion::sample("u", "7", Some(3))));
        assert_eq!(version(3, 3, "/spec/replicas"), Some(ObjectVersion::sample("u", "7", None)));
        // The update raises it by another field, and a reset of the label alone would not.
        assert_eq!(version(3, 4, "/metadata/labels/tier"), Some(ObjectVersion::sample("u", "7", None)));
        let bare = json!({"metadata": {"name": "web"}}).to_string();
        assert_eq!(ObjectVersion::before(&Excerpt::new(&bare), &Excerpt::new(&bare), []), None);
    }
}

mod denied {
    use super::super::*;

    #[test]
    fn flood_of_denied_updates_pushes_out_the_oldest() {
        let (mut denied, now) = (DeniedUpdates::default(), Instant::now());
        let many = MOST as u64;
        assert!((0..many).all(|update| !denied.note(update, now)));
        assert!(denied.note(many - 1, now), "the newest is known");
        assert!(!denied.note(many, now));
        assert!(!denied.note(0, now), "the oldest had to go");
        assert!(denied.first.len() <= MOST && denied.order.len() <= MOST);
        assert!(!denied.note(1, now + DENIED_SPAN * 2));
        assert_eq!((denied.first.len(), denied.order.len()), (1, 1));
    }
}
