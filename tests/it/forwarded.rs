//! How people reach a guard with nothing but a kubeconfig: by port-forward through the API server, with a token or with
//! a client certificate. The guard is the one of the chart, the API server and the certificates are real; only the node
//! is one of the test, which forwards ports and runs nothing.

use std::fs;
use std::path::{Path, PathBuf};

use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    Caller, Chart, ControlPlane, HOME, House, Identity, Installed, Kubelet, Page, Pod, RELEASE, Ran, SOON,
    UserCa, eventually, folder, free_port, run,
};

impl House<'_> {
    /// Gives a group a role of this kind in a namespace.
    async fn bind(&self, namespace: &str, kind: &str, role: &str, group: &str) {
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
        self.bind(HOME, "Role", &format!("{name}-{group}"), group).await;
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

/// Runs `kubemoor audit`, which fails with these words.
fn assert_refused(kubeconfig: &Path, flags: &[&str], says: &[&str]) -> Ran {
    let ran = moor(kubeconfig, &[&AUDIT[..], flags].concat());
    assert!(ran.out.is_empty(), "{ran:?}");
    ran.assert_failed(says);
    ran
}

/// Grants right by right: each refusal names the next one.
async fn assert_refusals_name_the_missing_right(house: &House<'_>, carol: &Path) {
    assert_refused(
        carol,
        &[],
        &["cannot list the guard's pods in namespace kubemoor-system: no permission", "pods"],
    );
    house.grant("pods", &["list"], "auditors").await;
    eventually("pods may be listed", SOON, || async {
        assert_refused(carol, &[], &["no permission"]).error.contains("forward a port")
    })
    .await;
    assert_refused(
        carol,
        &[],
        &[&format!("cannot forward a port of pod {} in", house.name), "pods/portforward"],
    );
    house.bind(HOME, "Role", "kubemoor-portforward", "auditors").await;
    eventually("ports may be forwarded", SOON, || async {
        moor(carol, &AUDIT).error.contains("you may not read")
    })
    .await;
    assert_refused(
        carol,
        &[],
        &["you may not read this part of the ledger", "list guardedreleases.kubemoor.dev"],
    );
    house.bind(HOME, "ClusterRole", "kubemoor-auditor", "auditors").await;
    eventually("the ledger may be read", SOON, || async { has_rows(&moor(carol, &AUDIT)) }).await;
    let report = moor(carol, &["audit", "report", "-n", HOME]);
    assert!(report.code == 0 && report.out.contains("# "), "{report:?}");
    // There, and nowhere else.
    for elsewhere in [&["-n", "default"][..], &["-A"]] {
        let ran = moor(carol, &[&["audit"], elsewhere].concat());
        assert!(ran.out.is_empty(), "{ran:?}");
        ran.assert_failed(&["you may not read"]);
    }
}

/// Each build says which one it is, to everybody.
fn assert_version_is_told_to_everybody(nobody: &Path) {
    let versions = crate::schemas::check("version", &moor(nobody, &["version", "-o", "json"]));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (&versions["client"]["version"], &versions["guard"]["version"]),
        (&json!(version), &json!(version))
    );
    assert_eq!(versions["guard"]["namespace"], HOME);
    let alone = moor(nobody, &["version", "--client", "-o", "yaml"]);
    assert!(alone.code == 0 && alone.out.contains(version) && !alone.out.contains("guard"), "{alone:?}");
    let unknown = moor(nobody, &["version", "--guard-namespace", "elsewhere"]);
    assert!(unknown.code == 2 && unknown.out.starts_with("kubemoor "), "{unknown:?}");
    assert!(unknown.error.contains("the guard's version is not known: cannot read the Lease"), "{unknown:?}");
}

