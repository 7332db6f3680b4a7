//! What the ledger of a real guard holds, and how `kubemoor audit` shows it.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{
    ControlPlane, Guard, Identity, Postgres, SOON, Scene, charts, eventually, folder, items, within,
};

fn audit(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
    command.arg("audit").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    items(&String::from_utf8_lossy(&output.stdout))
}

/// A guarded release, of which the guard denied a change.
pub(crate) struct DeniedRelease {
    pub(crate) shop: Scene,
    /// The flag for the guard's database.
    database: String,
}

impl DeniedRelease {
    pub(crate) async fn install(prefix: &str) -> Self {
        let shop = Scene::shared().install(prefix, charts::SETTINGS).await;
        let settings = shop.config_map("settings");
        shop.wait_until_guarded(&settings).await;
        let patch = json!({"data": {"level": "debug"}});
        shop.alice.merge(&settings, &patch).await.refused("shop").unwrap();
        let database = shop.guard().database();
        Self { shop, database }
    }

    /// The flags for all rows of the release as JSON.
    fn filter(&self) -> [&str; 6] {
        ["--namespace", &self.shop.namespace, "--release", "shop", "-o", "json"]
    }

    /// The newest row of the database with these flags, once there is one.
    async fn row(&self, flags: &[&str]) -> Value {
        eventually(&format!("{flags:?} has a row"), SOON, || async { self.shop.rows(flags).pop() }).await
    }

