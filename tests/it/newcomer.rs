//! How far a person who is new to Kubemoor has to go, by the commands that it prints itself: from a denial to its cause, to
//! an exception, and to who touched the object in the last month. Each takes at most two commands.

use serde_json::json;

use crate::support::{Identity, Ran, SOON, Scene, charts, eventually, run};

/// The most commands for one question.
const MOST: usize = 2;

const TEMPLATES: &str = charts::deployment!(r#"{name: app, image: "app:1"}"#);

/// A person who has nothing but what was printed, and who pastes commands from it.
struct Newcomer {
    /// The flags by which the test reaches its control plane, which a person has in the kubeconfig.
    kubeconfig: String,
    /// All that was printed.
    read: String,
    commands: usize,
}

impl Newcomer {
    fn after(shop: &Scene, denial: &str) -> Self {
        let kubeconfig = format!("--kubeconfig={}", shop.control_plane.kubeconfig(Identity::Alice).display());
        Self { kubeconfig, read: denial.to_owned(), commands: 0 }
    }

    /// Pastes the first command that was printed and begins like this, with more flags.
    fn paste(&mut self, begins: &str, more: &[&str]) -> Ran {
        let at = self.read.find(begins).unwrap_or_else(|| panic!("nothing says {begins}: {}", self.read));
        let line = self.read[at..].lines().next().unwrap();
        let words: Vec<&str> = line.trim_start_matches("kubectl moor ").split_whitespace().collect();
        let ran = run(&[&words[..], more, &[self.kubeconfig.as_str()]].concat(), "");
        self.commands += 1;
        assert!(self.commands <= MOST, "{} commands: {}", self.commands, self.read);
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        self.read.push_str(&ran.out);
        ran
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newcomer_finds_cause_exception_and_culprit_in_two_commands_each() {
    let shop = Scene::policed().install("newcomer", TEMPLATES).await;
    let web = shop.deployment("web");
    shop.wait_until_guarded(&web).await;
    shop.wait_for_confirmed(2).await;
    let scaled = json!({"spec": {"replicas": 7}});
    let denied = shop.alice.merge(&web, &scaled).await;
    let message = denied.body["message"].as_str().unwrap().to_owned();
    assert!(message.contains("is managed by Helm release"), "{message}");

    // From the denial to its cause.
    let mut person = Newcomer::after(&shop, &message);
    let cause = person.paste("kubectl moor explain", &[]);
    for part in
        ["RELEASE", "shop in namespace", "POLICIES", "edits Deny", "/spec/replicas", "helm upgrade shop"]
    {
        assert!(cause.out.contains(part), "{part} is not in {}", cause.out);
    }

    // From the denial to who touched the object in the last month, as a spreadsheet.
    let asked = shop.guard().asked();
    let sheet = eventually("the denial is in the sheet", SOON, || async {
        let mut person =
            Newcomer { read: person.read.clone(), kubeconfig: person.kubeconfig.clone(), ..person };
        let sheet = person.paste("kubectl moor audit", &asked);
        if sheet.out.contains("\"Deny\"") { Ok(sheet) } else { Err(format!("{sheet:?}")) }
    })
    .await;
    let lines: Vec<_> = sheet.out.lines().collect();
    assert!(lines[0].contains("\"user\"") && lines[0].contains("\"changes\""), "{sheet:?}");
    assert!(lines[1..].iter().any(|line| line.contains("\"alice\"") && line.contains("2 -> 7")), "{sheet:?}");

    // From the denial to an exception.
    let mut person = Newcomer::after(&shop, &message);
    let allowed = person.paste("kubectl moor allow", &[]);
    assert!(allowed.out.contains("may change until"), "{allowed:?}");
    eventually("the change passes", SOON, || async { shop.alice.merge(&web, &scaled).await.done() }).await;

    // And what the exception does to the next upgrade.
    let told = eventually("the live value is explained", SOON, || async {
        let mut person = Newcomer::after(&shop, &message);
        let told = person.paste("kubectl moor explain", &[]);
        let is_live = |line: &str| line.starts_with("  live") && line.ends_with(" 7");
        if told.out.lines().any(is_live) { Ok(told) } else { Err(format!("{told:?}")) }
    })
    .await;
    assert!(told.out.contains("next upgrade") && told.out.contains("exception"), "{told:?}");
}
