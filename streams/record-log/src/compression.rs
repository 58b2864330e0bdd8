//! The codecs of record batches. What does not decode is told apart from an empty result; no input
//! makes more than the caller allows.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, FrameDecoder, FrameEncoder, FrameInfo};
use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::CompressionLevel;

/// What snappy's blocks have before them in the form that Java clients write (xerial's
/// snappy-java): a magic number, the version and the lowest version that reads it.
const SNAPPY_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const SNAPPY_HEADER: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

/// Bytes that one of snappy's blocks is made of.
const SNAPPY_BLOCK_BYTES: usize = 32 << 10;

/// A block of snappy makes so many times its bytes at most: three of them copy 64.
const SNAPPY_GROWTH_MAX: usize = 22;

/// How the records of a batch are compressed: the three lowest bits of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    /// `None` for numbers that no codec has.
    pub(crate) fn of(attributes: i16) -> Option<Self> {
        match attributes & 7 {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    pub(crate) fn compress(self, bytes: &[u8]) -> Vec<u8> {
        const TO_MEMORY: &str = "writing to memory does not fail";
        match self {
            Self::None => bytes.to_vec(),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).expect(TO_MEMORY);
                encoder.finish().expect(TO_MEMORY)
            }
            Self::Snappy => compress_snappy(bytes),
            Self::Lz4 => {
                // Java clients read no blocks that need those before them.
                let info = FrameInfo::new().block_mode(BlockMode::Independent);
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(bytes).expect(TO_MEMORY);
                encoder.finish().expect(TO_MEMORY)
            }
            Self::Zstd => ruzstd::encoding::compress_to_vec(bytes, CompressionLevel::Fastest),
        }
    }

    /// `None` where the bytes do not decode, or decode to more than `bytes_max`.
    pub(crate) fn decompress(self, bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        match self {
            Self::None => (bytes.len() <= bytes_max).then(|| bytes.to_vec()),
            Self::Gzip => read_all(MultiGzDecoder::new(bytes), bytes_max),
            Self::Snappy => decompress_snappy(bytes, bytes_max),
            Self::Lz4 => read_all(FrameDecoder::new(bytes), bytes_max),
            // The decoder refuses windows of more than 128 MiB.
            Self::Zstd => read_all(StreamingDecoder::new(bytes).ok()?, bytes_max),
        }
    }
}

fn read_all(decoder: impl Read, bytes_max: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let limit = u64::try_from(bytes_max).ok()?.checked_add(1)?;
    decoder.take(limit).read_to_end(&mut decoded).ok()?;
    (decoded.len() <= bytes_max).then_some(decoded)
}

fn compress_snappy(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = SNAPPY_HEADER.to_vec();
    for block in bytes.chunks(SNAPPY_BLOCK_BYTES) {
        let block = snap::raw::Encoder::new().compress_vec(block).expect("a short block");
        encoded.extend(u32::try_from(block.len()).expect("a short block").to_be_bytes());
        encoded.extend(block);
    }
    encoded
}

/// With xerial's header or, as some clients write it, one block alone.
fn decompress_snappy(bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    if !bytes.starts_with(&SNAPPY_MAGIC) {
        decompress_snappy_block(bytes, bytes_max, &mut decoded)?;
        return Some(decoded);
    }
    let mut rest = bytes.get(SNAPPY_HEADER.len()..)?;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (block, after) = after.split_at_checked(length)?;
        decompress_snappy_block(block, bytes_max, &mut decoded)?;
        rest = after;
    }
    Some(decoded)
}

/// Appends what a block holds, so that there are `bytes_max` bytes at most. Takes no memory for a
/// block that says it holds more than it can.
fn decompress_snappy_block(block: &[u8], bytes_max: usize, into: &mut Vec<u8>) -> Option<()> {
    let length = snap::raw::decompress_len(block).ok()?;
    if length > block.len().saturating_mul(SNAPPY_GROWTH_MAX) {
        return None;
    }
    let before = into.len();
    let after = before.checked_add(length).filter(|after| *after <= bytes_max)?;
    into.resize(after, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut into[before..]).ok()?;
    (written == length).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    #[test]
    fn what_is_compressed_comes_back_and_no_more_than_is_allowed() {
        for (number, codec) in (0..).zip(ALL) {
            assert_eq!(Codec::of(number | 1 << 4), Some(codec));
            for length in [0, 1, 1_000, 300_000] {
                let bytes: Vec<u8> = (0..length).map(|at: u32| at.to_le_bytes()[1]).collect();
                let encoded = codec.compress(&bytes);
                let decoded = codec.decompress(&encoded, bytes.len());
                assert_eq!(decoded.as_ref(), Some(&bytes), "{codec:?}");
                if let Some(less) = bytes.len().checked_sub(1) {
                    assert_eq!(codec.decompress(&encoded, less), None, "{codec:?}");
                }
            }
        }
        assert_eq!(Codec::of(5), None);
    }

    #[test]
    fn what_a_bomb_decodes_to_is_refused() {
        let bytes = vec![0; 8 << 20];
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let encoded = codec.compress(&bytes);
            assert!(encoded.len() < bytes.len() / 16, "{codec:?}: {}", encoded.len());
            assert_eq!(codec.decompress(&encoded, 1 << 20), None, "{codec:?}");
        }
    }

    #[test]
    fn bytes_that_were_cut_off_do_not_decode_to_all_of_it() {
        let bytes: Vec<u8> = (0..50_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let encoded = codec.compress(&bytes);
            for length in (0..encoded.len()).step_by(97) {
                let decoded = codec.decompress(&encoded[..length], bytes.len());
                assert_ne!(decoded.as_ref(), Some(&bytes), "{codec:?}");
            }
        }
    }

    #[test]
    fn a_block_of_snappy_that_cannot_hold_what_it_says_takes_no_memory() {
        // 2^27 bytes, in a literal of one.
        let lie = [0x80, 0x80, 0x80, 0x40, 0, b'x'];
        let mut decoded = Vec::new();
        assert_eq!(decompress_snappy_block(&lie, 1 << 27, &mut decoded), None);
        assert_eq!(decoded.capacity(), 0);
    }

    #[test]
    fn snappy_without_a_header_is_read_too() {
        let encoded = snap::raw::Encoder::new().compress_vec(b"abcabcabc").expect("short");
        assert_eq!(Codec::Snappy.decompress(&encoded, 9), Some(b"abcabcabc".to_vec()));
    }
}
