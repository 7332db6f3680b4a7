//! Results as JUnit XML, which CI systems read.
//!
//! Entry point: [`text`]. Invariant: the document is well-formed, whatever a case is called.

use maud::html;

use super::{CaseResult, Judged, Tally};

use kubemoor_declare::model::text::is_unprintable;

pub(super) fn text(command: &str, tally: &Tally) -> String {
    let document = html! {
        testsuites name=(command) tests=(tally.passed + tally.failed) failures=(tally.failed) {
            @for Judged { name, file, cases } in &tally.suites {
                @let failed = cases.iter().filter(|case| case.failure.is_some()).count();
                testsuite name=(plain(name)) file=(plain(&file.display().to_string())) tests=(cases.len()) failures=(failed) {
                    @for CaseResult { name: case, failure } in cases {
                        testcase name=(plain(case)) classname=(plain(name)) {
                            @if let Some(failure) = failure {
                                failure message=(plain(failure)) { (plain(failure)) }
                            }
                        }
                    }
                }
            }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", document.into_string())
}

/// Text without the characters that XML cannot have, or that are not printed.
fn plain(text: &str) -> String {
    let is_lost = |letter: char| {
        matches!(letter, '\u{fffe}' | '\u{ffff}') || is_unprintable(letter) && !"\t\n\r".contains(letter)
    };
    text.replace(is_lost, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_well_formed_whatever_a_case_is_called() {
        let case = |name: &str, failure: Option<&str>| CaseResult {
            name: name.to_owned(),
            failure: failure.map(str::to_owned),
        };
        let mut tally = Tally::default();
        tally.add(Judged {
            name: "scale & <restart>".to_owned(),
            file: "policies/tests/a.yaml".into(),
            cases: vec![
                case("say \"no\"\u{1b}", None),
                case("b", Some("expected Deny, got Allow (as-declared)")),
            ],
        });
        assert_eq!(
            text("kubemoor policy test", &tally),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuites name=\"kubemoor policy test\" tests=\"2\" failures=\"1\">\
             <testsuite name=\"scale &amp; &lt;restart&gt;\" file=\"policies/tests/a.yaml\" tests=\"2\" failures=\"1\">\
             <testcase name=\"say &quot;no&quot;\u{fffd}\" classname=\"scale &amp; &lt;restart&gt;\"></testcase>\
             <testcase name=\"b\" classname=\"scale &amp; &lt;restart&gt;\">\
             <failure message=\"expected Deny, got Allow (as-declared)\">expected Deny, got Allow (as-declared)</failure>\
             </testcase></testsuite></testsuites>\n"
        );
    }
}
