//! What becomes of records that are brought together.

use super::*;
use crate::storage::TrustedRecordNamespaces;
use kubemoor_declare::catalog::Catalog;
use serde_json::Value;

const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 3}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {k: old}
";

const NEXT: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {k: new}
";

fn object(kind: &str) -> ObjectId {
    let group = if kind == "Deployment" { "apps" } else { "" };
    ObjectId::namespaced(group, kind, "shop", "web")
}

fn base() -> SampleRecord<'static> {
    SampleRecord { manifest: WEB, ..SampleRecord::default() }
}

fn next() -> SampleRecord<'static> {
    SampleRecord {
        revision: 2,
        status: ReleaseStatus::PendingUpgrade,
        manifest: NEXT,
        ..SampleRecord::default()
    }
}

fn undecodable() -> RecordPayload {
    RecordPayload::whole(Err(RecordError::Missing { field: "manifest" }))
}

/// The value of `k` that a release's latest and baseline declare.
fn values(release: &Release) -> (Option<Value>, Option<Value>) {
    let declarations = &release.objects[&object("ConfigMap")];
    let value = |declared: &Option<Arc<DeclaredObject>>| declared.as_ref()?.fields().get(&["data", "k"]);
    (value(&declarations.latest), value(&declarations.baseline))
}

#[test]
fn each_object_is_held_as_both_records_declare_it() {
    let release = assembled(next(), Some(base()));
    assert_eq!(values(&release), (Some("new".into()), Some("old".into())));
    let deployment = &release.objects[&object("Deployment")];
    assert!(deployment.latest.is_none() && deployment.baseline.is_some());
    assert!(release.declared(&object("Deployment")).is_some());
    assert!(release.declared(&object("Secret")).is_none());
    assert_eq!((release.state.revision, release.state.status), (2, ReleaseStatus::PendingUpgrade));
    assert_eq!(release.state.digest, digest(NEXT));
    assert_eq!(release.baseline, Some(base().head()));
    assert_eq!(release.invalid, None);
}

#[test]
fn invalid_latest_record_keeps_the_last_valid_release() {
    let (good, head) = (assembled(base(), None), next().head());
    let catalog = Catalog::with_core();
    for payload in [undecodable(), SampleRecord { name: "api", ..next() }.payload()] {
        let (base_head, base_payload) = (base().head(), base().payload());
        let baseline = Some((&base_head, &base_payload));
        let found = assemble(
            StoredRecords { stored: &good.id, latest: (&head, &payload), baseline },
            Some(&good),
            &TrustedRecordNamespaces::default(),
            &catalog,
            &Arc::default(),
        )
        .release;
        assert_eq!(found.state, good.state);
        assert!(Arc::ptr_eq(&found.objects, &good.objects));
        assert_eq!(found.invalid.as_ref().unwrap().secret, "sh.helm.release.v1.web.v2");
        assert_eq!(found.latest, head);
        // And again from there.
        let again = assemble(
            StoredRecords { stored: &good.id, latest: (&head, &payload), baseline: None },
            Some(&found),
            &TrustedRecordNamespaces::default(),
            &catalog,
            &Arc::default(),
        )
        .release;
        assert_eq!(again.state, good.state);
        assert!(again.invalid.is_some());
    }
}

#[test]
fn baseline_is_used_when_latest_record_was_never_valid() {
    let (base_head, base_payload) = (base().head(), base().payload());
    let head = next().head();
    let found = assemble(
        StoredRecords {
            stored: &base().id(),
            latest: (&head, &undecodable()),
            baseline: Some((&base_head, &base_payload)),
        },
        None,
        &TrustedRecordNamespaces::default(),
        &Catalog::with_core(),
        &Arc::default(),
    );
    let release = found.release;
    assert_eq!((release.state.revision, release.state.status), (1, ReleaseStatus::Deployed));
    assert_eq!(release.state.digest, digest(WEB));
    assert_eq!(values(&release), (Some("old".into()), None));
    assert!(release.invalid.is_some());
}

#[test]
fn a_release_with_nothing_to_believe_declares_nothing() {
    let found = assemble(
        StoredRecords { stored: &base().id(), latest: (&base().head(), &undecodable()), baseline: None },
        None,
        &TrustedRecordNamespaces::default(),
        &Catalog::with_core(),
        &Arc::default(),
    )
    .release;
    assert_eq!((found.state.status, found.objects.len()), (ReleaseStatus::Unknown, 0));
    let reason = found.invalid.unwrap().reason;
    assert_eq!(reason, "the record has no `manifest`");
}

