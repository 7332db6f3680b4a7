//! What Go makes of YAML. Every expectation was read off `sigs.k8s.io/yaml`
//! 1.6 with goyaml.v2 2.4; what a chart can deploy stands once more in the
//! golden files, as the API server holds it.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const MIB: usize = 1 << 20;

fn read(text: &str) -> Result<Value, YamlError> {
    to_json(text, &mut Budget::new(16 * MIB))
}

#[track_caller]
fn check(cases: &[(&str, Value)]) {
    for (text, expected) in cases {
        assert_eq!(read(text).as_ref(), Ok(expected), "{text:?}");
    }
}

/// Each scalar as a value of a block map, in a flow list and in a list.
#[track_caller]
fn check_scalars(cases: &[(&str, Value)]) {
    for (scalar, expected) in cases {
        assert_eq!(read(&format!("a: {scalar}\n")), Ok(json!({ "a": expected })), "{scalar}");
        assert_eq!(read(&format!("- {scalar}\n")), Ok(json!([expected])), "{scalar}");
        assert_eq!(read(&format!("a: [{scalar}, x]\n")), Ok(json!({ "a": [expected, "x"] })), "{scalar}");
    }
}

#[track_caller]
fn check_texts(scalars: &[&str]) {
    for scalar in scalars {
        assert_eq!(read(&format!("a: {scalar}\n")), Ok(json!({ "a": scalar })));
    }
}

#[track_caller]
fn check_refused(cases: &[(&str, YamlError)]) {
    for (text, expected) in cases {
        assert_eq!(read(text).as_ref(), Err(expected), "{text:?}");
    }
}

#[test]
fn booleans_are_those_of_yaml_1_1_with_single_letters() {
    for word in ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"] {
        check_scalars(&[(word, json!(true))]);
    }
    for word in ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"] {
        check_scalars(&[(word, json!(false))]);
    }
    check_texts(&["yEs", "tRue", "oN", "nO"]);
}

#[test]
fn nulls_are_empty_or_tilde_or_a_word() {
    for word in ["~", "null", "Null", "NULL"] {
        check_scalars(&[(word, Value::Null)]);
    }
    check(&[
        ("a:\n", json!({"a": null})),
        ("{a: , b}", json!({"a": null, "b": null})),
        ("a: nULL", json!({"a": "nULL"})),
        ("", Value::Null),
        ("# nothing\n", Value::Null),
        ("---\n", Value::Null),
    ]);
}

#[test]
fn integers_know_octal_hex_binary_and_underscores() {
    check_scalars(&[
        ("0644", json!(420)),
        ("0o644", json!(420)),
        ("0O17", json!(15)),
        ("-010", json!(-8)),
        ("0x1F", json!(31)),
        ("-0x10", json!(-16)),
        ("0b101", json!(5)),
        ("0b-101", json!(-5)),
        ("+1", json!(1)),
        ("1_000", json!(1000)),
        ("1_", json!(1)),
        ("0_644", json!(420)),
        ("-0", json!(0)),
        ("9223372036854775807", json!(i64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_f64)),
        ("18446744073709551615", json!(18_446_744_073_709_551_615_f64)),
        ("0xFFFFFFFFFFFFFFFF", json!(18_446_744_073_709_551_615_f64)),
        ("99999999999999999999", json!(1e20)),
    ]);
    check_texts(&[
        "0x",
        "0xg",
        "0b2",
        "-0b-1",
        "+-1",
        "--1",
        "1-",
        "0o8",
        "_1",
        "+",
        "1 000",
        "1:30",
        "190:20:30",
    ]);
}

