//! DriftAllowances as the guard follows them on a real API server: their ends are told when they come, and what
//! Kubemoor made is cleared away.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kubemoor_cluster::client::allowances::{AllowanceRequest, Ensured, MakeError, resource};
use kubemoor_cluster::client::connection::connect;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::mirror::Progress;
use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_declare::model::{Actor, ObjectId, ReleaseId};
use kubemoor_policy::resource::DriftAllowance;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Caller, ControlPlane, Identity, SOON, eventually, soon};

fn deployment(namespace: &str) -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", namespace, "web")
}

fn allowance(name: &str, until: Timestamp, labels: Value) -> Value {
    json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": name, "labels": labels},
        "spec": {"object": {"group": "apps", "kind": "Deployment", "name": "web"}, "paths": ["/spec/replicas"],
                 "until": until.to_string()},
    })
}

/// Exceptions that a guard follows.
struct Followed {
    admin: Caller,
    namespace: String,
    client: kube::Client,
    kinds: Arc<ServedKinds>,
    allowances: Arc<Allowances>,
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl Followed {
    async fn start(control_plane: &ControlPlane) -> Self {
        let admin = Caller::new(control_plane, Identity::Admin).await;
        let namespace = control_plane.namespace("granted").await;
        let client = connect(Some(&control_plane.kubeconfig(Identity::Admin))).await.unwrap().client;
        let kinds = ServedKinds::read(client.clone()).await.unwrap();
        let stop = CancellationToken::new();
        let (following, stopping) = (Arc::clone(&kinds), stop.clone());
        let kinds_task = tokio::spawn(async move { following.run(stopping).await });
        let guarded = vec![namespace.clone()];
        let allowances =
            Allowances::new(client.clone(), Arc::clone(&kinds), guarded, Some(Leadership::alone()));
        let (following, stopping) = (Arc::clone(&allowances), stop.clone());
        let task = tokio::spawn(async move { following.run(stopping).await });
        Self { admin, namespace, client, kinds, allowances, stop, tasks: [task, kinds_task] }
    }

    async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }

    /// What the guard makes when Alice asks for an exception of so many seconds.
    fn request(&self, seconds: i64) -> DriftAllowance {
        let until = Timestamp::now() + SignedDuration::from_secs(seconds);
        resource(&AllowanceRequest {
            object: &deployment(&self.namespace),
            namespace: &self.namespace,
            paths: vec!["/spec/replicas".to_owned()],
            until: Timestamp::from_second(until.as_second()).unwrap(),
            reason: None,
            by: Some(&Actor { user: "alice".to_owned(), ..Actor::default() }),
        })
    }

    /// How many exceptions count for the Deployment as an object of a release in this namespace.
    fn count(&self, namespace: &str) -> usize {
        let release = ReleaseId { namespace: namespace.into(), name: "shop".into() };
        self.allowances.of_release(&deployment(&self.namespace), &release).len()
    }

    async fn assert_made_one_counts_until_its_end(&self) {
        let changes = self.allowances.changes();
        let asked = self.request(3600);
        let made = eventually("the definition is served", SOON, || self.allowances.make(&asked, SOON)).await;
        assert!(matches!(made, Ensured::Made(_)), "{made:?}");
        // It counts at once, before the watch has told of it, and told of once it ends.
        assert_eq!(self.count(&self.namespace), 1);
        assert_eq!(self.count("other"), 1, "an object in the allowance's namespace is any release's");
        assert!(matches!(self.allowances.make(&asked, SOON).await.unwrap(), Ensured::There(_)));
        assert_eq!(soon("it is told", changes.next()).await, deployment(&self.namespace));
        let name = made.resource().metadata.name.as_deref().unwrap();
        let path =
            format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/driftallowances/{name}", self.namespace);
        let end = Timestamp::from_second(Timestamp::now().as_second() + 1).unwrap();
        let ending = json!({"spec": {"until": end.to_string()}});
        self.admin.merge(&path, &ending).await.done().unwrap();
        eventually("its end is told", SOON, || async {
            soon("a change is told", changes.next()).await;
            self.count(&self.namespace) == 0
        })
        .await;
    }

    /// What others make is found by the watch, counts, and is theirs to delete.
    async fn assert_only_own_old_ones_are_deleted(&self) {
        let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/driftallowances", self.namespace);
        let hour = Timestamp::now() + SignedDuration::from_hours(1);
        self.admin.post(&path, &allowance("theirs", hour, json!({}))).await.done().unwrap();
        let counts = |wanted| move || std::future::ready(self.count(&self.namespace) == wanted);
        eventually("the watch finds it", SOON, counts(1)).await;
        self.admin.delete(&format!("{path}/theirs")).await.done().unwrap();
        eventually("it ends with it", SOON, counts(0)).await;
        let long_ago = Timestamp::now() - SignedDuration::from_hours(24 * 30);
        self.admin.post(&path, &allowance("theirs-old", long_ago, json!({}))).await.done().unwrap();
        let ours = json!({"app.kubernetes.io/managed-by": "kubemoor"});
        self.admin.post(&path, &allowance("ours-old", long_ago, ours)).await.done().unwrap();
        eventually("ours is deleted", SOON, || async {
            self.admin.get(&format!("{path}/ours-old")).await.code == 404
        })
        .await;
        assert_eq!(self.admin.get(&format!("{path}/theirs-old")).await.code, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn exception_end_is_reported_and_guards_old_exceptions_are_deleted() {
    // The definitions come late, and nobody else may have them already.
    let control_plane = ControlPlane::start();
    let followed = Followed::start(&control_plane).await;
    let mut progress = followed.allowances.progress();
    soon("all are listed", progress.wait_for(|it| *it == Progress::Listed)).await.unwrap();
    let hour = followed.request(3600);
    assert_eq!(followed.allowances.make(&hour, SOON).await.unwrap_err(), MakeError::NotDefined);
    control_plane.define_policies();
    followed.assert_made_one_counts_until_its_end().await;
    followed.assert_only_own_old_ones_are_deleted().await;

    // A guard that writes nothing makes none.
    let silent = Allowances::new(followed.client.clone(), Arc::clone(&followed.kinds), Vec::new(), None);
    assert_eq!(silent.make(&hour, SOON).await.unwrap_err(), MakeError::ReadOnly);
    followed.end().await;
}
