//! Decoder of LZ4's block format.
//!
//! Any input is accepted: every access is checked, and bytes that do not encode exactly one block
//! are an error. Most sequences are short and far from both ends. They are copied in pieces of
//! fixed size, whatever their lengths, because copying a few bytes too many costs less than a
//! mispredicted branch. Bytes written past a sequence are overwritten by the next. All others take
//! the slow path, with exact lengths.

use std::error::Error;
use std::fmt;

use crate::repeat::{
    PIECE_BYTES, WORD_BYTES, copy_pair, copy_piece, copy_word, repeat, repeat_near,
};
use crate::sequence::{MATCH_BYTES_MIN, TOKEN_LIMIT};
use crate::{BLOCK_BYTES, Block};

/// Number of input bytes that the fast path needs: a token, a piece of literals, an offset.
const WINDOW_BYTES: usize = 1 + PIECE_BYTES + 2;

/// Number of output bytes that the fast path may write: 14 of short literals, 24 of a short match.
const MARGIN_BYTES: usize = 40;

/// Maximum length of literals and matches that exceed the token's range and are still copied with a
/// fixed size.
const LONG_BYTES: usize = 4 * PIECE_BYTES;

/// Number of input bytes that such literals need: a token, their count, the literals, an offset.
const LONG_WINDOW_BYTES: usize = 2 + LONG_BYTES + 2;

const LONG_LITERALS_MORE_MAX: usize = LONG_BYTES - TOKEN_LIMIT;
const LONG_MATCH_MORE_MAX: usize = LONG_BYTES - TOKEN_LIMIT - MATCH_BYTES_MIN;

/// Error of bytes that do not encode a whole block.
#[derive(Debug, PartialEq, Eq)]
pub struct DecodeError;

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored bytes are not a valid encoding of a block")
    }
}

impl Error for DecodeError {}

/// Rest of the encoding, and number of bytes written to the block.
type Progress<'a> = (&'a [u8], usize);

/// Decodes the LZ4 encoding of a block. Any other bytes are an error, which leaves `into` in an
/// undefined state.
pub fn decode(encoded: &[u8], into: &mut Block) -> Result<(), DecodeError> {
    let (mut rest, mut at) = (encoded, 0);
    loop {
        (rest, at) = decode_quickly(rest, into, at)?;
        let (&token, after) = rest.split_first().ok_or(DecodeError)?;
        (rest, at) = copy_literals(token, after, into, at)?;
        if rest.is_empty() {
            return if at == BLOCK_BYTES { Ok(()) } else { Err(DecodeError) };
        }
        (rest, at) = copy_match(token, rest, into, at)?;
    }
}

/// Decodes sequences on the fast path, up to the first whose literals need the slow path.
#[inline]
fn decode_quickly<'a>(
    mut rest: &'a [u8],
    into: &mut Block,
    mut at: usize,
) -> Result<Progress<'a>, DecodeError> {
    while let Some(window) = rest.first_chunk::<WINDOW_BYTES>()
        && at <= BLOCK_BYTES - MARGIN_BYTES
    {
        let token = window[0];
        let mut literals = usize::from(token >> 4);
        let after = if literals < TOKEN_LIMIT {
            into[at..at + PIECE_BYTES].copy_from_slice(&window[1..1 + PIECE_BYTES]);
            &rest[1 + literals..]
        } else {
            let more = usize::from(window[1]);
            let Some(window) = rest.first_chunk::<LONG_WINDOW_BYTES>() else { break };
            if more > LONG_LITERALS_MORE_MAX || at > BLOCK_BYTES - MARGIN_BYTES - LONG_BYTES {
                break;
            }
            into[at..at + LONG_BYTES].copy_from_slice(&window[2..2 + LONG_BYTES]);
            literals += more;
            &rest[2 + literals..]
        };
        (rest, at) = copy_match_quickly(token, after, into, at + literals)?;
    }
    Ok((rest, at))
}

/// Fast path of [`copy_match`], for short matches far from both ends.
#[inline(always)]
fn copy_match_quickly<'a>(
    token: u8,
    rest: &'a [u8],
    into: &mut Block,
    start: usize,
) -> Result<Progress<'a>, DecodeError> {
    let (offset, after) = rest.split_first_chunk().ok_or(DecodeError)?;
    let offset = usize::from(u16::from_le_bytes(*offset));
    let more = usize::from(token & 15);
    if more < TOKEN_LIMIT {
        if offset < WORD_BYTES {
            repeat_near(into, offset, start).ok_or(DecodeError)?;
        } else {
            let from = start.checked_sub(offset).ok_or(DecodeError)?;
            copy_word(into, from, start);
            copy_word(into, from + WORD_BYTES, start + WORD_BYTES);
            copy_pair(into, from + 2 * WORD_BYTES, start + 2 * WORD_BYTES);
        }
        return Ok((after, start + MATCH_BYTES_MIN + more));
    }
    if let Some((&further, after)) = after.split_first()
        && usize::from(further) <= LONG_MATCH_MORE_MAX
        && offset >= PIECE_BYTES
        && start <= BLOCK_BYTES - LONG_BYTES
    {
        let from = start.checked_sub(offset).ok_or(DecodeError)?;
        for done in [0, PIECE_BYTES, 2 * PIECE_BYTES, 3 * PIECE_BYTES] {
            copy_piece(into, from + done, start + done);
        }
        return Ok((after, start + MATCH_BYTES_MIN + more + usize::from(further)));
    }
    copy_match(token, rest, into, start)
}

/// Copies the literals of a sequence. `rest` begins after its token.
#[inline]
fn copy_literals<'a>(
    token: u8,
    rest: &'a [u8],
    into: &mut Block,
    at: usize,
) -> Result<Progress<'a>, DecodeError> {
    let (count, rest) = read_count(usize::from(token >> 4), rest)?;
    let (literals, rest) = rest.split_at_checked(count).ok_or(DecodeError)?;
    let end = at + count;
    into.get_mut(at..end).ok_or(DecodeError)?.copy_from_slice(literals);
    Ok((rest, end))
}

/// Copies the match of a sequence. `rest` begins after its literals.
#[inline(never)]
fn copy_match<'a>(
    token: u8,
    rest: &'a [u8],
    into: &mut Block,
    start: usize,
) -> Result<Progress<'a>, DecodeError> {
    let (offset, rest) = rest.split_first_chunk().ok_or(DecodeError)?;
    let offset = usize::from(u16::from_le_bytes(*offset));
    let (more, rest) = read_count(usize::from(token & 15), rest)?;
    let end = start + MATCH_BYTES_MIN + more;
    if offset == 0 || offset > start || end > BLOCK_BYTES {
        return Err(DecodeError);
    }
    repeat(into, offset, start..end);
    Ok((rest, end))
}

/// Reads a count, which continues in further bytes if its nibble is full. It cannot overflow,
/// because an encoding has fewer than `usize::MAX` / 255 bytes.
#[inline]
fn read_count(nibble: usize, mut rest: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    let mut count = nibble;
    if nibble < TOKEN_LIMIT {
        return Ok((count, rest));
    }
    loop {
        let (&more, after) = rest.split_first().ok_or(DecodeError)?;
        rest = after;
        count += usize::from(more);
        if more < u8::MAX {
            return Ok((count, rest));
        }
    }
}
