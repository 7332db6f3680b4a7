mod outages {
    use std::time::Duration;

    use super::super::*;
    use kubemoor_declare::model::{ObjectId, ReleaseId};

    const WITHIN: Duration = Duration::from_secs(1);

    fn refused(code: u16) -> ClusterError {
        ClusterError::Refused {
            code,
            reason: String::new(),
            message: String::new(),
            causes: Vec::new(),
            retry_after: None,
            names_absent: false,
        }
    }

    fn unreachable() -> ClusterError {
        ClusterError::Unreachable { reason: "refused".to_owned() }
    }

    fn release() -> ReleaseId {
        ReleaseId { namespace: "shop".into(), name: "web".into() }
    }

    fn object() -> ObjectId {
        ObjectId { group: "".into(), kind: "Secret".into(), namespace: None, name: "web".into() }
    }

    fn check(error: JudgementError, is_outage: bool) {
        assert_eq!(error.is_outage(), is_outage, "{error:?}");
        assert_eq!(error.unless_answered().is_err(), is_outage);
    }

    /// Whether a call that ends like this was answered.
    fn calls() -> Vec<(ClusterError, bool)> {
        vec![
            (unreachable(), true),
            (ClusterError::Late { within: WITHIN }, true),
            (refused(500), true),
            (refused(502), true),
            (refused(503), true),
            (refused(504), true),
            (refused(429), true),
            (refused(400), false),
            (refused(401), false),
            (refused(403), false),
            (refused(404), false),
            (refused(409), false),
            (refused(410), false),
            (refused(422), false),
            (ClusterError::Unserved, false),
            (ClusterError::TooLarge { cap: 1 }, false),
            (ClusterError::Unreadable { line: 1, column: 1 }, false),
            (ClusterError::InvalidRequest { reason: "x".to_owned() }, false),
        ]
    }

    #[test]
    fn only_an_unresponsive_api_server_counts_as_an_outage() {
        for (error, is_outage) in calls() {
            check(JudgementError::Own(Box::new(error.clone())), is_outage);
            check(JudgementError::Ask(Box::new(error.clone())), is_outage);
            let look = ClusterError::Records { release: release(), source: Box::new(error) };
            check(JudgementError::Look(Box::new(look)), is_outage);
        }
    }

    #[test]
    fn slow_or_changing_record_reads_are_not_an_outage() {
        let late = Box::new(ClusterError::Late { within: WITHIN });
        for (error, is_outage) in [
            (ClusterError::Records { release: release(), source: late }, true),
            (ClusterError::Slow { what: "too large".to_owned(), within: WITHIN }, false),
            (ClusterError::RecordsChanging { release: release() }, false),
        ] {
            check(JudgementError::Look(Box::new(error)), is_outage);
        }
    }

    #[test]
    fn a_dry_run_that_fails_is_no_outage() {
        let arbitrate = |error| JudgementError::Arbitrate(Box::new(error));
        for (error, is_outage) in [
            (refused(404), false),
            (refused(409), false),
            (refused(403), false),
            (refused(422), false),
            (ClusterError::NotLeading, false),
            (refused(400), false),
            // What a live object makes of server-side apply comes as this.
            (refused(500), false),
            (refused(503), true),
            (refused(429), true),
            (unreachable(), true),
            (ClusterError::Late { within: WITHIN }, true),
            (ClusterError::Unserved, false),
        ] {
            let source = Box::new(error);
            check(arbitrate(ClusterError::DryRun { object: object(), source }), is_outage);
        }
        for (error, is_outage) in calls() {
            let what = "revision 1 of release web could not be read".to_owned();
            check(arbitrate(ClusterError::During { what, source: Box::new(error) }), is_outage);
        }
        for error in [
            ClusterError::Slow { what: "no dry run ended".to_owned(), within: WITHIN },
            ClusterError::NotDeclared { object: Box::new(object()), release: release(), revision: 1 },
            ClusterError::NoRecord { release: release(), revision: 1 },
        ] {
            check(arbitrate(error), false);
        }
    }
}

mod owners {
    use std::time::Duration;

    use parking_lot::RwLock;
    use serde_json::json;
    use tokio::time::Instant;

