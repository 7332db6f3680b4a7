//! Lists that are longer than a page: what is left out is one step away.

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde_json::{Value, json};

use crate::support::{Caller, Identity, Page, RELEASE, SOON, Scene, eventually};

/// More objects than a page shows, and one with more fields than a list of objects shows.
const MANY: &str = r#"
{{- range $number := until 130 }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: part-{{ $number }}, labels: {part: many}}
data: {a: b}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: wide}
data:
{{- range $number := until 60 }}
  key-{{ $number }}: fast
{{- end }}
"#;

const EXCEPTIONS: usize = 301;

/// The address of the link whose text holds these words.
fn link(page: &str, words: &str) -> String {
    let mut links = page.split("<a ").skip(1).filter_map(|rest| rest.split_once("</a>"));
    let (found, _) =
        links.find(|(link, _)| link.contains(words)).unwrap_or_else(|| panic!("{words}: {page}"));
    let (_, address) = found.split_once("href=\"").unwrap();
    address.split('"').next().unwrap().replace("&amp;", "&")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn objects_and_fields_beyond_a_page_have_pages_of_their_own() {
    let scene = Scene::own().install("long", MANY).await;
    let all = format!("{}?labelSelector=part%3Dmany", scene.core("configmaps"));
    scene.admin.delete(&all).await.done().unwrap();
    let values: serde_json::Map<String, Value> =
        (0..60).map(|number| (format!("key-{number}"), json!("slow"))).collect();
    scene.data("wide", Value::Object(values)).await.done().unwrap();
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let release = format!("release?namespace={}&name={RELEASE}", scene.namespace);
    let name = Regex::new("<h3><code>ConfigMap/([a-z0-9-]+)</code>").unwrap();
    let named = |text: &str| name.captures_iter(text).map(|found| found[1].to_owned()).collect::<Vec<_>>();
    let first = page.text(&release).await;
    let second = page.text(&link(&first, "rel=\"next\"")).await;
    let (mut names, rest) = (named(&first), named(&second));
    assert_eq!((names.len(), rest.len()), (100, 31), "{first}");
    names.extend(rest);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 131, "each of them once");
    assert!(second.contains("Page 2 of 2"), "{second}");

    let wide = if named(&first).contains(&"wide".to_owned()) { &first } else { &second };
    let own = page.text(&link(wide, "and 10 more fields")).await;
    assert_eq!(own.matches("<code>/data/key-").count(), 60, "{own}");
    assert_eq!(named(&own), ["wide"]);
    let back = page.text(&link(&own, "All objects of the release")).await;
    assert_eq!(named(&back).len(), 100);
    let absent = page.text(&format!("{release}&object=configmap/none&in={}", scene.namespace)).await;
    assert!(absent.contains("matches its release, or does not belong to it"), "{absent}");
}

/// Makes as many exceptions as are more than a page.
async fn make_exceptions(admin: &Caller, path: &str) {
    let soon = Timestamp::now().checked_add(SignedDuration::from_hours(2)).unwrap();
    let soon = &soon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let make = |number: usize| async move {
        let exception = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
            "metadata": {"name": format!("exception-{number:03}")},
            "spec": {
                "object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data/level"],
                "until": soon,
            },
        });
        eventually("an exception is made", SOON, || async { admin.post(path, &exception).await.done() })
            .await;
    };
    make(0).await;
    futures::stream::iter(1..EXCEPTIONS).map(make).buffer_unordered(16).collect::<Vec<_>>().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn exceptions_beyond_a_page_are_listed_and_counted() {
    let scene = Scene::own().prepare("exceptions", crate::support::charts::SETTINGS).await;
    let path = scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    make_exceptions(&scene.admin, &path).await;
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let list = page.text("exceptions").await;
    assert!(list.contains("Page 1 of 2"), "{list}");
    let second = page.text(&link(&list, "rel=\"next\"")).await;
    assert_eq!(list.matches("<tr><th scope=\"row\">").count(), 300);
    assert_eq!(second.matches("<tr><th scope=\"row\">").count(), 1, "{second}");

    let overview = async |words: &'static str| {
        eventually(words, SOON, || async {
            let text = page.text("").await;
            if text.contains(words) { Ok(()) } else { Err(text) }
        })
        .await;
    };
    overview("301 open exceptions").await;
    scene.admin.delete(&format!("{path}/exception-000")).await.done().unwrap();
    overview("300 open exceptions").await;
}
