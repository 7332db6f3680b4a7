//! A control plane that one test has to itself. When the test ends it is emptied and goes to another: to start one takes
//! several seconds of the processor, to empty one takes a fraction of a second.
//!
//! Entry point: [`ControlPlane::start`]. Invariant: what a test gets holds the same as one that has just started; one
//! whose programs a test has stopped, frozen or restored, one of a failed test, and one that cannot be emptied, end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::caller::Caller;
use super::control_plane::{ControlPlane, blocking};
use super::identity::Identity;
use super::settings::ClientCertificate;
use super::wait::budget;

/// The most that wait for a test: each has some hundred megabytes.
const IDLE: usize = 8;

/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(100);

/// The namespaces that an API server makes.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// As whom an API server and controllers write.
const CONTROLLERS: [&str; 2] = ["kube-apiserver", "kube-controller-manager"];

/// What changes by itself.
const RESTLESS: [&str; 7] = [
    "APIService",
    "Endpoints",
    "EndpointSlice",
    "FlowSchema",
    "Lease",
    "PriorityLevelConfiguration",
    "ServiceAccount",
];

static WAITING: Mutex<Vec<OwnControlPlane>> = Mutex::new(Vec::new());

/// A control plane of one test. Dropping it hands it on.
pub(crate) struct OwnControlPlane {
    control_plane: Option<Box<ControlPlane>>,
    /// What it held before any test had it.
    from_the_start: Contents,
    /// Kubemoor's definitions belong to that.
    is_defined: bool,
}

/// What a control plane holds, by address.
type Contents = BTreeMap<String, Value>;

/// The control plane of tests that do what a guard refuses, or speak in its place: Kubemoor's definitions exist from the
/// start, because every command reports unreadable policies until a new definition is served, and no guard runs. Policies
/// there name the releases of their test.
pub(crate) fn unguarded() -> &'static ControlPlane {
    static UNGUARDED: OnceLock<OwnControlPlane> = OnceLock::new();
    UNGUARDED.get_or_init(ControlPlane::start_defined)
}

impl ControlPlane {
    /// A control plane for one test alone, which may stop, freeze and restore it, or count its requests.
    ///
    /// # Panics
    /// When none waits for a test and none starts.
    pub(crate) fn start() -> OwnControlPlane {
        OwnControlPlane::take(false)
    }

    /// The same, with Kubemoor's definitions, each of which takes an API server a second of the processor.
    pub(crate) fn start_defined() -> OwnControlPlane {
        OwnControlPlane::take(true)
    }

    /// The kind, namespace and name of everything in the cluster, but what comes and goes by itself.
    pub(crate) fn everything(&self) -> BTreeSet<String> {
        let found = blocking(async { contents(&Caller::new(self, Identity::Admin).await).await });
        let row = |object: Value| {
            let [namespace, name] =
                ["namespace", "name"].map(|field| object["metadata"][field].as_str().unwrap_or_default());
            format!("{}/{namespace}/{name}", object["kind"].as_str().unwrap_or_default())
        };
        found.unwrap_or_else(|message| panic!("{message}")).into_values().map(row).collect()
    }

    /// One without definitions, with an API server that shows webhooks this client certificate. It goes to no other test.
    pub(crate) fn start_showing(certificate: &ClientCertificate) -> OwnControlPlane {
        let own = OwnControlPlane::new(certificate.apiserver(), false);
        own.meddle();
        own
    }
}

impl OwnControlPlane {
    fn take(is_defined: bool) -> Self {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = waiting.iter().position(|own| own.is_defined == is_defined);
        let fitting = fitting.map(|place| waiting.swap_remove(place));
        drop(waiting);
        fitting.unwrap_or_else(|| Self::new(Vec::new(), is_defined))
    }

    fn new(flags: Vec<String>, is_defined: bool) -> Self {
        let started = ControlPlane::try_start(flags).and_then(|control_plane| {
            if is_defined {
                control_plane.define_policies();
            }
            let from_the_start =
                blocking(async { contents(&Caller::new(&control_plane, Identity::Admin).await).await })?;
            Ok(Self { control_plane: Some(Box::new(control_plane)), from_the_start, is_defined })
        });
        started.unwrap_or_else(|message| panic!("{message}"))
    }

