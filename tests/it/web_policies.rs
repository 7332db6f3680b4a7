//! The page of policies: what each matches, where they disagree, and what nobody may conclude from a list that is not
//! complete.

use serde_json::json;

use crate::support::{Identity, Member, Page, RELEASE, RbacRule, SOON, Scene, charts, eventually};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn no_selector_is_useless_while_releases_may_be_missing() {
    // No guard speaks of the release, so that its record alone tells of it.
    let scene = Scene::own().install("policies", charts::config_map!("settings", "{mode: fast}")).await;
    scene.policy_for_all(json!({"edits": "Deny", "releases": {"names": [RELEASE]}})).await;
    let alice = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let whole = alice.text("policies").await;
    assert!(whole.contains(">1</a>") && !whole.contains("Rules without effect"), "{whole}");
    let member = Member::new(&scene.control_plane).await;
    let rights = [
        "get,list,watch guardedreleases.kubemoor.dev",
        "list driftpolicies.kubemoor.dev",
        "list namespaces",
        "list configmaps",
    ];
    member.may(&rights.map(RbacRule::parse), None).await;
    let page = Page::of(&member.kubeconfig, &[]).await;
    let shown = page.text("policies").await;
    assert!(shown.contains("releases without a guard may be missing"), "{shown}");
    assert!(!shown.contains("does not match the name of any guarded release"), "{shown}");
    // What is known of the cluster is the present state.
    assert!(shown.contains("data-live"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn each_disagreement_of_policies_is_listed_with_the_one_that_counts() {
    let scene = Scene::own().install("disagree", charts::config_map!("settings", "{mode: fast}")).await;
    let beside = scene.install_beside("beside").await;
    let make = async |name: &str, spec: serde_json::Value| {
        let policy = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name}, "spec": spec,
        });
        let policies = "/apis/kubemoor.dev/v1alpha1/driftpolicies";
        eventually("the policy is made", SOON, || async { scene.admin.post(policies, &policy).await.done() })
            .await;
    };
    make("calm", json!({"priority": 5, "edits": "Warn", "releases": {"namespaces": [scene.namespace]}}))
        .await;
    make("strict", json!({"edits": "Deny", "seal": [{"target": {"kind": "ConfigMap"}, "paths": ["/data"]}]}))
        .await;
    make("tolerant", json!({"edits": "Deny", "ignore": [{"paths": ["/data/mode"]}]})).await;
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let shown = eventually("the releases are counted", SOON, || async {
        let text = page.text("policies").await;
        if text.contains("policy=strict\">2</a>") { Ok(text) } else { Err(text) }
    })
    .await;
    let (_, conflicts) = shown.split_once("Conflicts between policies").unwrap();
    let lines: Vec<Vec<String>> = conflicts
        .split("<tr>")
        .skip(2)
        .map(|line| {
            let texts =
                line.split("</tr>").next().unwrap().split('<').filter_map(|part| part.split_once('>'));
            texts.map(|(_, text)| text.to_owned()).filter(|text| !text.is_empty()).collect()
        })
        .collect();
    let ignored = "an ignored field is never compared, whatever the priorities; this applies to objects that \
                   both rules select";
    let priority = "priority 5 against 0";
    assert_eq!(
        lines,
        [
            vec!["spec.edits", "calm", ": Warn", "strict", ": Deny", priority, "1"],
            vec!["spec.edits", "calm", ": Warn", "tolerant", ": Deny", priority, "1"],
            vec!["spec.seal", "tolerant", ": ignores /data/mode", "strict", ": seals /data", ignored, "2"],
        ]
    );
    // The number leads to the releases of both.
    for (policies, count, absent) in [
        ("policy=calm&policy=strict", "1 release<", Some(beside.namespace.as_str())),
        ("policy=tolerant&policy=strict", "2 releases<", None),
        ("policy=calm&policy=none", "No release matches", None),
    ] {
        let list = page.text(&format!("releases?{policies}")).await;
        assert!(list.contains(count), "{policies}: {list}");
        assert!(absent.is_none_or(|absent| !list.contains(&format!(">{absent}<"))), "{policies}: {list}");
    }
    assert!(
        shown.contains("releases?cluster=") && shown.contains("policy=calm&amp;policy=strict\">1</a>"),
        "{shown}"
    );
}
