//! Which rights the client commands take: those that the command reference names, and no fewer. Who has none in a
//! namespace learns nothing of it.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::support::{
    Document, Guard, Identity, Member, Ran, RbacRule, SOON, Scene, eventually, moor, names,
};

/// An empty value of which only the API server can tell what it means: it is edited below.
const TEMPLATES: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: trove}
spec:
  replicas: 2
  selector: {matchLabels: {app: trove}}
  template:
    metadata: {labels: {app: trove}}
    spec: {containers: [{name: app, image: "app:1", env: [{name: A, value: ""}]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast}
"#;

/// What the release declares, and the one object of it that commands name.
const OBJECTS: [&str; 2] = ["deployments.apps", "configmaps"];
const OBJECT: [&str; 1] = ["deployments.apps"];

/// The policies of the library.
const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

/// A guarded release `trove` with a field in doubt, on a control plane of its own: the emergency switch is one for all.
struct Trove {
    scene: Scene,
    guard: Guard,
    until: String,
}

/// A row of the reference's table of rights.
struct RightsRow {
    /// The words behind `kubemoor`.
    command: String,
    namespaced: Vec<Vec<RbacRule>>,
    clusterwide: Vec<Vec<RbacRule>>,
    /// What the command goes without.
    optional: Vec<RbacRule>,
}

impl Trove {
    async fn get() -> &'static Self {
        static SCENE: OnceCell<Trove> = OnceCell::const_new();
        SCENE.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        let scene = Scene::own().prepare("rights", TEMPLATES).await;
        scene.helm.install(&scene.namespace, "trove", &scene.chart, json!({})).await.unwrap();
        let (admin, deployment) = (&scene.admin, scene.deployment("trove"));
        let env = "/spec/template/spec/containers/0/env/0/value";
        admin.patch(&deployment, "add", env, &json!("x")).await.done().unwrap();
        crate::policy_import::ignoring_helm_release(admin, &scene.namespace).await;
        let guard = scene.start_guard(&["--register", "--edits", "Revert"]).await;
        let guarded = scene.guarded_release("trove");
        eventually("the release is guarded", SOON, || async { admin.get(&guarded).await.done() }).await;
        for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
            let path = format!("{WEBHOOKS}/{kind}/kubemoor");
            eventually(&format!("{kind} are there"), SOON, || async { admin.get(&path).await.done() }).await;
        }
        let hour = Timestamp::now().checked_add(SignedDuration::from_hours(1)).unwrap();
        let until = Timestamp::from_second(hour.as_second()).unwrap().to_string();
        Self { scene, guard, until }
    }

    fn allow(&self) -> Vec<String> {
        let words = ["allow", "deployment/trove", "--path", "/spec/replicas", "--until", &self.until];
        words.map(str::to_owned).to_vec()
    }

    /// How a command of the table is called, without its namespace.
    fn call(&self, command: &str) -> Vec<String> {
        let words: Vec<_> = command.split(' ').collect();
        let more: &[&str] = match command {
            "allow" => return self.allow(),
            "audit" | "audit report" => &self.guard.asked(),
            "policy replay" => &[&[POLICIES][..], &self.guard.asked()].concat(),
            "diff" | "diff --settle" | "forecast" | "reconcile --dry-run" => &["trove", "-o", "json"],
            "explain" => &["deployment/trove", "-o", "json"],
            "revoke" => &["deployment/trove"],
            "reconcile" | "suspend" | "resume" => &["trove"],
            // An empty table is a sentence on standard error.
            "get allowances" | "get policies" | "policy lint" => &["-o", "json"],
            "get releases" | "uninstall" | "policy import flux" | "doctor" => &[],
            emergency if emergency.starts_with("emergency ") => &[],
            other => panic!("how is {other} called?"),
        };
        [&words, more].concat().into_iter().map(str::to_owned).collect()
    }

    /// Makes what a command needs to have something to do.
    fn prepare(&self, command: &str) {
        let admin = |arguments: &[&str]| {
            let ran = moor(&self.scene.control_plane, Identity::Admin, arguments);
            assert_eq!(ran.code, 0, "{ran:?}");
        };
        match command {
            "allow" | "revoke" => {
                let allow = self.allow();
                let words: Vec<_> = allow.iter().map(String::as_str).collect();
                admin(&[&words[..], &["-n", &self.scene.namespace]].concat());
            }
            "emergency close" => admin(&["emergency", "open"]),
            _ => {}
        }
    }

    /// Runs a command as a new user with these rights.
    async fn run(
        &self,
        row: &RightsRow,
        namespaced: &[RbacRule],
        clusterwide: &[RbacRule],
        all: bool,
    ) -> Ran {
        self.prepare(&row.command);
        let member = Member::new(&self.scene.control_plane).await;
        let namespace = Some(self.scene.namespace.as_str()).filter(|_| !all);
        // A namespace's rights in all namespaces and the cluster's are one role.
        match namespace {
            Some(_) => {
                for (rights, place) in [(namespaced, namespace), (clusterwide, None)] {
                    if !rights.is_empty() {
                        member.may(rights, place).await;
                    }
                }
            }
            None => member.may(&[namespaced, clusterwide].concat(), None).await,
        }
        let mut call = self.call(&row.command);
        call.retain(|word| !all || word != "trove");
        match (row.namespaced.is_empty(), namespace) {
            (true, _) => {}
            (false, Some(namespace)) => call.extend(["-n", namespace].map(str::to_owned)),
            (false, None) => call.push("-A".to_owned()),
        }
        let call: Vec<_> = call.iter().map(String::as_str).collect();
        member.moor(&call, "")
    }
}

