//! Compression codecs of batches.
//!
//! Undecodable input is an error, never an empty result. The decompressed size is bounded by the
//! caller's limit.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, FrameDecoder, FrameEncoder, FrameInfo};
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame;
use ruzstd::decoding::{FrameDecoder as ZstdDecoder, StreamingDecoder};
use ruzstd::encoding::CompressionLevel;

/// Magic number of an LZ4 frame.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];

/// Flags in the descriptor of an LZ4 frame.
const LZ4_INDEPENDENT_BLOCKS: u8 = 1 << 5;
const LZ4_BLOCK_CHECKSUMS: u8 = 1 << 4;
const LZ4_CONTENT_SIZE: u8 = 1 << 3;

/// Bit in the length of an LZ4 block that marks it as uncompressed.
const LZ4_AS_IT_IS: u32 = 1 << 31;

/// Header before Snappy's blocks in the framing of Java clients (xerial's snappy-java): a magic
/// number, the version and the lowest compatible version.
const SNAPPY_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const SNAPPY_HEADER: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

/// Uncompressed bytes of one Snappy block.
const SNAPPY_BLOCK_BYTES: usize = 32 << 10;

/// Maximum expansion of a Snappy block: an element of three bytes copies at most 64.
const SNAPPY_GROWTH_MAX: usize = 22;

/// Compression codec of a batch's records: the three lowest bits of its attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Error while decoding the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    #[error("the records of a batch take more than {0} bytes")]
    TooLong(usize),
    #[error("the compressed records of a batch are corrupt")]
    Broken,
    #[error("the checksum of a batch does not match")]
    Checksum,
    #[error("unknown compression codec of a batch")]
    Codec,
    #[error("the number of records in a batch differs from its header")]
    Records,
}

/// Bits of a batch's attributes that contain the codec.
const ATTRIBUTE_BITS: i16 = 7;

impl Codec {
    /// All codecs, ordered by number.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// Returns the name of the codec in Kafka's configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the codec's bits in a batch's attributes.
    pub const fn bits(self) -> i16 {
        self as i16
    }

    /// Returns the codec of a batch's attributes, or `None` if the number is unknown.
    pub fn of(attributes: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.bits() == attributes & ATTRIBUTE_BITS)
    }

    pub fn compress(self, bytes: &[u8]) -> Vec<u8> {
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
                // Java clients cannot read linked blocks.
                let info = FrameInfo::new().block_mode(BlockMode::Independent);
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(bytes).expect(TO_MEMORY);
                encoder.finish().expect(TO_MEMORY)
            }
            Self::Zstd => ruzstd::encoding::compress_to_vec(bytes, CompressionLevel::Fastest),
        }
    }

    /// Rejects LZ4 frames that Java clients cannot read, though this crate and some other clients
    /// can: frames with linked blocks, and frames without an end mark.
    pub fn check_frame(self, bytes: &[u8]) -> Result<(), Undecodable> {
        match self {
            Self::Lz4 => check_lz4(bytes).ok_or(Undecodable::Broken),
            Self::None | Self::Gzip | Self::Snappy | Self::Zstd => Ok(()),
        }
    }

    /// Decompresses the records. Fails if they exceed `bytes_max` bytes.
    pub fn decompress(self, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, Undecodable> {
        let mut decoded = Vec::new();
        self.decompress_into(bytes, bytes_max, &mut decoded)?;
        Ok(decoded)
    }

    /// Decompresses as [`Codec::decompress`] does, and replaces the contents of `decoded`.
    pub fn decompress_into(
        self,
        bytes: &[u8],
        bytes_max: usize,
        decoded: &mut Vec<u8>,
    ) -> Result<(), Undecodable> {
        decoded.clear();
        match self {
            Self::None if bytes.len() > bytes_max => Err(Undecodable::TooLong(bytes_max)),
            Self::None => {
                decoded.extend_from_slice(bytes);
                Ok(())
            }
            Self::Gzip => read_all(MultiGzDecoder::new(bytes), bytes_max, decoded),
            Self::Snappy => decompress_snappy(bytes, bytes_max, decoded),
            Self::Lz4 => read_all(FrameDecoder::new(bytes), bytes_max, decoded),
            Self::Zstd => decompress_zstd(bytes, bytes_max, decoded),
        }
    }
}

