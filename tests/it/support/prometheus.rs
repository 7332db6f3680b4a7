//! A real Prometheus on loopback, and its promtool.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::control_plane::{install_crypto_provider, provided};
use super::identity::Identity;
use super::process::{Process, folder, free_port};
use super::wait::{SOON, eventually};

/// A server with its data in a temporary folder. Dropping it ends it.
pub(crate) struct Prometheus {
    _process: Process,
    url: String,
}

impl Prometheus {
    /// Starts one that reads the metrics at this address every second with the token of a user, over HTTPS with these
    /// settings of TLS, and evaluates these rules.
    pub(crate) async fn start(address: &str, user: Identity, tls: Value, rules: &[&Path]) -> Self {
        let dir = folder("prometheus");
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": rules,
            "scrape_configs": [{
                "job_name": "kubemoor", "scheme": "https", "tls_config": tls,
                "authorization": {"credentials": user.token()},
                "static_configs": [{"targets": [address]}],
            }],
        });
        let file = dir.join("prometheus.yml");
        fs::write(&file, config.to_string()).unwrap();
        let url = format!("http://127.0.0.1:{}", free_port());
        let arguments = vec![
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address={}", url.trim_start_matches("http://")),
        ];
        let mut process = Process::new("prometheus", programs().join("prometheus"), arguments, &dir);
        process.start();
        let server = Self { _process: process, url };
        let ready = || async { server.get("/-/ready").await.map(drop) };
        eventually("Prometheus answers", SOON, ready).await;
        server
    }

    /// What `promtool check rules` says of a file.
    pub(crate) fn check_rules(file: &Path) -> Output {
        Command::new(programs().join("promtool")).args(["check", "rules"]).arg(file).output().unwrap()
    }

    /// What `promtool test rules` says of a file of tests.
    pub(crate) fn test_rules(file: &Path) -> Output {
        Command::new(programs().join("promtool")).args(["test", "rules"]).arg(file).output().unwrap()
    }

    /// What a query gives now, or why it cannot be answered.
    pub(crate) async fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let mut encoded = String::new();
        for byte in query.bytes() {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        let mut data = self.api(&format!("query?query={encoded}")).await?;
        serde_json::from_value(data["result"].take()).map_err(|error| error.to_string())
    }

    /// The `data` of an answer of its API, such as `rules`.
    pub(crate) async fn api(&self, path: &str) -> Result<Value, String> {
        let text = self.get(&format!("/api/v1/{path}")).await?;
        let mut answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if answer["status"] == "success" { Ok(answer["data"].take()) } else { Err(text) }
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        install_crypto_provider();
        let said = |error: reqwest::Error| error.to_string();
        let answer = reqwest::get(format!("{}{path}", self.url)).await.map_err(said)?;
        let status = answer.status();
        let text = answer.text().await.map_err(said)?;
        if status.is_success() { Ok(text) } else { Err(format!("{status}: {text}")) }
    }
}

/// Where `tests/control-plane/provide` says that the programs are.
fn programs() -> PathBuf {
    provided("KUBEMOOR_PROMETHEUS", "prometheus")
}
