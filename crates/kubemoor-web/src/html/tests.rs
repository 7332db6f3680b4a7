use super::*;
use kubemoor_policy::signing::SigningKey;

#[tokio::test]
async fn head_names_the_user_in_plain_text() {
    let user = "\"><img src=x onerror=alert(1)>".to_owned();
    let forms = SigningKey::new([1; 32]);
    let visitor = Visitor::new(Vec::new(), LoginMethod::Login, Some(user), forms);
    let page = PageFrame::live(&visitor, "Overview", "").around(&html! {});
    let body = axum::body::to_bytes(page.into_body(), 1 << 20).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.contains("&lt;img src=x") && !text.contains("<img"), "{text}");
}

#[test]
fn page_shows_the_escapes_of_characters_that_reverse_letters() {
    let Html(page) = sent(html! { p { "admin\u{202e}nimda" } "\n" });
    assert_eq!(page, "<p>admin\\u{202e}nimda</p>\n");
}

#[test]
fn states_are_read_as_words() {
    for (state, expected) in [("InSync", "In sync"), ("NotGuarded", "Not guarded"), ("Drifted", "Drifted")] {
        assert_eq!(words(state), expected);
    }
}

#[test]
fn distances_are_told_in_one_unit() {
    for (seconds, expected) in
        [(-5, "5 s ago"), (90, "in 1 min"), (-7200, "2 h ago"), (-864_000, "10 days ago"), (0, "in 0 s")]
    {
        assert_eq!(distance(SignedDuration::from_secs(seconds)), expected);
    }
}

#[test]
fn whatever_a_name_holds_stays_one_value() {
    let odd = "a&b=c#d/e?f \"<g>";
    let text = PageLink::to("release").with("cluster", odd).with("name", "web").text();
    let url: http::Uri = format!("http://localhost/{text}").parse().unwrap();
    let pairs: Vec<_> = url.query().unwrap().split('&').map(|pair| pair.split_once('=').unwrap()).collect();
    assert_eq!(pairs.len(), 2);
    let decoded = percent_encoding::percent_decode_str(pairs[0].1).decode_utf8().unwrap();
    assert_eq!((pairs[0].0, &*decoded), ("cluster", odd));
    assert_eq!(PageLink::to("").text(), "./");
}

#[test]
fn number_of_page_stays_within_its_list() {
    let asked = |page: &str| PageQuery::new(vec![("page".into(), page.into())]);
    for (page, entries, expected) in [
        ("", 0, (1, 1)),
        ("7", 0, (1, 1)),
        ("1", 100, (1, 1)),
        ("2", 101, (2, 2)),
        ("0", 101, (1, 2)),
        ("99", 101, (2, 2)),
        ("-1", 101, (1, 2)),
        ("x", 101, (1, 2)),
    ] {
        assert_eq!(asked(page).page("page", entries, 100), expected, "{page} of {entries}");
    }
}

#[test]
fn a_value_is_replaced_or_left_out() {
    let asked =
        PageQuery::new(vec![("page".into(), "2".into()), ("q".into(), " ".into()), ("q".into(), "a".into())]);
    assert_eq!(asked.get("q"), Some("a"));
    assert_eq!(asked.link("releases").set("page", Some("3")).text(), "releases?q=a&page=3");
    assert_eq!(asked.link("releases").set("page", None).text(), "releases?q=a");
}

#[test]
fn hidden_field_brings_back_what_it_was_given() {
    let Html(page) = sent(hidden_field("reason", "a\u{200f}\n\"<b>"));
    assert_eq!(page, "<input type=\"hidden\" name=\"reason\" value=\"a&#8207;&#10;&quot;&lt;b&gt;\">");
}
