//! Client that drives a session directly, without a connection, and parses its replies.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::sync::Arc;

use nbd::{BufferShare, Client, Exports, Input, Output, Progress, Session, TlsPolicy};

pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

pub(crate) mod rep {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = 0x8000_0001;
    pub(crate) const ERR_POLICY: u32 = 0x8000_0002;
    pub(crate) const ERR_INVALID: u32 = 0x8000_0003;
    pub(crate) const ERR_TLS_REQD: u32 = 0x8000_0005;
    pub(crate) const ERR_UNKNOWN: u32 = 0x8000_0006;
    pub(crate) const ERR_TOO_BIG: u32 = 0x8000_0009;
}

pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

pub(crate) mod flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 2;
    pub(crate) const DF: u16 = 4;
    pub(crate) const REQ_ONE: u16 = 8;
    pub(crate) const FAST_ZERO: u16 = 16;
}

pub(crate) mod errno {
    pub(crate) const EPERM: u32 = 1;
    pub(crate) const EIO: u32 = 5;
    pub(crate) const ENOMEM: u32 = 12;
    pub(crate) const EINVAL: u32 = 22;
    pub(crate) const ENOSPC: u32 = 28;
    pub(crate) const EOVERFLOW: u32 = 75;
    pub(crate) const ESHUTDOWN: u32 = 108;
}

pub(crate) const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
/// `FIXED_NEWSTYLE` and `NO_ZEROES`.
pub(crate) const CLIENT_FLAGS: [u8; 4] = [0, 0, 0, 3];

/// Encodes a length. Test messages always fit 32 bits.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("tests send short messages")
}

fn size(length: u32) -> usize {
    usize::try_from(length).expect("tests run on 64-bit machines")
}

pub(crate) fn option_bytes(option: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(length(payload).to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Payload of `INFO` and `GO`.
pub(crate) fn export_query(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut bytes = length(name.as_bytes()).to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend(u16::try_from(infos.len()).expect("few").to_be_bytes());
    bytes.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    bytes
}

/// Payload of the options about metadata contexts.
pub(crate) fn context_query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = length(name.as_bytes()).to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend(u32::try_from(queries.len()).expect("few").to_be_bytes());
    for query in queries {
        bytes.extend(length(query.as_bytes()).to_be_bytes());
        bytes.extend(query.as_bytes());
    }
    bytes
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub(crate) command: u16,
    pub(crate) flags: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Request {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.length.to_be_bytes());
        bytes
    }
}

/// One reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OptionReply {
    pub(crate) option: u32,
    pub(crate) kind: u32,
    pub(crate) payload: Vec<u8>,
}

/// One message of the transmission phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple { cookie: u64, error: u32 },
    Chunk { cookie: u64, done: bool, chunk: Chunk },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Nothing,
    Data {
        offset: u64,
        data: Vec<u8>,
    },
    Hole {
        offset: u64,
        length: u32,
    },
    /// Lengths and states in `base:allocation`, if it was selected.
    Status(Vec<(u32, u32)>),
    /// Lengths and states in another context.
    OtherStatus {
        context_id: u32,
        states: Vec<(u32, u32)>,
    },
    Error {
        error: u32,
        message: String,
    },
}

/// Parses messages from the front of the received bytes.
pub(crate) struct Received {
    bytes: Vec<u8>,
    next: usize,
}

impl Received {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, next: 0 }
    }

    pub(crate) fn take(&mut self, count: usize) -> &[u8] {
        let start = self.next;
        self.next += count;
        &self.bytes[start..self.next]
    }

    /// Number of bytes not parsed yet.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.next
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    pub(crate) fn option_reply(&mut self) -> OptionReply {
        assert_eq!(self.u64(), 0x0003_e889_0455_65a9);
        let (option, kind, payload_bytes) = (self.u32(), self.u32(), self.u32());
        OptionReply { option, kind, payload: self.take(size(payload_bytes)).to_vec() }
    }

    pub(crate) fn option_replies(mut self) -> Vec<OptionReply> {
        std::iter::from_fn(|| (!self.is_empty()).then(|| self.option_reply())).collect()
    }

    /// Parses the next message. The data of a simple reply is left to the caller.
    pub(crate) fn reply(&mut self) -> Reply {
        match self.u32() {
            0x6744_6698 => {
                let error = self.u32();
                Reply::Simple { error, cookie: self.u64() }
            }
            0x668e_33ef => {
                let (flags, kind) = (self.u16(), self.u16());
                let cookie = self.u64();
                let payload_bytes = size(self.u32());
                let payload = Received::new(self.take(payload_bytes).to_vec());
                Reply::Chunk { cookie, done: flags & 1 == 1, chunk: payload.chunk(kind) }
            }
            magic => panic!("{magic:#x} begins no reply"),
        }
    }

    /// Parses all messages. Simple replies among them must have no data.
    pub(crate) fn replies(mut self) -> Vec<Reply> {
        std::iter::from_fn(|| (!self.is_empty()).then(|| self.reply())).collect()
    }

    fn rest(&mut self) -> &[u8] {
        self.take(self.bytes.len() - self.next)
    }

    fn chunk(mut self, kind: u16) -> Chunk {
        let chunk = match kind {
            0 => Chunk::Nothing,
            1 => Chunk::Data { offset: self.u64(), data: self.rest().to_vec() },
            2 => Chunk::Hole { offset: self.u64(), length: self.u32() },
            5 => {
                let context_id = self.u32();
                let mut states = Vec::new();
                while !self.is_empty() {
                    states.push((self.u32(), self.u32()));
                }
                match context_id {
                    1 => Chunk::Status(states),
                    _ => Chunk::OtherStatus { context_id, states },
                }
            }
            0x8001 => {
                let error = self.u32();
                let message_bytes = usize::from(self.u16());
                let message = String::from_utf8(self.take(message_bytes).to_vec());
                Chunk::Error { error, message: message.expect("messages are text") }
            }
            _ => panic!("{kind} is no kind of chunk"),
        };
        assert!(self.is_empty(), "{kind} has bytes that mean nothing");
        chunk
    }
}

