//! Kubemoor as its chart installs it, with the real Helm SDK. No kubelet runs here, so a pod is a process with the
//! arguments, environment, files and account of the pod that the API server holds.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::caller::Caller;
use super::cluster_page::{ClusterPage, authority_of};
use super::control_plane::{ControlPlane, install_crypto_provider};
use super::helm::{Chart, Helm};
use super::identity::Identity;
use super::moor::Ran;
use super::process::{Process, folder, free_port, own_address};
use super::wait::{SOON, eventually};

/// Where the chart is installed, and the name of everything in it.
pub(crate) const HOME: &str = "kubemoor-system";
const NAME: &str = "kubemoor";

/// The first Kubernetes version that serves EndpointSlices as v1; later ones reach webhooks by them.
const SLICES: u32 = 21;
const ENDPOINT_SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kubemoor-system/endpointslices";

/// The most replicas that a Service leads to.
const MOST_REPLICAS: usize = 4;

/// The chart's release. At first nothing is installed.
pub(crate) struct Installed<'a> {
    control_plane: &'a ControlPlane,
    pub(crate) admin: Caller,
    pub(crate) helm: Helm,
    pub(crate) chart: Chart,
}

/// A replica of the Deployment. Dropping it kills it.
pub(crate) struct Pod {
    process: Process,
    port: u16,
    admin_port: u16,
    /// Where its volumes are.
    dir: PathBuf,
}

/// What a kubelet would run for a pod.
struct ContainerRun {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    dir: PathBuf,
}

impl<'a> Installed<'a> {
    pub(crate) async fn new(control_plane: &'a ControlPlane) -> Self {
        let admin = Caller::new(control_plane, Identity::Admin).await;
        let helm = Helm::start(control_plane, Identity::Deployer);
        Self { control_plane, admin, helm, chart: Chart::shipped("deploy/chart") }
    }

    pub(crate) async fn install(&self, values: Value) -> Result<Value, String> {
        let options = json!({"values": values, "create_namespace": true});
        self.helm.install(HOME, NAME, &self.chart, options).await
    }

    pub(crate) async fn upgrade(&self, values: Value) -> Result<Value, String> {
        self.helm.upgrade(HOME, NAME, &self.chart, json!({"values": values})).await
    }

    /// Uninstalls, and runs the pod of the hook.
    pub(crate) async fn uninstall(&self) -> (Result<Value, String>, Ran) {
        let helm = self.helm.uninstall(HOME, NAME, json!({"timeout_seconds": 60}));
        tokio::join!(helm, self.run_pod("job-name=kubemoor-uninstall"))
    }

    /// Runs the release's tests, and their pod.
    pub(crate) async fn test(&self) -> (Result<Value, String>, Ran) {
        let helm = self.helm.test(HOME, NAME, json!({"timeout_seconds": 60}));
        tokio::join!(helm, self.run_pod("app.kubernetes.io/name=kubemoor-test"))
    }

    /// Starts so many replicas of the live Deployment, each when the one before is ready, and puts them behind the
    /// Service.
    pub(crate) async fn start(&self, replicas: usize) -> Vec<Pod> {
        let mut pods = Vec::new();
        for _ in 0..replicas {
            let mut pod = self.start_one().await;
            self.route(&[&pod]).await;
            pod.ready().await;
            pods.push(pod);
        }
        self.route(&pods.iter().collect::<Vec<_>>()).await;
        pods
    }

    /// Starts one replica of the live Deployment, and neither waits for it nor has the Service lead to it.
    pub(crate) async fn start_one(&self) -> Pod {
        let path = format!("/apis/apps/v1/namespaces/{HOME}/deployments/{NAME}");
        let deployment = self.admin.get(&path).await.done().unwrap();
        let mut run = self.run(&deployment["spec"]["template"]["spec"]).await;
        let (port, admin_port) = (free_port(), free_port());
        run.environment.extend([
            ("KUBEMOOR_LISTEN".to_owned(), format!("{}:{port}", own_address())),
            ("KUBEMOOR_ADMIN_LISTEN".to_owned(), format!("127.0.0.1:{admin_port}")),
        ]);
        let program = env!("CARGO_BIN_EXE_kubemoor").into();
        let mut process =
            Process::new(NAME, program, run.arguments, &run.dir).with_environment(run.environment);
        process.start();
        Pod { process, port, admin_port, dir: run.dir }
    }

    /// Brings the files of a Secret that changed into a replica, as its kubelet does sooner or later.
    pub(crate) async fn deliver(&self, secret: &str, mount: &str, pod: &Pod) {
        let volume = json!({"secret": {"secretName": secret}});
        self.fill(&volume, &pod.dir.join(mount.trim_start_matches('/'))).await;
    }

