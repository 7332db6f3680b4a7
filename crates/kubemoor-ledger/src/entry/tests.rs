use serde_json::json;

use super::*;
use crate::row::Repaired;
use kubemoor_declare::model::{Actor, ObjectId, ReleaseId};

fn object(kind: &str) -> ObjectId {
    ObjectId::namespaced("", kind, "shop", "a")
}

fn entry(object: &ObjectId, fields: Vec<RowChange>, actor: Actor) -> LedgerEntry {
    let release = ReleaseId { namespace: "apps".into(), name: "web".into() };
    let row = LedgerRow::repair(Timestamp::now(), (&release, 2), object, Repaired::Restored, fields, "");
    LedgerEntry::seal(LedgerRow { actor, ..row }, 1 << 40, "east", Some(&SealingKey::new([3; 32])))
}

fn change(object: &ObjectId, path: &str, value: &serde_json::Value) -> RowChange {
    let shown = Shown::new(object, &path.parse().unwrap(), value);
    RowChange {
        path: path.to_owned(),
        declared: Some(shown.clone()),
        old: Some(shown.clone()),
        new: Some(shown),
        difference: None,
    }
}

#[test]
fn no_row_grows_beyond_its_caps() {
    let long = "x".repeat(100_000);
    let config = object("ConfigMap");
    let fields = (0..5000).map(|n| change(&config, &format!("/data/{n}{long}"), &json!(long))).collect();
    let groups = (0..5000).map(|n| format!("{n}{long}")).collect();
    let entry = entry(&config, fields, Actor { user: long.clone(), groups, ..Actor::default() });
    let size = serde_json::to_string(&entry).unwrap().len();
    assert!(size < 16 << 10, "{size}");
    assert_eq!(i64::try_from(entry.fields.len()).unwrap() + entry.more_fields, 5000);
    assert!(entry.groups.last().unwrap().starts_with("… ") && entry.user.ends_with('…'), "{entry:?}");
}

#[test]
fn row_namespace_comes_from_release_or_else_from_object() {
    let config = object("ConfigMap");
    let of_release = entry(&config, Vec::new(), Actor::default());
    assert_eq!(
        (of_release.namespace.as_str(), of_release.object.namespace.as_deref()),
        ("apps", Some("shop"))
    );
    let release = ReleaseId { namespace: "".into(), name: "".into() };
    let row = LedgerRow::repair(Timestamp::now(), (&release, 2), &config, Repaired::Restored, Vec::new(), "");
    let alone = LedgerEntry::seal(LedgerRow { release: None, ..row }, 1, "east", None);
    assert_eq!((alone.namespace.as_str(), alone.release), ("shop", None));
}

#[test]
fn without_a_key_a_secret_shows_nothing() {
    let secret = object("Secret");
    let release = ReleaseId { namespace: "apps".into(), name: "web".into() };
    let fields = vec![change(&secret, "/data/password", &json!("aHVudGVyMg=="))];
    let row = LedgerRow::repair(Timestamp::now(), (&release, 2), &secret, Repaired::Restored, fields, "");
    let entry = LedgerEntry::seal(row, 1, "east", None);
    assert_eq!(entry.fields[0].new.as_deref(), Some("(redacted)"));
}

#[test]
fn deny_mode_would_refuse_recorded_drift_but_not_excused_changes() {
    let edit = |verdict: &str, reason: &str| {
        let entry = entry(&object("ConfigMap"), Vec::new(), Actor::default());
        let (kind, verdict, reason) = ("verdict".to_owned(), verdict.to_owned(), reason.to_owned());
        LedgerEntry { kind, verdict, reason, ..entry }
    };
    for verdict in ["Record", "Warn", "Revert"] {
        for reason in ["request", "drift", "deletion", "dependants", "record", "too-large", "too-deep"] {
            assert!(edit(verdict, reason).would_be_denied(), "{verdict} {reason}");
        }
    }
    for (verdict, reason) in [
        ("Record", "allowed"),
        ("Record", "exempt"),
        ("Record", "unsettled"),
        ("Record", "busy"),
        ("Record", "late"),
        ("Warn", "unsettled"),
        ("Deny", "drift"),
        ("Error", "unreached"),
    ] {
        assert!(!edit(verdict, reason).would_be_denied(), "{verdict} {reason}");
    }
    let transition = LedgerEntry { kind: "record".to_owned(), ..edit("Record", "drift") };
    assert!(!transition.would_be_denied());
}
