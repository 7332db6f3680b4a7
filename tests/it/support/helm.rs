//! The real Helm SDK, and charts for it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::control_plane::{ControlPlane, provided};
use super::identity::Identity;
use super::process::{folder, forget, reap};

/// Helm run by one user: one operation after the other; take several for operations at once.
///
/// Every operation takes the SDK's options as a JSON object; `tests/control-plane/helm.py` lists the useful ones. The
/// key `values` is the chart's values. The answer is the SDK's; an error is the sentence that Helm would print.
pub(crate) struct Helm {
    child: Child,
    pipes: Arc<Mutex<Pipes>>,
    log: PathBuf,
}

/// A chart folder, written file by file.
#[derive(Clone)]
pub(crate) struct Chart {
    path: PathBuf,
}

struct Pipes {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What Helm is asked to do.
struct HelmOperation<'a> {
    name: &'a str,
    namespace: &'a str,
    release: &'a str,
    chart: Option<&'a Chart>,
}

impl Helm {
    pub(crate) fn start(control_plane: &ControlPlane, identity: Identity) -> Self {
        Self::with(&control_plane.kubeconfig(identity))
    }

    /// Helm with this kubeconfig.
    pub(crate) fn with(kubeconfig: &Path) -> Self {
        let home = folder("helm");
        let log = home.join("helm.log");
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/control-plane/helm.py");
        let mut command = Command::new(helm_python());
        // A home of its own: the discovery cache must not outlive the control plane.
        command.arg(driver).arg(kubeconfig).env("HOME", &home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        reap(&child);
        let requests = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, pipes: Arc::new(Mutex::new(Pipes { requests, answers })), log }
    }

    pub(crate) async fn install(
        &self,
        namespace: &str,
        release: &str,
        chart: &Chart,
        options: Value,
    ) -> Result<Value, String> {
        self.run(HelmOperation { name: "install", namespace, release, chart: Some(chart) }, options).await
    }

    pub(crate) async fn upgrade(
        &self,
        namespace: &str,
        release: &str,
        chart: &Chart,
        options: Value,
    ) -> Result<Value, String> {
        self.run(HelmOperation { name: "upgrade", namespace, release, chart: Some(chart) }, options).await
    }

    pub(crate) async fn rollback(
        &self,
        namespace: &str,
        release: &str,
        options: Value,
    ) -> Result<Value, String> {
        self.run(HelmOperation { name: "rollback", namespace, release, chart: None }, options).await
    }

    pub(crate) async fn uninstall(
        &self,
        namespace: &str,
        release: &str,
        options: Value,
    ) -> Result<Value, String> {
        self.run(HelmOperation { name: "uninstall", namespace, release, chart: None }, options).await
    }

    /// Runs the release's tests.
    pub(crate) async fn test(&self, namespace: &str, release: &str, options: Value) -> Result<Value, String> {
        self.run(HelmOperation { name: "test", namespace, release, chart: None }, options).await
    }

    /// The text of each template, rendered without a cluster.
    pub(crate) async fn template(
        &self,
        namespace: &str,
        release: &str,
        chart: &Chart,
        options: Value,
    ) -> Result<Value, String> {
        self.run(HelmOperation { name: "template", namespace, release, chart: Some(chart) }, options).await
    }

    /// What `helm lint --strict` finds.
    pub(crate) async fn lint(&self, namespace: &str, chart: &Chart, options: Value) -> Result<Value, String> {
        self.run(HelmOperation { name: "lint", namespace, release: "lint", chart: Some(chart) }, options)
            .await
    }

    /// Makes the chart of `helm create` in a folder, and says where.
    pub(crate) async fn create(&self, folder: &Path, name: &str) -> Result<Chart, String> {
        let chart = Chart { path: folder.join(name) };
        let create =
            HelmOperation { name: "create", namespace: "default", release: name, chart: Some(&chart) };
        self.run(create, json!({})).await.map(|_| chart)
    }

    /// The revisions, oldest first, each with `revision` and `status`.
    pub(crate) async fn history(&self, namespace: &str, release: &str) -> Result<Value, String> {
        self.run(HelmOperation { name: "history", namespace, release, chart: None }, json!({})).await
    }

    /// What `helm get manifest` prints for the latest revision.
    pub(crate) async fn manifest(&self, namespace: &str, release: &str) -> Result<String, String> {
        let status =
            self.run(HelmOperation { name: "status", namespace, release, chart: None }, json!({})).await?;
        status["manifest"].as_str().map(str::to_owned).ok_or_else(|| format!("no manifest in {status}"))
    }

    /// Ends Helm in the middle of what it does, as a crash or a lost CI job would.
    pub(crate) fn kill(&mut self) {
        // Fails only for a process that has ended by itself.
        let _ = self.child.kill();
    }

    async fn run(&self, operation: HelmOperation<'_>, mut options: Value) -> Result<Value, String> {
        let HelmOperation { name, namespace, release, chart } = operation;
        let values = options.as_object_mut().expect("options are an object").remove("values");
        let request = json!({
            "op": name,
            "namespace": namespace,
            "release": release,
            "chart": chart.map(|chart| &chart.path),
            "values": values,
            "options": options,
        });
        let pipes = Arc::clone(&self.pipes);
        let answer =
            tokio::task::spawn_blocking(move || pipes.lock().unwrap().exchange(&request)).await.unwrap();
        let mut answer = answer.map_err(|error| {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            format!("Helm ended during {name}: {error}\n{log}")
        })?;
        match answer["error"].as_str() {
            None => Ok(answer["result"].take()),
            Some(error) => Err(error.to_owned()),
        }
    }
}

/// The Python that has the Helm SDK.
pub(crate) fn helm_python() -> PathBuf {
    provided("KUBEMOOR_HELM_PYTHON", "helm/bin/python3")
}

impl Drop for Helm {
    fn drop(&mut self) {
        self.kill();
        self.child.wait().unwrap();
        forget(&self.child);
    }
}

impl Pipes {
    fn exchange(&mut self, request: &Value) -> std::io::Result<Value> {
        self.requests.write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

impl Chart {
    /// A chart of version 0.1.0 without templates or values.
    pub(crate) fn new(name: &str) -> Self {
        let chart = Self { path: folder("chart").join(name) };
        chart.write("Chart.yaml", &format!("apiVersion: v2\nname: {name}\nversion: 0.1.0\n"))
    }

    /// The chart of a folder of the repository, or of a folder anywhere.
    pub(crate) fn shipped(folder: impl AsRef<Path>) -> Self {
        Self { path: Path::new(env!("CARGO_MANIFEST_DIR")).join(folder) }
    }

    /// Adds or replaces a template.
    pub(crate) fn template(self, file: &str, text: &str) -> Self {
        self.write(&format!("templates/{file}"), text)
    }

    /// Adds a file to `crds/`.
    pub(crate) fn crd(self, file: &str, text: &str) -> Self {
        self.write(&format!("crds/{file}"), text)
    }

    /// Sets the default values (YAML).
    pub(crate) fn values(self, text: &str) -> Self {
        self.write("values.yaml", text)
    }

    fn write(self, file: &str, text: &str) -> Self {
        let path = self.path.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }
}