#[test]
fn a_baseline_that_is_not_believed_declares_nothing() {
    let (head, payload) = (base().head(), undecodable());
    let found = assemble(
        StoredRecords {
            stored: &base().id(),
            latest: (&next().head(), &next().payload()),
            baseline: Some((&head, &payload)),
        },
        None,
        &TrustedRecordNamespaces::default(),
        &Catalog::with_core(),
        &Arc::default(),
    );
    assert_eq!(found.release.objects.len(), 1);
    assert_eq!(found.release.baseline, Some(head));
}

#[test]
fn last_document_of_a_duplicate_object_counts() {
    let twice = format!("{WEB}---\n{NEXT}");
    assert_eq!(
        values(&assembled(SampleRecord { manifest: &twice, ..base() }, None)),
        (Some("new".into()), None)
    );
}

#[test]
fn invalid_manifest_documents_are_reported_as_skipped() {
    let manifest = format!("{NEXT}---\n- a list\n---\nkind: ConfigMap\n");
    let found = assemble(
        StoredRecords {
            stored: &base().id(),
            latest: (&base().head(), &SampleRecord { manifest: &manifest, ..base() }.payload()),
            baseline: None,
        },
        None,
        &TrustedRecordNamespaces::default(),
        &Catalog::with_core(),
        &Arc::default(),
    );
    assert_eq!(found.release.objects.len(), 1);
    assert_eq!(found.skipped.iter().map(|skipped| skipped.index).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn objects_lie_where_helm_puts_them_and_carry_its_metadata() {
    let manifest = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: other}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: web, namespace: other}
---
apiVersion: example.org/v1
kind: Thing
metadata: {name: web}
";
    let (found, skipped) = documents(&base().id(), manifest, &Catalog::with_core());
    assert!(skipped.is_empty());
    let places: Vec<_> = found.iter().map(|(id, _)| (id.kind.as_str(), id.namespace.as_deref())).collect();
    let wanted = [
        ("ConfigMap", Some("shop")),
        ("ConfigMap", Some("other")),
        ("ClusterRole", None),
        ("Thing", Some("shop")),
    ];
    assert_eq!(places, wanted);
    for (id, document) in &found {
        let read = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
        assert_eq!(read("/metadata/namespace"), id.namespace.as_deref());
        assert_eq!(read("/metadata/labels/app.kubernetes.io~1managed-by"), Some("Helm"));
        assert_eq!(read("/metadata/annotations/meta.helm.sh~1release-name"), Some("web"));
        assert_eq!(read("/metadata/annotations/meta.helm.sh~1release-namespace"), Some("shop"));
    }
}

/// Whether an annotation opts an object out, and whether it keeps it.
#[track_caller]
fn check_annotation(annotation: &str, wanted: (bool, bool)) {
    let manifest = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\n  annotations:\n    {annotation}\n"
    );
    let release = assembled(SampleRecord { manifest: &manifest, ..base() }, None);
    let declared = release.declared(&object("ConfigMap")).unwrap();
    assert_eq!((declared.opted_out, declared.keep), wanted, "{annotation}");
}

#[test]
fn a_manifest_opts_out_by_exactly_these_annotations() {
    check_annotation("kubemoor.dev/guard: disabled", (true, false));
    check_annotation("helm.toolkit.fluxcd.io/driftDetection: disabled", (true, false));
    check_annotation("kubemoor.dev/guard: enabled", (false, false));
    check_annotation("kubemoor.dev/guard: Disabled", (false, false));
    check_annotation("kubemoor.dev/other: disabled", (false, false));
}

#[test]
fn a_manifest_keeps_by_helms_own_reading_of_the_word() {
    check_annotation("helm.sh/resource-policy: keep", (false, true));
    check_annotation("helm.sh/resource-policy: ' KEEP '", (false, true));
    check_annotation("helm.sh/resource-policy: delete", (false, false));
}

/// What records in `flux-system`, trusted for `shop` alone, come to when their
/// payloads give these namespaces: the release's own, whether it counts, and
/// where it declares its one object.
#[track_caller]
fn check_stored(
    latest: &str,
    baseline: Option<&str>,
    previous: Option<&Release>,
    wanted: (&str, bool, &[&str]),
) {
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    let given = |namespace, revision, status| SampleRecord {
        namespace,
        revision,
        status,
        manifest,
        ..SampleRecord::default()
    };
    let stored = ReleaseId { namespace: "flux-system".into(), name: "web".into() };
    let storage = [("flux-system", "shop")].into_iter().collect();
    let base = baseline.map(|namespace| given(namespace, 1, ReleaseStatus::Superseded));
    let base = base.map(|given| (given.head(), given.payload()));
    let latest = given(latest, 2, ReleaseStatus::Deployed);
    let found = assemble(
        StoredRecords {
            stored: &stored,
            latest: (&latest.head(), &latest.payload()),
            baseline: base.as_ref().map(|(head, payload)| (head, payload)),
        },
        previous,
        &storage,
        &Catalog::with_core(),
        &Arc::default(),
    );
    let release = found.release;
    let objects: Vec<_> = release.objects.keys().map(|object| object.namespace.as_deref().unwrap()).collect();
    let found = (release.id.namespace.as_str(), release.invalid.is_none(), objects.as_slice());
    assert_eq!((found, release.storage.as_str()), (wanted, "flux-system"));
}

