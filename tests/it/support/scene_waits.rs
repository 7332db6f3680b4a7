//! What the tests of a [`Scene`] wait for and look at: values, statuses, the guard's log, its ledger and its requests.
//!
//! The guard logs, counts and tells after it has the API server's answer: what it did stands in the cluster before it
//! stands in the log.

use std::borrow::Borrow;

use serde_json::{Value, json};

use super::caller::Caller;
use super::control_plane::ControlPlane;
use super::guard::Guard;
use super::identity::Identity;
use super::scene::{RELEASE, Scene};
use super::wait::{SOON, eventually};

impl Scene {
    /// Waits until the API server has this value in its cache, from which it takes objects for updates.
    pub(crate) async fn wait_for_cached(&self, path: &str, pointer: &str, wanted: Value) {
        let cached = format!("{path}?resourceVersion=0");
        eventually(&format!("{cached}{pointer} is {wanted}"), SOON, || async {
            let object = self.admin.get(&cached).await.done()?;
            if object.pointer(pointer) == Some(&wanted) { Ok(()) } else { Err(object.to_string()) }
        })
        .await;
    }

    /// Waits until the API server asks the guard about edits of this object: it takes up a changed webhook
    /// configuration a moment after it was written. Whoever calls this after an edit knows that the edit was judged.
    pub(crate) async fn wait_until_guarded(&self, path: &str) {
        wait_until_guarded(&self.alice, RELEASE, path).await;
    }

    /// Waits until a value of an object is this one, and gives the object.
    pub(crate) async fn wait_for_value(
        &self,
        path: &str,
        pointer: &str,
        wanted: impl Borrow<Value>,
    ) -> Value {
        let wanted = wanted.borrow();
        eventually(&format!("{pointer} of {path} is {wanted}"), SOON, || async {
            let object = self.alice.get(path).await.done()?;
            match object.pointer(pointer) {
                Some(value) if value == wanted => Ok(object),
                value => Err(format!("it is {value:?}\n{}", self.log())),
            }
        })
        .await
    }

    /// Asserts that a value of an object is this.
    pub(crate) async fn assert_value(&self, path: &str, pointer: &str, wanted: &Value) {
        let object = self.alice.get(path).await.done().unwrap();
        assert_eq!(object.pointer(pointer), Some(wanted), "{pointer} of {path}\n{}", self.log());
    }

    /// Waits until the status of the GuardedRelease is as it is `meant`.
    pub(crate) async fn status(&self, what: &str, meant: impl Fn(&Value) -> bool) -> Value {
        self.status_of(RELEASE, what, meant).await
    }

    /// The same for another release.
    pub(crate) async fn status_of(&self, release: &str, what: &str, meant: impl Fn(&Value) -> bool) -> Value {
        let path = self.guarded_release(release);
        eventually(&format!("the status of {release} says {what}"), SOON, || async {
            let status = self.alice.get(&path).await.done()?["status"].take();
            if meant(&status) { Ok(status) } else { Err(format!("{status}\n{}", self.log())) }
        })
        .await
    }

    /// Waits until this is the reason of `Ready`.
    pub(crate) async fn wait_for_reason(&self, reason: &str) -> Value {
        self.status(reason, |status| status["conditions"][0]["reason"] == reason).await
    }

    /// Waits until the status says that so many objects were seen as they are declared.
    pub(crate) async fn wait_for_confirmed(&self, objects: usize) {
        self.status("what was seen", |status| {
            status["confirmed"] == objects && status["seen"].as_array().is_some_and(|it| it.len() == objects)
        })
        .await;
    }

    /// Waits until the guard has seen every object as this revision declares it: it repairs towards nothing else.
    pub(crate) async fn wait_until_seen(&self, revision: u64) {
        let what = format!("that revision {revision} was seen");
        self.status(&what, |status| {
            status["revision"] == revision && status["confirmed"] == status["declared"]
        })
        .await;
    }

    /// Has the guard repair something of this release: whatever it wanted to do to what had drifted before, it has
    /// had its chance.
    pub(crate) async fn wait_for_pass(&self) {
        let path = self.config_map("marker");
        // It re-creates only what it has seen alive.
        let is_marker = |seen: &Value| seen["kind"] == "ConfigMap" && seen["name"] == "marker";
        self.status("that the marker was seen", |status| {
            status["seen"].as_array().is_some_and(|seen| seen.iter().any(is_marker))
        })
        .await;
        let uid = self.alice.get(&path).await.done().unwrap()["metadata"]["uid"].take();
        self.control_plane.delete_unhindered(&path).await;
        wait_until_recreated(&self.alice, &path, &uid).await;
    }

