//! What the documentation says, held against the program: flags, metrics, log
//! lines, tables and links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::CommandFactory;
use jiff::Timestamp;
use kubemoor::cli::Cli;
use kubemoor_declare::model::ReleaseId;
use kubemoor_ledger::query::verdicts;
use kubemoor_runtime::metrics::{
    self, AdmissionMetrics, ConnectionEnd, ConnectionMetrics, Decision, EmergencyMetrics, EventFate,
    GuardMetrics, LedgerMetrics, LedgerWriteResult, NoticeMetrics, NotificationFate, RecheckResult,
    RecordFault, RecordMetrics, ReleaseMetricState, RepairResult, ServingState, StatusWrite, Webhook,
    registry,
};
use prometheus_client::encoding::text::encode;

use crate::support::{Document, documents, names, root, run};

/// Helm's flags that the documents name.
const HELMS: [&str; 10] = [
    "--atomic",
    "--cleanup-on-fail",
    "--force-conflicts",
    "--no-hooks",
    "--reuse-values",
    "--rollback-on-failure",
    "--server-side",
    "--set",
    "--take-ownership",
    "--values",
];

#[test]
fn documented_flags_exist_and_serve_flags_are_documented() {
    let cli = Cli::command();
    let mut known = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
    let mut open: Vec<_> = cli.get_subcommands().collect();
    while let Some(command) = open.pop() {
        known.extend(command.get_arguments().filter_map(|it| it.get_long()).map(|it| format!("--{it}")));
        open.extend(command.get_subcommands());
    }
    for document in documents() {
        for span in document.code().iter().filter(|span| span.starts_with("--") && span.len() > 3) {
            let flag = span.split([' ', '=']).next().unwrap();
            // Named as Helm's where it stands.
            let helms = HELMS.contains(&flag);
            assert!(helms || known.contains(flag), "{}: {flag}", document.path.display());
        }
    }
    let rows = Document::named("docs/operations.md").table("## Flags of `kubemoor serve`");
    let documented: BTreeSet<_> = rows.iter().flat_map(|row| names(&row[0])).map(str::to_owned).collect();
    let serve = cli.find_subcommand("serve").unwrap();
    let flags = serve.get_arguments().filter_map(|it| it.get_long()).filter(|it| *it != "help");
    let flags: BTreeSet<_> = flags.filter(|it| *it != "version").map(|it| format!("--{it}")).collect();
    assert_eq!(documented, flags);
}

#[test]
fn the_command_reference_is_what_the_program_says() {
    let said = run(&["reference"], "");
    assert_eq!(said.code, 0, "{said:?}");
    let told = Document::named("docs/cli.md").text;
    assert!(said.out == told, "docs/cli.md is out of date: run `make reference`");
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        assert!(told.contains(&format!("## `kubemoor {}", command.get_name())), "{}", command.get_name());
    }
}

#[test]
fn the_metrics_and_their_labels_are_those_of_the_program() {
    let text = scrape();
    let mut real: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffix = if kind == "counter" { "_total" } else { "" };
        real.insert(format!("{name}{suffix}"), BTreeSet::new());
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = line.split_once('{') else { continue };
        let name = name.trim_end_matches("_bucket").trim_end_matches("_count").trim_end_matches("_sum");
        let keys = labels.split("=\"").filter_map(|part| part.rsplit(['{', ',', ' ', '"']).next());
        let keys = keys.filter(|key| !key.is_empty() && key.starts_with(char::is_alphabetic) && *key != "le");
        let known: Vec<_> = keys.filter(|key| labels.contains(&format!("{key}=\""))).collect();
        real.get_mut(name)
            .unwrap_or_else(|| panic!("{name} has no type"))
            .extend(known.into_iter().map(str::to_owned));
    }
    let documented = Document::named("docs/metrics.md").table("## All metrics");
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in &documented {
        // Behind each label stand its values, in brackets.
        let labels = row[1].split(')').flat_map(|part| names(part.split('(').next().unwrap()));
        told.insert(names(&row[0])[0].to_owned(), labels.map(str::to_owned).collect());
    }
    assert_eq!(told, real);

    for document in documents() {
        let words = document.text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        // The ledger's table of versions is not a metric.
        for name in words.filter(|word| word.starts_with("kubemoor_") && *word != "kubemoor_migrations") {
            assert!(real.contains_key(name), "{}: {name} is no metric", document.path.display());
        }
    }
}

