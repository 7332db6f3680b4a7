//! The web page of `kubemoor ui --in-cluster`: who is let in, and who sees what.

use std::fs;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, SET_COOKIE};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::{
    Browser, Caller, Chart, ClusterPage, ControlPlane, ENTER, HOME, Helm, House, Identity, Look, Member,
    PAGE_HOST, PageResponse, RELEASE, RbacRule, SOON, Scene, WARNING, charts, eventually, folder, form,
    form_token, wait_until_guarded,
};
use crate::web::assert_holds;

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";

const FORM: &str = "application/x-www-form-urlencoded";

/// The account of the page may do nothing.
fn assert_page_has_no_rights(control_plane: &ControlPlane) {
    let account = format!("system:serviceaccount:{HOME}:kubemoor-ui");
    for right in ["guardedreleases.kubemoor.dev", "secrets", "configmaps"] {
        let asked = ["auth", "can-i", "list", right, "-A", "--as", &account];
        assert!(!control_plane.kubectl(Identity::Admin, &asked).status.success(), "{right}");
    }
}

/// A member without rights in a namespace sees and does nothing there.
async fn assert_nothing_for(nobody: &Member, page: &ClusterPage, here: &str) {
    let list = format!("releases?namespace={here}");
    let rows = format!("ledger?namespace={here}&verdict=Deny");
    let whole = format!("namespace={here}&name={RELEASE}");
    for path in ["", "releases", &list, &rows, "exceptions", "policies", &format!("release?{whole}")] {
        let shown = page.proxied(&nobody.token(), path).await;
        let text = shown.text.replace(here, "").replace(&format!("release {RELEASE}"), "");
        assert!(shown.text.contains("member-"), "{path}: {text}");
        for word in ["settings", "/data/mode", ">1</strong>", "1 release<", "alice"] {
            assert!(!text.contains(word), "{path}: {word} is in {text}");
        }
    }
    let act = format!("act?do=suspend&{whole}");
    let confirm = page.proxied(&nobody.token(), &act).await;
    let token = form_token(&confirm.text);
    let order = page.request(Method::POST, "act").header(AUTHORIZATION, format!("Bearer {}", nobody.token()));
    let fields = [("token", token.as_str()), ("do", "suspend"), ("namespace", here), ("name", RELEASE)];
    let denied = PageResponse::of(order.header(CONTENT_TYPE, FORM).body(form(&fields))).await;
    assert_eq!(denied.status, StatusCode::FORBIDDEN, "{}", denied.text);
    assert_holds(&denied.text, &["no permission"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_page_shows_each_user_only_permitted_data() {
    let house = House::shared().await;
    let control_plane = house.control_plane;
    let here = control_plane.namespace("shop").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let shop = Chart::new(RELEASE).template("all.yaml", SETTINGS);
    helm.install(&here, RELEASE, &shop, json!({})).await.unwrap();
    let settings = format!("/api/v1/namespaces/{here}/configmaps/settings");
    let alice = Caller::new(control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    alice.merge(&settings, &json!({"data": {"mode": "slow"}})).await.refused(RELEASE).unwrap();

    let page = house.chart.start_page(&house.pod).await;
    assert_page_has_no_rights(control_plane);
    let rights = [RbacRule::parse("get,list,watch guardedreleases.kubemoor.dev")];
    let (reader, nobody) = (Member::new(control_plane).await, Member::new(control_plane).await);
    reader.may(&rights, Some(&here)).await;
    let list = format!("releases?namespace={here}");
    let rows = format!("ledger?namespace={here}&verdict=Deny");

    let listed = || async {
        let shown = page.proxied(&reader.token(), &list).await;
        if shown.text.contains("1 release") { Ok(shown.text) } else { Err(shown.text) }
    };
    assert_holds(&eventually("the reader sees the release", SOON, listed).await, &[RELEASE, "member-"]);
    let recorded = || async {
        let shown = page.proxied(&reader.token(), &rows).await;
        if shown.text.contains("ConfigMap/settings") { Ok(()) } else { Err(shown.text) }
    };
    eventually("the reader sees the ledger's row", SOON, recorded).await;
    // Whoever sees it with a session sees the same.
    let session = page.session(&reader.token()).await;
    assert_holds(&page.get(&session, &list).await.text, &["1 release", "Log out"]);
    assert_nothing_for(&nobody, &page, &here).await;

    // Rights that end are gone from the page as well, and so is who has no account any more.
    reader.delete().await;
    let gone = || async {
        let shown = page.proxied(&reader.token(), &list).await;
        if shown.status == StatusCode::UNAUTHORIZED { Ok(shown.text) } else { Err(shown.status.to_string()) }
    };
    let gone = eventually("the reader is not known any more", SOON, gone).await;
    assert!(!gone.contains(RELEASE) && gone.contains("Log in"), "{gone}");
    for token in [reader.token(), nobody.token()] {
        assert!(!page.log().contains(token.split('.').next_back().unwrap()), "a token is logged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_requires_a_token_that_the_cluster_accepts() {
    let control_plane = ControlPlane::get();
    let page = ClusterPage::start(control_plane, &[]).await;
    let member = Member::new(control_plane).await;
    let bearer = format!("Bearer {}", member.token());
    let get = |path: &str| page.request(Method::GET, path);
    let changed = format!("{}x", member.token());
    let huge = |length: usize| format!("__Host-kubemoor={}", "A".repeat(length));
    let session = page.session(&member.token()).await;
    let (name, value) = session.split_once('=').unwrap();
    let half = format!("{name}={}", &value[..value.len() / 2]);
    for (what, request, status) in [
        ("nothing", get(""), 401),
        ("the stream", get("stream"), 401),
        ("an export", get("ledger.csv"), 401),
        ("a page that would lead to itself", get("releases/"), 404),
        ("a password", get("").header(AUTHORIZATION, "Basic YWxpY2U6c2VjcmV0"), 401),
        ("no token", get("").header(AUTHORIZATION, "Bearer "), 401),
        ("a wrong token", get("").header(AUTHORIZATION, format!("Bearer {changed}")), 401),
        ("two tokens", get("").header(AUTHORIZATION, &bearer).header(AUTHORIZATION, &bearer), 401),
        (
            "a wrong token beside a session",
            get("").header(AUTHORIZATION, "Bearer x").header(COOKIE, &session),
            401,
        ),
        ("a plain token as a cookie", get("").header(COOKIE, format!("{name}={}", member.token())), 401),
        ("half a session", get("").header(COOKIE, half), 401),
        ("a large cookie", get("").header(COOKIE, huge(30_000)), 401),
        ("a huge token", get("").header(AUTHORIZATION, format!("Bearer {}", "a".repeat(20_000))), 401),
        ("another name", get("").header(AUTHORIZATION, &bearer).header(HOST, "evil.example"), 421),
        ("the address", get("").header(AUTHORIZATION, &bearer).header(HOST, "127.0.0.1"), 421),
        ("a name before it", get("login").header(HOST, format!("{PAGE_HOST}.evil.example")), 421),
        ("another port", get("").header(AUTHORIZATION, &bearer).header(HOST, format!("{PAGE_HOST}:1")), 200),
        ("a probe", get("livez").header(HOST, "10.1.2.3"), 200),
        ("a token", get("").header(AUTHORIZATION, &bearer), 200),
        ("a session", get("").header(COOKIE, &session), 200),
    ] {
        let shown = PageResponse::of(request).await;
        assert_eq!(shown.status.as_u16(), status, "{what}: {}", shown.text);
        if !matches!(status, 200 | 431) {
            assert!(!shown.text.contains("member-"), "{what}: {}", shown.text);
            assert_eq!(shown.headers["cache-control"], "no-store", "{what}");
            assert!(shown.headers.contains_key("content-security-policy"), "{what}");
        }
    }
    // It is refused before all of it has come, which may break the connection.
    if let Ok(refused) = get("").header(COOKIE, huge(500_000)).send().await {
        assert_eq!(refused.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let shown = PageResponse::of(get("").header(AUTHORIZATION, &bearer)).await;
    assert!(!shown.headers.contains_key(SET_COOKIE), "a proxy's visitor gets no session");
    assert!(shown.headers.contains_key("strict-transport-security"));
    assert!(!shown.text.contains("Log out"), "{}", shown.text);
    assert!(!page.log().contains(member.token().split('.').next_back().unwrap()), "a token is logged");
}

/// Nobody is logged in by another site, or without a token.
async fn assert_foreign_logins_are_refused(page: &ClusterPage, token: &str) {
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        let request = page.request(Method::POST, "login").header(name, value);
        assert_eq!(
            PageResponse::of(request.header(CONTENT_TYPE, FORM).body(form(&[("token", token)]))).await.status,
            StatusCode::FORBIDDEN,
            "{value}"
        );
    }
    for (wrong, status) in [("", 400), ("a b", 400), ("not-a-token", 401), ("a".repeat(4000).as_str(), 400)] {
        let shown = page.log_in(wrong).await;
        assert_eq!(shown.status.as_u16(), status, "{}", shown.text);
        assert!(!shown.text.contains("not-a-token"), "{}", shown.text);
    }
}

/// A cookie that was there before is not taken up.
async fn assert_login_makes_a_new_session(page: &ClusterPage, token: &str) {
    let planted = page.session(token).await;
    let shown = page.post(&planted, "login", &[("token", token)]).await;
    let set = shown.headers[SET_COOKIE].to_str().unwrap();
    assert!(!set.contains(planted.split_once('=').unwrap().1) && !set.contains(token), "{set}");
}

/// Sends an order in a session with the proof of a form, which is refused with these words.
async fn assert_order_is_refused(page: &ClusterPage, session: &str, proof: &str, says: &str) {
    let fields = [("do", "suspend"), ("namespace", "default"), ("name", "none"), ("token", proof)];
    let shown = page.post(session, "act", &fields).await;
    assert_eq!(shown.status, StatusCode::FORBIDDEN, "{says}: {}", shown.text);
    assert!(shown.text.contains(says), "{says}: {}", shown.text);
}

/// A logout takes a form of the visitor's own, and deletes the browser's cookie.
async fn assert_logout_deletes_cookie(page: &ClusterPage, session: &str) {
    let own = page.form_token(session).await;
    assert_eq!(page.post(session, "logout", &[]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(page.get(session, "").await.status, StatusCode::OK);
    let left = page.post(session, "logout", &[("token", &own)]).await;
    assert_eq!(left.status, StatusCode::SEE_OTHER, "{}", left.text);
    let set = left.headers[SET_COOKIE].to_str().unwrap();
    assert!(set.starts_with("__Host-kubemoor=;") && set.contains("Max-Age=0"), "{set}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_begins_with_login_and_ends_with_logout() {
    let control_plane = ControlPlane::get();
    let key = folder("session-key").join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef0123456789").unwrap();
    let flag = format!("--session-key={}", key.display());
    let page = ClusterPage::start(control_plane, &[&flag]).await;
    let member = Member::new(control_plane).await;
    let token = member.token();

    assert_foreign_logins_are_refused(&page, &token).await;
    assert_login_makes_a_new_session(&page, &token).await;

    // Forms count for their visitor, on all replicas.
    let second = ClusterPage::start(control_plane, &[&flag]).await;
    let stranger = ClusterPage::start(control_plane, &[]).await;
    let session = page.session(&token).await;
    for (page, status) in [(&second, 200), (&stranger, 401)] {
        assert_eq!(page.get(&session, "").await.status.as_u16(), status);
    }
    let another = Member::new(control_plane).await;
    let theirs = page.session(&another.token()).await;
    let foreign = "not from your page";
    assert_order_is_refused(&page, &session, "", foreign).await;
    assert_order_is_refused(&page, &session, &page.form_token(&theirs).await, foreign).await;
    let own = second.form_token(&session).await;
    assert_order_is_refused(&page, &session, &own, "no permission").await;

    assert_logout_deletes_cookie(&page, &session).await;
    assert_eq!(page.get(&theirs, "").await.status, StatusCode::OK, "another's session");
    for page in [&page, &second] {
        assert!(!page.log().contains(token.split('.').next_back().unwrap()), "a token is logged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copied_cookie_is_worth_its_token_until_the_token_ends() {
    let control_plane = ControlPlane::get();
    let key = folder("copied-cookie").join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef0123456789").unwrap();
    let flag = format!("--session-key={}", key.display());
    let first = ClusterPage::start(control_plane, &[&flag]).await;
    let (owner, other) = (Member::new(control_plane).await, Member::new(control_plane).await);
    let (copy, theirs) = (first.session(&owner.token()).await, first.session(&other.token()).await);
    assert_logout_deletes_cookie(&first, &copy).await;
    // No replica keeps a list of logins: also one that has just started lets the copy in, and no longer than the token.
    let second = ClusterPage::start(control_plane, &[&flag]).await;
    for page in [&first, &second] {
        assert_eq!(page.get(&copy, "").await.status, StatusCode::OK);
    }
    owner.delete().await;
    for page in [&first, &second] {
        eventually("the copy is refused", SOON, || async {
            let status = page.get(&copy, "").await.status;
            if status == StatusCode::UNAUTHORIZED { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        assert_eq!(page.get(&theirs, "").await.status, StatusCode::OK, "another's session");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_that_one_visitor_reads_are_shown_to_no_other() {
    let scene = Scene::on_cluster(&WARNING).install("visitors", charts::SETTINGS).await;
    scene.wait_for_confirmed(1).await;
    let control_plane = &scene.control_plane;
    let page = ClusterPage::start(control_plane, &[]).await;
    let rights = [RbacRule::parse("get,list,watch guardedreleases.kubemoor.dev")];
    let (all, one, none) = (
        Member::new(control_plane).await,
        Member::new(control_plane).await,
        Member::new(control_plane).await,
    );
    all.may(&rights, None).await;
    one.may(&rights, Some(&scene.namespace)).await;
    let list = format!("releases?namespace={}", scene.namespace);
    let seen = async |member: &Member, path: &str| page.proxied(&member.token(), path).await.text;
    for _ in 0..2 {
        eventually("it is seen by who may list all", SOON, || async {
            let text = seen(&all, &list).await;
            if text.contains("1 release") { Ok(()) } else { Err(text) }
        })
        .await;
        assert_holds(&seen(&one, &list).await, &["1 release"]);
        for (member, path) in
            [(&one, "releases"), (&one, ""), (&none, "releases"), (&none, ""), (&none, &list)]
        {
            let text = seen(member, path).await.replace(&scene.namespace, "");
            assert!(text.contains("no permission") && !text.contains(">shop<"), "{path}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_visitor_opens_only_so_many_streams_and_holds_up_no_other() {
    let control_plane = ControlPlane::get();
    let page = ClusterPage::start(control_plane, &[]).await;
    let (greedy, other) = (Member::new(control_plane).await, Member::new(control_plane).await);
    let open = async |member: &Member| {
        let request = page.request(Method::GET, "stream");
        request.header(AUTHORIZATION, format!("Bearer {}", member.token())).send().await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(open(&greedy).await);
    }
    assert!(streams.iter().all(|stream| stream.status() == StatusCode::OK));
    assert_eq!(open(&greedy).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(open(&other).await.status(), StatusCode::OK);
    for member in [&greedy, &other] {
        assert_eq!(page.proxied(&member.token(), "policies").await.status, StatusCode::OK);
    }
    drop(streams);
    eventually("a place is free again", SOON, || async {
        let status = open(&greedy).await.status();
        if status == StatusCode::OK { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_logs_in_and_out_in_a_browser() {
    let control_plane = ControlPlane::get();
    let page = ClusterPage::start(control_plane, &["--host=localhost"]).await;
    let member = Member::new(control_plane).await;
    let address = page.base.replace(PAGE_HOST, "localhost");
    for look in Look::ALL {
        let browser = Browser::start(look).await;
        browser.go(&address).await;
        browser.wait_for("Bearer token of the cluster").await;
        browser.inspect("login").await;
        // The field has the focus.
        browser.press(&member.token()).await;
        browser.press(ENTER).await;
        browser.wait_for("Log out").await;
        browser.inspect("visitor").await;
        browser.tab_to("Log out").await;
        browser.press(ENTER).await;
        browser.wait_for("Bearer token of the cluster").await;
        browser.go(&format!("{address}releases")).await;
        browser.wait_for("Bearer token of the cluster").await;
        browser.end().await;
    }
}
