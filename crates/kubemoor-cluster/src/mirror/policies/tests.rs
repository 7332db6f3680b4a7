mod watch {
    use super::super::*;

    fn assessment(accepted: bool, reason: &'static str) -> Assessment {
        Assessment { accepted, reason, message: "In force.".to_owned() }
    }

    fn now() -> Timestamp {
        "2026-03-01T12:00:00.5Z".parse().unwrap()
    }

    #[test]
    fn a_condition_is_written_once() {
        let first = with(&[], &assessment(true, "Accepted"), 1, now()).unwrap();
        assert_eq!(first[0]["lastTransitionTime"], "2026-03-01T12:00:00Z");
        assert_eq!(with(&first, &assessment(true, "Accepted"), 1, now()), None);
    }

    #[test]
    fn the_time_changes_with_the_status_alone() {
        let first = with(&[], &assessment(true, "Accepted"), 1, now()).unwrap();
        let later = "2026-03-02T12:00:00Z".parse().unwrap();
        let again = with(&first, &assessment(true, "MatchesNothing"), 2, later).unwrap();
        assert_eq!(
            (&again[0]["reason"], &again[0]["observedGeneration"]),
            (&json!("MatchesNothing"), &json!(2))
        );
        assert_eq!(again[0]["lastTransitionTime"], "2026-03-01T12:00:00Z");
        let refused = with(&again, &assessment(false, "InvalidPath"), 3, later).unwrap();
        assert_eq!(
            (&refused[0]["status"], &refused[0]["lastTransitionTime"]),
            (&json!("False"), &json!("2026-03-02T12:00:00Z"))
        );
    }

    #[test]
    fn conditions_of_others_stay() {
        let others = json!({"type": "Audited", "status": "True"});
        let written = with(std::slice::from_ref(&others), &assessment(true, "Accepted"), 1, now()).unwrap();
        assert_eq!((written.len(), &written[0]), (2, &others));
        assert_eq!(with(&written, &assessment(true, "Accepted"), 1, now()), None);
    }

    #[test]
    fn policy_is_readable_despite_an_invalid_status() {
        let mut object = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "p"},
            "spec": {"edits": "Deny"}, "status": {"conditions": "nonsense"},
        });
        assert_eq!(compile_object(&mut object).unwrap().name, "p");
    }

    #[test]
    fn a_field_that_is_not_known_is_a_flaw() {
        let mut object = json!({"metadata": {"name": "p"}, "spec": {"edit": "Deny"}});
        let flaws = compile_object(&mut object).unwrap_err();
        assert!(flaws[0].message.contains("edit"), "{flaws:?}");
    }
}

mod assess {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::super::*;
    use kubemoor_policy::Policy;
    use kubemoor_policy::compile::compile;
    use kubemoor_policy::flaw::FlawReason;
    use kubemoor_policy::resolver::{Labels, PolicyResolver};

