mod configuration {
    use std::fs;
    use std::io::{Error, ErrorKind};
    use std::path::PathBuf;

    use super::super::*;

    const ABSENT: &str = "No such file or directory (os error 2)";

    #[test]
    fn error_names_a_file_once_and_without_doubled_quotes() {
        let absent = || Error::new(ErrorKind::NotFound, "it does not exist");
        let path = || PathBuf::from("/nowhere/file");
        let file = || LoadDataError::ReadFile(absent(), path());
        for (error, expected) in [
            (
                KubeconfigError::ReadConfig(absent(), path()),
                "/nowhere/file cannot be read: it does not exist",
            ),
            (
                KubeconfigError::LoadCertificateAuthority(file()),
                "certificate authority: /nowhere/file cannot be read: it does not exist",
            ),
            (
                KubeconfigError::LoadClientCertificate(file()),
                "client certificate: /nowhere/file cannot be read: it does not exist",
            ),
            (
                KubeconfigError::LoadClientKey(file()),
                "client key: /nowhere/file cannot be read: it does not exist",
            ),
            (
                KubeconfigError::LoadClientKey(LoadDataError::NoBase64DataOrFile),
                "client key: no base64 data or file",
            ),
            (KubeconfigError::CurrentContextNotSet, "failed to determine current context"),
        ] {
            assert_eq!(reason(&error), expected);
        }
    }

    #[tokio::test]
    async fn sentence_about_a_named_kubeconfig_names_it_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let said = async |path: PathBuf| {
            let access = ClusterAccess { kubeconfig: Some(path), ..ClusterAccess::default() };
            configuration(&access).await.unwrap_err().to_string()
        };
        let absent = format!("the kubeconfig {} cannot be used: {ABSENT}", file.display());
        assert_eq!(said(file.clone()).await, absent);
        let authority = folder.path().join("ca.crt");
        let text = serde_json::json!({
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority": authority}}],
            "users": [{"name": "a", "user": {}}],
        });
        fs::write(&file, text.to_string()).unwrap();
        let without = format!(
            "the kubeconfig {} cannot be used: certificate authority: {} cannot be read: {ABSENT}",
            file.display(),
            authority.display()
        );
        assert_eq!(said(file).await, without);
    }
}

mod pool {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::time::timeout;

    use super::super::*;

    /// How a client's server behaves.
    #[derive(Clone, Copy, Debug)]
    enum ServerBehaviour {
        /// It answers after so many milliseconds.
        After(u64),
        /// Nothing arrives there.
        Lost,
        /// Nobody listens there.
        Refuses,
    }

    use ServerBehaviour::{After, Lost, Refuses};

    /// A pool whose first client meets the first of `servers`, and all others the second; and how many clients were made
    /// and requests sent.
    fn pool(servers: [ServerBehaviour; 2]) -> (ConnectionPool, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let (made, sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (clients, requests) = (Arc::clone(&made), Arc::clone(&sent));
        let make = move || {
            let number = clients.fetch_add(1, Ordering::Relaxed);
            let (server, requests) = (servers[number.min(1)], Arc::clone(&requests));
            let service = tower::service_fn(move |_: Request<Body>| {
                requests.fetch_add(1, Ordering::Relaxed);
                async move {
                    match server {
                        After(millis) => sleep(Duration::from_millis(millis)).await,
                        Lost => std::future::pending().await,
                        Refuses => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
                    }
                    let answer = Response::new(Body::from(number.to_string().into_bytes()));
                    Ok::<_, std::io::Error>(answer)
                }
            });
            Ok(Client::new(service, "default"))
        };
        (ConnectionPool::new(make).unwrap(), made, sent)
    }

    fn request(method: Method) -> Request<Body> {
        Request::builder().method(method).uri("/version").body(Body::empty()).unwrap()
    }

    /// The number of the client that answers.
    async fn answering(pool: &ConnectionPool, method: Method) -> Option<String> {
        let answer = timeout(Duration::from_secs(10), pool.send(request(method))).await.ok()?.ok()?;
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        Some(String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn read_is_retried_on_new_connection_when_old_is_silent() {
        for (servers, method, answer, requests) in [
            // A server that answers in time is asked once.
            ([After(0), After(0)], Method::GET, Some("0"), 1),
            ([After(900), After(0)], Method::GET, Some("0"), 1),
            // Slow, and no slower than the other connection.
            ([After(1500), After(900)], Method::GET, Some("0"), 2),
            ([Lost, After(100)], Method::GET, Some("1"), 2),
            // The server is away, and comes back on the first connection.
            ([After(5000), Refuses], Method::GET, Some("0"), 2),
            ([Lost, Lost], Method::GET, None, 2),
            ([Refuses, After(0)], Method::GET, None, 1),
            // Nothing that may change anything is sent twice.
            ([Lost, After(0)], Method::PUT, None, 1),
            ([After(5000), After(0)], Method::PATCH, Some("0"), 1),
        ] {
            let (pool, _, sent) = pool(servers);
            let what = format!("{servers:?} {method}");
            assert_eq!(answering(&pool, method).await.as_deref(), answer, "{what}");
            assert_eq!(sent.load(Ordering::Relaxed), requests, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_use_a_new_connection_after_connection_loss() {
        let (pool, made, sent) = pool([Lost, After(10)]);
        let began = Instant::now();
        // All that wait are asked anew, over one new client.
        let answers = join_all((0..20).map(|_| answering(&pool, Method::GET))).await;
        assert!(answers.iter().all(|answer| answer.as_deref() == Some("1")), "{answers:?}");
        assert!(began.elapsed() < Duration::from_millis(1100), "{:?}", began.elapsed());
        assert_eq!((made.load(Ordering::Relaxed), sent.load(Ordering::Relaxed)), (2, 40));
        assert_eq!(answering(&pool, Method::PATCH).await.as_deref(), Some("1"));
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_server_gets_one_duplicate_read_per_five_seconds() {
        let (pool, made, sent) = pool([After(3000), After(3000)]);
        for _ in 0..3 {
            let answers = join_all((0..100).map(|_| answering(&pool, Method::GET))).await;
            assert!(answers.iter().all(|answer| answer.as_deref() == Some("0")), "{answers:?}");
        }
        assert_eq!((made.load(Ordering::Relaxed), sent.load(Ordering::Relaxed)), (3, 302));
    }
}
