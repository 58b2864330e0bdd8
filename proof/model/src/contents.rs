//! Contents to write, of every kind that a store treats differently.

use block_device::BLOCK_BYTES;
use random::Random;

use crate::Block;

/// Kind of the blocks of some contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texture {
    /// Incompressible and all different.
    Noise,
    /// Compressible, each to a different size.
    Text,
    /// Noise with few different blocks.
    FewNoises,
    /// Text with few different blocks.
    FewTexts,
    /// Filled with one pattern each.
    Fill,
    Zeros,
    /// A fill except for one byte.
    AlmostFill,
    /// Each block has one of the other textures.
    Mixed,
}

impl Texture {
    pub const ALL: [Self; 8] = [
        Self::Noise,
        Self::Text,
        Self::FewNoises,
        Self::FewTexts,
        Self::Fill,
        Self::Zeros,
        Self::AlmostFill,
        Self::Mixed,
    ];
}

/// Number of different blocks of textures with few blocks.
const FEW: u64 = 6;

/// Contents of any length, determined by a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    pub texture: Texture,
    pub seed: u64,
}

impl Contents {
    pub fn new(texture: Texture, seed: u64) -> Self {
        Self { texture, seed }
    }

    pub fn random(random: &mut Random) -> Self {
        Self { texture: random.pick(&Texture::ALL), seed: random.number() }
    }

    /// Returns the first `length` bytes.
    pub fn bytes(self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length.next_multiple_of(BLOCK_BYTES));
        for index in 0..length.div_ceil(BLOCK_BYTES) {
            bytes.extend_from_slice(&self.block(index as u64));
        }
        bytes.truncate(length);
        bytes
    }

    /// Returns block `index` of the contents.
    pub fn block(self, index: u64) -> Block {
        let mut random = Random::new(self.seed ^ index.wrapping_mul(0xA076_1D64_78BD_642F));
        let texture = match self.texture {
            Texture::Mixed => random.pick(&Texture::ALL[..Texture::ALL.len() - 1]),
            other => other,
        };
        let mut block = [0; BLOCK_BYTES];
        match texture {
            Texture::Noise => fill_noise(&mut random, &mut block),
            Texture::Text => fill_text(&mut random, &mut block),
            Texture::FewNoises => fill_noise(&mut Random::new(random.below(FEW)), &mut block),
            Texture::FewTexts => fill_text(&mut Random::new(random.below(FEW)), &mut block),
            Texture::Fill => fill_pattern(&mut random, &mut block),
            Texture::AlmostFill => {
                fill_pattern(&mut random, &mut block);
                let place = random.index(BLOCK_BYTES);
                block[place] ^= 1;
            }
            Texture::Zeros | Texture::Mixed => {}
        }
        block
    }
}

fn fill_noise(random: &mut Random, block: &mut Block) {
    for bytes in block.as_chunks_mut::<8>().0 {
        *bytes = random.number().to_le_bytes();
    }
}

/// Repeats a noise of some length: the shorter, the more compressible.
fn fill_text(random: &mut Random, block: &mut Block) {
    let period = 8 + random.index(BLOCK_BYTES - 8);
    for index in 0..BLOCK_BYTES {
        block[index] = match index.checked_sub(period) {
            Some(earlier) => block[earlier],
            None => b'a' + u8::try_from(random.below(20)).expect("a letter"),
        };
    }
}

fn fill_pattern(random: &mut Random, block: &mut Block) {
    let pattern = random.number().to_le_bytes();
    for bytes in block.as_chunks_mut::<4>().0 {
        bytes.copy_from_slice(&pattern[..4]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_the_same_each_time_and_have_the_length_asked_for() {
        for texture in Texture::ALL {
            let contents = Contents::new(texture, 7);
            assert_eq!(contents.bytes(10_000).len(), 10_000);
            assert!(contents.bytes(10_000) == contents.bytes(20_000)[..10_000]);
        }
    }

    #[test]
    fn few_blocks_repeat_and_noise_does_not() {
        let different = |texture| {
            let contents = Contents::new(texture, 1);
            let blocks: std::collections::HashSet<_> =
                (0..100).map(|i| contents.block(i)).collect();
            blocks.len()
        };
        assert_eq!(different(Texture::Noise), 100);
        assert!(different(Texture::FewNoises) <= 6);
        assert!(different(Texture::FewTexts) <= 6);
    }
}
