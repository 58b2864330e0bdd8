//! Replacement of the invalid `:authority` in HTTP/2 requests of the kubelet.
//!
//! The kubelet registers a driver over a connection whose `:authority` is the path of the socket,
//! with `%2F` for slashes. That is not a valid authority (RFC 3986), so servers reject the request
//! as malformed. The driver ignores the authority. Therefore each one is replaced by `localhost`
//! before the server sees it.
//!
//! The client's encoder relies on the dynamic table of HPACK (RFC 7541), to which each field is
//! added. The replaced field keeps its position in the table. As the new value is shorter, this
//! side only evicts entries later.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// Length of the connection preface, which precedes all frames (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

const FRAME_HEAD_BYTES: usize = 9;
const KIND_HEADERS: u8 = 1;
const FLAG_END_HEADERS: u8 = 0x04;
/// `PADDED` and `PRIORITY`: the frame contains more than fields.
const FLAGS_BESIDE_FIELDS: u8 = 0x08 | 0x20;

/// Maximum length of a frame for servers that keep the default limit.
const FRAME_BYTES_MAX: usize = 16_384;

const READ_BYTES: usize = 4096;

/// Index of `:authority` in the static table, and its replacement.
const AUTHORITY_INDEX: usize = 1;
const AUTHORITY: &[u8] = b"localhost";

/// A connection whose requests are rewritten while they are read.
pub(crate) struct Connection {
    stream: UnixStream,
    requests: Requests,
    /// Number of bytes in `requests.ready` that were read.
    read_bytes: usize,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let requests = Requests { passed_on: PREFACE_BYTES, ..Requests::default() };
        Self { stream, requests, read_bytes: 0 }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let rest = &this.requests.ready[this.read_bytes..];
            if !rest.is_empty() {
                let length = rest.len().min(target.remaining());
                target.put_slice(&rest[..length]);
                this.read_bytes += length;
                return Poll::Ready(Ok(()));
            }
            this.requests.ready.clear();
            this.read_bytes = 0;
            let mut bytes = [0; READ_BYTES];
            let mut arrived = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut arrived))?;
            if arrived.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.requests.take(arrived.filled());
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Frames from the client, and those ready for the server.
#[derive(Debug, Default)]
struct Requests {
    /// Bytes received but not yet processed: less than one `HEADERS` frame.
    arrived: Vec<u8>,
    /// Bytes that the server may read.
    ready: Vec<u8>,
    /// Number of following bytes to pass on unchanged.
    passed_on: usize,
}

impl Requests {
    fn take(&mut self, bytes: &[u8]) {
        self.arrived.extend(bytes);
        let mut taken = 0;
        loop {
            let rest = &self.arrived[taken..];
            if self.passed_on > 0 && !rest.is_empty() {
                let length = rest.len().min(self.passed_on);
                self.ready.extend(&rest[..length]);
                self.passed_on -= length;
                taken += length;
                continue;
            }
            let Some(head) = rest.first_chunk::<FRAME_HEAD_BYTES>() else { break };
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let frame_bytes = FRAME_HEAD_BYTES + length;
            if !has_whole_fields(head) || length > FRAME_BYTES_MAX {
                self.passed_on = frame_bytes;
                continue;
            }
            let Some(frame) = rest.get(..frame_bytes) else { break };
            add_changed(frame, &mut self.ready);
            taken += frame_bytes;
        }
        self.arrived.drain(..taken);
    }
}

/// Returns whether a frame contains a complete field block and nothing else.
fn has_whole_fields(head: &[u8; FRAME_HEAD_BYTES]) -> bool {
    let (kind, flags) = (head[3], head[4]);
    kind == KIND_HEADERS && flags & FLAG_END_HEADERS != 0 && flags & FLAGS_BESIDE_FIELDS == 0
}

/// Appends a `HEADERS` frame with the authority replaced. Malformed frames are passed on, for the
/// server to reject.
fn add_changed(frame: &[u8], ready: &mut Vec<u8>) {
    let (head, fields) = frame.split_at(FRAME_HEAD_BYTES);
    let fields = changed(fields).unwrap_or_else(|| fields.to_vec());
    match u32::try_from(fields.len()) {
        Ok(length) if fields.len() <= FRAME_BYTES_MAX => {
            ready.extend(&length.to_be_bytes()[1..]);
            ready.extend(&head[3..]);
            ready.extend(fields);
        }
        // A shorter authority was replaced by a longer one, and the frame has become too long.
        _ => ready.extend(frame),
    }
}

