//! What somebody who reaches the webhook's port, and is not the API server, gets by that: nothing.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::support::{
    Caller, ClientCertificate, ControlPlane, Guard, Identity, POLICED, RELEASE, Review, SOON, Scene, charts,
    eventually, folder, token_file,
};

/// The name of a guard behind `--service=kubemoor-system/kubemoor`.
const SERVICE: &str = "kubemoor.kubemoor-system.svc";

const SECRET: &str = "/api/v1/namespaces/kubemoor-system/secrets/kubemoor-caller";

const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubemoor";

/// A review that nobody but the API server may send: an innocent person in the name of `system:masters` allows
/// every change of the object, its deletion included.
fn forged(namespace: &str, live: &Value) -> String {
    let until = (Timestamp::now() + SignedDuration::from_hours(24 * 30)).to_string();
    let mut edited = live.clone();
    edited["metadata"]["annotations"]["kubemoor.dev/allow"] = json!("*,delete");
    edited["metadata"]["annotations"]["kubemoor.dev/allow-until"] = json!(until);
    edited["data"]["level"] = json!("forged");
    let (old, new) = (live.to_string(), edited.to_string());
    let review = Review::of_settings(namespace, &old, &new);
    let groups = r#""groups":["people"]"#;
    let text = review.text();
    assert!(text.contains(groups));
    text.replace(groups, r#""groups":["system:masters"]"#).replace(r#""alice""#, r#""innocent""#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_posts_a_forged_review_gains_nothing() {
    let shop = Scene::policed().install("door-forged", charts::SETTINGS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    let guard = POLICED.guard().await;
    let mut live = shop.get(&settings).await;
    live["apiVersion"] = json!("v1");
    live["kind"] = json!("ConfigMap");
    let review = forged(&shop.namespace, &live);
    let before = shop.rows(&[]).len();

    for path in ["/validate", "/mutate", "/validate?timeout=10s", "/validate/", "/", "/healthz"] {
        let request = guard.https().post(guard.webhook_url(path)).header(CONTENT_TYPE, "application/json");
        let answer = request.body(review.clone()).send().await.unwrap();
        let (code, words) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert_eq!((code, words.as_str()), (404, ""), "{path}");
    }

    let allowances = shop.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    assert_eq!(shop.get(&allowances).await["items"], json!([]));
    let edit = json!({"data": {"level": "forged"}});
    shop.alice.merge(&settings, &edit).await.refused(RELEASE).unwrap();
    let forged = shop.rows(&["--by", "innocent"]);
    assert!(forged.is_empty() && shop.rows(&[]).len() >= before, "{forged:?}");
    assert!(!guard.log().contains("innocent"), "{}", guard.log());
}

/// An edit that nobody declares anything about: whoever is answered is told that it passes.
fn harmless() -> String {
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"free","namespace":"default"}}"#;
    let (group, kind, resource, namespace, name) = ("", "ConfigMap", "configmaps", "default", "free");
    Review { group, kind, resource, namespace, name, old: object, new: object }.text()
}

/// What a guard answers to a review at this address: the code, and the words of whoever gets no verdict.
async fn ask(guard: &Guard, url: &str) -> (u16, String) {
    let request = guard.https().post(url).header(CONTENT_TYPE, "application/json").body(harmless());
    let answer = request.send().await.unwrap_or_else(|error| panic!("no answer: {error:?}"));
    let (code, words) = (answer.status().as_u16(), answer.text().await.unwrap());
    (code, if code == 200 { String::new() } else { words })
}

/// The paths that are registered.
async fn registered(admin: &Caller) -> Result<BTreeSet<String>, String> {
    let configuration = admin.get(CONFIGURATION).await.done()?;
    let webhooks = configuration["webhooks"].as_array().unwrap();
    let path = |webhook: &Value| {
        let config = &webhook["clientConfig"];
        let address = config["service"]["path"].as_str().or(config["url"].as_str()).unwrap();
        address[address.find("/validate").unwrap()..].to_owned()
    };
    Ok(webhooks.iter().map(path).collect())
}

