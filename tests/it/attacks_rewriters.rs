//! A mutating webhook of somebody else's that an editor steers by an annotation: it writes a drifting value into the
//! edit, before the guard or after it, and again once the guard has answered.

use serde_json::{Value, json};

use crate::support::{
    Answer, DRIFT_POLICIES, Guard, RELEASE, Rewriter, SOON, Scene, eventually, wait_until_guarded,
};

/// Such webhooks: the API server calls them in the order of their names, in which the guard is `kubemoor`, and those
/// that are `IfNeeded` once more if a later one has changed the object. Each has a ConfigMap of its own.
const REWRITERS: [(&str, &str); 4] =
    [("a-once", "Never"), ("a-again", "IfNeeded"), ("z-once", "Never"), ("z-again", "IfNeeded")];

/// What the annotation says for a value that differs at each call.
const CHANGING: &str = "changing";

struct Rewritten {
    scene: Scene,
    _guard: Guard,
    _rewriters: Vec<Rewriter>,
}

fn templates() -> String {
    let config_map = |(name, _)| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n\
             data: {{level: {{{{ .Values.level | default \"info\" }}}}}}\n"
        )
    };
    REWRITERS.map(config_map).concat()
}

fn annotation(rewriter: &str) -> String {
    format!("rewriter.example.org/{rewriter}")
}

/// What a webhook does to a ConfigMap whose annotation steers it.
fn steered(rewriter: &str) -> impl Fn(&Value, usize) -> Vec<Value> + Clone + use<> {
    let annotation = annotation(rewriter);
    move |object, call| {
        let level = match object["metadata"]["annotations"][&annotation].as_str() {
            None => return Vec::new(),
            Some(CHANGING) => format!("call-{call}"),
            Some(level) => level.to_owned(),
        };
        vec![json!({"op": "replace", "path": "/data/level", "value": level})]
    }
}

impl Rewritten {
    /// A release whose ConfigMaps are guarded in this mode, and which the webhooks rewrite.
    async fn install(prefix: &str, mode: &str, rewriters: &[(&str, &str)]) -> Self {
        let scene = Scene::own().install(prefix, &templates()).await;
        let guard = scene.start_guard(&["--register", "--edits", mode, "--drift", "Report"]).await;
        let mut started = Vec::new();
        for &(name, reinvocation) in rewriters {
            let (resource, control_plane) = (["", "configmaps"], &scene.control_plane);
            started.push(Rewriter::serve(control_plane, name, resource, reinvocation, steered(name)).await);
        }
        let path = scene.config_map(REWRITERS[0].0);
        wait_until_guarded(&scene.alice, RELEASE, &path).await;
        let mine = json!({"metadata": {"labels": {"edited-by": "alice"}}, "data": {"level": "mine"}});
        eventually("edits are rewritten and judged", SOON, || async {
            let answer = scene.alice.merge(&format!("{path}?dryRun=All"), &mine).await;
            if mode == "Deny" {
                answer.refused(RELEASE)?;
            } else if answer.done()?["data"]["level"] == "mine" {
                return Err("nothing is reverted".to_owned());
            }
            let idle = started.iter().filter(|it| it.calls() == 0).count();
            if idle == 0 { Ok(()) } else { Err(format!("{idle} webhooks are not called")) }
        })
        .await;
        Self { scene, _guard: guard, _rewriters: started }
    }

    /// An edit of undeclared fields alone, by which the webhook writes this value.
    async fn steer(&self, rewriter: &str, level: &str) -> Answer {
        let metadata =
            json!({"annotations": {annotation(rewriter): level}, "labels": {"edited-by": "alice"}});
        self.scene.alice.merge(&self.scene.config_map(rewriter), &json!({"metadata": metadata})).await
    }

    async fn stored(&self, name: &str) -> Value {
        self.scene.get(&self.scene.config_map(name)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_a_webhook_writes_into_an_edit_is_refused() {
    let shop = Rewritten::install("rewriters-deny", "Deny", &REWRITERS).await;
    for (name, _) in REWRITERS {
        shop.steer(name, "mine").await.refused(RELEASE).unwrap();
        let stored = shop.stored(name).await;
        assert_eq!(stored["data"]["level"], "info", "{name}");
        assert_eq!(stored["metadata"]["annotations"].get(annotation(name)), None, "{name}");
        // The webhook alone stops nothing.
        let label = json!({"metadata": {"labels": {"edited-by": "alice"}}});
        shop.scene.alice.merge(&shop.scene.config_map(name), &label).await.done().unwrap();
    }
    shop.scene.upgrade(json!({"values": {"level": "debug"}})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_a_webhook_writes_into_an_edit_is_never_stored_under_revert() {
    let shop = Rewritten::install("rewriters-revert", "Revert", &REWRITERS).await;
    for (name, _) in REWRITERS {
        let answer = shop.steer(name, "mine").await;
        // One that is called last, again after the guard was called again, leaves nothing to do but to refuse.
        match name {
            "z-again" => answer.refused(RELEASE).unwrap(),
            _ => assert_eq!(answer.done().unwrap()["metadata"]["labels"]["edited-by"], "alice", "{name}"),
        }
        assert_eq!(shop.stored(name).await["data"]["level"], "info", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn annotation_that_steers_a_webhook_stops_upgrades_unless_it_is_sealed() {
    let rewriter = REWRITERS[2];
    let shop = Rewritten::install("rewriters-seal", "Revert", &[rewriter]).await;
    let (scene, name) = (&shop.scene, rewriter.0);
    let seal = json!([{"target": {"kind": "ConfigMap"}, "paths": ["/metadata/annotations"]}]);
    scene.policy("seal", json!({"seal": seal})).await;
    shop.steer(name, CHANGING).await.done().unwrap();
    let sealed = shop.stored(name).await;
    assert_eq!(sealed["metadata"]["annotations"].get(annotation(name)), None, "{sealed}");
    assert_eq!(sealed["metadata"]["labels"]["edited-by"], "alice");
    scene.upgrade(json!({"values": {"level": "debug"}})).await.unwrap();
    assert_eq!(shop.stored(name).await["data"]["level"], "debug");

    scene.admin.delete(&format!("{DRIFT_POLICIES}/{}-seal", scene.namespace)).await.done().unwrap();
    eventually("nothing is sealed", SOON, || async {
        let steered = shop.steer(name, CHANGING).await.done()?;
        let kept = steered["metadata"]["annotations"].get(annotation(name));
        kept.map(drop).ok_or_else(|| steered.to_string())
    })
    .await;
    assert_eq!(shop.stored(name).await["data"]["level"], "debug");
    let stopped = scene.upgrade(json!({"values": {"level": "trace"}})).await.unwrap_err();
    assert!(stopped.contains("denied the request") && stopped.contains("data.level"), "{stopped}");
    assert_eq!(shop.stored(name).await["data"]["level"], "debug");

    let removed = json!({"metadata": {"annotations": {annotation(name): null}}});
    scene.alice.merge(&scene.config_map(name), &removed).await.done().unwrap();
    scene.upgrade(json!({"values": {"level": "trace"}})).await.unwrap();
    assert_eq!(shop.stored(name).await["data"]["level"], "trace");

    // A webhook that answers the same each time is believed, as one that makes the declared value of the manifest.
    shop.steer(name, "mine").await.done().unwrap();
    assert_eq!(shop.stored(name).await["data"]["level"], "trace");
    scene.upgrade(json!({"values": {"level": "warn"}})).await.unwrap();
    assert_eq!(shop.stored(name).await["data"]["level"], "mine");
}
