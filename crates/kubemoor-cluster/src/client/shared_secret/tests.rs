use http::Response;
use kube::client::Body;

use super::*;

fn client(status: u16, body: Value) -> kube::Client {
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
        std::future::ready(answer)
    });
    kube::Client::new(service, "default")
}

fn secret() -> SharedSecret {
    SharedSecret { namespace: "kubemoor-system".to_owned(), name: "shared".to_owned() }
}

#[tokio::test]
async fn content_is_decoded_and_what_is_no_text_left_out() {
    let data = json!({"a": STANDARD.encode("text"), "b": "%", "c": 1, "d": STANDARD.encode([0xff])});
    let found = secret().read(&client(200, json!({"data": data}))).await.unwrap().unwrap();
    assert!(found.has_content());
    assert_eq!(found.data(), [("a".to_owned(), "text".to_owned())].into());
    for data in [json!(null), json!({})] {
        let found = secret().read(&client(200, json!({"data": data}))).await.unwrap().unwrap();
        assert!(!found.has_content() && found.data().is_empty(), "{data}");
    }
}

#[tokio::test]
async fn a_refusal_that_quotes_the_secret_is_not_passed_on() {
    let data = || BTreeMap::from([("key".to_owned(), "hunter2".to_owned())]);
    let refusal =
        |code: u16| json!({"kind": "Status", "status": "Failure", "message": "hunter2", "code": code});
    let error = secret().write(&client(403, refusal(403)), data(), None).await.unwrap_err();
    assert!(error.to_string().contains("needs create and update"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    assert!(!secret().write(&client(409, refusal(409)), data(), None).await.unwrap());
    // Without its namespace it cannot be made; what was there may have gone meanwhile.
    assert!(secret().write(&client(404, refusal(404)), data(), None).await.is_err());
    let found = Some(FoundSecret(json!({})));
    assert!(!secret().write(&client(404, refusal(404)), data(), found).await.unwrap());
}
