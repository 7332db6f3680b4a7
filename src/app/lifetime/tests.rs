use std::time::Duration;

use super::*;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_runtime::config::{Callers, Cluster, Endpoint, RecordDriver, Retention};

#[test]
fn settings_name_what_is_enforced_and_no_password() {
    let cluster = Cluster {
        kubeconfig: None,
        namespaces: vec!["shop".to_owned()],
        record_driver: RecordDriver::Configmap,
        read_only: true,
        own_namespace: None,
        own_service: None,
        registration: Some(Registration {
            endpoint: Endpoint::Url("https://guard:9443".parse().unwrap()),
            select_all: true,
        }),
    };
    let config = Serve {
        source: Source::Cluster(cluster),
        listen: "0.0.0.0:9443".parse().unwrap(),
        admin_listen: "0.0.0.0:9080".parse().unwrap(),
        tls: CertificateSource::Given { certificate: "tls.crt".into(), key: "tls.key".into() },
        callers: Callers { proof: Proof::File("token".into()), client_ca: None },
        edits: EditsMode::Deny,
        drift: DriftMode::Repair,
        policies: Some("policies".into()),
        cluster_labels: [("env".to_owned(), "prod".to_owned())].into(),
        operation_timeout: Duration::from_secs(3600),
        ledger: config::Ledger {
            url: "postgres://moor:hunter2@db/ledger?password=hunter2".parse().unwrap(),
            cluster_name: None,
            retention: Retention { age: Duration::from_secs(7200), rows: 9 },
        },
        notifiers: None,
        release_metrics: true,
        anonymous_metrics: false,
        collector: None,
        shutdown_delay: Duration::ZERO,
        log: "info".parse().unwrap(),
    };
    let text = settings(&config).join("; ");
    for part in [
        "edits Deny; drift Repair; operation timeout 3600 s",
        "ledger postgres://db/ledger, 2 h, 9 rows",
        "certificate from files; callers by a token from a file; notifiers no",
        "record driver configmap; read-only; registers webhooks for all objects; namespaces shop",
        "policies policies; cluster labels env=prod",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}
