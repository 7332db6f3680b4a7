use super::*;

#[test]
fn name_of_file_says_whose_rows_it_has_and_that_rows_are_missing() {
    for (names, is_partial, form, expected) in [
        ([None, None], false, ExportFormat::Csv, "ledger.csv"),
        ([None, Some("shop")], false, ExportFormat::Json, "ledger-shop.json"),
        ([Some("east"), Some("shop")], false, ExportFormat::Json, "ledger-east-shop.json"),
        ([None, None], true, ExportFormat::Json, "ledger-partial.json"),
        ([None, Some("shop")], true, ExportFormat::Csv, "ledger-shop-partial.csv"),
        ([Some("a\"; b"), None], true, ExportFormat::Csv, "ledger-partial.csv"),
    ] {
        assert_eq!(file(names, is_partial, form), expected);
    }
}

#[test]
fn export_without_rows_of_a_replica_breaks_off_unless_its_name_says_so() {
    assert!(refuse(&[]).is_ok());
    let missing = "rows that pod b keeps are not shown: \u{1b}[31mgone\r\nset-cookie: a=b".to_owned();
    let refused = refuse(std::slice::from_ref(&missing)).unwrap_err().to_string();
    assert!(refused.contains("rows that pod b keeps"), "{refused}");
    let header = plain(&[missing.clone(), missing]);
    assert!(header::HeaderValue::from_str(&header).is_ok() && !header.contains('\n'), "{header}");
}
