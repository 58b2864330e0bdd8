//! Terminal on a machine's serial port: a libvirt stream on the connection that opened it. Its
//! messages have the serial of that call.
//!
//! Bytes are read from one side only after the other side has accepted the previous ones. So a slow
//! side delays the other one, and little is buffered.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::connection::{HEAD_BYTES, MESSAGE_BYTES_MAX, PROGRAM, STATUS_ERROR, STATUS_OK, VERSION};
use super::xdr::{Malformed, Reader, Writer};

const KIND_STREAM: u32 = 3;
const STATUS_CONTINUE: u32 = 2;

/// Maximum number of bytes sent to the guest in one message.
const CHUNK_BYTES: usize = 4096;

/// Time limit for the guest to process the last input.
const FINISH_TIME_MAX: Duration = Duration::from_secs(5);

/// An open terminal.
#[derive(Debug)]
pub(crate) struct Console {
    pub(super) stream: UnixStream,
    pub(super) procedure: u32,
    pub(super) serial: u32,
}

impl Console {
    /// Copies bytes between the terminal and `client` until one of them closes.
    pub(crate) async fn pass(self, client: impl AsyncRead + AsyncWrite) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(self.stream)?;
        let (from_guest, to_guest) = stream.into_split();
        let (from_client, to_client) = tokio::io::split(client);
        let receiving = receive(from_guest, to_client);
        tokio::pin!(receiving);
        tokio::select! {
            ended = &mut receiving => ended,
            sent = send(from_client, to_guest, self.procedure, self.serial) => {
                // Keep the connection open until then, because libvirt ends the stream with it.
                let _to_guest = sent?;
                let finished = tokio::time::timeout(FINISH_TIME_MAX, receiving).await;
                finished.unwrap_or(Ok(()))
            }
        }
    }
}

/// Copies output from the guest to the client.
async fn receive(mut from: OwnedReadHalf, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut message = Vec::new();
    loop {
        let length = usize::try_from(from.read_u32().await?).unwrap_or(usize::MAX);
        if !(HEAD_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(malformed(Malformed));
        }
        message.resize(length - 4, 0);
        from.read_exact(&mut message).await?;
        match part_of(&message).map_err(malformed)? {
            Part::Data(bytes) => to.write_all(bytes).await?,
            Part::End => return to.flush().await,
            Part::Other => {}
        }
    }
}

/// Copies input from the client to the guest, then ends the stream.
async fn send(
    mut from: impl AsyncRead + Unpin,
    mut to: OwnedWriteHalf,
    procedure: u32,
    serial: u32,
) -> io::Result<OwnedWriteHalf> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut chunk).await?;
        let status = if count == 0 { STATUS_OK } else { STATUS_CONTINUE };
        let length = u32::try_from(HEAD_BYTES + count).expect("a chunk is short");
        let head = Writer::default().word(length).word(PROGRAM).word(VERSION).word(procedure);
        let head = head.word(KIND_STREAM).word(serial).word(status).finish();
        to.write_all(&[&head, &chunk[..count]].concat()).await?;
        if count == 0 {
            return Ok(to);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Data(&'a [u8]),
    End,
    /// An event or another message that is not for the stream.
    Other,
}

/// Classifies a message, given without its length.
fn part_of(message: &[u8]) -> Result<Part<'_>, Malformed> {
    let mut head = Reader::of(message);
    let (program, _version, _procedure) = (head.word()?, head.word()?, head.word()?);
    let (kind, _serial, status) = (head.word()?, head.word()?, head.word()?);
    if program != PROGRAM || kind != KIND_STREAM {
        return Ok(Part::Other);
    }
    match status {
        // When a machine stops, libvirt ends its stream with an empty data message.
        STATUS_CONTINUE if message.len() == HEAD_BYTES - 4 => Ok(Part::End),
        STATUS_CONTINUE => Ok(Part::Data(&message[HEAD_BYTES - 4..])),
        STATUS_OK | STATUS_ERROR => Ok(Part::End),
        _ => Err(Malformed),
    }
}

fn malformed(_: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "invalid stream packet from libvirt: protocol error")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u32, status: u32, bytes: &[u8]) -> Vec<u8> {
        let head = Writer::default().word(PROGRAM).word(VERSION).word(201).word(kind).word(1);
        [&head.word(status).finish(), bytes].concat()
    }

    #[test]
    fn data_ends_and_events_are_told_apart() {
        let data = message(KIND_STREAM, STATUS_CONTINUE, b"login: ");
        assert_eq!(part_of(&data), Ok(Part::Data(b"login: ")));
        assert_eq!(part_of(&message(KIND_STREAM, STATUS_OK, b"")), Ok(Part::End));
        assert_eq!(part_of(&message(KIND_STREAM, STATUS_CONTINUE, b"")), Ok(Part::End));
        assert_eq!(part_of(&message(KIND_STREAM, STATUS_ERROR, b"why")), Ok(Part::End));
        assert_eq!(part_of(&message(2, STATUS_OK, b"event")), Ok(Part::Other));
        assert_eq!(part_of(&message(KIND_STREAM, 9, b"")), Err(Malformed));
        assert_eq!(part_of(&data[..8]), Err(Malformed));
    }
}