/// A session and the replies that it sent.
pub(crate) struct Talk {
    session: Session,
    input: Input,
    output: Output,
    received: Vec<u8>,
    progress: Progress,
}

impl Talk {
    /// Creates a session that has sent its greeting.
    pub(crate) fn new(exports: Arc<dyn Exports>, tls: TlsPolicy) -> Self {
        let mut talk = Self {
            session: Session::new(exports, Client::Anybody, tls),
            input: Input::new(),
            output: Output::new(),
            received: Vec::new(),
            progress: Progress::SendOutput,
        };
        talk.run();
        talk
    }

    /// Creates a session that expects options.
    pub(crate) fn in_options(exports: Arc<dyn Exports>, tls: TlsPolicy) -> Self {
        let mut talk = Self::new(exports, tls);
        talk.send(&CLIENT_FLAGS);
        assert_eq!(talk.received().rest(), GREETING);
        talk
    }

    /// Creates a session in the transmission phase, with simple replies.
    pub(crate) fn simple(exports: Arc<dyn Exports>, name: &str) -> Self {
        let mut talk = Self::in_options(exports, TlsPolicy::Absent);
        talk.send(&option_bytes(option::GO, &export_query(name, &[])));
        assert_eq!(talk.received().option_replies().last().map(|r| r.kind), Some(rep::ACK));
        talk
    }

    /// Creates a session in the transmission phase, with structured replies and block status.
    pub(crate) fn structured(exports: Arc<dyn Exports>, name: &str) -> Self {
        Self::with_contexts(exports, name, &["base:allocation"])
    }

    /// Creates a session as [`Talk::structured`] does, with other metadata contexts.
    pub(crate) fn with_contexts(exports: Arc<dyn Exports>, name: &str, contexts: &[&str]) -> Self {
        let mut talk = Self::in_options(exports, TlsPolicy::Absent);
        talk.send(&option_bytes(option::STRUCTURED_REPLY, &[]));
        let query = context_query(name, contexts);
        talk.send(&option_bytes(option::SET_META_CONTEXT, &query));
        talk.send(&option_bytes(option::GO, &export_query(name, &[])));
        assert_eq!(talk.received().option_replies().last().map(|r| r.kind), Some(rep::ACK));
        talk
    }

    /// Sends `bytes` and runs the session until it needs more input.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() && self.progress == Progress::ReceiveInput {
            let space = self.input.space();
            let count = left.len().min(space.len());
            assert!(count > 0, "a session that wants input has space for it");
            space[..count].copy_from_slice(&left[..count]);
            self.input.filled(count);
            left = &left[count..];
            self.run();
        }
    }

    /// Sets the buffer share of the session.
    pub(crate) fn set_share(&mut self, share: BufferShare) {
        self.input.set_share(share);
        self.output.set_share(share);
    }

    pub(crate) fn tls_started(&mut self) {
        assert_eq!(self.progress, Progress::StartTls);
        self.session.tls_started(Client::Anybody);
        self.run();
    }

    /// Returns what the session has sent since the last call.
    pub(crate) fn received(&mut self) -> Received {
        Received::new(std::mem::take(&mut self.received))
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    fn run(&mut self) {
        loop {
            self.progress = self.session.advance(&mut self.input, &mut self.output);
            self.received.extend(self.output.data());
            self.output.clear();
            if self.progress != Progress::SendOutput {
                return;
            }
        }
    }
}