fn only(paths: BTreeSet<String>) -> Result<String, String> {
    let mut all = paths.into_iter();
    match (all.next(), all.next()) {
        (Some(path), None) => Ok(path),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_almost_right_is_worth_nothing() {
    let file = token_file(&folder("token"));
    let token = fs::read_to_string(&file).unwrap();
    let store = format!("--store=dir:{}", folder("store").display());
    let mut guard =
        Guard::launch(&[&store, &format!("--caller-token-file={}", file.display()), "--log=trace"]);
    guard.ready().await;
    let url = |path: &str| guard.webhook_url(path);
    let other = |digit: &str| if digit == "0" { "1" } else { "0" };
    let (first, last) = (other(&token[..1]), other(&token[63..]));
    let wrong = [
        String::new(),
        "/".to_owned(),
        format!("/{}", &token[..32]),
        format!("/{}", &token[..63]),
        format!("/{token}0"),
        format!("/{token}/"),
        format!("/{first}{}", &token[1..]),
        format!("/{}{last}", &token[..63]),
        format!("/{}", token.to_uppercase().replace(char::is_numeric, "A")),
        format!("/{}", "%30".repeat(64)),
        format!("?token={token}"),
    ];
    for path in &wrong {
        for base in ["/validate", "/mutate", "/observe"] {
            let refused = ask(&guard, &url(&format!("{base}{path}"))).await;
            assert_eq!(refused, (404, String::new()), "{base}{path}");
        }
    }
    assert_eq!(ask(&guard, &url(&format!("/validate/{token}?timeout=3s"))).await.0, 200);
    guard.wait_for_metric(&format!("kubemoor_callers_refused_total {}\n", 3 * wrong.len())).await;

    // Another token follows: both count, then the new one alone.
    let next = fs::read_to_string(token_file(&folder("token"))).unwrap();
    let answers = async |expected: [u16; 2]| {
        eventually("the file is read again", SOON, || async {
            let answer = async |token: &str| ask(&guard, &url(&format!("/validate/{token}"))).await.0;
            let answers = [answer(&token).await, answer(&next).await];
            if answers == expected { Ok(()) } else { Err(format!("{answers:?}")) }
        })
        .await;
    };
    answers([200, 404]).await;
    fs::write(&file, format!("{token}\n{next}\n")).unwrap();
    answers([200, 200]).await;
    fs::write(&file, format!("{next}\n")).unwrap();
    answers([404, 200]).await;
    fs::write(&file, "no token").unwrap();
    guard.wait_for_log("is not a caller token file").await;
    answers([404, 200]).await;
    for token in [&token, &next] {
        assert!(!guard.log().contains(token.as_str()) && !guard.metrics().await.contains(token.as_str()));
    }
    assert!(!guard.log().contains("no token\n") && guard.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn no_edit_slips_through_while_tokens_follow_each_other() {
    let shop = Scene::on(ControlPlane::start()).install("rotation", charts::IMAGE_AND_COLOR).await;
    let flags = ["--register", "--edits=Deny", "--caller-token-age=10s", "--log=trace"];
    let mut guard = shop.start_guard(&flags).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let admin = &shop.admin;
    let mut paths = vec![only(registered(admin).await.unwrap()).unwrap()];
    let edits = AtomicUsize::new(0);
    while paths.len() < 4 {
        let next = eventually("another token follows", SOON, || async {
            for _ in 0..20 {
                let edit = edits.fetch_add(1, Ordering::Relaxed);
                let outcome = shop.data("settings", json!({"image": format!("edit-{edit}")})).await;
                outcome
                    .refusal()
                    .unwrap_or_else(|error| panic!("edit {edit}, token {}: {error}", paths.len()));
            }
            let path = only(registered(admin).await?)?;
            if paths.contains(&path) { Err(format!("{path} stays")) } else { Ok(path) }
        })
        .await;
        paths.push(next);
    }
    for gone in &paths[..2] {
        assert_eq!(ask(&guard, &guard.webhook_url(gone)).await, (404, String::new()), "{gone}");
    }
    // A guard that starts anew goes on where it was.
    guard.kill();
    guard.start_again().await;
    for edit in 0..20 {
        shop.data("settings", json!({"image": format!("again-{edit}")})).await.refusal().unwrap();
    }
    let readiness = guard.https().get(guard.admin_url("/readyz")).send().await.unwrap().text().await.unwrap();
    let said = [guard.log(), guard.metrics().await, readiness];
    for path in &paths {
        let token = path.rsplit('/').next().unwrap();
        assert!(token.len() == 64 && said.iter().all(|said| !said.contains(token)), "a token is told");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_replica_that_does_not_lead_answers_the_registered_address() {
    let control_plane = ControlPlane::start();
    let flags =
        ["--service=kubemoor-system/kubemoor", "--register", "--edits=Deny", "--caller-token-age=10s"];
    let mut leader = Guard::start(&control_plane, &flags).await;
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let path = async || {
        eventually("one address is registered", SOON, || async { only(registered(&admin).await?) }).await
    };
    let first = path().await;
    let follower = Guard::start(&control_plane, &flags).await;
    let answer = async |guard: &Guard, path: &str| {
        ask(guard, &guard.webhook_url(path).replace("127.0.0.1", SERVICE)).await.0
    };
    // Whatever is registered at any time, who does not lead answers it.
    let changes = async |from: &str, guards: &[&Guard]| {
        eventually("another address is registered", SOON, || async {
            let registered = registered(&admin).await.unwrap();
            for path in &registered {
                for guard in guards {
                    assert_eq!(answer(guard, path).await, 200, "{path}");
                }
            }
            let path = only(registered)?;
            if path == from { Err(format!("{from} stays")) } else { Ok(path) }
        })
        .await
    };
    let second = changes(&first, &[&leader, &follower]).await;
    for guard in [&leader, &follower] {
        eventually("the first token is worth nothing", SOON, || async { answer(guard, &first).await == 404 })
            .await;
    }

    // The next leader goes on, also where somebody has removed the Secret.
    leader.kill();
    let third = changes(&second, &[&follower]).await;
    admin.delete(SECRET).await.done().unwrap();
    changes(&third, &[&follower]).await;
    let secret = admin.get(SECRET).await.done().unwrap();
    assert!(secret["data"]["callers.json"].is_string(), "the Secret is not back");
    let events = control_plane.audit_events(&[Identity::Guard.user(), "kubemoor-caller"]);
    let refused = events.iter().filter(|event| {
        event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["name"] == "kubemoor-caller"
            && event["responseStatus"]["code"] == 403
    });
    assert_eq!(refused.count(), 0);
    let told = format!("{}{}{}", leader.log(), follower.log(), follower.metrics().await);
    for path in [first, second, third] {
        assert!(!told.contains(path.rsplit('/').next().unwrap()), "a token is told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_with_client_ca_accepts_only_api_servers_certificate() {
    let (theirs, others) = (ClientCertificate::new(), ClientCertificate::new());
    let shop =
        Scene::on(ControlPlane::start_showing(&theirs)).install("certificate", charts::IMAGE_AND_COLOR).await;
    let file = token_file(&folder("token"));
    let token = fs::read_to_string(&file).unwrap();
    let flags = [
        "--register".to_owned(),
        "--edits=Deny".to_owned(),
        format!("--caller-token-file={}", file.display()),
        format!("--client-ca={}", theirs.authority().display()),
    ];
    let guard = shop.start_guard(&flags.each_ref().map(String::as_str)).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    shop.data("settings", json!({"image": "b"})).await.refusal().unwrap();

    // Who knows the token, and has no certificate or somebody else's, is not heard.
    let url = guard.webhook_url(&format!("/validate/{token}"));
    let post = async |guard: &Guard, url: &str, certificate: Option<&ClientCertificate>| {
        let client = guard.https_showing(certificate);
        client.post(url).header(CONTENT_TYPE, "application/json").body(harmless()).send().await
    };
    for certificate in [None, Some(&others)] {
        assert!(post(&guard, &url, certificate).await.is_err(), "it is heard");
    }
    assert_eq!(post(&guard, &url, Some(&theirs)).await.unwrap().status(), 200);
    let without = guard.webhook_url("/validate");
    assert_eq!(post(&guard, &without, Some(&theirs)).await.unwrap().status(), 404);

    // Without a token the certificate is the proof.
    let store = format!("--store=dir:{}", folder("store").display());
    let mut embedded = Guard::launch(&[&store, &flags[3]]);
    embedded.ready().await;
    let url = embedded.webhook_url("/validate");
    assert_eq!(post(&embedded, &url, Some(&theirs)).await.unwrap().status(), 200);
    assert!(
        post(&embedded, &url, None).await.is_err() && post(&embedded, &url, Some(&others)).await.is_err()
    );
}

/// Under `Fail` the API server tells whomever it refuses the address that it could not reach, token and all.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_token_told_during_an_outage_is_replaced_after_it() {
    let shop = Scene::on(ControlPlane::start()).install("outage", charts::IMAGE_AND_COLOR).await;
    let flags = ["--register", "--edits=Deny", "--caller-token-age=120s"];
    let mut guard = shop.start_guard(&flags).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let admin = &shop.admin;
    let mut configuration = admin.get(CONFIGURATION).await.done().unwrap();
    let webhooks = configuration["webhooks"].as_array_mut().unwrap();
    webhooks.iter_mut().for_each(|webhook| webhook["failurePolicy"] = json!("Fail"));
    admin.put(CONFIGURATION, &configuration).await.done().unwrap();
    let token = guard.token();
    guard.kill();
    let told = eventually("edits fail without the guard", SOON, || async {
        let answer = shop.data("settings", json!({"image": "b"})).await.to_string();
        if answer.contains("failed calling webhook") { Ok(answer) } else { Err(answer) }
    })
    .await;
    assert!(told.contains(&token), "no need to replace it: {told}");

    guard.start_again().await;
    eventually("the token is worth nothing", SOON, || async {
        let answer = ask(&guard, &guard.webhook_url(&format!("/validate/{token}"))).await;
        shop.data("settings", json!({"image": "b"})).await.refusal()?;
        if answer.0 == 404 { Ok(()) } else { Err(answer.1) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_name_releases_are_served_only_to_users_with_the_right() {
    let guard = Guard::start_with_closed_metrics(ControlPlane::get(), &["--read-only"]).await;
    let (with_right, without) = (Identity::Alice.token(), Identity::Autoscaler.token());
    for (token, code) in [(None, 401), (Some("made-up"), 401), (Some(without), 403), (Some(with_right), 200)]
    {
        let request = guard.https().get(guard.admin_url("/metrics"));
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        let answer = request.send().await.unwrap();
        let (found, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert_eq!((found, text.contains("kubemoor_ready")), (code, code == 200), "{token:?}: {text}");
    }
}
