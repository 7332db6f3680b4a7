//! Several guards on one control plane: one acts, another takes over, and never two at a time.

use serde_json::{Value, json};

use crate::support::{
    ControlPlane, Guard, Identity, LaggingWatch, RELEASE, Review, SOON, Scene, SceneBuilder, charts,
    drift_policy, eventually,
};

const FLAGS: [&str; 3] = ["--service=kubemoor-system/kubemoor", "--edits=Deny", "--drift=Repair"];

/// Nothing is repaired that nobody orders.
const REPORTING: [&str; 3] = ["--service=kubemoor-system/kubemoor", "--edits=Deny", "--drift=Report"];

const POLICY: &str = "/apis/kubemoor.dev/v1alpha1/driftpolicies/all";

/// How the loop looks at an object before it repairs it.
const LOOK: &str = "GET /configmaps/settings";

/// A release, and two guards of which one leads.
struct Leaders {
    scene: Scene,
    path: String,
    /// Between the leader and the API server.
    proxy: LaggingWatch,
    leader: Guard,
    follower: Guard,
}

async fn leads(guard: &Guard) -> bool {
    guard.metrics().await.lines().any(|line| line == "kubemoor_leading 1")
}

async fn wait_until_leading(guard: &Guard) {
    eventually("the guard leads", SOON, || async { leads(guard).await }).await;
}

impl Leaders {
    async fn new() -> Self {
        Self::of(Scene::on(ControlPlane::start())).await
    }

    async fn of(scene: SceneBuilder) -> Self {
        Self::with(scene, &FLAGS).await
    }

