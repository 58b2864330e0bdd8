//! Encoding of simple and structured replies.

use block_device::ByteRange;

use crate::agreement::Replies;
use crate::buffer::Output;
use crate::failure::{Failure, MESSAGE_BYTES_MAX};
use crate::wire::{CHUNK_HEADER_BYTES, CHUNK_MAGIC, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, chunk};

/// Maximum number of extents per context in a block status reply. Clients query again for the rest.
pub(crate) const EXTENT_COUNT_MAX: usize = 8192;

const EXTENT_BYTES: usize = 8;

/// Maximum length of a chunk that [`put_status_chunk`] writes.
pub(crate) const STATUS_CHUNK_BYTES_MAX: usize =
    CHUNK_HEADER_BYTES + 4 + EXTENT_BYTES * EXTENT_COUNT_MAX;

/// Maximum length of a chunk that [`put_error_chunk`] writes.
pub(crate) const ERROR_CHUNK_BYTES_MAX: usize = CHUNK_HEADER_BYTES + 6 + MESSAGE_BYTES_MAX;

/// Position of a chunk in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Inner,
    Last,
}

impl Place {
    fn flags(self) -> u16 {
        match self {
            Self::Inner => 0,
            Self::Last => chunk::FLAG_DONE,
        }
    }
}

/// Writes the whole reply to a request that returns no data, or that failed.
pub(crate) fn put_outcome(
    cookie: u64,
    replies: Replies,
    failure: Option<&Failure>,
    output: &mut Output,
) {
    match (failure, replies) {
        (None, _) => output.put(&simple_reply(cookie, 0)),
        (Some(failure), Replies::Simple) => {
            output.put(&simple_reply(cookie, failure.errno.number()));
        }
        (Some(failure), Replies::Structured) => put_error_chunk(cookie, failure, output),
    }
}

/// Writes a final chunk without payload.
pub(crate) fn put_success_chunk(cookie: u64, output: &mut Output) {
    output.put(&chunk_header(cookie, chunk::FLAG_DONE, chunk::NONE, 0));
}

/// Writes the header of a chunk with the data of `range`, which the caller appends.
pub(crate) fn put_data_chunk_header(
    cookie: u64,
    place: Place,
    range: ByteRange,
    output: &mut Output,
) {
    let payload_bytes = on_the_wire(range.length + 8);
    output.put(&chunk_header(cookie, place.flags(), chunk::OFFSET_DATA, payload_bytes));
    output.put(&range.start.to_be_bytes());
}

/// Writes a hole chunk: all of `hole` reads as zeros.
pub(crate) fn put_hole_chunk(cookie: u64, place: Place, hole: ByteRange, output: &mut Output) {
    output.put(&chunk_header(cookie, place.flags(), chunk::OFFSET_HOLE, 12));
    output.put(&hole.start.to_be_bytes());
    output.put(&on_the_wire(hole.length).to_be_bytes());
}

/// Writes an error chunk, which fails the whole request regardless of earlier chunks.
fn put_error_chunk(cookie: u64, failure: &Failure, output: &mut Output) {
    let message = failure.message().as_bytes();
    let message_bytes = u16::try_from(message.len()).expect("messages are cut");
    let payload_bytes = 6 + u32::from(message_bytes);
    output.put(&chunk_header(cookie, chunk::FLAG_DONE, chunk::ERROR, payload_bytes));
    output.put(&failure.errno.number().to_be_bytes());
    output.put(&message_bytes.to_be_bytes());
    output.put(message);
}

/// Writes the chunk of a block status reply for one context: lengths and states of extents.
pub(crate) fn put_status_chunk(
    cookie: u64,
    place: Place,
    context_id: u32,
    states: &[(u64, u32)],
    output: &mut Output,
) {
    assert!(!states.is_empty(), "a device finds at least one extent");
    assert!(states.len() <= EXTENT_COUNT_MAX, "a device finds no more than it was asked for");
    let payload_bytes = on_the_wire((4 + EXTENT_BYTES * states.len()) as u64);
    output.put(&chunk_header(cookie, place.flags(), chunk::BLOCK_STATUS, payload_bytes));
    output.put(&context_id.to_be_bytes());
    for &(length, state) in states {
        output.put(&on_the_wire(length).to_be_bytes());
        output.put(&state.to_be_bytes());
    }
}

/// Encodes the header of a simple reply. The data of a successful read follow.
pub(crate) fn simple_reply(cookie: u64, error: u32) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Encodes the header of a structured reply chunk with `payload_bytes` of payload.
fn chunk_header(
    cookie: u64,
    flags: u16,
    kind: u16,
    payload_bytes: u32,
) -> [u8; CHUNK_HEADER_BYTES] {
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    bytes[0..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..20].copy_from_slice(&payload_bytes.to_be_bytes());
    bytes
}

/// Encodes a length. It never exceeds the 32-bit length of the request plus a header.
fn on_the_wire(length: u64) -> u32 {
    u32::try_from(length).expect("no part of a reply is longer than its request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(put: impl Fn(&mut Output), expected_payload: &[u8]) {
        let mut output = Output::new();
        put(&mut output);
        let payload_bytes = u32::try_from(expected_payload.len()).expect("short");
        assert_eq!(output.data()[16..20], payload_bytes.to_be_bytes());
        assert_eq!(&output.data()[20..], expected_payload);
    }

    #[test]
    fn chunks_are_laid_out_as_the_protocol_says() {
        let range = ByteRange::new(0x0102, 3);
        check(|output| put_success_chunk(7, output), b"");
        check(
            |output| put_hole_chunk(7, Place::Last, range, output),
            b"\0\0\0\0\0\0\x01\x02\0\0\0\x03",
        );
        check(
            |output| {
                put_data_chunk_header(7, Place::Inner, range, output);
                output.put(b"abc");
            },
            b"\0\0\0\0\0\0\x01\x02abc",
        );
        check(|output| put_error_chunk(7, &Failure::invalid("no"), output), b"\0\0\0\x16\0\x02no");
    }

    #[test]
    fn a_status_names_its_context_before_lengths_and_states() {
        check(
            |output| put_status_chunk(7, Place::Inner, 9, &[(4096, 3), (8192, 0)], output),
            b"\0\0\0\x09\0\0\x10\0\0\0\0\x03\0\0\x20\0\0\0\0\0",
        );
    }

    #[test]
    fn replies_have_their_fields_in_the_order_of_the_protocol() {
        assert_eq!(
            simple_reply(0x0102_0304_0506_0708, 5),
            *b"\x67\x44\x66\x98\0\0\0\x05\x01\x02\x03\x04\x05\x06\x07\x08"
        );
        assert_eq!(
            chunk_header(0x0102_0304_0506_0708, chunk::FLAG_DONE, chunk::OFFSET_HOLE, 12),
            *b"\x66\x8e\x33\xef\0\x01\0\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x0c"
        );
    }
}
