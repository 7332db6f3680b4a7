mod claims {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::*;
    use crate::sample_releases::{SampleRecord, assembled};
    use crate::sample_verdicts::resolver;
    use crate::webhook::review;
    use kubemoor_declare::model::{EditsMode, ObjectId};
    use kubemoor_runtime::config::RecordDriver;

    const MANIFEST: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {k: v}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 3}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

    fn release(namespace: &str, name: &str) -> Release {
        assembled(SampleRecord { manifest: MANIFEST, namespace, name, ..SampleRecord::default() }, None)
    }

    /// The foreign claims are seen first.
    fn index() -> RwLock<Index> {
        let mut index = Index::default();
        for (namespace, name) in [("thief", "a"), ("thief", "b"), ("shop", "web"), ("shop", "web2")] {
            index.set(release(namespace, name));
        }
        RwLock::new(index)
    }

    /// An update of an object by a release's annotations before and after.
    fn review(group: &str, kind: &str, version: &str, name: &str, owners: [Option<&str>; 2]) -> String {
        let namespace = (kind != "Namespace").then_some("shop");
        let object = |owner: Option<&str>| {
            let (namespace, name) = owner.map(|it| it.split_once('/').unwrap()).unzip();
            json!({"metadata": {"name": "x", "annotations": {RELEASE_NAMESPACE: namespace, RELEASE_NAME: name}}})
        };
        let [old, new] = owners.map(object);
        let resource =
            json!({"group": group, "version": version, "resource": format!("{}s", kind.to_lowercase())});
        json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": group, "version": version, "kind": kind}, "resource": resource,
            "name": name, "namespace": namespace, "operation": "UPDATE", "userInfo": {"username": "alice"},
            "object": new, "oldObject": old,
        },
    })
    .to_string()
    }

    fn names(claims: &[Arc<Release>]) -> Value {
        json!(claims.iter().map(|claim| claim.id.to_string()).collect::<Vec<_>>())
    }

    fn counting_in(review: &str, index: &RwLock<Index>) -> (Vec<Arc<Release>>, Option<ReleaseId>) {
        let request = review::AdmissionRequest::parse(review.as_bytes()).unwrap();
        let subject = ReviewSubject::from_head(&request.head, &index.read(), RecordDriver::Secret).unwrap();
        let case = ReviewCase::new(subject, request, RecordDriver::Secret);
        let claims = case.claims(index, &resolver(EditsMode::Deny));
        let named = case.newly_named(&claims);
        (claims, named)
    }

    #[test]
    fn claims_count_by_namespace_and_owner_with_the_owner_first() {
        let index = index();
        let check = |kind: &str, name: &str, owner: Option<&str>, expected: Value| {
            let (claims, _) = counting_in(&review("", kind, "v1", name, [owner, owner]), &index);
            assert_eq!(names(&claims), expected, "{kind} {owner:?}");
        };
        check("ConfigMap", "settings", None, json!(["shop/web", "shop/web2"]));
        check("ConfigMap", "settings", Some("shop/web2"), json!(["shop/web2", "shop/web"]));
        check("ConfigMap", "settings", Some("thief/b"), json!(["thief/b", "shop/web", "shop/web2"]));
        check("ConfigMap", "settings", Some("thief/none"), json!(["shop/web", "shop/web2"]));
        check("ConfigMap", "other", Some("shop/web"), json!([]));
        check("Namespace", "shop", None, json!([]));
        check("Namespace", "shop", Some("thief/b"), json!(["thief/b"]));
    }

    #[test]
    fn a_release_counts_that_only_the_new_object_names_if_none_else_does() {
        let index = index();
        let check = |kind: &str, name: &str, owners: [Option<&str>; 2], expected: Value| {
            let (claims, _) = counting_in(&review("", kind, "v1", name, owners), &index);
            assert_eq!(names(&claims), expected, "{kind} {owners:?}");
        };
        check("Namespace", "shop", [None, Some("thief/b")], json!(["thief/b"]));
        // Whoever created it could give it the name of a release that does not declare it.
        check("Namespace", "shop", [Some("other/late"), Some("thief/b")], json!(["thief/b"]));
        check("Namespace", "shop", [Some("thief/a"), Some("thief/b")], json!(["thief/a"]));
        check("Namespace", "shop", [Some("thief/b"), Some("other/late")], json!(["thief/b"]));
        check("ConfigMap", "settings", [None, Some("thief/b")], json!(["shop/web", "shop/web2"]));
    }

    #[test]
    fn a_claim_is_heard_in_its_own_version_alone() {
        let index = index();
        let autoscaler = |version| {
            let owner = Some("shop/web");
            let review = review("autoscaling", "HorizontalPodAutoscaler", version, "web", [owner, owner]);
            names(&counting_in(&review, &index).0)
        };
        assert_eq!(autoscaler("v2"), json!(["shop/web", "shop/web2"]));
        assert_eq!(autoscaler("v1"), json!([]));
    }

    #[test]
    fn named_unknown_release_is_read_only_if_it_could_count() {
        let index = index();
        let named = |owners: [Option<&str>; 2]| {
            let review = review("", "ConfigMap", "v1", "settings", owners);
            counting_in(&review, &index).1.map(|release| release.to_string())
        };
        let web = Some("shop/web");
        assert_eq!(named([web, web]), None);
        assert_eq!(named([web, Some("shop/new")]), Some("shop/new".to_owned()));
        assert_eq!(named([web, Some("thief/slow")]), None);
        assert_eq!(named([Some("other/late"), Some("other/late")]), Some("other/late".to_owned()));
        assert_eq!(named([web, None]), None);
    }

    #[test]
    fn without_a_claim_that_counts_the_namespace_decides() {
        let (resolver, index) = (resolver(EditsMode::Warn), index());
        let object = |namespace: Option<&str>, name: &str, kind: &str| ObjectId {
            group: "".into(),
            kind: kind.into(),
            namespace: namespace.map(Into::into),
            name: name.into(),
        };
        let settings = object(Some("shop"), "settings", "ConfigMap");
        let known = local_claims(&settings, Some("v1"), &index.read());
        assert_eq!(names(&known), json!(["shop/web", "shop/web2"]));
        assert_eq!(names(&local_claims(&settings, Some("v2"), &index.read())), json!([]));
        let namespace = object(None, "shop", "Namespace");
        assert_eq!(names(&local_claims(&namespace, Some("v1"), &index.read())), json!([]));
        assert_eq!(policy_for_object(&resolver, &namespace, &[]).edits, EditsMode::Warn);
        resolver.set_enforcement_disabled(true);
        assert_eq!(policy_for_object(&resolver, &namespace, &[]).edits, EditsMode::Allow);
    }
}

