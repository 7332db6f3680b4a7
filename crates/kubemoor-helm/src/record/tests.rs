use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::*;

mod chart;
mod values;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The bytes as Helm's storage driver encodes them.
fn payload(text: &str) -> Vec<u8> {
    STANDARD.encode(gzip(text.as_bytes())).into_bytes()
}

fn release() -> Value {
    json!({
        "name": "web",
        "info": {
            "first_deployed": "2026-01-02T03:04:05.123456789Z",
            "last_deployed": "2026-01-02T03:04:05.123456789+01:00",
            "deleted": "",
            "description": "Install complete",
            "status": "deployed"
        },
        "chart": {"metadata": {"name": "web", "version": "1.2.3"}, "values": {"password": "hunter2"}},
        "config": {"password": "hunter2"},
        "manifest": "---\n# Source: web/a.yaml\nkind: A\n",
        "hooks": [{"manifest": "kind: Hook"}],
        "version": 3,
        "namespace": "shop"
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut release = release();
    match pointer.rsplit_once('/') {
        Some((parent, field)) => {
            release.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(field.to_owned(), value);
        }
        None => panic!("{pointer} is no pointer"),
    }
    release
}

fn read(release: &Value) -> Result<Record, RecordError> {
    decode(&payload(&release.to_string()), DEFAULT_CAP)
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let error = decode(&payload(text), DEFAULT_CAP).unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    assert!(!error.contains("hunter2"), "{error:?}");
}

#[test]
fn a_record_of_helm_3_is_decoded() {
    let record = read(&release()).unwrap();
    let expected = Record {
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        revision: 3,
        status: ReleaseStatus::Deployed,
        manifest: "---\n# Source: web/a.yaml\nkind: A\n".to_owned(),
        digest: digest("---\n# Source: web/a.yaml\nkind: A\n"),
        values: digest(r#"{"password":"hunter2"}"#),
        apply_method: ApplyMethod::ClientSide,
        chart: ChartVersion::new("web", "1.2.3"),
        last_deployed: Some("2026-01-02T02:04:05.123456789Z".parse().unwrap()),
        deleted: None,
    };
    assert_eq!(record, expected);
}

fn digest(manifest: &str) -> [u8; 32] {
    Sha256::digest(manifest.as_bytes()).into()
}

fn packed(release: &Value) -> PackedRecord {
    PackedRecord::new(STANDARD.encode(payload(&release.to_string())), true)
}

#[test]
fn long_manifest_is_left_out_and_unpacked_again() {
    let manifest = "kind: \"Ä\u{1F600}\"\t\\\r\n".repeat(20_000);
    let release = with("/manifest", json!(manifest));
    let (record, length) = packed(&release).decode(1000).unwrap();
    assert_eq!((record.manifest.as_str(), length), ("", manifest.len()));
    assert_eq!(record.digest, digest(&manifest));
    assert_eq!((record.name.as_str(), record.revision), ("web", 3));
    assert_eq!(packed(&release).manifest().unwrap(), manifest);
    assert_eq!(packed(&release).decode(length).unwrap().0.manifest, manifest);
    assert_eq!(read(&release).unwrap().digest, digest(&manifest));
}

#[test]
fn manifest_beyond_its_cap_is_refused() {
    let release = with("/manifest", json!("a".repeat(MANIFEST_CAP + 1)));
    for error in [read(&release).unwrap_err(), packed(&release).decode(0).unwrap_err()] {
        assert!(matches!(error, RecordError::LongManifest { .. }), "{error}");
    }
    assert!(read(&with("/manifest", json!("a".repeat(MANIFEST_CAP)))).is_ok());
    assert!(read(&with("/config", json!({"a": "a".repeat(MANIFEST_CAP + 1)}))).is_ok());
}

#[test]
fn long_texts_beside_the_manifest_pass_as_their_beginning() {
    let long = "\u{e4}\\\"".repeat(5000);
    let record = read(&with("/apply_method", json!(long))).unwrap();
    assert_eq!(record.apply_method, ApplyMethod::ClientSide);
    assert!(read(&with("/name", json!(long))).unwrap().name.len() < 5000);
    assert!(read(&with("/chart/a", json!(long))).is_ok());
    let mut keyed = release();
    keyed.as_object_mut().unwrap().insert(long, json!({"manifest": "other"}));
    assert_eq!(read(&keyed).unwrap(), read(&release()).unwrap());
    // As Go spells `<`.
    for length in filter::PASSING - 10..filter::PASSING + 10 {
        let notes = "x".repeat(length) + r"\u003c\u003c";
        let text = release().to_string().replacen('{', &format!("{{\"notes\":\"{notes}\","), 1);
        assert!(decode(&payload(&text), DEFAULT_CAP).is_ok(), "{length}");
    }
}

#[test]
fn manifest_is_read_as_any_json_text_is() {
    let text = |manifest: &str| {
        let text = release().to_string();
        let plain = json!("---\n# Source: web/a.yaml\nkind: A\n").to_string();
        assert!(text.contains(&plain));
        text.replace(&plain, &format!("\"{manifest}\""))
    };
    let long = [r"\ud83d\ude00", r"\ud83d", r"\\ud83d", r"\u00e4", r"\n", "ä", "😀"];
    let long: Vec<String> = (0..12)
        .flat_map(|shift| {
            long.map(|letter| "a".repeat(shift) + &letter.repeat(3 * filter::PIECE / letter.len()))
        })
        .collect();
    let short = [
        r"",
        r"a\nb\t\/\b\f\r\\\u0041\u00e4",
        r"\ud83d\ude00",
        r"\u0000",
        "ä😀",
        r"\ud83d",
        r"\ude00\ud83d",
        r"\ud83dx",
        r"\ud83d\n",
        r"\u12",
        r"\x",
        "\n",
        "\u{1}",
        r"\uD83D\uDE00",
        r"\ud83d\u0041",
    ];
    for manifest in short.into_iter().chain(long.iter().map(String::as_str)) {
        let expected = serde_json::from_str::<String>(&format!("\"{manifest}\""));
        let found = decode(&payload(&text(manifest)), DEFAULT_CAP);
        assert_eq!(found.ok().map(|record| record.manifest), expected.ok(), "{manifest:.40?}");
    }
    let mut bytes = text("HERE").into_bytes();
    let at = bytes.windows(4).position(|window| window == b"HERE").unwrap();
    bytes[at] = 0xff;
    assert!(decode(STANDARD.encode(gzip(&bytes)).as_bytes(), DEFAULT_CAP).is_err());
}

#[test]
fn a_record_of_helm_4_is_decoded() {
    let payload = include_bytes!("../../../../tests/golden/corner.record");
    let record = decode(payload, DEFAULT_CAP).unwrap();
    assert_eq!((record.name.as_str(), record.namespace.as_str()), ("corner", "golden"));
    assert_eq!((record.revision, record.status), (1, ReleaseStatus::Deployed));
    assert_eq!(record.apply_method, ApplyMethod::ServerSide);
    assert!(record.last_deployed.is_some());
    assert_eq!(record.deleted, None);
    assert!(record.manifest.starts_with("---\n# Source: corner/templates/"));
}

#[test]
fn a_record_without_compression_is_decoded() {
    let text = release().to_string();
    assert_eq!(decode(STANDARD.encode(&text).as_bytes(), DEFAULT_CAP).unwrap(), read(&release()).unwrap());
    let lines: Vec<_> = payload(&text).chunks(60).map(<[u8]>::to_vec).collect();
    assert_eq!(decode(&lines.join(&b"\r\n"[..]), DEFAULT_CAP).unwrap(), read(&release()).unwrap());
}

#[test]
fn methods_and_times_are_those_of_the_release() {
    let method = |method: &str| read(&with("/apply_method", json!(method))).unwrap().apply_method;
    assert_eq!(method("ssa"), ApplyMethod::ServerSide);
    assert_eq!(method("csa"), ApplyMethod::ClientSide);
    assert_eq!(method(""), ApplyMethod::ClientSide);
    let deleted = |time: Value| read(&with("/info/deleted", time)).unwrap().deleted;
    assert_eq!(deleted(json!("2026-01-02T03:04:05Z")), Some("2026-01-02T03:04:05Z".parse().unwrap()));
    for none in [json!(""), Value::Null, json!("0001-01-01T00:00:00Z")] {
        assert_eq!(deleted(none), None);
    }
    let error = read(&with("/info/deleted", json!("yesterday"))).unwrap_err().to_string();
    assert_eq!(error, "the record's `info.deleted` is not an RFC 3339 time");
}

#[test]
fn a_chart_without_objects_has_an_empty_manifest() {
    let mut bare = release();
    bare.as_object_mut().unwrap().remove("manifest");
    assert_eq!(read(&bare).unwrap().manifest, "");
    assert_eq!(read(&with("/manifest", Value::Null)).unwrap().manifest, "");
}

#[test]
fn every_status_has_its_word() {
    let pending =
        [ReleaseStatus::PendingInstall, ReleaseStatus::PendingUpgrade, ReleaseStatus::PendingRollback];
    let others = [
        ReleaseStatus::Unknown,
        ReleaseStatus::Deployed,
        ReleaseStatus::Uninstalled,
        ReleaseStatus::Superseded,
        ReleaseStatus::Failed,
        ReleaseStatus::Uninstalling,
    ];
    for status in pending.into_iter().chain(others) {
        assert_eq!(status.to_string().parse(), Ok(status));
        assert_eq!(read(&with("/info/status", json!(status.as_str()))).unwrap().status, status);
        assert_eq!(status.is_pending(), pending.contains(&status));
    }
    for word in ["Deployed", "deployed ", "pending", ""] {
        assert_eq!(word.parse(), Ok(ReleaseStatus::Unknown));
    }
}

#[test]
fn record_without_a_required_field_is_rejected() {
    for (pointer, field) in [
        ("/name", "name"),
        ("/namespace", "namespace"),
        ("/info/status", "info.status"),
        ("/info", "info.status"),
    ] {
        check_refused(&with(pointer, Value::Null).to_string(), &format!("has no `{field}`"));
    }
    check_refused(&with("/name", json!("")).to_string(), "has no `name`");
    check_refused(&with("/version", json!(0)).to_string(), "has no `version`");
    check_refused("{}", "has no `name`");
    check_refused("null", "has no `name`");
}

#[test]
fn record_with_duplicate_or_case_variant_fields_is_rejected() {
    let text = release().to_string();
    for (extra, field) in [
        (r#""manifest":"hunter2""#, "manifest"),
        (r#""Manifest":"hunter2""#, "manifest"),
        (r#""MANIFEST":{"a":[1]}"#, "manifest"),
        (r#""verſion":1"#, "version"),
        (r#""info":{}"#, "info"),
        (r#""\u006eame":"hunter2""#, "name"),
        (r#""nameSpace":"hunter2""#, "namespace"),
    ] {
        check_refused(
            &text.replacen('{', &format!("{{{extra},"), 1),
            &format!("gives `{field}` more than once"),
        );
    }
    check_refused(
        &text.replace("\"manifest\":\"-", "\"\\u006danifest\":\"-"),
        "gives `manifest` more than once",
    );
    let twice = text.replacen("\"status\"", "\"Status\":\"failed\",\"status\"", 1);
    check_refused(&twice, "gives `status` more than once");
    assert!(read(&with("/chart/manifest", json!("a"))).is_ok());
}

#[test]
fn broken_json_is_refused_without_quoting_it() {
    let text = release().to_string();
    check_refused(&format!("{text} {{}}"), "a syntax error at byte");
    check_refused(&format!("{text}hunter2"), "a syntax error at byte");
    check_refused(text.trim_end_matches('}'), "an unexpected end at byte");
    check_refused("", "an unexpected end at byte");
    check_refused("[]", "a value of an unexpected type");
    check_refused("\"hunter2\"", "a value of an unexpected type");
    check_refused(&with("/version", json!("hunter2")).to_string(), "a value of an unexpected type");
    check_refused(&with("/version", json!(-1)).to_string(), "a value of an unexpected type");
    check_refused(&with("/version", json!(1.5)).to_string(), "a value of an unexpected type");
    check_refused(&with("/manifest", json!(["hunter2"])).to_string(), "a value of an unexpected type");
    check_refused(&with("/info", json!("hunter2")).to_string(), "a value of an unexpected type");
}

#[test]
fn broken_encodings_are_named() {
    let encode = |bytes: &[u8]| STANDARD.encode(bytes).into_bytes();
    let whole = gzip(release().to_string().as_bytes());
    let cut = &whole[..whole.len() / 2];
    let mut sum = whole.clone();
    let last = sum.len() - 6;
    sum[last] ^= 1;
    let mut trailing = whole.clone();
    trailing.extend(b"hunter2");
    for (payload, expected) in [
        (b"not base64!".to_vec(), "not base64 text"),
        (payload(&release().to_string()).split_last().unwrap().1.to_vec(), "not base64 text"),
        (encode(cut), "does not decompress"),
        (encode(&sum), "does not decompress"),
        (encode(&trailing), "does not decompress"),
        (encode(&whole[..5]), "does not decompress"),
        (Vec::new(), "an unexpected end"),
    ] {
        let error = decode(&payload, DEFAULT_CAP).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
}

#[test]
fn the_cap_counts_decompressed_bytes() {
    let text = release().to_string();
    assert!(decode(&payload(&text), text.len()).is_ok());
    let error = decode(&payload(&text), text.len() - 1).unwrap_err();
    assert!(matches!(error, RecordError::TooLarge { cap } if cap == text.len() - 1));
    let plain = STANDARD.encode(&text).into_bytes();
    assert!(decode(&plain, text.len()).is_ok());
    assert!(matches!(decode(&plain, 10), Err(RecordError::TooLarge { cap: 10 })));
}

#[test]
fn ten_gigabytes_cost_no_more_than_the_cap() {
    let block = gzip(&vec![b'a'; 16 << 20]);
    for field in ["chart", "manifest"] {
        let mut bomb = gzip(format!("{{\"{field}\":\"").as_bytes());
        for _ in 0..640 {
            bomb.extend(&block);
        }
        bomb.extend(gzip(b"\"}"));
        let error = decode(STANDARD.encode(&bomb).as_bytes(), 1 << 20).unwrap_err();
        assert!(matches!(error, RecordError::TooLarge { .. }), "{error}");
    }
}

#[test]
fn a_hundred_thousand_levels_cost_no_stack() {
    let deep = |field: &str| {
        let levels = "[".repeat(100_000) + &"]".repeat(100_000);
        release().to_string().replacen('{', &format!("{{\"{field}\":{levels},"), 1)
    };
    assert!(decode(&payload(&deep("extra")), DEFAULT_CAP).is_ok());
    assert!(decode(&payload(&deep("name")), DEFAULT_CAP).is_err());
}

#[test]
fn debug_output_holds_no_manifest() {
    let record = read(&with("/manifest", json!("hunter2"))).unwrap();
    let text = format!("{record:?}");
    assert!(!text.contains("hunter2") && text.contains("<7 bytes>"), "{text}");
}

#[test]
fn names_of_records_are_helms() {
    assert_eq!(record_name("web", 12), "sh.helm.release.v1.web.v12");
    for (name, expected) in [
        ("sh.helm.release.v1.web.v12", Some(("web", 12))),
        ("sh.helm.release.v1.a.v1.v2", Some(("a.v1", 2))),
        ("sh.helm.release.v1.web.v0", None),
        ("sh.helm.release.v1.web.v01", None),
        ("sh.helm.release.v1.web.v+1", None),
        ("sh.helm.release.v1.web.v-1", None),
        ("sh.helm.release.v1.web.v99999999999999999999", None),
        ("sh.helm.release.v1.web", None),
        ("sh.helm.release.v1..v1", None),
        ("sh.helm.release.v2.web.v1", None),
        ("web.v1", None),
        ("", None),
    ] {
        let expected = expected.map(|(release, revision)| (release.to_owned(), revision));
        assert_eq!(parse_record_name(name), expected, "{name}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes, 1 << 16).is_err());
        prop_assert!(decode(STANDARD.encode(&bytes).as_bytes(), 1 << 16).is_err());
        prop_assert!(decode(STANDARD.encode(gzip(&bytes)).as_bytes(), 1 << 16).is_err());
    }

    #[test]
    fn any_damage_to_a_record_is_refused_or_harmless(at in 0usize..600, byte in any::<u8>()) {
        let mut text = release().to_string().into_bytes();
        if let Some(slot) = text.get_mut(at) {
            *slot = byte;
        }
        let _ = decode(STANDARD.encode(gzip(&text)).as_bytes(), 1 << 16);
    }

    #[test]
    fn names_of_records_come_back(release in "[a-z0-9]([a-z0-9.v-]{0,20}[a-z0-9])?", revision in 1u64..) {
        prop_assert_eq!(parse_record_name(&record_name(&release, revision)), Some((release, revision)));
    }
}
