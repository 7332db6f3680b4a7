//! The page of a release foresees what the next upgrade does to each field that drifts, and the real upgrade does it.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::charts::WORKLOAD;
use crate::support::{Caller, Chart, Identity, Page, RELEASE, Scene, add_widgets, unguarded};

/// What the page says in the row of a field.
fn row<'p>(page: &'p str, field: &str) -> &'p str {
    let rows = page.split("<tr>").filter(|row| row.contains("class=\"live\""));
    let own = rows.into_iter().find(|row| row.contains(&format!("<code>{field}</code>")));
    own.unwrap_or_else(|| panic!("{field} is not in {page}"))
}

fn kubectl(shop: &Scene, arguments: &[&str]) {
    let output = shop.kubectl(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn page(shop: &Scene) -> (Page, String) {
    let page = Page::open(&shop.control_plane, Identity::Alice, &[]).await;
    (page, format!("release?namespace={}&name={RELEASE}", shop.namespace))
}

const IMAGE: &str = "/spec/template/spec/containers/[name=app]/image";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_page_foresees_conflicts_of_server_side_upgrade() {
    let shop = Scene::on(unguarded()).install("foreseen", WORKLOAD).await;
    kubectl(&shop, &["set", "image", "deployment/web", "app=registry.example/mine:1"]);
    kubectl(&shop, &["label", "deployment/web", "tier-"]);
    kubectl(&shop, &["delete", "configmap/settings"]);
    let (page, address) = page(&shop).await;
    let text = page.text(&address).await;
    for part in [
        "Helm applies this release server-side. The next upgrade fails: 1 field conflicts.",
        &format!("kubectl moor forecast shop -n {}", shop.namespace),
        "The next upgrade creates it.",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let image = row(&text, IMAGE);
    assert!(image.contains("fails with a conflict with field manager kubectl-set;"), "{image}");
    let label = row(&text, "/metadata/labels/tier");
    assert!(label.contains("sets the release's value") && !label.contains("conflict"), "{label}");
    let error = shop.upgrade(json!({})).await.unwrap_err();
    assert!(error.contains("conflict with \"kubectl-set\"") && !error.contains("tier"), "{error}");

    shop.upgrade(json!({"force_conflicts": true})).await.unwrap();
    let web = shop.get(&shop.deployment("web")).await;
    assert_eq!(web["metadata"]["labels"]["tier"], "front");
    assert_eq!(shop.get(&shop.config_map("settings")).await["data"]["level"], "info");
    assert!(page.text(&address).await.contains("3 objects match their release"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_page_foresees_what_client_side_upgrade_leaves() {
    let group = "foreseen.example.com";
    let control_plane = unguarded();
    let _definition = add_widgets(control_plane, group).await;
    let widget = format!(
        "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: gear}}\nspec: {{replicas: {{{{ .Values.replicas | \
         default 2 }}}}, enabled: true}}\n"
    );
    let chart = Chart::new("shop").template("workload.yaml", WORKLOAD).template("widget.yaml", &widget);
    let shop = Scene::on(control_plane)
        .options(json!({"server_side_apply": false}))
        .install("foreseen", chart)
        .await;
    let (deployment, gear) = (shop.deployment("web"), shop.at(&format!("apis/{group}/v1"), "widgets/gear"));
    shop.edit(&deployment, json!({"spec": {"replicas": 5, "paused": true}})).await;
    shop.edit(&gear, json!({"spec": {"replicas": 7}})).await;
    let (page, address) = page(&shop).await;
    let text = page.text(&address).await;
    let says = "client-side, by a three-way merge. The fields below do not make the next upgrade fail.";
    assert!(text.contains(says), "{text}");
    let objects: Vec<_> = text.split("<article").collect();
    let of = |name: &str, field: &str| {
        let object = objects.iter().find(|it| it.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        row(object, field).to_owned()
    };
    for (object, field, effect) in [
        ("Deployment/web", "/spec/replicas", "sets the release's value"),
        ("Deployment/web", "/spec/paused", "leaves it as it is"),
        ("Widget/gear", "/spec/replicas", "keeps a changed value until the chart changes it"),
    ] {
        let row = of(object, field);
        assert!(row.contains(effect), "{object}: {row}");
    }
    shop.upgrade(json!({})).await.unwrap();
    shop.assert_value(&deployment, "/spec/replicas", &json!(2)).await;
    shop.assert_value(&deployment, "/spec/paused", &json!(true)).await;
    shop.assert_value(&gear, "/spec/replicas", &json!(7)).await;
    shop.upgrade(json!({"values": {"replicas": 3}})).await.unwrap();
    shop.assert_value(&gear, "/spec/replicas", &json!(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_page_counts_the_conflict_of_a_field_that_an_exception_covers() {
    let shop = Scene::on(unguarded()).install("excepted", WORKLOAD).await;
    // Older API servers leave the replicas to Helm when somebody scales.
    if shop.control_plane.minor() <= 21 {
        return;
    }
    let path = shop.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let exception = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": "scaled"},
        "spec": {
            "object": {"group": "apps", "kind": "Deployment", "name": "web"}, "paths": ["/spec/replicas"],
            "until": Timestamp::now() + SignedDuration::from_hours(1), "reason": "sale",
        },
    });
    let admin = Caller::new(&shop.control_plane, Identity::Admin).await;
    admin.post(&path, &exception).await.done().unwrap();
    kubectl(&shop, &["scale", "deployment/web", "--replicas=5"]);
    let (page, address) = page(&shop).await;
    let text = page.text(&address).await;
    for part in ["Differs, as an exception allows", "The next upgrade fails: 1 field conflicts."] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let replicas = row(&text, "/spec/replicas");
    for part in [">2<", ">5<", "fails with a conflict with field manager kubectl;"] {
        assert!(replicas.contains(part), "{part} is not in {replicas}");
    }
    let explained = shop.moor(&["explain", "deployment/web"]);
    assert!(explained.out.contains("differs, as an exception allows"), "{explained:?}");
    let diff = shop.moor(&["diff", RELEASE]);
    assert!(diff.code == 0 && diff.out.contains("/spec/replicas"), "{diff:?}");
    let error = shop.upgrade(json!({})).await.unwrap_err();
    assert!(error.contains("conflict with \"kubectl\""), "{error}");
}
