//! Compression of the records in a batch, as Kafka's clients do it.
//!
//! What comes out of a decompression is bounded: a short batch can claim to hold any amount.

use std::io::{self, Read, Write};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};

/// How a batch's records are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The word in Kafka's settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The bits in a batch's attributes.
    pub(crate) fn bits(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    pub(crate) fn of_bits(bits: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.bits() == bits)
    }

    pub(crate) fn compress(self, records: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::None => Ok(records),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&records)?;
                encoder.finish()
            }
            Self::Snappy => Ok(snap::raw::Encoder::new().compress_vec(&records)?),
            Self::Lz4 => {
                let mut encoder = FrameEncoder::new(Vec::new());
                encoder.write_all(&records)?;
                Ok(encoder.finish()?)
            }
            Self::Zstd => zstd::encode_all(&records[..], 0),
        }
    }

    /// The records, of which there must not be more than `bytes_max`.
    pub(crate) fn decompress(self, compressed: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::None => Ok(compressed.to_vec()),
            Self::Gzip => read_bounded(GzDecoder::new(compressed), bytes_max),
            Self::Snappy => unsnap(compressed, bytes_max),
            Self::Lz4 => read_bounded(FrameDecoder::new(compressed), bytes_max),
            Self::Zstd => read_bounded(zstd::Decoder::new(compressed)?, bytes_max),
        }
    }
}

fn too_long(bytes_max: usize) -> io::Error {
    let why = format!("the records of a batch take more than {bytes_max} bytes");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn read_bounded(decoder: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    decoder.take((bytes_max as u64).saturating_add(1)).read_to_end(&mut records)?;
    if records.len() > bytes_max { Err(too_long(bytes_max)) } else { Ok(records) }
}

/// What Java's clients put before their blocks: a word and two versions.
const SNAPPY_JAVA_MAGIC: &[u8] = b"\x82SNAPPY\0";
const SNAPPY_JAVA_HEADER_BYTES: usize = 16;

/// One block, or the blocks of Java's clients, each behind its length.
fn unsnap(compressed: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    if !compressed.starts_with(SNAPPY_JAVA_MAGIC) {
        let mut records = Vec::new();
        unsnap_block(compressed, bytes_max, &mut records)?;
        return Ok(records);
    }
    let mut rest = compressed.get(SNAPPY_JAVA_HEADER_BYTES..).unwrap_or_default();
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (length, blocks) = rest.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let block = blocks.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?;
        unsnap_block(block, bytes_max, &mut records)?;
        rest = &blocks[length..];
    }
    Ok(records)
}

fn unsnap_block(block: &[u8], bytes_max: usize, records: &mut Vec<u8>) -> io::Result<()> {
    let length = snap::raw::decompress_len(block)?;
    if length > bytes_max.saturating_sub(records.len()) {
        return Err(too_long(bytes_max));
    }
    records.extend(snap::raw::Decoder::new().decompress_vec(block)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 1 << 20;

    #[test]
    fn what_was_compressed_comes_back() {
        let records: Vec<u8> = b"a record and ".repeat(1000);
        for compression in Compression::ALL {
            let compressed = compression.compress(records.clone()).expect("memory is enough");
            let is_smaller = compressed.len() < records.len() / 4;
            assert_eq!(is_smaller, compression != Compression::None, "{compression:?}");
            let back = compression.decompress(&compressed, BYTES_MAX).expect("it is whole");
            assert_eq!(back, records, "{compression:?}");
        }
    }

    #[test]
    fn more_records_than_allowed_are_refused() {
        let bomb = vec![0; BYTES_MAX + 1];
        for compression in &Compression::ALL[1..] {
            let compressed = compression.compress(bomb.clone()).expect("memory is enough");
            let error = compression.decompress(&compressed, BYTES_MAX).expect_err("a bomb");
            assert!(error.to_string().contains("more than 1048576"), "{compression:?}: {error}");
        }
    }

    #[test]
    fn broken_data_is_an_error() {
        for compression in &Compression::ALL[1..] {
            let compressed = compression.compress(b"abc".repeat(100)).expect("memory is enough");
            let half = &compressed[..compressed.len() / 2];
            compression.decompress(half, BYTES_MAX).expect_err("it is cut");
        }
    }

    #[test]
    fn blocks_of_javas_clients_are_read() {
        let block = Compression::Snappy.compress(b"abc".to_vec()).expect("memory is enough");
        let mut framed = [SNAPPY_JAVA_MAGIC, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for _ in 0..2 {
            framed.extend(u32::try_from(block.len()).expect("short").to_be_bytes());
            framed.extend(&block);
        }
        let records = Compression::Snappy.decompress(&framed, BYTES_MAX).expect("two blocks");
        assert_eq!(records, b"abcabc");
        framed.truncate(framed.len() - 1);
        Compression::Snappy.decompress(&framed, BYTES_MAX).expect_err("it is cut");
    }
}
