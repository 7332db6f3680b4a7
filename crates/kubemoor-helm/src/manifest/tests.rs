use kubemoor_declare::model::ReleaseId;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::record;

#[track_caller]
fn check(manifest: &str, objects: &[&str], skipped: &[(usize, SkipReason)]) {
    let parsed = parse(manifest);
    let names: Vec<_> = parsed.objects.iter().map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(names, objects, "{manifest:?}");
    let reasons: Vec<_> = parsed.skipped.into_iter().map(|skipped| (skipped.index, skipped.reason)).collect();
    assert_eq!(reasons, skipped, "{manifest:?}");
}

/// A config map of this name, as one line.
fn map(name: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n")
}

fn json_map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

fn release() -> ReleaseId {
    ReleaseId { namespace: "golden".into(), name: "corner".into() }
}

#[test]
fn documents_are_cut_at_separator_lines() {
    let (a, b) = (map("a"), map("b"));
    for separator in
        ["---\n", "--- # comment\n", "---\t\n", "---   \n", "---\r\n", "---\n---\n", "---\n\n---\n"]
    {
        check(&format!("{a}{separator}{b}"), &["a", "b"], &[]);
        check(&format!("---\n# Source: x/y.yaml\n{a}{separator}{b}---\n"), &["a", "b"], &[]);
    }
    check(&format!("{a}---\n# only a comment\n---\nnull\n---\n~\n---\n{b}"), &["a", "b"], &[]);
    check(&format!("---\n{a}...\n---\n{b}..."), &["a", "b"], &[]);
    check(&format!("{a}...\n{b}"), &["a"], &[]);
    check("", &[], &[]);
    check("---", &[], &[]);
    check("\n\n", &[], &[]);
}

#[test]
fn a_separator_with_text_behind_it_spoils_what_it_ends() {
    let (a, b) = (map("a"), map("b"));
    for separator in ["--- x\n", "---x\n", "----\n"] {
        check(&format!("{a}{separator}{b}"), &["b"], &[(0, SkipReason::Separator)]);
    }
    check(&format!("---\n{a}"), &["a"], &[]);
}

#[test]
fn a_separator_in_an_indented_block_is_text() {
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    ---\n    y: 1\n";
    assert_eq!(parse(manifest).objects[0]["data"]["x"], "---\ny: 1\n");
}

#[test]
fn manifest_starting_with_a_brace_is_read_as_json_documents() {
    let (a, b, c) = (json_map("a"), json_map("b"), json_map("c"));
    check(&format!("{a}{b} \n{c}"), &["a", "b", "c"], &[]);
    check(&format!("{a}\n---\n{b}\n---\n{c}"), &["a", "b", "c"], &[]);
    check(&format!("{a}\n---\n{}", map("b")), &["a", "b"], &[]);
    check(&map("a"), &["a"], &[]);
    check(&format!("  \n {a}"), &["a"], &[]);
    check(&format!("{a}{b}---\n{c}"), &["a", "b"], &[(2, SkipReason::Json)]);
    check(&format!("---\n{a}"), &["a"], &[]);
}

#[test]
fn numbers_of_json_documents_are_those_that_go_passes_on() {
    let mut object: Value = serde_json::from_str(&json_map("a")).unwrap();
    object["spec"] = json!({"text": "1.0"});
    let text =
        object.to_string().replace("\"1.0\"", "[1.0, 1e3, 0.5, 18446744073709551615, 9007199254740993]");
    let spec = json!({"text": [1, 1000, 0.5, 18_446_744_073_709_551_615_f64, 9_007_199_254_740_993_i64]});
    assert_eq!(parse(&text).objects[0]["spec"], spec);
}

