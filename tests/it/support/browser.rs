//! A real browser: Debian's Chromium, driven by its WebDriver.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Client;
use serde_json::{Value, json};

use super::control_plane::{install_crypto_provider, provided};
use super::document::root;
use super::process::{Process, folder, free_port};
use super::wait::{SOON, eventually};

/// What tells the rules of accessibility that a page breaks.
const AXE: &str = "const done = arguments[arguments.length - 1];
    axe.run().then((found) => done(found.violations), (error) => done([{id: String(error), nodes: []}]));";

/// How a visitor looks at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
}

impl Look {
    pub(crate) const ALL: [Self; 4] = [
        Self { width: 1280, is_dark: false },
        Self { width: 1280, is_dark: true },
        Self { width: 360, is_dark: false },
        Self { width: 360, is_dark: true },
    ];

    fn name(self) -> String {
        format!("{}-{}", self.width, if self.is_dark { "dark" } else { "light" })
    }
}

/// A browser with one window. It is spoken to as W3C WebDriver has it: the crates that do so bring a second set of
/// this program's dependencies along, or an addition of strings that takes the usual one's place.
pub(crate) struct Browser {
    client: Client,
    /// The address of the session.
    session: String,
    look: Look,
    axe: String,
    // Ends after the window.
    _process: Process,
}

/// Keys, as WebDriver spells them.
const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";

/// The key under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Browser {
    pub(crate) async fn start(look: Look) -> Self {
        let program = provided("KUBEMOOR_CHROMEDRIVER", "chromedriver");
        let axe = provided("KUBEMOOR_AXE", "axe-core/axe.min.js");
        let (dir, port) = (folder("browser"), free_port());
        let mut process = Process::new("chromedriver", program, vec![format!("--port={port}")], &dir);
        process.start();
        install_crypto_provider();
        let (client, driver) = (Client::new(), format!("http://127.0.0.1:{port}"));
        let ready = || async {
            client.get(format!("{driver}/status")).send().await.map(drop).map_err(|it| it.to_string())
        };
        eventually("the WebDriver answers", SOON, ready).await;
        let axe = fs::read_to_string(axe).unwrap();
        let mut browser = Self { client, session: driver, look, axe, _process: process };
        let session = browser.call("POST", "/session", &capabilities(look, &dir)).await.unwrap();
        browser.session = format!("{}/session/{}", browser.session, session["sessionId"].as_str().unwrap());
        browser
    }

    /// Ends the browser.
    pub(crate) async fn end(self) {
        self.call("DELETE", "", &Value::Null).await.unwrap();
    }

    pub(crate) async fn go(&self, address: &str) {
        self.call("POST", "/url", &json!({"url": address})).await.unwrap();
    }

    /// Waits until the page's text holds these words.
    pub(crate) async fn wait_for(&self, words: &str) {
        eventually(&format!("{words:?} is on the page"), SOON, || async {
            let text = self.text().await;
            if text.contains(words) { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// What a person reads.
    pub(crate) async fn text(&self) -> String {
        let text = self.evaluate("return document.body ? document.body.innerText : ''").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key where the focus is.
    pub(crate) async fn press(&self, key: &str) {
        let focused = self.call("GET", "/element/active", &Value::Null).await.unwrap();
        let path = format!("/element/{}/value", focused[ELEMENT].as_str().unwrap());
        self.call("POST", &path, &json!({"text": key})).await.unwrap();
    }

    /// Goes with the tabulator to the element with this text, as nobody with a mouse does.
    pub(crate) async fn tab_to(&self, text: &str) {
        for _ in 0..100 {
            self.press(TAB).await;
            let focused = self.evaluate("return document.activeElement.textContent").await;
            if focused.as_str().is_some_and(|focused| focused.trim() == text) {
                return;
            }
        }
        panic!("no key leads to {text:?}: {}", self.text().await);
    }

    pub(crate) async fn evaluate(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({"script": script, "args": []})).await.unwrap()
    }

    /// Gives an order that WebDriver has no word for.
    pub(crate) async fn order(&self, command: &str, parameters: Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.call("POST", "/goog/cdp/execute", &body).await.unwrap()
    }

    /// The whole page, also what only scrolling shows.
    async fn picture(&self) -> Vec<u8> {
        let metrics = self.order("Page.getLayoutMetrics", json!({})).await;
        let size = &metrics["cssContentSize"];
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let whole = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.order("Page.captureScreenshot", whole).await;
        STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let method = method.parse().unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.session));
        if !body.is_null() {
            request = request.json(body);
        }
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        let value = answer["value"].clone();
        match value["error"].as_str() {
            Some(error) => Err(format!("{path}: {error}: {}", value["message"])),
            None => Ok(value),
        }
    }

    /// Asserts that the page fits its window and that nobody is kept out of it, and keeps a picture of it.
    pub(crate) async fn inspect(&self, name: &str) {
        let file = root().join("target/pages").join(format!("{name}-{}.png", self.look.name()));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, self.picture().await).unwrap();
        let [width, page] =
            ["innerWidth", "document.documentElement.scrollWidth"].map(|what| format!("return {what}"));
        let (width, page) = (self.evaluate(&width).await, self.evaluate(&page).await);
        assert_eq!(width, json!(self.look.width), "{name}");
        assert!(page.as_u64() <= width.as_u64(), "{name} is {page} wide in a window of {width}");
        self.evaluate(&self.axe).await;
        let found = self.call("POST", "/execute/async", &json!({"script": AXE, "args": []})).await.unwrap();
        let told = |violation: &Value| {
            let places: Vec<_> =
                violation["nodes"].as_array().unwrap().iter().map(|node| node["html"].to_string()).collect();
            format!("{}: {} at {}", violation["id"], violation["help"], places.join(", "))
        };
        let violations: Vec<_> = found.as_array().unwrap().iter().map(told).collect();
        assert!(violations.is_empty(), "{name} {}: {violations:#?}", self.look.name());
    }
}

fn capabilities(look: Look, dir: &Path) -> Value {
    let size = format!("--window-size={},900", look.width);
    // What the system prefers, as Blink counts it.
    let scheme = format!("--blink-settings=preferredColorScheme={}", if look.is_dark { 0 } else { 1 });
    let profile = format!("--user-data-dir={}", dir.join("profile").display());
    let flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        &size,
        &scheme,
        &profile,
    ];
    let mut options = json!({"args": flags});
    // No window is as narrow as a phone.
    if look.width < 500 {
        let phone = json!({"deviceMetrics": {"width": look.width, "height": 900, "pixelRatio": 1.0}});
        options["mobileEmulation"] = phone;
    }
    // A page in a cluster makes its certificate itself here.
    let wanted = json!({"browserName": "chrome", "acceptInsecureCerts": true, "goog:chromeOptions": options});
    json!({"capabilities": {"alwaysMatch": wanted}})
}