#[test]
fn documented_ledger_verdicts_match_the_audit_filter() {
    let rows = Document::named("docs/ledger-rows.md").table("# The rows of the ledger");
    let words: BTreeSet<_> = rows.iter().flat_map(|row| names(&row[2])).collect();
    // What else the cells name.
    let told: BTreeSet<_> =
        words.into_iter().filter(|word| !["failurePolicy", "unreached", "detail"].contains(word)).collect();
    let known: BTreeSet<_> = verdicts().collect();
    assert!(told.is_subset(&known), "{:?}", told.difference(&known));
    // Helm's states are Helm's to document.
    let missing: Vec<_> =
        known.difference(&told).filter(|word| word.starts_with(char::is_uppercase)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// One sample of every metric, as a scrape shows it.
fn scrape() -> String {
    let mut registry = registry();
    let connections = ConnectionMetrics::register(&mut registry);
    let admission = AdmissionMetrics::register(&mut registry);
    let records = RecordMetrics::register(&mut registry, || [("deployed", 1)]);
    metrics::register_declarations(&mut registry, || [1, 1]);
    let validity = Some((Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH));
    metrics::register_serving(&mut registry, move || ServingState { is_ready: true, validity });
    let guard = GuardMetrics::register(&mut registry);
    let notices = NoticeMetrics::register(&mut registry);
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    metrics::register_releases(&mut registry, true, move || {
        [ReleaseMetricState { release: release.clone(), reason: "Drifted", drifted: 1 }]
    });
    EmergencyMetrics::register(&mut registry).set_enforcement_disabled(true);
    let ledger = LedgerMetrics::register(&mut registry);
    let components = sources(&root().join("crates/kubemoor-runtime/src")).into_iter();
    let components = components.filter(|(path, _)| path.to_string_lossy().contains("src/metrics"));
    let components: String = components.map(|(_, text)| text).collect();
    assert_eq!(components.matches("fn register").count(), 10, "a component's metrics are not looked at");

    drop(connections.opened());
    connections.ended(ConnectionEnd::Closed);
    admission.answered(Webhook::Edits, Decision::Deny, "drift", Duration::from_millis(1));
    admission.malformed();
    records.undecodable(RecordFault::Syntax);
    records.count_recheck(RecheckResult::Changed);
    notices.leads(true);
    notices.status(StatusWrite::Written);
    notices.event(EventFate::Written);
    notices.notification(NotificationFate::Delivered);
    notices.missed(1);
    guard.found("missing");
    guard.repaired("missing", RepairResult::Repaired);
    guard.repaired_after("missing", jiff::SignedDuration::from_millis(1));
    guard.detected_after(jiff::SignedDuration::from_millis(1));
    ledger.written(LedgerWriteResult::Database, 1);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[test]
fn every_warning_of_the_log_is_explained() {
    let explained = Document::named("docs/log-messages.md").text.replace('\n', " ");
    let (mut seen, mut silent) = (0, Vec::new());
    for (path, text) in program() {
        for (mark, end) in [("warn!(", ");"), ("error!(", ");"), ("const UNWATCHED: &'static str = ", ";")] {
            for (place, _) in text.match_indices(mark) {
                let statement = text[place..].split(end).next().unwrap();
                // The words are a constant of each kind of objects, which is looked at for itself.
                if statement.contains("Self::UNWATCHED") {
                    continue;
                }
                let fixed = fixed_part(statement);
                assert!(fixed.len() > 8, "{}: a message without words: {statement}", path.display());
                seen += 1;
                if !explained.contains(&fixed) {
                    silent.push(fixed);
                }
            }
        }
    }
    assert!(silent.is_empty(), "docs/log-messages.md does not explain {silent:#?}");
    assert!(seen > 20, "only {seen} log lines were found");
}

/// The longest piece of a log statement's texts that is the same each time.
fn fixed_part(statement: &str) -> String {
    let texts = statement.split('"').skip(1).step_by(2).map(|text| text.replace("\\\n", ""));
    let pieces: Vec<_> = texts
        .flat_map(|text| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            text.split(['{', '}']).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let longest = pieces.into_iter().max_by_key(String::len).unwrap_or_default();
    let ends = |letter: char| !letter.is_alphanumeric();
    longest.split("; retrying").next().unwrap().trim_matches(ends).to_owned()
}

#[test]
fn log_fields_in_code_and_documentation_are_identical() {
    let mut logged: BTreeSet<String> = ["timestamp", "level", "message", "target"].map(str::to_owned).into();
    for (_, text) in program() {
        for mark in ["info!(", "warn!(", "error!("] {
            logged
                .extend(text.match_indices(mark).flat_map(|(place, _)| fields(&text[place + mark.len()..])));
        }
    }
    let table = Document::named("docs/metrics.md").table("## Logs");
    let documented: BTreeSet<String> =
        table.iter().flat_map(|row| names(&row[0])).map(str::to_owned).collect();
    assert_eq!(documented, logged);
}

/// The names of the fields that stand before the text of a log statement.
fn fields(statement: &str) -> Vec<String> {
    let before = statement.split('"').next().unwrap();
    let names =
        before.split(',').map(|field| field.split('=').next().unwrap().trim().trim_start_matches(['%', '?']));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The program's files without their tests.
/// All files of the program: the package's own and those of its crates.
fn program() -> Vec<(PathBuf, String)> {
    ["src", "crates"].iter().flat_map(|folder| sources(&root().join(folder))).collect()
}

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// The tests that the cells of a table's last column name; each of them is one that this program runs.
fn named_tests(page: &str, table: &str) -> Vec<(String, usize)> {
    let program = std::env::current_exe().unwrap();
    let listed = Command::new(program).args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tests: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let count = |row: Vec<String>| {
        let named: Vec<&str> = row.last().unwrap().split('`').skip(1).step_by(2).collect();
        for name in &named {
            assert!(tests.contains(name), "{name} is no test");
        }
        (row[0].clone(), named.len())
    };
    Document::named(page).table(table).into_iter().map(count).collect()
}

#[test]
fn security_model_names_existing_tests_for_each_attacker() {
    let rows = named_tests("docs/security.md", "## Who can do what");
    assert!(rows.iter().all(|(attacker, tests)| *tests > 0 || attacker == "a cluster admin"), "{rows:?}");
    assert!(rows.len() > 20, "{rows:?}");
}

#[test]
fn threats_name_existing_tests() {
    let tables = [
        "## The threat model of the Kubernetes security group",
        "## Findings of reviews of policy engines",
        "## Classes of CVEs",
    ];
    let rows: Vec<_> = tables.iter().flat_map(|table| named_tests("docs/threats.md", table)).collect();
    assert!(rows.iter().filter(|(_, tests)| *tests > 0).count() > 25, "{rows:?}");
}

#[test]
fn the_built_in_identities_are_those_of_the_program() {
    let source = fs::read_to_string(root().join("crates/kubemoor-verdict/src/identities.rs")).unwrap();
    let table =
        source.split("const TABLE: &[IdentityRow] = &[").nth(1).unwrap().split("\n];").next().unwrap();
    let mut real = Vec::new();
    let mut rest = table;
    while let Some(start) =
        ["delete(", "update(", "IdentityRow {"].iter().filter_map(|mark| rest.find(mark)).min()
    {
        let row = &rest[start..];
        let end = ["delete(", "update(", "IdentityRow {"]
            .iter()
            .filter_map(|mark| row[1..].find(mark).map(|place| place + 1))
            .min()
            .unwrap_or(row.len());
        let verb = match &row[..4] {
            "dele" => "deletes",
            "upda" => "updates",
            _ if row[..end].contains("ControllerVerb::Scale") => "scales",
            _ => panic!("{} is of no known form", &row[..end]),
        };
        let mut texts: Vec<_> = row[..end].split('"').skip(1).step_by(2).map(str::to_owned).collect();
        texts.retain(|text| !text.is_empty());
        texts.insert(1, verb.to_owned());
        real.push(texts);
        rest = &row[end..];
    }
    let rows = Document::named("docs/verdict.md").table("## Built-in identities");
    let told: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            assert_eq!(row[3] == "any", row[2] == "any", "{row:?}");
            let mut words: Vec<_> = row.iter().flat_map(|cell| names(cell)).map(str::to_owned).collect();
            words.insert(1, row[1].clone());
            words
        })
        .collect();
    assert_eq!(told, real);
}

#[test]
fn the_reasons_are_those_of_the_program() {
    let source = fs::read_to_string(root().join("crates/kubemoor-verdict/src/edit.rs")).unwrap();
    let code = source.split("\npub enum VerdictReason {").nth(1).unwrap().split("\n}").next().unwrap();
    let variants = code.lines().filter_map(|line| line.trim().strip_suffix(','));
    let kebab = |variant: &str| {
        let letters = variant.char_indices().flat_map(|(at, letter)| {
            let dash = (at > 0 && letter.is_uppercase()).then_some('-');
            dash.into_iter().chain(letter.to_lowercase())
        });
        letters.collect::<String>()
    };
    let real: Vec<String> = variants.filter(|line| !line.starts_with("//")).map(kebab).collect();
    assert!(real.len() > 10, "{real:?}");
    let rows = Document::named("docs/verdict.md").table("## Reasons");
    let told: Vec<_> = rows.iter().flat_map(|row| names(&row[0])).collect();
    assert_eq!(told, real);
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for document in documents() {
        let text = document.parts("").1.join("\n");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("https://") {
                continue;
            }
            seen += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = document.path.parent().unwrap();
            let path = if path.is_empty() { document.path.clone() } else { folder.join(path) };
            let place = document.path.display();
            assert!(root().join(&path).exists(), "{place}: {target} leads nowhere");
            if !anchor.is_empty() {
                let anchors = Document::named(path.to_str().unwrap()).anchors();
                assert!(anchors.contains(anchor), "{place}: {target} is none of {anchors:?}");
            }
        }
    }
    assert!(seen > 20, "only {seen} links were found");
}

#[test]
fn files_and_tests_that_the_map_names_exist() {
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(Document::named) {
        for span in document.code() {
            let is_path =
                ["src/", "crates/", "tests/", "deploy/", "docs/"].iter().any(|start| span.starts_with(start));
            if is_path && !span.contains('*') {
                assert!(root().join(&span).exists(), "{}: {span} does not exist", document.path.display());
            }
        }
    }
}