#[test]
fn lists_are_taken_apart() {
    let list = |kind: &str, items: &str| format!("apiVersion: v1\nkind: {kind}\nitems: {items}\n");
    let (a, b) = (map("a"), map("b"));
    check(&list("List", &format!("[{}, {}]", a.trim(), b.trim())), &["a", "b"], &[]);
    check(&list("List", "[]"), &[], &[]);
    check(&list("List", "~"), &[], &[]);
    check(&list("List", "x"), &[], &[(0, SkipReason::Items)]);
    check(&list("List", "[1]"), &[], &[(0, SkipReason::NotAMap)]);
    check(&(list("ConfigMapList", "[{metadata: {name: a}}]") + "---\n" + &b), &["a", "b"], &[]);
    let typed = parse(&list("ConfigMapList", "[{metadata: {name: a}}]"));
    assert_eq!(typed.objects, [json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})]);
}

#[test]
fn lists_in_lists_are_bounded() {
    let nested = |depth: usize| {
        let open = "{apiVersion: v1, kind: List, items: [".repeat(depth);
        format!("---\n{open}{}{}", map("a").trim(), "]}".repeat(depth))
    };
    check(&nested(LIST_DEPTH - 1), &["a"], &[]);
    check(&nested(LIST_DEPTH), &[], &[(0, SkipReason::Items)]);
}

#[test]
fn document_without_valid_object_is_skipped_with_reason() {
    let missing = |field| SkipReason::Missing { field };
    let cases = [
        ("text\n", SkipReason::NotAMap),
        ("- a\n", SkipReason::NotAMap),
        ("5\n", SkipReason::NotAMap),
        ("a: 1\n", missing("kind")),
        ("kind: A\n", missing("apiVersion")),
        ("{kind: A, apiVersion: v1}\n", missing("metadata.name")),
        ("{kind: A, apiVersion: v1, metadata: {name: 5}}\n", missing("metadata.name")),
        ("{kind: A, apiVersion: v1, metadata: {name: ''}}\n", missing("metadata.name")),
        ("{kind: yes, apiVersion: v1, metadata: {name: a}}\n", missing("kind")),
        ("{kind: A, apiVersion: v1, metadata: {generateName: a-}}\n", SkipReason::GeneratedName),
    ];
    for (document, reason) in cases {
        check(&format!("---\n{}---\n{document}---\n{}", map("a"), map("b")), &["a", "b"], &[(1, reason)]);
    }
    let parsed = parse(&format!("---\n# Source: web/templates/broken.yaml\na: [\n---\n{}", map("b")));
    assert_eq!(parsed.objects.len(), 1);
    assert_eq!(parsed.skipped[0].source.as_deref(), Some("web/templates/broken.yaml"));
    assert!(matches!(parsed.skipped[0].reason, SkipReason::Yaml(YamlError::Syntax { .. })));
}

#[test]
fn source_comment_counts_only_at_the_document_head() {
    let parsed = parse("---\ndata: |\n  # Source: not/me.yaml\n# Source: nor/me.yaml\n");
    assert_eq!(parsed.skipped[0].source, None);
}

#[test]
fn line_breaks_of_windows_are_those_of_go() {
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    one\n\n    two\n  y: \"a\n    b\"\n";
    assert_eq!(parse(&manifest.replace('\n', "\r\n")).objects, parse(manifest).objects);
}

#[test]
fn three_thousand_documents_are_read() {
    let manifest: String = (0..3_000)
        .map(|i| format!("---\n# Source: a/b.yaml\n{}", map(&i.to_string().replace(char::is_numeric, "x"))))
        .collect();
    let parsed = parse(&manifest);
    assert_eq!((parsed.objects.len(), parsed.skipped.len()), (3_000, 0));
}

