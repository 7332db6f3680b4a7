use std::collections::BTreeMap;

use super::super::{Kind, Request, Resource};
use super::*;
use kubemoor_declare::model::Operation;

fn head(operation: Option<Operation>, subresource: Option<&'static str>) -> Head<'static> {
    Head {
        uid: "u".into(),
        kind: Kind { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() },
        resource: Resource { group: "apps".into(), version: "v1".into(), resource: "deployments".into() },
        subresource: subresource.map(Into::into),
        namespace: Some("shop".into()),
        name: Some("web".into()),
        operation,
    }
}

#[test]
fn a_question_is_read_as_it_was_asked() {
    let actor = Actor {
        user: "jane".to_owned(),
        groups: vec!["dev".to_owned()],
        uid: "7".to_owned(),
        extra: BTreeMap::from([("scopes".to_owned(), vec!["a".to_owned()])]),
    };
    let (old, new) = (json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 2}}));
    for (operation, subresource, object, old_object) in [
        (Some(Operation::Create), None, Some(new.clone()), None),
        (Some(Operation::Update), Some("scale"), Some(new.clone()), Some(old.clone())),
        (Some(Operation::Delete), None, None, Some(old)),
        (None, Some("exec"), Some(new), None),
    ] {
        let head = head(operation, subresource);
        let question = Question { head: head.clone(), actor: &actor, object, old_object };
        let body = question.to_json().to_string();
        let request = Request::parse(body.as_bytes()).unwrap();
        assert_eq!(request.head, head);
        assert_eq!(request.actor, actor);
        let read = |text: Option<&kubemoor_declare::outline::Excerpt<'_>>| {
            text.map(|text| super::super::object(text.get()).unwrap())
        };
        assert_eq!(read(request.object.as_ref()), question.object);
        assert_eq!(read(request.old_object.as_ref()), question.old_object);
        assert!(!request.dry_run);
    }
}

#[test]
fn cluster_scoped_question_omits_the_namespace() {
    let head = Head { namespace: None, name: None, ..head(Some(Operation::Create), None) };
    let question = Question { head, actor: &Actor::default(), object: Some(json!({})), old_object: None };
    let request = &question.to_json()["request"];
    assert!(request.get("namespace").is_none() && request.get("name").is_none(), "{request}");
}
