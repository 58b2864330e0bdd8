//! Buffered input and output of one connection.

use bytes::BytesMut;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::error::SqlError;
use crate::wire::{Answers, Request, take_request};

/// Size of pending output at which it is sent.
pub(super) const SEND_BYTES: usize = 64 << 10;

/// Maximum read-ahead while a statement runs.
const AHEAD_BYTES_MAX: usize = 64 << 10;

const READ_BYTES: usize = 8 << 10;

pub(super) struct Io<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    pub(super) input: BytesMut,
    pub(super) out: Answers,
}

/// Transport of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// Reason why no message was received.
pub(super) enum Unread {
    /// The client disconnected, or the connection failed.
    Closed,
    /// The message is malformed.
    Invalid(SqlError),
}

impl<S: Stream> Io<S> {
    pub(super) fn new(stream: S, input: BytesMut) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self { reader, writer, input, out: Answers::default() }
    }

    /// Receives the next message.
    pub(super) async fn request(&mut self, bytes_max: usize) -> Result<Request, Unread> {
        loop {
            match take_request(&mut self.input, bytes_max) {
                Ok(Some(request)) => return Ok(request),
                Ok(None) => {}
                Err(error) => return Err(Unread::Invalid(error)),
            }
            self.input.reserve(READ_BYTES);
            match self.reader.read_buf(&mut self.input).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(Unread::Closed),
            }
        }
    }

    /// Returns whether another message was received, at least in part.
    pub(super) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Returns the type byte of the next message, if it was received.
    pub(super) fn next_kind(&self) -> Option<u8> {
        self.input.first().copied()
    }

    /// Waits until the client disconnects. Reads ahead meanwhile.
    pub(super) async fn closed(&mut self) {
        while self.input.len() < AHEAD_BYTES_MAX {
            self.input.reserve(READ_BYTES);
            match self.reader.read_buf(&mut self.input).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
        std::future::pending().await
    }

    /// Sends pending output. Cancel-safe: unsent bytes stay buffered, and the next call continues
    /// after the last byte sent.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        while !self.out.0.is_empty() {
            if self.writer.write_buf(&mut self.out.0).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.writer.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlState;
    use crate::wire::TransactionState;
    use tokio::io::{DuplexStream, duplex};

    /// Cancels a send after the other end has read `sent.len()` bytes.
    async fn give_up_after(io: &mut Io<DuplexStream>, client: &mut DuplexStream, sent: &mut [u8]) {
        tokio::select! {
            biased;
            read = client.read_exact(sent) => assert!(read.is_ok()),
            _ = io.send() => panic!("more is to be sent than was read"),
        }
    }

    #[test]
    fn what_is_sent_after_a_send_was_given_up_goes_on_at_the_next_byte() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let error = SqlError::new(SqlState::CANCELLED, "canceling statement");
        let mut expected = Answers::default();
        (0..3).for_each(|_| expected.command_complete("SELECT 1"));
        let before_error = expected.0.len();
        expected.error(&error, "ERROR");
        expected.ready(TransactionState::Idle);
        for pipe_bytes in [1, 7] {
            for cut in 0..before_error - pipe_bytes {
                runtime.block_on(async {
                    let (mut client, server) = duplex(pipe_bytes);
                    let mut io = Io::new(server, BytesMut::new());
                    (0..3).for_each(|_| io.out.command_complete("SELECT 1"));
                    let mut found = vec![0; cut];
                    give_up_after(&mut io, &mut client, &mut found).await;
                    io.out.error(&error, "ERROR");
                    io.out.ready(TransactionState::Idle);
                    let mut rest = Vec::new();
                    let sending = async {
                        io.send().await.expect("the client reads");
                        drop(io);
                    };
                    let (read, ()) = tokio::join!(client.read_to_end(&mut rest), sending);
                    read.expect("the server sends");
                    found.extend(rest);
                    assert_eq!(found, expected.0, "cut after {cut} bytes");
                });
            }
        }
    }
}
