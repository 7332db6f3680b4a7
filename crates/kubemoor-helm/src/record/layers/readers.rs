//! Readers between the layers of a record.
//!
//! Entry points: [`Unbroken`], [`Capped`]. Invariant: a reader holds no content.

use std::io::{self, BufRead, Read};

/// The payload without the line breaks that Go's base64 decoder passes over.
pub(super) struct Unbroken<R>(pub(super) R);

/// A reader that fails past its cap, and keeps its source's error: the JSON reader would replace that with
/// one of its own.
pub(super) struct Capped<R> {
    pub(super) source: R,
    pub(super) left: usize,
    pub(super) exceeded: bool,
    pub(super) failure: Option<io::Error>,
}

impl<R: BufRead> Read for Unbroken<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written == 0 {
            let chunk = self.0.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let mut taken = 0;
            for byte in chunk {
                let Some(slot) = out.get_mut(written) else { break };
                taken += 1;
                if !matches!(byte, b'\r' | b'\n') {
                    *slot = *byte;
                    written += 1;
                }
            }
            if taken == 0 {
                break;
            }
            self.0.consume(taken);
        }
        Ok(written)
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.source.read(out) {
            Ok(count) if count > self.left => {
                self.exceeded = true;
                Err(io::ErrorKind::FileTooLarge.into())
            }
            Ok(count) => {
                self.left -= count;
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
        }
    }
}