async fn assert_unusable_pods_are_told(house: &House<'_>, carol: &Path) {
    house.kubelet.set_ready(&house.name, false).await;
    assert_refused(carol, &[], &["no guard pod in namespace kubemoor-system is ready", "get pods"]);
    house.kubelet.set_ready(&house.name, true).await;
    // Somebody else stands in the guard's place.
    house.kubelet.lead(&house.name, house.control_plane.port());
    assert_refused(
        carol,
        &[],
        &["cannot be verified as kubemoor.kubemoor-system.svc", "--certificate-authority"],
    );
    house.kubelet.lead(&house.name, house.pod.admin_port());
    assert!(has_rows(&moor(carol, &AUDIT)));
    // Nobody listens there, as when the guard has ended.
    house.kubelet.lead(&house.name, free_port());
    assert_refused(
        carol,
        &[],
        &[&format!("the guard in pod {} does not answer", house.name), "connection refused"],
    );
    house.kubelet.lead(&house.name, house.pod.admin_port());
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_by_port_forward_needs_only_the_rights_it_names() {
    let house = House::shared().await;
    let carol = house.user("carol", "auditors");
    assert_refusals_name_the_missing_right(&house, &carol).await;
    // A token does as well.
    let admin = house.control_plane.kubeconfig(Identity::Admin);
    assert!(has_rows(&moor(&admin, &AUDIT)));
    assert_version_is_told_to_everybody(&house.user("nobody", "nobodies"));

    // What may be wrong besides.
    let elsewhere = ["--guard-namespace", "elsewhere"];
    let says = ["no guard in namespace elsewhere", "--guard-namespace", "--server", "--ledger"];
    assert_refused(&admin, &elsewhere, &says);
    let says = ["the Lease kubemoor in namespace elsewhere: no permission", "--guard-namespace"];
    assert_refused(&carol, &elsewhere, &says);
    assert_refused(&carol, &["--as", "alice"], &["remove --as"]);
    assert_unusable_pods_are_told(&house, &carol).await;
}

/// The default installation: two replicas, each with an SQLite file.
struct ReplicasWithSqlite<'a> {
    chart: Installed<'a>,
    pods: Vec<Pod>,
    /// What the API server calls the pods.
    names: Vec<String>,
    /// Forwards the ports of the pods.
    _kubelet: Kubelet,
    admin: PathBuf,
    authority: PathBuf,
}

impl<'a> ReplicasWithSqlite<'a> {
    async fn start(control_plane: &'a ControlPlane) -> Self {
        let chart = Installed::new(control_plane).await;
        chart.install(json!({})).await.unwrap();
        let pods = chart.start(2).await;
        let kubelet = Kubelet::start(control_plane).await;
        let mut names = Vec::new();
        for pod in &pods {
            names.push(kubelet.hold(pod).await);
        }
        let authority = folder("authority").join("ca.crt");
        fs::write(&authority, chart.announced_authority().await).unwrap();
        let admin = control_plane.kubeconfig(Identity::Admin);
        Self { chart, pods, names, _kubelet: kubelet, admin, authority }
    }

