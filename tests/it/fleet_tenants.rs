//! The rows of one team in a PostgreSQL that many clusters share: by the statements of the documentation.

use serde_json::{Value, json};

use crate::ledger::{FOREVER, Written, row};
use crate::support::{Document, Postgres, SOON, eventually, run};

/// The sections of the page that a database is set up by.
const SECTION: &str = "## Tenants";

/// Clusters `prod-eu` and `prod-us` with rows of the namespaces `shop` and `bank`.
pub(crate) async fn fill(url: &str) {
    for cluster in ["prod-eu", "prod-us"] {
        let url = url.parse().unwrap();
        let written = Written::start(&url, cluster, FOREVER);
        for (seconds, namespace) in [(1, "shop"), (2, "bank")] {
            written.ledger.record(row(seconds, namespace, "web", "alice", "Deny"));
        }
        let fleet =
            eventually("the ledger is open", SOON, || async { written.ledger.fleet().ok_or("it is not") })
                .await;
        let states = ["shop", "bank"].map(|namespace| crate::ledger_fleet::state(namespace, "web"));
        fleet.write(&states, &[]).await.unwrap();
        fleet.beat(&crate::ledger_fleet::guard()).await.unwrap();
        written.close().await;
    }
}

/// Has the database show each tenant its own rows; `team_shop` those of `shop` in `prod-eu`.
pub(crate) fn divide(server: &Postgres, database: &str) {
    let page = Document::named("docs/fleet.md");
    let statements = page.blocks().into_iter().filter(|it| it.language == "sql" && it.heading == SECTION);
    let statements: Vec<_> = statements.map(|block| block.text).collect();
    assert_eq!(statements.len(), 2);
    statements.iter().for_each(|statement| drop(server.psql(database, statement).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_sees_the_rows_of_its_clusters_and_namespaces_alone() {
    let server = Postgres::start().await;
    let url = server.database();
    let database = url.rsplit_once('/').unwrap().1;
    fill(&url).await;
    divide(&server, database);
    for tenant in [
        "CREATE ROLE team_eu LOGIN; GRANT ledger_tenants TO team_eu; \
         INSERT INTO tenants SELECT 'team_eu', id, NULL FROM clusters WHERE name = 'prod-eu'",
        "CREATE ROLE team_bank LOGIN; GRANT ledger_tenants TO team_bank; \
         INSERT INTO tenants VALUES ('team_bank', NULL, 'bank')",
        "CREATE ROLE nobodys LOGIN; GRANT ledger_tenants TO nobodys",
    ] {
        server.psql(database, tenant).unwrap();
    }
    let pairs = |pairs: &[[&str; 2]]| -> Vec<Value> { pairs.iter().map(|pair| json!(pair)).collect() };
    let (eu_shop, eu_bank, us_bank) = (["prod-eu", "shop"], ["prod-eu", "bank"], ["prod-us", "bank"]);
    for (role, clusters, rows) in [
        ("team_shop", &["prod-eu"][..], &[eu_shop][..]),
        ("team_eu", &["prod-eu"], &[eu_bank, eu_shop]),
        ("team_bank", &["prod-eu", "prod-us"], &[eu_bank, us_bank]),
        ("nobodys", &[], &[]),
        // The guards' own role sees everything.
        ("moor", &["prod-eu", "prod-us"], &[eu_bank, eu_shop, us_bank, ["prod-us", "shop"]]),
    ] {
        let ledger = format!("--ledger={}", url.replace("moor@", &format!("{role}@")));
        let seen = run(&["fleet", &ledger, "-o", "json"], "").items();
        let seen: Vec<_> = seen.iter().map(|row| row["cluster"].as_str().unwrap()).collect();
        assert_eq!(seen, clusters, "{role}");
        let mut seen: Vec<_> = run(&["fleet", "releases", &ledger, "-o", "json"], "")
            .items()
            .iter()
            .map(|row| json!([row["cluster"], row["namespace"]]))
            .collect();
        seen.sort_by_key(Value::to_string);
        assert_eq!(seen, pairs(rows), "{role}");
        let audit = run(&["audit", &ledger, "-A", "--since", "2020-01-01T00:00:00Z", "-o", "json"], "");
        assert_eq!(audit.code, 0, "{role}: {audit:?}");
        let rows_of_audit = audit.items();
        let mut seen: Vec<_> =
            rows_of_audit.iter().map(|row| json!([row["cluster"], row["namespace"]])).collect();
        seen.sort_by_key(Value::to_string);
        assert_eq!(seen, pairs(rows), "{role}");
    }
    // What would show more than that is not granted.
    for hidden in ["sealing_key", "ledger", "fleet"] {
        let asked = format!("SET ROLE team_shop; SELECT * FROM {hidden}");
        let refused = server.psql(database, &asked).unwrap_err();
        assert!(refused.contains("permission denied"), "{refused}");
    }
    let others = server.psql(database, "SET ROLE team_shop; SELECT role FROM tenants").unwrap();
    assert!(others.contains("team_shop") && !others.contains("team_eu"), "{others}");
}
