//! Each format as its service documents it, and names that try to be more than text.

use serde_json::{Value, json};

use super::*;
use kubemoor_declare::path::Path;

const SOURCE: &str = "urn:kubemoor:c";

/// Names that would be read as markup somewhere, and as what.
const HOSTILE: [&str; 12] = [
    "<!channel> <!everyone> <@U024BE7LH> <http://evil.example|click>",
    "@channel @all @here",
    "` *bold* `",
    "``` code ```",
    "[click](http://evil.example) ![x](http://evil.example/x.png)",
    "<at>Everybody</at>",
    "\",\"text\":\"injected",
    "\\\" \\u0022",
    "line\nnext\r\n• more",
    "{{ 7 * 7 }} {% for x in y %} ${x}",
    "\u{202e}gnp.exe\u{202c}\u{2066}\u{0}\u{7}",
    "` <!here> @here `",
];

fn now() -> Timestamp {
    "2026-11-23T10:00:00Z".parse().unwrap()
}

fn message(subject: NotificationSubject, name: &str) -> Notification {
    Notification {
        since: "2026-11-23T09:00:00Z".parse().unwrap(),
        release: Some(ReleaseId { namespace: "shop".into(), name: "web".into() }),
        revision: Some(3),
        object: Some(ObjectId::namespaced("apps", "Deployment", "shop", name)),
        by: Some(name.to_owned()),
        detail: Some(name.to_owned()),
        ..Notification::new(subject, "2026-11-23T09:59:00Z".parse().unwrap())
    }
}

fn key() -> SecretString {
    "0123456789abcdef0123456789abcdef".into()
}

fn shipped(form: FormatName) -> Format {
    Format::shipped(form, (form == FormatName::PagerDuty).then(key)).unwrap()
}

fn body(format: &Format, message: &Notification) -> Option<Value> {
    let body = format.body(message, SOURCE).unwrap()?;
    Some(serde_json::from_slice(&body).unwrap())
}

/// What Alertmanager gets of a message.
fn alert(message: &Notification) -> Value {
    body(&shipped(FormatName::Alertmanager), message).unwrap()[0].take()
}

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|item| texts(item, found)),
        _ => {}
    }
}

#[test]
fn slack_reads_nothing_from_the_cluster_as_markup() {
    for name in HOSTILE {
        let body = body(&shipped(FormatName::Slack), &message(NotificationSubject::Drifted, name)).unwrap();
        let text = body["text"].as_str().unwrap();
        assert!(!text.contains(['<', '>']), "{text}");
        for line in text.lines() {
            // Whatever stands between the backticks is code, and there is an end to each.
            assert_eq!(line.matches('`').count() % 2, 0, "{line}");
            let outside: String = line.split('`').step_by(2).collect();
            assert!(!outside.contains(['@', '[', '{', '*']), "{outside}");
            let mentions = line.char_indices().filter(|(_, c)| *c == '@');
            for (at, _) in mentions {
                assert!(line.get(at + 1..).unwrap().starts_with('\u{200b}'), "{line}");
            }
        }
        assert_eq!(body["unfurl_links"], false);
    }
}

#[test]
fn an_address_of_mail_stays_as_it_is() {
    for (text, expected) in [
        ("alice@example.com", "alice@example.com"),
        ("@alice", "@\u{200b}alice"),
        ("(@all)", "(@\u{200b}all)"),
        ("@@all", "@\u{200b}@\u{200b}all"),
        ("a@b @c", "a@b @\u{200b}c"),
    ] {
        assert_eq!(escape_mentions(text), expected);
    }
}

#[test]
fn posts_stay_within_what_mattermost_and_teams_take() {
    let long = "<&>".repeat(4000);
    let fields = (0..40).map(|number| {
        let path: Path = format!("/{number}{long}").parse().unwrap();
        FieldFinding::untouched(path)
    });
    let large = Notification { fields: fields.collect(), ..message(NotificationSubject::Drifted, &long) };
    let slack = body(&shipped(FormatName::Slack), &large).unwrap();
    let text = slack["text"].as_str().unwrap();
    assert!(text.chars().count() < 4000 && text.ends_with("\n• …"), "{text}");
    let teams = body(&shipped(FormatName::Teams), &large).unwrap();
    assert!(teams.to_string().len() < 28_000, "{}", teams.to_string().len());
}

