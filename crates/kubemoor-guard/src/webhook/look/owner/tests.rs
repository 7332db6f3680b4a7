use std::time::Duration;

use parking_lot::RwLock;
use serde_json::json;
use tokio::time::Instant;

use super::super::ReleaseSource;
use super::*;
use crate::sample_releases::{Given, assembled};
use crate::sample_verdicts::{book_of, resolver};
use crate::webhook::case::Subject;
use crate::webhook::review;
use kubemoor_declare::model::EditsMode;
use kubemoor_helm::index::Index;
use kubemoor_policy::read;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::edit::Rules;

fn index(claims: &[(&str, u32)]) -> Index {
    let mut index = Index::default();
    for (namespace, replicas) in claims {
        let manifest = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{replicas: {replicas}}}\n"
        );
        index.set(assembled(Given { manifest: &manifest, namespace, ..Given::default() }, None));
    }
    index
}

fn scale(replicas: u32) -> String {
    let scale = |replicas: u32| json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas}});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": "scale",
            "name": "web", "namespace": "shop", "operation": "UPDATE", "userInfo": {"username": "alice"},
            "object": scale(replicas), "oldObject": scale(1),
        },
    })
    .to_string()
}

/// The release that decides where nobody can be asked, and what it says.
async fn decided(claims: &[(&str, u32)], replicas: u32) -> (Outcome, Option<String>) {
    decided_by(resolver(EditsMode::Deny), index(claims), replicas).await
}

async fn decided_by(resolver: PolicyResolver, index: Index, replicas: u32) -> (Outcome, Option<String>) {
    let text = scale(replicas);
    let request = review::Request::parse(text.as_bytes()).unwrap();
    let subject = Subject::of(&request.head, &index, RecordDriver::Secret).unwrap();
    let case = Case::of(subject, request, RecordDriver::Secret);
    let source = ReleaseSource::Fixed(RwLock::new(index));
    let rules = Rules { resolver: &resolver, own_account: None };
    let looker = Looker { source: &source, rules: &rules, deadline: Instant::now() + Duration::from_secs(1) };
    let Ok((judgement, _)) = looker.judge(case).await else { panic!("no verdict") };
    let release = judgement.verdict.grounds.map(|grounds| grounds.release.to_string());
    (judgement.verdict.outcome, release)
}

#[tokio::test]
async fn where_the_owner_cannot_be_known_only_releases_with_operators_allow() {
    let manifest = |replicas: u32| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{replicas: {replicas}}}\n"
        )
    };
    let index = || {
        let mut index = Index::default();
        for (name, replicas) in [("forged", 7), ("web", 2)] {
            let manifest = manifest(replicas);
            let given = Given { manifest: &manifest, namespace: "shop", name, ..Given::default() };
            index.set(assembled(given, None));
        }
        index
    };
    let policy = read::policy(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "web"},
        "spec": {"releases": {"names": ["web"]}, "operators": [{"kind": "User", "name": "ci"}]},
    }));
    let policy = Arc::new(policy.unwrap());
    let resolver = || book_of(EditsMode::Deny, Some(Arc::clone(&policy)));
    let refused = (Outcome::Deny, Some("shop/web".to_owned()));
    assert_eq!(decided_by(resolver(), index(), 7).await, refused);
    assert_eq!(decided_by(resolver(), index(), 2).await, (Outcome::Allow, None));
}

#[tokio::test]
async fn where_the_owner_cannot_be_known_foreign_claims_only_refuse() {
    let refused = |release: &str| (Outcome::Deny, Some(release.to_owned()));
    let passes = (Outcome::Allow, None);
    assert_eq!(decided(&[("thief", 7), ("bank", 2)], 7).await, refused("bank/web"));
    assert_eq!(decided(&[("bank", 2), ("thief", 7)], 2).await, refused("thief/web"));
    assert_eq!(decided(&[("bank", 2)], 2).await, passes);
    assert_eq!(decided(&[("bank", 2)], 3).await, refused("bank/web"));
    // A claim of the object's own namespace needs no others.
    assert_eq!(decided(&[("thief", 7), ("shop", 2)], 7).await, refused("shop/web"));
    assert_eq!(decided(&[("thief", 7), ("shop", 2)], 2).await, passes);
}
