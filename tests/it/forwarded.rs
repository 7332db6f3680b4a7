//! How people reach a guard with nothing but a kubeconfig: by port-forward through the API server, with a token or with
//! a client certificate. The guard is the one of the chart, the API server and the certificates are real; only the node
//! is one of the test, which forwards ports and runs nothing.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{
    ControlPlane, HOME, Identity, Installed, Kubelet, Pod, Ran, SOON, UserAuthority, eventually, folder, run,
};

/// The chart's guard, on a node that forwards its ports.
pub(crate) struct House<'a> {
    control_plane: &'a ControlPlane,
    pub(crate) chart: Installed<'a>,
    pub(crate) kubelet: Kubelet,
    pub(crate) pod: Pod,
    /// What the API server calls the pod.
    pub(crate) name: String,
}

impl<'a> House<'a> {
    pub(crate) async fn new(control_plane: &'a ControlPlane) -> Self {
        let chart = Installed::new(control_plane).await;
        chart.install(json!({"replicas": 1})).await.unwrap();
        let pod = chart.start(1).await.pop().unwrap();
        let kubelet = Kubelet::start(control_plane).await;
        let name = kubelet.hold(&pod).await;
        let house = Self { control_plane, chart, kubelet, pod, name };
        house.lease_tells().await;
        house
    }

    /// The authority that the guard's Lease names.
    async fn lease_tells(&self) -> String {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/kubemoor");
        eventually("the Lease tells what vouches for the guard", SOON, || async {
            let lease = self.chart.admin.get(&path).await.done()?;
            let pem = lease["metadata"]["annotations"]["kubemoor.dev/ca-bundle"].as_str().map(str::to_owned);
            pem.ok_or_else(|| lease.to_string())
        })
        .await
    }

