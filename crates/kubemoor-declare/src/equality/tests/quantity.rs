use proptest::prelude::*;
use serde_json::json;

use super::super::{parse_quantity as parse, quantity as of};

#[track_caller]
fn equal(a: &str, b: &str) {
    let (left, right) = (parse(a), parse(b));
    assert!(left.is_some() && left == right, "{a} and {b}: {left:?} and {right:?}");
}

#[test]
fn quantities_are_equal_by_size() {
    equal("2000m", "2");
    equal("1024Mi", "1Gi");
    equal("0.1", "100m");
    equal("1e3", "1k");
    equal("1E3", "1000");
    equal("1E", "1000P");
    equal("1.5Gi", "1536Mi");
    equal("-1", "-1000m");
    equal("+1", "1");
    equal("1.", "1");
    equal(".5", "500m");
    equal("0", "0Gi");
    equal("-0", "0");
    equal("1000000u", "1");
    equal("1000000000n", "1");
    equal("00012", "12");
    equal("0.000000001e9", "1");
}

#[test]
fn tiny_parts_round_up_and_huge_ones_are_capped() {
    equal("0.1n", "1n");
    equal("1e-300", "1n");
    equal("1e2147483647", "9223372036854775807");
    equal("8Ei", "9223372036854775807");
    assert_ne!(parse("9223372036854775806"), parse("9223372036854775807"));
}

#[test]
fn different_sizes_are_different() {
    for (a, b) in [("1G", "1Gi"), ("1", "1m"), ("1M", "1m"), ("0.1", "0.10000001"), ("1", "-1")] {
        assert_ne!(parse(a), parse(b), "{a} and {b}");
    }
}

#[test]
fn other_texts_are_no_quantities() {
    for text in [
        "",
        ".",
        "-",
        "Mi",
        "1.2.3",
        "1 Gi",
        "1gi",
        "1K",
        "1e",
        "0xy",
        "1e99999999999",
        "é",
        "1é",
        "١",
        "12345678901234567890.1",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn numbers_are_quantities() {
    assert_eq!(of(&json!(0.1)), parse("100m"));
    assert_eq!(of(&json!(1e21)), parse("1e21"));
    assert_eq!(of(&json!(4)), parse("4"));
    assert_eq!(of(&json!(true)), None);
    assert_eq!(of(&json!(0)), parse("0"));
}

proptest! {
    #[test]
    fn any_text_gives_an_answer(text in any::<String>()) {
        parse(&text);
    }

    #[test]
    fn suffixes_of_ten_are_powers_of_ten(n in 0_u32..1_000_000) {
        prop_assert_eq!(parse(&format!("{n}k")), parse(&format!("{n}000")));
        prop_assert_eq!(parse(&format!("{n}m")), parse(&format!("{n}e-3")));
        prop_assert_eq!(parse(&format!("{n}Ki")), parse(&format!("{}", u64::from(n) * 1024)));
    }

    #[test]
    fn order_is_the_order_of_numbers(a in any::<u32>(), b in any::<u32>()) {
        prop_assert_eq!(a.cmp(&b), parse(&a.to_string()).cmp(&parse(&b.to_string())));
    }
}