impl RightsRow {
    /// How many optional rights a command says that it goes without.
    fn missed(&self, ran: &Ran) -> usize {
        let said = format!("{}{}", ran.out, ran.error);
        let of = |right: &&RbacRule| {
            said.contains(&right.resource) && (said.contains("forbidden") || said.contains("may not"))
        };
        self.optional.iter().filter(of).count()
    }
}

fn rows() -> Vec<RightsRow> {
    let rights = |cell: &str| -> Vec<Vec<RbacRule>> {
        let of_kinds = |text: &str, word: &str, kinds: &[&str]| -> Vec<RbacRule> {
            kinds.iter().map(|kind| RbacRule::parse(&text.replace(word, kind))).collect()
        };
        names(cell)
            .into_iter()
            .map(|text| match text.split(' ').nth(1) {
                Some("OBJECTS") => of_kinds(text, "OBJECTS", &OBJECTS),
                Some("OBJECT") => of_kinds(text, "OBJECT", &OBJECT),
                _ => vec![RbacRule::parse(text)],
            })
            .collect()
    };
    let table = Document::named("docs/cli.md").table("## Rights");
    let row = |cells: Vec<String>| {
        assert_eq!(cells.len(), 4, "{cells:?}");
        let command = names(&cells[0])[0].strip_prefix("kubemoor ").unwrap().to_owned();
        let (namespaced, clusterwide) = (rights(&cells[1]), rights(&cells[2]));
        RightsRow { command, namespaced, clusterwide, optional: rights(&cells[3]).concat() }
    };
    table.into_iter().map(row).collect()
}

fn works(ran: &Ran) -> bool {
    ran.code == 0 || ran.code == 1
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn each_command_needs_exactly_the_rights_its_reference_names() {
    let trove = Trove::get().await;
    for row in rows() {
        let command = &row.command;
        let none = trove.run(&row, &[], &[], false).await;
        if row.namespaced.is_empty() && row.clusterwide.is_empty() {
            assert!(works(&none) && none.error.is_empty(), "{command} without rights: {none:?}");
        } else {
            none.assert_failed(&[]);
            let said = ["no permission", "you may not"].iter().any(|words| none.error.contains(words));
            assert!(said && none.out.is_empty(), "{command} without rights: {none:?}");
        }

        let needed: Vec<(bool, &Vec<RbacRule>)> = row
            .namespaced
            .iter()
            .map(|rights| (true, rights))
            .chain(row.clusterwide.iter().map(|rights| (false, rights)))
            .collect();
        let some = |left_out: Option<usize>, namespaced: bool| -> Vec<RbacRule> {
            let kept = needed.iter().enumerate().filter(|(place, _)| Some(*place) != left_out);
            kept.filter(|(_, (here, _))| *here == namespaced)
                .flat_map(|(_, (_, rights))| (*rights).clone())
                .collect()
        };
        if needed.len() > 1 {
            for (place, (_, missing)) in needed.iter().enumerate() {
                let ran = trove.run(&row, &some(Some(place), true), &some(Some(place), false), false).await;
                assert!(
                    ran.code == 2 && ran.error.contains("no permission"),
                    "{command} without {missing:?}: {ran:?}"
                );
            }
        }
        let (namespaced, clusterwide) = (some(None, true), some(None, false));
        let ran = trove.run(&row, &namespaced, &clusterwide, false).await;
        assert!(works(&ran), "{command} with what it needs: {ran:?}");
        if row.optional.is_empty() {
            // The guard itself says what an order leaves as it is.
            let others = ran.error.lines().filter(|line| !line.contains(" stays as it is: "));
            assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new(), "{command}");
        }
        assert_eq!(
            row.missed(&ran),
            row.optional.len(),
            "{command} does not say what it goes without: {ran:?}"
        );
        if !row.optional.is_empty() {
            let clusterwide = [clusterwide.clone(), row.optional.clone()].concat();
            let ran = trove.run(&row, &namespaced, &clusterwide, false).await;
            assert!(
                works(&ran) && ran.error.is_empty() && !ran.out.contains("forbidden"),
                "{command} with all: {ran:?}"
            );
            if command == "explain" {
                assert_eq!(ran.json()["guard"]["edits"], json!("Revert"), "{ran:?}");
            }
        }
        if ["diff", "get releases", "get allowances"].contains(&command.as_str()) {
            let ran = trove.run(&row, &namespaced, &row.optional, true).await;
            assert!(works(&ran) && ran.error.is_empty(), "{command} -A: {ran:?}");
        }
    }
}

