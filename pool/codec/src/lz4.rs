//! LZ4, block format, for blocks of 4 KiB.
//!
//! The encoder and decoder are `lz4_flex`; this module keeps the encoder's table and buffer so
//! that encoding allocates nothing.

use std::error::Error;
use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use crate::{BLOCK_BYTES, Block};

/// Encodes blocks, one at a time.
pub struct Encoder {
    table: CompressTable,
    output: Box<[u8]>,
}

impl Encoder {
    pub fn new() -> Self {
        Self {
            table: CompressTable::small(),
            output: vec![0; get_maximum_output_size(BLOCK_BYTES)].into_boxed_slice(),
        }
    }

    /// The block in LZ4's block format, if that takes `length_max` bytes at most.
    pub fn encode(&mut self, block: &Block, length_max: usize) -> Option<&[u8]> {
        let length = compress_into_with_table(block, &mut self.output, &mut self.table)
            .expect("the buffer is as long as the worst case");
        (length <= length_max).then(|| &self.output[..length])
    }

    /// As [`encode`](Self::encode), in the same format, for callers that nobody waits for: it
    /// takes longer, so that the encoding is shorter.
    pub fn encode_thoroughly(&mut self, block: &Block, length_max: usize) -> Option<&[u8]> {
        self.encode(block, length_max)
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// The bytes are no encoding of a whole block.
#[derive(Debug, PartialEq, Eq)]
pub struct DecodeError;

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored bytes are no LZ4 encoding of a block")
    }
}

impl Error for DecodeError {}

/// Decodes what [`Encoder::encode`] gave. Any other bytes are an error, with `into` in any state.
pub fn decode(encoded: &[u8], into: &mut Block) -> Result<(), DecodeError> {
    match lz4_flex::block::decompress_into(encoded, into) {
        Ok(BLOCK_BYTES) => Ok(()),
        Ok(_) | Err(_) => Err(DecodeError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_block() -> Block {
        let mut block = [0; BLOCK_BYTES];
        for (index, bytes) in block.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            *bytes = format!("{index:08} of many ").as_bytes()[..16].try_into().expect("16");
        }
        block
    }

    #[test]
    fn a_block_is_decoded_to_what_it_was() {
        let mut encoder = Encoder::new();
        let block = text_block();
        let encoded = encoder.encode(&block, 3000).expect("text shrinks").to_vec();
        let mut decoded = [0; BLOCK_BYTES];
        assert_eq!(decode(&encoded, &mut decoded), Ok(()));
        assert!(decoded == block);
    }

    #[test]
    fn what_is_encoded_thoroughly_is_decoded_to_what_it_was() {
        let mut encoder = Encoder::new();
        let block = text_block();
        let encoded = encoder.encode_thoroughly(&block, 3000).expect("text shrinks").to_vec();
        let mut decoded = [0; BLOCK_BYTES];
        assert_eq!(decode(&encoded, &mut decoded), Ok(()));
        assert!(decoded == block);
    }

    #[test]
    fn what_stays_too_long_is_not_encoded() {
        assert!(Encoder::new().encode(&text_block(), 100).is_none());
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut encoder = Encoder::new();
        let encoded = encoder.encode(&text_block(), 3000).expect("text shrinks").to_vec();
        let mut decoded = [0; BLOCK_BYTES];
        for length in [0, 1, encoded.len() / 2, encoded.len() - 1] {
            assert_eq!(decode(&encoded[..length], &mut decoded), Err(DecodeError), "{length}");
        }
        assert_eq!(decode(&[0xFF; 200], &mut decoded), Err(DecodeError));
    }
}
