use clap::Parser;
use serde_json::json;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[arg(short, default_value = "table")]
    output: Form<People>,
}

fn read(form: &str) -> Result<Form<People>, String> {
    let line = Line::try_parse_from(["moor", "-o", form]).map_err(|error| error.to_string())?;
    Ok(line.output)
}

#[test]
fn invalid_output_format_error_lists_the_valid_formats() {
    assert_eq!(Line::try_parse_from(["moor"]).unwrap().output, Form::People(People::Table));
    assert_eq!(read("yaml"), Ok(Form::Data(Data::Yaml)));
    let template = "{.a}".parse().unwrap();
    assert_eq!(read("jsonpath={.a}"), Ok(Form::Data(Data::JsonPath(template))));
    for (form, says) in
        [("xml", "table, json, yaml, jsonpath="), ("jsonpath=.a", "no {} is in it"), ("jsonpath={", "}")]
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