#[test]
fn bombs_end_at_the_budget_and_leave_what_came_before() {
    const MEMORY: usize = 4 << 20;
    let level = |i: usize| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    let aliases = "a0: &a0 text\n".to_owned() + &(1..12).map(level).collect::<String>();
    let maps = format!("[{}]\n", "{a},".repeat(MEMORY / 64));
    let json = format!("{{\"a\":[{}{{}}]}}", "{},".repeat(MEMORY / 64));
    let bombs = [aliases, maps].map(|bomb| format!("{}---\n{bomb}---\n{}", map("a"), map("b")));
    for manifest in bombs.into_iter().chain([json_map("a") + &json]) {
        let parsed = parse_within(&manifest, MEMORY);
        assert_eq!(parsed.objects.len(), 1);
        assert_eq!(parsed.skipped, [SkippedDocument { index: 1, source: None, reason: SkipReason::Memory }]);
    }
    let skips = "---\na\n".repeat(2 * MEMORY / SKIPPED);
    assert!(parse_within(&skips, MEMORY).skipped.len() <= MEMORY / SKIPPED);
}

#[test]
fn a_hundred_thousand_levels_are_one_skipped_document() {
    let deep = 100_000;
    for text in ["[".repeat(deep) + &"]".repeat(deep), "{\"a\":".repeat(deep) + "1" + &"}".repeat(deep)] {
        let parsed = parse(&format!("---\n{}---\n{text}\n---\n{}", map("a"), map("b")));
        assert_eq!((parsed.objects.len(), parsed.skipped.len()), (2, 1));
    }
    let json = "{\"a\":".repeat(deep) + "1" + &"}".repeat(deep);
    check(&json, &[], &[(0, SkipReason::Depth)]);
}

#[test]
fn objects_lie_where_helm_puts_them() {
    let object = |namespace: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace}});
    let cases = [
        (Value::Null, Some(true), Some("golden")),
        (Value::Null, None, Some("golden")),
        (Value::Null, Some(false), None),
        (json!("other"), Some(true), Some("other")),
        (json!("other"), None, Some("other")),
        (json!("other"), Some(false), None),
        (json!(""), Some(true), Some("golden")),
    ];
    for (namespace, namespaced, expected) in cases {
        let mut object = object(namespace);
        let id = identify(&object, &release(), namespaced);
        assert_eq!((id.group.as_str(), id.kind.as_str(), id.name.as_str()), ("apps", "Deployment", "web"));
        assert_eq!(id.namespace.as_deref(), expected);
        set_object_namespace(&mut object, &id);
        assert_eq!(object["metadata"].get("namespace").and_then(Value::as_str), expected);
    }
    assert_eq!(identify(&json!([]), &release(), None).name, "");
}

#[test]
fn helms_metadata_is_forced_over_the_charts() {
    let helm = json!({"app.kubernetes.io/managed-by": "Helm"});
    let mut object = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me", "a": null}, "annotations": null}});
    set_helm_metadata(&mut object, &release());
    assert_eq!(object["metadata"]["labels"], json!({"app.kubernetes.io/managed-by": "Helm", "a": ""}));
    let annotations =
        json!({"meta.helm.sh/release-name": "corner", "meta.helm.sh/release-namespace": "golden"});
    assert_eq!(object["metadata"]["annotations"], annotations);
    for mut bare in [json!({}), json!({"metadata": {}}), json!({"metadata": {"labels": []}})] {
        set_helm_metadata(&mut bare, &release());
        assert_eq!(bare["metadata"]["labels"], helm);
    }
    for mut other in [json!([]), json!({"metadata": 1})] {
        let before = other.clone();
        set_helm_metadata(&mut other, &release());
        assert_eq!(other, before);
    }
}

#[test]
fn debug_output_holds_no_object() {
    let parsed = parse("{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {p: hunter2}}");
    assert_eq!(parsed.objects.len(), 1);
    assert!(!format!("{parsed:?}").contains("hunter2"));
}