    fn in_force() -> Arc<ActivePolicies> {
        let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, Duration::from_secs(3600));
        let labels = Labels::from([("env".to_owned(), "test".to_owned())]);
        ActivePolicies::new(Arc::new(PolicyResolver::new(defaults)), labels)
    }

    fn compiled(spec: serde_json::Value) -> CompiledPolicy {
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        compile(&serde_json::from_value(policy).unwrap()).unwrap()
    }

    fn matching() -> Survey {
        Survey { matching: BTreeSet::from(["p".to_owned()]), ..Survey::default() }
    }

    fn check(
        flaws: &[Flaw],
        accepted: Option<(&CompiledPolicy, i64)>,
        survey: &Survey,
        expected: (bool, &str),
        says: &str,
    ) {
        let assessment = Assessment::new("p", 3, flaws, accepted, survey, &in_force());
        assert_eq!((assessment.accepted, assessment.reason), expected, "{assessment:?}");
        assert!(assessment.message.contains(says), "{assessment:?}");
        assert!(assessment.message.chars().count() <= MESSAGE, "{assessment:?}");
    }

    #[test]
    fn every_state_of_a_policy_has_its_reason() {
        let plain = compiled(json!({"edits": "Deny"}));
        check(&[], Some((&plain, 3)), &matching(), (true, "Accepted"), "In force.");
        check(&[], Some((&plain, 3)), &Survey::default(), (true, "MatchesNothing"), "no release matches");
        let leaving = Survey { leaving: BTreeSet::from(["p".to_owned()]), ..matching() };
        check(&[], Some((&plain, 3)), &leaving, (true, "DriftStays"), "changes that bypass the webhook");
        let tied = Survey {
            ties: BTreeMap::from([(
                "p".to_owned(),
                BTreeSet::from(["spec.edits of policy a counts".to_owned()]),
            )]),
            ..leaving
        };
        check(&[], Some((&plain, 3)), &tied, (true, "Conflict"), "spec.edits of policy a counts");
        let slip = compiled(json!({"ignore": [{"target": {"kind": "deployment"}, "paths": ["/spec"]}]}));
        check(&[], Some((&slip, 3)), &matching(), (true, "UnknownKind"), "did you mean Deployment?");
        let rule = json!({"target": {"kind": "Deployment"}, "paths": ["/spec/replcas"]});
        let slip = compiled(json!({"ignore": [rule]}));
        let says =
            "spec.ignore[0].paths[0]: in Deployment there is no field /spec/replcas: did you mean replicas?";
        check(&[], Some((&slip, 3)), &matching(), (true, "UnknownField"), says);
        let told = compiled(json!({"notify": ["oncall"]}));
        check(&[], Some((&told, 3)), &matching(), (true, "Accepted"), "In force.");
        let elsewhere = compiled(json!({"clusterSelector": {"matchLabels": {"env": "prod"}}}));
        check(&[], Some((&elsewhere, 3)), &Survey::default(), (true, "OtherCluster"), "--cluster-label");
    }

    #[test]
    fn a_flaw_names_its_field_and_what_stays_in_force() {
        let flaw = |message: &str| Flaw {
            field: "spec.ignore[0].paths[1]".to_owned(),
            reason: FlawReason::InvalidPath,
            message: message.to_owned(),
        };
        let before = compiled(json!({}));
        let stays = "spec.ignore[0].paths[1]: no slash. Generation 2 of this policy stays in force.";
        check(&[flaw("no slash")], Some((&before, 2)), &matching(), (false, "InvalidPath"), stays);
        check(&[flaw("no slash")], None, &matching(), (false, "InvalidPath"), "This policy is not in force.");
        let many = vec![flaw(&"é".repeat(2000)); 5];
        check(&many, Some((&before, 2)), &matching(), (false, "InvalidPath"), "Generation 2");
    }

    #[test]
    fn a_policy_whose_name_a_file_has_says_so() {
        let in_force = in_force();
        let policy = Arc::new(compiled(json!({})));
        in_force.set_files([("p".to_owned(), Arc::clone(&policy))].into());
        let accepted = Some((policy.as_ref(), 1));
        let assessment = Assessment::new("p", 1, &[], accepted, &matching(), &in_force);
        assert_eq!((assessment.accepted, assessment.reason), (false, "DuplicateName"));
    }

    #[test]
    fn notifiers_that_nobody_has_defined_are_named() {
        let in_force = in_force();
        in_force.set_notifiers(["oncall".to_owned()]);
        let check = |notify: serde_json::Value, reason: &str, says: &str| {
            let policy = compiled(json!({"notify": notify}));
            let assessment = Assessment::new("p", 3, &[], Some((&policy, 3)), &matching(), &in_force);
            assert_eq!((assessment.accepted, assessment.reason), (true, reason), "{assessment:?}");
            assert!(assessment.message.contains(says), "{assessment:?}");
        };
        check(json!(["oncall"]), "Accepted", "In force.");
        check(json!(["oncall", "oncal", "chat"]), "UnknownNotifier", "does not have: oncal, chat.");
    }
}

mod change {
    use serde_json::json;

    use super::super::*;

    #[test]
    fn last_manager_of_the_spec_wrote_the_policy() {
        let object = json!({"metadata": {
            "name": "production", "uid": "u", "generation": 2,
            "managedFields": [
                {"manager": "kubectl-edit", "time": "2026-05-01T12:00:00Z", "fieldsV1": {"f:spec": {"f:edits": {}}}},
                {"manager": "kubectl", "time": "2026-04-01T12:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "kubemoor", "time": "2026-06-01T12:00:00Z", "fieldsV1": {"f:status": {}}},
            ],
        }});
        let change = PolicyChange::from_object(&object);
        assert_eq!((change.manager.as_str(), change.fate), ("kubectl-edit", PolicyFate::Changed));
        assert_eq!(change.time, Some("2026-05-01T12:00:00Z".parse().unwrap()));
        let mut tie = object;
        tie["metadata"]["managedFields"][1]["time"] = json!("2026-05-01T12:00:00Z");
        assert_eq!(PolicyChange::from_object(&tie).manager, "kubectl-edit or kubectl");
        let new = PolicyChange::from_object(&json!({"metadata": {"name": "a", "generation": 1}}));
        assert_eq!((new.fate, new.manager.as_str(), new.time), (PolicyFate::Created, "", None));
    }
}
