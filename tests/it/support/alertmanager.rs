//! A real Alertmanager on loopback.

use std::fs;

use serde_json::Value;

use super::control_plane::{install_crypto_provider, provided};
use super::process::{Process, folder, free_port};
use super::wait::{SOON, eventually};

/// A server with its data in a temporary folder. Dropping it ends it.
pub(crate) struct Alertmanager {
    _process: Process,
    pub(crate) url: String,
}

impl Alertmanager {
    /// Starts one that tells this webhook of every alert that fires or is resolved.
    pub(crate) async fn start(webhook: &str) -> Self {
        let dir = folder("alertmanager");
        let config = dir.join("alertmanager.yml");
        let receiver =
            format!("{{name: test, webhook_configs: [{{url: \"{webhook}\", send_resolved: true}}]}}");
        // Grouped by everything, so that no alert waits for another.
        let route =
            "{receiver: test, group_by: [\"...\"], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}";
        fs::write(&config, format!("route: {route}\nreceivers:\n- {receiver}\n")).unwrap();
        let url = format!("http://127.0.0.1:{}", free_port());
        let arguments = vec![
            format!("--config.file={}", config.display()),
            format!("--storage.path={}", dir.join("data").display()),
            format!("--web.listen-address={}", url.trim_start_matches("http://")),
            "--cluster.listen-address=".to_owned(),
        ];
        let program = provided("KUBEMOOR_ALERTMANAGER", "alertmanager/run");
        let mut process = Process::new("alertmanager", program, arguments, &dir);
        process.start();
        let server = Self { _process: process, url };
        let ready = || async { server.get("/-/ready").await.map(drop) };
        eventually("Alertmanager answers", SOON, ready).await;
        server
    }

    /// The alerts that fire, as its API tells of them.
    pub(crate) async fn alerts(&self) -> Vec<Value> {
        let text = self.get("/api/v2/alerts?silenced=false&inhibited=false").await.unwrap();
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        install_crypto_provider();
        let said = |error: reqwest::Error| error.to_string();
        let answer = reqwest::get(format!("{}{path}", self.url)).await.map_err(said)?;
        answer.error_for_status().map_err(said)?.text().await.map_err(said)
    }
}
