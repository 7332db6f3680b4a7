use super::*;

#[test]
fn count_of_one_has_no_plural() {
    assert_eq!([0, 1, 2].map(|number| counted(number, "object")), ["0 objects", "1 object", "2 objects"]);
}

fn plain(text: &Text) -> String {
    anstream::adapter::strip_str(text.as_str()).to_string()
}

#[test]
fn columns_fit_their_widest_cell_without_trailing_spaces() {
    let mut table = Table::new(["NAME", "READY", "REASON"]);
    table.row(["a-long-name", "True", ""]);
    table.styled([("b".to_owned(), BAD), ("False".to_owned(), PLAIN), ("Drifted".to_owned(), NOTE)]);
    assert_eq!(
        plain(&table.text()),
        "NAME          READY   REASON\na-long-name   True\nb             False   Drifted\n"
    );
}

#[test]
fn control_characters_from_the_cluster_are_escaped_in_tables() {
    let mut table = Table::default();
    table.row(["\u{1b}[2Jgone\u{9b}31m\n"]);
    let text = table.text();
    assert_eq!(text.as_str(), "\\u{1b}[2Jgone\\u{9b}31m\\n\n");
}

#[test]
fn bidirectional_controls_are_escaped_in_every_form() {
    let text = "admin\u{202e}nimda";
    let mut table = Table::default();
    table.row([text]);
    let json = Data::Json.text(&text).unwrap();
    let yaml = Data::Yaml.text(&text).unwrap();
    assert_eq!([table.text().as_str(), &json], ["admin\\u{202e}nimda\n", "\"admin\\u202enimda\"\n"]);
    assert_eq!(yaml, json);
}

#[test]
fn a_style_ends_where_its_text_does() {
    let mut text = Text::default();
    text.add(BAD, "-").add(PLAIN, "rest").line();
    assert_eq!(text.as_str(), "\u{1b}[31m-\u{1b}[0mrest\n");
}
