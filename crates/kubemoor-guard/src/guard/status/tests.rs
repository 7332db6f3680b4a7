mod cache {
    use serde_json::json;

    use super::super::*;

    #[test]
    fn a_guarded_release_comes_out_as_it_went_in() {
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let drift = |number| {
            json!({
                "object": {"kind": "ConfigMap", "name": format!("config-{number}")}, "type": "Missing",
                "since": "2026-05-01T12:00:00Z",
            })
        };
        let mut guarded: Box<GuardedRelease> = serde_json::from_value(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
                     "annotations": {"a": "b"}, "managedFields": [{"manager": "kubemoor"}]},
        "spec": {"suspend": true, "reconcileAt": "now"},
        "status": {"declared": 40, "drifted": 40, "drifts": (0..40).map(drift).collect::<Vec<_>>()},
    }))
    .unwrap();
        let mut shelf = StatusCache::default();
        shelf.put(release.clone(), guarded.clone());
        guarded.metadata.managed_fields = None;
        let text = |guarded: &GuardedRelease| serde_json::to_value(guarded).unwrap();
        assert_eq!(text(&shelf.get(&release).unwrap()), text(&guarded));
        for (version, expected) in [("6", "7"), ("8", "8")] {
            let mut other = guarded.clone();
            other.metadata.resource_version = Some(version.to_owned());
            shelf.put_newer(release.clone(), other);
            let held = shelf.get(&release).unwrap().metadata.resource_version;
            assert_eq!(held.as_deref(), Some(expected));
        }
        assert!(shelf.0[&release].body.size() * 3 < text(&guarded).to_string().len());
        shelf.remove(&release);
        assert!(shelf.get(&release).is_none() && shelf.all().next().is_none());
    }
}

mod due {
    use super::super::*;

    fn release(name: &str) -> ReleaseId {
        ReleaseId { namespace: "n".into(), name: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_release_is_due_once_at_its_soonest_time() {
        let mut due = DueStatuses::default();
        let start = Instant::now();
        for (name, seconds) in [("a", 5), ("b", 3), ("a", 2), ("a", 9)] {
            due.schedule_check(release(name), Duration::from_secs(seconds));
        }
        assert_eq!((due.next(), due.times.len()), (Some(start + Duration::from_secs(2)), 2));
        let popped = [due.pop(), due.pop(), due.pop()].map(|it| it.map(|(release, _)| release));
        assert_eq!(popped, [Some(release("a")), Some(release("b")), None]);
        assert_eq!((due.next(), due.times.len()), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn agreements_come_before_all_other_changes() {
        let mut due = DueStatuses::default();
        for name in ["a", "b", "c"] {
            due.schedule_check(release(name), Duration::ZERO);
        }
        due.schedule_check_first(release("c"), Duration::from_millis(100));
        assert_eq!((due.pop(), due.times.len()), (Some((release("a"), false)), 2));
        tokio::time::advance(Duration::from_millis(100)).await;
        let popped: Vec<_> = std::iter::from_fn(|| due.pop()).collect();
        assert_eq!(popped, [(release("c"), true), (release("b"), false)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_write_is_tried_ever_more_seldom() {
        let mut due = DueStatuses::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            due.retry(release("a"));
            pauses.push(due.next().unwrap() - Instant::now());
            assert_eq!(due.pop(), Some((release("a"), false)));
        }
        assert!(pauses[0] <= AGAIN && pauses[8] > LONGEST / 2 && pauses[8] <= LONGEST, "{pauses:?}");
        due.clear_failures(&release("a"));
        due.retry(release("a"));
        assert!(due.next().unwrap() - Instant::now() <= AGAIN);
    }
}
