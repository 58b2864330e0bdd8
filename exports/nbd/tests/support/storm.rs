//! Sessions under arbitrary input, for random tests and for fuzzing.
//!
//! The input determines what is sent: most of it is valid, some is garbage. [`handshake`] checks
//! only that the session does not panic; [`requests`] compares every reply with a flat array of
//! bytes.

#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::ops::Range;
use std::sync::Arc;

use nbd::{BufferShare, Progress, TlsPolicy};

use crate::support::{ExportTable, SparseDevice};
use crate::talk::{
    Chunk, Received, Reply, Request, Talk, command, context_query, errno, export_query, flag,
    option_bytes,
};

const SIZE: usize = 3 << 20;
const BLOCK: usize = block_device::BLOCK_BYTES;

/// Upper bound of the replies to one piece of input.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Input bytes that determine each step. Zeros follow when they are used up.
struct Choices<'bytes> {
    rest: &'bytes [u8],
}

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        let number = u32::from_be_bytes([0, self.byte(), self.byte(), self.byte()]);
        number as usize % limit
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken.to_vec()
    }
}

fn exports() -> Arc<ExportTable> {
    let device = || SparseDevice::new(SIZE as u64);
    let unnamed = Arc::new(device().read_only());
    Arc::new(ExportTable::new().with("a", Arc::new(device())).with("", unnamed))
}

/// Sends client flags, options and garbage in arbitrary pieces, as `bytes` determine.
pub(crate) fn handshake(bytes: &[u8]) {
    let mut choices = Choices { rest: bytes };
    let policy =
        if choices.byte().is_multiple_of(2) { TlsPolicy::Absent } else { TlsPolicy::Required };
    let mut talk = Talk::new(exports(), policy);
    talk.send(&[0, 0, 0, choices.byte() % 5]);
    while !choices.rest.is_empty() {
        let sent = match choices.byte() {
            0..240 => an_option(&mut choices),
            240.. => {
                let count = choices.below(64);
                choices.take(count)
            }
        };
        let (first, second) = sent.split_at(choices.below(sent.len() + 1));
        for piece in [first, second] {
            talk.send(piece);
            assert!(talk.received().len() <= ANSWER_BYTES_MAX);
            match talk.progress() {
                Progress::ReceiveInput => {}
                Progress::StartTls => talk.tls_started(),
                Progress::Close => return,
                Progress::SendOutput => panic!("there is room for more output"),
            }
        }
    }
}

fn an_option(choices: &mut Choices<'_>) -> Vec<u8> {
    let option = u32::from(choices.byte() % 14);
    let name = if choices.byte() < 200 { "a" } else { "" };
    let payload = match choices.byte() {
        0..50 => Vec::new(),
        50..100 => export_query(name, &[u16::from(choices.byte() % 5), 3]),
        100..130 => context_query(name, &["base:allocation", "base:"]),
        130..150 => context_query(name, &[]),
        150..170 => name.as_bytes().to_vec(),
        170..250 => {
            let count = choices.below(64);
            choices.take(count)
        }
        250.. => vec![choices.byte(); choices.below(100_000)],
    };
    option_bytes(option, &payload)
}

/// A session in the transmission phase, and the expected contents of its device.
struct Storm {
    talk: Talk,
    structured: bool,
    model: Vec<u8>,
    /// Bytes to send in the next piece.
    unsent: Vec<u8>,
    expected: Vec<Expected>,
}

/// Expected reply to a request.
struct Expected {
    request: Request,
    outcome: Result<Answer, u32>,
}

enum Answer {
    Done,
    Data(Vec<u8>),
    Status,
}

