use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

const MANIFEST: &str = "---\n# Source: web/templates/cm.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  a: b\n";

/// A record's payload as Helm makes it, before Kubernetes' own base64.
fn payload(namespace: &str, name: &str) -> String {
    let json = serde_json::json!({
        "name": name, "namespace": namespace, "version": 7, "manifest": MANIFEST,
        "info": {"status": "deployed", "last_deployed": "2026-01-02T03:04:05Z"},
    });
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(json.to_string().as_bytes()).unwrap();
    BASE64_STANDARD.encode(gzip.finish().unwrap())
}

fn secret(payload: &str) -> String {
    let data = BASE64_STANDARD.encode(payload);
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: sh.helm.release.v1.web.v7\n  labels: {{owner: helm}}\n\
         type: helm.sh/release.v1\ndata:\n  release: {data}\n"
    )
}

/// Base64 text that ends in the middle of a byte, with a bit set behind the last whole one.
fn with_bits_behind(text: &str) -> String {
    let (kept, padding) = text.split_at(text.trim_end_matches('=').len());
    assert!(!padding.is_empty(), "it ends with a whole byte");
    let (start, last) = kept.split_at(kept.len() - 1);
    format!("{start}{}{padding}", char::from(last.as_bytes()[0] + 1))
}

/// What a file of this text holds: `manifest`, `record NAMESPACE/NAME vN`, or
/// an error's text.
fn seen(text: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text).unwrap();
    match read(file.path()) {
        Ok(ReleaseFile::Manifest(_)) => "manifest".to_owned(),
        Ok(ReleaseFile::Record(record)) => {
            format!("record {}/{} v{}", record.namespace, record.name, record.revision)
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn file_is_read_as_manifest_or_exported_helm_record() {
    let payload = payload("shop", "web");
    let wrapped = BASE64_STANDARD.encode(&payload);
    let configmap = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: sh.helm.release.v1.web.v7\n  labels: {{owner: helm}}\n\
         data:\n  release: {payload}\n"
    );
    let json = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {"name": "sh.helm.release.v1.web.v7"}, "data": {"release": wrapped},
    });
    let check =
        |what: &str, text: &str, expected: &str| assert_eq!(seen(text.as_bytes()), expected, "{what}");
    check("helm get manifest", MANIFEST, "manifest");
    check("no object at all", "", "manifest");
    check("kubectl get secret -o yaml", &secret(&payload), "record shop/web v7");
    check("kubectl get secret -o json", &json.to_string(), "record shop/web v7");
    check("kubectl get configmap -o yaml", &configmap, "record shop/web v7");
    check("kubectl get secret -o jsonpath={.data.release}", &wrapped, "record shop/web v7");
    check("the same with an end of line", &format!("{wrapped}\n"), "record shop/web v7");
    check(
        "the same with bits behind its end, which Go ignores",
        &with_bits_behind(&wrapped),
        "record shop/web v7",
    );
    check("the payload", &payload, "record shop/web v7");
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, labels: {owner: helm}}\n";
    check("a manifest of one ConfigMap", other, "manifest");
}

#[test]
fn a_file_that_is_neither_says_why() {
    let check = |text: &[u8], expected: &str| assert_eq!(seen(text), expected);
    check(b"\xff\xfe", "it is not UTF-8 text");
    check(b"abc", "its record cannot be decoded");
    check(secret("e30=").as_bytes(), "its record cannot be decoded");
    check(
        b"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ntype: helm.sh/release.v1\n",
        "it is a record without data.release",
    );
    check(b"just: text\n", "document 0 is not a Kubernetes object: it has no kind");
    assert!(seen(b"a: [").starts_with("document 0 is not a Kubernetes object: it is not YAML"));
}

#[test]
fn a_bad_file_is_named_and_the_rest_is_served() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("shop/web.yaml", MANIFEST);
    put("shop/db.yaml", &secret(&payload("shop", "db")));
    put("shop/moved.yaml", &payload("elsewhere", "db"));
    put("shop/broken.yaml", "a: [");
    put("shop/notes.txt", "x");
    put("shop/.hidden.yaml", "a: [");
    put("..data/web.yaml", "a: [");
    put("Shop/web.yaml", MANIFEST);
    put("web.yaml", MANIFEST);

    let directory = load(root.path(), &Catalog::with_core()).unwrap();
    let served: Vec<_> = directory
        .releases
        .iter()
        .map(|Assembled { release, .. }| {
            let objects: Vec<_> = release.objects.keys().map(ToString::to_string).collect();
            let state = &release.state;
            format!("{} v{} {}: {}", release.id, state.revision, state.status, objects.join(", "))
        })
        .collect();
    let object = "ConfigMap/web in namespace shop";
    assert_eq!(served, [format!("shop/db v7 deployed: {object}"), format!("shop/web v1 deployed: {object}")]);
    let refused: Vec<_> = directory
        .unreadable
        .iter()
        .map(|error| {
            let path = error.path.strip_prefix(root.path()).unwrap().display().to_string();
            format!("{path}: {}", error.source)
        })
        .collect();
    let place = "a store may contain only NAMESPACE/RELEASE.yaml files";
    assert_eq!(refused.len(), 5, "{refused:#?}");
    assert_eq!(refused[0], format!("Shop: {place}"));
    let broken = "shop/broken.yaml: document 0 is not a Kubernetes object";
    assert!(refused[1].starts_with(broken), "{}", refused[1]);
    let other = "its record belongs to release elsewhere/db, but its path to shop/moved";
    assert_eq!(refused[2], format!("shop/moved.yaml: {other}"));
    assert_eq!(refused[3], format!("shop/notes.txt: {place}"));
    assert_eq!(refused[4], format!("web.yaml: {place}"));
}

#[test]
fn missing_record_directory_is_named_in_the_error() {
    let error = load(Path::new("/nowhere/store"), &Catalog::default()).err().unwrap();
    assert_eq!(error.to_string(), "cannot list the releases in /nowhere/store");
}

#[test]
fn a_pending_record_is_as_old_as_it_says() {
    let record = record::decode(payload("shop", "web").as_bytes(), DEFAULT_CAP).unwrap();
    let release =
        assemble(Record { status: ReleaseStatus::PendingUpgrade, ..record }, &Catalog::with_core()).release;
    assert_eq!(release.state.last_written, "2026-01-02T03:04:05Z".parse().unwrap());
    assert!(release.invalid.is_none());
}
