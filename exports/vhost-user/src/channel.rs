//! vhost-user messages that the `vhost` library does not handle.
//!
//! The library receives and answers all other messages. It hides the back-end channel, on which a
//! front end is notified of configuration changes, and rejects the messages about the device's
//! status. Therefore each message is peeked at before it is received.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use vhost::vhost_user::message::{BackendReq, FrontendReq};

const HEADER_BYTES: usize = 12;
const NUMBER_BYTES: usize = 8;

const VERSION: u32 = 1;
const IS_REPLY: u32 = 1 << 2;
const NEEDS_REPLY: u32 = 1 << 3;

/// Message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) code: u32,
    pub(crate) flags: u32,
    pub(crate) bytes: u32,
}

impl Header {
    pub(crate) fn is(self, request: FrontendReq) -> bool {
        self.code == u32::from(request)
    }

    pub(crate) fn needs_reply(self) -> bool {
        self.flags & NEEDS_REPLY != 0
    }
}

/// Waits for a message and peeks at its header. Returns `None` if the front end has disconnected.
pub(crate) fn look_at_header(socket: &UnixStream) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
    let (count, _) = retry(|| recv(socket, &mut bytes, flags))?;
    match count {
        0 => Ok(None),
        HEADER_BYTES => {
            let [c0, c1, c2, c3, f0, f1, f2, f3, b0, b1, b2, b3] = bytes;
            Ok(Some(Header {
                code: u32::from_le_bytes([c0, c1, c2, c3]),
                flags: u32::from_le_bytes([f0, f1, f2, f3]),
                bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            }))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "truncated message header")),
    }
}

/// Peeks at the descriptor of the next message. Returns a duplicate of it.
pub(crate) fn look_at_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; HEADER_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    retry(|| recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags))?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Receives a message whose header was peeked at. Its payload is a `u64` or empty; an empty one
/// returns 0.
pub(crate) fn receive_number(socket: &UnixStream, header: Header) -> io::Result<u64> {
    let mut bytes = [0; HEADER_BYTES + NUMBER_BYTES];
    let wanted = match header.bytes {
        0 => HEADER_BYTES,
        8 => HEADER_BYTES + NUMBER_BYTES,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long")),
    };
    let (count, _) = retry(|| recv(socket, &mut bytes[..wanted], RecvFlags::WAITALL))?;
    if count != wanted {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let number = bytes.last_chunk().expect("a number is at the end");
    Ok(u64::from_le_bytes(*number))
}

/// Replies to a message with a `u64`.
pub(crate) fn send_number(socket: &UnixStream, header: Header, number: u64) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + NUMBER_BYTES);
    bytes.extend(header.code.to_le_bytes());
    bytes.extend((VERSION | IS_REPLY).to_le_bytes());
    bytes.extend(8_u32.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    send_now(socket, &bytes)
}

/// Notifies a front end that the configuration space has changed. Never blocks.
pub(crate) fn tell_change(changes: &UnixStream) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend(u32::from(BackendReq::CONFIG_CHANGE_MSG).to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    send_now(changes, &bytes)
}

fn send_now(socket: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let sent = retry(|| send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn looking_at_a_message_leaves_it_there() {
        let (mut front, back) = UnixStream::pair().expect("a pair");
        let header = Header { code: 40, flags: 1, bytes: 0 };
        front.write_all(&[40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).expect("it is sent");
        assert_eq!(look_at_header(&back).expect("it is there"), Some(header));
        assert_eq!(look_at_header(&back).expect("it is there"), Some(header));
        receive_number(&back, header).expect("it is there");
        send_number(&back, header, 7).expect("there is room");
        let mut reply = [0; 20];
        front.read_exact(&mut reply).expect("it is sent");
        assert_eq!(reply[4..8], [5, 0, 0, 0]);
        assert_eq!(reply[12], 7);
        drop(front);
        assert_eq!(look_at_header(&back).expect("an end is no error"), None);
    }

    #[test]
    fn half_a_header_is_an_error() {
        let (mut front, back) = UnixStream::pair().expect("a pair");
        front.write_all(&[1; 5]).expect("it is sent");
        drop(front);
        assert!(look_at_header(&back).is_err());
    }
}