    /// Starts one replica of the page, which asks that guard for the ledger in place of its Service. It gets the files
    /// and variables of its pod, and no account.
    pub(crate) async fn start_page(&self, guard: &Pod) -> ClusterPage {
        self.publish_authority().await;
        let path = format!("/apis/apps/v1/namespaces/{HOME}/deployments/kubemoor-ui");
        let deployment = self.admin.get(&path).await.done().unwrap();
        let mut run = self.run(&deployment["spec"]["template"]["spec"]).await;
        run.environment.retain(|(name, _)| name != "KUBECONFIG");
        run.environment.extend([
            ("KUBERNETES_SERVICE_HOST".to_owned(), "127.0.0.1".to_owned()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), self.control_plane.port().to_string()),
        ]);
        let service = format!("--server=https://{NAME}.{HOME}.svc:9080");
        let place = run.arguments.iter().position(|it| *it == service).unwrap();
        run.arguments[place] = format!("--server={}", guard.admin_url());
        let tls = run.dir.join("var/lib/kubemoor/tls");
        ClusterPage::run(run.arguments, run.environment, (&run.dir, &tls)).await
    }

    /// Makes the ConfigMap that every namespace has of a controller where it is told the authority.
    async fn publish_authority(&self) {
        let data = json!({"ca.crt": authority_of(self.control_plane)});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": data});
        let path =
            format!("/api/v1/namespaces/{HOME}/configmaps/kube-root-ca.crt?fieldManager=test&force=true");
        self.admin.apply(&path, &map).await.done().unwrap();
    }

    /// Has the Service lead to these replicas, as the endpoints controller would.
    pub(crate) async fn route(&self, pods: &[&Pod]) {
        self.route_to(&pods.iter().map(|pod| pod.port).collect::<Vec<_>>()).await;
    }

    /// Has the Service lead to these ports of this machine.
    pub(crate) async fn route_to(&self, ports: &[u16]) {
        let address: Ipv4Addr = own_address();
        let subset = |port: &u16| {
            json!({
                "addresses": [{"ip": address}],
                "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
            })
        };
        let subsets: Vec<_> = ports.iter().map(subset).collect();
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": NAME}, "subsets": subsets,
        });
        let path = format!("/api/v1/namespaces/{HOME}/endpoints/{NAME}?fieldManager=test&force=true");
        self.admin.apply(&path, &endpoints).await.done().unwrap();
        if self.control_plane.minor() >= SLICES {
            self.slice(ports).await;
        }
    }

    /// The same for API servers that look for slices. All endpoints of one have the same port.
    async fn slice(&self, ports: &[u16]) {
        for number in 0..MOST_REPLICAS {
            let name = format!("{NAME}-{number}");
            let port = ports.get(number);
            let endpoint = json!({"addresses": [own_address()], "conditions": {"ready": true}});
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": NAME}},
                "endpoints": port.map(|_| endpoint).into_iter().collect::<Vec<_>>(),
                "ports": [{"name": "webhook", "port": port.unwrap_or(&1), "protocol": "TCP"}],
            });
            let path = format!("{ENDPOINT_SLICES}/{name}?fieldManager=test&force=true");
            self.admin.apply(&path, &slice).await.done().unwrap();
        }
    }

    /// Takes away where the Services lead to, as the endpoints controller would. Some API servers delete the Endpoints with
    /// their Services.
    pub(crate) async fn delete_endpoints(&self) {
        for name in [NAME, "kubemoor-ui"] {
            self.admin.delete(&format!("/api/v1/namespaces/{HOME}/endpoints/{name}")).await;
        }
        let slices = format!("{ENDPOINT_SLICES}?labelSelector=kubernetes.io/service-name={NAME}");
        self.admin.delete(&slices).await;
    }

    /// Runs the pod that Helm waits for, and tells the API server how it ended.
    async fn run_pod(&self, selector: &str) -> Ran {
        let pods = format!("/api/v1/namespaces/{HOME}/pods");
        let pod = eventually(&format!("there is a pod with {selector}"), SOON, || async {
            let pods = self.admin.get(&format!("{pods}?labelSelector={selector}")).await.done()?;
            pods["items"].get(0).cloned().ok_or_else(|| pods.to_string())
        })
        .await;
        let run = self.run(&pod["spec"]).await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
        command.args(run.arguments).env_clear().envs(run.environment);
        let ran: Ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap().into();
        let phase = if ran.code == 0 { "Succeeded" } else { "Failed" };
        let path = format!("{pods}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        self.admin.merge(&path, &json!({"status": {"phase": phase}})).await.done().unwrap();
        ran
    }

    async fn run(&self, pod: &Value) -> ContainerRun {
        let dir = folder("pod");
        let container = &pod["containers"][0];
        let mut places = Vec::new();
        for mount in list(&container["volumeMounts"]) {
            let path = text(&mount["mountPath"]);
            let place = dir.join(path.trim_start_matches('/'));
            fs::create_dir_all(&place).unwrap();
            let volume = list(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"]);
            // The API server adds a mount of the account's token, which the kubeconfig stands for.
            if let Some(volume) = volume {
                self.fill(volume, &place).await;
                places.push((path.to_owned(), place.display().to_string()));
            }
        }
        let at_home = |text: &str| {
            places.iter().fold(text.to_owned(), |text, (path, place)| text.replace(path.as_str(), place))
        };
        let mut environment =
            vec![("KUBECONFIG".to_owned(), self.kubeconfig(pod, &dir).await.display().to_string())];
        for variable in list(&container["env"]) {
            let value = match variable["value"].as_str() {
                Some(value) => at_home(value),
                None => self.secret_value(&variable["valueFrom"]["secretKeyRef"]).await,
            };
            environment.push((text(&variable["name"]).to_owned(), value));
        }
        let arguments = list(&container["args"]).iter().map(|argument| at_home(text(argument))).collect();
        ContainerRun { arguments, environment, dir }
    }

    /// Writes the files of a volume.
    async fn fill(&self, volume: &Value, place: &Path) {
        let secret = volume["secret"]["secretName"].as_str();
        let object = match (secret, volume["configMap"]["name"].as_str()) {
            (Some(secret), _) => format!("secrets/{secret}"),
            (_, Some(map)) => format!("configmaps/{map}"),
            _ => return,
        };
        let path = format!("/api/v1/namespaces/{HOME}/{object}");
        let data = self.admin.get(&path).await.done().unwrap()["data"].take();
        for (file, content) in data.as_object().into_iter().flatten() {
            let content = text(content);
            let bytes = if secret.is_some() { STANDARD.decode(content).unwrap() } else { content.into() };
            fs::write(place.join(file), bytes).unwrap();
        }
    }

    async fn secret_value(&self, reference: &Value) -> String {
        let path = format!("/api/v1/namespaces/{HOME}/secrets/{}", text(&reference["name"]));
        let secret = self.admin.get(&path).await.done().unwrap();
        let value = &secret["data"][text(&reference["key"])];
        String::from_utf8(STANDARD.decode(text(value)).unwrap()).unwrap()
    }

    /// A kubeconfig with a token of the pod's account, in place of the files that a pod has.
    async fn kubeconfig(&self, pod: &Value, dir: &Path) -> PathBuf {
        let account = text(&pod["serviceAccountName"]);
        let path = format!("/api/v1/namespaces/{HOME}/serviceaccounts/{account}/token");
        let kind = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = self.admin.post(&path, &kind).await.done().unwrap()["status"]["token"].take();
        let config = fs::read_to_string(self.control_plane.kubeconfig(Identity::Admin)).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["users"][0]["user"] = json!({"token": token});
        let file = dir.join("kubeconfig");
        fs::write(&file, config.to_string()).unwrap();
        file
    }
}

impl Pod {
    /// Waits until its readiness probe succeeds.
    pub(crate) async fn ready(&mut self) {
        eventually("the replica is ready", SOON, || {
            let ended = self.process.exited().map(|status| format!("it ended with {status}"));
            let (tail, answer) = (self.process.tail(), self.answer("/readyz"));
            async move {
                assert!(ended.is_none(), "{ended:?}{tail}");
                match answer.await {
                    Ok((200, _)) => Ok(()),
                    other => Err(format!("{other:?}{tail}")),
                }
            }
        })
        .await;
    }

    /// Where it answers the API server.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((own_address(), self.port))
    }

    /// Where it serves health, metrics and the ledger.
    pub(crate) fn admin_url(&self) -> String {
        format!("https://localhost:{}", self.admin_port)
    }

    /// The port of [`Pod::admin_url`].
    pub(crate) fn admin_port(&self) -> u16 {
        self.admin_port
    }

    pub(crate) async fn metrics(&self) -> String {
        self.answer("/metrics").await.unwrap().1
    }

    /// What `/readyz` says of a condition.
    pub(crate) async fn condition(&self, name: &str) -> String {
        let text = self.answer("/readyz").await.unwrap().1;
        text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned()
    }

    pub(crate) async fn leads(&self) -> bool {
        self.metrics().await.lines().any(|line| line == "kubemoor_leading 1")
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.process.terminate()
    }

    /// The certificate that it shows the API server, which one of these authorities has to have signed.
    pub(crate) async fn certificate(&self, authorities: &str) -> Result<Vec<u8>, String> {
        install_crypto_provider();
        let host = format!("{NAME}.{HOME}.svc");
        let authorities = reqwest::Certificate::from_pem_bundle(authorities.as_bytes()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only(authorities).resolve(&host, self.address());
        let client = client.tls_info(true).timeout(Duration::from_secs(10)).build().unwrap();
        let answer = client.get(format!("https://{host}:{}/", self.port)).send().await;
        let answer = answer.map_err(|error| format!("{error:?}"))?;
        let shown = answer.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
        Ok(shown.peer_certificate().unwrap().to_vec())
    }

    /// What it answers on its admin port to an administrator, who like a kubelet verifies no certificate.
    fn answer(&self, path: &str) -> impl Future<Output = Result<(u16, String), String>> + use<> {
        let url = self.admin_url() + path;
        async move {
            install_crypto_provider();
            let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true);
            let client = client.timeout(Duration::from_secs(5)).build().unwrap();
            let request = client.get(url).bearer_auth(Identity::Admin.token());
            let answer = request.send().await.map_err(|error| format!("{error:?}"))?;
            let code = answer.status().as_u16();
            Ok((code, answer.text().await.map_err(|error| error.to_string())?))
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