/// Appends the decoder's output. Fails if `decoded` exceeds `bytes_max` bytes.
fn read_all(
    decoder: impl Read,
    bytes_max: usize,
    decoded: &mut Vec<u8>,
) -> Result<(), Undecodable> {
    let limit = (bytes_max as u64).saturating_add(1).saturating_sub(decoded.len() as u64);
    decoder.take(limit).read_to_end(decoded).map_err(|_| Undecodable::Broken)?;
    if decoded.len() > bytes_max { Err(Undecodable::TooLong(bytes_max)) } else { Ok(()) }
}

/// Walks over one frame up to its end mark. Source: LZ4 Frame Format Description, version 1.6.
fn check_lz4(bytes: &[u8]) -> Option<()> {
    let flags = *bytes.strip_prefix(&LZ4_MAGIC)?.first()?;
    let has = |flag: u8| flags & flag != 0;
    if !has(LZ4_INDEPENDENT_BLOCKS) {
        return None;
    }
    // Flags, block size, optional content size, and header checksum.
    let header_bytes = LZ4_MAGIC.len() + if has(LZ4_CONTENT_SIZE) { 11 } else { 3 };
    let mut rest = bytes.get(header_bytes..)?;
    loop {
        let (length, after) = rest.split_first_chunk()?;
        let length = u32::from_le_bytes(*length) & !LZ4_AS_IT_IS;
        if length == 0 {
            return Some(());
        }
        let checksum_bytes = if has(LZ4_BLOCK_CHECKSUMS) { 4 } else { 0 };
        rest = after.get(usize::try_from(length).ok()? + checksum_bytes..)?;
    }
}

/// Decompresses concatenated frames, which encoders that flush write, and skips skippable frames
/// between them.
fn decompress_zstd(
    mut bytes: &[u8],
    bytes_max: usize,
    decoded: &mut Vec<u8>,
) -> Result<(), Undecodable> {
    loop {
        let begin = decoded.len();
        // The decoder rejects windows of more than 128 MiB.
        match StreamingDecoder::new(&mut bytes) {
            Ok(mut decoder) => {
                read_all(&mut decoder, bytes_max, decoded)?;
                check_zstd(&decoder.decoder, decoded.len() - begin)?;
            }
            // The decoder has consumed the header of the skippable frame, of eight bytes.
            Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                let length = usize::try_from(length).map_err(|_| Undecodable::Broken)?;
                bytes = bytes.get(length..).ok_or(Undecodable::Broken)?;
            }
            Err(_) => return Err(Undecodable::Broken),
        }
        if bytes.is_empty() {
            return Ok(());
        }
    }
}

/// Verifies the checksum and content size of a decoded frame, as the decoders of consumers do.
fn check_zstd(decoder: &ZstdDecoder, decoded_bytes: usize) -> Result<(), Undecodable> {
    let said = decoder.get_checksum_from_data();
    let is_intact = said.is_none_or(|said| decoder.get_calculated_checksum() == Some(said));
    // 0 if the frame does not declare its content size.
    let said_bytes = decoder.content_size();
    let is_complete = said_bytes == 0 || said_bytes == decoded_bytes as u64;
    if is_intact && is_complete { Ok(()) } else { Err(Undecodable::Broken) }
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

/// Decompresses data with xerial's header or, as some clients write it, a single raw block.
fn decompress_snappy(
    bytes: &[u8],
    bytes_max: usize,
    decoded: &mut Vec<u8>,
) -> Result<(), Undecodable> {
    if !bytes.starts_with(&SNAPPY_MAGIC) {
        return decompress_snappy_block(bytes, bytes_max, decoded);
    }
    let mut rest = bytes.get(SNAPPY_HEADER.len()..).ok_or(Undecodable::Broken)?;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk().ok_or(Undecodable::Broken)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let (block, after) = after.split_at_checked(length).ok_or(Undecodable::Broken)?;
        decompress_snappy_block(block, bytes_max, decoded)?;
        rest = after;
    }
    Ok(())
}

