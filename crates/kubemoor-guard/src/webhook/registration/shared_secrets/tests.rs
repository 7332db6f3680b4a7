use std::os::unix::fs::PermissionsExt as _;

use http::{Request, Response};
use kube::client::Body;

use super::*;

/// An API server that does not answer.
fn client() -> kube::Client {
    let service = tower::service_fn(|_: Request<Body>| async {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>().await
    });
    kube::Client::new(service, "default")
}

fn rotation(directory: &std::path::Path) -> Rotation {
    let source = CertificateSource::SelfMade { directory: directory.to_owned(), names: Vec::new() };
    let proof = CallerProof::Kept { life: Duration::from_secs(20) };
    Rotation::new(&proof, None, &source, CallerSecrets::default(), Readiness::default().condition("callers"))
}

#[test]
fn rotation_pace_is_bounded_and_shrinks_with_the_token_lifetime() {
    let seconds = |pace: RotationPace| [pace.spread, pace.grace, pace.look].map(|it| it.as_secs_f64());
    assert_eq!(seconds(RotationPace::new(Duration::from_secs(86_400))), [60.0, 300.0, 15.0]);
    assert_eq!(seconds(RotationPace::new(Duration::from_secs(20))), [2.0, 2.0, 0.5]);
}

#[tokio::test]
async fn a_file_keeps_what_is_written_from_everybody_else() {
    let directory = tempfile::tempdir().unwrap();
    let (rotation, file) = (rotation(directory.path()), directory.path().join(CALLERS));
    let mut state = RotationState::default();
    rotation.look(&client(), &mut state, true, false).await.unwrap();
    let kept = state.known.unwrap();
    assert!(
        SharedCallerSecret::parse(&std::fs::read_to_string(&file).unwrap()).unwrap().has_same_tokens(&kept)
    );
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn file_without_valid_caller_tokens_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (rotation, file) = (rotation(directory.path()), directory.path().join(CALLERS));
    for text in ["", "{}", "half of"] {
        std::fs::write(&file, text).unwrap();
        rotation.look(&client(), &mut RotationState::default(), true, false).await.unwrap();
        assert!(SharedCallerSecret::parse(&std::fs::read_to_string(&file).unwrap()).is_some(), "{text:?}");
    }
}
