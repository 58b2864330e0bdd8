//! Checksums.
//!
//! Those of headers and heads are seeded with what they belong to, so that bytes that another
//! journal, or an earlier run, left in the same place are never taken for this one's.

use twox_hash::XxHash3_128;

/// Identifier that region, journal and images of one set share.
pub type SetId = [u8; 16];

/// Checksums of one run of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    seed: u64,
}

impl Seal {
    pub fn new(set_id: SetId, epoch: u64) -> Self {
        let mut identity = [0; 24];
        identity[..16].copy_from_slice(&set_id);
        identity[16..].copy_from_slice(&epoch.to_le_bytes());
        Self { seed: low_word(XxHash3_128::oneshot(&identity)) }
    }

    pub fn checksum(self, bytes: &[u8]) -> u64 {
        low_word(XxHash3_128::oneshot_with_seed(self.seed, bytes))
    }
}

/// The checksum of a page as it is stored. It names contents, wherever they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageCheck(pub u64);

impl PageCheck {
    pub fn of(stored: &[u8]) -> Self {
        Self(low_word(XxHash3_128::oneshot(stored)))
    }
}

fn low_word(hash: u128) -> u64 {
    u64::try_from(hash & u128::from(u64::MAX)).expect("64 bits were kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_of_one_set_and_one_epoch() {
        let checksum = |set, epoch| Seal::new([set; 16], epoch).checksum(b"bytes");
        assert_eq!(checksum(7, 1), checksum(7, 1));
        assert_ne!(checksum(7, 1), checksum(7, 2));
        assert_ne!(checksum(7, 1), checksum(8, 1));
    }

    #[test]
    fn equal_contents_have_equal_checks() {
        assert_eq!(PageCheck::of(b"page"), PageCheck::of(b"page"));
        assert_ne!(PageCheck::of(b"page"), PageCheck::of(b"pagf"));
    }
}