#[test]
fn floats_that_are_whole_come_out_as_integers() {
    check_scalars(&[
        ("1.0", json!(1)),
        ("1.", json!(1)),
        ("08", json!(8)),
        ("1e3", json!(1000)),
        ("1_000.5", json!(1000.5)),
        (".5", json!(0.5)),
        ("-.5", json!(-0.5)),
        (".5_0", json!(0.5)),
        ("1e-3", json!(0.001)),
        ("-0.0", json!(0)),
        ("1e400", json!("1e400")),
        ("1e-400", json!(0)),
        ("1e21", json!(1e21)),
        ("1.2345678901234567e18", json!(1_234_567_890_123_456_800_i64)),
    ]);
    check_texts(&[
        ".", "._5", ".5_", "1e", "e3", "1.2.3", "0x1p4", "inf", "nan", "infinity", "1.5.", "1e1.5",
    ]);
}

#[test]
fn numbers_that_are_not_finite_cannot_be_sent() {
    for word in [".inf", "-.Inf", "+.INF", ".nan", ".NaN"] {
        check_refused(&[(&format!("a:\n  b: {word}\n"), YamlError::NotFinite { line: 2 })]);
    }
}

#[test]
fn dates_and_quoted_scalars_stay_text() {
    check_texts(&[
        "2001-12-14",
        "2001-12-14T21:59:43.10-05:00",
        "1999-1",
        "10.1.2.3",
        "100m",
        "5%",
        "<<",
        "=",
    ]);
    for word in ["yes", "0644", "1e3", "~", "null", "", "2001-12-14"] {
        check_scalars(&[(&format!("'{word}'"), json!(word)), (&format!("\"{word}\""), json!(word))]);
        assert_eq!(read(&format!("a: |-\n  {word}\n")), Ok(json!({ "a": word })));
    }
}

#[test]
fn tags_force_a_type_or_refuse_the_value() {
    check_scalars(&[
        ("!!str 0644", json!("0644")),
        ("!!str yes", json!("yes")),
        ("!!int '0x10'", json!(16)),
        ("!!float 5", json!(5)),
        ("!!bool 'no'", json!(false)),
        ("!!null ''", Value::Null),
        ("!!binary aGVsbG8=", json!("hello")),
        ("!!binary '/w=='", json!("\u{fffd}")),
        ("!!binary 4oJh", json!("\u{fffd}\u{fffd}a")),
        ("!!timestamp 2001-12-14", json!("2001-12-14")),
        ("! 12", json!("12")),
        ("!custom 12", json!("12")),
        ("!<tag:yaml.org,2002:int> '5'", json!(5)),
        ("!!omap yes", json!("yes")),
    ]);
    check(&[
        ("a: !!str\n", json!({"a": ""})),
        ("a: !!str [b]\n", json!({"a": ["b"]})),
        ("a: !!set {b}\n", json!({"a": {"b": null}})),
    ]);
    check_refused(&[
        ("a: !!int x\n", YamlError::Tag { line: 1, tag: "!!int" }),
        ("a: !!int 5.0\n", YamlError::Tag { line: 1, tag: "!!int" }),
        ("a: !!bool 1\n", YamlError::Tag { line: 1, tag: "!!bool" }),
        ("a: !!null x\n", YamlError::Tag { line: 1, tag: "!!null" }),
        ("a: !!float 18446744073709551615\n", YamlError::Tag { line: 1, tag: "!!float" }),
        ("a: !!timestamp x\n", YamlError::Tag { line: 1, tag: "!!timestamp" }),
        ("a: !!binary x\n", YamlError::Tag { line: 1, tag: "!!binary" }),
    ]);
}

#[test]
fn keys_become_text() {
    check(&[
        ("1: a\n", json!({"1": "a"})),
        ("0644: a\n", json!({"420": "a"})),
        ("on: a\n", json!({"true": "a"})),
        ("n: a\n", json!({"false": "a"})),
        ("1.0: a\n", json!({"1": "a"})),
        ("1.5: a\n", json!({"1.5": "a"})),
        ("1e6: a\n", json!({"1e+06": "a"})),
        ("100000.0: a\n", json!({"100000": "a"})),
        ("1e-5: a\n", json!({"1e-05": "a"})),
        ("0.0001: a\n", json!({"0.0001": "a"})),
        ("16777217.0: a\n", json!({"1.6777216e+07": "a"})),
        (".inf: a\n", json!({".inf": "a"})),
        ("1e300: a\n", json!({".inf": "a"})),
        (".nan: a\n", json!({".nan": "a"})),
        ("2001-12-14: a\n", json!({"2001-12-14": "a"})),
        ("? |\n  block\n: a\n", json!({"block\n": "a"})),
        ("'': a\n", json!({"": "a"})),
    ]);
    for key in ["~", "null", "18446744073709551615", "? [a]\n", "? {a: b}\n"] {
        check_refused(&[(&format!("{key}: 1\n"), YamlError::Key { line: 1 })]);
    }
}