#[test]
fn fields_beyond_eight_are_counted() {
    let fields = (0..30).map(|number| {
        let path: Path = format!("/data/{number}").parse().unwrap();
        FieldFinding::untouched(path)
    });
    let drifted = Notification { fields: fields.collect(), ..message(NotificationSubject::Drifted, "a") };
    let body = body(&template(r#"[{{ text }}, {{ fields }}, {{ moreFields }}]"#).unwrap(), &drifted).unwrap();
    let text = body[0].as_str().unwrap();
    assert!(text.contains("\n/data/7: release nothing, live nothing\nand 22 more\n"), "{text}");
    assert_eq!((body[1].as_array().unwrap().len(), &body[2]), (20, &json!(10)));
}

#[test]
fn teams_gets_a_card_that_holds_text_alone() {
    for name in HOSTILE {
        let body = body(&shipped(FormatName::Teams), &message(NotificationSubject::Drifted, name)).unwrap();
        assert_eq!(body["type"], "message");
        assert_eq!(body["attachments"][0]["contentType"], "application/vnd.microsoft.card.adaptive");
        let card = &body["attachments"][0]["content"];
        assert_eq!((card["type"].as_str(), card["version"].as_str()), (Some("AdaptiveCard"), Some("1.4")));
        assert!(card["msteams"].get("entities").is_none(), "{card}");
        for block in card["body"].as_array().unwrap() {
            // A TextBlock would be read as Markdown.
            assert_eq!(block["type"], "RichTextBlock", "{block}");
            for run in block["inlines"].as_array().unwrap() {
                assert_eq!(run["type"], "TextRun", "{run}");
                assert!(!run["text"].as_str().unwrap().contains(char::is_control), "{run}");
            }
        }
    }
}

#[test]
fn no_text_turns_the_direction_of_what_follows() {
    let name = "\u{202e}gnp.exe\u{2066}\u{200f}\nnext";
    let drifted = message(NotificationSubject::Drifted, name);
    let mut shown = alert(&drifted);
    for body in [
        body(&shipped(FormatName::Slack), &drifted).unwrap(),
        body(&shipped(FormatName::Teams), &drifted).unwrap(),
        shown["annotations"].take(),
    ] {
        let mut found = Vec::new();
        texts(&body, &mut found);
        for text in found {
            assert!(!text.contains(['\u{202e}', '\u{2066}', '\u{200f}']), "{text:?}");
            assert!(!text.contains("\nnext"), "{text:?}");
        }
    }
}

#[test]
fn alertmanager_resolves_by_the_same_labels() {
    for (begins, ends) in [
        (NotificationSubject::Drifted, NotificationSubject::Repaired),
        (NotificationSubject::NotRepaired, NotificationSubject::DriftEnded),
        (NotificationSubject::Contested, NotificationSubject::ContestEnded),
        (NotificationSubject::Braked, NotificationSubject::BrakeReleased),
        (NotificationSubject::EnforcementDisabled, NotificationSubject::EnforcementEnabled),
        (NotificationSubject::ExceptionOpened, NotificationSubject::ExceptionClosed),
        (NotificationSubject::ExceptionEnding, NotificationSubject::ExceptionClosed),
        (NotificationSubject::OperationStuck, NotificationSubject::OperationEnded),
    ] {
        let (begun, ended) = (message(begins, "a"), message(ends, "a"));
        let alerts = [alert(&begun), alert(&ended)];
        assert_eq!(alerts[0]["labels"], alerts[1]["labels"]);
        assert_eq!(alerts[0]["endsAt"], json!(begun.at + LASTING));
        assert_eq!(alerts[1]["endsAt"], json!(ended.at));
        assert_eq!(alerts[0]["startsAt"], "2026-11-23T09:00:00Z");
        for value in alerts[0]["labels"].as_object().unwrap().values() {
            assert!(!value.as_str().unwrap().is_empty(), "{alerts:?}");
        }
    }
    // Nothing would end it: that is for `resolve_timeout`.
    let denied = alert(&message(NotificationSubject::Denied, "alice"));
    assert_eq!((&denied["endsAt"], &denied["labels"]["user"]), (&Value::Null, &json!("alice")));
}

#[test]
fn alert_never_ends_before_start_and_exceptions_end_on_time() {
    let later: Timestamp = "2026-11-23T11:00:00Z".parse().unwrap();
    let ahead = alert(&Notification { since: later, ..message(NotificationSubject::Repaired, "a") });
    let exception =
        alert(&Notification { until: Some(later), ..message(NotificationSubject::ExceptionOpened, "a") });
    assert_eq!((&ahead["startsAt"], &ahead["endsAt"]), (&json!(later), &json!(later)));
    assert_eq!(exception["endsAt"], json!(later));
}

#[test]
fn annotations_mention_nobody_in_the_chat_that_alertmanager_tells() {
    for name in HOSTILE {
        let alert = alert(&message(NotificationSubject::Drifted, name));
        for annotation in ["summary", "description"] {
            let text = alert["annotations"][annotation].as_str().unwrap();
            for (at, sign) in text.char_indices().filter(|(_, c)| matches!(c, '<' | '@')) {
                let follows = text.get(at + 1..).unwrap().starts_with('\u{200b}');
                let of_mail = sign == '@' && text.get(..at).unwrap().ends_with(char::is_alphanumeric);
                assert!(follows || of_mail, "{text}");
            }
        }
    }
}

#[test]
fn pagerduty_triggers_and_resolves_one_alert_for_a_release() {
    let format = shipped(FormatName::PagerDuty);
    let trigger = body(&format, &message(NotificationSubject::Drifted, "a")).unwrap();
    let other = body(&format, &message(NotificationSubject::Drifted, "b")).unwrap();
    assert_eq!(
        (&trigger["event_action"], &trigger["payload"]["severity"]),
        (&json!("trigger"), &json!("warning"))
    );
    assert_eq!(trigger["payload"]["component"], "shop/web");
    assert_eq!(trigger["dedup_key"], other["dedup_key"]);
    assert!(trigger["dedup_key"].as_str().unwrap().len() <= 255);
    // Something else still drifts.
    let first = Notification { remaining: 1, ..message(NotificationSubject::Repaired, "a") };
    assert_eq!(body(&format, &first), None);
    let resolve = body(&format, &message(NotificationSubject::DriftEnded, "b")).unwrap();
    let expected = json!({
        "routing_key": "0123456789abcdef0123456789abcdef",
        "event_action": "resolve",
        "dedup_key": trigger["dedup_key"],
    });
    assert_eq!(resolve, expected);
    let emergency =
        body(&format, &Notification::new(NotificationSubject::EnforcementDisabled, now())).unwrap();
    assert_eq!(emergency["payload"]["severity"], "critical");
    assert_ne!(emergency["dedup_key"], trigger["dedup_key"]);
    let long = body(&format, &message(NotificationSubject::Drifted, &"x".repeat(5000))).unwrap();
    assert!(long["payload"]["summary"].as_str().unwrap().chars().count() <= 1024);
}

fn template(source: &str) -> Result<Format, String> {
    Format::template(source.to_owned())
}

#[test]
fn a_template_makes_json_of_whatever_it_prints() {
    let source = r#"{"event": {{ event }}, "who": {{ by }}, "both": {{ "Object " ~ object.name }}, "all": {{ title }},
        "fields": [{% for field in fields %}{{ field.path }}{% endfor %}null], "release": {{ release.name }}}"#;
    assert!(template(source).is_err(), "it is tried with several fields");
    let source = r#"{"event": {{ event }}, "who": {{ by }}, "both": {{ "Object " ~ object.name }}, "all": {{ title }},
        "fields": {{ fields }}, "release": {{ release.name }}}"#;
    let format = template(source).unwrap();
    for name in HOSTILE {
        let body = body(&format, &message(NotificationSubject::Drifted, name)).unwrap();
        assert_eq!(body["who"], name);
        assert_eq!(body["both"], format!("Object {name}"));
        assert_eq!(body.as_object().unwrap().len(), 6, "{body}");
    }
    let body = body(&format, &Notification::new(NotificationSubject::EnforcementDisabled, now())).unwrap();
    assert_eq!(body["release"], Value::Null);
}

