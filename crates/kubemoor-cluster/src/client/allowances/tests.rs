use super::*;

fn object(name: &str) -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", "shop", name)
}

fn request<'a>(object: &'a ObjectId, by: &'a Actor) -> AllowanceRequest<'a> {
    AllowanceRequest {
        object,
        namespace: "shop",
        paths: vec!["/spec/replicas".to_owned()],
        until: "2026-03-01T12:00:00Z".parse().unwrap(),
        reason: Some("INC-1"),
        by: Some(by),
    }
}

#[test]
fn exception_name_depends_on_the_request_but_not_its_reason() {
    let (web, db) = (object("web"), object("db"));
    let alice = Actor { user: "alice".to_owned(), ..Actor::default() };
    let bob = Actor { user: "bob".to_owned(), ..Actor::default() };
    let first = request(&web, &alice);
    assert_eq!(name(&first), name(&AllowanceRequest { reason: Some("INC-2"), ..first.clone() }));
    let later = "2026-03-01T13:00:00Z".parse().unwrap();
    let others = [
        request(&db, &alice),
        request(&web, &bob),
        AllowanceRequest { until: later, ..first.clone() },
        AllowanceRequest { paths: vec!["*".to_owned()], ..first.clone() },
        AllowanceRequest { namespace: "other", ..first.clone() },
    ];
    for other in others {
        assert_ne!(name(&first), name(&other), "{other:?}");
    }
}

#[test]
fn a_name_is_one_that_the_api_takes() {
    let alice = Actor::default();
    for text in ["web", "system:aggregate-to-view", "Ä", &"x".repeat(253), "-", "a.b.c"] {
        let object = object(text);
        let name = name(&request(&object, &alice));
        assert!(kubemoor_declare::model::is_dns_label(&name), "{name}");
    }
    assert!(name(&request(&object("web"), &alice)).starts_with("deployment-web-"));
}

#[test]
fn an_allowance_says_what_was_asked_for_and_by_whom() {
    let groups = (0..100).map(|number| format!("g{number}")).collect();
    let (web, alice) = (object("web"), Actor { user: "alice".to_owned(), groups, ..Actor::default() });
    let made = resource(&request(&web, &alice));
    assert_eq!(made.metadata.namespace.as_deref(), Some("shop"));
    assert_eq!(made.metadata.labels.unwrap()[MADE_BY.0], MADE_BY.1);
    assert_eq!(
        (made.spec.until.as_str(), made.spec.reason.as_deref()),
        ("2026-03-01T12:00:00Z", Some("INC-1"))
    );
    let by = made.spec.requested_by.unwrap();
    assert_eq!((by.user.as_str(), by.groups.len()), ("alice", GROUPS));
}
