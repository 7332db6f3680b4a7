use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn part_that_breaks_down_ends_the_page() {
    let stop = CancellationToken::new();
    let mut parts = SupervisedTasks::default();
    let stopped = stop.clone();
    parts.spawn("waiting", async move { stopped.cancelled().await });
    parts.spawn("breaking", async { panic!("broken") });
    let error =
        timeout(Duration::from_secs(60), wait_for_part_failure(&mut parts, stop.clone())).await.unwrap();
    assert!(error.to_string().contains("a part of the program failed"), "{error:#}");

    // The signal stops the page and is no failure.
    let (mut parts, stopped) = (SupervisedTasks::default(), stop.clone());
    parts.spawn("the signal", async move { stopped.cancel() });
    assert!(timeout(Duration::from_millis(200), wait_for_part_failure(&mut parts, stop)).await.is_err());
}

#[test]
fn session_key_is_read_whole_and_long_enough() {
    let folder = tempfile::tempdir().unwrap();
    let key = |text: &str| {
        let path = folder.path().join("key");
        fs::write(&path, text).unwrap();
        read_key(&path).map(|key| key.as_bytes().to_vec()).map_err(|error| error.to_string())
    };
    let text = "0123456789abcdef0123456789abcdef";
    assert_eq!(key(text), key(&format!("{text}\n")), "an editor's last line is no part of it");
    assert_ne!(key(text), key(&format!("{text}0")));
    let error = key("short").unwrap_err();
    assert!(error.contains("fewer than 32 bytes") && !error.contains("short"), "{error}");
    assert!(read_key(&folder.path().join("none")).is_err());
}
