//! What the documentation says of policies, held against the program: precedence, flaws, the library.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use kubemoor_declare::model::{DriftMode, EditsMode, ReleaseId};
use kubemoor_policy::Policy;
use kubemoor_policy::compile::read;
use kubemoor_policy::flaw::FlawReason;
use kubemoor_policy::resolver::{Labels, Policies};

use crate::support::{Document, names, root};

#[test]
fn the_table_of_precedence_is_what_policies_come_to() {
    let document = Document::named("docs/policies.md");
    let rows = document.table("## Precedence");
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let texts: Vec<(String, String)> = names(&row[0])
            .into_iter()
            .map(|text| {
                let (name, spec) = text.split_once(": ").unwrap();
                let head = "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy";
                (name.to_owned(), format!("{head}\nmetadata: {{name: {name}}}\nspec: {spec}\n"))
            })
            .collect();
        let (accepted, flaws) = read(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        assert_eq!(flaws, [], "{row:?}");
        let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, Duration::from_secs(3600));
        let policies = Policies::new(defaults, &Labels::new(), accepted);
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let policy = policies.resolve(&release, &Labels::new());
        let by = |name: &Option<String>| {
            name.as_ref().map_or("default".to_owned(), |name| format!("policy {name}"))
        };
        let told = [
            format!("`{:?}` by {}", policy.edits, by(&policy.edits_by)),
            format!("`{:?}` by {}", policy.drift, by(&policy.drift_by)),
        ];
        assert_eq!(row[1..], told, "{row:?}");
    }
}

#[test]
fn every_reason_why_a_policy_is_refused_is_explained() {
    let document = Document::named("docs/policy-checks.md");
    let rows = document.table("## What is wrong with a policy");
    let told: Vec<_> = rows.iter().map(|row| names(&row[0])[0].to_owned()).collect();
    let known: Vec<_> = FlawReason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    assert_eq!(told, known);
}

#[test]
fn every_library_policy_is_documented_and_has_a_test() {
    let yaml = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".yaml")).collect()
    };
    let document = Document::named("policies/README.md");
    let listed: BTreeSet<_> =
        document.table("# Policies").iter().map(|row| names(&row[0])[0].to_owned()).collect();
    assert_eq!(listed, yaml("policies"));
    assert_eq!(yaml("policies/tests"), yaml("policies"));
    for file in yaml("policies") {
        let text = fs::read_to_string(root().join("policies").join(&file)).unwrap();
        assert!(text.contains("# Symptom: ") && text.contains("# Cure: "), "{file}");
        assert_eq!(read([(file.as_str(), text.as_str())]).1, []);
    }
}
