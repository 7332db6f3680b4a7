//! Writes the built-in catalog of core kinds, `crates/kubemoor-declare/src/catalog/core.json`,
//! from a server's own OpenAPI documents:
//!
//! ```text
//! kubectl proxy --port 8001 &
//! cargo run --example core_kinds -- http://127.0.0.1:8001 > crates/kubemoor-declare/src/catalog/core.json
//! cargo run --example core_kinds -- v3/*.json v2.json > crates/kubemoor-declare/src/catalog/core.json
//! ```
//!
//! Arguments are base URLs of servers and files with OpenAPI documents of
//! version 2 or 3, the newest server first: what an earlier document defines
//! stays, later ones add the kinds and versions that it no longer has.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use kubemoor_declare::catalog::{KindFacts, priority};
use kubemoor_declare::model::Gvk;
use kubemoor_declare::{catalog, openapi};
use serde_json::Value;

/// The groups of kinds that charts hold.
const GROUPS: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut documents = Vec::new();
    for source in std::env::args().skip(1) {
        match source.starts_with("http") {
            true => documents.extend(fetch(&source).await?),
            false => documents.push(std::fs::read(&source).with_context(|| format!("cannot read {source}"))?),
        }
    }
    if documents.is_empty() {
        bail!("name at least one OpenAPI document or the base URL of a server");
    }
    let mut facts: BTreeMap<(String, String), KindFacts> = BTreeMap::new();
    for document in &documents {
        for found in openapi::facts(document)? {
            if !GROUPS.contains(&found.group.as_str()) {
                continue;
            }
            let key = (found.group.clone(), found.kind.clone());
            let known =
                facts.entry(key).or_insert_with(|| KindFacts { versions: Vec::new(), ..found.clone() });
            let new = found.versions.into_iter().filter(|version| !known.versions.contains(version));
            known.versions.extend(new.collect::<Vec<_>>());
            known.scale_replicas_path = known.scale_replicas_path.take().or(found.scale_replicas_path);
        }
    }
    for facts in facts.values_mut() {
        facts.versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    }
    let mut reduction = openapi::Reduction::default();
    let wanted = |gvk: &Gvk| facts.contains_key(&(gvk.group.clone(), gvk.kind.clone()));
    for document in &documents {
        reduction.add(document, &wanted)?;
    }
    let facts: Vec<KindFacts> = facts.into_values().collect();
    print_text(&catalog::encode(&facts, &reduction.finish())?)
}

fn print_text(text: &str) -> Result<()> {
    use std::io::Write;
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the catalog to standard output")
}

/// The documents of a server: version 3 where it serves them, else version 2.
async fn fetch(server: &str) -> Result<Vec<Vec<u8>>> {
    let server = server.trim_end_matches('/');
    let index = reqwest::get(format!("{server}/openapi/v3")).await?;
    if !index.status().is_success() {
        let document = reqwest::get(format!("{server}/openapi/v2")).await?.error_for_status()?;
        return Ok(vec![document.bytes().await?.to_vec()]);
    }
    let index: Value = index.json().await?;
    let paths = index.get("paths").and_then(Value::as_object).context("the index lists no paths")?;
    let mut documents = Vec::new();
    for (name, entry) in paths {
        let version = name.rsplit('/').next().unwrap_or_default();
        let Some(url) = entry.get("serverRelativeURL").and_then(Value::as_str) else { continue };
        if name.starts_with("api") && version.starts_with('v') {
            let document = reqwest::get(format!("{server}{url}")).await?.error_for_status()?;
            documents.push(document.bytes().await?.to_vec());
        }
    }
    Ok(documents)
}
