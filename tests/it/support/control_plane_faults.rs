//! What a test does to the programs of a control plane of its own.
//!
//! Invariant: whoever stops, freezes or restores one has it to the end: it goes to no other test.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::control_plane::{ControlPlane, EtcdData};
use super::process::folder;

/// The contents of etcd at one moment.
pub(crate) struct EtcdSnapshot(EtcdData);

impl ControlPlane {
    /// No other test can have it: its programs are not as they were started.
    pub(super) fn meddle(&self) {
        self.is_meddled_with.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_meddled_with(&self) -> bool {
        self.is_meddled_with.load(Ordering::Relaxed)
    }

    /// Ends the API server at once; clients see refused connections.
    pub(crate) fn kill_apiserver(&mut self) {
        self.meddle();
        self.apiserver.kill();
    }

    /// Asks the API server to end, and ends it after ten seconds, as whoever replaces it does.
    pub(crate) fn stop_apiserver(&mut self) {
        self.meddle();
        self.apiserver.end_within(Duration::from_secs(10));
    }

    /// Starts the API server again, at the same address, and waits until it is ready. One that ends itself because a part
    /// of it did not begin in time is started once more, as a kubelet does.
    pub(crate) fn start_apiserver(&mut self) {
        self.apiserver.start();
        let mut ready = self.wait_until_ready();
        if ready.is_err() && self.apiserver.exited().is_some() {
            self.kill_apiserver();
            self.apiserver.start();
            ready = self.wait_until_ready();
        }
        ready.unwrap_or_else(|message| panic!("{message}"));
    }

    /// Starts an API server that was ended again, as one of a newer Kubernetes that no longer serves a version of an API,
    /// such as `autoscaling/v1`.
    pub(crate) fn start_apiserver_without(&mut self, version: &str) {
        self.meddle();
        self.apiserver.add_argument(format!("--runtime-config={version}=false"));
        self.start_apiserver();
    }

    /// Starts it again as kubeadm starts it: each minute the API server tells watches of resources without changes how far
    /// it is. An API server at rest then takes almost twice the CPU, so tests do without.
    #[allow(dead_code, reason = "the measures ask for it")]
    pub(crate) fn restart_with_progress(&mut self) {
        self.etcd.add_argument("--experimental-watch-progress-notify-interval=5s".to_owned());
        if self.minor() < 21 {
            // Later versions ask etcd for it unbidden.
            self.apiserver.add_argument("--feature-gates=EfficientWatchResumption=true".to_owned());
        }
        self.restart();
    }

    /// Ends everything in order, and starts it again with what etcd held, as a cluster that was switched off and on.
    pub(crate) fn restart(&mut self) {
        self.meddle();
        self.controller_manager.end_within(Duration::from_secs(10));
        self.stop_apiserver();
        self.etcd.end_within(Duration::from_secs(10));
        self.etcd.start();
        self.start_apiserver();
        self.controller_manager.start();
    }

    /// Stops kube-controller-manager where it is: nobody acts on what changes.
    pub(crate) fn pause_controllers(&self) {
        self.meddle();
        self.controller_manager.pause();
    }

    /// Freezes etcd: the API server runs on and has no storage.
    pub(crate) fn pause_etcd(&self) {
        self.meddle();
        self.etcd.pause();
    }

    pub(crate) fn resume_etcd(&self) {
        self.etcd.resume();
    }

    /// Takes an object out of etcd, by its key below `/registry`: nobody is told, and no API server is needed.
    pub(crate) async fn delete_in_etcd(&self, key: &str) {
        self.meddle();
        let url = format!("{}/v3/kv/deleterange", self.etcd_url);
        let body = json!({"key": STANDARD.encode(format!("/registry/{key}"))});
        let answer = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["deleted"], "1", "{answer}");
    }

    /// Keeps what etcd holds now. The API server has no storage for a moment and is ready again afterwards.
    pub(crate) fn snapshot_etcd(&mut self) -> EtcdSnapshot {
        self.meddle();
        let snapshot = EtcdSnapshot(EtcdData(folder("etcd-snapshot").join("data")));
        self.etcd.kill();
        copy(&self.etcd_data.0, &snapshot.0.0);
        self.etcd.start();
        self.wait_until_ready().unwrap_or_else(|message| panic!("{message}"));
        snapshot
    }

    /// Goes back to a snapshot, as an operator does after a disaster: everything is stopped and started again, and
    /// resource versions begin anew where the snapshot was taken.
    pub(crate) fn restore_etcd(&mut self, snapshot: &EtcdSnapshot) {
        self.meddle();
        self.controller_manager.kill();
        self.apiserver.kill();
        self.etcd.kill();
        fs::remove_dir_all(&self.etcd_data.0).unwrap();
        copy(&snapshot.0.0, &self.etcd_data.0);
        self.etcd.start();
        self.start_apiserver();
        self.controller_manager.start();
    }
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cannot copy {} to {}", from.display(), to.display());
}
