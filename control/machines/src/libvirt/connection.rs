//! Connection to libvirt: calls in sequence, each followed by its reply.
//!
//! ```text
//! length (with itself) │ program │ version │ procedure │ kind │ serial │ status │ XDR …
//! ```
//!
//! A file descriptor is sent with one byte of its own, after the reply that announces it.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::xdr::{Malformed, Reader, Writer};

pub(super) const PROGRAM: u32 = 0x2000_8086;
pub(super) const VERSION: u32 = 1;
pub(super) const HEAD_BYTES: usize = 28;
const KIND_CALL: u32 = 0;
const KIND_REPLY: u32 = 1;
const KIND_REPLY_WITH_DESCRIPTORS: u32 = 5;
pub(super) const STATUS_OK: u32 = 0;
pub(super) const STATUS_ERROR: u32 = 1;

/// Maximum length of a message in the protocol.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Time limit for a call. The longest one, starting a machine, takes seconds.
const CALL_TIME_MAX: Duration = Duration::from_secs(60);

const OPEN: u32 = 1;
const AUTH_LIST: u32 = 66;
const AUTH_NONE: u32 = 0;

/// libvirt error codes that callers distinguish.
pub(super) const CODE_NO_DOMAIN: u32 = 42;
pub(super) const CODE_OPERATION_INVALID: u32 = 55;
const CODE_OPERATION_FAILED: u32 = 9;

/// Error of a libvirt call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibvirtError {
    #[error("cannot reach libvirt at {0}: {1}; is libvirtd running?")]
    Unreachable(String, io::Error),
    #[error(
        "libvirt requires authentication (type {0}) on its Unix socket, which is not supported; \
         set auth_unix_rw = \"none\" in libvirtd.conf"
    )]
    Login(u32),
    #[error("lost the connection to libvirt: {0}")]
    Broken(#[from] io::Error),
    #[error("libvirt did not answer within {} s", CALL_TIME_MAX.as_secs())]
    Late,
    #[error("invalid reply from libvirt: protocol error")]
    Malformed,
    /// libvirt's message and error code.
    #[error("libvirt: {message}")]
    Refused { code: u32, message: String },
}

impl From<Malformed> for LibvirtError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl LibvirtError {
    fn has_code(&self, wanted: u32) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    pub(crate) fn is_no_domain(&self) -> bool {
        self.has_code(CODE_NO_DOMAIN)
    }

    /// Returns whether a console cannot be opened because another client has it open.
    pub(crate) fn is_taken(&self) -> bool {
        self.has_code(CODE_OPERATION_FAILED)
    }

    /// Returns whether the machine's state does not permit the operation.
    pub(crate) fn is_wrong_state(&self) -> bool {
        self.has_code(CODE_OPERATION_INVALID)
    }
}

/// Connection to libvirt's QEMU driver.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    serial: u32,
}

impl Connection {
    pub(crate) fn open(socket: &Path) -> Result<Self, LibvirtError> {
        let stream = UnixStream::connect(socket)
            .map_err(|error| LibvirtError::Unreachable(socket.display().to_string(), error))?;
        stream.set_write_timeout(Some(CALL_TIME_MAX))?;
        let mut connection = Self { stream, serial: 0 };
        let kinds = connection.call(AUTH_LIST, Writer::default())?;
        let mut kinds = Reader::of(&kinds);
        if kinds.word()? > 0 {
            let kind = kinds.word()?;
            if kind != AUTH_NONE {
                return Err(LibvirtError::Login(kind));
            }
        }
        connection.call(OPEN, Writer::default().optional_text(Some("qemu:///system")).word(0))?;
        Ok(connection)
    }

    /// Makes a call and waits for its reply.
    pub(super) fn call(&mut self, procedure: u32, body: Writer) -> Result<Vec<u8>, LibvirtError> {
        let deadline = Instant::now() + CALL_TIME_MAX;
        self.call_until(procedure, body, KIND_REPLY, deadline)
    }

