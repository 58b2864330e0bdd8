//! Fingerprints of contents, and how a slot's word describes what the slot holds.

use codec::Block;
use twox_hash::XxHash3_128;

/// The longest secret that XXH3 uses.
const SECRET_BYTES: usize = 192;

/// Fingerprints of one pool: without its secret nobody can make contents that collide.
pub(crate) struct Fingerprinter {
    secret: [u8; SECRET_BYTES],
}

impl Fingerprinter {
    /// Stretches the pool's secret to the length that XXH3 wants.
    pub(crate) fn new(pool_secret: &[u8; 32]) -> Self {
        let mut secret = [0; SECRET_BYTES];
        for (seed, bytes) in (0..).zip(secret.as_chunks_mut::<16>().0) {
            *bytes = XxHash3_128::oneshot_with_seed(seed, pool_secret).to_le_bytes();
        }
        Self { secret }
    }

    /// 32 bits of the keyed XXH3-128 of a block. Never 0, which means "none" in a slot's word.
    #[inline]
    pub(crate) fn of(&self, contents: &Block) -> u32 {
        let hash = XxHash3_128::oneshot_with_secret(&self.secret, contents)
            .expect("the secret is as long as XXH3 wants");
        let low = u32::try_from(hash & u128::from(u32::MAX)).expect("32 bits were kept");
        low.max(1)
    }
}

impl std::fmt::Debug for Fingerprinter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fingerprinter(secret)")
    }
}

/// In place of a length: the page is stored as it is until somebody has time to compress it.
pub(crate) const UNTRIED_LENGTH: u64 = 1 << 15;

/// Beside a length: the journal has the page.
const JOURNALED_LENGTH: u64 = 1 << 14;

/// Beside a length: the dedup index does not lead to the page.
const UNINDEXED_LENGTH: u64 = 1 << 13;

/// The bits of a description that are a length.
const LENGTH_MASK: u64 = (1 << 12) - 1;

/// What a description says of the contents, however they are stored: their fingerprint, and
/// whether the dedup index leads to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check(u64);

impl Check {
    /// Contents that writers may find by their fingerprint.
    #[inline]
    pub(crate) const fn indexed(fingerprint: u32) -> Self {
        Self((fingerprint as u64) << 16)
    }

    /// Contents whose fingerprint is there to tell damage.
    #[inline]
    pub(crate) const fn unindexed(fingerprint: u32) -> Self {
        Self(Self::indexed(fingerprint).0 | UNINDEXED_LENGTH)
    }

    /// The fingerprint under which the index leads to the contents, if it does.
    #[inline]
    pub(crate) fn hint(self) -> Option<u32> {
        let fingerprint = described_fingerprint(self.0);
        (fingerprint != 0 && self.0 & UNINDEXED_LENGTH == 0).then_some(fingerprint)
    }
}

/// A slot's description, in its word: the length of the encoding (0 for none) and of what.
pub(crate) fn describe(length_bytes: usize, check: Check) -> u64 {
    length_bytes as u64 | check.0
}

pub(crate) fn described_length(description: u64) -> usize {
    usize::try_from(description & LENGTH_MASK).expect("twelve bits")
}

pub(crate) fn described_check(description: u64) -> Check {
    Check(description & !(LENGTH_MASK | UNTRIED_LENGTH | JOURNALED_LENGTH))
}

/// The fingerprint under which the dedup index leads to what is described, if it does.
#[inline]
pub(crate) fn described_hint(description: u64) -> Option<u32> {
    described_check(description).hint()
}

/// The description of a page that is stored as it is and not tried yet.
pub(crate) fn describe_untried(check: Check) -> u64 {
    describe(0, check) | UNTRIED_LENGTH
}

pub(crate) fn is_described_untried(description: u64) -> bool {
    description & UNTRIED_LENGTH != 0
}

/// The description of the same page once it was tried.
pub(crate) fn described_as_tried(description: u64) -> u64 {
    description & !UNTRIED_LENGTH
}

/// Whether the journal has the page.
pub(crate) fn is_described_journaled(description: u64) -> bool {
    description & JOURNALED_LENGTH != 0
}

/// The description of the same page once the journal has it.
pub(crate) fn described_as_journaled(description: u64) -> u64 {
    description | JOURNALED_LENGTH
}

/// The description of a copy of the page in another slot.
pub(crate) fn described_as_copy(description: u64) -> u64 {
    description & !JOURNALED_LENGTH
}

/// The fingerprint of the contents; 0 when none was taken.
pub(crate) fn described_fingerprint(description: u64) -> u32 {
    u32::try_from(description >> 16).expect("descriptions have 48 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Check = Check::indexed(0xDEAD_BEEF);

    #[test]
    fn fingerprints_depend_on_the_secret() {
        let block = [7; codec::BLOCK_BYTES];
        let one = Fingerprinter::new(&[1; 32]).of(&block);
        assert_eq!(one, Fingerprinter::new(&[1; 32]).of(&block));
        assert_ne!(one, Fingerprinter::new(&[2; 32]).of(&block));
    }

    #[test]
    fn a_description_holds_length_and_fingerprint() {
        let description = describe(3632, CHECK);
        assert_eq!(described_length(description), 3632);
        assert_eq!(described_fingerprint(description), 0xDEAD_BEEF);
        assert!(!is_described_untried(description));
    }

    #[test]
    fn only_what_is_indexed_has_a_hint() {
        assert_eq!(described_hint(describe(9, CHECK)), Some(0xDEAD_BEEF));
        assert_eq!(described_hint(describe(9, Check::indexed(0))), None);
        let unindexed = describe(9, Check::unindexed(7));
        assert_eq!(described_hint(unindexed), None);
        assert_eq!((described_fingerprint(unindexed), described_length(unindexed)), (7, 9));
    }

    #[test]
    fn a_page_is_untried_until_its_description_says_otherwise() {
        let untried = describe_untried(CHECK);
        assert!(is_described_untried(untried));
        assert_eq!(described_length(untried), 0);
        assert_eq!(described_as_tried(untried), describe(0, CHECK));
    }

    #[test]
    fn that_the_journal_has_a_page_changes_nothing_else_of_it() {
        let description = described_as_journaled(describe(3632, CHECK));
        assert!(is_described_journaled(description));
        assert!(!is_described_journaled(describe(3632, CHECK)));
        assert_eq!(described_length(description), 3632);
        assert_eq!(described_fingerprint(description), 0xDEAD_BEEF);
        assert!(!is_described_untried(description));
    }
}
