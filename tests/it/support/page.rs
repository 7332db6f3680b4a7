//! The web page of `kubemoor ui`, as a browser asks for it.

use std::path::{Path, PathBuf};

use reqwest::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use reqwest::{Client, RequestBuilder, StatusCode, redirect};

use super::control_plane::{ControlPlane, install_crypto_provider};
use super::identity::Identity;
use super::process::{Process, folder};
use super::wait::{SOON, eventually, soon};

/// A page that runs, and the cookie of its visitor.
pub(crate) struct Page {
    process: Process,
    /// What the command has printed.
    pub(crate) address: String,
    /// The address below which all pages lie, with a slash at its end.
    pub(crate) base: String,
    pub(crate) cookie: String,
    pub(crate) client: Client,
}

/// What the server answers.
#[derive(Debug)]
pub(crate) struct PageResponse {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    pub(crate) headers: reqwest::header::HeaderMap,
}

impl Page {
    /// Starts one for an identity of the control plane.
    pub(crate) async fn open(control_plane: &ControlPlane, identity: Identity, flags: &[&str]) -> Self {
        Self::of(&control_plane.kubeconfig(identity), flags).await
    }

    /// Starts one with this kubeconfig, and goes in by the address that it prints.
    pub(crate) async fn of(kubeconfig: &Path, flags: &[&str]) -> Self {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        Self::run(&[&[kubeconfig.as_str()], flags].concat(), &[]).await
    }

    /// Starts one of a ledger that clusters share, where there is no kubeconfig.
    pub(crate) async fn of_ledger(url: &str) -> Self {
        Self::run(&["--ledger", url], &[]).await
    }

    /// Starts one with these flags and this environment.
    pub(crate) async fn run(flags: &[&str], environment: &[(String, String)]) -> Self {
        let words = [&["ui", "--no-browser"], flags].concat();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_kubemoor"));
        let words = words.into_iter().map(str::to_owned).collect();
        let nowhere = ["HOME", "KUBECONFIG"].map(|name| (name.to_owned(), "/nonexistent".to_owned()));
        let process = Process::new("ui", program, words, &folder("ui"));
        let mut process = process.with_environment([&nowhere, environment].concat());
        process.start();
        let address = address(&mut process).await;
        install_crypto_provider();
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        let answer = client.get(&address).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap().to_owned();
        for part in ["HttpOnly", "SameSite=Strict"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let base = address.split("open?").next().unwrap().to_owned();
        Self { process, address, base, cookie, client }
    }

    /// A request as the visitor's browser sends it.
    pub(crate) fn request(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie)
    }

    /// A page.
    pub(crate) async fn get(&self, path: &str) -> PageResponse {
        PageResponse::of(self.request(path)).await
    }

    /// A page that must be there.
    pub(crate) async fn text(&self, path: &str) -> String {
        let shown = self.get(path).await;
        assert_eq!(shown.status, StatusCode::OK, "{path}: {}", shown.text);
        shown.text
    }

    /// Sends a form to an action.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> PageResponse {
        let request = self.client.post(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        PageResponse::of(request.body(form(fields))).await
    }

    /// Confirms what the page at `path` asks to be confirmed.
    pub(crate) async fn confirm(&self, path: &str) -> PageResponse {
        let page = self.text(path).await;
        let fields = hidden(&page);
        assert!(fields.iter().any(|(name, _)| name == "token"), "{page}");
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.post("act", &fields).await
    }

    /// What the command has printed.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

impl PageResponse {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        Self { status, headers, text: answer.text().await.unwrap() }
    }
}

/// The proof in the forms of a page that its visitor sends them.
pub(crate) fn form_token(page: &str) -> String {
    hidden(page).into_iter().find(|(name, _)| name == "token").unwrap().1
}

/// A form as browsers send it, with CRLF at the end of each line.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let encode = |text: &str| {
        let text = text.replace("\r\n", "\n").replace('\n', "\r\n");
        percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let pairs: Vec<_> =
        fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

/// The hidden fields of a page's form.
pub(super) fn hidden(page: &str) -> Vec<(String, String)> {
    let value = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!("{name}=\""))?;
        let text = rest.split_once('"')?.0;
        let plain = [
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&quot;", "\""),
            ("&#8207;", "\u{200f}"),
            ("&#10;", "\n"),
            ("&amp;", "&"),
        ];
        Some(plain.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)))
    };
    let tags = page.split("<input type=\"hidden\"").skip(1).filter_map(|rest| rest.split_once('>'));
    tags.filter_map(|(tag, _)| Some((value(tag, "name")?, value(tag, "value")?))).collect()
}

async fn address(process: &mut Process) -> String {
    eventually("the page prints its address", SOON, || {
        let log = process.log();
        let mut words = log.split_whitespace();
        let found = words.find(|word| word.starts_with("http://") && word.contains("token="));
        // The line is whole once the next one has begun.
        let found = found.filter(|_| log.lines().count() > 1).map(str::to_owned);
        assert!(found.is_some() || process.exited().is_none(), "{log}");
        std::future::ready(found.ok_or(log))
    })
    .await
}

/// Waits until the stream of a page tells of a change.
pub(crate) async fn wait_for_change(stream: &mut reqwest::Response) {
    let told = async {
        while let Some(bytes) = stream.chunk().await.unwrap() {
            if String::from_utf8_lossy(&bytes).contains("event: change") {
                return;
            }
        }
        panic!("the stream has ended");
    };
    soon("the page is told of a change", told).await;
}