    /// Makes a call whose reply passes a file descriptor.
    pub(super) fn call_for_descriptor(
        &mut self,
        procedure: u32,
        body: Writer,
    ) -> Result<OwnedFd, LibvirtError> {
        let deadline = Instant::now() + CALL_TIME_MAX;
        let answer = self.call_until(procedure, body, KIND_REPLY_WITH_DESCRIPTORS, deadline)?;
        if Reader::of(&answer).word()? != 1 {
            return Err(LibvirtError::Malformed);
        }
        self.stream.set_read_timeout(Some(CALL_TIME_MAX))?;
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut byte)];
        retry_on_intr(|| {
            recvmsg(&self.stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })
        .map_err(io::Error::from)?;
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        descriptor.ok_or(LibvirtError::Malformed)
    }

    /// Returns the socket and the serial of the last call. For a call that has opened a stream.
    pub(super) fn into_parts(self) -> (UnixStream, u32) {
        (self.stream, self.serial)
    }

    fn call_until(
        &mut self,
        procedure: u32,
        body: Writer,
        kind_wanted: u32,
        deadline: Instant,
    ) -> Result<Vec<u8>, LibvirtError> {
        self.serial += 1;
        let body = body.finish();
        let length = u32::try_from(HEAD_BYTES + body.len()).map_err(|_| LibvirtError::Malformed)?;
        let head = Writer::default().word(length).word(PROGRAM).word(VERSION).word(procedure);
        let head = head.word(KIND_CALL).word(self.serial).word(STATUS_OK);
        self.stream.write_all(&[head.finish(), body].concat())?;
        loop {
            let message = self.receive(deadline)?;
            let mut head = Reader::of(&message);
            let [program, _version, _procedure, kind, serial, status] = [
                head.word()?,
                head.word()?,
                head.word()?,
                head.word()?,
                head.word()?,
                head.word()?,
            ];
            // Other messages are events and keepalive requests.
            let is_reply = [KIND_REPLY, KIND_REPLY_WITH_DESCRIPTORS].contains(&kind);
            if program != PROGRAM || !is_reply || serial != self.serial {
                continue;
            }
            return match status {
                STATUS_OK if kind == kind_wanted => Ok(message[HEAD_BYTES - 4..].to_vec()),
                STATUS_ERROR => Err(refusal(head)?),
                _ => Err(LibvirtError::Malformed),
            };
        }
    }

    /// Receives the next message, without its length.
    fn receive(&mut self, deadline: Instant) -> Result<Vec<u8>, LibvirtError> {
        let mut length = [0; 4];
        self.fill(&mut length, deadline)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if !(HEAD_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(LibvirtError::Malformed);
        }
        let mut message = vec![0; length - 4];
        self.fill(&mut message, deadline)?;
        Ok(message)
    }

    fn fill(&mut self, mut buffer: &mut [u8], deadline: Instant) -> Result<(), LibvirtError> {
        while !buffer.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LibvirtError::Late);
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(LibvirtError::Late);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Parses the start of libvirt's `remote_error`: code, domain, message.
fn refusal(mut body: Reader<'_>) -> Result<LibvirtError, Malformed> {
    let (code, _domain) = (body.word()?, body.word()?);
    let message = body.optional_text()?.unwrap_or_else(|| format!("error {code}"));
    Ok(LibvirtError::Refused { code, message })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Returns the error of opening a connection if the server replies `answer` to the first call.
    fn open_against(answer: Vec<u8>) -> LibvirtError {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("the path is free");
        let other_end = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client comes");
            let mut call = [0; HEAD_BYTES];
            stream.read_exact(&mut call).expect("a call comes");
            // The client may have disconnected already.
            let _ = stream.write_all(&answer);
        });
        let error = Connection::open(&socket).expect_err("that is no good answer");
        other_end.join().expect("the other end does not panic");
        error
    }

    fn answer(status: u32, body: Writer) -> Vec<u8> {
        let body = body.finish();
        let length = u32::try_from(HEAD_BYTES + body.len()).expect("it is short");
        let head = Writer::default().word(length).word(PROGRAM).word(VERSION).word(AUTH_LIST);
        [head.word(KIND_REPLY).word(1).word(status).finish(), body].concat()
    }

    #[test]
    fn broken_answers_are_errors() {
        assert!(matches!(open_against(Vec::new()), LibvirtError::Broken(_)));
        assert!(matches!(open_against(vec![0xff; 64]), LibvirtError::Malformed));
        assert!(matches!(open_against(answer(7, Writer::default())), LibvirtError::Malformed));
        assert!(matches!(open_against(answer(0, Writer::default())), LibvirtError::Malformed));
    }

    #[test]
    fn a_login_and_refusals_are_told_apart() {
        let login = open_against(answer(STATUS_OK, Writer::default().word(1).word(2)));
        assert!(matches!(login, LibvirtError::Login(2)), "{login}");
        let body = Writer::default().word(CODE_NO_DOMAIN).word(10).optional_text(Some("none"));
        let refused = open_against(answer(STATUS_ERROR, body));
        assert!(refused.is_no_domain(), "{refused}");
        assert_eq!(refused.to_string(), "libvirt: none");
    }

    #[test]
    fn nobody_at_the_socket_is_told() {
        let error = Connection::open(Path::new("/nowhere/socket")).expect_err("nobody is there");
        assert!(error.to_string().contains("/nowhere/socket"), "{error}");
    }
}