/// Sends requests and garbage, as `bytes` determine, and compares replies with the model.
pub(crate) fn requests(bytes: &[u8]) {
    let mut choices = Choices { rest: bytes };
    let structured = choices.byte().is_multiple_of(2);
    let mut talk = match structured {
        true => Talk::structured(exports(), "a"),
        false => Talk::simple(exports(), "a"),
    };
    talk.set_share(BufferShare::Small);
    let mut storm =
        Storm { talk, structured, model: vec![0; SIZE], unsent: Vec::new(), expected: Vec::new() };
    let mut cookie = 0;
    while !choices.rest.is_empty() {
        cookie += 1;
        storm.add_request(cookie, &mut choices);
        match choices.byte() {
            0..160 => storm.send_all(),
            160..235 => {}
            235..240 => storm.talk.set_share(BufferShare::Large),
            240..245 => storm.talk.set_share(BufferShare::Medium),
            245..250 => storm.talk.set_share(BufferShare::Small),
            250.. => {
                storm.send_all();
                return storm.send_garbage(&mut choices);
            }
        }
    }
    storm.send_all();
}

impl Storm {
    fn add_request(&mut self, cookie: u64, choices: &mut Choices<'_>) {
        let command = u16::from(choices.byte() % 9);
        if command == command::DISCONNECT {
            return;
        }
        let length = match choices.byte() {
            0..128 => choices.below(3) * 4096,
            128..240 => choices.below(20_000),
            240..254 => choices.below(SIZE),
            254.. => choices.below(SIZE) + (31 << 20),
        };
        let offset = match choices.byte() {
            0..200 => choices.below(SIZE / BLOCK) * BLOCK,
            200.. => choices.below(SIZE + BLOCK),
        };
        let flags = match choices.byte() {
            0..128 => 0,
            128..250 => 1 << (choices.byte() % 5),
            250.. => u16::from(choices.byte()) << 4,
        };
        let length = u32::try_from(length).expect("lengths have 32 bits");
        let request = Request { command, flags, cookie, offset: offset as u64, length };
        self.unsent.extend(request.bytes());
        let payload = match command {
            command::WRITE => vec![choices.byte() | 1; length as usize],
            _ => Vec::new(),
        };
        self.unsent.extend(&payload);
        let outcome = self.expect(request, &payload);
        self.expected.push(Expected { request, outcome });
    }

    /// Applies a request to the model. Returns the reply that the protocol requires.
    fn expect(&mut self, request: Request, payload: &[u8]) -> Result<Answer, u32> {
        let allowed = match request.command {
            command::READ if self.structured => flag::FUA | flag::DF,
            command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            command::BLOCK_STATUS => flag::FUA | flag::REQ_ONE,
            _ => flag::FUA,
        };
        if request.command > command::BLOCK_STATUS || request.flags & !allowed != 0 {
            return Err(errno::EINVAL);
        }
        if request.command == command::FLUSH {
            let whole = (request.offset, request.length) == (0, 0);
            return if whole { Ok(Answer::Done) } else { Err(errno::EINVAL) };
        }
        let too_long = request.length > 32 << 20;
        let unfragmented_too_long = request.flags & flag::DF != 0 && request.length > 1 << 20;
        match request.command {
            command::READ if self.structured && (too_long || unfragmented_too_long) => {
                return Err(errno::EOVERFLOW);
            }
            command::READ | command::WRITE if too_long => return Err(errno::EINVAL),
            command::BLOCK_STATUS if !self.structured || request.length == 0 => {
                return Err(errno::EINVAL);
            }
            _ => {}
        }
        let start = usize::try_from(request.offset).expect("offsets fit memory");
        let range = start..start + request.length as usize;
        if range.end > SIZE {
            let changes = [command::WRITE, command::WRITE_ZEROES].contains(&request.command);
            return Err(if changes { errno::ENOSPC } else { errno::EINVAL });
        }
        Ok(self.apply(request.command, range, payload))
    }

