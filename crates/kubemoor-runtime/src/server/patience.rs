//! Limits how long a connection may keep the server waiting for a request.
//!
//! Entry points: [`Impatient`], the stream, and [`Turn`], with which the service tells the stream that a
//! request is being served. hyper has one timeout for the wait between requests and for a request's head.
//! Here these two differ widely, so the stream tells them apart.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::Limits;

/// Whose turn it is: odd while a request is served, even while one is awaited.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn(Arc<AtomicU64>);

/// A request that is being served, until it is dropped.
#[derive(Debug)]
pub(super) struct Serving(Turn);

/// A stream whose reads fail with `TimedOut` when a request's head takes longer than [`Limits::head`], or
/// does not begin within [`Limits::idle`]. There is no such limit while a request is being served; its body
/// has a separate deadline. Writes fail in the same way when the output is not sent completely within
/// [`Limits::answer`].
#[derive(Debug)]
pub(super) struct Impatient<S> {
    stream: S,
    turn: Turn,
    limits: Limits,
    /// The turn that `waiting` belongs to.
    seen: u64,
    waiting: Waiting,
    /// Kept over turns, because setting a timer is cheaper than making one.
    timer: Option<Pin<Box<Sleep>>>,
    /// Runs while something waits to go out.
    outgoing: Option<Pin<Box<Sleep>>>,
}

/// The awaited part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// A request's first byte; no timer runs for it yet.
    Begin,
    /// A request's first byte, with a timer.
    Idle,
    /// The rest of a head whose first byte came at this time; no timer yet.
    Head(Instant),
    /// The rest of a head, with a timer.
    Late,
}

impl Turn {
    /// A request's head is complete.
    pub(super) fn begin(&self) -> Serving {
        self.0.fetch_add(1, Ordering::Relaxed);
        Serving(self.clone())
    }

    /// Whether a request is being served.
    pub(super) fn is_serving(&self) -> bool {
        self.0.load(Ordering::Relaxed) % 2 == 1
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<S> Impatient<S> {
    pub(super) fn new(stream: S, turn: &Turn, limits: Limits) -> Self {
        let (turn, waiting) = (turn.clone(), Waiting::Begin);
        Self { stream, turn, limits, seen: 0, waiting, timer: None, outgoing: None }
    }

    /// The result of a write that is `done`; an error once it has waited too long.
    fn written<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            return done;
        }
        let end = self.limits.answer;
        let timer = self.outgoing.get_or_insert_with(|| Box::pin(sleep(end)));
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready once the patience is at its end.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = match self.waiting {
            Waiting::Begin => {
                self.waiting = Waiting::Idle;
                Some(Instant::now() + self.limits.idle)
            }
            Waiting::Head(since) => {
                self.waiting = Waiting::Late;
                Some(since + self.limits.head)
            }
            Waiting::Idle | Waiting::Late => None,
        };
        let timer = match (&mut self.timer, deadline) {
            (Some(timer), Some(deadline)) => {
                timer.as_mut().reset(deadline);
                timer
            }
            (Some(timer), None) => timer,
            (none @ None, deadline) => {
                none.insert(Box::pin(sleep_until(deadline.unwrap_or_else(Instant::now))))
            }
        };
        timer.as_mut().poll(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let turn = this.turn.0.load(Ordering::Relaxed);
        if turn % 2 == 1 {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        if turn != this.seen {
            this.seen = turn;
            this.waiting = Waiting::Begin;
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                if matches!(this.waiting, Waiting::Begin | Waiting::Idle) {
                    this.waiting = Waiting::Head(Instant::now());
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending => this.poll_patience(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        if done.is_ready() {
            self.outgoing = None;
        }
        self.written(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.written(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.written(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
