//! Compression of one block: fill patterns, a gate that keeps incompressible data from the encoder,
//! LZ4's block format, and a dense form by zstd for idle data.
//!
//! Pure functions over slices, without knowledge of the storage of contents.
#![forbid(unsafe_code)]

mod decode;
mod dense;
mod encoder;
mod fill;
mod gate;
mod quick;
mod repeat;
mod sequence;
mod thorough;

pub use decode::{DecodeError, decode};
pub use dense::{DenseEncoder, decode_dense};
pub use encoder::Encoder;
pub use fill::{fill_pattern, write_fill};
pub use gate::is_worth_encoding;
pub use units::BLOCK_BYTES;

/// The contents of one block.
pub type Block = [u8; BLOCK_BYTES];
