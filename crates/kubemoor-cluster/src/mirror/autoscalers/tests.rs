mod autoscalers {
    use serde_json::json;

    use super::super::*;
    use crate::sample_releases::{SampleRecord, assembled};

    fn hpa(name: &str, spec: Value, owners: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": owners}, "spec": spec})
    }

    fn deployment(name: &str) -> ObjectId {
        ObjectId::namespaced("apps", "Deployment", "shop", name)
    }

    fn spec(target: &str, minimum: Option<i32>, maximum: i32) -> Value {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
        json!({"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum})
    }

    #[test]
    fn an_autoscaler_names_its_workload_and_how_far_it_scales() {
        let (id, scales) = read(&hpa("web", spec("web", Some(2), 9), json!([]))).unwrap();
        assert_eq!((id.group.as_str(), id.name.as_str()), ("autoscaling", "web"));
        assert_eq!((scales.target, scales.minimum, scales.maximum), (deployment("web"), 2, 9));
    }

    #[test]
    fn without_a_minimum_one_replica_is_the_fewest() {
        let (_, scales) = read(&hpa("web", spec("web", None, 9), json!([]))).unwrap();
        assert_eq!(scales.minimum, 1);
    }

    #[test]
    fn only_the_controller_among_the_owners_made_it() {
        let owners = json!([
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"},
            {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "2", "controller": true},
        ]);
        let maker = read(&hpa("keda-hpa-web", spec("web", None, 9), owners)).unwrap().1.maker.unwrap();
        assert_eq!(
            (maker.group.as_str(), maker.kind.as_str(), maker.name.as_str()),
            ("keda.sh", "ScaledObject", "web")
        );
    }

    #[test]
    fn malformed_autoscaler_is_ignored() {
        for object in [json!({}), json!({"metadata": {"name": "web", "namespace": "shop"}}), json!([1])] {
            assert_eq!(read(&object), None, "{object}");
        }
    }

    /// A release of `namespace` with this manifest, as the index knows it.
    fn index(releases: &[(&str, &str)]) -> Index {
        let mut index = Index::default();
        for (namespace, manifest) in releases {
            index.set(assembled(SampleRecord { namespace, manifest, ..SampleRecord::default() }, None));
        }
        index
    }

    #[test]
    fn autoscaler_is_declared_directly_or_by_a_keda_scaledobject() {
        const HPA: &str =
            "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n";
        const SCALED: &str = "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: web}\nspec:\n  scaleTargetRef: {name: web}\n";
        const RENAMED: &str = "  advanced: {horizontalPodAutoscalerConfig: {name: web-hpa}}\n";
        let check = |name: &str, owner: Value, manifest: &str, declared: bool| {
            let (id, scales) = read(&hpa(name, spec("web", None, 9), owner)).unwrap();
            let index = index(&[("shop", manifest)]);
            let autoscaler = scales.autoscaler(&id, |object| claims(&index, object));
            assert_eq!(!autoscaler.declared_by.is_empty(), declared, "{name}: {autoscaler:?}");
        };
        let owner = |api_version: &str, kind: &str, controller: bool| json!([{"apiVersion": api_version, "kind": kind, "name": "web", "uid": "2", "controller": controller}]);
        let kedas = owner("keda.sh/v1alpha1", "ScaledObject", true);
        check("web", json!([]), HPA, true);
        check("other", json!([]), HPA, false);
        check("keda-hpa-web", kedas.clone(), SCALED, true);
        check("keda-hpa-web", kedas.clone(), HPA, false);
        // A user who makes an autoscaler may write any owner, and cannot choose a name that is taken.
        check("mine", kedas.clone(), SCALED, false);
        check("keda-hpa-web", owner("keda.sh/v1alpha1", "ScaledObject", false), SCALED, false);
        check("web-hpa", kedas.clone(), &format!("{SCALED}{RENAMED}"), true);
        check("keda-hpa-web", kedas, &format!("{SCALED}{RENAMED}"), false);
        // What it is declared for is another workload.
        check(
            "keda-hpa-web",
            owner("keda.sh/v1alpha1", "ScaledObject", true),
            &SCALED.replace("Ref: {name: web}", "Ref: {name: api}"),
            false,
        );
        let others = owner("example.com/v1", "Scaler", true);
        let scaler = "apiVersion: example.com/v1\nkind: Scaler\nmetadata: {name: web}\n";
        check("web-scaler", others, scaler, false);
    }

    #[test]
    fn each_autoscaler_that_goes_is_remembered_with_what_declared_it() {
        const HPA: &str = "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\n";
        let (mut known, declared) = (AutoscalerIndex::default(), index(&[("shop", HPA)]));
        let taken_in = |known: &mut AutoscalerIndex, name: &str| {
            let (id, scales) = read(&hpa(name, spec("web", None, 3), json!([]))).unwrap();
            known.put(&id, (scales, AutoscalerState::default()), &declared);
            id
        };
        let left = |known: &AutoscalerIndex| {
            let departure = known.departed.0.get(&deployment("web"));
            departure.map(|it| it.since(Timestamp::UNIX_EPOCH).unwrap().declared_by.len())
        };
        let (a, b) = (taken_in(&mut known, "a"), taken_in(&mut known, "b"));
        assert_eq!(left(&known), None);
        assert_eq!(known.take(&b, &declared), [deployment("web")]);
        assert_eq!(left(&known), Some(0));
        // Also where its release has dropped it before.
        assert_eq!(known.take(&a, &Index::default()), [deployment("web")]);
        assert_eq!(left(&known), Some(1));
        taken_in(&mut known, "b");
        assert_eq!(left(&known), Some(1));
        taken_in(&mut known, "a");
        assert_eq!(left(&known), None);
        // Known before any release was, and of a release that goes first.
        let mut known = AutoscalerIndex::default();
        let (a, scales) = read(&hpa("a", spec("web", None, 3), json!([]))).unwrap();
        known.put(&a, (scales, AutoscalerState::default()), &Index::default());
        known.autoscalers.get_mut(&a).unwrap().claim(&a, &declared);
        known.take(&a, &Index::default());
        assert_eq!(left(&known), Some(1));
        taken_in(&mut known, "a");
        assert!(!known.take(&a, &declared).is_empty() && known.take(&a, &declared).is_empty());
    }
}

mod departed {
    use super::super::*;

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
        let mut departed = DeletedAutoscalers::default();
        let room = i64::try_from(REMEMBERED).unwrap();
        for number in 0..room + 3 {
            let forgotten = departed.note(&workload(&number.to_string()), Vec::new(), None, at(number));
            let oldest = number.checked_sub(room).filter(|oldest| *oldest >= 0);
            assert_eq!(forgotten, oldest.map(|oldest| workload(&oldest.to_string())), "{number}");
        }
        assert_eq!(departed.0.len(), REMEMBERED);
        assert!(!departed.0.contains_key(&workload("2")) && departed.0.contains_key(&workload("3")));
    }

    #[test]
    fn departed_autoscaler_counts_only_for_times_before_its_deletion() {
        let mut departed = DeletedAutoscalers::default();
        let since = |departed: &DeletedAutoscalers, second| {
            let departure = departed.0.get(&workload("web")).unwrap().since(at(second));
            departure.map(|it| it.declared_by)
        };
        departed.note(&workload("web"), shop(), None, at(10));
        assert_eq!(since(&departed, 9), Some(shop()));
        assert_eq!(since(&departed, 10), None);
        // Somebody's own goes later, beside the memory of the declared one.
        departed.note(&workload("web"), Vec::new(), None, at(20));
        assert_eq!(since(&departed, 9), Some(shop()));
        assert_eq!(since(&departed, 10), Some(Vec::new()));
        assert_eq!(since(&departed, 20), None);
    }

    #[test]
    fn somebodys_own_autoscaler_is_no_successor_of_a_declared_one() {
        let mut departed = DeletedAutoscalers::default();
        departed.note(&workload("web"), shop(), None, at(10));
        departed.succeed(&workload("web"), false);
        assert!(departed.0.contains_key(&workload("web")));
        departed.succeed(&workload("web"), true);
        assert!(!departed.0.contains_key(&workload("web")));
        departed.note(&workload("web"), Vec::new(), None, at(30));
        departed.succeed(&workload("web"), false);
        assert!(!departed.0.contains_key(&workload("web")));
    }
}