/// What a user without rights asks about.
struct CommandTarget<'a> {
    namespace: &'a str,
    release: &'a str,
    allowance: &'a str,
}

impl CommandTarget<'_> {
    /// What a user is told whose change the guard denies.
    fn denial(&self) -> String {
        let (namespace, name) = (self.namespace, self.release);
        format!(
            "Error from server (Forbidden): admission webhook \"scale.kubemoor.dev\" denied the request: \
             Deployment {name:?} is managed by Helm release {name:?} (revision 1). This change is not allowed:\n  \
             spec.replicas: 2 -> 5 (release: 2)\n\
             To make it permanent, change the chart value and upgrade: helm upgrade {name} CHART -n {namespace} \
             --reuse-values --set KEY=VALUE\n\
             To make it for a while: kubectl moor allow deployment/{name} -n {namespace} --path /spec/replicas --for \
             2h --reason TEXT\n\
             Details: kubectl moor explain deployment/{name} -n {namespace} --path /spec/replicas"
        )
    }

    /// The exit code of a command and what it says, without the names that were asked about.
    fn answer(&self, user: &Member, command: &[&str]) -> (i32, String) {
        let Self { namespace, release, allowance } = self;
        let named = |word: &&str| word.replace("NAME", release).replace("ALLOWANCE", allowance);
        let mut words: Vec<_> = command.iter().map(named).collect();
        if !words.iter().any(|word| word == "-A") {
            words.extend(["-n".to_owned(), (*namespace).to_owned()]);
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let mut ran = user.moor(&words, &self.denial());
        for (word, stands_for) in [(namespace, "NAMESPACE"), (allowance, "ALLOWANCE"), (release, "NAME")] {
            ran.error = ran.error.replace(word, stands_for);
        }
        assert!(ran.out.is_empty(), "{command:?}: {ran:?}");
        (ran.code, ran.error)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn user_without_rights_cannot_detect_existing_objects() {
    let trove = Trove::get().await;
    let here = trove.scene.namespace.as_str();
    // Another one than those that commands with rights make and revoke at the same time.
    let allow = ["allow", "configmap/settings", "--path", "/data/mode", "--until", &trove.until];
    let made = moor(
        &trove.scene.control_plane,
        Identity::Admin,
        &[&allow[..], &["-n", here, "-o", "json"]].concat(),
    );
    let allowance = made.json()["name"].as_str().unwrap().to_owned();
    let [server, url, authority, file] = trove.guard.asked();
    let nobody = Member::new(&trove.scene.control_plane).await;
    let commands: [&[&str]; 21] = [
        &["diff", "NAME"],
        &["diff", "NAME", "--settle"],
        &["diff", "NAME", "--record-driver", "configmap"],
        &["diff", "-A"],
        &["forecast", "NAME"],
        &["explain", "deployment/NAME"],
        &["explain", "deployment/NAME", "--path", "/spec/replicas"],
        &["explain", "-"],
        &["get", "releases"],
        &["get", "releases", "-A"],
        &["get", "allowances"],
        &["get", "allowances", "-A"],
        &["allow", "deployment/NAME", "--path", "*", "--for", "1h"],
        &["revoke", "deployment/NAME"],
        &["revoke", "ALLOWANCE"],
        &["reconcile", "NAME"],
        &["suspend", "NAME"],
        &["resume", "NAME"],
        &["audit", server, url, authority, file, "--release", "NAME"],
        &["audit", "report", server, url, authority, file, "--release", "NAME"],
        &["policy", "replay", POLICIES, server, url, authority, file, "--release", "NAME"],
    ];
    let there = CommandTarget { namespace: here, release: "trove", allowance: &allowance };
    let absent = |namespace| CommandTarget { namespace, release: "absent", allowance: "void" };
    for command in commands {
        let there = there.answer(&nobody, command);
        assert_eq!(there.0, 2, "{command:?}: {there:?}");
        assert_eq!(there.1.trim_end().lines().count(), 1, "{command:?}: {there:?}");
        assert_eq!(there, absent(here).answer(&nobody, command), "{command:?}");
        assert_eq!(there, absent("nowhere").answer(&nobody, command), "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_table_lists_every_command_that_talks_to_cluster() {
    let told: Vec<_> = rows().into_iter().map(|row| row.command).collect();
    for command in crate::command_faults::CLIENTS {
        assert!(told.iter().any(|told| told.starts_with(command)), "{command} is not in {told:?}");
    }
}
