//! Helm's records, forged and taken apart: gzip and base64 around a release's JSON, in a Secret.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

/// The name of the Secret that holds a revision.
pub(crate) fn record_name(release: &str, revision: u32) -> String {
    format!("sh.helm.release.v1.{release}.v{revision}")
}

/// A record that agrees with itself, as whoever may write Secrets can write it.
pub(crate) fn forged(namespace: &str, release: &str, revision: u32, status: &str, manifest: &str) -> Secret {
    let content = json!({
        "name": release,
        "namespace": namespace,
        "version": revision,
        "info": {"status": status, "last_deployed": "2026-01-01T00:00:00Z"},
        "manifest": manifest,
    });
    holding(namespace, release, revision, status, sealed(&content))
}

/// A record with any payload under honest labels.
pub(crate) fn holding(
    namespace: &str,
    release: &str,
    revision: u32,
    status: &str,
    payload: Vec<u8>,
) -> Secret {
    let labels =
        [("owner", "helm"), ("name", release), ("version", &revision.to_string()), ("status", status)];
    let metadata = ObjectMeta {
        name: Some(record_name(release, revision)),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..ObjectMeta::default()
    };
    let data = BTreeMap::from([("release".to_owned(), ByteString(payload))]);
    Secret { metadata, data: Some(data), type_: Some("helm.sh/release.v1".to_owned()), ..Secret::default() }
}

/// The release's JSON in a record.
pub(crate) fn opened(record: &Secret) -> Value {
    let payload = &record.data.as_ref().unwrap()["release"].0;
    let compressed = BASE64_STANDARD.decode(payload).unwrap();
    let mut text = String::new();
    GzDecoder::new(compressed.as_slice()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A release's JSON as a record's payload.
pub(crate) fn sealed(content: &Value) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(content.to_string().as_bytes()).unwrap();
    encoded(&gzip.finish().unwrap())
}

/// A payload that is within what a Secret holds and grows to `bytes` when it is decompressed.
pub(crate) fn bomb(bytes: usize) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(br#"{"name":"bomb","manifest":""#).unwrap();
    let block = [b'A'; 1 << 16];
    for _ in 0..bytes / block.len() {
        gzip.write_all(&block).unwrap();
    }
    gzip.write_all(br#""}"#).unwrap();
    let payload = encoded(&gzip.finish().unwrap());
    assert!(payload.len() < 1 << 20, "{} bytes do not fit into a Secret", payload.len());
    payload
}

/// What Helm puts around the bytes of a release.
pub(crate) fn encoded(bytes: &[u8]) -> Vec<u8> {
    BASE64_STANDARD.encode(bytes).into_bytes()
}
