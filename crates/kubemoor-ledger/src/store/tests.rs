use super::*;

#[tokio::test]
async fn tables_of_another_build_are_refused_and_stay() {
    let directory = tempfile::tempdir().unwrap();
    let url: LedgerUrl = format!("sqlite:{}", directory.path().join("ledger.db").display()).parse().unwrap();
    let store = Store::connect(&url, false).await.unwrap();
    let change = async |statement: &'static str| {
        on_pool!(store, writing, |pool| sqlx::query(statement).execute(pool).await.map(drop)).unwrap();
    };
    for _ in ["new", "up to date"] {
        store.migrate().await.unwrap();
        store.check_version().await.unwrap();
    }
    store.cluster("east").await.unwrap();
    change(
        "INSERT INTO kubemoor_migrations (version, description, success, checksum, execution_time) \
         VALUES (9, 'ledger', true, x'', 0)",
    )
    .await;
    for refused in [store.migrate().await, store.check_version().await] {
        assert!(matches!(refused, Err(StoreError::Newer { found: 9, wanted: 1, .. })), "{refused:?}");
    }
    change("UPDATE kubemoor_migrations SET checksum = x''").await;
    for refused in [store.migrate().await, store.check_version().await] {
        assert!(matches!(refused, Err(StoreError::Unreleased { .. })), "{refused:?}");
    }
    assert!(store.probe(ClusterNumber(1), "east").await.unwrap());
}

#[tokio::test]
async fn file_is_named_only_if_it_has_the_fault_of_the_connection() {
    let check = async |query: &str, kind: ErrorKind, expected: Option<&str>| {
        let error = sqlx::Error::Io(io::Error::from(kind));
        let found = fault_of_file(&format!("postgres://moor@db/ledger?{query}"), &error).await;
        let is_expected = match (&found, expected) {
            (Some(found), Some(expected)) => found.starts_with(expected),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{query}, {kind}: {found:?}");
    };
    let missing = Some("`sslrootcert` names the file `/no where/ca.crt`, which does not exist");
    check("sslrootcert=%2Fno%20where/ca.crt", ErrorKind::NotFound, missing).await;
    check("sslmode=verify-full&sslrootcert=/no+where/ca.crt#a", ErrorKind::NotFound, missing).await;
    check("sslrootcert=/no+where/ca.crt", ErrorKind::ConnectionRefused, None).await;
    check("sslrootcert=/no+where/ca.crt", ErrorKind::PermissionDenied, None).await;
    check("sslrootcert=/", ErrorKind::IsADirectory, Some("`sslrootcert` names the directory `/`")).await;
    check("ssl-key=/nowhere", ErrorKind::NotFound, Some("`ssl-key` names the file `/nowhere`")).await;
    check("sslrootcert=/dev/null&host=/nowhere", ErrorKind::NotFound, None).await;
    check("application_name=/nowhere", ErrorKind::NotFound, None).await;
    assert_eq!(fault_of_file("postgres://db/x", &sqlx::Error::Io(ErrorKind::NotFound.into())).await, None);
    assert_eq!(fault_of_file("postgres://db/x?sslkey=/nowhere", &sqlx::Error::PoolTimedOut).await, None);
}
