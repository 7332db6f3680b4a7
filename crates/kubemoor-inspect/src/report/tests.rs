use super::*;

fn day(day: &str, worse: u64, better: u64) -> DayCounts {
    DayCounts { day: day.parse().unwrap(), worse, better }
}

#[test]
fn each_day_with_changes_has_its_bars() {
    let picture = days(&[day("2026-11-21", 3, 0), day("2026-11-22", 0, 0), day("2026-11-23", 1, 2)]).unwrap();
    for (colour, bars) in [("#A31621", 2), ("#116329", 1)] {
        let drawn = picture.split("<rect").filter(|it| it.contains(colour) && !it.contains("height=\"0\""));
        assert_eq!(drawn.count(), bars, "{colour}: {picture}");
    }
    assert!(picture.contains("11-21") && picture.contains("11-23"), "{picture}");
    assert_eq!(days(&[day("2026-11-21", 0, 0)]), None);
}

#[test]
fn no_cell_is_a_formula() {
    for (cell, expected) in [
        ("alice", "alice"),
        ("", ""),
        ("a=b", "a=b"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("＝1", "'＝1"),
        ("  =1", "'  =1"),
        ("\t=1", "' =1"),
        ("\r\n=1", "'  =1"),
        ("a\nb\u{1b}", "a b "),
    ] {
        assert_eq!(safe(cell), expected, "{cell:?}");
    }
}

#[test]
fn rows_are_lines_of_quoted_cells() {
    let mut sheet = Sheet::new();
    sheet.row(["a", "b"]).unwrap();
    sheet.row(["say \"hi\"", "1,2;=3"]).unwrap();
    assert_eq!(sheet.text().unwrap(), "\"a\",\"b\"\r\n\"say \"\"hi\"\"\",\"1,2;=3\"\r\n");
}
