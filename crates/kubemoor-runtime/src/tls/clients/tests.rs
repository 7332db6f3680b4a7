use jiff::ToSpan;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use super::*;

/// An authority of users' certificates.
struct ClientCa {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl ClientCa {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    /// A certificate with this subject, for what `change` makes of it.
    fn sign(
        &self,
        subject: &[(DnType, DnValue)],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Vec<CertificateDer<'static>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let issuer = Issuer::from_params(&self.params, &self.key);
        vec![params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone()]
    }
}

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn text(text: &str) -> DnValue {
    DnValue::Utf8String(text.to_owned())
}

fn alice() -> [(DnType, DnValue); 2] {
    [(DnType::CommonName, text("alice")), (DnType::OrganizationName, text("people"))]
}

#[test]
fn certificate_of_the_cluster_names_its_user_and_groups() {
    let (cluster, users) = (ClientCa::new(), UserAuthority::default());
    let chain = cluster.sign(&alice(), |_| ());
    assert_eq!(users.identify(&chain, now()), None, "no authority is known yet");
    assert!(users.adopt(Some(&cluster.pem)).unwrap());
    let actor = users.identify(&chain, now()).unwrap();
    let groups = vec!["people".to_owned(), AUTHENTICATED.to_owned()];
    assert_eq!(actor, Actor { user: "alice".to_owned(), groups, ..Actor::default() });
}

#[test]
fn certificate_that_does_not_count_names_nobody() {
    let (cluster, other, users) = (ClientCa::new(), ClientCa::new(), UserAuthority::default());
    users.adopt(Some(&cluster.pem)).unwrap();
    let name = |name: &str| [(DnType::CommonName, text(name))];
    let cases = [
        ("another authority's", other.sign(&alice(), |_| ())),
        (
            "a server's",
            cluster.sign(&alice(), |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
        ),
        ("ended", cluster.sign(&alice(), |it| it.not_after = date_time_ymd(2026, 5, 31))),
        ("not begun", cluster.sign(&alice(), |it| it.not_before = date_time_ymd(2026, 6, 2))),
        ("without a name", cluster.sign(&[(DnType::OrganizationName, text("people"))], |_| ())),
        ("with an empty name", cluster.sign(&name(""), |_| ())),
        ("an authority's", cluster.sign(&alice(), |it| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))),
        (
            "spelled in another character set",
            cluster.sign(&[(DnType::CommonName, DnValue::BmpString("alice".try_into().unwrap()))], |_| ()),
        ),
        ("none", Vec::new()),
        ("no certificate at all", vec![CertificateDer::from(b"alice".to_vec())]),
    ];
    for (what, chain) in cases {
        assert_eq!(users.identify(&chain, now()), None, "{what}");
    }
    assert!(users.identify(&cluster.sign(&name("bob"), |_| ()), now()).is_some());
}

#[test]
fn replaced_or_removed_client_authority_no_longer_identifies_users() {
    let (first, second, users) = (ClientCa::new(), ClientCa::new(), UserAuthority::default());
    let chain = first.sign(&alice(), |_| ());
    let knows = |pem: Option<&str>| {
        users.adopt(pem).unwrap();
        users.identify(&chain, now()).is_some()
    };
    assert!(knows(Some(&first.pem)));
    // While one follows the other both count.
    assert!(knows(Some(&format!("{}{}", second.pem, first.pem))));
    assert!(!knows(Some(&second.pem)));
    assert!(knows(Some(&first.pem)));
    assert!(!users.adopt(Some(&first.pem)).unwrap(), "it is the same");
    // What cannot be read changes nothing.
    for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(users.adopt(Some(broken)).is_err(), "{broken:?}");
    }
    assert!(users.identify(&chain, now()).is_some());
    assert!(!knows(None));
}

#[test]
fn certificate_ends_while_its_connection_goes_on() {
    let (cluster, users) = (ClientCa::new(), UserAuthority::default());
    users.adopt(Some(&cluster.pem)).unwrap();
    let chain = cluster.sign(&alice(), |_| ());
    assert!(users.identify(&chain, now()).is_some());
    assert_eq!(users.identify(&chain, now() + (366 * 24).hours()), None);
}
