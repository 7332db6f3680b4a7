//! The files that the URL of a PostgreSQL names: certificates and a key.
//!
//! Entry point: [`fault`]. Invariant: no password is quoted, even if a mistyped URL has one behind the name of a file.
//! Must not connect.

use std::io::ErrorKind;

use percent_encoding::percent_decode_str;

/// The parameters of a URL that name files, in all their spellings.
const PARAMETERS: [&str; 7] =
    ["sslrootcert", "ssl-root-cert", "ssl-ca", "sslcert", "ssl-cert", "sslkey", "ssl-key"];

/// The file because of which the connection failed with this error, and what to do. The driver does not name it.
pub(super) async fn fault(url: &str, error: &sqlx::Error) -> Option<String> {
    let sqlx::Error::Io(error) = error else { return None };
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    for (parameter, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        if !PARAMETERS.contains(&parameter) {
            continue;
        }
        let value = value.replace('+', " ");
        let file = percent_decode_str(&value).decode_utf8_lossy();
        let read = tokio::fs::read(file.as_ref()).await;
        if read.is_err_and(|fault| fault.kind() == error.kind()) {
            return sentence(parameter, &file, error.kind());
        }
    }
    None
}

fn sentence(parameter: &str, file: &str, kind: ErrorKind) -> Option<String> {
    // Behind a mistyped `?` may be any other parameter.
    let file = file.split_once('?').map_or_else(|| file.to_owned(), |(file, _)| format!("{file}?..."));
    Some(match kind {
        ErrorKind::NotFound => format!(
            "`{parameter}` names the file `{file}`, which does not exist: mount the file there, or correct the path in the \
             URL"
        ),
        ErrorKind::PermissionDenied => format!(
            "`{parameter}` names the file `{file}`, which this process may not read: change the mode or the owner of the \
             file"
        ),
        ErrorKind::IsADirectory => {
            format!("`{parameter}` names the directory `{file}`: correct the path in the URL")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[tokio::test]
    async fn file_is_named_only_if_it_has_the_fault_of_the_connection() {
        let check = async |query: &str, kind: ErrorKind, expected: Option<&str>| {
            let error = sqlx::Error::Io(io::Error::from(kind));
            let found = fault(&format!("postgres://moor@db/ledger?{query}"), &error).await;
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
        assert_eq!(fault("postgres://db/x", &sqlx::Error::Io(ErrorKind::NotFound.into())).await, None);
        assert_eq!(fault("postgres://db/x?sslkey=/nowhere", &sqlx::Error::PoolTimedOut).await, None);
    }
}
