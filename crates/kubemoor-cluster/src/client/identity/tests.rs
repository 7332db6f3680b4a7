use super::*;

fn token(claims: &str) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

#[test]
fn a_service_account_token_names_its_account() {
    let claims = r#"{"iss":"kubernetes","sub":"system:serviceaccount:kubemoor-system:kubemoor"}"#;
    assert_eq!(subject(&token(claims)).unwrap(), "system:serviceaccount:kubemoor-system:kubemoor");
}

#[test]
fn a_refusal_names_whom_it_refuses() {
    let refusal = |user: &str| {
        format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: User {user:?} cannot create resource \
             \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
        )
    };
    for user in ["alice", "system:serviceaccount:ci:deployer", "jane@example.com"] {
        assert_eq!(named(&refusal(user)).as_deref(), Some(user));
    }
    for user in ["", "system:anonymous", "a\" cannot b", "back\\slash"] {
        assert_eq!(named(&refusal(user)), None, "{user}");
    }
    assert_eq!(named("it is forbidden"), None);
}

#[test]
fn credentials_claim_the_user_as_whom_they_act() {
    let mut certificate = rcgen::CertificateParams::default();
    certificate.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    let pem = certificate.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    let by_certificate =
        AuthInfo { client_certificate_data: Some(STANDARD.encode(&pem)), ..AuthInfo::default() };
    assert_eq!(claimed(&by_certificate).unwrap(), "jane");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &pem).unwrap();
    let path = Some(file.path().to_str().unwrap().to_owned());
    assert_eq!(claimed(&AuthInfo { client_certificate: path, ..AuthInfo::default() }).unwrap(), "jane");
    // A user who impersonates another counts as the other.
    let impersonating = AuthInfo { impersonate: Some("bob".to_owned()), ..by_certificate.clone() };
    assert_eq!(claimed(&impersonating).unwrap(), "bob");
    // A token that does not say whose it is may be anybody's.
    let by_token = AuthInfo { token: Some("opaque".to_owned().into()), ..by_certificate };
    assert_eq!(claimed(&by_token), None);
    let broken = AuthInfo { client_certificate_data: Some("%".to_owned()), ..AuthInfo::default() };
    assert_eq!((claimed(&broken), claimed(&AuthInfo::default())), (None, None));
}

#[test]
fn a_token_that_says_nothing_useful_names_nobody() {
    for text in ["", "opaque", "a.b.c", "..", &token("{}"), &token(r#"{"sub":"12345"}"#), &token("[]")] {
        assert_eq!(subject(text), None, "{text}");
    }
}
