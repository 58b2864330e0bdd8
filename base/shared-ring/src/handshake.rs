//! Handshake of two messages before the ring is used: the client requests a volume, and the server
//! answers with shared memory or an error.
//!
//! The messages are sent over a Unix socket of type `SOCK_SEQPACKET`. Afterwards each message on
//! it, of any contents, is a doorbell for the server. Closing the socket closes the connection.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::layout::{SLOT_BYTES, SLOTS};

/// Version of the messages and of the memory layout.
pub const VERSION: u32 = 1;

/// Maximum length of a message.
pub const MESSAGE_BYTES_MAX: usize = 2048;

const MAGIC: [u8; 8] = *b"mlnring\0";

/// Length of a message before its text.
const HEAD_BYTES: usize = 64;

/// Maximum length of the text: a name or an error message.
const TEXT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - HEAD_BYTES;

/// Object that a client wants to open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Volume or snapshot by name.
    Name(String),
    /// Volume that is attached as the block device of this number.
    DeviceNumber { major: u32, minor: u32 },
    /// Volume whose file in the daemon's file system has this device and inode number.
    File { device: u64, inode: u64 },
    /// Volume by its id, which never changes.
    VolumeId(u64),
    /// Volume by its id, opened again by a program that had it open, or by a fork of one. It gets
    /// the access that it had.
    Again { volume_id: u64, access: Access },
}

/// Access of a client to its open volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    ReadWrite,
    ReadOnly,
}

/// Values of the field beside a volume's id. Old clients leave it zero; they use ids only to reopen
/// volumes.
const SAYS_NOTHING: u64 = 0;
const OPENS_ANEW: u64 = 1;
const COMES_BACK_TO_WRITE: u64 = 2;
const COMES_BACK_TO_READ: u64 = 3;

/// Description of an opened volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub volume_id: u64,
    pub name: String,
    pub size_bytes: u64,
    pub sector_bytes: u32,
    pub is_read_only: bool,
    pub lane_count: usize,
}

/// Answer of the server.
#[derive(Debug)]
pub enum Answer {
    Opened(Opened, OwnedFd),
    Refused { errno: i32, message: String },
}

/// Reason for which no valid message was received.
#[derive(Debug)]
pub enum HandshakeError {
    Socket(io::Error),
    /// The other side has closed the socket.
    Ended,
    Malformed,
    /// The other side uses another protocol version.
    Version {
        theirs: u32,
    },
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(_) => f.write_str("the socket of the ring failed"),
            Self::Ended => f.write_str("the other side has disconnected"),
            Self::Malformed => f.write_str("invalid ring message from the other side"),
            Self::Version { theirs } => write!(
                f,
                "ring protocol version mismatch: the other side has version {theirs}, this one \
                 {VERSION}; use a client and a daemon of the same release"
            ),
        }
    }
}

impl std::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Socket(error) => Some(error),
            _ => None,
        }
    }
}

/// Requests to open `target`, with at most this number of lanes.
pub fn send_request(
    socket: BorrowedFd<'_>,
    target: &Target,
    lane_count_max: usize,
) -> io::Result<()> {
    let (kind, first, second, name) = match target {
        Target::Name(name) => (1, 0, 0, name.as_str()),
        Target::DeviceNumber { major, minor } => (2, u64::from(*major), u64::from(*minor), ""),
        Target::File { device, inode } => (3, *device, *inode, ""),
        Target::VolumeId(id) => (4, *id, OPENS_ANEW, ""),
        Target::Again { volume_id, access: Access::ReadWrite } => {
            (4, *volume_id, COMES_BACK_TO_WRITE, "")
        }
        Target::Again { volume_id, access: Access::ReadOnly } => {
            (4, *volume_id, COMES_BACK_TO_READ, "")
        }
    };
    let lanes = u32::try_from(lane_count_max).unwrap_or(u32::MAX);
    let mut message = Message::new(name);
    message.put_u32(12, kind);
    message.put_u64(16, first);
    message.put_u64(24, second);
    message.put_u32(32, lanes);
    send(socket, &message.bytes, None)
}

