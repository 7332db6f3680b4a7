use crate::signing::*;

#[test]
fn hidden_value_is_readable_only_with_same_key_and_parts() {
    let (key, value) = (SigningKey::new([7; 32]), [9; 32]);
    let hidden = key.hide("a", &[b"one"], value);
    assert_ne!(hidden, value);
    assert_eq!(key.hide("a", &[b"one"], hidden), value);
    assert_ne!(key.hide("a", &[b"two"], hidden), value);
    assert_ne!(SigningKey::new([8; 32]).hide("a", &[b"one"], hidden), value);
}

#[test]
fn mark_counts_for_its_key_purpose_and_parts_alone() {
    let key = SigningKey::new([7; 32]);
    let mark = key.mark("a", &[b"one", b"two"]);
    assert!(key.is_mark(&mark, "a", &[b"one", b"two"]));
    for (purpose, parts) in
        [("b", &[&b"one"[..], b"two"][..]), ("a", &[b"onet", b"wo"]), ("a", &[b"one"]), ("aone", &[b"two"])]
    {
        assert!(!key.is_mark(&mark, purpose, parts), "{purpose} {parts:?}");
    }
    assert!(!SigningKey::new([8; 32]).is_mark(&mark, "a", &[b"one", b"two"]));
    assert!(!key.is_mark(&mark[..31], "a", &[b"one", b"two"]) && !key.is_mark(&[], "a", &[b"one", b"two"]));
    assert_eq!(format!("{key:?}"), "SigningKey(SecretBox<[u8; 32]>([REDACTED]))");
}

mod order {
    use crate::signing::*;

    fn key() -> SigningKey {
        SigningKey::new([7; 32])
    }

    fn release(name: &str) -> ReleaseId {
        ReleaseId { namespace: "shop".into(), name: name.into() }
    }

    fn object(name: &str, namespace: Option<&str>) -> ObjectId {
        let namespace = namespace.map(Into::into);
        ObjectId { group: "".into(), kind: "ResourceQuota".into(), namespace, name: name.into() }
    }

    fn now() -> Timestamp {
        "2026-05-01T12:00:00Z".parse().unwrap()
    }

    fn ticket() -> Ticket {
        let grant =
            |verb, name: &str, namespace| OrderGrant::new(verb, &object(name, namespace), &release("web"));
        Ticket {
            user: "alice".to_owned(),
            issued: now(),
            revision: 2,
            manifest: hex(&[1; 32]),
            objects: vec![
                grant(Verb::Update, "a", Some("shop")),
                grant(Verb::Create, "b", Some("bank")),
                grant(Verb::Update, "c", None),
            ],
        }
    }

    #[test]
    fn ticket_counts_for_its_own_order_for_five_minutes() {
        let web = release("web");
        let order = TicketOrder { release: &web, uid: "u1", at: "t1" };
        let text = ticket().sign(&key(), &order).unwrap();
        let read = |key: &SigningKey, order: &TicketOrder<'_>, seconds| {
            Ticket::read(&text, key, order, now() + SignedDuration::from_secs(seconds))
        };
        assert_eq!(read(&key(), &order, 0), Ok(ticket()));
        assert_eq!(read(&key(), &order, 300), Ok(ticket()));
        assert_eq!(read(&key(), &order, -300), Ok(ticket()));
        assert_eq!(read(&key(), &order, 301), Err(TicketError::Expired));
        assert_eq!(read(&key(), &order, -301), Err(TicketError::Expired));
        let api = release("api");
        for other in [
            TicketOrder { release: &api, ..order },
            TicketOrder { uid: "u2", ..order },
            TicketOrder { at: "t2", ..order },
            TicketOrder { uid: "", at: "u1t1", ..order },
        ] {
            assert_eq!(read(&key(), &other, 0), Err(TicketError::Foreign), "{other:?}");
        }
        assert_eq!(read(&SigningKey::new([8; 32]), &order, 0), Err(TicketError::Foreign));
    }

    #[test]
    fn changed_ticket_counts_for_nothing() {
        let web = release("web");
        let order = TicketOrder { release: &web, uid: "u1", at: "t1" };
        let text = ticket().sign(&key(), &order).unwrap();
        for (from, to) in [
            ("alice", "admin"),
            ("\"name\":\"a\"", "\"name\":\"x\""),
            ("update", "create"),
            ("\"revision\":2", "\"revision\":3"),
            ("12:00:00", "12:00:01"),
            ("\"mark\":\"", "\"mark\":\"A"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let read = Ticket::read(&changed, &key(), &order, now());
            assert!(matches!(read, Err(TicketError::Foreign | TicketError::Unreadable)), "{from}: {read:?}");
        }
        for text in ["", "{}", "null", "[]", r#"{"ticket": {}, "mark": ""}"#] {
            assert_eq!(Ticket::read(text, &key(), &order, now()), Err(TicketError::Unreadable), "{text}");
        }
    }

    #[test]
    fn ticket_confirms_its_objects_verbs_and_manifest_alone() {
        let (ticket, manifest) = (ticket(), [1; 32]);
        let confirms = |name: &str, namespace, verb, revision, manifest: &[u8; 32]| {
            ticket.confirms(&object(name, namespace), verb, (revision, manifest))
        };
        assert!(confirms("a", Some("shop"), Verb::Update, 2, &manifest));
        assert!(confirms("b", Some("bank"), Verb::Create, 2, &manifest));
        assert!(confirms("c", None, Verb::Update, 2, &manifest));
        assert!(!confirms("a", Some("shop"), Verb::Create, 2, &manifest));
        assert!(!confirms("a", Some("bank"), Verb::Update, 2, &manifest));
        assert!(!confirms("c", Some("shop"), Verb::Update, 2, &manifest));
        assert!(!confirms("a", Some("shop"), Verb::Update, 3, &manifest));
        assert!(!confirms("a", Some("shop"), Verb::Update, 2, &[2; 32]));
    }
}