#[test]
fn the_last_of_duplicate_keys_wins_whole() {
    check(&[
        ("a: 1\na: 2\n", json!({"a": 2})),
        ("a: {b: 1}\na: {c: 2}\n", json!({"a": {"c": 2}})),
        ("a: 1\na:\n", json!({"a": null})),
    ]);
}

#[test]
fn a_merge_overrides_what_stands_before_it() {
    check(&[
        ("b: &b {x: 1}\nc: {<<: *b, x: 9}\n", json!({"b": {"x": 1}, "c": {"x": 9}})),
        ("b: &b {x: 1}\nc: {x: 9, <<: *b}\n", json!({"b": {"x": 1}, "c": {"x": 1}})),
        ("c: {<<: [{x: 1}, {x: 2, z: 3}]}\n", json!({"c": {"x": 1, "z": 3}})),
        ("c: {<<: {x: 1}, <<: {x: 2}}\n", json!({"c": {"x": 2}})),
        ("c: {'<<': {x: 1}}\n", json!({"c": {"<<": {"x": 1}}})),
        ("c: {!!merge '<<': {x: 1}}\n", json!({"c": {"x": 1}})),
        ("m: &m {<<: {x: 1}}\nc: {<<: *m}\n", json!({"m": {"x": 1}, "c": {"x": 1}})),
    ]);
    for source in ["1", "~", "[1]", "[[{a: 1}]]"] {
        check_refused(&[(&format!("<<: {source}\n"), YamlError::Merge { line: 1 })]);
    }
    check_refused(&[("l: &l [{a: 1}]\nc:\n  <<: *l\n", YamlError::Merge { line: 3 })]);
}

#[test]
fn an_alias_stands_for_the_last_anchor_before_it() {
    check(&[
        ("a: &x 1\nb: *x\nc: &x 2\nd: *x\n", json!({"a": 1, "b": 1, "c": 2, "d": 2})),
        ("a: &x yes\n*x : 1\n", json!({"a": true, "true": 1})),
        ("a: &x {b: [1]}\nc: *x\n", json!({"a": {"b": [1]}, "c": {"b": [1]}})),
        ("a: &x\nb: *x\n", json!({"a": null, "b": null})),
    ]);
    check_refused(&[
        ("a: &x {b: *x}\n", YamlError::Cycle { line: 1 }),
        ("a: &x [*x]\n", YamlError::Cycle { line: 1 }),
        ("a: &x {b: 1}\n*x : 1\n", YamlError::Key { line: 2 }),
        ("a: &x:y b\n", YamlError::Anchor { line: 1 }),
    ]);
    assert!(read("a: *missing\n").is_err());
}

#[test]
fn only_the_first_document_is_read() {
    check(&[
        ("a: 1\n...\nb: 2\n", json!({"a": 1})),
        ("a: 1\n... # end\n", json!({"a": 1})),
        ("--- # c\na: 1\n", json!({"a": 1})),
        ("\u{feff}a: 1\n", json!({"a": 1})),
    ]);
}