    /// Deletes everything that it did not hold when it had started, as is done between two tests.
    pub(crate) async fn empty(&self) -> Result<(), String> {
        let admin = Caller::new(self, Identity::Admin).await;
        for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
            admin.delete(&format!("/apis/admissionregistration.k8s.io/v1/{kind}")).await;
        }
        let deadline = Instant::now() + budget();
        loop {
            let contents = contents(&admin).await?;
            let is_other = |(address, object): &(&String, &Value)| !self.is_own(address, object);
            let others: Vec<_> = contents.iter().filter(is_other).collect();
            if others.is_empty() {
                return compare(&self.from_the_start, &contents);
            }
            if Instant::now() > deadline {
                return Err(others.iter().map(|(address, _)| format!("{address} does not go\n")).collect());
            }
            let full: BTreeSet<_> =
                others.iter().map(|(_, object)| object["metadata"]["namespace"].as_str()).collect();
            for (address, object) in others {
                delete(&admin, address, object, !full.contains(&object["metadata"]["name"].as_str())).await;
            }
            sleep(LOOK).await;
        }
    }

    /// Whether it holds this when no test has touched it.
    fn is_own(&self, address: &str, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let is_made_by = |entry: &Value| CONTROLLERS.iter().any(|name| entry["manager"] == *name);
        // Controllers make their accounts without a manager.
        let is_made_by_itself =
            metadata["managedFields"].as_array().is_none_or(|fields| fields.iter().all(is_made_by));
        let is_in_own_namespace =
            metadata["namespace"].as_str().is_some_and(|namespace| NAMESPACES.contains(&namespace));
        self.from_the_start.contains_key(address)
            || object["kind"] == "APIService"
            || object["kind"] == "Namespace" && NAMESPACES.iter().any(|name| metadata["name"] == *name)
            || is_in_own_namespace && is_made_by_itself
    }
}

impl Deref for OwnControlPlane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.control_plane.as_ref().expect("it is taken only when this is dropped")
    }
}

impl DerefMut for OwnControlPlane {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        self.control_plane.as_mut().expect("it is taken only when this is dropped")
    }
}

impl Drop for OwnControlPlane {
    fn drop(&mut self) {
        let Some(control_plane) = self.control_plane.take() else { return };
        if thread::panicking() || control_plane.is_meddled_with() {
            return;
        }
        let from_the_start = std::mem::take(&mut self.from_the_start);
        let mut own =
            Self { control_plane: Some(control_plane), from_the_start, is_defined: self.is_defined };
        let emptied = blocking(own.empty());
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        if emptied.is_ok() && waiting.len() < IDLE {
            own.forget();
            waiting.push(own);
        } else {
            // It ends with its test.
            own.meddle();
        }
    }
}

/// Everything that can be listed and deleted, but what only tells of others.
async fn contents(admin: &Caller) -> Result<Contents, String> {
    let mut contents = Contents::new();
    for (api, resource) in resources(admin).await? {
        let path = format!("{api}/{}", resource["name"].as_str().unwrap_or_default());
        let list = admin.get(&path).await;
        // A kind whose definition has just gone.
        if list.code == 404 {
            continue;
        }
        for mut object in list.done()?["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let address = match object["metadata"]["namespace"].as_str() {
                Some(namespace) => {
                    format!(
                        "{api}/namespaces/{namespace}/{}/{name}",
                        resource["name"].as_str().unwrap_or_default()
                    )
                }
                None => format!("{path}/{name}"),
            };
            object["kind"] = resource["kind"].clone();
            contents.insert(address, object);
        }
    }
    Ok(contents)
}

/// Each kind with the address of its API, once.
async fn resources(admin: &Caller) -> Result<Vec<(String, Value)>, String> {
    let groups = admin.get("/apis").await.done()?["groups"].take();
    let preferred =
        |group: &Value| Some(format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str()?));
    let groups = groups.as_array().into_iter().flatten().filter_map(preferred);
    let mut resources = Vec::new();
    for api in std::iter::once("/api/v1".to_owned()).chain(groups) {
        let found = admin.get(&api).await;
        if found.code == 404 {
            continue;
        }
        for resource in found.done()?["resources"].as_array().into_iter().flatten() {
            let can =
                |verb: &str| resource["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!(verb)));
            let is_told_elsewhere = resource["kind"] == "Event";
            if can("list") && can("delete") && !is_told_elsewhere {
                resources.push((api.clone(), resource.clone()));
            }
        }
    }
    Ok(resources)
}

/// Begins to delete an object, or ends a deletion that waits for others: that of a namespace where it is empty.
async fn delete(admin: &Caller, address: &str, object: &Value, is_empty: bool) {
    if object["metadata"].get("deletionTimestamp").is_none() {
        admin.delete(address).await;
    } else if object["kind"] == "Namespace" {
        let mut namespace = object.clone();
        namespace["apiVersion"] = json!("v1");
        namespace["spec"] = json!({"finalizers": []});
        // Its controller would take six seconds.
        if is_empty {
            admin.put(&format!("{address}/finalize"), &namespace).await;
        }
    } else if object["kind"] != "CustomResourceDefinition" {
        admin.merge(address, &json!({"metadata": {"finalizers": null}})).await;
    }
}

/// Whether what it holds from the start is as it was.
fn compare(before: &Contents, now: &Contents) -> Result<(), String> {
    for (address, was) in before {
        let is = now.get(address).ok_or_else(|| format!("{address} is gone"))?;
        if RESTLESS.iter().any(|kind| was["kind"] == *kind) {
            continue;
        }
        if steady(was) != steady(is) {
            return Err(format!("{address} has changed: {was} {is}"));
        }
    }
    Ok(())
}

/// An object less what changes with each write.
fn steady(object: &Value) -> Value {
    let mut object = object.clone();
    // A controller gathers the rules.
    if let Some(role) = object.as_object_mut().filter(|object| object.contains_key("aggregationRule")) {
        role.remove("rules");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["generation", "managedFields", "resourceVersion"] {
            metadata.remove(field);
        }
    }
    object
}
