//! The commands of the pages, run as they stand and in their order on a real control plane: by bash, with the real
//! `kubectl` and `kubemoor`, and `helm` by the real Helm SDK. No kubelet runs here: where a page waits for the Deployment,
//! its replicas are started as processes; a node of the test forwards their ports. Each command of the documentation is
//! run, or among those that cannot be, with the reason.

mod followed;

use serde_json::json;

use self::followed::{
    BAD_DAYS, FIRST_WEEK, GUARDED_RELEASES, MANIFESTS, OPERATIONS, OTHERS, README, TUTORIAL, TWO_COMMANDS,
    WITH_HELM, WITHOUT_HELM, exception,
};

use crate::support::{
    Block, Caller, Chart, ControlPlane, Document, HOME, HelmLine, Identity, Installed, Kubelet, Pod, Ran,
    SOON, Shell, Statement, charts, eventually, simple_commands, statements, wait_until_guarded,
};

/// Somebody who follows the page.
struct Reader<'a> {
    control_plane: &'a ControlPlane,
    page: Document,
    installed: Installed<'a>,
    shell: Shell<'a>,
    pods: Vec<Pod>,
    /// The chart of the release that the guard guards.
    shop: Option<Chart>,
    /// The node, and the pod there that the first of `pods` stands for.
    held: Option<(Kubelet, String)>,
    ran: usize,
}

impl<'a> Reader<'a> {
    async fn new(control_plane: &'a ControlPlane, page: &str) -> Self {
        Self {
            control_plane,
            page: Document::named(page),
            installed: Installed::new(control_plane).await,
            shell: Shell::new(control_plane),
            pods: Vec::new(),
            shop: None,
            held: None,
            ran: 0,
        }
    }

    /// The same, where the release "shop" is installed, and two replicas of the guard with these values run.
    async fn of_shop(control_plane: &'a ControlPlane, page: &str, values: serde_json::Value) -> Self {
        let mut reader = Self::new(control_plane, page).await;
        let web = charts::deployment!(
            "{{ .Values.replicaCount | default 2 }}",
            r#"{name: app, image: "registry.example/shop:{{ .Values.tag | default "1" }}"}"#
        );
        let chart = Chart::new("shop").values("replicaCount: 2\n").template("web.yaml", web);
        let options = json!({"create_namespace": true});
        reader.installed.helm.install("shop", "shop", &chart, options).await.unwrap();
        reader.shop = Some(chart);
        reader.installed.install(values).await.unwrap();
        reader.pods = reader.installed.start(2).await;
        reader.hold_first_pod().await;
        reader
    }

    async fn hold_first_pod(&mut self) {
        let kubelet = Kubelet::start(self.control_plane).await;
        let pod = kubelet.hold(&self.pods[0]).await;
        self.held = Some((kubelet, pod));
    }