/// Appends the contents of a block. Fails if `into` exceeds `bytes_max` bytes. A declared length
/// that the block cannot expand to is rejected before memory is allocated.
fn decompress_snappy_block(
    block: &[u8],
    bytes_max: usize,
    into: &mut Vec<u8>,
) -> Result<(), Undecodable> {
    let length = snap::raw::decompress_len(block).map_err(|_| Undecodable::Broken)?;
    if length > block.len().saturating_mul(SNAPPY_GROWTH_MAX) {
        return Err(Undecodable::Broken);
    }
    let before = into.len();
    if length > bytes_max.saturating_sub(before) {
        return Err(Undecodable::TooLong(bytes_max));
    }
    into.resize(before + length, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut into[before..]);
    if written == Ok(length) { Ok(()) } else { Err(Undecodable::Broken) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_comes_back_and_no_more_than_is_allowed() {
        for (number, codec) in (0..).zip(Codec::ALL) {
            assert_eq!(Codec::of(number | 1 << 4), Some(codec));
            for length in [0, 1, 1_000, 300_000] {
                let bytes: Vec<u8> = (0..length).map(|at: u32| at.to_le_bytes()[1]).collect();
                let encoded = codec.compress(&bytes);
                let decoded = codec.decompress(&encoded, bytes.len());
                assert_eq!(decoded.as_ref(), Ok(&bytes), "{codec:?}");
                if let Some(less) = bytes.len().checked_sub(1) {
                    let refused = Err(Undecodable::TooLong(less));
                    assert_eq!(codec.decompress(&encoded, less), refused, "{codec:?}");
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
            let error = codec.decompress(&encoded, 1 << 20).expect_err("a bomb");
            assert!(error.to_string().contains("more than 1048576"), "{codec:?}: {error}");
        }
    }

    #[test]
    fn bytes_that_were_cut_off_do_not_decode_to_all_of_it() {
        let bytes: Vec<u8> = (0..50_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let encoded = codec.compress(&bytes);
            let half = &encoded[..encoded.len() / 2];
            codec.decompress(half, bytes.len()).expect_err("it is cut");
            for length in (0..encoded.len()).step_by(97) {
                let decoded = codec.decompress(&encoded[..length], bytes.len());
                assert_ne!(decoded.as_ref(), Ok(&bytes), "{codec:?}");
            }
        }
    }

    #[test]
    fn a_block_of_snappy_that_cannot_hold_what_it_says_takes_no_memory() {
        // Declares 2^27 bytes, but contains a literal of one byte.
        let lie = [0x80, 0x80, 0x80, 0x40, 0, b'x'];
        let mut decoded = Vec::new();
        let refused = decompress_snappy_block(&lie, 1 << 27, &mut decoded);
        assert_eq!(refused, Err(Undecodable::Broken));
        assert_eq!(decoded.capacity(), 0);
    }

    #[test]
    fn frames_of_zstd_after_each_other_are_read_as_one() {
        let frames = [Codec::Zstd.compress(b"abc"), Codec::Zstd.compress(b"defg")].concat();
        assert_eq!(Codec::Zstd.decompress(&frames, 7), Ok(b"abcdefg".to_vec()));
        assert_eq!(Codec::Zstd.decompress(&frames, 6), Err(Undecodable::TooLong(6)));
        let cut = &frames[..frames.len() - 1];
        assert_eq!(Codec::Zstd.decompress(cut, 7), Err(Undecodable::Broken));
    }

    #[test]
    fn frames_of_zstd_that_hold_no_records_are_passed_over() {
        let other = [&0x184D_2A50_u32.to_le_bytes()[..], &5_u32.to_le_bytes(), b"hello"].concat();
        let frame = Codec::Zstd.compress(b"abc");
        for frames in [[&other[..], &frame], [&frame, &other]].map(|it| it.concat()) {
            assert_eq!(Codec::Zstd.decompress(&frames, 3), Ok(b"abc".to_vec()));
        }
        assert_eq!(Codec::Zstd.decompress(&other, 3), Ok(Vec::new()));
        let cut = [&frame[..], &other[..other.len() - 1]].concat();
        assert_eq!(Codec::Zstd.decompress(&cut, 3), Err(Undecodable::Broken));
    }

    #[test]
    fn a_frame_of_zstd_whose_checksum_or_length_is_wrong_is_broken() {
        // A single-segment frame with content size and checksum, and a raw block of three bytes.
        let (header, block) = ([0x28, 0xB5, 0x2F, 0xFD, 0x24, 3], [0x19, 0, 0, b'a', b'b', b'c']);
        let checksum = [0x99, 0x09, 0x77, 0xAD];
        let frame = [&header[..], &block, &checksum].concat();
        assert_eq!(Codec::Zstd.decompress(&frame, 3), Ok(b"abc".to_vec()));
        for at in [5, frame.len() - 1] {
            let mut wrong = frame.clone();
            wrong[at] += 1;
            assert_eq!(Codec::Zstd.decompress(&wrong, 3), Err(Undecodable::Broken), "byte {at}");
        }
    }

    #[test]
    fn frames_of_lz4_that_javas_clients_cannot_read_are_told() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let encode = |info: FrameInfo| {
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&bytes).expect("it is written to memory");
            encoder.finish().expect("it ends")
        };
        let independent = || FrameInfo::new().block_mode(BlockMode::Independent);
        for good in [
            independent(),
            independent().block_checksums(true).content_checksum(true),
            independent().content_size(Some(300_000)),
        ] {
            let frame = encode(good);
            assert_eq!(Codec::Lz4.check_frame(&frame), Ok(()));
            assert_eq!(Codec::Lz4.decompress(&frame, bytes.len()).as_ref(), Ok(&bytes));
        }
        let frame = encode(independent());
        for end in [0, 3, 4, 6, 8, frame.len() / 2, frame.len() - 4, frame.len() - 1] {
            let checked = Codec::Lz4.check_frame(&frame[..end]);
            assert_eq!(checked, Err(Undecodable::Broken), "{end} bytes");
        }
        let linked = encode(FrameInfo::new().block_mode(BlockMode::Linked));
        assert_eq!(Codec::Lz4.check_frame(&linked), Err(Undecodable::Broken));
    }

    #[test]
    fn snappy_without_a_header_is_read_too() {
        let encoded = snap::raw::Encoder::new().compress_vec(b"abcabcabc").expect("short");
        assert_eq!(Codec::Snappy.decompress(&encoded, 9), Ok(b"abcabcabc".to_vec()));
    }

    #[test]
    fn blocks_of_javas_clients_are_read() {
        let block = snap::raw::Encoder::new().compress_vec(b"abc").expect("short");
        let mut framed = [&SNAPPY_MAGIC[..], &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for _ in 0..2 {
            framed.extend(u32::try_from(block.len()).expect("short").to_be_bytes());
            framed.extend(&block);
        }
        assert_eq!(Codec::Snappy.decompress(&framed, 1 << 20), Ok(b"abcabc".to_vec()));
        framed.truncate(framed.len() - 1);
        assert_eq!(Codec::Snappy.decompress(&framed, 1 << 20), Err(Undecodable::Broken));
    }

    #[test]
    fn what_repeats_becomes_shorter() {
        let bytes = b"a record and ".repeat(1000);
        for codec in &Codec::ALL[1..] {
            assert!(codec.compress(&bytes).len() < bytes.len() / 4, "{codec:?}");
        }
    }
}
