use std::time::Duration;

use super::*;
use kubemoor_cluster::client::call::ClusterError;

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
        "clusters": [
            {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}},
            {"name": "other", "cluster": {"server": "https://127.0.0.1:2"}},
        ],
        "users": [{"name": "u", "user": {"token": "hunter2"}}, {"name": "v", "user": {"token": "hunter2"}}],
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
    ClusterArgs { context, ..parsed(&["--kubeconfig", kubeconfig.to_str().unwrap()]) }
}

/// What these flags come to.
fn parsed(flags: &[&str]) -> ClusterArgs {
    use clap::Parser;
    #[derive(Debug, Parser)]
    struct ConnectLine {
        #[command(flatten)]
        cluster: ClusterArgs,
    }
    ConnectLine::try_parse_from(["line"].iter().chain(flags)).unwrap().cluster
}

#[test]
fn request_timeout_accepts_duration_or_seconds_and_zero_disables_it() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (text, expected) in
        [("0", None), ("0s", None), ("10s", seconds(10)), ("90", seconds(90)), ("2m", seconds(120))]
    {
        assert_eq!(parsed(&["--request-timeout", text]).access().timeout, expected, "{text}");
    }
    assert_eq!(parsed(&[]).access().timeout, None);
    for text in ["", "soon", "-1s"] {
        assert!(parse_timeout(text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn cluster_user_and_token_are_chosen_as_with_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let file = kubeconfig(folder.path());
    let file = file.to_str().unwrap();
    let connect = async |flags: &[&str]| {
        parsed(&[&["--kubeconfig", file], flags].concat())
            .connect()
            .await
            .map_err(|error| format!("{error:#}"))
    };
    let other = connect(&["--cluster", "other"]).await.unwrap();
    assert_eq!(other.url.trim_end_matches('/'), "https://127.0.0.1:2");
    for (flags, says) in
        [(["--cluster", "none"], "none"), (["--user", "nobody"], "nobody"), (["--context", "third"], "third")]
    {
        let error = connect(&flags).await.err().unwrap();
        assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
    }
    assert!(connect(&["--user", "v"]).await.is_ok());
    // A token takes the place of whatever the kubeconfig has, and shows nowhere.
    let chosen = parsed(&["--token", "s3cret"]);
    assert!(!format!("{chosen:?}").contains("s3cret"), "{chosen:?}");
    assert!(parse_token("a b").is_err() && parse_token("").is_err());
}

/// A client certificate of X.509 version 1, made by `openssl x509 -req` without extensions.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBFzCBvgIUQpvsvgpG2GwXIHj6709+0Z7Lc9wwCgYIKoZIzj0EAwIwDTELMAkG\n\
A1UEAwwCY2EwHhcNMjYxMTIzMTgwNDUxWhcNMzYxMTIwMTgwNDUxWjAQMQ4wDAYD\n\
VQQDDAVhbGljZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABA8ICOPue8TAhXrp\n\
ZurTwnFvMCCcfTNv9pN9iiaGSStVTvlq8Et7j+wl9V9uRkjTG2ikiBOQeAniukD/\n\
2M39XeMwCgYIKoZIzj0EAwIDSAAwRQIgVoBFs0HI5l/5KP4QRusC61gQzQORY6Sm\n\
OaZ4Hc1K2bkCIQCb/1UZAqhV1Otj4c+FZKMufqqtPK6lCwN5jrEIacOCHA==\n\
-----END CERTIFICATE-----\n\
";

const ITS_KEY: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgayLbNfRx4hwRHOvm\n\
TuyQVQ+7IJqbGDc2H0NPH0uNsomhRANCAAQPCAjj7nvEwIV66Wbq08JxbzAgnH0z\n\
b/aTfYomhkkrVU75avBLe4/sJfVfbkZI0xtopIgTkHgJ4rpA/9jN/V3j\n\
-----END PRIVATE KEY-----\n\
";

#[tokio::test]
async fn connect_error_names_an_x509_version_1_client_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("alice.crt"), folder.path().join("alice.key"));
    std::fs::write(&certificate, VERSION_1).unwrap();
    std::fs::write(&key, ITS_KEY).unwrap();
    let user = serde_json::json!({"client-certificate": certificate, "client-key": key});
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "alice", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "alice"}}],
    });
    let file = folder.path().join("config");
    std::fs::write(&file, config.to_string()).unwrap();
    let error = format!("{:#}", args(file, None).connect().await.err().unwrap());
    assert!(
        error.contains("client certificate uses X.509 version 1") && error.contains("-extfile"),
        "{error}"
    );
    assert!(!error.contains("OtherError"), "{error}");
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
async fn connection_error_is_one_sentence_with_a_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let file = kubeconfig(folder.path());
    let unknown = args(file.clone(), Some("third")).connect().await.err().unwrap().to_string();
    assert!(unknown.contains("third"), "{unknown}");
    let connection = args(file, None).connect().await.unwrap();
    let refused = |code: u16| ClusterError::Refused {
        code,
        reason: String::new(),
        message: "secrets is forbidden".to_owned(),
        causes: Vec::new(),
        retry_after: None,
        names_absent: false,
    };
    let check = |error: ClusterError, parts: &[&str]| {
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
        ClusterError::Unreachable { reason: "refused".to_owned() },
        &["https://127.0.0.1:1", "reached", "--context"],
    );
    check(ClusterError::Late { within: Duration::from_secs(30) }, &["30 s"]);
}
