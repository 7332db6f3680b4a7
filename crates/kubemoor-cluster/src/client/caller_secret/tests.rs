use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;

use super::*;

fn client(status: u16, body: Value) -> kube::Client {
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
        std::future::ready(answer)
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_file_keeps_what_is_written_from_everybody_else() {
    use std::os::unix::fs::PermissionsExt as _;
    let (directory, client) = (tempfile::tempdir().unwrap(), client(500, json!({})));
    let place = Place::Directory(directory.path().to_owned());
    assert!(place.read(&client).await.unwrap().is_none());
    let kept = Kept::random(Timestamp::UNIX_EPOCH).unwrap();
    assert!(place.write(&client, &kept, None).await.unwrap());
    assert!(place.read(&client).await.unwrap().unwrap().kept.unwrap().stands_as(&kept));
    let mode = std::fs::metadata(directory.path().join(KEY)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn secret_without_valid_caller_tokens_is_found_but_ignored() {
    let place = Place::Secret("kubemoor-system".to_owned());
    for data in [json!(null), json!({}), json!({KEY: "%"}), json!({KEY: STANDARD.encode("{}")})] {
        let found = place.read(&client(200, json!({"data": data}))).await.unwrap().unwrap();
        assert!(found.kept.is_none(), "{data}");
    }
    let kept = Kept::random(Timestamp::UNIX_EPOCH).unwrap();
    let data = json!({KEY: STANDARD.encode(kept.text())});
    let found = place.read(&client(200, json!({"data": data}))).await.unwrap().unwrap();
    assert!(found.kept.unwrap().stands_as(&kept));
}

#[tokio::test]
async fn a_refusal_that_quotes_the_secret_is_not_passed_on() {
    let place = Place::Secret("kubemoor-system".to_owned());
    let kept = Kept::random(Timestamp::UNIX_EPOCH).unwrap();
    let refusal =
        |code: u16| json!({"kind": "Status", "status": "Failure", "message": kept.text(), "code": code});
    let error = place.write(&client(403, refusal(403)), &kept, None).await.unwrap_err();
    assert!(error.to_string().contains("needs create and update"), "{error}");
    assert!(!format!("{error} {error:?}").contains("registered"), "{error:?}");
    assert!(!place.write(&client(409, refusal(409)), &kept, None).await.unwrap());
    // Without its namespace it cannot be made; what was there may have gone meanwhile.
    assert!(place.write(&client(404, refusal(404)), &kept, None).await.is_err());
    let found = Some(Found::of(kept.clone()));
    assert!(!place.write(&client(404, refusal(404)), &kept, found).await.unwrap());
}
