mod rights {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::super::*;

    fn reading(name: &str) -> Right<'_> {
        let (group, resource) = ("", "configmaps");
        Right { verb: "get", group, resource, namespace: Some("shop"), name: Some(name) }
    }

    /// An API server by which everybody may get `readable`; that fails on `broken`, and is silent on `silent`. Counts what
    /// it is asked.
    fn api_server() -> (kube::Client, Arc<AtomicUsize>) {
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        let service = tower::service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let asked: Value = serde_json::from_slice(&body).unwrap();
                let attributes = &asked["spec"]["resourceAttributes"];
                let named = |name: &str| attributes["name"] == name;
                if named("silent") {
                    std::future::pending::<()>().await;
                }
                let answer = json!({"status": {"allowed": named("readable") && attributes["verb"] == "get"}});
                let status = if named("broken") { 500 } else { 201 };
                let answer =
                    Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::io::Error>(answer.unwrap())
            }
        });
        (kube::Client::new(service, "default"), count)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_plain_answer_in_time_says_what_a_user_may_read() {
        let (client, count) = api_server();
        let rights = UserRights::default();
        let alice = Actor { user: "alice".to_owned(), ..Actor::default() };
        for (name, expected) in
            [("readable", Some(true)), ("hidden", Some(false)), ("broken", None), ("silent", None)]
        {
            assert_eq!(rights.may(&client, &alice, reading(name), READ_BUDGET).await, expected, "{name}");
        }
        let asked = count.load(Ordering::Relaxed);
        assert_eq!(rights.may(&client, &alice, reading("readable"), READ_BUDGET).await, Some(true));
        assert_eq!(count.load(Ordering::Relaxed), asked, "it is remembered");
        let bob = Actor { user: "bob".to_owned(), ..Actor::default() };
        assert_eq!(rights.may(&client, &bob, reading("hidden"), READ_BUDGET).await, Some(false));
        assert_eq!(count.load(Ordering::Relaxed), asked + 1, "each user is asked for");
        tokio::time::advance(FRESH).await;
        assert_eq!(rights.may(&client, &alice, reading("readable"), READ_BUDGET).await, Some(true));
        assert_eq!(count.load(Ordering::Relaxed), asked + 2, "not for ever");
    }
}

mod labels {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::super::*;
    use crate::sample_releases::{SampleRecord, assembled};
    use crate::webhook::case::ReviewSubject;
    use crate::webhook::review;
    use kubemoor_declare::model::EditsMode;
    use kubemoor_policy::compile;
    use kubemoor_runtime::config::RecordDriver;

    fn policies() -> Policies {
        let strict = |name: &str, releases: Value| {
            let spec = json!({"edits": "Deny", "drift": "Repair", "releases": releases});
            let kind = json!({
                "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name},
                "spec": spec,
            });
            Arc::new(compile::policy(kind).unwrap())
        };
        let accepted = [
            strict("labelled", json!({"namespaceSelector": {"matchLabels": {"tier": "prod"}}})),
            strict("pinned", json!({"namespaces": ["pinned"]})),
        ];
        let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, Duration::from_secs(3600));
        Policies::new(defaults, &Labels::new(), accepted)
    }

    fn warned(namespace: &str, [old, new]: [Value; 2]) -> Option<String> {
        let mut index = Index::default();
        for (namespace, name) in [("shop", "web"), ("shop", "api"), ("pinned", "web"), ("bank", "web")] {
            index.set(assembled(SampleRecord { namespace, name, ..SampleRecord::default() }, None));
        }
        let object = |labels: Value| json!({"metadata": {"name": namespace, "labels": labels}});
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "r", "kind": {"group": "", "version": "v1", "kind": "Namespace"},
                "resource": {"group": "", "version": "v1", "resource": "namespaces"},
                "name": namespace, "operation": "UPDATE", "userInfo": {"username": "alice"},
                "object": object(new), "oldObject": object(old),
            },
        })
        .to_string();
        let request = review::AdmissionRequest::parse(review.as_bytes()).unwrap();
        let subject = ReviewSubject::from_head(&request.head, &index, RecordDriver::Secret).unwrap();
        let case = ReviewCase::new(subject, request, RecordDriver::Secret);
        milder_labels(&case, &policies(), &index)
    }

    #[test]
    fn labels_that_make_a_policy_milder_warn_their_user() {
        let prod = || json!({"tier": "prod"});
        let expected = "these labels make the policy of Helm release \"api\", and of 1 more less strict: \
                        edits Deny -> Warn, drift Repair -> Report";
        for milder in [json!({"tier": "test"}), json!({}), json!(null)] {
            assert_eq!(warned("shop", [prod(), milder]).as_deref(), Some(expected));
        }
        assert_eq!(warned("shop", [json!({}), prod()]), None);
        assert_eq!(warned("shop", [prod(), json!({"tier": "prod", "team": "a"})]), None);
        assert_eq!(warned("empty", [prod(), json!({})]), None);
        // Its name does not change.
        assert_eq!(warned("pinned", [prod(), json!({})]), None);
    }
}
