use super::*;
use kubemoor_policy::guarded::hidden_digest;

fn key() -> SigningKey {
    SigningKey::new([7; 32])
}

/// The digest of sevens of revision 3, whose record has this uid, as a status holds it.
fn hidden(record: Option<&str>) -> String {
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    hidden_digest(&key(), &release, (3, record), [7; 32]).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn guarded(status: Value) -> Value {
    json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"suspend": true}, "status": status,
    })
}

#[test]
fn status_of_previous_guard_process_is_restored() {
    let status = json!({
        "revision": 3, "recordUid": "u3", "manifestDigest": hidden(Some("u3")),
        "seen": [
            {"kind": "Service", "name": "web", "agreed": "AAECAwQFBgcICQoLDA0ODw", "unseen": ["/spec/ports"]},
            {"kind": "Namespace", "clusterScoped": true, "name": "n", "agreed": "mine"},
        ],
    });
    let remembered = remembered(&typed(guarded(status)).unwrap(), &key());
    let Some(LoopOrder::Remember { first, seen, contested, .. }) = remembered else { panic!("nothing") };
    assert_eq!((first.revision, first.digest, first.uid.as_deref()), (3, [7; 32], Some("u3")));
    let names: Vec<_> = seen.iter().map(|seen| seen.object.to_string()).collect();
    assert_eq!(names, ["Service/web in namespace shop", "Namespace/n"]);
    let agreed: Vec<_> =
        seen.iter().map(|seen| seen.agreement.as_ref().map(|it| it.open_paths().len())).collect();
    assert_eq!(agreed, [Some(1), None], "a text that is no seal is none");
    assert!(contested.is_empty());
}

#[test]
fn contested_objects_are_restored_from_status() {
    let status = |reason: &str| {
        let now = "2026-01-01T00:00:00Z";
        let condition = json!({
            "type": "Ready", "status": "False", "reason": reason, "message": "", "lastTransitionTime": now,
        });
        let drift = json!({"object": {"kind": "Service", "name": "web"}, "type": "changed", "since": now});
        json!({
            "revision": 3, "manifestDigest": hidden(None), "seen": [],
            "conditions": [condition], "drifts": [drift],
        })
    };
    let contested = |reason: &str| {
        let remembered = remembered(&typed(guarded(status(reason))).unwrap(), &key());
        let Some(LoopOrder::Remember { contested, .. }) = remembered else { panic!("nothing") };
        contested.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(contested("Contested"), ["Service/web in namespace shop"]);
    assert!(contested("Drifted").is_empty());
}

#[test]
fn invalid_guarded_release_status_is_ignored_without_error() {
    for status in [
        json!({"revision": "many"}),
        json!({"revision": 1, "manifestDigest": "ü".repeat(32)}),
        json!({"revision": 1, "manifestDigest": "zz".repeat(32)}),
        json!({}),
        Value::Null,
    ] {
        let object = typed(guarded(status.clone())).unwrap_or_else(|| panic!("{status}"));
        assert!(object.spec.suspend);
        assert!(remembered(&object, &key()).is_none(), "{status}");
    }
    assert!(typed(json!({"metadata": []})).is_none());
}

#[test]
fn managed_fields_of_guarded_release_are_dropped() {
    let mut object = guarded(json!({"revision": 3}));
    object["metadata"]["managedFields"] = json!([{"manager": "kubemoor", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}}]);
    let whole = typed(object).unwrap();
    assert_eq!(whole.metadata.managed_fields, None);
    assert_eq!(whole.status.map(|status| status.revision), Some(3));
}
