use super::*;
use kubemoor_runtime::callers::CallerToken;
use kubemoor_runtime::metrics;

fn door(proof: Proof) -> Door {
    Door::new(proof, Callers::default(), AdmissionMetrics::register(&mut metrics::registry()))
}

#[test]
fn only_a_path_with_a_known_token_is_answered() {
    let door = door(Proof::Token);
    let (known, other) = ("a".repeat(64), "b".repeat(64));
    assert_eq!(door.stage(&format!("/validate/{known}")), None, "nobody is known yet");
    door.callers().accept(CallerToken::parse(&known).unwrap(), None);
    for (path, stage) in [
        (format!("/validate/{known}"), Some(Stage::Validate)),
        (format!("/mutate/{known}"), Some(Stage::Mutate)),
        (format!("/validate/{other}"), None),
        (format!("/validate/{known}a"), None),
        (format!("/validate/{known}/"), None),
        (format!("/validate//{known}"), None),
        (format!("/validate/{}", "a".repeat(63)), None),
        (format!("/validate{known}"), None),
        (format!("/Validate/{known}"), None),
        (format!("/{known}"), None),
        ("/validate".to_owned(), None),
        ("/validate/".to_owned(), None),
        ("/".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(door.stage(&path), stage, "{path}");
    }
}

#[test]
fn behind_a_certificate_the_path_holds_no_token() {
    let door = door(Proof::Certificate);
    for (path, stage) in [
        ("/validate", Some(Stage::Validate)),
        ("/mutate", Some(Stage::Mutate)),
        ("/validate/", None),
        ("/validate/x", None),
        ("/", None),
    ] {
        assert_eq!(door.stage(path), stage, "{path}");
    }
}
