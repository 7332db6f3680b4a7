use super::*;
use kubemoor_declare::model::ObjectId;

fn key() -> SigningKey {
    SigningKey::new([7; 32])
}

fn object(name: &str) -> ObjectId {
    let namespace = Some("shop".into());
    ObjectId { group: "apps".into(), kind: "Deployment".into(), namespace, name: name.into() }
}

fn release() -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: "web".into() }
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

#[test]
fn value_counts_for_its_path_object_and_declaration_alone() {
    let (release, web, api) = (release(), object("web"), object("api"));
    let (one, two) = (Digest::of(&json!({"a": 1})).unwrap(), Digest::of(&json!({"a": 2})).unwrap());
    let (image, rewritten) = (path("/spec/image"), json!({"b": 1, "a": [2]}));
    let declaration = Declaration { release: &release, object: &web, digest: &one, seal: None };
    let settled = Settled::of(&key(), &declaration, [(&image, Some(&rewritten)), (&path("/gone"), None)]);
    let check = |settled: &Settled| {
        assert!(settled.holds(&declaration, &image, Some(&json!({"a": [2], "b": 1}))));
        assert!(settled.holds(&declaration, &path("/gone"), None));
        assert!(!settled.holds(&declaration, &path("/gone"), Some(&Value::Bool(false))));
        assert!(!settled.holds(&declaration, &image, Some(&json!({"a": [2]}))));
        assert!(!settled.holds(&declaration, &image, None));
        assert!(!settled.holds(&declaration, &path("/spec"), Some(&rewritten)));
        let elsewhere = Declaration { object: &api, ..declaration };
        let later = Declaration { digest: &two, ..declaration };
        let other = ReleaseId { name: "api".into(), ..release.clone() };
        let others = Declaration { release: &other, ..declaration };
        for declaration in [elsewhere, later, others] {
            assert!(!settled.holds(&declaration, &image, Some(&rewritten)), "{declaration:?}");
        }
    };
    check(&settled);
    let (text, values) = settled.texts();
    let values = || values.iter().map(|(path, value)| (path.as_str(), value.as_str()));
    check(&Settled::read(&key(), &release, &text, values()).unwrap());
    let stranger = Settled::read(&SigningKey::new([8; 32]), &release, &text, values()).unwrap();
    assert!(!stranger.holds(&declaration, &image, Some(&rewritten)));
    assert_eq!(Settled::read(&key(), &release, "none", values()), None);
    assert_eq!(format!("{settled:?}"), r#"["/gone", "/spec/image"]"#);
}

#[test]
fn settled_values_accumulate_until_the_declaration_changes() {
    let (release, web) = (release(), object("web"));
    let (one, two) = (Digest::of(&json!(1)).unwrap(), Digest::of(&json!(2)).unwrap());
    let known = SettledValues::default();
    let learn = |digest: &Digest, at: &str| {
        let declaration = Declaration { release: &release, object: &web, digest, seal: None };
        known.learn(&web, Settled::of(&key(), &declaration, [(&path(at), Some(&json!(1)))]));
        format!("{:?}", known.of(&web).unwrap())
    };
    assert_eq!(learn(&one, "/a"), r#"["/a"]"#);
    assert_eq!(learn(&one, "/b"), r#"["/a", "/b"]"#);
    assert_eq!(learn(&two, "/c"), r#"["/c"]"#);
    let other = ReleaseId { name: "other".into(), ..release.clone() };
    known.forget(&other, [&web]);
    assert!(known.of(&web).is_some(), "they are not the other release's");
    known.forget(&release, [&web]);
    assert_eq!(known.of(&web), None);
}