    /// Waits until the guard says this of the release.
    pub(crate) async fn wait_for_log(&self, words: &str) {
        eventually(&format!("the guard says {words:?}"), SOON, || async {
            let log = self.log();
            if log.contains(words) { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// What the shared guard has said of this release.
    pub(crate) fn log(&self) -> String {
        self.log_with(&self.namespace)
    }

    /// The lines of its log with these words; none where the scene has no shared guard.
    pub(crate) fn log_with(&self, words: &str) -> String {
        let log = self.guard.as_deref().map(Guard::log).unwrap_or_default();
        log.lines().filter(|line| line.contains(words)).collect::<Vec<_>>().join("\n")
    }

    /// The rows of the ledger about this release, newest first.
    pub(crate) fn rows(&self, filter: &[&str]) -> Vec<Value> {
        self.guard().rows(&[&["--namespace", &self.namespace], filter].concat())
    }

    /// How often guards have asked to write an object of a resource in the release's namespace. Dry runs write nothing.
    pub(crate) fn writes(&self, resource: &str) -> usize {
        self.answers(resource).len()
    }

    /// What the API server has answered to that so far.
    pub(crate) fn answers(&self, resource: &str) -> Vec<u64> {
        self.control_plane.answers_to_guards(resource, |event| {
            event["objectRef"]["namespace"] == self.namespace.as_str()
                && !["get", "list", "watch"].contains(&event["verb"].as_str().unwrap_or_default())
        })
    }

    /// Waits until the audit log, which comes after the answers, has so many to the guards' writes of objects of a
    /// resource.
    pub(crate) async fn wait_for_answers(&self, resource: &str, writes: usize) -> Vec<u64> {
        eventually(&format!("{writes} writes are answered"), SOON, || async {
            let answers = self.answers(resource);
            if answers.len() >= writes { Ok(answers) } else { Err(format!("{answers:?}")) }
        })
        .await
    }
}

impl Guard {
    /// Waits until its log says this.
    pub(crate) async fn wait_for_log(&self, words: &str) {
        eventually(&format!("the guard says {words:?}"), SOON, || async {
            let log = self.log();
            if log.contains(words) { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// Waits until its metrics say this.
    pub(crate) async fn wait_for_metric(&self, words: &str) {
        eventually(&format!("the metrics say {words:?}"), SOON, || async {
            let metrics = self.metrics().await;
            if metrics.contains(words) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}

impl ControlPlane {
    /// What the API server has answered to guards' requests for a resource that are `meant`, but for dry runs.
    pub(crate) fn answers_to_guards(&self, resource: &str, meant: impl Fn(&Value) -> bool) -> Vec<u64> {
        let is_meant = |event: &&Value| {
            event["user"]["username"] == Identity::Guard.user()
                && event["objectRef"]["resource"] == resource
                && !event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun=All"))
                && meant(event)
        };
        let code = |event: &Value| event["responseStatus"]["code"].as_u64().unwrap();
        let named = format!("\"resource\":\"{resource}\"");
        let events = self.audit_events(&[Identity::Guard.user(), &named]);
        events.iter().filter(is_meant).map(code).collect()
    }

    /// How often guards have listed all objects of a resource, as they do before they watch them. They also ask for
    /// one alone, to compare versions.
    pub(crate) fn listings(&self, resource: &str) -> usize {
        let is_whole = |event: &Value| {
            let uri = event["requestURI"].as_str().unwrap();
            event["verb"] == "list" && uri.split(['?', '&']).all(|part| part != "limit=1")
        };
        self.answers_to_guards(resource, is_whole).into_iter().filter(|code| *code == 200).count()
    }

    /// Waits until guards have listed a resource more than `before` times: what they never saw alive they do not
    /// re-create.
    pub(crate) async fn wait_until_listed(&self, resource: &str, before: usize) {
        eventually(&format!("the guard watches {resource}"), SOON, || async {
            self.listings(resource) > before
        })
        .await;
    }

    /// Deletes an object in a way that the guard does not stand in: controllers may delete.
    pub(crate) async fn delete_unhindered(&self, path: &str) {
        let controller = Caller::new(self, Identity::NamespaceController).await;
        controller.delete(path).await.done().unwrap();
    }
}

/// Waits until an edit of a declared field of the object at `path` is refused.
pub(crate) async fn wait_until_guarded(caller: &Caller, release: &str, path: &str) {
    let patch = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "alice"}}});
    let path = format!("{path}?dryRun=All");
    eventually(&format!("the API server asks the guard about {path}"), SOON, || async {
        caller.merge(&path, &patch).await.refused(release)
    })
    .await;
}

/// Waits until another object is where the one with this uid was, and gives it.
pub(crate) async fn wait_until_recreated(caller: &Caller, path: &str, uid: &Value) -> Value {
    eventually(&format!("{path} is back"), SOON, || async {
        let object = caller.get(path).await.done()?;
        if object["metadata"]["uid"] == *uid { Err("it is still the old one".to_owned()) } else { Ok(object) }
    })
    .await
}
