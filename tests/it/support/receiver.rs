//! A receiver of notifications that takes everything and keeps it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use super::process::folder;

/// What was received. Lives as long as the test process.
pub(crate) struct Receiver {
    received: Arc<Mutex<Vec<u8>>>,
    /// For `--notifiers`.
    pub(crate) file: PathBuf,
}

impl Receiver {
    /// Begins to receive.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let file = folder("receiver").join("notifiers.yaml");
        let address = listener.local_addr().unwrap();
        fs::write(&file, format!("notifiers: [{{name: receiver, url: 'http://{address}/'}}]\n")).unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&received);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let keep = Arc::clone(&keep);
                thread::spawn(move || while let Some(()) = receive(&connection, &keep) {});
            }
        });
        Self { received, file }
    }

    /// All of it, heads and bodies.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().clone()
    }
}

/// Takes one request; none once the sender closes.
fn receive(mut connection: &TcpStream, keep: &Mutex<Vec<u8>>) -> Option<()> {
    let mut reader = BufReader::new(connection);
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let begin = request.len();
        if reader.read_line(&mut request).ok()? == 0 {
            return None;
        }
        let line = request[begin..].trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    keep.lock().unwrap().extend([request.into_bytes(), body].concat());
    connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()
}
