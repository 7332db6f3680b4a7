fn sample_version(uid: &str, resource_version: &str, generation: Option<i64>) -> super::ObjectVersion {
    super::ObjectVersion { uid: uid.to_owned(), resource_version: resource_version.to_owned(), generation }
}

mod requests {
    use serde_json::{Value, json};

    use super::super::*;
    use super::sample_version;
    use kubemoor_declare::model::ReleaseId;
    use kubemoor_declare::path::Path;
    use kubemoor_verdict::edit::{EditOutcome, Grounds, VerdictReason};

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
    fn passing_update_is_one_request_only_if_certainly_not_stored() {
        let object = object("ConfigMap");
        let actor = Actor::default();
        let check = |outcome, steps: &[(&str, &str, &str, bool)]| {
            let (repeats, now) = (EditRepeats::default(), Instant::now());
            for (place, (resource_version, generation, new, expected)) in steps.iter().enumerate() {
                let version = sample_version("u", resource_version, generation.parse().ok());
                let (what, verdict) = ((&object, &actor), refused(&object, outcome, json!(new)));
                let time = repeats.is_repeat(what, &verdict, version, now + Duration::from_millis(5));
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
    }

    #[test]
    fn passing_update_is_another_request_after_ten_seconds() {
        let (repeats, start, object) = (EditRepeats::default(), Instant::now(), object("ConfigMap"));
        let verdict = refused(&object, EditOutcome::Warn, json!("Yg=="));
        let actor = Actor::default();
        let note = |resource_version: &str, at| {
            let version = sample_version("u", resource_version, Some(3));
            repeats.is_repeat((&object, &actor), &verdict, version, at)
        };
        assert!(!note("10", start));
        assert!(note("11", start + PASSING));
        assert!(!note("12", start + PASSING * 3));
    }
}

mod versions {
    use serde_json::json;

    use super::super::*;
    use super::sample_version;

    #[test]
    fn generation_counts_only_where_a_compared_field_raises_it() {
        let version = |old: i64, new: i64, changed: &str| {
            let [old, new] = [(old, "7"), (new, "7")].map(|(generation, version)| {
                let metadata = json!({"uid": "u", "resourceVersion": version, "generation": generation});
                json!({"spec": {"replicas": generation}, "metadata": metadata}).to_string()
            });
            let changed: Path = changed.parse().unwrap();
            ObjectVersion::before(&Excerpt::new(&old).unwrap(), &Excerpt::new(&new).unwrap(), [&changed])
        };
        assert_eq!(version(3, 4, "/spec/replicas"), Some(sample_version("u", "7", Some(3))));
        assert_eq!(version(3, 3, "/spec/replicas"), Some(sample_version("u", "7", None)));
        // The update raises it by another field, and a reset of the label alone would not.
        assert_eq!(version(3, 4, "/metadata/labels/tier"), Some(sample_version("u", "7", None)));
        let bare = json!({"metadata": {"name": "web"}}).to_string();
        let bare = Excerpt::new(&bare).unwrap();
        assert_eq!(ObjectVersion::before(&bare, &bare, []), None);
    }
}
