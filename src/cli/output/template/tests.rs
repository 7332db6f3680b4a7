//! Templates that people use with kubectl, and what they print.

use serde_json::json;

use super::*;

fn filled(template: &str) -> Result<String, TemplateError> {
    let document = json!({
        "kind": "List",
        "items": [
            {"name": "web", "drifted": 2, "ready": "False", "counts": {"in-doubt": 1}, "message": "a\u{1b}[31m"},
            {"name": "db", "drifted": 0, "ready": "True", "labels": {"example.com/team": "data"}},
        ],
    });
    template.parse::<Template>().map(|template| template.fill(&document).unwrap())
}

#[test]
fn template_prints_what_kubectls_users_expect() {
    for (template, expected) in [
        ("{.items[*].name}", "web db"),
        ("{$.items[*].name}", "web db"),
        ("{.items[0].name}", "web"),
        ("{.items[-1].name}", "db"),
        ("{.items[0:1].name}", "web"),
        ("{.items[*]['name', 'ready']}", "web db False True"),
        ("{..drifted}", "2 0"),
        ("{.items[?(@.drifted>0)].name}", "web"),
        ("{.items[?(@.ready==\"True\")].name}", "db"),
        ("{.items[1].labels.example\\.com/team}", "data"),
        ("{.items[1].labels['example.com/team']}", "data"),
        ("{.items[0].counts.in-doubt}", "1"),
        ("{.items.*.name}", "web db"),
        ("{.items[0].counts}", "{\"in-doubt\":1}"),
        ("{.nothing}", ""),
        ("{.items[9].name}", ""),
        ("kind: {.kind}{\"\\n\"}", "kind: List\n"),
        ("{range .items[*]}{.name}{\"\\t\"}{.drifted}{\"\\n\"}{end}", "web\t2\ndb\t0\n"),
        ("{range .items[*]}{@.name} of {$.kind}; {end}!", "web of List; db of List; !"),
        ("{range .items[*]}{range .counts}{.in-doubt}{end}{end}", "1"),
        // What the cluster holds does not reach the terminal as it is.
        ("{.items[0].message}", "a\\u{1b}[31m"),
    ] {
        assert_eq!(filled(template).as_deref(), Ok(expected), "{template}");
    }
    // The whole document.
    assert_eq!(filled("{.}"), filled("{$}"));
    assert!(filled("{@}").unwrap().contains("\"kind\":\"List\""));
}

#[test]
fn invalid_jsonpath_template_is_rejected_with_its_error() {
    for (template, says) in [
        ("", "no {} is in it"),
        (".items", "no {} is in it"),
        ("{.items", "\"{.items\" is not closed"),
        ("{\"a}", "is not closed"),
        ("{items}", "\"items\" is no path"),
        ("{}", "\"\" is no path"),
        ("{.items[}", "is no path"),
        ("{.a..}", "is no path"),
        ("{.items[?(@.name=~'a')]}", "is no path"),
        ("{range .items[*]}{.name}", "each {range PATH} needs one {end}"),
        ("{.name}{end}", "each {range PATH} needs one {end}"),
        ("{'a\\x'}", "is no quoted text"),
    ] {
        let error = template.parse::<Template>().unwrap_err().to_string();
        assert!(error.contains(says), "{template}: {error}");
    }
    let deep = "{range .a}".repeat(DEEPEST + 1);
    assert_eq!(deep.parse::<Template>(), Err(TemplateError::TooDeep));
}