#[test]
fn records_in_other_namespace_count_only_for_trusted_releases() {
    check_stored("shop", None, None, ("shop", true, &["shop"]));
    check_stored("flux-system", None, None, ("flux-system", true, &["flux-system"]));
    // Nobody trusts them with these.
    check_stored("billing", None, None, ("flux-system", false, &[]));
    check_stored("billing", Some("billing"), None, ("flux-system", false, &[]));
    check_stored("billing", Some("shop"), None, ("shop", false, &["shop"]));
    // A baseline of another release is none of this one.
    check_stored("shop", Some("flux-system"), None, ("shop", true, &["shop"]));
    check_stored("shop", Some("billing"), None, ("shop", true, &["shop"]));
}

#[test]
fn previous_release_namespace_is_kept_only_while_trusted() {
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    let before = |namespace| {
        let stored = ReleaseId { namespace: "flux-system".into(), name: "web".into() };
        let given = SampleRecord { namespace, manifest, ..SampleRecord::default() };
        let storage = [("flux-system", namespace)].into_iter().collect();
        let latest = (&given.head(), &given.payload());
        assemble(
            StoredRecords { stored: &stored, latest, baseline: None },
            None,
            &storage,
            &Catalog::with_core(),
            &Arc::default(),
        )
        .release
    };
    check_stored("other", None, Some(&before("shop")), ("shop", false, &["shop"]));
    // The pair is gone since.
    check_stored("billing", None, Some(&before("billing")), ("flux-system", false, &[]));
    check_stored("billing", Some("shop"), Some(&before("billing")), ("shop", false, &["shop"]));
}

#[test]
fn objects_default_to_release_namespace_when_records_are_stored_elsewhere() {
    let (objects, _) = documents(
        &ReleaseId { namespace: "shop".into(), name: "web".into() },
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n",
        &Catalog::with_core(),
    );
    let (id, object) = objects.first().unwrap();
    assert_eq!(id.namespace.as_deref(), Some("shop"));
    assert_eq!(object["metadata"]["annotations"]["meta.helm.sh/release-namespace"], "shop");
}

#[test]
fn release_that_declares_too_much_is_told_and_not_judged() {
    let object =
        |number: usize| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{number}}}\n");
    let many: String = (0..=MAX_OBJECTS).map(object).collect();
    let text = "a".repeat(MAX_WEIGHT / 6);
    let long: String = (0..8).map(|number| format!("{}data: {{a: {text}}}\n", object(number))).collect();
    for (manifest, reason) in
        [(&many, DeclarationLimitError::Objects), (&long, DeclarationLimitError::Weight)]
    {
        let given = SampleRecord { manifest, ..SampleRecord::default() };
        let release = assembled(given, None);
        assert_eq!(release.invalid.unwrap().reason, reason.to_string());
        assert!(release.objects.is_empty() && release.weight == 0);
        // Nothing is refused by what came before either.
        let previous = assembled(SampleRecord { manifest: WEB, ..SampleRecord::default() }, None);
        assert!(previous.weight > 0 && !previous.objects.is_empty());
    }
}

#[test]
fn the_last_document_of_an_object_counts_and_those_before_it_are_known() {
    let twice = format!("{NEXT}---\n{}---\n{}", NEXT.replace("new", "newer"), NEXT.replace("new", "newest"));
    let release = assembled(SampleRecord { manifest: &twice, ..next() }, Some(base()));
    assert_eq!(values(&release), (Some("newest".into()), Some("old".into())));
    let declarations = &release.objects[&object("ConfigMap")];
    let value = |declared: &Arc<DeclaredObject>| declared.fields().get(&["data", "k"]).unwrap();
    let all: Vec<_> = declarations.all().map(value).collect();
    assert_eq!(all, ["newest", "new", "newer", "old"]);
    let memory = |release: &Release| release.weight;
    assert!(memory(&release) > memory(&assembled(next(), Some(base()))));
}
