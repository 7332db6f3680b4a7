//! The web page of `kubemoor ui --in-cluster`, as browsers and proxies ask for it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, SET_COOKIE};
use reqwest::{Client, Method, RequestBuilder, StatusCode, redirect};
use serde_json::Value;

use super::control_plane::{ControlPlane, install_crypto_provider};
use super::identity::Identity;
use super::page::{PageResponse, form, form_token};
use super::process::{Process, folder, free_port};
use super::wait::{SOON, eventually};

/// What browsers call it.
pub(crate) const PAGE_HOST: &str = "ui.example";

/// The cookie of a session.
const SESSION: &str = "__Host-kubemoor";

/// A page that runs. Dropping it kills it.
pub(crate) struct ClusterPage {
    process: Process,
    pub(crate) base: String,
    pub(crate) client: Client,
}

impl ClusterPage {
    /// Starts one for a control plane, with these flags besides the necessary ones.
    pub(crate) async fn start(control_plane: &ControlPlane, flags: &[&str]) -> Self {
        let dir = folder("cluster-page");
        let authority = dir.join("api-server.crt");
        fs::write(&authority, authority_of(control_plane)).unwrap();
        let tls = dir.join("tls");
        let words = ["ui", "--in-cluster"].map(str::to_owned).into_iter().chain([
            format!("--host={PAGE_HOST}"),
            format!("--tls-dir={}", tls.display()),
            format!("--api-server=https://127.0.0.1:{}", control_plane.port()),
            format!("--api-server-ca={}", authority.display()),
        ]);
        let words = words.chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
        Self::run(words, Vec::new(), (&dir, &tls)).await
    }

    /// Runs one with these arguments and this environment, which keeps its certificate in the second folder.
    pub(crate) async fn run(
        mut arguments: Vec<String>,
        environment: Vec<(String, String)>,
        (dir, tls): (&Path, &Path),
    ) -> Self {
        install_crypto_provider();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        arguments.push(format!("--listen={address}"));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_kubemoor"));
        let mut process = Process::new("ui", program, arguments, dir).with_environment(environment);
        process.start();
        let authority = tls.join("ca.crt");
        let client = eventually("the page has a certificate", SOON, || async {
            let authority = fs::read(&authority).map_err(|error| error.to_string())?;
            let authority = reqwest::Certificate::from_pem(&authority).map_err(|error| error.to_string())?;
            let client = Client::builder().tls_certs_only([authority]).resolve(PAGE_HOST, address);
            client.redirect(redirect::Policy::none()).build().map_err(|error| error.to_string())
        })
        .await;
        let base = format!("https://{PAGE_HOST}:{}/", address.port());
        let page = Self { process, base, client };
        eventually("the page answers", SOON, || async {
            let alive = page.client.get(format!("{}livez", page.base)).send().await;
            alive.map(drop).map_err(|error| format!("{error:?}{}", page.process.tail()))
        })
        .await;
        page
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// A page, as a proxy asks for it that knows whose token that is.
    pub(crate) async fn proxied(&self, token: &str, path: &str) -> PageResponse {
        let request = self.request(Method::GET, path).header(AUTHORIZATION, format!("Bearer {token}"));
        PageResponse::of(request).await
    }

    /// A page, as the browser with this session asks for it.
    pub(crate) async fn get(&self, session: &str, path: &str) -> PageResponse {
        PageResponse::of(self.request(Method::GET, path).header(COOKIE, session)).await
    }

    /// Sends a form, as the browser with these cookies does.
    pub(crate) async fn post(&self, cookies: &str, path: &str, fields: &[(&str, &str)]) -> PageResponse {
        let request = self.request(Method::POST, path).header(COOKIE, cookies);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        PageResponse::of(request.header("sec-fetch-site", "same-origin").body(form(fields))).await
    }

    /// Logs in; the answer.
    pub(crate) async fn log_in(&self, token: &str) -> PageResponse {
        self.post("", "login", &[("token", token)]).await
    }

    /// Logs in; the session's cookie.
    pub(crate) async fn session(&self, token: &str) -> String {
        let shown = self.log_in(token).await;
        assert_eq!(shown.status, StatusCode::SEE_OTHER, "{}", shown.text);
        let cookie = cookie(&shown);
        assert!(cookie.starts_with(SESSION), "{cookie}");
        cookie
    }

    /// The token of the forms on a page.
    pub(crate) async fn form_token(&self, session: &str) -> String {
        let shown = self.get(session, "policies").await;
        form_token(&shown.text)
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

/// The first cookie that an answer sets, without its attributes, which say that it is safe.
fn cookie(shown: &PageResponse) -> String {
    let cookie = shown.headers[SET_COOKIE].to_str().unwrap();
    for part in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.split("; ").any(|it| it == part), "{cookie}");
    }
    assert!(cookie.starts_with("__Host-") && !cookie.contains("Domain"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

/// The authority of the API server's certificate, as a kubeconfig has it.
pub(crate) fn authority_of(control_plane: &ControlPlane) -> String {
    let text = fs::read_to_string(control_plane.kubeconfig(Identity::Admin)).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    match cluster["certificate-authority-data"].as_str() {
        Some(data) => String::from_utf8(STANDARD.decode(data).unwrap()).unwrap(),
        None => fs::read_to_string(cluster["certificate-authority"].as_str().unwrap()).unwrap(),
    }
}
