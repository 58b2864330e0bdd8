//! Protocol between host and agent over the serial port.
//!
//! ```text
//! 0        4      5    9
//! | length | kind | id | bytes … |     numbers are little endian; `length` counts the bytes
//! ```
//!
//! `id` identifies a process, and is chosen by the host. Many processes share the port, frame by
//! frame.

use std::io::{self, ErrorKind, Read, Write};

/// Maximum number of bytes in a frame. Longer streams take several.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

const HEADER_BYTES: usize = 9;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// To the guest: starts a program. The bytes are its words, each terminated by zero.
    Run,
    /// To the guest: bytes for the standard input. Empty bytes close it.
    Input,
    /// To the guest: the one byte is a signal for the process and its children.
    Signal,
    /// To the host: the agent is ready. Belongs to no process.
    Ready,
    /// To the host: bytes of the standard output.
    Output,
    /// To the host: bytes of the standard error.
    Complaint,
    /// To the host: the process has ended. Four bytes are its exit code, negative for a signal.
    Ended,
}

const KINDS: [FrameKind; 7] = [
    FrameKind::Run,
    FrameKind::Input,
    FrameKind::Signal,
    FrameKind::Ready,
    FrameKind::Output,
    FrameKind::Complaint,
    FrameKind::Ended,
];

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameKind,
    pub id: u32,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub fn new(kind: FrameKind, id: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self { kind, id, bytes: bytes.into() }
    }

    /// Sends the frame with one write, so that frames of several threads do not interleave under a
    /// lock.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        assert!(self.bytes.len() <= FRAME_BYTES_MAX, "a frame of {} bytes", self.bytes.len());
        let length = u32::try_from(self.bytes.len()).expect("frames are short");
        let kind = KINDS.iter().position(|kind| *kind == self.kind).expect("all kinds are listed");
        let mut message = Vec::with_capacity(HEADER_BYTES + self.bytes.len());
        message.extend(length.to_le_bytes());
        message.push(u8::try_from(kind).expect("there are few kinds"));
        message.extend(self.id.to_le_bytes());
        message.extend(&self.bytes);
        to.write_all(&message)?;
        to.flush()
    }

    /// Waits for the next frame. Returns `None` if the other end has closed between two.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER_BYTES];
        if from.read(&mut header[..1])? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut header[1..])?;
        let number = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes);
        let length = number(0).expect("the header has these bytes");
        let id = number(5).expect("the header has these bytes");
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let kind = KINDS.get(usize::from(header[4])).copied();
        let Some(kind) = kind.filter(|_| length <= FRAME_BYTES_MAX) else {
            let text = format!("no frame begins with {header:02x?}");
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        };
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        Ok(Some(Self { kind, id, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_as_they_were_sent() {
        let mut line = Vec::new();
        let sent: Vec<_> =
            KINDS.iter().map(|kind| Frame::new(*kind, 7, b"some bytes".to_vec())).collect();
        for frame in &sent {
            frame.write(&mut line).expect("a vector takes everything");
        }
        let mut line = &line[..];
        for frame in sent {
            assert_eq!(Frame::read(&mut line).expect("it is a frame"), Some(frame));
        }
        assert_eq!(Frame::read(&mut line).expect("it is the end"), None);
    }

    #[test]
    fn the_end_inside_a_frame_is_an_error() {
        let mut line = Vec::new();
        Frame::new(FrameKind::Run, 1, b"x".to_vec()).write(&mut line).expect("a vector takes it");
        line.pop();
        Frame::read(&mut &line[..]).expect_err("a byte is missing");
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        Frame::read(&mut &[0xff; 64][..]).expect_err("this is too long and of no kind");
    }
}