#[test]
fn reasons_hold_nothing_of_the_document() {
    for text in [
        "p: \"hunter2",
        "p: [hunter2",
        "- hunter2\n p",
        "p: *hunter2",
        "p: !!int hunter2",
        "hunter2: &hunter2:x y",
    ] {
        let parsed = parse(&format!("---\n{text}\n"));
        assert_eq!(parsed.skipped.len(), 1, "{text}");
        let skipped = &parsed.skipped[0];
        assert!(!format!("{skipped:?} {}", skipped.reason).contains("hunter2"), "{skipped:?}");
    }
}

/// Every object of a release that the real SDK installed, read from its real
/// record, is what the real API server holds.
#[track_caller]
fn check_golden(payload: &[u8], live: &str) {
    let record = record::decode(payload, record::DEFAULT_CAP).unwrap();
    let release = ReleaseId { namespace: record.namespace.clone().into(), name: record.name.clone().into() };
    let live: Vec<Value> = serde_json::from_str(live).unwrap();
    let parsed = parse(&record.manifest);
    assert_eq!(parsed.skipped, []);
    assert_eq!(parsed.objects.len(), live.len());
    for mut object in parsed.objects {
        let namespaced = object["kind"] != "ClusterRole";
        let id = identify(&object, &release, Some(namespaced));
        set_object_namespace(&mut object, &id);
        set_helm_metadata(&mut object, &release);
        let same = |live: &&Value| identify(live, &release, Some(namespaced)) == id;
        let live = live.iter().find(same).unwrap_or_else(|| panic!("{id} is not live"));
        assert_contained(&object, live, &id.to_string());
    }
}

/// Asserts that `live` is `declared`, but for keys of its own in maps.
#[track_caller]
fn assert_contained(declared: &Value, live: &Value, at: &str) {
    match (declared, live) {
        (Value::Object(declared), Value::Object(live)) => {
            for (key, value) in declared {
                let held = live.get(key).unwrap_or_else(|| panic!("{at}/{key} is not live"));
                assert_contained(value, held, &format!("{at}/{key}"));
            }
        }
        (Value::Array(declared), Value::Array(live)) => {
            assert_eq!(declared.len(), live.len(), "{at}");
            for (index, (declared, live)) in declared.iter().zip(live).enumerate() {
                assert_contained(declared, live, &format!("{at}/{index}"));
            }
        }
        // The server prints floats without exponents below 1e21, too large for an integer.
        (Value::Number(declared), Value::Number(live)) if declared.is_f64() => {
            assert_eq!(declared.as_f64(), live.as_f64(), "{at}");
        }
        _ => assert_eq!(declared, live, "{at}"),
    }
}

#[test]
fn corner_case_chart_is_read_as_api_server_stores_it() {
    let payload = include_bytes!("../../../../tests/golden/corner.record");
    let live = include_str!("../../../../tests/golden/corner.live.json");
    check_golden(payload, live);
    // The containment above does not see what only the server has: custom
    // objects are held as they were sent.
    let record = record::decode(payload, record::DEFAULT_CAP).unwrap();
    let held: Vec<Value> = serde_json::from_str(live).unwrap();
    let keys = |value: &Value| value.as_object().map_or(0, Map::len);
    for object in parse(&record.manifest).objects.iter().filter(|object| object["kind"] == "Corner") {
        let live = held.iter().find(|held| held["metadata"]["name"] == object["metadata"]["name"]).unwrap();
        assert_eq!(keys(&object["spec"]), keys(&live["spec"]));
        assert_eq!(keys(&object["spec"]["block"]), keys(&live["spec"]["block"]));
    }
}

#[test]
fn null_labels_and_annotations_match_the_form_the_server_stores() {
    let payload = include_bytes!("../../../../tests/golden/loose.record");
    check_golden(payload, include_str!("../../../../tests/golden/loose.live.json"));
}