/// Receives a client's target and its maximum number of lanes.
pub fn receive_request(socket: BorrowedFd<'_>) -> Result<(Target, usize), HandshakeError> {
    let (message, _) = receive(socket)?;
    let (first, second) = (message.u64(16), message.u64(24));
    let small = |value: u64| u32::try_from(value).map_err(|_| HandshakeError::Malformed);
    let target = match message.u32(12) {
        1 => Target::Name(message.text()?),
        2 => Target::DeviceNumber { major: small(first)?, minor: small(second)? },
        3 => Target::File { device: first, inode: second },
        4 => by_number(first, second)?,
        _ => return Err(HandshakeError::Malformed),
    };
    Ok((target, usize::try_from(message.u32(32)).unwrap_or(usize::MAX)))
}

fn by_number(volume_id: u64, why: u64) -> Result<Target, HandshakeError> {
    Ok(match why {
        OPENS_ANEW => Target::VolumeId(volume_id),
        SAYS_NOTHING | COMES_BACK_TO_WRITE => {
            Target::Again { volume_id, access: Access::ReadWrite }
        }
        COMES_BACK_TO_READ => Target::Again { volume_id, access: Access::ReadOnly },
        _ => return Err(HandshakeError::Malformed),
    })
}

/// Accepts a client. The memory file is sent with the message.
pub fn send_answer(socket: BorrowedFd<'_>, opened: &Opened, file: &OwnedFd) -> io::Result<()> {
    let small = |value: usize| u32::try_from(value).expect("counts are small");
    let mut message = Message::new(&opened.name);
    message.put_u64(16, opened.volume_id);
    message.put_u64(24, opened.size_bytes);
    message.put_u32(32, opened.sector_bytes);
    message.put_u32(36, u32::from(opened.is_read_only));
    message.put_u32(40, small(opened.lane_count));
    message.put_u32(44, small(SLOTS));
    message.put_u32(48, small(SLOT_BYTES));
    send(socket, &message.bytes, Some(file))
}

/// Refuses a client with an error number and a message for users.
pub fn send_refusal(socket: BorrowedFd<'_>, errno: i32, message: &str) -> io::Result<()> {
    let mut answer = Message::new(message);
    answer.put_u32(12, errno.unsigned_abs().max(1));
    send(socket, &answer.bytes, None)
}

/// Receives the server's answer.
pub fn receive_answer(socket: BorrowedFd<'_>) -> Result<Answer, HandshakeError> {
    let (message, file) = receive(socket)?;
    let errno = message.u32(12);
    if errno != 0 {
        let errno = i32::try_from(errno).unwrap_or(i32::MAX);
        return Ok(Answer::Refused { errno, message: message.text()? });
    }
    let is_same_layout =
        message.u32(44) as usize == SLOTS && message.u32(48) as usize == SLOT_BYTES;
    let file = file.filter(|_| is_same_layout).ok_or(HandshakeError::Malformed)?;
    let opened = Opened {
        volume_id: message.u64(16),
        name: message.text()?,
        size_bytes: message.u64(24),
        sector_bytes: message.u32(32),
        is_read_only: message.u32(36) & 1 != 0,
        lane_count: message.u32(40) as usize,
    };
    Ok(Answer::Opened(opened, file))
}

/// A message of either kind: magic, version, fields, and a text.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(text: &str) -> Self {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut message = Self { bytes: vec![0; HEAD_BYTES] };
        message.bytes[..8].copy_from_slice(&MAGIC);
        message.put_u32(8, VERSION);
        message.put_u32(60, u32::try_from(end).expect("a text is short"));
        message.bytes.extend_from_slice(&text.as_bytes()[..end]);
        message
    }

    /// Checks the parts common to all messages and versions.
    fn parse(bytes: Vec<u8>) -> Result<Self, HandshakeError> {
        if bytes.len() < HEAD_BYTES || bytes[..8] != MAGIC {
            return Err(HandshakeError::Malformed);
        }
        let message = Self { bytes };
        match message.u32(8) {
            VERSION => Ok(message),
            theirs => Err(HandshakeError::Version { theirs }),
        }
    }

    fn text(&self) -> Result<String, HandshakeError> {
        let length = self.u32(60) as usize;
        let text = self.bytes[HEAD_BYTES..].get(..length).ok_or(HandshakeError::Malformed)?;
        String::from_utf8(text.to_vec()).map_err(|_| HandshakeError::Malformed)
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes of the head"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes of the head"))
    }
}