    use super::super::*;
    use crate::sample_releases::{SampleRecord, assembled};
    use crate::sample_verdicts::{book_of, resolver};
    use crate::webhook::case::ReviewSubject;
    use crate::webhook::review;
    use kubemoor_declare::model::EditsMode;
    use kubemoor_helm::index::Index;
    use kubemoor_policy::compile;
    use kubemoor_runtime::config::RecordDriver;
    use kubemoor_verdict::edit::Rules;

    fn index(claims: &[(&str, u32)]) -> Index {
        let mut index = Index::default();
        for (namespace, replicas) in claims {
            let manifest = format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{replicas: {replicas}}}\n"
            );
            index.set(assembled(
                SampleRecord { manifest: &manifest, namespace, ..SampleRecord::default() },
                None,
            ));
        }
        index
    }

    fn scale(replicas: u32) -> String {
        let scale = |replicas: u32| json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas}});
        json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": "scale",
            "name": "web", "namespace": "shop", "operation": "UPDATE", "userInfo": {"username": "alice"},
            "object": scale(replicas), "oldObject": scale(1),
        },
    })
    .to_string()
    }

    /// The release that decides where nobody can be asked, and what it says.
    async fn decided(claims: &[(&str, u32)], replicas: u32) -> (EditOutcome, Option<String>) {
        decided_by(resolver(EditsMode::Deny), index(claims), replicas).await
    }

    async fn decided_by(
        resolver: PolicyResolver,
        index: Index,
        replicas: u32,
    ) -> (EditOutcome, Option<String>) {
        let text = scale(replicas);
        let request = review::AdmissionRequest::parse(text.as_bytes()).unwrap();
        let subject = ReviewSubject::from_head(&request.head, &index, RecordDriver::Secret).unwrap();
        let mut case = ReviewCase::new(subject, request, RecordDriver::Secret);
        let source = ReleaseSource::Fixed(RwLock::new(index));
        let rules = Rules { resolver: &resolver, own_account: None };
        let looker =
            CaseJudge { source: &source, rules: &rules, deadline: Instant::now() + Duration::from_secs(1) };
        let first = looker.judge(&case, DryRunEvidence::None);
        let judgement = looker.judge_with_fresh_records(first, &mut case).await.unwrap();
        let release = judgement.verdict.grounds.map(|grounds| grounds.release.to_string());
        (judgement.verdict.outcome, release)
    }

    #[tokio::test]
    async fn where_the_owner_cannot_be_known_only_releases_with_operators_allow() {
        let manifest = |replicas: u32| {
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{replicas: {replicas}}}\n"
            )
        };
        let index = || {
            let mut index = Index::default();
            for (name, replicas) in [("forged", 7), ("web", 2)] {
                let manifest = manifest(replicas);
                let given =
                    SampleRecord { manifest: &manifest, namespace: "shop", name, ..SampleRecord::default() };
                index.set(assembled(given, None));
            }
            index
        };
        let policy = compile::policy(json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "web"},
            "spec": {"releases": {"names": ["web"]}, "operators": [{"kind": "User", "name": "ci"}]},
        }));
        let policy = Arc::new(policy.unwrap());
        let resolver = || book_of(EditsMode::Deny, Some(Arc::clone(&policy)));
        let refused = (EditOutcome::Deny, Some("shop/web".to_owned()));
        assert_eq!(decided_by(resolver(), index(), 7).await, refused);
        assert_eq!(decided_by(resolver(), index(), 2).await, (EditOutcome::Allow, None));
    }

    #[tokio::test]
    async fn where_the_owner_cannot_be_known_foreign_claims_only_refuse() {
        let refused = |release: &str| (EditOutcome::Deny, Some(release.to_owned()));
        let passes = (EditOutcome::Allow, None);
        assert_eq!(decided(&[("thief", 7), ("bank", 2)], 7).await, refused("bank/web"));
        assert_eq!(decided(&[("bank", 2), ("thief", 7)], 2).await, refused("thief/web"));
        assert_eq!(decided(&[("bank", 2)], 2).await, passes);
        assert_eq!(decided(&[("bank", 2)], 3).await, refused("bank/web"));
        // A claim of the object's own namespace needs no others.
        assert_eq!(decided(&[("thief", 7), ("shop", 2)], 7).await, refused("shop/web"));
        assert_eq!(decided(&[("thief", 7), ("shop", 2)], 2).await, passes);
    }
}