    fn apply(&mut self, command: u16, range: Range<usize>, payload: &[u8]) -> Answer {
        match command {
            command::READ => return Answer::Data(self.model[range].to_vec()),
            command::BLOCK_STATUS => return Answer::Status,
            command::WRITE => self.model[range].copy_from_slice(payload),
            command::WRITE_ZEROES => self.model[range].fill(0),
            command::TRIM => {
                let whole = range.start.div_ceil(BLOCK) * BLOCK..range.end / BLOCK * BLOCK;
                if !whole.is_empty() {
                    self.model[whole].fill(0);
                }
            }
            _ => {}
        }
        Answer::Done
    }

    fn send_all(&mut self) {
        self.talk.send(&std::mem::take(&mut self.unsent));
        assert_eq!(self.talk.progress(), Progress::ReceiveInput);
        let mut received = self.talk.received();
        for expected in self.expected.drain(..) {
            check_answer(&expected, self.structured, &mut received);
        }
        assert!(received.is_empty(), "nothing is answered twice");
    }

    /// Sends garbage. After that, the session may reply anything, but not panic.
    fn send_garbage(&mut self, choices: &mut Choices<'_>) {
        while !choices.rest.is_empty() && self.talk.progress() == Progress::ReceiveInput {
            let count = 1 + choices.below(64);
            self.talk.send(&choices.take(count));
            assert!(self.talk.received().len() <= ANSWER_BYTES_MAX);
        }
    }
}

fn check_answer(expected: &Expected, structured: bool, received: &mut Received) {
    let request = expected.request;
    match &expected.outcome {
        Ok(Answer::Data(data)) if structured => check_chunks(request, data, received),
        Ok(Answer::Data(data)) => {
            check_simple(request, 0, received);
            assert!(received.take(data.len()) == data, "{request:?} read something else");
        }
        Ok(Answer::Status) => check_status(request, received),
        Ok(Answer::Done) => check_simple(request, 0, received),
        Err(error) if structured => match received.reply() {
            Reply::Chunk { cookie, done: true, chunk: Chunk::Error { error: found, .. } } => {
                assert_eq!((cookie, found), (request.cookie, *error), "{request:?}");
            }
            other => panic!("{request:?} should fail with {error}, not {other:?}"),
        },
        Err(error) => check_simple(request, *error, received),
    }
}

fn check_simple(request: Request, error: u32, received: &mut Received) {
    let expected = Reply::Simple { cookie: request.cookie, error };
    assert_eq!(received.reply(), expected, "{request:?}");
}

fn check_chunks(request: Request, expected: &[u8], received: &mut Received) {
    let mut found = Vec::new();
    loop {
        let Reply::Chunk { cookie, done, chunk } = received.reply() else {
            panic!("{request:?} wants chunks");
        };
        assert_eq!(cookie, request.cookie);
        let at = request.offset + found.len() as u64;
        match chunk {
            Chunk::Data { offset, data } => {
                assert_eq!(offset, at);
                assert!(!data.is_empty(), "a chunk describes something");
                found.extend(data);
            }
            Chunk::Hole { offset, length } => {
                assert_eq!(offset, at);
                assert!(length > 0, "a chunk describes something");
                found.resize(found.len() + length as usize, 0);
            }
            Chunk::Nothing => assert!(done),
            other => panic!("{request:?} is answered {other:?}"),
        }
        if done {
            break;
        }
        assert_eq!(request.flags & flag::DF, 0, "{request:?} wants one chunk");
    }
    assert!(found == expected, "{request:?} read something else");
}

fn check_status(request: Request, received: &mut Received) {
    let Reply::Chunk { cookie, done: true, chunk: Chunk::Status(extents) } = received.reply()
    else {
        panic!("{request:?} wants a status");
    };
    assert_eq!(cookie, request.cookie);
    assert!(!extents.is_empty(), "a client can go on from here");
    assert!(request.flags & flag::REQ_ONE == 0 || extents.len() == 1);
    let lengths = extents.iter().map(|(length, _)| u64::from(*length));
    assert!(extents.iter().all(|(length, _)| *length > 0), "extents are not empty");
    assert!(lengths.sum::<u64>() <= u64::from(request.length));
}
