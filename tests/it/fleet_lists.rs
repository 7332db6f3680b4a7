//! The lists of `kubemoor fleet`, by the flags that kubectl's lists have.

use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::fleet_tenants::fill;
use crate::support::{Identity, Postgres, folder, moor, run, unguarded};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn fleet_lists_take_the_flags_of_kubectl_lists() {
    let server = Postgres::start().await;
    let url = server.database();
    fill(&url).await;
    let ledger = format!("--ledger={url}");
    let fleet = |arguments: &[&str]| {
        let ran = run(&[&["fleet"], arguments, &[&ledger]].concat(), "");
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    };
    assert_eq!(fleet(&["-o", "name"]), "cluster/prod-eu\ncluster/prod-us\n");
    assert_eq!(fleet(&["releases", "-o", "name", "-n", "shop"]), "release/web\nrelease/web\n");
    for (command, header) in [(&[][..], "CLUSTER"), (&["releases"], "NAMESPACE")] {
        let [headed, bare] =
            [&[][..], &["--no-headers"]].map(|flags: &[&str]| fleet(&[command, flags].concat()));
        assert!(headed.lines().next().unwrap().contains(header), "{headed}");
        assert_eq!(bare.lines().count() + 1, headed.lines().count(), "{bare}");
        assert!(!bare.contains(header) && bare.starts_with("prod-eu"), "{bare}");
    }
    let sheet = fleet(&["-o", "csv", "--no-headers"]);
    assert!(sheet.starts_with("\"prod-eu\",\"2\""), "{sheet}");
    let (plain, wide) = (fleet(&["releases"]), fleet(&["releases", "-o", "wide"]));
    assert!(wide.lines().next().unwrap().ends_with("MESSAGE") && !plain.contains("MESSAGE"), "{wide}");
    assert!(wide.lines().nth(1).unwrap().ends_with("all 5 objects match"), "{wide}");
    assert!(fleet(&["-o", "wide"]).lines().next().unwrap().ends_with("ERROR"));

    let clusters = "jsonpath={.items[*].cluster}";
    assert_eq!(fleet(&["releases", "-o", clusters]), "prod-eu prod-us prod-eu prod-us");
    assert_eq!(
        fleet(&["releases", "-o", clusters, "--sort-by", "{.cluster}"]),
        "prod-eu prod-eu prod-us prod-us"
    );
    let ran = run(&["fleet", "--sort-by", ".age", &ledger], "");
    ran.assert_failed(&["no row has the field \"age\"", "certificateUntil, cluster"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn fleet_prints_its_requests_and_limits_their_time() {
    let flags = ["fleet", "-v", "6", "--request-timeout", "30s", "-o", "name"];
    let ran = moor(unguarded(), Identity::Admin, &flags);
    assert!(ran.code == 0 && ran.error.contains("GET ") && ran.error.contains("/secrets?"), "{ran:?}");
    assert!(ran.out.starts_with("cluster/"), "{ran:?}");
    // The kernel takes connections for an API server that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = fs::read_to_string(unguarded().kubeconfig(Identity::Admin)).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", silent.local_addr().unwrap()));
    let kubeconfig = folder("silent").join("kubeconfig");
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let ran = run(&["fleet", "--request-timeout", "1ms", &kubeconfig], "");
    assert!(ran.code == 2 && ran.error.contains("cannot"), "{ran:?}");
}