    /// Waits until the database has Helm's own records: what they came to say, and who wrote them.
    pub(crate) async fn wait_for_records(&self) {
        eventually("the records of the release are kept", SOON, || async {
            let rows = self.shop.rows(&["--release", "shop"]);
            let said = |kind: &str, verdict: &str, user: &str| {
                rows.iter().any(|row| row["kind"] == kind && row["verdict"] == verdict && row["user"] == user)
            };
            said("record", "deployed", "") && said("verdict", "Allow", "deployer")
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_finds_denied_change_in_database_and_through_guard() {
    let denied = DeniedRelease::install("audit").await;
    let row = denied.row(&["--verdict", "deny,Warn", "--by", "alice", "--object", "cm/settings"]).await;
    assert_eq!(
        (&row["verdict"], &row["reason"], &row["operation"], &row["user"], &row["revision"]),
        (&json!("Deny"), &json!("drift"), &json!("UPDATE"), &json!("alice"), &json!(1)),
        "{row}"
    );
    assert_eq!(
        row["fields"],
        json!([{"path": "/data/level", "declared": "\"info\"", "old": "\"info\"", "new": "\"debug\""}])
    );
    assert_eq!(row["groups"][0], "people", "{row}");
    assert_ne!(row["uid"], "");
    denied.wait_for_records().await;

    let kubeconfig = ControlPlane::get().kubeconfig(Identity::Alice);
    let guard = denied.shop.guard().asked();
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let asked = [
        &kubeconfig[..],
        &["--verdict", "Deny", "--verdict", "Error", "--operation", "UPDATE,DELETE"],
        &["--object", "configmap/settings"],
    ]
    .concat();
    // Kubernetes 1.20 may ask about one update twice, and the row counts the second denial when it comes.
    eventually("the guard tells the row of the database", SOON, || async {
        let told = rows(&audit(&[&guard[..], &asked, &denied.filter()].concat()));
        let row = denied.row(&["--verdict", "Deny", "--by", "alice", "--object", "cm/settings"]).await;
        if told.contains(&row) { Ok(()) } else { Err(format!("{told:?} lacks {row}")) }
    })
    .await;
    let none = rows(&audit(&[&guard[..], &asked, &denied.filter(), &["--until", "1h"]].concat()));
    assert_eq!(none, Vec::<Value>::new());
    // As a spreadsheet, from the guard and from the database.
    for source in [&[&guard[..], &kubeconfig].concat()[..], &[denied.database.as_str()]] {
        let here = ["-n", &denied.shop.namespace, "--verdict", "Deny", "-o", "csv"];
        let sheet = String::from_utf8(audit(&[source, &here].concat()).stdout).unwrap();
        let lines: Vec<_> = sheet.split("\r\n").collect();
        assert!(lines[0].starts_with("\"time\",\"kind\",\"verdict\""), "{sheet}");
        assert!(lines[1].contains("\"Deny\"") && lines[1].contains("debug"), "{sheet}");
    }
    let here = [denied.database.as_str(), "-n", &denied.shop.namespace];
    let table = |flags: &[&str]| String::from_utf8(audit(&[&here[..], flags].concat()).stdout).unwrap();
    let (headed, bare) = (table(&[]), table(&["--no-headers"]));
    assert!(headed.starts_with("TIME") && bare.starts_with("20"), "{headed}{bare}");
}

/// Runs `kubemoor audit`, which fails with these words, and counts its lines.
#[track_caller]
fn assert_failed(arguments: &[&str], says: &str) -> usize {
    let output = audit(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
    assert!(!error.contains("hunter2"), "{error}");
    error.trim_end().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn audit_failure_is_reported_in_one_sentence_with_exit_2() {
    let folder = folder("audit");
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("text.db"), "this is no database, however long the text may be ".repeat(50)).unwrap();
    std::fs::write(path("empty.db"), "").unwrap();
    let server = Postgres::start().await;
    let [empty, older, newer, other] = [(); 4].map(|()| server.database());
    for (url, version) in [(&older, 0), (&newer, 9), (&other, 1)] {
        let name = url.rsplit_once('/').unwrap().1;
        let make = format!(
            "CREATE TABLE kubemoor_migrations (version BIGINT, checksum BYTEA); \
             INSERT INTO kubemoor_migrations VALUES ({version}, '')"
        );
        server.psql(name, &make).unwrap();
    }
    let kubeconfig = ControlPlane::get().kubeconfig(Identity::Autoscaler);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let guard = Guard::shared().await;
    let (here, text) = (guard.admin_url(""), path("text.db"));
    let asked = guard.asked();
    for (arguments, says) in [
        (vec!["--ledger", &format!("sqlite:{}", path("none.db"))], "there is no ledger at"),
        (vec!["--ledger", &format!("sqlite:{}", path("empty.db"))], "schema version 0"),
        (vec!["--ledger", &format!("sqlite:{}", path("text.db"))], "not a database"),
        (vec!["--ledger", &empty], "schema version 0"),
        (vec!["--ledger", &older], "schema version 0"),
        (vec!["--ledger", &newer], "use a program as new as the guard"),
        (vec!["--ledger", &other], "has the tables of a development build"),
        (vec!["--ledger", "postgres://moor:hunter2@127.0.0.1:1/ledger"], "cannot be opened"),
        (vec!["--server", "https://127.0.0.1:1", "--kubeconfig", kubeconfig], "through the API server"),
        ([&asked[..], &["--kubeconfig", kubeconfig]].concat(), "you may not read"),
        (vec!["--server", &here, "--kubeconfig", kubeconfig], "--certificate-authority"),
        (
            vec!["--certificate-authority", "/nowhere/ca.crt", "--kubeconfig", kubeconfig],
            "/nowhere/ca.crt has no readable PEM certificate",
        ),
        (
            vec!["--certificate-authority", &text, "--kubeconfig", kubeconfig],
            "text.db has no readable PEM certificate",
        ),
        (vec!["--server", &here, "--kubeconfig", "/nowhere/kubeconfig"], "/nowhere/kubeconfig"),
    ] {
        assert_eq!(assert_failed(&arguments, says), 1, "{arguments:?}");
    }
    // The parser adds a hint at --help below its sentence.
    assert_failed(&["--since", "yesterday"], "24h or 90m");
    assert_failed(&["--server", "http://localhost:9080", "--kubeconfig", kubeconfig], "only over TLS");
    assert_failed(&["--ledger", "mysql://db"], "sqlite:PATH or postgres://");
    assert_failed(&["--follow", "--would-deny"], "--would-deny and --follow cannot be used together");
    assert_failed(
        &["--ledger", "sqlite:x", "--certificate-authority", &text],
        "--ledger and --certificate-authority cannot be used together",
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_reader_that_goes_away_is_no_error() {
    let guard = Guard::shared().await;
    let script = format!(
        "'{}' audit --ledger 'sqlite:{}' -A --limit 0 --follow | head -n 1",
        env!("CARGO_BIN_EXE_kubemoor"),
        guard.ledger().display()
    );
    let shop = Scene::shared().install("audit-pipe", charts::SETTINGS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    let mut pipe =
        Command::new("bash").args(["-o", "pipefail", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    // Something to write to the reader that is gone.
    let level = std::sync::atomic::AtomicU32::new(0);
    let status = eventually("the pipe ends by itself", SOON, || {
        let level = level.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let ended = pipe.try_wait().unwrap();
        let (alice, settings) = (&shop.alice, &settings);
        async move {
            let patch = json!({"data": {"level": format!("debug{level}")}});
            alice.merge(settings, &patch).await.refused("shop").unwrap();
            ended
        }
    })
    .await;
    let output = pipe.wait_with_output().unwrap();
    assert!(
        status.success() && output.stderr.is_empty(),
        "{status} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn audit_shows_rows_of_contexts_namespace_and_reports_omitted_ones() {
    let shop = Scene::shared().install("audit-namespace", charts::SETTINGS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    let database = shop.guard().database();
    // The API server may ask about a refused update twice: the last one tells that all rows are there.
    for level in ["debug", "trace", "last"] {
        shop.alice.merge(&settings, &json!({"data": {"level": level}})).await.refused("shop").unwrap();
    }
    let kubeconfig = within(&ControlPlane::get().kubeconfig(Identity::Alice), &shop.namespace);
    let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];

    let denied = [database.as_str(), "--verdict", "Deny", "-o", "json"];
    let last = eventually("the denials are kept", SOON, || async {
        let found = rows(&audit(&[&denied[..], &kubeconfig].concat()));
        let is_last = |row: &&Value| row["fields"][0]["new"] == json!("\"last\"");
        let last = found.iter().find(is_last).map(|row| row["time"].as_str().unwrap().to_owned());
        last.ok_or_else(|| format!("{found:?}"))
    })
    .await;
    let before = ["--until", last.as_str()];
    let here = rows(&audit(&[&denied[..], &kubeconfig, &before].concat()));
    assert!(here.len() >= 2, "{here:?}");
    let (newest_row, others) = here.split_last().unwrap();
    assert!(here.iter().all(|row| row["namespace"] == shop.namespace.as_str()), "{here:?}");

    let newest = audit(&[&denied[..], &kubeconfig, &before, &["--limit", "1"]].concat());
    let said = String::from_utf8_lossy(&newest.stderr).into_owned();
    assert_eq!(rows(&newest), std::slice::from_ref(newest_row), "{said}");
    assert!(
        said.contains("only the newest 1 rows are shown") && said.contains("`--limit 0` shows all"),
        "{said}"
    );
    // What it says is the way to the rest.
    let until = said.split("--until ").nth(1).unwrap().split('`').next().unwrap();
    let rest = audit(&[&denied[..], &kubeconfig, &["--until", until]].concat());
    assert_eq!((rows(&rest), rest.stderr.is_empty()), (others.to_vec(), true));
    let all = audit(&[&denied[..], &kubeconfig, &before, &["--limit", "0"]].concat());
    assert_eq!((rows(&all), all.stderr.is_empty()), (here, true));

    let nowhere = audit(&[&database, "-n", "nowhere"]);
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(nowhere.status.success() && nowhere.stdout.is_empty(), "{nowhere:?}");
    assert!(said.contains("no rows found in namespace nowhere since ") && said.contains("`-A`"), "{said}");
    // Without a kubeconfig nothing says which namespace.
    let ran = crate::support::run(&["audit", &database], "");
    ran.assert_failed(&["use -n NAMESPACE, or -A for all"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_tells_who_was_denied_what() {
    let shop = Scene::shared().install("audit-report", charts::SETTINGS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    shop.alice.merge(&settings, &json!({"data": {"level": "debug"}})).await.refused("shop").unwrap();
    let database = shop.guard().database();
    let kubeconfig = ControlPlane::get().kubeconfig(Identity::Alice);
    let asked = shop.guard().asked();
    let through_guard = [&asked[..], &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat();
    for source in [&[database.as_str()][..], &through_guard] {
        let report = |form: &str| {
            let flags = ["report", "-n", &shop.namespace, "--since", "30d", "-o", form];
            let output = audit(&[&flags[..], source].concat());
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let release = format!("{}/shop", shop.namespace);
        let markdown = eventually("the denial is kept", SOON, || async {
            let markdown = report("md");
            if markdown.contains("| ConfigMap /data/level | 1 |") { Ok(markdown) } else { Err(markdown) }
        })
        .await;
        assert!(markdown.contains(&format!("| {release} | 1 |")), "{markdown}");
        assert!(markdown.contains("| alice | 1 |"), "{markdown}");
        let page = report("html");
        let escaped = release.replace('/', "&#x2f;");
        assert!(page.contains("<svg") && page.contains(&format!("<td>{escaped}</td>")), "{page}");
        let sheet = report("csv");
        assert!(sheet.contains("\"denied by user\",\"alice\",\"1\""), "{sheet}");
    }
}
