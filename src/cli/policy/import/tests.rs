use std::fs;

use super::*;
use crate::cli::policy::test;

const HELM_RELEASE: &str = r#"
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: shop}
spec:
  driftDetection:
    mode: enabled
    ignore:
    - paths: [/spec/replicas]
      target: {kind: Deployment}
    - paths: [""]
      target: {kind: ConfigMap, name: "cache-.*"}
    - paths: [/spec/template/spec/containers/1/image]
      target: {labelSelector: "app=web,!legacy"}
    - paths: [/data]
      target: {annotationSelector: example.org/free=yes}
    - paths: [/metadata/annotations/example.org~1note]
"#;

const SUITE: &str = r#"
apiVersion: kubemoor.dev/v1alpha1
kind: PolicyTest
metadata: {name: flux}
spec:
  policies: [policy.yaml]
  release:
    name: web
    namespace: shop
    manifest: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web, labels: {app: web}}
      spec: {replicas: 3, template: {spec: {containers: [{name: app, image: 'a:1'}, {name: log, image: 'l:1'}]}}}
      ---
      apiVersion: apps/v1
      kind: StatefulSet
      metadata: {name: db, labels: {app: web, legacy: "true"}}
      spec: {replicas: 3, template: {spec: {containers: [{name: app, image: 'a:1'}, {name: log, image: 'l:1'}]}}}
      ---
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: cache-a, annotations: {example.org/note: old}}
      data: {a: b}
      ---
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: old-cache-a, annotations: {example.org/note: old, example.org/other: old}}
      data: {a: b}
      ---
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: free, annotations: {example.org/free: "yes"}}
      data: {a: b}
  cases:
  - {name: replicas of a Deployment, object: Deployment/web, scale: 5, expect: Allow, reason: ignored}
  - {name: replicas of another kind, object: StatefulSet/db, scale: 5, expect: Deny}
  - name: the image of the second container
    object: Deployment/web
    json: [{op: replace, path: /spec/template/spec/containers/1/image, value: 'l:2'}]
    expect: Allow
  - name: the image of the first container
    object: Deployment/web
    json: [{op: replace, path: /spec/template/spec/containers/0/image, value: 'a:2'}]
    expect: Deny
  - name: the same of an object that the selector leaves out
    object: StatefulSet/db
    json: [{op: replace, path: /spec/template/spec/containers/1/image, value: 'l:2'}]
    expect: Deny
  - {name: an object that is ignored, object: ConfigMap/cache-a, merge: {data: {a: c}}, expect: Allow}
  - {name: the deletion of an object that is ignored, object: ConfigMap/cache-a, delete: true, expect: Record}
  - {name: a name that matches in part, object: ConfigMap/old-cache-a, merge: {data: {a: c}}, expect: Deny}
  - {name: the deletion of another object, object: ConfigMap/free, delete: true, expect: Deny}
  - {name: an annotation selects, object: ConfigMap/free, merge: {data: {a: c}}, expect: Allow}
  - name: an annotation of any object
    object: ConfigMap/old-cache-a
    merge: {metadata: {annotations: {example.org/note: new}}}
    expect: Allow
  - name: another annotation
    object: ConfigMap/old-cache-a
    merge: {metadata: {annotations: {example.org/other: new}}}
    expect: Deny
"#;

#[test]
fn imported_policy_ignores_what_flux_ignores_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let helm_release = write("flux.yaml", HELM_RELEASE);
    let [found] = of_files(&[helm_release]).unwrap().try_into().unwrap();
    let imported = flux::import(&found);
    assert_eq!(imported.unsupported, []);
    write("policy.yaml", &serde_saphyr::to_string(&imported.policy.unwrap()).unwrap());
    write("suite.yaml", SUITE);
    let tally = test(folder.path(), "2026-01-02T03:04:05Z".parse().unwrap()).unwrap();
    assert_eq!((tally.passed, tally.failed), (12, 0), "{tally:#?}");
}
