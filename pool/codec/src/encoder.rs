//! Encoder of LZ4's block format, quick or thorough.

use std::fmt;

use crate::Block;
use crate::quick::{self, Places};
use crate::sequence::Output;
use crate::thorough::{self, Chains};

/// Encoder of blocks, one at a time.
///
/// The encoding of a block depends on the block alone: neither on earlier blocks nor on the limit,
/// which only determines whether there is an encoding.
pub struct Encoder {
    places: Places,
    chains: Chains,
    output: Output,
}

impl Encoder {
    pub fn new() -> Self {
        Self { places: Places::new(), chains: Chains::new(), output: Output::new() }
    }

    /// Encodes a block in LZ4's block format, if that takes at most `length_max` bytes. Stops as
    /// soon as it is certain to take more.
    pub fn encode(&mut self, block: &Block, length_max: usize) -> Option<&[u8]> {
        self.output.begin(length_max);
        quick::encode(block, &mut self.places, &mut self.output).ok()?;
        self.output.finish(block).ok()
    }

    /// Encodes like [`encode`](Self::encode), in the same format, for background work: slower, with
    /// a shorter result.
    pub fn encode_thoroughly(&mut self, block: &Block, length_max: usize) -> Option<&[u8]> {
        self.output.begin(length_max);
        thorough::encode(block, &mut self.chains, &mut self.output).ok()?;
        self.output.finish(block).ok()
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
