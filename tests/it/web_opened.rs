//! How `kubemoor ui` opens a browser: by a file that its user alone can read, and that goes with the page.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use reqwest::header::{COOKIE, SET_COOKIE};
use reqwest::{Client, StatusCode};

use crate::support::{ControlPlane, Identity, Process, SOON, eventually, folder};

/// What stands in the place of a browser: it keeps what it is asked to open.
const BROWSER: &str = "#!/bin/sh
stat -c %a \"$1\" > \"$OPENED/mode\"
cat \"$1\" > \"$OPENED/page\"
printf '%s\\n' \"$@\" > \"$OPENED/part\"
mv \"$OPENED/part\" \"$OPENED/words\"
";

/// The command, with a browser of the test's own.
struct Opened {
    dir: PathBuf,
    process: Process,
}

impl Opened {
    fn start(prefix: &[&str]) -> Self {
        let dir = folder("opened");
        for part in ["bin", "run", "told"] {
            fs::create_dir(dir.join(part)).unwrap();
        }
        // What a desktop opens files with.
        let browser = dir.join("bin/xdg-open");
        fs::write(&browser, BROWSER).unwrap();
        fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
        let kubeconfig = ControlPlane::get().kubeconfig(Identity::Alice);
        let words = vec!["ui".to_owned(), format!("--kubeconfig={}", kubeconfig.display())];
        let path = format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").unwrap());
        let environment = [
            ("PATH", path),
            ("XDG_RUNTIME_DIR", dir.join("run").display().to_string()),
            ("OPENED", dir.join("told").display().to_string()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let process = Process::new("ui", env!("CARGO_BIN_EXE_kubemoor").into(), words, &dir);
        let prefix = prefix.iter().map(|word| (*word).to_owned()).collect();
        let mut process = process.with_environment(environment).with_prefix(prefix);
        process.start();
        Self { dir, process }
    }

    fn told(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.dir.join("told").join(name)).ok()
    }

    /// The address that the command prints.
    async fn address(&self) -> String {
        eventually("the command prints its address", SOON, || async {
            let log = self.process.log();
            let found = log.lines().find_map(|line| line.strip_prefix("The page is at "));
            found.filter(|_| log.lines().count() > 1).map(str::to_owned).ok_or(log.clone())
        })
        .await
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.dir.join("run")).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    }
}

/// Asserts that the address lets a browser in, and that nothing else does.
async fn assert_lets_in(address: &str) {
    let client = Client::new();
    let base = address.split("open?").next().unwrap();
    assert_eq!(client.get(base).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let opened = client.get(address).send().await.unwrap();
    assert_eq!(opened.status(), StatusCode::OK);
    let cookie = opened.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let shown = client.get(base).header(COOKIE, cookie).send().await.unwrap();
    assert!(shown.text().await.unwrap().contains("Overview"));
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_is_led_in_by_a_private_file_that_goes_with_the_page() {
    for signal in ["INT", "TERM", "HUP"] {
        // Under nohup programs begin with SIGHUP ignored.
        let mut opened = Opened::start(&["env", "--default-signal=HUP"]);
        let words =
            eventually("a browser is opened", SOON, || async { opened.told("words").ok_or("not yet") }).await;
        let address = opened.address().await;
        let token = address.split("token=").nth(1).unwrap();
        let file = Path::new(words.trim_end()).to_owned();
        assert_eq!(opened.files(), std::slice::from_ref(&file), "one word names the file");
        assert!(
            !words.contains(token) && !words.contains("http"),
            "other users read the command line: {words}"
        );
        assert_eq!(opened.told("mode").unwrap().trim_end(), "600");
        let page = opened.told("page").unwrap();
        assert!(page.contains(&format!("content=\"0; url={address}\"")), "{page}");
        assert_lets_in(&address).await;
        let status = opened.process.end_by(signal);
        assert!(status.success(), "SIG{signal}: {status}");
        assert!(!file.exists(), "SIG{signal} leaves the file");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn page_that_is_to_outlive_its_terminal_goes_on() {
    let mut opened = Opened::start(&["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    let address = opened.address().await;
    opened.process.signal("HUP");
    assert_lets_in(&address).await;
    assert!(opened.process.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn file_of_somebody_else_in_its_place_is_neither_opened_nor_written() {
    // The command has the process of the shell that plants the file.
    let plant = "echo planted > \"$XDG_RUNTIME_DIR/kubemoor-ui-$$.html\"; exec \"$0\" \"$@\"";
    let mut opened = Opened::start(&["sh", "-c", plant]);
    let address = opened.address().await;
    eventually("the command says so", SOON, || async {
        let log = opened.process.log();
        if log.contains("cannot open a browser: open the address above") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_lets_in(&address).await;
    assert!(opened.process.terminate().success());
    assert_eq!(opened.told("words"), None);
    let [file] = &opened.files()[..] else { panic!("{:?}", opened.files()) };
    assert_eq!(fs::read_to_string(file).unwrap(), "planted\n");
}
