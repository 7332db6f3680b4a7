//! The Ingress of the chart leads browsers to the page, by its host and over TLS.

use serde_json::{Value, json};

use crate::support::{ControlPlane, HOME, Installed, PAGE_HOST};

const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/kubemoor-system/ingresses";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn ingress_of_chart_leads_to_the_page_by_its_host() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    let ui = |ingress: Value| json!({"ui": {"enabled": true, "host": PAGE_HOST, "ingress": ingress}});
    chart.install(ui(json!({"enabled": false}))).await.unwrap();
    let ingresses = async || chart.admin.get(INGRESSES).await.done().unwrap()["items"].clone();
    assert_eq!(ingresses().await, json!([]), "nobody asked for one");

    // As the controller of the cluster's default class takes it.
    chart.upgrade(ui(json!({"enabled": true}))).await.unwrap();
    let plain = ingresses().await[0].take();
    assert_eq!(plain["spec"]["tls"], json!([{"hosts": [PAGE_HOST]}]), "{plain}");
    assert!(plain["spec"].get("ingressClassName").is_none(), "{plain}");

    let annotations = json!({"example.org/timeout": "60"});
    let ingress = json!({
        "enabled": true, "className": "nginx", "tlsSecret": "kubemoor-page", "annotations": annotations,
    });
    chart.upgrade(ui(ingress)).await.unwrap();
    let ingress = ingresses().await[0].take();
    let spec = &ingress["spec"];
    assert_eq!(spec["ingressClassName"], "nginx");
    assert_eq!(spec["tls"], json!([{"hosts": [PAGE_HOST], "secretName": "kubemoor-page"}]));
    // The page speaks TLS alone, and the NGINX controller has to as well.
    let own = &ingress["metadata"]["annotations"];
    assert_eq!(own["nginx.ingress.kubernetes.io/backend-protocol"], "HTTPS");
    assert_eq!(own["example.org/timeout"], "60");
    let [rule] = &spec["rules"].as_array().unwrap()[..] else { panic!("{spec}") };
    assert_eq!(rule["host"], PAGE_HOST);
    let [path] = &rule["http"]["paths"].as_array().unwrap()[..] else { panic!("{rule}") };
    assert_eq!((&path["path"], &path["pathType"]), (&json!("/"), &json!("Prefix")));

    // The Service that it names leads to the port at which the page of this host listens.
    let backend = &path["backend"]["service"];
    let service = format!("/api/v1/namespaces/{HOME}/services/{}", backend["name"].as_str().unwrap());
    let service = chart.admin.get(&service).await.done().unwrap();
    let ports = service["spec"]["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == backend["port"]["name"]).unwrap();
    let deployment = format!("/apis/apps/v1/namespaces/{HOME}/deployments/kubemoor-ui");
    let template = chart.admin.get(&deployment).await.done().unwrap()["spec"]["template"].take();
    let labels = &template["metadata"]["labels"];
    for (name, value) in service["spec"]["selector"].as_object().unwrap() {
        assert_eq!(&labels[name], value, "{labels}");
    }
    let container = &template["spec"]["containers"][0];
    let listens = container["ports"].as_array().unwrap().iter().find(|it| it["name"] == port["targetPort"]);
    assert_eq!(listens.unwrap()["containerPort"], 8443);
    let host = format!("--host={PAGE_HOST}");
    assert!(container["args"].as_array().unwrap().iter().any(|it| *it == host.as_str()), "{container}");
}
