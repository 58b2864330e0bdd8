//! Blocks that contain the position and time of their write, so that a wrong one can be explained.
//!
//! ```text
//! 0        8        16       24        32                                4088     4096
//! | magic  | volume | block  | sequence | body: noise or repeated text   | checksum |
//! ```

use random::Random;

pub const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"MEMSTAMP");
const BODY_START: usize = 32;
const CHECKSUM_START: usize = BLOCK_BYTES - 8;

/// Number of different contents that are written repeatedly to many blocks.
const DUPLICATE_COUNT: u64 = 24;

/// Contents of one block.
pub type Block = Box<[u8; BLOCK_BYTES]>;

/// Position and time of the write of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub volume: u64,
    pub block: u64,
    pub sequence: u64,
}

/// Contents of a block. Each kind takes another path through the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    Noise(Stamp),
    Text(Stamp),
    /// One of a few contents that many blocks share.
    Duplicate(u64),
    Fill(u8),
}

impl Contents {
    /// Returns contents of a random kind for `stamp`.
    pub fn draw(random: &mut Random, stamp: Stamp) -> Self {
        match random.below(10) {
            0..4 => Self::Noise(stamp),
            4..7 => Self::Text(stamp),
            7..9 => Self::Duplicate(random.below(DUPLICATE_COUNT)),
            _ => Self::Fill(u8::try_from(random.below(4)).expect("it is below four")),
        }
    }

    pub fn block(self) -> Block {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        match self {
            Self::Fill(byte) => bytes.fill(byte),
            Self::Duplicate(number) => Random::new(number).fill(&mut bytes[BLOCK_BYTES / 2..]),
            Self::Noise(stamp) => {
                let seed = stamp.sequence << 32 ^ stamp.block << 8 ^ stamp.volume;
                Random::new(seed).fill(&mut bytes[BODY_START..CHECKSUM_START]);
                seal(&mut bytes, stamp);
            }
            Self::Text(stamp) => {
                let text = format!("block {} written as number {}; ", stamp.block, stamp.sequence);
                let body = &mut bytes[BODY_START..CHECKSUM_START];
                body.iter_mut().zip(text.bytes().cycle()).for_each(|(to, from)| *to = from);
                seal(&mut bytes, stamp);
            }
        }
        bytes
    }
}

/// Returns an empty block, the initial state of volumes.
pub(crate) fn zeros() -> Block {
    Box::new([0; BLOCK_BYTES])
}

/// Describes a block by its contents, for messages.
pub(crate) fn describe(block: &[u8]) -> String {
    if block.iter().all(|byte| *byte == block[0]) {
        return format!("filled with {:#04x}", block[0]);
    }
    if number_at(block, 0) != MAGIC {
        return format!("without stamp, beginning with {:02x?}", &block[..16]);
    }
    let state = match checksum(block) == number_at(block, CHECKSUM_START) {
        true => "whole",
        false => "torn",
    };
    let [volume, place, sequence] = [8, 16, 24].map(|at| number_at(block, at));
    format!("{state}, stamped volume {volume} block {place} sequence {sequence}")
}

fn seal(block: &mut Block, stamp: Stamp) {
    let numbers = [MAGIC, stamp.volume, stamp.block, stamp.sequence];
    for (to, number) in block.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    let checksum = checksum(&block[..]);
    block[CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
}

/// Computes FNV-1a over all words but the last.
fn checksum(block: &[u8]) -> u64 {
    block[..CHECKSUM_START].chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        let word = u64::from_le_bytes(word.try_into().expect("a chunk has 8 bytes"));
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    })
}

fn number_at(block: &[u8], start: usize) -> u64 {
    u64::from_le_bytes(block[start..start + 8].try_into().expect("the range has 8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { volume: 1, block: 2, sequence: 3 };

    #[test]
    fn a_stamped_block_tells_where_and_when_it_was_written() {
        for contents in [Contents::Noise(STAMP), Contents::Text(STAMP)] {
            let text = describe(&contents.block()[..]);
            assert_eq!(text, "whole, stamped volume 1 block 2 sequence 3");
        }
    }

    #[test]
    fn a_torn_block_is_told_apart() {
        let mut block = Contents::Noise(STAMP).block();
        block[2048..].fill(7);
        assert!(describe(&block[..]).starts_with("torn"));
    }

    #[test]
    fn a_block_of_one_byte_is_told_apart() {
        assert_eq!(describe(&Contents::Fill(3).block()[..]), "filled with 0x03");
    }
}
