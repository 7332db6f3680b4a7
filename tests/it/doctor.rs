//! `kubemoor doctor` on the chart's guard: all is well, something needs a person, and a user may look at nothing.

use std::path::Path;

use serde_json::Value;

use crate::support::{House, Identity, Ran, SOON, eventually, run};

/// What the command says, with these flags, to the user of a kubeconfig.
fn doctor(kubeconfig: &Path, flags: &[&str]) -> Ran {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    run(&[&["doctor", &kubeconfig], flags].concat(), "")
}

/// The checks in a state, each with its message.
fn checks(ran: &Ran, state: &str) -> Vec<(String, String)> {
    let text = |check: &Value, field: &str| check[field].as_str().unwrap().to_owned();
    let items = ran.items();
    let found = items.iter().filter(|check| check["state"] == state);
    found.map(|check| (text(check, "check"), text(check, "message"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_all_well_what_needs_a_person_and_what_it_may_not_read() {
    let house = House::shared().await;
    let admin = house.control_plane.kubeconfig(Identity::Admin);
    let json = ["-o", "json"];
    let ran = eventually("all is well", SOON, || async {
        let ran = doctor(&admin, &json);
        let all = checks(&ran, "Ok").len() == ran.items().len();
        if all && ran.code == 0 { Ok(ran) } else { Err(format!("{ran:?}")) }
    })
    .await;
    crate::schemas::check("doctor", &ran);
    let table = doctor(&admin, &[]);
    assert!(table.code == 0 && table.error.is_empty() && table.out.starts_with("CHECK "), "{table:?}");

    let stranger = house.control_plane.user_authority().sign("stranger", "strangers");
    let ran = doctor(&stranger.kubeconfig(house.control_plane, None), &json);
    assert_eq!((ran.code, checks(&ran, "Attention")), (0, Vec::new()), "{ran:?}");
    let unknown = checks(&ran, "Unknown");
    let may_not = unknown.iter().filter(|(_, message)| message.contains("you may not "));
    assert!(may_not.count() >= 8, "{unknown:?}");

    house.kubelet.set_ready(&house.name, false).await;
    eventually("the pod that is not ready is found", SOON, || async {
        let ran = doctor(&admin, &json);
        let found = checks(&ran, "Attention");
        let is_told = |name: &str, says: &str| {
            found.iter().any(|(check, message)| check == name && message.contains(says))
        };
        let told = is_told("replicas", "0 of 1 pods are ready") && is_told("ledger", "no guard pod");
        if told && ran.code == 1 { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    house.kubelet.set_ready(&house.name, true).await;
}
