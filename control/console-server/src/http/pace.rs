//! Write timeout of connections, against clients that never read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Time limit for a write without progress.
const WRITE_TIME_MAX: Duration = Duration::from_secs(20);

/// A connection whose writes time out.
pub(super) struct Paced<S> {
    stream: S,
    /// Deadline of the pending write.
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, late: None }
    }

    /// Applies the timeout to the result of a write.
    fn within_time<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let late = || Box::pin(sleep_until(Instant::now() + WRITE_TIME_MAX));
        match self.late.get_or_insert_with(late).as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_time(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.within_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.within_time(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within_time(ended, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const BYTES: usize = 4 << 10;

    #[tokio::test(start_paused = true)]
    async fn who_never_reads_is_left_and_who_reads_slowly_is_not() {
        let (client, server) = tokio::io::duplex(BYTES / 4);
        let refused = Paced::new(server).write_all(&[0; BYTES]).await.expect_err("nobody reads");
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(client);
        let (mut client, server) = tokio::io::duplex(BYTES / 4);
        let writing = tokio::spawn(async move { Paced::new(server).write_all(&[0; BYTES]).await });
        let mut piece = [0; BYTES / 8];
        for _ in 0..8 {
            tokio::time::sleep(WRITE_TIME_MAX * 3 / 4).await;
            client.read_exact(&mut piece).await.expect("it goes on");
        }
        writing.await.expect("no panic").expect("it was read");
    }
}