    /// Gives a group a role of this kind in a namespace.
    async fn bind(&self, namespace: &str, (kind, role): (&str, &str), group: &str) {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        let binding = json!({
            "metadata": {"name": format!("{role}-{group}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        });
        self.chart.admin.post(&path, &binding).await.done().unwrap();
    }

    /// The same for a role of its own with one rule.
    async fn grant(&self, resource: &str, verbs: &[&str], group: &str) {
        let name = resource.replace('/', "-");
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}/roles");
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": verbs}]);
        let role = json!({"metadata": {"name": format!("{name}-{group}")}, "rules": rules});
        self.chart.admin.post(&path, &role).await.done().unwrap();
        self.bind(HOME, ("Role", &format!("{name}-{group}")), group).await;
    }

    /// A kubeconfig of a new user in a group, who has a certificate and no token.
    fn user(&self, user: &str, group: &str) -> PathBuf {
        self.control_plane.user_authority().sign(user, group).kubeconfig(self.control_plane, None)
    }
}

/// Runs `kubemoor` as the user of a kubeconfig.
fn moor(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    run(&[arguments, &[kubeconfig.as_str()]].concat(), "")
}

/// The rows of the guard's own release.
const AUDIT: [&str; 5] = ["audit", "-n", HOME, "-o", "json"];

fn has_rows(ran: &Ran) -> bool {
    ran.code == 0 && ran.items().iter().any(|row| row["verdict"] == "deployed")
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_by_port_forward_needs_only_the_rights_it_names() {
    let control_plane = ControlPlane::start_routing();
    let mut house = House::new(&control_plane).await;
    let carol = house.user("carol", "auditors");
    let refused = |arguments: &[&str], says: &[&str]| {
        let ran = moor(&carol, arguments);
        assert!(ran.out.is_empty(), "{ran:?}");
        ran.assert_failed(says);
        ran
    };
    // Right by right: each refusal names the next one.
    refused(&AUDIT, &["cannot list the guard's pods in namespace kubemoor-system: no permission", "pods"]);
    house.grant("pods", &["list"], "auditors").await;
    eventually("pods may be listed", SOON, || async {
        refused(&AUDIT, &["no permission"]).error.contains("forward a port")
    })
    .await;
    refused(&AUDIT, &[&format!("cannot forward a port of pod {} in", house.name), "pods/portforward"]);
    house.bind(HOME, ("Role", "kubemoor-portforward"), "auditors").await;
    eventually("ports may be forwarded", SOON, || async {
        moor(&carol, &AUDIT).error.contains("you may not read")
    })
    .await;
    refused(&AUDIT, &["you may not read this part of the ledger", "list guardedreleases.kubemoor.dev"]);
    house.bind(HOME, ("ClusterRole", "kubemoor-auditor"), "auditors").await;
    eventually("the ledger may be read", SOON, || async { has_rows(&moor(&carol, &AUDIT)) }).await;
    let report = moor(&carol, &["audit", "report", "-n", HOME]);
    assert!(report.code == 0 && report.out.contains("# "), "{report:?}");
    // There, and nowhere else.
    for elsewhere in [&["-n", "default"][..], &["-A"]] {
        refused(&[&["audit"], elsewhere].concat(), &["you may not read"]);
    }
    // A token does as well.
    let admin = control_plane.kubeconfig(Identity::Admin);
    assert!(has_rows(&moor(&admin, &AUDIT)));

    // Each build says which one it is, to everybody.
    let nobody = house.user("nobody", "nobodies");
    let versions = crate::schemas::check("version", &moor(&nobody, &["version", "-o", "json"]));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (&versions["client"]["version"], &versions["guard"]["version"]),
        (&json!(version), &json!(version))
    );
    assert_eq!(versions["guard"]["namespace"], HOME);
    let alone = moor(&nobody, &["version", "--client", "-o", "yaml"]);
    assert!(alone.code == 0 && alone.out.contains(version) && !alone.out.contains("guard"), "{alone:?}");

    // What may be wrong besides.
    let asked = |kubeconfig: &Path, flags: &[&str], says: &[&str]| {
        let ran = moor(kubeconfig, &[&AUDIT[..], flags].concat());
        assert!(ran.out.is_empty(), "{ran:?}");
        ran.assert_failed(says);
    };
    let elsewhere = ["--guard-namespace", "elsewhere"];
    asked(
        &admin,
        &elsewhere,
        &["no guard in namespace elsewhere", "--guard-namespace", "--server", "--ledger"],
    );
    asked(
        &carol,
        &elsewhere,
        &["the Lease kubemoor in namespace elsewhere: no permission", "--guard-namespace"],
    );
    let unknown = moor(&nobody, &["version", "--guard-namespace", "elsewhere"]);
    assert!(unknown.code == 2 && unknown.out.starts_with("kubemoor "), "{unknown:?}");
    assert!(unknown.error.contains("the guard's version is not known: cannot read the Lease"), "{unknown:?}");
    asked(&carol, &["--as", "alice"], &["leave --as out"]);
    house.kubelet.set_ready(&house.name, false).await;
    asked(&carol, &[], &["no pod of the guard in namespace kubemoor-system is ready", "get pods"]);
    house.kubelet.set_ready(&house.name, true).await;
    // Somebody else stands in the guard's place.
    house.kubelet.lead(&house.name, control_plane.port());
    asked(
        &carol,
        &[],
        &["does not prove that it is kubemoor.kubemoor-system.svc", "--certificate-authority"],
    );
    house.kubelet.lead(&house.name, house.pod.admin_port());
    assert!(has_rows(&moor(&carol, &AUDIT)));
    house.pod.kill();
    asked(&carol, &[], &[&format!("the guard in pod {} does not answer", house.name), "connection refused"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_client_certificate_shows_ledger_only_within_its_users_rights() {
    let control_plane = ControlPlane::start_routing();
    let house = House::new(&control_plane).await;
    house.bind(HOME, ("ClusterRole", "kubemoor-auditor"), "auditors").await;
    house.bind(HOME, ("ClusterRole", "view"), "viewers").await;
    let authority = folder("authority").join("ca.crt");
    fs::write(&authority, house.lease_tells().await).unwrap();
    let server = house.pod.admin_url();
    let direct = ["--server", &server, "--certificate-authority", authority.to_str().unwrap()];
    let ask = |kubeconfig: &Path, flags: &[&str]| moor(kubeconfig, &[&AUDIT[..], &direct, flags].concat());

    let carol = house.user("carol", "auditors");
    eventually("the ledger may be read", SOON, || async { has_rows(&ask(&carol, &[])) }).await;
    // The built-in role reads the ledger of its own namespace, and forwards no port even there.
    let victor = house.user("victor", "viewers");
    eventually("view includes it", SOON, || async { has_rows(&ask(&victor, &[])) }).await;
    moor(&victor, &AUDIT).assert_failed(&["cannot forward a port", "pods/portforward"]);
    for flags in [&["-n", "default"][..], &["-A"]] {
        let everywhere = |kubeconfig: &Path| moor(kubeconfig, &[&["audit"], &direct[..], flags].concat());
        for kubeconfig in [&carol, &victor] {
            everywhere(kubeconfig).assert_failed(&["you may not read"]);
        }
    }

    let (cluster, other) = (control_plane.user_authority(), UserAuthority::new());
    let admin = Identity::Admin.token();
    let unknown = ["does not know you"];
    for (certificate, token, says) in [
        (cluster.sign("dave", "people"), None, &["you may not read"][..]),
        (cluster.sign_until("carol", "auditors", 2000), None, &unknown),
        (cluster.sign("", "auditors"), None, &unknown),
        (other.sign("carol", "auditors"), None, &unknown),
        (other.sign("carol", "system:masters"), None, &unknown),
        (other.sign("carol", "auditors"), Some("made-up"), &unknown),
        // As with the API server the certificate comes first.
        (cluster.sign("dave", "people"), Some(admin), &["you may not read"]),
    ] {
        let ran = ask(&certificate.kubeconfig(&control_plane, token), &[]);
        assert!(ran.out.is_empty(), "{ran:?}");
        ran.assert_failed(says);
    }
    // Another world's certificate is none, and leaves the token what it is.
    let foreign = other.sign("carol", "auditors").kubeconfig(&control_plane, Some(admin));
    assert!(has_rows(&ask(&foreign, &[])));
    let powerful = cluster.sign("root", "system:masters").kubeconfig(&control_plane, None);
    assert!(has_rows(&ask(&powerful, &[])));
    let ended = cluster.sign_until("carol", "auditors", 2000).kubeconfig(&control_plane, Some("made-up"));
    ask(&ended, &[]).assert_failed(&unknown);
}
