//! What one refused edit leaves in the ledger: a row for each time that the API server asks.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::support::{RELEASE, SOON, Scene, eventually};

const MANY: &str = "
{{- range $name := list `patched` `put` `deleted` `kubectl` }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $name }}}
data: {level: info}
{{- end }}
";

#[tokio::test(flavor = "multi_thread")]
async fn refused_edit_leaves_one_row_per_admission_review() {
    let shop = Scene::policed().install("refusals", MANY).await;
    let at = |name: &str| shop.at("api/v1", &format!("configmaps/{name}"));
    for name in ["patched", "put", "deleted", "kubectl"] {
        shop.wait_until_guarded(&at(name)).await;
    }
    let edit = json!({"data": {"level": "debug"}});
    shop.alice.merge(&at("patched"), &edit).await.refused(RELEASE).unwrap();
    let mut whole = shop.get(&at("put")).await;
    whole["data"]["level"] = json!("debug");
    shop.alice.put(&at("put"), &whole).await.refused(RELEASE).unwrap();
    shop.alice.delete(&at("deleted")).await.refused(RELEASE).unwrap();
    let patch = ["patch", "configmap", "kubectl", "--type=merge", "-p", &edit.to_string()];
    shop.kubectl_as("carol", "people", &patch).unwrap_err();

    // Their order is that of the rows, so the last edit's are the last.
    let rows = eventually("all are in the ledger", SOON, || async {
        let rows = shop.rows(&["--verdict", "Deny"]);
        let names: Vec<_> = rows.iter().map(|row| row["object"]["name"].clone()).collect();
        if names.contains(&json!("kubectl")) { Ok(rows) } else { Err(format!("{names:?}")) }
    })
    .await;
    let mut of: HashMap<(&str, &str), Vec<&Value>> = HashMap::new();
    for row in &rows {
        let text = |value: &'static str| row.pointer(value).and_then(Value::as_str).unwrap();
        of.entry((text("/object/name"), text("/operation"))).or_default().push(row);
    }
    // A deletion is asked about once; of an update the API server asks again with the object from the database,
    // where it had it from its cache before.
    assert_eq!(of[&("deleted", "DELETE")].len(), 1, "{rows:#?}");
    for (name, user) in [("patched", "alice"), ("put", "alice"), ("kubectl", "carol")] {
        let asked = &of[&(name, "UPDATE")];
        assert!((1..=2).contains(&asked.len()), "{name}: {asked:#?}");
        assert!(asked.iter().all(|row| row["user"] == user), "{asked:#?}");
        let reviews: HashSet<_> = asked.iter().map(|row| row["uid"].to_string()).collect();
        assert_eq!(reviews.len(), asked.len(), "a review is a row: {asked:#?}");
    }
}
