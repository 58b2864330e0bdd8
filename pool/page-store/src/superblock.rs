//! The superblock of a pool, in two copies: identification, version, size and secret.
//!
//! A change writes the older copy, its checksum last, so that one copy is intact at every moment.
//! The first twelve words, with their own checksum, are those of version 1: a release that knows no
//! more detects that a newer one wrote it.
//!
//! From version 4 on the upper half of the word of table slabs has a flag for each property that a
//! release must support to use the pool. An unknown flag means that a newer release wrote it.

use region::Region;
use sync::atomic::Ordering;
use twox_hash::XxHash3_128;

use crate::error::{OpenError, OpenErrorKind};
use crate::fingerprint::Secret;
use crate::layout::{
    LAYOUT_VERSION, LAYOUT_VERSION_MIN, LAYOUT_VERSION_PLAIN, LAYOUT_VERSION_TABLES, Layout,
    ROOT_WORD_COUNT, SUPERBLOCK_BYTES,
};

const MAGIC: u64 = u64::from_le_bytes(*b"MEMLANE\n");
const WORD_COUNT: usize = 16;

/// Seed that separates the pool's number from fingerprints, whose key is the secret.
const POOL_NUMBER_SEED: u64 = u64::from_le_bytes(*b"pool num");

/// Index of the checksum of the words before it, since version 1 and since version 2.
const OLD_CHECKSUM: usize = 11;
const CHECKSUM: usize = WORD_COUNT - 1;

const VERSION: usize = 1;
const SIZE: usize = 12;
const UNTAKEN: usize = 13;
const TABLE_SLABS: usize = 14;

/// First version with flags, and their position in the word of table slabs.
const VERSION_WITH_MARKS: u64 = LAYOUT_VERSION;
const MARKS_SHIFT: u32 = 32;
const MARK_TABLES: u64 = 1;
const MARK_DENSE: u64 = 2;
const MARKS_KNOWN: u64 = MARK_TABLES | MARK_DENSE;

/// Number of words reserved for a copy.
const COPY_WORDS: usize = 4096 / 8;
const _: () = assert!(COPY_WORDS as u64 * 8 == SUPERBLOCK_BYTES);

/// Number of words before the slab table: the copies and the root words.
const FRONT_WORD_COUNT: usize = 2 * COPY_WORDS + ROOT_WORD_COUNT;

type Words = [u64; WORD_COUNT];

/// Fields of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Increases with every change. The copy with the higher number is the newer.
    sequence: u64,
    /// Number of times that the pool was opened.
    pub(crate) run_epoch: u64,
    /// True if the last run closed the pool.
    pub(crate) closed_cleanly: bool,
    pub(crate) secret: Secret<32>,
    /// Size of the pool, including memory not yet taken.
    pub(crate) size_bytes: u64,
    /// Number of slabs at the end that have no memory yet. A release that does not know this field
    /// writes 0, because it takes all memory before it writes anything.
    pub(crate) untaken_slabs: u32,
    /// The pool has table slabs, or is about to get one: earlier releases reject it.
    pub(crate) may_have_tables: bool,
    /// The pool has pages in the dense form, or is about to get one: earlier releases reject it.
    pub(crate) may_have_dense: bool,
    /// Number of table slabs, so that a missing one is detected.
    pub(crate) table_slabs: u32,
}

impl Superblock {
    /// Superblock of a new pool, which has no memory yet.
    pub(crate) fn new(secret: [u8; 32], size_bytes: u64) -> Self {
        Self {
            sequence: 0,
            run_epoch: 0,
            closed_cleanly: true,
            secret: Secret(secret),
            size_bytes,
            untaken_slabs: u32::MAX,
            may_have_tables: false,
            may_have_dense: false,
            table_slabs: 0,
        }
    }

    /// Returns whether the pool was never opened.
    pub(crate) fn is_new(&self) -> bool {
        self.run_epoch == 0
    }

    /// Number derived from the secret, which it does not reveal: it has a quarter of the bits.
    pub(crate) fn pool_number(&self) -> u64 {
        let hash = XxHash3_128::oneshot_with_seed(POOL_NUMBER_SEED, &self.secret.0);
        u64::try_from(hash & u128::from(u64::MAX)).expect("64 bits were kept")
    }

    /// Reads the newest intact copy. Returns `None` in a fresh region.
    pub(crate) fn load(region: &Region, layout: &Layout) -> Result<Option<Self>, OpenError> {
        let front = region.peek(0, FRONT_WORD_COUNT).map_err(|source| OpenError {
            kind: OpenErrorKind::Unreadable,
            source: Some(source),
        })?;
        let copies = [0, 1].map(|copy| copy_in(&front, copy));
        let newest = copies
            .iter()
            .filter(|words| words[0] == MAGIC && is_whole(words))
            .max_by_key(|words| words[4]);
        let Some(words) = newest else {
            let is_ours = copies.iter().any(|words| words[0] == MAGIC);
            let is_begun = is_ours && never_completed(&copies);
            let is_zero = copies.iter().flatten().all(|&word| word == 0);
            if (is_begun || is_zero) && rest_is_zero(&front) {
                return Ok(None);
            }
            let kind = if is_ours { OpenErrorKind::Damaged } else { OpenErrorKind::Foreign };
            return Err(OpenError::new(kind));
        };
        let version = words[VERSION];
        let kind = if version > LAYOUT_VERSION || marks_in(words) & !MARKS_KNOWN != 0 {
            OpenErrorKind::Newer
        } else if words[3] != region.capacity_bytes() {
            OpenErrorKind::SizeDiffers
        } else if version < LAYOUT_VERSION_MIN || words[2] != layout.fingerprint(version) {
            OpenErrorKind::OtherLayout
        } else {
            return Ok(Some(Self::from_words(words)));
        };
        Err(OpenError::new(kind))
    }