/// Returns the fields with the authority replaced, or `None` if they are malformed.
fn changed(fields: &[u8]) -> Option<Vec<u8>> {
    let mut result = Vec::with_capacity(fields.len() + AUTHORITY.len());
    let mut rest = fields;
    while let Some(first) = rest.first() {
        let start = rest;
        // Indexed fields, table size updates, and literal fields with or without indexing.
        let (prefix_bits, has_value) = match first.leading_zeros() {
            0 => (7, false),
            1 => (6, true),
            2 => (5, false),
            _ => (4, true),
        };
        let index = take_integer(&mut rest, prefix_bits)?;
        if has_value && index == 0 {
            take_text(&mut rest)?;
        }
        if has_value {
            let named = &start[..start.len() - rest.len()];
            take_text(&mut rest)?;
            if index == AUTHORITY_INDEX {
                result.extend(named);
                result.push(u8::try_from(AUTHORITY.len()).ok()?);
                result.extend(AUTHORITY);
                continue;
            }
        }
        result.extend(&start[..start.len() - rest.len()]);
    }
    Some(result)
}

/// Decodes an HPACK integer with a prefix (RFC 7541, section 5.1).
fn take_integer(rest: &mut &[u8], prefix_bits: u32) -> Option<usize> {
    let (first, mut behind) = rest.split_first()?;
    let prefix_max = (1_usize << prefix_bits) - 1;
    let mut number = usize::from(*first) & prefix_max;
    if number == prefix_max {
        for shift in [0, 7, 14] {
            let (byte, next) = behind.split_first()?;
            behind = next;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *rest = behind;
                return Some(number);
            }
        }
        // No field is that long.
        return None;
    }
    *rest = behind;
    Some(number)
}

/// Decodes the raw bytes of an HPACK string, Huffman-coded or not.
fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_integer(rest, 7)?;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method from the static table, a path, an authority, a literal field with a new name, a
    /// table size update, and an indexed field.
    fn fields(authority: &str) -> Vec<u8> {
        let mut fields = vec![0x83, 0x44, 0x02];
        fields.extend(b"/a");
        fields.push(0x41);
        let length = u8::try_from(authority.len()).expect("a short one");
        match length {
            0..0x7f => fields.push(length),
            _ => fields.extend([0x7f, length - 0x7f]),
        }
        fields.extend(authority.as_bytes());
        fields.extend([0x10, 0x01, b'n', 0x01, b'v', 0x3f, 0x09, 0xbe]);
        fields
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("a short one").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Returns the bytes that the server reads if the input arrives in pieces of `piece_bytes`.
    fn read(bytes: &[u8], piece_bytes: usize) -> Vec<u8> {
        let mut requests = Requests { passed_on: PREFACE_BYTES, ..Requests::default() };
        bytes.chunks(piece_bytes).for_each(|piece| requests.take(piece));
        assert!(requests.arrived.is_empty(), "the last frame is whole");
        requests.ready
    }

    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Vec<u8>]) {
        let preface = [b'P'; PREFACE_BYTES].to_vec();
        let bytes = [preface.clone(), frames.concat()].concat();
        let expected = [preface, expected.concat()].concat();
        for piece_bytes in [1, 7, bytes.len()] {
            assert_eq!(read(&bytes, piece_bytes), expected);
        }
    }

    #[test]
    fn an_authority_becomes_one_that_is_allowed() {
        let path = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fcsi.memlane-reg.sock".repeat(2);
        for authority in ["", "a", "localhost", &path] {
            let settings = frame(4, 0, &[0; 6]);
            let body = frame(0, 1, &[0; 300]);
            let asked = frame(KIND_HEADERS, FLAG_END_HEADERS, &fields(authority));
            let read = frame(KIND_HEADERS, FLAG_END_HEADERS, &fields("localhost"));
            check(&[settings.clone(), asked, body.clone()], &[settings, read, body]);
        }
    }

    #[test]
    fn what_is_malformed_or_in_pieces_is_left_to_the_server() {
        let fields = fields("%2F");
        for flags in [0, FLAG_END_HEADERS | 0x08, FLAG_END_HEADERS | 0x20] {
            let frames = [frame(KIND_HEADERS, flags, &fields)];
            check(&frames, &frames);
        }
        for length in 1..fields.len() {
            // All prefixes that end inside a field.
            let cut = frame(KIND_HEADERS, FLAG_END_HEADERS, &fields[..length]);
            let read = read(&[vec![0; PREFACE_BYTES], cut].concat(), 5);
            assert!(read.len() >= PREFACE_BYTES + FRAME_HEAD_BYTES);
        }
        let endless = frame(KIND_HEADERS, FLAG_END_HEADERS, &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff]);
        check(std::slice::from_ref(&endless), std::slice::from_ref(&endless));
        let long = frame(KIND_HEADERS, FLAG_END_HEADERS, &vec![0x83; FRAME_BYTES_MAX + 1]);
        check(std::slice::from_ref(&long), std::slice::from_ref(&long));
    }
}
