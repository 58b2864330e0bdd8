//! Bytes of one connection, in both directions.

use bytes::BytesMut;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::error::SqlError;
use crate::wire::{Answers, Request, take_request};

/// Answers are sent when there are so many bytes of them.
pub(super) const SEND_BYTES: usize = 64 << 10;

/// While a statement runs, no more than this is read ahead.
const AHEAD_BYTES_MAX: usize = 64 << 10;

const READ_BYTES: usize = 8 << 10;

pub(super) struct Io<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    pub(super) input: BytesMut,
    pub(super) out: Answers,
}

/// What a connection is served over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// Why a message did not come.
pub(super) enum Unread {
    /// The client went, or the connection broke.
    Closed,
    /// What came is none.
    Invalid(SqlError),
}

impl<S: Stream> Io<S> {
    pub(super) fn new(stream: S, input: BytesMut) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self { reader, writer, input, out: Answers::default() }
    }

    /// The next message.
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

    /// Whether another message is there as a whole or in part.
    pub(super) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Waits until the client goes; reads ahead meanwhile.
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

    /// Sends what is to be sent.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        if self.out.0.is_empty() {
            return Ok(());
        }
        self.writer.write_all(&self.out.0).await?;
        self.out.0.clear();
        self.writer.flush().await
    }
}