    /// Writes a change over the older copy.
    pub(crate) fn save(&mut self, region: &Region, layout: &Layout) {
        self.sequence += 1;
        let words = self.to_words(region, layout);
        let offset = copy_offset(usize::from(self.sequence % 2 == 1));
        for (index, &word) in words.iter().enumerate() {
            region.word_to_store(offset + 8 * index as u64).store(word, Ordering::Release);
        }
    }

    fn from_words(words: &Words) -> Self {
        let mut secret = [0; 32];
        for (bytes, word) in secret.as_chunks_mut::<8>().0.iter_mut().zip(&words[7..11]) {
            *bytes = word.to_le_bytes();
        }
        Self {
            sequence: words[4],
            run_epoch: words[5],
            closed_cleanly: words[6] == 1,
            secret: Secret(secret),
            // A pool of version 1 uses its whole file.
            size_bytes: if words[VERSION] == 1 { words[3] } else { words[SIZE] },
            untaken_slabs: match words[VERSION] {
                1 => 0,
                _ => u32::try_from(words[UNTAKEN]).unwrap_or(u32::MAX),
            },
            may_have_tables: may_have_tables(words),
            may_have_dense: marks_in(words) & MARK_DENSE != 0,
            table_slabs: match may_have_tables(words) {
                true => u32::try_from(table_slabs_in(words)).unwrap_or(u32::MAX),
                false => 0,
            },
        }
    }

    fn to_words(self, region: &Region, layout: &Layout) -> Words {
        let mut words = [0; WORD_COUNT];
        words[0] = MAGIC;
        words[VERSION] = match (self.may_have_dense, self.may_have_tables) {
            (true, _) => VERSION_WITH_MARKS,
            (false, true) => LAYOUT_VERSION_TABLES,
            (false, false) => LAYOUT_VERSION_PLAIN,
        };
        words[2] = layout.fingerprint(words[VERSION]);
        words[3] = region.capacity_bytes();
        words[4] = self.sequence;
        words[5] = self.run_epoch;
        words[6] = u64::from(self.closed_cleanly);
        for (word, bytes) in words[7..11].iter_mut().zip(self.secret.0.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words[OLD_CHECKSUM] = checksum(&words[..OLD_CHECKSUM]);
        words[SIZE] = self.size_bytes;
        words[UNTAKEN] = u64::from(self.untaken_slabs);
        words[TABLE_SLABS] = u64::from(self.table_slabs) | self.marks() << MARKS_SHIFT;
        words[CHECKSUM] = checksum(&words[..CHECKSUM]);
        words
    }

    /// Flags of a version that has them. Other versions have none, because the version implies
    /// them.
    fn marks(&self) -> u64 {
        let tables = if self.may_have_tables { MARK_TABLES } else { 0 };
        if self.may_have_dense { MARK_DENSE | tables } else { 0 }
    }
}

fn marks_in(words: &Words) -> u64 {
    if words[VERSION] < VERSION_WITH_MARKS { 0 } else { words[TABLE_SLABS] >> MARKS_SHIFT }
}

fn table_slabs_in(words: &Words) -> u64 {
    words[TABLE_SLABS] & u64::from(u32::MAX)
}

fn may_have_tables(words: &Words) -> bool {
    match words[VERSION] {
        ..=LAYOUT_VERSION_PLAIN => false,
        LAYOUT_VERSION_TABLES => true,
        _ => marks_in(words) & MARK_TABLES != 0,
    }
}

/// Returns whether the copies are in the state after a kill during the very first write: one begun,
/// without a checksum, the other untouched.
fn never_completed(copies: &[Words; 2]) -> bool {
    let untouched = |copy: &Words| copy.iter().all(|&word| word == 0);
    untouched(&copies[0]) && copies[1][CHECKSUM] == 0 && copies[1][4] <= 1
}

/// Returns whether a copy was written completely, by any version.
fn is_whole(words: &Words) -> bool {
    // For later versions only the old checksum is known.
    let is_known = (LAYOUT_VERSION_PLAIN..=LAYOUT_VERSION).contains(&words[VERSION]);
    let end = if is_known { CHECKSUM } else { OLD_CHECKSUM };
    words[end] == checksum(&words[..end])
}

/// Returns whether nothing but the copies is written before the slab table. Partition tables and
/// file systems begin after some zeros.
fn rest_is_zero(front: &[u64]) -> bool {
    let is_in_copy = |index: usize| index < 2 * COPY_WORDS && index % COPY_WORDS < WORD_COUNT;
    front.iter().enumerate().all(|(index, &word)| word == 0 || is_in_copy(index))
}

fn copy_offset(copy: usize) -> u64 {
    copy as u64 * SUPERBLOCK_BYTES
}

fn copy_in(front: &[u64], copy: usize) -> Words {
    std::array::from_fn(|index| front[copy * COPY_WORDS + index])
}

fn checksum(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sum = XxHash3_128::oneshot(&bytes);
    u64::try_from(sum & u128::from(u64::MAX)).expect("64 bits were kept")
}
