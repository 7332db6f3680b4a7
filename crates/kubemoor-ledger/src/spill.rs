//! Standard output, where rows go that the database does not take.
//!
//! Entry point: [`Spill::line`]. Invariant: a caller that spills never waits, not
//! even for a reader of standard output that has stopped reading; what then
//! finds no room is lost, and said to be.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// Lines that wait for standard output.
const ROOM: usize = 4096;

/// How long the end of the program waits for standard output.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes lines in a thread of its own.
pub(super) struct Spill {
    lines: Mutex<Option<SyncSender<String>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Spill {
    /// Begins.
    pub(super) fn new<W: Write + Send + 'static>(out: W) -> Self {
        let (lines, waiting) = sync_channel(ROOM);
        let thread = std::thread::Builder::new().name("ledger-spill".to_owned());
        match thread.spawn(move || write(&waiting, out)) {
            Ok(thread) => Self { lines: Mutex::new(Some(lines)), thread: Mutex::new(Some(thread)) },
            // Without a thread every line is lost, and counted so.
            Err(_) => Self { lines: Mutex::new(None), thread: Mutex::new(None) },
        }
    }

    /// Has a line written. Says whether there was room.
    pub(super) fn line(&self, line: String) -> bool {
        self.lines.lock().as_ref().is_some_and(|lines| lines.try_send(line).is_ok())
    }

    /// Waits until all is written, for a while.
    pub(super) async fn finish(&self) {
        self.lines.lock().take();
        let Some(thread) = self.thread.lock().take() else { return };
        let joined = tokio::task::spawn_blocking(move || drop(thread.join()));
        let _ = tokio::time::timeout(PATIENCE, joined).await;
    }
}

fn write<W: Write>(lines: &Receiver<String>, mut out: W) {
    while let Ok(mut line) = lines.recv() {
        line.push('\n');
        // There is no other place. A closed standard output is treated like one without a reader.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}