    /// The ids of rows, and the note about rows that are not shown.
    fn rows(&self, flags: &[&str]) -> (Vec<String>, String) {
        let ran = moor(&self.admin, &[&["audit", "-A", "-o", "json", "--limit", "0"], flags].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let ids: Vec<_> = ran.items().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
        (ids, ran.error)
    }

    /// The ids of the rows of one replica.
    fn rows_of(&self, pod: &Pod) -> Vec<String> {
        let authority = self.authority.to_str().unwrap();
        self.rows(&["--server", &pod.admin_url(), "--certificate-authority", authority]).0
    }

    /// Edits until either replica has a row of its own: each writes what it was asked, and its own start.
    async fn wait_until_each_has_rows(&self, alice: &Caller, settings: &str) {
        let mut edits = 0..;
        eventually("both replicas have rows of their own", SOON, || {
            let edit = json!({"data": {"mode": format!("slow-{}", edits.next().unwrap())}});
            let rows: Vec<_> = self.pods.iter().map(|pod| self.rows_of(pod)).collect();
            async move {
                alice.merge(settings, &edit).await.done()?;
                let is_lone =
                    |one: usize, other: usize| rows[one].iter().any(|row| !rows[other].contains(row));
                if is_lone(0, 1) && is_lone(1, 0) { Ok(()) } else { Err(format!("{rows:?}")) }
            }
        })
        .await;
    }

    async fn wait_until_all_rows_are_shown(&self) {
        eventually("all rows are shown", SOON, || async {
            let mut expected: Vec<_> = self.pods.iter().flat_map(|pod| self.rows_of(pod)).collect();
            expected.sort_by_key(|id| id.parse::<i64>().unwrap());
            expected.dedup();
            let (shown, error) = self.rows(&[]);
            if shown == expected && error.is_empty() { Ok(()) } else { Err(format!("{shown:?} {error}")) }
        })
        .await;
    }
}

/// A file that lacks rows is made for those alone who ask for it.
async fn assert_exports_lack_no_rows_unasked(page: &Page, missing: &str) {
    for form in ["csv", "json"] {
        let refused = page.get(&format!("ledger.{form}?since=1h")).await;
        assert_eq!(refused.status, StatusCode::BAD_GATEWAY, "{}", refused.text);
        assert!(!refused.headers.contains_key("content-disposition"), "{}", refused.text);
        assert!(refused.text.contains(missing), "{}", refused.text);
        let address = format!("ledger.{form}?since=1h&amp;partial=allow");
        assert!(refused.text.contains(&format!("href=\"{address}\"")), "{}", refused.text);
        let partial = page.get(&address.replace("&amp;", "&")).await;
        assert_eq!(partial.status, StatusCode::OK, "{}", partial.text);
        let name = format!("attachment; filename=\"ledger-partial.{form}\"");
        assert_eq!(partial.headers["content-disposition"], name.as_str());
        assert!(partial.headers["kubemoor-missing-rows"].to_str().unwrap().contains(missing));
        assert!(
            partial.text.contains("Start") && !partial.text.contains("are not shown"),
            "{}",
            partial.text
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn audit_shows_the_rows_of_every_replica_with_its_own_ledger() {
    let control_plane = ControlPlane::start();
    let mut replicas = ReplicasWithSqlite::start(&control_plane).await;
    let namespace = control_plane.namespace("shop").await;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";
    let release = Chart::new(RELEASE).template("all.yaml", map);
    replicas.chart.helm.install(&namespace, RELEASE, &release, json!({})).await.unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    replicas.wait_until_each_has_rows(&alice, &settings).await;
    replicas.wait_until_all_rows_are_shown().await;
    let starts = replicas.rows(&["--verdict", "Start"]).0;
    assert_eq!(starts.len(), 2, "{starts:?}");
    let left = replicas.rows_of(&replicas.pods[0]);
    let page = Page::of(&replicas.admin, &[]).await;
    let whole = page.text("ledger").await;
    assert!(whole.contains("Start") && !whole.contains("are not shown"), "{whole}");
    let export = page.get("ledger.csv?since=1h").await;
    assert_eq!(export.headers["content-disposition"], "attachment; filename=\"ledger.csv\"");
    assert_eq!(export.text.matches("\"Start\"").count(), 2, "{}", export.text);
    replicas.pods[1].kill();
    let (shown, error) = replicas.rows(&[]);
    assert!(left.iter().all(|row| shown.contains(row)), "{shown:?}");
    let missing = format!("rows that pod {} keeps in its own ledger are not shown", replicas.names[1]);
    assert!(error.contains(&missing), "{error}");
    // The page says so each time.
    for path in ["ledger", "ledger", "ledger?by=nobody", "", "", "replay?since=1h&edits=Deny"] {
        let text = page.get(path).await.text;
        assert_eq!(text.matches(&missing).count(), 1, "{path}: {text}");
    }
    assert_exports_lack_no_rows_unasked(&page, &missing).await;
    replicas.pods[0].kill();
    moor(&replicas.admin, &["audit", "-A"]).assert_failed(&["does not answer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_client_certificate_shows_ledger_only_within_its_users_rights() {
    let house = House::shared().await;
    let control_plane = house.control_plane;
    house.bind(HOME, "ClusterRole", "kubemoor-auditor", "inspectors").await;
    house.bind(HOME, "ClusterRole", "view", "viewers").await;
    let authority = folder("authority").join("ca.crt");
    fs::write(&authority, house.chart.announced_authority().await).unwrap();
    let server = house.pod.admin_url();
    let direct = ["--server", &server, "--certificate-authority", authority.to_str().unwrap()];
    let ask = |kubeconfig: &Path, flags: &[&str]| moor(kubeconfig, &[&AUDIT[..], &direct, flags].concat());

    let carol = house.user("carol", "inspectors");
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

    let (cluster, other) = (control_plane.user_authority(), UserCa::new());
    let admin = Identity::Admin.token();
    let unknown = ["does not accept your credentials"];
    for (certificate, token, says) in [
        (cluster.sign("dave", "people"), None, &["you may not read"][..]),
        (cluster.sign_until("carol", "inspectors", 2000), None, &unknown),
        (cluster.sign("", "inspectors"), None, &unknown),
        (other.sign("carol", "inspectors"), None, &unknown),
        (other.sign("carol", "system:masters"), None, &unknown),
        (other.sign("carol", "inspectors"), Some("made-up"), &unknown),
        // As with the API server the certificate comes first.
        (cluster.sign("dave", "people"), Some(admin), &["you may not read"]),
    ] {
        let ran = ask(&certificate.kubeconfig(control_plane, token), &[]);
        assert!(ran.out.is_empty(), "{ran:?}");
        ran.assert_failed(says);
    }
    // Another world's certificate is none, and leaves the token what it is.
    let foreign = other.sign("carol", "inspectors").kubeconfig(control_plane, Some(admin));
    assert!(has_rows(&ask(&foreign, &[])));
    let powerful = cluster.sign("root", "system:masters").kubeconfig(control_plane, None);
    assert!(has_rows(&ask(&powerful, &[])));
    let ended = cluster.sign_until("carol", "inspectors", 2000).kubeconfig(control_plane, Some("made-up"));
    ask(&ended, &[]).assert_failed(&unknown);
}
