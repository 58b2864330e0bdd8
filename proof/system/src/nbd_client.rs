//! A small NBD client, with which tests see each acknowledgement and control the requests in
//! flight. Fixed newstyle with `GO` and simple replies. Many requests may be in flight.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, no padding after the old negotiation.
const CLIENT_FLAGS: u32 = 3;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;

/// Error codes of the protocol for a rejected change of a read-only export, for unreadable data,
/// and for lack of space.
pub const NBD_NOT_PERMITTED: u32 = 1;
pub const NBD_IO_ERROR: u32 = 5;
pub const NBD_NO_SPACE: u32 = 28;

/// Time limit of a reply, which a working server never reaches.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A request of a client. Offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read { offset: u64, length: u32 },
    Write { offset: u64, data: Vec<u8> },
    Flush,
    Trim { offset: u64, length: u32 },
    WriteZeroes { offset: u64, length: u32 },
}

/// Reason for a missing or failed reply.
#[derive(Debug)]
pub enum NbdFailure {
    /// The server is gone or the connection broke.
    Disconnected(io::Error),
    /// The server rejected the request, with a code of the protocol.
    Refused(u32),
    /// The server does not speak the protocol.
    Protocol(String),
}

impl std::fmt::Display for NbdFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disconnected(_) => f.write_str("the NBD connection broke"),
            Self::Refused(code) => write!(f, "the NBD server refused with code {code}"),
            Self::Protocol(what) => write!(f, "the NBD server sent {what}"),
        }
    }
}

impl std::error::Error for NbdFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disconnected(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for NbdFailure {
    fn from(error: io::Error) -> Self {
        Self::Disconnected(error)
    }
}

/// Reply to one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    /// Error code of the protocol, or zero for success.
    pub error: u32,
    /// Data of a read, empty for other requests.
    pub data: Vec<u8>,
}

/// A connection to one export.
pub struct NbdClient {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    size_bytes: u64,
    next_cookie: u64,
    /// Number of data bytes in the reply to each request in flight.
    in_flight: HashMap<u64, u32>,
}

impl NbdClient {
    pub fn connect(socket: &Path, export: &str) -> Result<Self, NbdFailure> {
        let writer = UnixStream::connect(socket)?;
        writer.set_read_timeout(Some(TIME_LIMIT))?;
        writer.set_write_timeout(Some(TIME_LIMIT))?;
        let mut client = Self {
            reader: BufReader::new(writer.try_clone()?),
            writer,
            size_bytes: 0,
            next_cookie: 1,
            in_flight: HashMap::new(),
        };
        client.greet()?;
        client.go(export)?;
        Ok(client)
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the connection itself, for another client to continue. Nothing may be in flight.
    pub fn into_socket(self) -> UnixStream {
        assert!(self.in_flight.is_empty(), "unexpected replies would confuse the next");
        self.writer
    }

    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Sends a request and returns its cookie. [`Self::receive`] returns the reply.
    pub fn send(&mut self, request: &Request) -> Result<u64, NbdFailure> {
        let (command, offset, length, data): (u16, u64, u32, &[u8]) = match request {
            Request::Read { offset, length } => (0, *offset, *length, &[]),
            Request::Write { offset, data } => (1, *offset, length_of(data), data),
            Request::Flush => (3, 0, 0, &[]),
            Request::Trim { offset, length } => (4, *offset, *length, &[]),
            Request::WriteZeroes { offset, length } => (6, *offset, *length, &[]),
        };
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut message = Vec::with_capacity(28 + data.len());
        message.extend(REQUEST_MAGIC.to_be_bytes());
        message.extend(0_u16.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(cookie.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(length.to_be_bytes());
        message.extend(data);
        let reply_bytes = if matches!(request, Request::Read { .. }) { length } else { 0 };
        self.in_flight.insert(cookie, reply_bytes);
        self.writer.write_all(&message)?;
        Ok(cookie)
    }

    /// Waits for the next reply, to any request.
    pub fn receive(&mut self) -> Result<Reply, NbdFailure> {
        let magic = self.read_u32()?;
        if magic != REPLY_MAGIC {
            return Err(NbdFailure::Protocol(format!("the reply magic {magic:#x}")));
        }
        let code = self.read_u32()?;
        let cookie = self.read_u64()?;
        let Some(length) = self.in_flight.remove(&cookie) else {
            return Err(NbdFailure::Protocol(format!("a reply to nothing, cookie {cookie}")));
        };
        if code != 0 {
            return Ok(Reply { cookie, error: code, data: Vec::new() });
        }
        let mut data = vec![0; usize::try_from(length).expect("32 bits fit")];
        self.reader.read_exact(&mut data)?;
        Ok(Reply { cookie, error: 0, data })
    }

    /// Sends one request and waits for its reply. Nothing else may be in flight.
    pub fn ask(&mut self, request: &Request) -> Result<Vec<u8>, NbdFailure> {
        assert!(self.in_flight.is_empty(), "replies of others would be lost");
        self.send(request)?;
        match self.receive()? {
            Reply { error: 0, data, .. } => Ok(data),
            Reply { error, .. } => Err(NbdFailure::Refused(error)),
        }
    }

    fn greet(&mut self) -> Result<(), NbdFailure> {
        for expected in [MAGIC, OPTION_MAGIC] {
            let magic = self.read_u64()?;
            if magic != expected {
                return Err(NbdFailure::Protocol(format!("the greeting {magic:#x}")));
            }
        }
        let _server_flags = self.read_u16()?;
        self.writer.write_all(&CLIENT_FLAGS.to_be_bytes())?;
        Ok(())
    }

    fn go(&mut self, export: &str) -> Result<(), NbdFailure> {
        let mut message = Vec::new();
        message.extend(OPTION_MAGIC.to_be_bytes());
        message.extend(OPTION_GO.to_be_bytes());
        message.extend((length_of(export.as_bytes()) + 6).to_be_bytes());
        message.extend(length_of(export.as_bytes()).to_be_bytes());
        message.extend(export.as_bytes());
        message.extend(0_u16.to_be_bytes());
        self.writer.write_all(&message)?;
        loop {
            let magic = self.read_u64()?;
            let _option = self.read_u32()?;
            let kind = self.read_u32()?;
            let length = self.read_u32()?;
            let mut data = vec![0; usize::try_from(length).expect("32 bits fit")];
            self.reader.read_exact(&mut data)?;
            match kind {
                _ if magic != OPTION_REPLY_MAGIC => {
                    return Err(NbdFailure::Protocol(format!("the option magic {magic:#x}")));
                }
                REPLY_ACK => return Ok(()),
                REPLY_INFO => self.take_info(&data),
                error => return Err(NbdFailure::Refused(error)),
            }
        }
    }

    /// Parses an information reply, of which this client only needs the size.
    fn take_info(&mut self, data: &[u8]) {
        let Some((kind, rest)) = data.split_first_chunk() else { return };
        if let (INFO_EXPORT, Some((size, _))) =
            (u16::from_be_bytes(*kind), rest.split_first_chunk())
        {
            self.size_bytes = u64::from_be_bytes(*size);
        }
    }

    fn read_u16(&mut self) -> Result<u16, NbdFailure> {
        let mut bytes = [0; 2];
        self.reader.read_exact(&mut bytes)?;
        Ok(u16::from_be_bytes(bytes))
    }

    fn read_u32(&mut self) -> Result<u32, NbdFailure> {
        let mut bytes = [0; 4];
        self.reader.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn read_u64(&mut self) -> Result<u64, NbdFailure> {
        let mut bytes = [0; 8];
        self.reader.read_exact(&mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("requests are shorter than 4 GiB")
}
