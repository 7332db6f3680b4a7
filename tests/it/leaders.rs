//! Several guards on one control plane: one acts, another takes over, and never two at a time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Caller, Chart, ControlPlane, Guard, Helm, Identity, LaggingWatch, RELEASE, Review, SOON, eventually,
};

const FLAGS: [&str; 2] = ["--service=kubemoor-system/kubemoor", "--drift=Repair"];

/// A hand-over after a crash is promised within this time.
const HAND_OVER: Duration = Duration::from_secs(15);

/// What the machine may add, which others use as well.
const SLACK: Duration = Duration::from_secs(5);

const POLICY: &str = "/apis/kubemoor.dev/v1alpha1/driftpolicies/all";

const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
";

struct Scene {
    control_plane: ControlPlane,
    path: String,
    admin: Caller,
    /// Between the leader and the API server.
    proxy: LaggingWatch,
    leader: Guard,
    follower: Guard,
}

async fn leads(guard: &Guard) -> bool {
    guard.metrics().await.lines().any(|line| line == "kubemoor_leading 1")
}

async fn wait_until_leading(guard: &Guard, within: Duration) {
    eventually("the guard leads", within, || async { leads(guard).await }).await;
}

impl Scene {
    async fn new() -> Self {
        Self::on(ControlPlane::start()).await
    }

    async fn on(control_plane: ControlPlane) -> Self {
        let namespace = control_plane.namespace("leaders").await;
        let chart = Chart::new(RELEASE).template("all.yaml", CONFIG_MAP);
        let helm = Helm::start(&control_plane, Identity::Deployer);
        helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
        let admin = Caller::new(&control_plane, Identity::Admin).await;
        let proxy = LaggingWatch::start(&control_plane, Identity::Guard).await;
        let leader = Guard::start_through(&control_plane, proxy.kubeconfig(), &FLAGS).await;
        wait_until_leading(&leader, SLACK).await;
        let follower = Guard::start(&control_plane, &FLAGS).await;
        assert!(!leads(&follower).await, "two guards lead");
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
        Self { control_plane, path, admin, proxy, leader, follower }
    }

    /// Deletes the object and waits until it is back; gives how often guards created it.
    async fn break_and_wait(&self) -> usize {
        let uid = self.admin.get(&self.path).await.done().unwrap()["metadata"]["uid"].clone();
        let before = self.creations();
        self.admin.delete(&self.path).await.done().unwrap();
        eventually("the object is back", HAND_OVER + SLACK, || async {
            let object = self.admin.get(&self.path).await.done()?;
            if object["metadata"]["uid"] == uid { Err("it is still the old one".to_owned()) } else { Ok(()) }
        })
        .await;
        // The audit log comes after the answers.
        eventually("the audit log has it", SLACK, || async { self.creations() > before }).await;
        self.creations()
    }

    /// How often a guard wrote the object.
    fn creations(&self) -> usize {
        self.answers().len()
    }

    /// What the API server has answered to what guards wrote to the object.
    fn answers(&self) -> Vec<u64> {
        let is_settings = |event: &Value| event["objectRef"]["name"] == "settings";
        self.asked("configmaps", &["create", "patch"], is_settings)
    }

    /// What the API server has answered to what guards asked for, but for dry runs.
    fn asked(&self, resource: &str, verbs: &[&str], meant: impl Fn(&Value) -> bool) -> Vec<u64> {
        let is_meant = |event: &&Value| {
            event["user"]["username"] == Identity::Guard.user()
                && event["objectRef"]["resource"] == resource
                && !event["requestURI"].as_str().unwrap().contains("dryRun")
                && verbs.contains(&event["verb"].as_str().unwrap())
                && meant(event)
        };
        let events = self.control_plane.audit_events();
        let code = |event: &Value| event["responseStatus"]["code"].as_u64().unwrap();
        events.iter().filter(is_meant).map(code).collect()
    }

    /// Changes the object by hand.
    async fn edit(&self, level: &str) {
        let path = format!("{}?fieldManager=kubectl-edit", self.path);
        self.admin.merge(&path, &json!({"data": {"level": level}})).await.done().unwrap();
    }

    /// Waits until the object is as declared.
    async fn wait_until_declared(&self) -> Value {
        eventually("the object is as declared", SOON, || async {
            let object = self.admin.get(&self.path).await.done()?;
            if object["data"]["level"] == "info" { Ok(object) } else { Err(object.to_string()) }
        })
        .await
    }