#[test]
fn a_template_that_cannot_serve_is_refused_at_the_start() {
    let long = "x".repeat((16 << 10) + 1);
    for (source, said) in [
        (r#"{"text": "{{ title }}"}"#, "not JSON"),
        ("hunter2", "not JSON"),
        ("{% if %}hunter2", "its syntax is invalid"),
        (r#"{"a": {{ hunter2 }}}"#, "an undefined value"),
        (r#"{"a": {{ object.hunter2 }}}"#, "an undefined value"),
        (r#"{"a": {{ title | safe }}}"#, "it uses an unknown filter"),
        (r#"{% autoescape false %}{"a": "{{ by }}"}{% endautoescape %}"#, "not JSON"),
        (r#"{"a": {% for x in range(100000000) %}{{ x }}{% endfor %}}"#, "it cannot be rendered"),
        (
            r#"[{% for a in fields or "0123456789" %}{% for b in "0123456789" * 1000 %}{% for c in "0123456789" * 1000 %}1,{% endfor %}{% endfor %}{% endfor %}0]"#,
            "too many steps",
        ),
        (r#"{"a": {{ "hunter2" * 100000000 }}}"#, ""),
        (r#"{"a": {{ "hunter2" * 50000 }}}"#, ""),
        (r#"{% include "/etc/passwd" %}"#, ""),
        (long.as_str(), "more than"),
    ] {
        let error = template(source).err().unwrap();
        assert!(error.contains(said) && !error.contains("hunter2"), "{source}: {error}");
    }
}

#[test]
fn template_of_many_operators_does_not_overflow_the_stack() {
    let tag = |front: &str, part: &str, count: usize| format!("[{{{{ {front}{} }}}}]", part.repeat(count));
    for source in [
        tag("", "-", 16_000),
        tag("", "not ", 4000),
        tag("title", "~title", 2500),
        tag("title", "|upper", 2500),
        tag("1", "+1", 8000),
        tag("title", ".a", 8000),
        tag("", "[", 16_000),
        tag("title", " if by else title", 900),
        format!("{{% if by %}}{}{{% endif %}}", "{%elif by%}".repeat(1400)),
        "{% for a in title %}".repeat(700),
    ] {
        let _ = template(&source);
    }
}

#[test]
fn long_texts_of_a_message_are_cut() {
    let long = "ä".repeat(300_000);
    let path: Path = format!("/data/{long}").parse().unwrap();
    let fields = vec![FieldFinding::untouched(path); 30];
    let large = Notification { fields, ..message(NotificationSubject::Drifted, &long) };
    let format = template("{{ {'by': by, 'path': fields[0].path, 'name': object.name} }}");
    let cut = |text: &Value| text.as_str().unwrap().chars().count();
    let own = body(&shipped(FormatName::CloudEvents), &large).unwrap();
    assert_eq!(cut(&own["data"]["detail"]), 1000);
    assert!(own["data"]["by"].as_str().unwrap().ends_with("ä…"));
    // It is tried without fields, which it does not expect.
    assert!(format.err().unwrap().contains("an undefined value"));
    let format = template("{{ {'by': by, 'fields': fields, 'name': object.name} }}").unwrap();
    let own = body(&format, &large).unwrap();
    assert_eq!([&own["by"], &own["name"], &own["fields"][19]["path"]].map(cut), [1000; 3]);
}

#[test]
fn every_message_has_words_in_every_format() {
    let mut formats =
        [FormatName::CloudEvents, FormatName::Slack, FormatName::Teams, FormatName::Alertmanager]
            .map(shipped)
            .to_vec();
    formats.push(template(r#"{"text": {{ text }}}"#).unwrap());
    for subject in NotificationSubject::ALL {
        for message in [Notification::new(subject, now()), message(subject, "web")] {
            for format in &formats {
                let mut found = Vec::new();
                texts(&body(format, &message).unwrap(), &mut found);
                assert!(found.iter().any(|text| text.len() > 3), "{found:?}");
            }
        }
    }
}

#[test]
fn a_template_that_prints_nothing_sends_nothing() {
    let format = template("{% if topic == 'drift' %}[{{ event }}]{% endif %}").unwrap();
    assert_eq!(body(&format, &message(NotificationSubject::Drifted, "a")), Some(json!(["drift.detected"])));
    assert_eq!(body(&format, &message(NotificationSubject::Denied, "a")), None);
    // Nobody is paged for what nothing resolves.
    for subject in [
        NotificationSubject::Denied,
        NotificationSubject::ExceptionOpened,
        NotificationSubject::ExceptionClosed,
    ] {
        assert_eq!(body(&shipped(FormatName::PagerDuty), &message(subject, "a")), None);
    }
    assert!(body(&shipped(FormatName::PagerDuty), &message(NotificationSubject::Test, "a")).is_some());
}

#[test]
fn sentences_name_the_object_and_say_what_to_do() {
    let format = template("{{ text }}").unwrap();
    let text = |message: &Notification| body(&format, message).unwrap().as_str().unwrap().to_owned();
    assert_eq!(
        text(&message(NotificationSubject::Drifted, "a")),
        "Deployment/a in namespace shop does not match Helm release shop/web (revision 3)\n\
         Changed by: a\nReason: a\nDetails: kubemoor diff web -n shop"
    );
    assert_eq!(
        text(&Notification { detail: None, ..message(NotificationSubject::Denied, "a") }),
        "A change of Deployment/a in namespace shop was denied in Helm release shop/web (revision 3)\n\
         User: a\nDetails: kubemoor audit --verdict Deny --release web -n shop"
    );
    assert_eq!(
        text(&Notification::new(NotificationSubject::EnforcementDisabled, now())),
        "Emergency: no change is checked and nothing is repaired until a person closes it\n\
         To close it: kubemoor emergency close"
    );
}