#[test]
fn go_yaml_extensions_beyond_yaml_1_2_are_accepted() {
    check(&[
        ("a: 'x'# c\n", json!({"a": "x"})),
        ("a: \"x\"#c\nb: 'y'#d\n", json!({"a": "x", "b": "y"})),
        ("a: |# c\n  x\n", json!({"a": "x\n"})),
        ("a: \"x\ny\n\nz\"\n", json!({"a": "x y\nz"})),
        ("a:\n  b: 'x\n\t\ty'\n", json!({"a": {"b": "x y"}})),
        ("a: \"it\\'s \\\\'\"\n", json!({"a": "it's \\'"})),
        ("- - a: \"x\ny\"\n", json!([[{"a": "x y"}]])),
    ]);
    let many = "a: \"x".to_owned() + &"\ny".repeat(200) + "\"\n";
    assert_eq!(read(&many), Ok(json!({ "a": "x".to_owned() + &" y".repeat(200) })));
}

#[test]
fn a_rewriting_that_would_cost_too_much_is_refused() {
    let margin = " ".repeat(100_000);
    assert_eq!(read(&format!("a: \"x\ny\"\n{margin}# c\n")), Ok(json!({"a": "x y"})));
    let many = "a: \"x".to_owned() + &"\ny".repeat(100_000) + "\"\n";
    assert!(matches!(read(&many), Err(YamlError::Syntax { .. })));
}

#[test]
fn yaml_that_go_parses_differently_is_rejected() {
    check_refused(&[
        ("a: {b:}\n", YamlError::Flow { line: 1 }),
        ("a: [?b]\n", YamlError::Flow { line: 1 }),
        ("a:\n  - \"x\u{85}y\"\n", YamlError::Character { line: 2 }),
        ("a: \"x\u{2028}y\"\n", YamlError::Character { line: 1 }),
        ("a: \"x\u{7}y\"\n", YamlError::Character { line: 1 }),
    ]);
}

#[test]
fn nesting_is_bounded_and_costs_no_stack() {
    let lists = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(read(&lists(MAX_DEPTH)).is_ok());
    for depth in [MAX_DEPTH + 1, 100_000] {
        assert_eq!(read(&lists(depth)), Err(YamlError::Depth { line: 1 }));
        assert!(read(&"[".repeat(depth)).is_err());
        assert_eq!(read(&("- ".repeat(depth) + "x")), Err(YamlError::Depth { line: 1 }));
        assert_eq!(read(&"{a: ".repeat(depth)), Err(YamlError::Depth { line: 1 }));
    }
    let maps: String = (0..2_000).map(|level| format!("{:level$}a:\n", "")).collect();
    assert!(matches!(read(&maps), Err(YamlError::Depth { .. })));
}

#[test]
fn nesting_through_aliases_is_bounded_too() {
    let deeper: String = (1..MAX_DEPTH).map(|i| format!("a{i}: &a{i} [*a{}]\n", i - 1)).collect();
    let text = format!("a0: &a0 x\n{deeper}");
    assert_eq!(read(&text), Err(YamlError::Depth { line: MAX_DEPTH }));
}

#[test]
fn an_alias_bomb_ends_at_the_budget() {
    let level = |i: usize| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    let text = "a0: &a0 text\n".to_owned() + &(1..12).map(level).collect::<String>();
    assert!(matches!(read(&text), Err(YamlError::Memory { .. })));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(MIB), vec!["*a"; 100].join(", "));
    assert!(matches!(read(&long), Err(YamlError::Memory { line: 2 })));
}

#[test]
fn yaml_maps_beyond_the_memory_budget_are_rejected() {
    let text = format!("[{}]", "{a},".repeat(MIB / 8));
    assert_eq!(read(&text), Err(YamlError::Memory { line: 1 }));
}

fn texts() -> impl Strategy<Value = String> {
    "[ -~äß漢😀\n\t]{0,12}"
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(f64::from(number) + 0.5)),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(texts(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_reads_as_itself(document in documents()) {
        prop_assert_eq!(read(&document.to_string()), Ok(document));
    }

    #[test]
    fn any_text_reads_or_is_refused(text in "(?s).{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn any_text_of_yaml_reads_or_is_refused(text in "([\\-:?,\\[\\]{}#&*!|>'\"%@` \n\ta1~<.]|- |: |\n  |<<: |&a |\\*a |!!int ){0,60}") {
        let _ = read(&text);
    }
}