mod records {
    use jiff::Timestamp;
    use parking_lot::RwLock;
    use serde_json::{Value, json};

    use super::super::*;
    use crate::sample_releases::{SampleRecord, assembled};
    use crate::sample_verdicts::resolver;
    use kubemoor_declare::model::EditsMode;
    use kubemoor_runtime::config::RecordDriver;
    use kubemoor_verdict::edit::DryRunEvidence;
    use kubemoor_verdict::edit::ObjectContext;

    /// The verdict on a change of a Secret that may be a record of `shop/web`, as `Outcome reason`.
    fn verdict(name: &str, old: Value, new: Value) -> String {
        let object = |mut object: Value| {
            object["metadata"]["name"] = json!(name);
            object
        };
        let operation = match (old.is_null(), new.is_null()) {
            (true, _) => "CREATE",
            (_, true) => "DELETE",
            _ => "UPDATE",
        };
        let [old, new] = [old, new].map(|it| if it.is_null() { it } else { object(it) });
        let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": "", "version": "v1", "kind": "Secret"},
            "resource": {"group": "", "version": "v1", "resource": "secrets"},
            "name": name, "namespace": "shop", "operation": operation, "userInfo": {"username": "mallory"},
            "object": new, "oldObject": old,
        },
    })
    .to_string();
        let manifest =
            "apiVersion: v1\nkind: Secret\nmetadata: {name: declared, namespace: shop}\ndata: {a: MQ==}\n";
        let mut index = Index::default();
        index.set(assembled(
            SampleRecord { manifest, namespace: "shop", name: "web", ..SampleRecord::default() },
            None,
        ));
        let index = RwLock::new(index);
        let resolver = resolver(EditsMode::Deny);
        let rules = Rules { resolver: &resolver, own_account: None };
        let request = AdmissionRequest::parse(review.as_bytes()).unwrap();
        let subject = ReviewSubject::from_head(&request.head, &index.read(), RecordDriver::Secret).unwrap();
        let case = ReviewCase::new(subject, request, RecordDriver::Secret);
        let circumstances = ObjectContext::default();
        let (circumstances, evidence, now) = (&circumstances, DryRunEvidence::None, Timestamp::UNIX_EPOCH);
        let verdict = case
            .judge(JudgementInputs { index: &index, circumstances, rules: &rules, evidence, now })
            .verdict;
        format!("{} {}", verdict.outcome.as_str(), verdict.reason.as_str())
    }

    #[test]
    fn secret_with_helms_labels_is_a_record_whatever_its_name() {
        let labelled = || json!({"metadata": {"labels": {"owner": "helm", "name": "web"}}});
        let plain = || json!({"metadata": {"labels": {"owner": "me", "name": "web"}}});
        for (old, new) in [
            (Value::Null, labelled()),
            (plain(), labelled()),
            (labelled(), plain()),
            (labelled(), Value::Null),
        ] {
            assert_eq!(verdict("backup", old, new), "Allow record-intact");
        }
        assert_eq!(verdict("backup", plain(), plain()), "Allow not-declared");
        // It may be declared as well, and these labels excuse no change.
        let with = |data: &str| {
            let mut secret = labelled();
            secret["data"] = json!({"a": data});
            secret
        };
        assert_eq!(verdict("declared", with("MQ=="), with("Mg==")), "Deny drift");
        assert_eq!(verdict("declared", plain(), labelled()), "Allow unchanged");
    }

    #[test]
    fn record_in_deletion_only_loses_finalizers() {
        let record = |change: fn(&mut Value)| {
            let mut record = json!({
                "metadata": {
                    "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/held"],
                    "labels": {"owner": "helm", "name": "web", "version": "2", "status": "deployed"},
                },
                "data": {"release": "MQ=="},
            });
            change(&mut record);
            record
        };
        let name = "sh.helm.release.v1.web.v2";
        let free = |record: &mut Value| record["metadata"]["finalizers"] = json!([]);
        assert_eq!(verdict(name, record(|_| {}), record(free)), "Allow being-deleted");
        assert_eq!(verdict(name, record(|_| {}), Value::Null), "Allow being-deleted");
        let bare = |record: &mut Value| record["metadata"]["labels"] = Value::Null;
        let other = |record: &mut Value| record["data"] = json!({"release": "Mg=="});
        assert_eq!(verdict(name, record(bare), record(|_| {})), "Allow record-intact");
        assert_eq!(verdict(name, record(|_| {}), record(other)), "Allow record-intact");
    }
}