fn send(socket: BorrowedFd<'_>, message: &[u8], file: Option<&OwnedFd>) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(&files));
        assert!(fits, "the buffer is made for one descriptor");
    }
    loop {
        let parts = [IoSlice::new(message)];
        match sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn receive(socket: BorrowedFd<'_>) -> Result<(Message, Option<OwnedFd>), HandshakeError> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(HandshakeError::Socket(error.into())),
        }
    };
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Err(HandshakeError::Ended);
    }
    bytes.truncate(received.bytes);
    Ok((Message::parse(bytes)?, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    #[track_caller]
    fn check_request(target: Target) {
        let (client, server) = pair();
        send_request(client.as_fd(), &target, 8).expect("it is sent");
        assert_eq!(receive_request(server.as_fd()).expect("it is understood"), (target, 8));
    }

    #[test]
    fn each_kind_of_target_comes_over() {
        check_request(Target::Name("db".to_owned()));
        check_request(Target::DeviceNumber { major: 7, minor: 3 });
        check_request(Target::File { device: 1 << 40, inode: 9 });
        check_request(Target::VolumeId(42));
        check_request(Target::Again { volume_id: 42, access: Access::ReadWrite });
        check_request(Target::Again { volume_id: 42, access: Access::ReadOnly });
    }

    #[test]
    fn the_memory_comes_with_the_answer() {
        let (client, server) = pair();
        let file = crate::sys::create_sealed(4096).expect("memory");
        let opened = Opened {
            volume_id: 5,
            name: "db".to_owned(),
            size_bytes: 1 << 30,
            sector_bytes: 512,
            is_read_only: true,
            lane_count: 3,
        };
        send_answer(server.as_fd(), &opened, &file).expect("it is sent");
        match receive_answer(client.as_fd()).expect("it is understood") {
            Answer::Opened(found, _) => assert_eq!(found, opened),
            Answer::Refused { message, .. } => panic!("refused: {message}"),
        }
    }

    #[test]
    fn a_refusal_has_a_number_and_a_text_that_is_cut_between_characters() {
        let (client, server) = pair();
        send_refusal(server.as_fd(), 13, &"ä".repeat(4000)).expect("it is sent");
        match receive_answer(client.as_fd()).expect("it is understood") {
            Answer::Refused { errno, message } => {
                assert_eq!((errno, message.len()), (13, TEXT_BYTES_MAX));
            }
            Answer::Opened(..) => panic!("it was refused"),
        }
    }

    #[test]
    fn a_client_that_does_not_say_why_it_opens_a_number_comes_back() {
        let (client, server) = pair();
        let mut message = Message::new("");
        message.put_u32(12, 4);
        message.put_u64(16, 42);
        send(client.as_fd(), &message.bytes, None).expect("it is sent");
        let (target, _) = receive_request(server.as_fd()).expect("it is understood");
        assert_eq!(target, Target::Again { volume_id: 42, access: Access::ReadWrite });
        message.put_u64(24, 4);
        send(client.as_fd(), &message.bytes, None).expect("it is sent");
        let error = receive_request(server.as_fd()).expect_err("there is no such reason");
        assert!(matches!(error, HandshakeError::Malformed), "{error}");
    }

    #[track_caller]
    fn check_refused(change: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let (client, server) = pair();
        let mut message = Message::new("db");
        message.put_u32(12, 1);
        change(&mut message.bytes);
        send(client.as_fd(), &message.bytes, None).expect("it is sent");
        let error = receive_request(server.as_fd()).expect_err("it is no good message");
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        check_refused(|bytes| bytes[0] ^= 1, "invalid ring message");
        check_refused(|bytes| bytes.truncate(HEAD_BYTES - 1), "invalid ring message");
        check_refused(|bytes| bytes[12] = 9, "invalid ring message");
        check_refused(|bytes| bytes[60] = 3, "invalid ring message");
        check_refused(|bytes| bytes[60..64].fill(0xff), "invalid ring message");
        check_refused(|bytes| bytes[HEAD_BYTES] = 0xff, "invalid ring message");
    }

    #[test]
    fn another_version_is_named() {
        check_refused(|bytes| bytes[8] = 7, "version 7");
    }

    #[test]
    fn an_end_is_told_from_a_failure() {
        let (client, server) = pair();
        drop(client);
        let error = receive_request(server.as_fd()).expect_err("the peer is gone");
        assert!(matches!(error, HandshakeError::Ended), "{error}");
    }
}
