use clap::Parser;
use serde_json::json;

use super::*;

#[derive(Debug, Parser)]
struct OutputLine {
    #[arg(short, default_value = "table")]
    output: OutputFormat<TableOnly>,
}

fn read(form: &str) -> Result<OutputFormat<TableOnly>, String> {
    let line = OutputLine::try_parse_from(["moor", "-o", form]).map_err(|error| error.to_string())?;
    Ok(line.output)
}

#[test]
fn invalid_output_format_error_lists_the_valid_formats() {
    assert_eq!(OutputLine::try_parse_from(["moor"]).unwrap().output, OutputFormat::People(TableOnly::Table));
    assert_eq!(read("yaml"), Ok(OutputFormat::Data(Data::Yaml)));
    let template = "{.a}".parse().unwrap();
    assert_eq!(read("jsonpath={.a}"), Ok(OutputFormat::Data(Data::JsonPath(template))));
    for (form, says) in
        [("xml", "table, json, yaml, jsonpath="), ("jsonpath=.a", "it has no {}"), ("jsonpath={", "}")]
    {
        let error = read(form).unwrap_err();
        assert!(error.contains(says), "{form}: {error}");
    }
}

#[test]
fn parts_stay_apart_from_each_other() {
    let part = |data: Data| data.part(&json!({"a": "b"})).unwrap();
    assert_eq!(part(Data::Json), "{\n  \"a\": \"b\"\n}\n");
    assert_eq!(part(Data::Yaml), "---\na: b\n");
    assert_eq!(part(Data::JsonPath("{.a}".parse().unwrap())), "b\n");
    assert_eq!(part(Data::JsonPath("{.a}{\"\\n\"}".parse().unwrap())), "b\n");
}

#[test]
fn count_of_one_has_no_plural() {
    assert_eq!([0, 1, 2].map(|number| counted(number, "object")), ["0 objects", "1 object", "2 objects"]);
}

fn plain(text: &StyledText) -> String {
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
    let mut text = StyledText::default();
    text.add(BAD, "-").add(PLAIN, "rest").line();
    assert_eq!(text.as_str(), "\u{1b}[31m-\u{1b}[0mrest\n");
}

#[test]
fn no_text_is_markup_in_markdown() {
    for (text, expected) in [
        ("alice", "alice"),
        ("a|b", "a\\|b"),
        ("<script>", "&lt;script&gt;"),
        ("![x](javascript:y)", "\\!\\[x\\]\\(javascript:y\\)"),
        ("https://evil.example", "https&#58;//evil.example"),
        ("WWW.evil.example", "WWW&#46;evil.example"),
        ("MailTo:a@evil.example", "MailTo&#58;a&#64;evil.example"),
        ("system:serviceaccount:ci:deployer 05:00:00Z", "system:serviceaccount:ci:deployer 05:00:00Z"),
        ("a\n\n# b", "a  \\# b"),
    ] {
        assert_eq!(markdown(text), expected);
    }
}

#[test]
fn template_prints_what_kubectls_users_expect() {
    let document = json!({
        "kind": "List",
        "items": [
            {"name": "web", "drifted": 2, "ready": "False", "counts": {"inDoubt": 1}, "message": "a\u{1b}[31m"},
            {"name": "db", "drifted": 0, "ready": "True", "labels": {"example.com/team": "data"}},
        ],
    });
    let filled = |template: &str| template.parse::<JsonPathTemplate>().unwrap().fill(&document).unwrap();
    for (template, expected) in [
        ("{.items[*].name}", "web db"),
        ("{$.items[*].name}", "web db"),
        ("{.items[-1].name}", "db"),
        ("{.items[0:1].name}", "web"),
        ("{.items[*]['name', 'ready']}", "web db False True"),
        ("{..drifted}", "2 0"),
        ("{.items[?(@.drifted>0)].name}", "web"),
        ("{.items[?(@.ready==\"True\")].name}", "db"),
        ("{.items[1].labels['example.com/team']}", "data"),
        ("{.items[0].counts}", "{\"inDoubt\":1}"),
        ("{.nothing}", ""),
        ("{.items[9].name}", ""),
        ("kind: {.kind}{\"\\n\"}", "kind: List\n"),
        ("{range .items[*]}{.name}{'\\t'}{.drifted}{\"\\n\"}{end}", "web\t2\ndb\t0\n"),
        ("{range .items[*]}{@.name} of {$.kind}; {end}!", "web of List; db of List; !"),
        ("{range .items[*].name}{.};{end}", "web;db;"),
        // What the cluster holds does not reach the terminal as it is.
        ("{.items[0].message}", "a\\u{1b}[31m"),
    ] {
        assert_eq!(filled(template), expected, "{template}");
    }
    for whole in ["{.}", "{$}", "{@}"] {
        assert_eq!(filled(whole), document.to_string(), "{whole}");
    }
}

#[test]
fn invalid_jsonpath_template_is_rejected_with_its_error() {
    for (template, says) in [
        ("", "it has no {}"),
        (".items", "it has no {}"),
        ("{.items", "\"{.items\" is not closed"),
        ("{items}", "\"items\" is not a path"),
        ("{}", "\"\" is not a path"),
        ("{.items[}", "is not a path"),
        ("{.a..}", "is not a path"),
        ("{.labels.example\\.com/team}", "['a name']"),
        ("{.items[?(@.name=~'a')]}", "is not a path"),
        ("{range .items[*]}{.name}", "each {range PATH} needs one {end}"),
        ("{range .items[*]}{range .counts}{end}{end}", "ranges cannot be nested: use -o json | jq"),
        ("{.name}{end}", "each {range PATH} needs one {end}"),
        ("{'a\\x'}", "is not a quoted string"),
    ] {
        let error = template.parse::<JsonPathTemplate>().unwrap_err();
        assert!(error.contains(says), "{template}: {error}");
    }
}
