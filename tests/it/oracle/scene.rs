//! Random releases, installed as Helm 4 does it, each beside twins of its objects that no release declares.
//!
//! Entry points: [`OracleScene::start`], [`OracleScene::install`]. A twin has the same manifest, label and annotations, and lies
//! in another namespace, or has another name where its kind has no namespaces.

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::draw::Draw;
use super::gadgets::define_gadgets;
use super::kinds::{ChartKind, KINDS};
use crate::support::{
    Caller, ControlPlane, Guard, Identity, OwnControlPlane, RELEASE, SOON, eventually, holding, poll,
    record_name, sealed, wait_until_guarded,
};

/// Requests under way at one time.
pub(super) const AT_ONCE: usize = 10;

/// How many manifests are drawn for an object until the API server takes one.
const TRIES: u64 = 12;

/// What no manifest says and no two objects share.
const SERVERS_OWN: [&str; 6] =
    ["managedFields", "creationTimestamp", "resourceVersion", "uid", "generation", "selfLink"];

/// A control plane whose controllers stand still, and a guard.
pub(super) struct OracleScene {
    pub(super) control_plane: OwnControlPlane,
    pub(super) guard: Guard,
    /// Helm.
    pub(super) helm: Caller,
    /// A person.
    pub(super) alice: Caller,
    /// Who prepares the twins, and may delete what is guarded.
    pub(super) admin: Caller,
    cleaner: Caller,
}

/// A release with its objects and their twins.
pub(super) struct OracleRelease {
    pub(super) seed: u64,
    pub(super) namespace: String,
    twins: String,
    /// The manifests of the first revision.
    declared: Vec<Value>,
    /// What Helm could write.
    pub(super) objects: Vec<Object>,
    /// What Helm could not write although it could write the twin.
    pub(super) refused: Vec<String>,
}

/// A declared object and its twin.
pub(super) struct Object {
    pub(super) kind: &'static ChartKind,
    /// Its place in the chart, from which its edits are drawn.
    pub(super) index: u64,
    /// What the chart has.
    pub(super) manifest: Value,
    /// The declared object's address.
    pub(super) path: String,
    pub(super) twin: Twin,
}

/// An object that no release declares.
pub(super) struct Twin {
    pub(super) path: String,
    /// What Helm would apply to it.
    pub(super) document: Value,
    /// As it was made.
    pub(super) live: Value,
}

impl OracleScene {
    /// Starts both; the guard with these flags.
    pub(super) async fn start(flags: &[&str]) -> Self {
        let control_plane = ControlPlane::start_defined();
        let guard = Guard::start(&control_plane, flags).await;
        if flags.contains(&"--register") {
            Guard::extend_webhook_timeouts(&control_plane, "Fail").await;
        }
        define_gadgets(&control_plane, flags.contains(&"Repair")).await;
        // They would make pods, and take part in what changes.
        control_plane.pause_controllers();
        let helm = Caller::new(&control_plane, Identity::Deployer).await;
        let alice = Caller::new(&control_plane, Identity::Alice).await;
        let admin = Caller::new(&control_plane, Identity::Admin).await;
        let cleaner = Caller::new(&control_plane, Identity::NamespaceController).await;
        Self { control_plane, guard, helm, alice, admin, cleaner }
    }

    /// Draws a chart with an object of each of these kinds, by their place in the table, and installs it.
    pub(super) async fn install(&self, seed: u64, kinds: impl IntoIterator<Item = u64>) -> OracleRelease {
        let namespace = self.control_plane.namespace("oracle").await;
        let twins = self.control_plane.namespace("twin").await;
        let mut release = OracleRelease {
            seed,
            namespace,
            twins,
            declared: Vec::new(),
            objects: Vec::new(),
            refused: Vec::new(),
        };
        let prepared = futures::stream::iter(kinds).map(|index| self.prepare(&release, index));
        let prepared: Vec<Option<Object>> = prepared.buffered(AT_ONCE).collect().await;
        release.objects.extend(prepared.into_iter().flatten());
        release.declared = release.objects.iter().map(|object| object.manifest.clone()).collect();
        release.record(self, 1, "pending-install", None).await;
        let applied = futures::stream::iter(&release.objects).map(|object| async {
            let path = format!("{}?fieldManager=helm", object.path);
            let applied = self.helm.apply(&path, &release.document(object, &object.manifest)).await.done();
            applied.err().map(|said| format!("seed {seed}: {said}: {}", object.manifest))
        });
        let refused: Vec<Option<String>> = applied.buffered(AT_ONCE).collect().await;
        let objects = std::mem::take(&mut release.objects);
        for (object, refused) in objects.into_iter().zip(refused) {
            match refused {
                None => release.objects.push(object),
                Some(refused) => {
                    self.delete(&object.twin.path).await;
                    release.refused.push(refused);
                }
            }
        }
        release.record(self, 1, "deployed", None).await;
        release
    }

