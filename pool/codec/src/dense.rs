//! The dense form: a block as one zstd frame, smaller than LZ4 and slower to decode.
//!
//! A frame states that it contains one block, and has no checksum: the owner verifies the contents
//! by a fingerprint. Any input is accepted, as for LZ4: bytes that are not exactly one frame of one
//! block are an error.

use std::alloc::Layout;
use std::cell::RefCell;
use std::fmt;

use zstd_safe::{CCtx, CParameter, DCtx};

use crate::decode::DecodeError;
use crate::{BLOCK_BYTES, Block};

/// Compression level. Level 12 saves 4 % more of programs and libraries, but takes five times as
/// long.
const LEVEL: i32 = 5;

/// First bytes of a frame. Other frame kinds, which the library may support, are rejected.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Size of the output buffer, sufficient for incompressible data. With a smaller buffer, the
/// encoding would depend on its size.
const ROOM_BYTES: usize = BLOCK_BYTES + 256;

/// Approximate size of a decoder.
const CONTEXT_BYTES: usize = 96 << 10;

/// Error code of the library for a failed allocation: the number 64, negated.
const NO_MEMORY: usize = 64_usize.wrapping_neg();

/// Encoder of the dense form, for background work.
pub struct DenseEncoder {
    context: CCtx<'static>,
    output: Box<[u8; ROOM_BYTES]>,
}

impl DenseEncoder {
    /// Creates an encoder, which takes some hundred KiB. Returns `None` if the allocation fails.
    pub fn new() -> Option<Self> {
        let mut context = CCtx::try_create()?;
        let parameters = [
            CParameter::CompressionLevel(LEVEL),
            CParameter::ContentSizeFlag(true),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ];
        for parameter in parameters {
            context.set_parameter(parameter).ok()?;
        }
        Some(Self { context, output: Box::new([0; ROOM_BYTES]) })
    }

    /// Encodes a block, if the result has at most `length_max` bytes and is shorter than the block.
    pub fn encode(&mut self, block: &Block, length_max: usize) -> Option<&[u8]> {
        let length = self.context.compress2(self.output.as_mut_slice(), block).ok()?;
        let encoded = self.output.get(..length)?;
        (length <= length_max && length < BLOCK_BYTES).then_some(encoded)
    }
}

impl fmt::Debug for DenseEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DenseEncoder")
    }
}

thread_local! {
    /// Decoder of each thread that has read such a block: some hundred KiB.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Decodes the dense form of a block. Any other bytes are an error, which leaves `into` in an
/// undefined state.
pub fn decode_dense(encoded: &[u8], into: &mut Block) -> Result<(), DecodeError> {
    let is_one_frame = encoded.starts_with(&MAGIC)
        && zstd_safe::find_frame_compressed_size(encoded) == Ok(encoded.len());
    if !is_one_frame {
        return Err(DecodeError);
    }
    CONTEXT.with_borrow_mut(|context| {
        let context = context.get_or_insert_with(|| DCtx::try_create().unwrap_or_else(end_process));
        decode_with(context, encoded, into)
    })
}

fn decode_with(
    context: &mut DCtx<'_>,
    encoded: &[u8],
    into: &mut Block,
) -> Result<(), DecodeError> {
    match context.decompress(into.as_mut_slice(), encoded) {
        Ok(BLOCK_BYTES) => Ok(()),
        Err(code) if code == NO_MEMORY => end_process(),
        Ok(_) | Err(_) => Err(DecodeError),
    }
}

/// Ends the process, like every failed allocation: intact data must not be reported as damaged.
fn end_process<T>() -> T {
    std::alloc::handle_alloc_error(Layout::new::<[u8; CONTEXT_BYTES]>())
}