    async fn with(scene: SceneBuilder, flags: &[&str]) -> Self {
        let scene = scene.install("leaders", charts::SETTINGS).await;
        let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
        let leader = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), flags).await;
        wait_until_leading(&leader).await;
        let follower = scene.start_guard(flags).await;
        assert!(!leads(&follower).await, "two guards lead");
        let path = scene.config_map("settings");
        Self { scene, path, proxy, leader, follower }
    }

    /// Deletes the object and waits until it is back; gives how often guards created it.
    async fn break_and_wait(&self) -> usize {
        let uid = self.scene.admin.get(&self.path).await.done().unwrap()["metadata"]["uid"].clone();
        let before = self.creations();
        self.scene.admin.delete(&self.path).await.done().unwrap();
        eventually("the object is back", SOON, || async {
            let object = self.scene.admin.get(&self.path).await.done()?;
            if object["metadata"]["uid"] == uid { Err("it is still the old one".to_owned()) } else { Ok(()) }
        })
        .await;
        // The audit log comes after the answers.
        eventually("the audit log has it", SOON, || async { self.creations() > before }).await;
        self.creations()
    }

    /// How often a guard wrote the object.
    fn creations(&self) -> usize {
        self.answers().len()
    }

    /// What the API server has answered to what guards wrote to the object.
    fn answers(&self) -> Vec<u64> {
        let is_write = |event: &Value| {
            event["objectRef"]["name"] == "settings"
                && ["create", "patch"].contains(&event["verb"].as_str().unwrap())
        };
        self.scene.control_plane.answers_to_guards("configmaps", is_write)
    }

    /// Changes the object by hand.
    async fn edit(&self, level: &str) {
        self.scene.edit(&self.path, json!({"data": {"level": level}})).await;
    }

    /// Orders a repair.
    async fn order(&self, at: &str) {
        let order = json!({"spec": {"reconcileAt": at}});
        self.scene.admin.merge(&self.scene.guarded_release(RELEASE), &order).await.done().unwrap();
    }

    /// Waits until the object is as declared.
    async fn wait_until_declared(&self) -> Value {
        self.scene.wait_for_value(&self.path, "/data/level", json!("info")).await
    }

    /// Waits until a request of the leader's is held up, and another guard has taken over.
    async fn wait_until_overtaken(&self, request: &str) {
        eventually("the leader is at it", SOON, || async { self.proxy.stalled(request) == 1 }).await;
        wait_until_leading(&self.follower).await;
        eventually("the old leader knows", SOON, || async { !leads(&self.leader).await }).await;
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
        eventually("the policy is accepted", SOON, || async {
            let policy = self.scene.admin.get(POLICY).await.done()?;
            let condition = &policy["status"]["conditions"][0];
            let accepted =
                condition["status"] == "True" && condition["observedGeneration"] == json!(generation);
            if accepted { Ok(()) } else { Err(policy.to_string()) }
        })
        .await;
    }

    /// What a guard says of an edit of the object.
    async fn passes(&self, guard: &Guard) -> bool {
        let object = self.scene.admin.get(&self.path).await.done().unwrap();
        let mut edited = object.clone();
        edited["data"]["level"] = json!("mine");
        let (before, after) = (object.to_string(), edited.to_string());
        let review = Review::of_settings(object["metadata"]["namespace"].as_str().unwrap(), &before, &after);
        guard.judge_behind(review.text()).await.passes()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_lost_without_a_leader_is_repaired_by_next_leader() {
    let mut guards = Leaders::new().await;
    guards.leader.kill();
    assert_eq!(guards.break_and_wait().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn another_guard_takes_over_immediately_when_leader_terminates() {
    let mut guards = Leaders::new().await;
    let ending = std::thread::spawn(move || {
        let status = guards.leader.terminate();
        (guards, status)
    });
    let (guards, status) = ending.join().unwrap();
    assert!(status.success());
    wait_until_leading(&guards.follower).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kubemoor-system/leases/kubemoor";
    let transitions = guards.scene.admin.get(lease).await.done().unwrap()["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions, 1);
    assert_eq!(guards.break_and_wait().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn paused_leader_does_not_act_after_losing_its_lease() {
    let guards = Leaders::new().await;
    guards.leader.pause();
    wait_until_leading(&guards.follower).await;
    // The one that stands still has not seen this; both may want to repair it when it goes on.
    guards.scene.admin.delete(&guards.path).await.done().unwrap();
    guards.leader.resume();
    eventually("the object is back", SOON, || async {
        guards.scene.admin.get(&guards.path).await.done().map(drop)
    })
    .await;
    eventually("the old leader knows", SOON, || async { !leads(&guards.leader).await }).await;
    assert!(leads(&guards.follower).await);
    assert_eq!(guards.wait_for_answers(1).await.len(), 1, "both repaired");
    assert_eq!(guards.break_and_wait().await, 2);
}

const WRITE: &str = "PATCH /configmaps/settings";
const RENEWAL: &str = "PUT /leases/kubemoor";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn in_flight_change_is_rejected_after_lease_is_lost() {
    let guards = Leaders::new().await;
    guards.proxy.stall(&[WRITE, RENEWAL]);
    guards.edit("mine").await;
    guards.wait_until_overtaken(WRITE).await;
    let repaired = guards.wait_until_declared().await;
    guards.proxy.stall(&[RENEWAL]);
    assert_eq!(
        guards.wait_for_answers(2).await,
        [200, 409],
        "the old leader wrote over the new one's repair"
    );
    let now = guards.scene.admin.get(&guards.path).await.done().unwrap();
    assert_eq!(now["metadata"]["resourceVersion"], repaired["metadata"]["resourceVersion"]);
    guards.proxy.stall(&[]);
    assert_eq!(guards.break_and_wait().await, 3);
    assert!(!guards.leader.log().contains("was changed and has been repaired"), "{}", guards.leader.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn in_flight_recreation_changes_nothing_after_lease_is_lost() {
    let guards = Leaders::new().await;
    guards.proxy.stall(&[WRITE, RENEWAL]);
    guards.scene.admin.delete(&guards.path).await.done().unwrap();
    guards.wait_until_overtaken(WRITE).await;
    let repaired = guards.wait_until_declared().await;
    guards.proxy.stall(&[RENEWAL]);
    assert_eq!(
        guards.wait_for_answers(2).await,
        [201, 409],
        "the old leader wrote over the new one's object"
    );
    let now = guards.scene.admin.get(&guards.path).await.done().unwrap();
    assert_eq!(now["metadata"]["resourceVersion"], repaired["metadata"]["resourceVersion"]);
    assert_eq!(now["metadata"]["uid"], repaired["metadata"]["uid"]);
    assert!(!guards.leader.log().contains("has been re-created"), "{}", guards.leader.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn next_leader_carries_out_no_order_whose_answer_has_not_reached_it() {
    let mut guards = Leaders::with(Scene::own(), &REPORTING).await;
    guards.follower.kill();
    guards.edit("mine").await;
    guards.scene.status("drift", |status| status["drifted"] == 1).await;
    guards.proxy.stall(&[LOOK]);
    guards.order("1").await;
    eventually("the leader is at it", SOON, || async { guards.proxy.stalled(LOOK) == 1 }).await;
    // It lists the order, which is open, and then hears of no answer.
    let proxy = LaggingWatch::start(&guards.scene.control_plane, Identity::Guard).await;
    let next = Guard::start_through(&guards.scene.control_plane, proxy.kubeconfig(), &REPORTING).await;
    proxy.hold_of("/guardedreleases");
    guards.proxy.stall(&[]);
    guards.wait_until_declared().await;
    guards.scene.status("the answer", |status| status["lastReconcileAt"] == "1").await;

    guards.edit("yours").await;
    guards.leader.kill();
    wait_until_leading(&next).await;
    let read = "GET /guardedreleases/";
    eventually("it reads the order again", SOON, || async { proxy.passed(read) > 0 }).await;
    proxy.release();
    guards.scene.status("drift", |status| status["drifted"] == 1).await;
    let now = guards.scene.admin.get(&guards.path).await.done().unwrap();
    assert_eq!(now["data"]["level"], "yours", "{}", next.log());
    guards.order("2").await;
    guards.wait_until_declared().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn only_leader_writes_policy_statuses_and_every_guard_obeys_policies() {
    let mut guards = Leaders::of(Scene::own()).await;
    let policies = POLICY.trim_end_matches("/all");
    let policy = drift_policy("all", json!({"edits": "Warn", "priority": 1}));
    eventually("the policy is taken", SOON, || async {
        guards.scene.admin.post(policies, &policy).await.done()
    })
    .await;
    guards.wait_until_accepted(1).await;
    for generation in 2..=4 {
        let edits = if generation % 2 == 0 { "Deny" } else { "Warn" };
        let spec = json!({"spec": {"edits": edits, "priority": generation}});
        guards.scene.admin.merge(POLICY, &spec).await.done().unwrap();
        for guard in [&guards.leader, &guards.follower] {
            eventually("each guard judges by it", SOON, || async {
                guards.passes(guard).await == (edits == "Warn")
            })
            .await;
        }
        guards.wait_until_accepted(generation).await;
    }
    let statuses = |guards: &Leaders| {
        let is_write = |event: &Value| {
            event["objectRef"]["subresource"] == "status"
                && ["patch", "update"].contains(&event["verb"].as_str().unwrap())
        };
        guards.scene.control_plane.answers_to_guards("driftpolicies", is_write).len()
    };
    assert_eq!(statuses(&guards), 4, "both wrote");

    guards.leader.kill();
    guards.scene.admin.merge(POLICY, &json!({"spec": {"priority": 5}})).await.done().unwrap();
    guards.wait_until_accepted(5).await;
    assert_eq!(statuses(&guards), 5);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn the_leader_alone_clears_allowances_away() {
    let guards = Leaders::of(Scene::own()).await;
    let allowances = guards.scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    for n in 0..5 {
        // The first one is nobody's to delete: a person made it.
        let by = if n == 0 { "alice" } else { "kubemoor" };
        let allowance = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
            "metadata": {"name": format!("old-{n}"), "labels": {"app.kubernetes.io/managed-by": by}},
            "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data/level"],
                     "until": "2026-01-01T00:00:00Z"},
        });
        eventually("the allowance is taken", SOON, || async {
            guards.scene.admin.post(&allowances, &allowance).await.done()
        })
        .await;
    }
    let left = eventually("those that the guard made are cleared away", SOON, || async {
        let left = guards.scene.admin.get(&allowances).await.done()?["items"].take();
        if left[1].is_null() { Ok(left) } else { Err(left.to_string()) }
    })
    .await;
    assert_eq!(left[0]["metadata"]["name"], "old-0", "{left}");
    let deletions =
        guards.scene.control_plane.answers_to_guards("driftallowances", |event| event["verb"] == "delete");
    assert_eq!(deletions.len(), 4, "both deleted");
}
