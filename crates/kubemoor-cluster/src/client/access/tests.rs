mod access {
    use http::{Request, Response};
    use kube::client::Body;

    use super::super::*;

    fn answering(status: u16, body: Value) -> kube::Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(answer)
        });
        kube::Client::new(service, "default")
    }

    fn listing(namespace: Option<&str>) -> Right<'_> {
        Right { verb: "list", group: "kubemoor.dev", resource: "guardedreleases", namespace, name: None }
    }

    #[tokio::test]
    async fn only_a_plain_yes_is_a_right() {
        let alice = Actor { user: "alice".to_owned(), ..Actor::default() };
        for (body, right) in [
            (json!({"status": {"allowed": true}}), true),
            (json!({"status": {"allowed": false}}), false),
            (json!({"status": {"allowed": true, "denied": true}}), false),
            (json!({"status": {}}), false),
            (json!({}), false),
        ] {
            let client = answering(201, body.clone());
            let said = is_user_allowed(&client, &alice, &listing(Some("shop"))).await;
            assert_eq!(said, Ok(right), "{body}");
        }
    }

    #[tokio::test]
    async fn a_token_counts_once_the_api_server_names_its_user() {
        let alice = Actor { user: "alice".to_owned(), groups: vec!["people".to_owned()], ..Actor::default() };
        for (body, who_it_is) in [
            (
                json!({"status": {"authenticated": true, "user": {"username": "alice", "groups": ["people"]}}}),
                Some(alice),
            ),
            (json!({"status": {"authenticated": false, "user": {"username": "alice"}}}), None),
            (json!({"status": {"authenticated": true, "user": {}}}), None),
            (json!({"status": {"error": "invalid bearer token"}}), None),
        ] {
            assert_eq!(
                authenticate_token(&answering(201, body.clone()), "t0ken").await,
                Ok(who_it_is),
                "{body}"
            );
        }
    }

    #[tokio::test]
    async fn access_review_carries_uid_and_extra_of_the_token_user() {
        let user = json!({
            "username": "alice", "uid": "7", "groups": ["people"],
            "extra": {"scopes.authorization.openshift.io": ["user:info"], "empty": null},
        });
        let review = json!({"status": {"authenticated": true, "user": user}});
        let alice = authenticate_token(&answering(201, review), "t0ken").await.unwrap().unwrap();
        assert_eq!(alice.uid, "7");
        assert_eq!(alice.extra["scopes.authorization.openshift.io"], ["user:info"]);

        let (asked, mut told) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let asked = asked.clone();
            async move {
                let _ = asked.send(request.into_body().collect_bytes().await.unwrap());
                let answer = json!({"status": {"allowed": false}}).to_string();
                Ok::<_, std::io::Error>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        let client = kube::Client::new(service, "default");
        assert_eq!(is_get_allowed(&client, &alice, "/metrics").await, Ok(false));
        let spec = serde_json::from_slice::<Value>(&told.recv().await.unwrap()).unwrap()["spec"].take();
        assert_eq!(spec["nonResourceAttributes"], json!({"verb": "get", "path": "/metrics"}));
        assert_eq!((&spec["user"], spec.get("resourceAttributes")), (&json!("alice"), None));

        assert_eq!(is_user_allowed(&client, &alice, &listing(None)).await, Ok(false));
        let spec = serde_json::from_slice::<Value>(&told.recv().await.unwrap()).unwrap()["spec"].take();
        assert_eq!(
            (&spec["user"], &spec["uid"], &spec["groups"]),
            (&json!("alice"), &json!("7"), &json!(["people"]))
        );
        assert_eq!(spec["extra"], json!({"scopes.authorization.openshift.io": ["user:info"], "empty": []}));
    }

    #[tokio::test]
    async fn a_refusal_that_quotes_the_token_is_not_passed_on() {
        let refusal = json!({"kind": "Status", "status": "Failure", "message": "t0ken is bad", "code": 400});
        let error = authenticate_token(&answering(400, refusal), "t0ken").await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("t0ken"), "{error:?}");
    }
}

mod identity {
    use super::super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_service_account_token_names_its_account() {
        let claims = r#"{"iss":"kubernetes","sub":"system:serviceaccount:kubemoor-system:kubemoor"}"#;
        assert_eq!(token_subject(&token(claims)).unwrap(), "system:serviceaccount:kubemoor-system:kubemoor");
    }

    #[test]
    fn a_refusal_names_whom_it_refuses() {
        let refusal = |user: &str| {
            format!(
                "selfsubjectreviews.authentication.k8s.io is forbidden: User {user:?} cannot create resource \
             \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
            )
        };
        for user in ["alice", "system:serviceaccount:ci:deployer", "jane@example.com"] {
            assert_eq!(user_in_refusal(&refusal(user)).as_deref(), Some(user));
        }
        for user in ["", "system:anonymous", "a\" cannot b", "back\\slash"] {
            assert_eq!(user_in_refusal(&refusal(user)), None, "{user}");
        }
        assert_eq!(user_in_refusal("it is forbidden"), None);
    }

    #[test]
    fn credentials_claim_the_user_as_whom_they_act() {
        let claims = r#"{"sub":"system:serviceaccount:ci:deployer"}"#;
        let by_token = AuthInfo { token: Some(token(claims).into()), ..AuthInfo::default() };
        assert_eq!(claimed(&by_token).unwrap(), "system:serviceaccount:ci:deployer");
        // A user who impersonates another counts as the other.
        let impersonating = AuthInfo { impersonate: Some("bob".to_owned()), ..by_token };
        assert_eq!(claimed(&impersonating).unwrap(), "bob");
        // A token without a user may belong to anybody.
        let opaque = AuthInfo { token: Some("opaque".to_owned().into()), ..AuthInfo::default() };
        assert_eq!((claimed(&opaque), claimed(&AuthInfo::default())), (None, None));
    }

    #[test]
    fn a_token_that_says_nothing_useful_names_nobody() {
        for text in ["", "opaque", "a.b.c", "..", &token("{}"), &token(r#"{"sub":"12345"}"#), &token("[]")] {
            assert_eq!(token_subject(text), None, "{text}");
        }
    }
}
