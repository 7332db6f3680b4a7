use serde_json::json;

use crate::agreement::*;
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::ReleaseId;

fn key() -> SigningKey {
    SigningKey::new([7; 32])
}

/// Asks something about a declaration of an object of a release.
fn declaring<T>(release: &str, name: &str, value: &str, ask: impl Fn(&Declaration<'_>) -> T) -> T {
    let release = ReleaseId { namespace: "shop".into(), name: release.into() };
    let object = ObjectId::namespaced("", "ConfigMap", "shop", name);
    let digest = Digest::new(&json!({"data": {"k": value}})).unwrap();
    ask(&Declaration { release: &release, object: &object, digest: &digest, seal: None })
}

fn paths(texts: &[&str]) -> Vec<Path> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// What is known after `before` once the object agrees with this value but at some paths, of which those in `same` were
/// declared the same.
fn after(before: Option<&LastAgreement>, value: &str, spared: &[&str], same: &[&str]) -> LastAgreement {
    let is_same = |path: &Path| same.contains(&path.to_string().as_str());
    declaring("web", "a", value, |it| LastAgreement::after(before, &key(), it, &paths(spared), is_same))
}

/// An agreement with a value but at these paths.
fn but(value: &str, open: &[&str]) -> LastAgreement {
    after(None, value, open, &[])
}

#[test]
fn agreement_is_with_one_declaration_of_one_object() {
    let agreement = but("1", &[]);
    let is_with =
        |release, name, value| declaring(release, name, value, |it| agreement.is_for_declaration(&key(), it));
    assert!(is_with("web", "a", "1"));
    assert!(!is_with("web", "a", "2") && !is_with("api", "a", "1") && !is_with("web", "b", "1"));
    assert!(!declaring("web", "a", "1", |it| agreement.is_for_declaration(&SigningKey::new([8; 32]), it)));
}

#[test]
fn agreement_is_read_as_it_was_written() {
    for agreement in [but("1", &[]), but("1", &["/spec/replicas"])] {
        assert_eq!(LastAgreement::read(&agreement.seal(), agreement.open_paths()), Some(agreement));
    }
    for text in ["", "a", "AAAA", "not base64", &"A".repeat(23)] {
        assert_eq!(LastAgreement::read(text, &[]), None, "{text}");
    }
    // Without its open paths, what is kept is worthless.
    let partial = but("1", &["/spec/replicas"]);
    let whole = LastAgreement::read(&partial.seal(), &[]).unwrap();
    assert!(declaring("web", "a", "1", |it| partial.is_for_declaration(&key(), it)
        && !whole.is_for_declaration(&key(), it)));
}

#[test]
fn open_paths_are_not_confirmed_as_seen() {
    let agreement = but("1", &["/spec/replicas"]);
    assert_eq!(agreement.open_paths(), ["/spec/replicas"]);
    let confirms = |path: &str| agreement.confirms(paths(&[path]).iter());
    assert!(confirms("/spec/selector") && confirms("/spec/replicasets"));
    for path in ["/spec/replicas", "/spec/replicas/below", "/spec"] {
        assert!(!confirms(path), "{path}");
    }
    let scaled = paths(&["/spec/replicas", "/spec/selector"]);
    assert!(agreement.confirms_all(scaled.first()));
    assert!(!agreement.confirms_all(None) && !agreement.confirms_all(scaled.get(1)));
    assert!(but("1", &[]).confirms_all(None));
}

#[test]
fn agreement_with_the_same_declaration_is_kept() {
    let whole = but("1", &[]);
    assert_eq!(after(Some(&whole), "1", &["/spec/replicas"], &[]), whole);
    let known = but("1", &["/a", "/b"]);
    assert_eq!(after(Some(&known), "1", &["/b", "/c"], &[]), but("1", &["/b"]));
    assert_eq!(after(Some(&known), "1", &[], &[]), whole);
}

#[test]
fn agreement_carries_over_to_paths_with_the_same_declared_value() {
    let whole = but("1", &[]);
    assert_eq!(after(Some(&whole), "2", &["/a", "/b"], &["/a"]), but("2", &["/b"]));
    assert_eq!(after(Some(&whole), "2", &["/a", "/b"], &[]), but("2", &["/a", "/b"]));
    assert_eq!(after(Some(&but("1", &["/a"])), "2", &["/a", "/b"], &["/a", "/b"]), but("2", &["/a"]));
    assert_eq!(after(None, "2", &["/a", "/b"], &["/a", "/b"]), but("2", &["/a", "/b"]));
}

#[test]
fn many_or_long_open_paths_are_shortened_to_their_parents() {
    let many: Vec<String> = (0..30).map(|index| format!("/data/k{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(but("1", &many).open_paths(), ["/data"]);
    assert_eq!(but("1", &[&many[..], &["/spec/x/y/z"]].concat()).open_paths(), ["/data", "/spec"]);
    let long = format!("/data/{}", "k".repeat(300));
    let agreement = but("1", &[&long]);
    assert_eq!(agreement.open_paths(), ["/data"]);
    assert!(!agreement.confirms(paths(&["/data/other"]).iter()));
    let root = format!("/{}", "k".repeat(300));
    assert!(!but("1", &[&root]).confirms(paths(&["/spec"]).iter()));
}

mod settled {
    use crate::agreement::*;
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
        let (one, two) = (Digest::new(&json!({"a": 1})).unwrap(), Digest::new(&json!({"a": 2})).unwrap());
        let (image, rewritten) = (path("/spec/image"), json!({"b": 1, "a": [2]}));
        let declaration = Declaration { release: &release, object: &web, digest: &one, seal: None };
        let settled = ObjectSettledValues::mark(
            &key(),
            &declaration,
            [(&image, Some(&rewritten)), (&path("/gone"), None)],
        );
        let check = |settled: &ObjectSettledValues| {
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
        check(&ObjectSettledValues::read(&key(), &release, &text, values()).unwrap());
        let stranger =
            ObjectSettledValues::read(&SigningKey::new([8; 32]), &release, &text, values()).unwrap();
        assert!(!stranger.holds(&declaration, &image, Some(&rewritten)));
        assert_eq!(ObjectSettledValues::read(&key(), &release, "none", values()), None);
        assert_eq!(format!("{settled:?}"), r#"["/gone", "/spec/image"]"#);
    }

    #[test]
    fn settled_values_accumulate_until_the_declaration_changes() {
        let (release, web) = (release(), object("web"));
        let (one, two) = (Digest::new(&json!(1)).unwrap(), Digest::new(&json!(2)).unwrap());
        let mut known = SettledValueIndex::default();
        let mut learn = |digest: &Digest, at: &str| {
            let declaration = Declaration { release: &release, object: &web, digest, seal: None };
            known.record(
                &web,
                ObjectSettledValues::mark(&key(), &declaration, [(&path(at), Some(&json!(1)))]),
            );
            format!("{:?}", known.get(&web).unwrap())
        };
        assert_eq!(learn(&one, "/a"), r#"["/a"]"#);
        assert_eq!(learn(&one, "/b"), r#"["/a", "/b"]"#);
        assert_eq!(learn(&two, "/c"), r#"["/c"]"#);
        let other = ReleaseId { name: "other".into(), ..release.clone() };
        known.forget(&other, &web);
        assert!(known.get(&web).is_some(), "they are not the other release's");
        known.forget(&release, &web);
        assert_eq!(known.get(&web), None);
    }
}