proptest! {
    #[test]
    fn any_text_is_parsed(text in "(?s).{0,200}") {
        parse(&text);
    }

    #[test]
    fn any_cut_and_paste_of_a_manifest_is_parsed(cuts in prop::collection::vec((0usize..4000, 0usize..80), 1..6)) {
        let payload = include_bytes!("../../../../tests/golden/corner.record");
        let manifest = record::decode(payload, record::DEFAULT_CAP).unwrap().manifest;
        let letters: Vec<char> = manifest.chars().collect();
        let text: String = cuts.iter().flat_map(|(from, length)| letters.iter().skip(*from).take(*length * 8)).collect();
        parse(&text);
    }
}

#[test]
fn documents_come_one_by_one_as_all_at_once() {
    for text in [
        "---\nkind: A\napiVersion: v1\nmetadata: {name: a}\n---\n- a\n---\nkind: B\napiVersion: v1\nmetadata: {name: b}\n",
        "{\"apiVersion\": \"v1\", \"kind\": \"A\", \"metadata\": {\"name\": \"a\"}}\n{}\n",
        "apiVersion: v1\nkind: List\nitems:\n- {kind: A, apiVersion: v1, metadata: {name: a}}\n- 1\n",
        "--- a\nkind: A\n",
        "",
    ] {
        let (mut objects, all) = (Vec::new(), parse(text));
        let skipped = each(text, |object| {
            objects.push(object.value);
            ControlFlow::Continue(())
        });
        assert_eq!((objects, skipped), (all.objects, all.skipped), "{text}");
    }
}

#[test]
fn document_beyond_its_bound_is_skipped_alone() {
    let thicket = format!("a:\n{}", "- {b: {}}\n".repeat(40_000));
    let object = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n";
    let (mut found, text) = (0, format!("{object}---\n{thicket}---\n{object}"));
    let skipped = each(&text, |_| {
        found += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(found, 2);
    assert_eq!(skipped, [SkippedDocument { index: 1, source: None, reason: SkipReason::Memory }]);
    let skipped = each(&"---\n1\n".repeat(1000), |_| ControlFlow::Continue(()));
    assert_eq!(skipped.len(), MAX_SKIPPED);
    let skipped = each(&"---\n1\n".repeat(2 * MAX_DOCUMENTS), |_| ControlFlow::Continue(()));
    let last = SkippedDocument { index: MAX_DOCUMENTS, source: None, reason: SkipReason::TooMany };
    assert_eq!((skipped.len(), skipped.last()), (MAX_SKIPPED, Some(&last)));
    let mut seen = 0;
    each(&format!("{object}---\n").repeat(10), |_| {
        seen += 1;
        if seen < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(seen, 3);
}

/// The objects that an uninstallation leaves alone.
#[track_caller]
fn check_kept(manifest: &str, wanted: &[&str]) {
    let mut kept = Vec::new();
    each(manifest, |object| {
        kept.extend(object.value["metadata"]["name"].as_str().filter(|_| object.is_kept).map(str::to_owned));
        ControlFlow::Continue(())
    });
    assert_eq!(kept, wanted, "{manifest}");
}

#[test]
fn keep_counts_in_the_metadata_of_a_whole_document() {
    let metadata = |name: &str, policy: &str| {
        format!("{{name: {name}, annotations: {{helm.sh/resource-policy: {policy}}}}}")
    };
    let object = |name: &str, policy: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {}}}", metadata(name, policy))
    };
    let list = |own: &str, items: &str| {
        format!("---\n{{apiVersion: v1, kind: List, metadata: {own}, items: [{items}]}}\n")
    };
    for (policy, wanted) in [("keep", &["a"][..]), ("' Keep '", &["a"]), ("delete", &[]), ("[keep]", &[])] {
        check_kept(&format!("---\n{}\n", object("a", policy)), wanted);
    }
    let both = format!("{}, {}", object("a", "keep"), object("b", "keep"));
    check_kept(&list("{}", &both), &[]);
    check_kept(&list(&metadata("all", "keep"), &object("a", "delete")), &["a"]);
    check_kept(&(list("{}", &both) + "---\n" + &object("c", "keep") + "\n"), &["c"]);
}