    /// Waits until a request of the leader's is held up, and another guard has taken over.
    async fn wait_until_overtaken(&self, request: &str) {
        eventually("the leader is at it", SOON, || async { self.proxy.stalled(request) == 1 }).await;
        let since = Instant::now();
        wait_until_leading(&self.follower, HAND_OVER + SLACK).await;
        assert!(since.elapsed() < HAND_OVER, "it took {:?}", since.elapsed());
        eventually("the old leader knows", SLACK, || async { !leads(&self.leader).await }).await;
    }

    /// Waits until the API server has answered to so many writes.
    async fn wait_for_answers(&self, writes: usize) -> Vec<u64> {
        eventually(&format!("{writes} writes are answered"), SOON, || async {
            let answers = self.answers();
            if answers.len() >= writes { Ok(answers) } else { Err(format!("{answers:?}")) }
        })
        .await
    }

    /// Waits until the status of a policy speaks of this generation.
    async fn wait_until_accepted(&self, generation: usize) {
        eventually("the policy is accepted", HAND_OVER + SLACK, || async {
            let policy = self.admin.get(POLICY).await.done()?;
            let condition = &policy["status"]["conditions"][0];
            let accepted =
                condition["status"] == "True" && condition["observedGeneration"] == json!(generation);
            if accepted { Ok(()) } else { Err(policy.to_string()) }
        })
        .await;
    }

