//! Lingering close of connections, so that the last response arrives.
//!
//! Closing a socket with unread data resets the connection, and the client may lose a response that
//! it has not read, such as an error for a request that is still being sent. Therefore the write
//! side is closed first, and remaining input is read and dropped, up to a limit of time and size
//! (RFC 9112, section 9.6).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Limits on the time and size of input that is dropped.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// A connection that lingers on shutdown.
pub(crate) struct Lingering<S> {
    stream: S,
    rest: Option<Rest>,
}

/// Input that may still be dropped.
struct Rest {
    bytes: usize,
    end: Pin<Box<Sleep>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, rest: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.rest.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        let end = || Box::pin(sleep_until(Instant::now() + LINGER_TIME_MAX));
        let rest = this.rest.get_or_insert_with(|| Rest { bytes: LINGER_BYTES_MAX, end: end() });
        while rest.bytes > 0 && rest.end.as_mut().poll(context).is_pending() {
            let mut dropped = [0; 4 << 10];
            let mut buffer = ReadBuf::new(&mut dropped);
            let read = ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer));
            // The client has disconnected.
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            rest.bytes = rest.bytes.saturating_sub(buffer.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const ANSWER: &[u8] = b"refused";

    /// Returns what a client reads that sends `size` bytes after the response.
    async fn answer_to(size: usize) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(async move {
            let mut server = Lingering::new(server);
            server.write_all(ANSWER).await.expect("the answer");
            server.shutdown().await.expect("the end");
        });
        let rest = vec![0; size];
        // Beyond the limit, the server has closed the connection.
        let sent = client.write_all(&rest).await;
        assert_eq!(sent.is_ok(), size <= LINGER_BYTES_MAX, "{size}");
        drop(sent);
        let mut answer = Vec::new();
        client.shutdown().await.expect("the client's end");
        client.read_to_end(&mut answer).await.expect("the answer");
        serving.await.expect("no panic");
        answer
    }

    #[tokio::test]
    async fn the_answer_arrives_though_the_client_goes_on_sending() {
        for size in [0, 1, 300 << 10, LINGER_BYTES_MAX, LINGER_BYTES_MAX + (1 << 20)] {
            assert_eq!(answer_to(size).await, ANSWER, "{size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_left_in_the_end() {
        let (_client, server) = tokio::io::duplex(1 << 10);
        let begun = Instant::now();
        Lingering::new(server).shutdown().await.expect("the end");
        assert!(begun.elapsed() >= LINGER_TIME_MAX);
    }
}
