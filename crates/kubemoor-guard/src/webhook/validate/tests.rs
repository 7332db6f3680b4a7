use super::*;

#[test]
fn padding_does_not_make_an_edit_wait_for_a_turn() {
    for (sent, declared, expected) in [
        (1000, 1000, false),
        // Padded, of an object of which little is declared.
        (1_800_000, 1000, false),
        (1_800_000, 300_000, true),
        (100_000, 300_000, false),
        (1000, 5_000_000, true),
    ] {
        assert_eq!(takes_long(sent, declared), expected, "{sent} {declared}");
    }
}
