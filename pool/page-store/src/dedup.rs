//! Finding contents that are stored already.

use codec::Block;
use sync::atomic::Ordering;
use sync::{Pinned, counted};
use twox_hash::XxHash3_128;

use crate::entry::Entry;
use crate::layout::Slot;
use crate::store::Core;

/// Pages compared for one write at most: contents made to collide cost no more than that.
const COMPARISONS_MAX: usize = 2;

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

/// A slot's description, in its word: the length of the encoding (0 for none) and a fingerprint.
pub(crate) fn describe(length_bytes: usize, fingerprint: u32) -> u64 {
    length_bytes as u64 | (u64::from(fingerprint) << 16)
}

pub(crate) fn described_length(description: u64) -> usize {
    usize::try_from(description & 0xFFFF).expect("16 bits")
}

pub(crate) fn described_fingerprint(description: u64) -> u32 {
    u32::try_from(description >> 16).expect("descriptions have 48 bits")
}

impl Core {
    /// Looks for a page of the same contents and takes a reference to it. `scratch` is
    /// overwritten.
    pub(crate) fn share_equal(
        &self,
        pinned: &Pinned<'_>,
        contents: &Block,
        fingerprint: u32,
        scratch: &mut Block,
    ) -> Option<Entry> {
        let mut comparisons = 0;
        for at in self.index.hints(self, pinned, fingerprint) {
            let Some(entry) = self.share_hinted(at, fingerprint) else { continue };
            if self.is_equal(pinned, entry, contents, scratch) {
                return Some(entry);
            }
            self.release(at);
            comparisons += 1;
            if comparisons == COMPARISONS_MAX {
                break;
            }
        }
        None
    }

    /// Takes a reference to the page that a hint leads to, if it has the fingerprint.
    fn share_hinted(&self, at: Slot, fingerprint: u32) -> Option<Entry> {
        if !self.layout.has(at) || !self.is_named(at) || self.book.is_victim(at.slab, at.class) {
            return None;
        }
        let word = self.region.word_to_store(self.layout.slot_word(at));
        let is_wanted = |description| described_fingerprint(description) == fingerprint;
        let description = counted::try_share(word, is_wanted)?;
        Some(Entry::page(at, described_length(description)))
    }

    /// Whether a slot's page can be shared and its fingerprint has this tag.
    pub(crate) fn can_share_tag(&self, at: Slot, wanted: u64, tag: impl Fn(u32) -> u64) -> bool {
        if !self.layout.has(at) || !self.is_named(at) {
            return false;
        }
        let word = self.region.word(self.layout.slot_word(at)).load(Ordering::Relaxed);
        let fingerprint = described_fingerprint(counted::description_of(word));
        (1..counted::COUNT_MAX).contains(&counted::count_of(word)) && tag(fingerprint) == wanted
    }

    /// Whether the slab still has the class that a hint says. Slabs change their class a grace
    /// period after the table stops naming the old one, so the answer holds while pinned.
    pub(crate) fn is_named(&self, at: Slot) -> bool {
        let named = self.region.word(self.layout.table_word(at.slab)).load(Ordering::Acquire);
        named == u64::from(at.class.id()) + 1 && at.class.has_slots()
    }

    /// Whether the page that the caller holds a reference to has these contents.
    fn is_equal(
        &self,
        pinned: &Pinned<'_>,
        entry: Entry,
        contents: &Block,
        scratch: &mut Block,
    ) -> bool {
        let at = entry.slot().expect("the entry of a page");
        match entry.length_bytes() {
            0 => self.slot_bytes(pinned, at, contents.len()) == contents,
            length => {
                let encoded = self.slot_bytes(pinned, at, length);
                codec::decode(encoded, scratch).is_ok() && scratch == contents
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_depend_on_the_secret() {
        let block = [7; codec::BLOCK_BYTES];
        let one = Fingerprinter::new(&[1; 32]).of(&block);
        assert_eq!(one, Fingerprinter::new(&[1; 32]).of(&block));
        assert_ne!(one, Fingerprinter::new(&[2; 32]).of(&block));
    }

    #[test]
    fn a_description_holds_length_and_fingerprint() {
        let description = describe(3632, 0xDEAD_BEEF);
        assert_eq!(described_length(description), 3632);
        assert_eq!(described_fingerprint(description), 0xDEAD_BEEF);
    }
}