    /// What a guard says of an edit of the object.
    async fn passes(&self, guard: &Guard) -> bool {
        let object = self.admin.get(&self.path).await.done().unwrap();
        let mut edited = object.clone();
        edited["data"]["level"] = json!("mine");
        let review = Review {
            group: "",
            kind: "ConfigMap",
            resource: "configmaps",
            namespace: object["metadata"]["namespace"].as_str().unwrap(),
            name: "settings",
            old: &object.to_string(),
            new: &edited.to_string(),
        };
        guard.judge_behind(review.text()).await.passes()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_guard_takes_over_when_the_leader_is_killed() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.break_and_wait().await, 1, "both repaired");
    scene.leader.kill();
    let since = Instant::now();
    wait_until_leading(&scene.follower, HAND_OVER + SLACK).await;
    assert!(since.elapsed() < HAND_OVER, "it took {:?}", since.elapsed());
    assert_eq!(scene.break_and_wait().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_while_nobody_leads_is_repaired_by_the_next_leader() {
    let mut scene = Scene::new().await;
    scene.leader.kill();
    assert_eq!(scene.break_and_wait().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_guard_takes_over_at_once_when_the_leader_is_told_to_stop() {
    let mut scene = Scene::new().await;
    let ending = std::thread::spawn(move || {
        let status = scene.leader.terminate();
        (scene, status)
    });
    let since = Instant::now();
    let (scene, status) = ending.join().unwrap();
    assert!(status.success());
    wait_until_leading(&scene.follower, Duration::from_secs(3)).await;
    assert!(since.elapsed() < Duration::from_secs(9), "it took {:?}", since.elapsed());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kubemoor-system/leases/kubemoor";
    let transitions = scene.admin.get(lease).await.done().unwrap()["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions, 1);
    assert_eq!(scene.break_and_wait().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_and_goes_on_does_not_act() {
    let scene = Scene::new().await;
    scene.leader.pause();
    wait_until_leading(&scene.follower, HAND_OVER + SLACK).await;
    // The one that stands still has not seen this; both may want to repair it when it goes on.
    scene.admin.delete(&scene.path).await.done().unwrap();
    scene.leader.resume();
    eventually("the object is back", SLACK * 2, || async {
        scene.admin.get(&scene.path).await.done().map(drop)
    })
    .await;
    eventually("the old leader knows", SLACK, || async { !leads(&scene.leader).await }).await;
    assert!(leads(&scene.follower).await);
    assert_eq!(scene.creations(), 1, "both repaired");
    assert_eq!(scene.break_and_wait().await, 2);
}

const WRITE: &str = "PATCH /configmaps/settings";
const LOOK: &str = "GET /configmaps/settings";
const RENEWAL: &str = "PUT /leases/kubemoor";

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_on_its_way_when_the_lease_was_lost_comes_too_late() {
    let scene = Scene::new().await;
    scene.proxy.stall(&[WRITE, RENEWAL]);
    scene.edit("mine").await;
    scene.wait_until_overtaken(WRITE).await;
    let repaired = scene.wait_until_declared().await;
    scene.proxy.stall(&[RENEWAL]);
    assert_eq!(scene.wait_for_answers(2).await, [200, 409], "the old leader wrote over the new one's repair");
    let now = scene.admin.get(&scene.path).await.done().unwrap();
    assert_eq!(now["metadata"]["resourceVersion"], repaired["metadata"]["resourceVersion"]);
    scene.proxy.stall(&[]);
    assert_eq!(scene.break_and_wait().await, 3);
    assert!(!scene.leader.log().contains("is as declared again"), "{}", scene.leader.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_re_creation_that_was_on_its_way_when_the_lease_was_lost_changes_nothing() {
    let scene = Scene::new().await;
    scene.proxy.stall(&[WRITE, RENEWAL]);
    scene.admin.delete(&scene.path).await.done().unwrap();
    scene.wait_until_overtaken(WRITE).await;
    let repaired = scene.wait_until_declared().await;
    scene.proxy.stall(&[RENEWAL]);
    // It says the same as the one that was faster, which is no change.
    assert_eq!(scene.wait_for_answers(2).await, [201, 200]);
    let now = scene.admin.get(&scene.path).await.done().unwrap();
    assert_eq!(now["metadata"]["resourceVersion"], repaired["metadata"]["resourceVersion"]);
    assert_eq!(now["metadata"]["uid"], repaired["metadata"]["uid"]);
    assert!(!scene.leader.log().contains("is re-created"), "{}", scene.leader.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_lost_the_lease_while_it_looked_does_not_write() {
    let scene = Scene::new().await;
    scene.proxy.stall(&[LOOK, RENEWAL]);
    scene.edit("mine").await;
    scene.wait_until_overtaken(LOOK).await;
    scene.wait_until_declared().await;
    // The old leader finds it changed, and nobody else does.
    scene.follower.pause();
    scene.edit("yours").await;
    scene.proxy.stall(&[RENEWAL]);
    eventually("it has looked", SOON, || async { scene.proxy.passed(LOOK) >= 1 }).await;
    scene.follower.resume();
    scene.wait_until_declared().await;
    assert_eq!(scene.wait_for_answers(2).await, [200, 200]);
    assert_eq!(scene.proxy.passed(WRITE) + scene.proxy.stalled(WRITE), 0, "{}", scene.leader.log());
    assert!(!scene.leader.log().contains("could not be repaired"), "{}", scene.leader.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_alone_writes_the_statuses_of_policies_and_every_guard_judges_by_them() {
    let control_plane = ControlPlane::start();
    control_plane.define_policies();
    let mut scene = Scene::on(control_plane).await;
    let policies = POLICY.trim_end_matches("/all");
    let policy = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "all"},
        "spec": {"edits": "Warn", "priority": 1},
    });
    eventually("the policy is taken", SLACK, || async { scene.admin.post(policies, &policy).await.done() })
        .await;
    scene.wait_until_accepted(1).await;
    for generation in 2..=4 {
        let edits = if generation % 2 == 0 { "Deny" } else { "Warn" };
        let spec = json!({"spec": {"edits": edits, "priority": generation}});
        scene.admin.merge(POLICY, &spec).await.done().unwrap();
        for guard in [&scene.leader, &scene.follower] {
            eventually("each guard judges by it", SLACK, || async {
                scene.passes(guard).await == (edits == "Warn")
            })
            .await;
        }
        scene.wait_until_accepted(generation).await;
    }
    let statuses = |scene: &Scene| {
        scene
            .asked("driftpolicies", &["patch", "update"], |event| {
                event["objectRef"]["subresource"] == "status"
            })
            .len()
    };
    assert_eq!(statuses(&scene), 4, "both wrote");

    scene.leader.kill();
    scene.admin.merge(POLICY, &json!({"spec": {"priority": 5}})).await.done().unwrap();
    scene.wait_until_accepted(5).await;
    assert_eq!(statuses(&scene), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_alone_clears_allowances_away() {
    let control_plane = ControlPlane::start();
    control_plane.define_policies();
    let scene = Scene::on(control_plane).await;
    let namespace = scene.path.split('/').nth(4).unwrap();
    let allowances = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/driftallowances");
    for n in 0..4 {
        let allowance = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
            "metadata": {"name": format!("old-{n}"), "labels": {"app.kubernetes.io/managed-by": "kubemoor"}},
            "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data/level"],
                     "until": "2026-01-01T00:00:00Z"},
        });
        eventually("the allowance is taken", SLACK, || async {
            scene.admin.post(&allowances, &allowance).await.done()
        })
        .await;
    }
    eventually("all are cleared away", SLACK * 2, || async {
        let left = scene.admin.get(&allowances).await.done()?;
        if left["items"] == json!([]) { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    assert_eq!(scene.asked("driftallowances", &["delete"], |_| true).len(), 4, "both deleted");
}