    /// Installs a release of so many ConfigMaps that nobody edits: the loop stops where more than a tenth of all declared
    /// objects drift.
    pub(super) async fn install_bystanders(&self, count: u64) {
        let kind = KINDS.iter().find(|kind| kind.plural == "configmaps").unwrap();
        let namespace = self.control_plane.namespace("bystanders").await;
        let manifest = |number: u64| {
            let metadata = json!({"name": format!("bystander-{number}")});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}})
        };
        let release = OracleRelease {
            seed: 0,
            twins: namespace.clone(),
            namespace,
            declared: (0..count).map(manifest).collect(),
            objects: Vec::new(),
            refused: Vec::new(),
        };
        release.record(self, 1, "pending-install", None).await;
        let applied = futures::stream::iter(&release.declared).map(|manifest| async {
            let path = format!("{}?fieldManager=helm", address(kind, manifest, &release.namespace));
            self.helm.apply(&path, &release.stamped(kind, manifest, &release.namespace)).await.done()
        });
        applied.buffered(AT_ONCE).for_each(|applied| async { drop(applied.unwrap()) }).await;
        release.record(self, 1, "deployed", None).await;
        self.wait_until_in_sync(&release).await.unwrap();
    }

    /// Waits until the API server asks the guard about all objects of a release.
    pub(super) async fn wait_until_guarded(&self, release: &OracleRelease) {
        for object in &release.objects {
            wait_until_guarded(&self.alice, RELEASE, &object.path).await;
        }
    }

    /// Waits until the guard has seen all objects of a release, and says which of them it does not find as declared.
    pub(super) async fn wait_for_sync(&self, release: &OracleRelease) -> Result<(), String> {
        eventually("the guard has seen the objects of the release", SOON, || async {
            let status = self.status(release).await?;
            let seen = status["seen"].as_array().map_or(0, Vec::len);
            if seen == release.objects.len() { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        self.wait_until_in_sync(release).await
    }

    async fn wait_until_in_sync(&self, release: &OracleRelease) -> Result<(), String> {
        poll(SOON, || async {
            let status = self.status(release).await?;
            let is_in_sync = status["conditions"][0]["reason"] == "InSync";
            if is_in_sync {
                Ok(())
            } else {
                Err(format!("{}: {}", status["conditions"][0], status["drifts"]))
            }
        })
        .await
    }

    async fn status(&self, release: &OracleRelease) -> Result<Value, String> {
        let guarded = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/guardedreleases", release.namespace);
        Ok(self.alice.get(&format!("{guarded}/{RELEASE}")).await.done()?["status"].take())
    }

    /// Draws a manifest that the API server takes, and that it leaves as it is when it is applied again.
    async fn prepare(&self, release: &OracleRelease, index: u64) -> Option<Object> {
        let kind = &KINDS[usize::try_from(index).unwrap()];
        for attempt in 0..TRIES {
            let mut draw = Draw::new(release.seed, [index, attempt, 0]);
            let mut manifest = kind.manifest(&mut draw, self.control_plane.minor())?;
            let of_cluster = !kind.is_namespaced;
            let name = |namespace: &str| {
                if of_cluster { namespace.to_owned() } else { format!("{}-{index}", kind.plural) }
            };
            manifest["metadata"]["name"] = json!(name(&release.namespace));
            let mut copy = manifest.clone();
            copy["metadata"]["name"] = json!(name(&release.twins));
            let path = address(kind, &manifest, &release.namespace);
            let mut twin = Twin {
                path: address(kind, &copy, &release.twins),
                document: release.stamped(kind, &copy, &release.twins),
                live: Value::Null,
            };
            let Ok(live) = self.apply(&twin, "").await else { continue };
            twin.live = live;
            if self
                .apply(&twin, "&dryRun=All")
                .await
                .is_ok_and(|again| content(&again) == content(&twin.live))
            {
                return Some(Object { kind, index, manifest, path, twin });
            }
            self.delete(&twin.path).await;
        }
        None
    }

    /// Applies a twin's manifest as Helm would do it by force.
    pub(super) async fn apply(&self, twin: &Twin, options: &str) -> Result<Value, String> {
        let path = format!("{}?fieldManager=helm&force=true{options}", twin.path);
        self.helm.apply(&path, &twin.document).await.done()
    }

    /// Makes a twin as it was before this edit of it.
    pub(super) async fn reset(&self, twin: &Twin, edited: &Value) {
        if content(edited) == content(&twin.live) {
            return;
        }
        let mut before = twin.live.clone();
        let metadata = before["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.insert("resourceVersion".to_owned(), edited["metadata"]["resourceVersion"].clone());
        let put = self.admin.put(&twin.path, &before).await.done();
        if put.is_ok_and(|now| content(&now) == content(&twin.live)) {
            return;
        }
        self.delete(&twin.path).await;
        let live = self.apply(twin, "").await.unwrap();
        assert_eq!(without_choices(&live), without_choices(&twin.live), "it is not as it was");
    }

    /// Deletes an object and waits until it is gone; nobody is here to let go of it.
    async fn delete(&self, path: &str) {
        self.cleaner.delete(path).await;
        self.admin.merge(path, &json!({"metadata": {"finalizers": null}})).await;
        eventually(&format!("{path} is gone"), SOON, || async { self.admin.get(path).await.code == 404 })
            .await;
    }

    /// Deletes all that belongs to a release, its records first: what they declare a guard would make again.
    pub(super) async fn remove(&self, release: &OracleRelease) {
        for revision in [2, 1] {
            self.delete(&format!("{}/{}", release.records(), record_name(RELEASE, revision))).await;
        }
        let objects = release.objects.iter().flat_map(|object| [&object.path, &object.twin.path]);
        futures::stream::iter(objects).for_each_concurrent(AT_ONCE, |path| self.delete(path)).await;
    }
}

impl OracleRelease {
    fn records(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }

    /// Writes the record of a revision, as Helm does it before and after it writes the objects; of one that upgrades
    /// the release to `upgraded`.
    pub(super) async fn record(
        &self,
        scene: &OracleScene,
        revision: u32,
        status: &str,
        upgraded: Option<&Value>,
    ) {
        let manifests = upgraded.map_or(self.declared.as_slice(), std::slice::from_ref);
        let documents = manifests.iter().map(|manifest| format!("---\n{manifest}\n"));
        let content = json!({
            "name": RELEASE, "namespace": self.namespace, "version": revision, "apply_method": "ssa",
            "info": {"status": status, "last_deployed": "2026-01-01T00:00:00Z"},
            "manifest": documents.collect::<String>(),
        });
        let record = holding(&self.namespace, RELEASE, revision, status, sealed(&content));
        let mut record = serde_json::to_value(record).unwrap();
        record["apiVersion"] = json!("v1");
        record["kind"] = json!("Secret");
        if scene.helm.post(&self.records(), &record).await.done().is_err() {
            let path = format!("{}/{}", self.records(), record_name(RELEASE, revision));
            scene.helm.put(&path, &record).await.done().unwrap();
        }
    }

    /// What Helm applies of a manifest of an object.
    pub(super) fn document(&self, object: &Object, manifest: &Value) -> Value {
        self.stamped(object.kind, manifest, &self.namespace)
    }

    /// The same of the object's twin.
    pub(super) fn twin_document(&self, object: &Object, manifest: &Value) -> Value {
        let mut copy = manifest.clone();
        copy["metadata"]["name"] = object.twin.document["metadata"]["name"].clone();
        self.stamped(object.kind, &copy, &self.twins)
    }

    fn stamped(&self, kind: &ChartKind, manifest: &Value, namespace: &str) -> Value {
        let mut document = manifest.clone();
        for (map, name, value) in [
            ("labels", "app.kubernetes.io/managed-by", "Helm"),
            ("annotations", "meta.helm.sh/release-name", RELEASE),
            ("annotations", "meta.helm.sh/release-namespace", &self.namespace),
        ] {
            if !document["metadata"][map].is_object() {
                document["metadata"][map] = json!({});
            }
            document["metadata"][map][name] = json!(value);
        }
        if kind.is_namespaced {
            document["metadata"]["namespace"] = json!(namespace);
        }
        document
    }
}

fn address(kind: &ChartKind, manifest: &Value, namespace: &str) -> String {
    let api = manifest["apiVersion"].as_str().unwrap();
    let root = if api.contains('/') { "apis" } else { "api" };
    let within = if kind.is_namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    format!("/{root}/{api}{within}/{}/{}", kind.plural, manifest["metadata"]["name"].as_str().unwrap())
}

/// What an object says, without what the server notes about it.
pub(super) fn content(object: &Value) -> Value {
    let mut content = object.clone();
    content.as_object_mut().unwrap().remove("status");
    let metadata = content["metadata"].as_object_mut().unwrap();
    SERVERS_OWN.iter().for_each(|name| drop(metadata.remove(*name)));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        // A count of changes, which one that means nothing raises as well.
        annotations.remove("deprecated.daemonset.template.generation");
    }
    content
}

/// The same without what the server chooses anew for every object.
pub(super) fn without_choices(object: &Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for chosen in ["nodePort", "clusterIP", "clusterIPs", "healthCheckNodePort", "controller-uid"]
                {
                    map.remove(chosen);
                }
                map.remove("batch.kubernetes.io/controller-uid");
                map.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    let mut content = content(object);
    walk(&mut content);
    content
}
