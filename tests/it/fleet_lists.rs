//! The lists of `kubemoor fleet`, by the flags that kubectl's lists have.

use crate::fleet_tenants::fill;
use crate::schemas::check;
use crate::support::{Postgres, run};

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

    let clusters = "jsonpath={.items[*].cluster}";
    assert_eq!(fleet(&["releases", "-o", clusters]), "prod-eu prod-us prod-eu prod-us");
    for (name, command) in [("fleet", &["fleet"][..]), ("fleet-releases", &["fleet", "releases"])] {
        let listed = check(name, &run(&[command, &["-o", "json", &ledger]].concat(), ""));
        assert!(listed["items"].as_array().is_some_and(|rows| rows.len() >= 2), "{listed}");
    }
}
