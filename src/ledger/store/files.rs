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
