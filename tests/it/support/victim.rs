//! A small release to attack, and the person who edits it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::helm::{Chart, Helm};
use super::identity::Identity;
use super::wait::eventually;

const SETTINGS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {image: '{{ .Values.image }}'}
";

const EXTRA: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {color: blue}
";

const WITHIN: Duration = Duration::from_secs(60);

/// The release `shop` in a namespace of its own: the ConfigMaps `settings` with `image: a` and `extra` with
/// `color: blue`. Everything here is done by Alice.
pub(crate) struct Victim {
    pub(crate) namespace: String,
    pub(crate) config_maps: Api<ConfigMap>,
    pub(crate) secrets: Api<Secret>,
    pub(crate) client: Client,
    helm: Helm,
    chart: Chart,
}

impl Victim {
    /// Installs it as revision 1.
    pub(crate) async fn install(control_plane: &ControlPlane, prefix: &str) -> Self {
        let namespace = control_plane.namespace(prefix).await;
        let client = control_plane.client(Identity::Alice).await;
        let chart = Chart::new("shop").template("settings.yaml", SETTINGS).template("extra.yaml", EXTRA);
        let helm = Helm::start(control_plane, Identity::Deployer);
        helm.install(&namespace, "shop", &chart, json!({"values": {"image": "a"}})).await.unwrap();
        let config_maps = Api::namespaced(client.clone(), &namespace);
        let secrets = Api::namespaced(client.clone(), &namespace);
        Self { namespace, config_maps, secrets, client, helm, chart }
    }

    /// Makes a new revision of it.
    pub(crate) async fn upgrade(&self, image: &str) {
        let options = json!({"values": {"image": image}});
        self.helm.upgrade(&self.namespace, "shop", &self.chart, options).await.unwrap();
    }

    /// What `helm get manifest` prints.
    pub(crate) async fn manifest(&self) -> String {
        self.helm.manifest(&self.namespace, "shop").await.unwrap()
    }

    /// Waits until the API server asks the guard about edits of it.
    pub(crate) async fn wait_until_guarded(&self) {
        eventually("the API server asks the guard", WITHIN, || async {
            refusal(self.try_data("settings", json!({"image": "nobody's"})).await)
        })
        .await;
    }

    /// Edits the data of a ConfigMap.
    pub(crate) async fn data(&self, name: &str, data: Value) -> kube::Result<ConfigMap> {
        self.patch(name, json!({"data": data}), false).await
    }

    /// The same as a dry run.
    pub(crate) async fn try_data(&self, name: &str, data: Value) -> kube::Result<ConfigMap> {
        self.patch(name, json!({"data": data}), true).await
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value, dry_run: bool) -> kube::Result<ConfigMap> {
        let parameters = PatchParams { dry_run, ..PatchParams::default() };
        self.config_maps.patch(name, &parameters, &Patch::Merge(patch)).await
    }

    pub(crate) async fn delete(&self, name: &str) -> kube::Result<()> {
        self.config_maps.delete(name, &DeleteParams::default()).await.map(drop)
    }

    /// Creates a ConfigMap that is [`labelled`].
    pub(crate) async fn create(&self, name: &str, data: Value) -> kube::Result<ConfigMap> {
        self.config_maps.create(&PostParams::default(), &labelled(name, data)).await
    }
}

/// A ConfigMap with Helm's label, so that the guard is asked about it, and of no release.
pub(crate) fn labelled(name: &str, data: Value) -> ConfigMap {
    let labels = json!({"app.kubernetes.io/managed-by": "Helm"});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "data": data})).unwrap()
}

/// The message of a refusal by the guard; an error for any other outcome.
pub(crate) fn refusal<T>(outcome: kube::Result<T>) -> Result<String, String> {
    match outcome {
        Err(kube::Error::Api(status)) if status.message.contains("denied the request") => Ok(status.message),
        Err(error) => Err(format!("another error: {error}")),
        Ok(_) => Err("it passes".to_owned()),
    }
}