    /// Runs every command below a heading. A fence of text says what the command before it prints.
    async fn follow(&mut self, heading: &str) {
        let blocks: Vec<Block> =
            self.page.blocks().into_iter().filter(|block| block.heading == heading).collect();
        assert!(blocks.iter().any(|block| block.language == "console"), "{heading} has no commands");
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "console") {
            let printed = blocks.get(at + 1).filter(|next| next.language == "text");
            let statements = statements(&block.text);
            let last = statements.len() - 1;
            let page = self.page.path.to_str().unwrap().to_owned();
            let runs = |statement: &Statement| exception(&page, statement).is_none();
            for (at, statement) in statements.iter().enumerate().filter(|(_, statement)| runs(statement)) {
                let printed = printed.filter(|_| at == last).map(|next| next.text.as_str());
                self.run(statement, printed).await;
                self.ran += 1;
            }
        }
    }

    async fn run(&mut self, statement: &Statement, printed: Option<&str>) {
        let words = simple_commands(&statement.line).remove(0);
        if words[0] == "helm" {
            return self.helm(&words).await;
        }
        if words.contains(&"rollout".to_owned()) {
            return self.roll_out().await;
        }
        // The page is for a recent cluster, and names the flag for older ones.
        let old = (self.control_plane.minor() < 27).then(|| {
            let flag = format!("manifests install --kube-version 1.{}", self.control_plane.minor());
            let line = statement.line.replace("manifests install", &flag);
            Statement { line, input: statement.input.clone() }
        });
        let statement = old.as_ref().unwrap_or(statement);
        let is_ours = words[0] == "kubemoor" || words[..2] == ["kubectl", "moor"];
        eventually(&statement.line, SOON, || {
            let ran = self.shell.run(Identity::Alice, statement);
            // That there is something to find is no failure.
            let finds = is_ours && printed.is_none() && ran.code == 1 && ran.error.is_empty();
            async move { if finds { Ok(()) } else { as_told(&ran, printed) } }
        })
        .await;
    }

    /// Starts the replicas of the Deployment, as the nodes of a cluster would.
    async fn roll_out(&mut self) {
        self.pods.clear();
        let path = format!("/apis/apps/v1/namespaces/{HOME}/deployments/kubemoor");
        let deployment = self.installed.admin.get(&path).await.done().unwrap();
        let replicas = deployment["spec"]["replicas"].as_u64().unwrap();
        self.pods = self.installed.start(replicas.try_into().unwrap()).await;
        if let Some((kubelet, pod)) = &self.held {
            kubelet.lead(pod, self.pods[0].admin_port());
        }
    }

    async fn helm(&mut self, words: &[String]) {
        let line =
            HelmLine::read(words, &self.page.files()).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let (helm, name) = (&self.installed.helm, line.names[0].as_str());
        let chart = line.names.get(1).map(|chart| match line.is_of_the_chart() {
            true => self.installed.chart.clone(),
            false => Chart::shipped(self.shell.folder.join(chart)),
        });
        let done = match (line.operation.as_str(), chart) {
            ("create", None) => helm.create(&self.shell.folder, name).await.map(|_| json!({})),
            ("install", Some(chart)) => helm.install(&line.namespace, name, &chart, line.options()).await,
            ("upgrade", Some(chart)) => helm.upgrade(&line.namespace, name, &chart, line.options()).await,
            ("test", None) => hooked(self.installed.test().await),
            ("uninstall", None) if name == "kubemoor" => {
                let done = hooked(self.installed.uninstall().await);
                self.pods.clear();
                done
            }
            ("uninstall", None) => helm.uninstall(&line.namespace, name, json!({})).await,
            _ => panic!("nobody knows how to run {words:?}"),
        };
        done.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        // Helm would wait for replicas that no node starts here.
        if line.switches.contains("--wait") {
            self.roll_out().await;
        }
    }

    /// The names of Kubemoor's objects of these kinds that are left.
    fn left(&self, kinds: &str) -> String {
        let output = self.control_plane.kubectl(Identity::Admin, &["get", kinds, "-A", "-o", "name"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let names = String::from_utf8(output.stdout).unwrap();
        // The users of the tests have their rights by a binding of that name.
        let is_ours = |name: &&str| name.contains("kubemoor") && !name.ends_with("/kubemoor-test-users");
        names.lines().filter(is_ours).collect()
    }
}

/// What Helm says of an operation that waits for a pod, and the pod.
fn hooked((done, ran): (Result<serde_json::Value, String>, Ran)) -> Result<serde_json::Value, String> {
    if ran.code == 0 { done } else { Err(format!("{ran:?}")) }
}

/// Whether a command ended well, or printed what the page says.
fn as_told(ran: &Ran, printed: Option<&str>) -> Result<(), String> {
    let is_told = match printed {
        None => ran.code == 0,
        Some(text) => {
            let fails = text.starts_with("Error");
            // A page may leave out what the command says beside errors and warnings.
            let printed = [ran.error.clone(), format!("{}{}", ran.error, ran.out)];
            printed.iter().any(|printed| printed.trim() == text.trim()) && fails == (ran.code != 0)
        }
    };
    if is_told { Ok(()) } else { Err(format!("{ran:#?}")) }
}

const KINDS: &str = "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,\
                     validatingwebhookconfigurations,mutatingwebhookconfigurations";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn install_page_commands_work_from_installation_to_uninstallation() {
    let control_plane = ControlPlane::start();
    let mut reader = Reader::new(&control_plane, "docs/install.md").await;
    for heading in WITH_HELM {
        reader.follow(heading).await;
    }
    assert!(reader.ran > 12, "only {} commands ran", reader.ran);
    assert_eq!(reader.left(KINDS), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_lead_from_empty_cluster_to_denial() {
    let control_plane = ControlPlane::start();
    let mut reader = Reader::new(&control_plane, "docs/install.md").await;
    for heading in TWO_COMMANDS {
        reader.follow(heading).await;
    }
    assert_eq!(reader.ran, 2);
    hooked(reader.installed.uninstall().await).unwrap();
    reader.page = Document::named("README.md");
    for heading in README {
        reader.follow(heading).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn installation_without_helm_of_the_page_works_and_leaves_nothing() {
    let control_plane = ControlPlane::start();
    let mut reader = Reader::new(&control_plane, "docs/install.md").await;
    for heading in WITHOUT_HELM {
        reader.follow(heading).await;
    }
    assert_eq!(reader.left(KINDS), "");
    reader.page = Document::named("deploy/README.md");
    for heading in MANIFESTS {
        reader.follow(heading).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn tutorial_commands_work_in_their_order() {
    let control_plane = ControlPlane::start();
    let mut reader = Reader::new(&control_plane, "docs/tutorial.md").await;
    for heading in TUTORIAL {
        reader.follow(heading).await;
        // The node that forwards the port by which the ledger is read.
        if reader.held.is_none() && !reader.pods.is_empty() {
            reader.hold_first_pod().await;
        }
    }
    assert!(reader.ran > 14, "only {} commands ran", reader.ran);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn first_week_page_commands_work_in_their_order() {
    let control_plane = ControlPlane::start();
    let values = json!({"rights": {"enforce": true}});
    let mut reader = Reader::of_shop(&control_plane, "docs/first-week.md", values).await;
    for heading in FIRST_WEEK {
        reader.follow(heading).await;
    }
    assert!(reader.ran > 15, "only {} commands ran", reader.ran);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn troubleshooting_commands_work_and_leave_the_guard_running() {
    let control_plane = ControlPlane::start();
    let values = json!({"edits": "Deny", "drift": "Repair"});
    let mut reader = Reader::of_shop(&control_plane, "docs/production.md", values).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    let web = "/apis/apps/v1/namespaces/shop/deployments/web";
    wait_until_guarded(&alice, "shop", web).await;
    for heading in BAD_DAYS {
        reader.follow(heading).await;
    }
    reader.page = Document::named("docs/operations.md");
    for heading in OPERATIONS {
        reader.follow(heading).await;
    }
    reader.page = Document::named("docs/guarded-releases.md");
    for heading in GUARDED_RELEASES {
        reader.follow(heading).await;
    }
    assert!(reader.ran > 10, "only {} commands ran", reader.ran);
    wait_until_guarded(&alice, "shop", web).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn commands_of_the_other_pages_work_on_a_guarded_cluster() {
    let control_plane = ControlPlane::start();
    let values = json!({"edits": "Deny", "drift": "Repair"});
    let mut reader = Reader::of_shop(&control_plane, "docs/allowances.md", values).await;
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, "shop", "/apis/apps/v1/namespaces/shop/deployments/web").await;
    // What a rollout may be taken back to.
    let newer = json!({"values": {"tag": "2"}});
    reader.installed.helm.upgrade("shop", "shop", &reader.shop.clone().unwrap(), newer).await.unwrap();
    for file in ["tls.crt", "tls.key", "ca.crt"] {
        std::fs::write(reader.shell.folder.join(file), "what a person has").unwrap();
    }
    for (page, headings) in OTHERS {
        reader.page = Document::named(page);
        for heading in headings {
            reader.follow(heading).await;
        }
    }
    assert!(reader.ran > 20, "only {} commands ran", reader.ran);
}
