use std::time::Duration;

use super::*;

#[test]
fn names_are_checked_before_anybody_is_asked() {
    let check = |text: &str, release: bool, namespace: bool| {
        assert_eq!(parse_release(text).is_ok(), release, "{text}");
        assert_eq!(parse_namespace(text).is_ok(), namespace, "{text}");
    };
    check("shop", true, true);
    check("shop.eu", true, false);
    check("Shop", false, false);
    check("", false, false);
    check("shop/web", false, false);
    check(&"a".repeat(54), false, true);
    check(&"a".repeat(64), false, false);
}

fn kubeconfig(folder: &std::path::Path) -> PathBuf {
    let file = folder.join("config");
    let content = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "first",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "hunter2"}}],
        "contexts": [
            {"name": "first", "context": {"cluster": "c", "user": "u"}},
            {"name": "second", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
        ],
    });
    std::fs::write(&file, content.to_string()).unwrap();
    file
}

fn args(kubeconfig: PathBuf, context: Option<&str>) -> ClusterArgs {
    let context = context.map(str::to_owned);
    ClusterArgs { kubeconfig: Some(kubeconfig), context, user: None, groups: Vec::new() }
}

#[tokio::test]
async fn the_namespace_is_the_context_s_unless_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = kubeconfig(folder.path());
    let named = |namespace: Option<&str>| NamespaceArgs { namespace: namespace.map(str::to_owned) };
    let first = args(file.clone(), None).connect().await.unwrap();
    let second = args(file, Some("second")).connect().await.unwrap();
    assert_eq!(named(None).or_default(&first), "default");
    assert_eq!(named(None).or_default(&second), "shop");
    assert_eq!(named(Some("x")).or_default(&second), "x");
    let all = NamespacesArgs { one: named(Some("x")), all_namespaces: true };
    assert_eq!(all.chosen(&second), None);
}

#[tokio::test]
async fn what_failed_is_one_sentence_with_a_way_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = kubeconfig(folder.path());
    let unknown = args(file.clone(), Some("third")).connect().await.err().unwrap().to_string();
    assert!(unknown.contains("third"), "{unknown}");
    let connection = args(file, None).connect().await.unwrap();
    let refused = |code: u16| CallError::Refused {
        code,
        reason: String::new(),
        message: "secrets is forbidden".to_owned(),
        causes: Vec::new(),
    };
    let check = |error: CallError, parts: &[&str]| {
        let sentence = format!("{:#}", failed(&connection, "read the records", error));
        assert!(sentence.starts_with("cannot read the records: ") && !sentence.contains('\n'), "{sentence}");
        for part in parts {
            assert!(sentence.contains(part), "{sentence} lacks {part}");
        }
    };
    check(refused(401), &["credentials", "--context"]);
    check(refused(403), &["no permission", "secrets is forbidden", "role"]);
    check(refused(500), &["500"]);
    check(
        CallError::Unreachable { reason: "refused".to_owned() },
        &["https://127.0.0.1:1", "reached", "--context"],
    );
    check(CallError::Late { within: Duration::from_secs(30) }, &["30 s"]);
}
