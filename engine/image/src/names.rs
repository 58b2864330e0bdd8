//! Names of images, packs, chunks and pages.

use std::fmt;
use std::str::FromStr;

/// Maximum number of pages per chunk: those of one leaf.
pub const CHUNK_PAGES_MAX: usize = 512;

const PAGE_BITS: u32 = CHUNK_PAGES_MAX.trailing_zeros();

/// Page numbers must fit into a map entry.
const PAGE_NUMBER_BITS: u32 = 48;

/// Id of an image: the store's salt and an increasing number.
///
/// Ids are globally unique. A region that remembers the id of the image in which it was last saved
/// never confuses another image with it, even in another store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageId(u64);

impl ImageId {
    pub(crate) fn new(salt: u32, number: u32) -> Self {
        Self((u64::from(salt) << 32) | u64::from(number))
    }

    /// Converts a word that [`ImageId::word`] returned. Returns `None` for 0, which is no image.
    pub fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    /// Returns the id as a nonzero word.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns the image's number for users. Higher is newer.
    pub fn number(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).expect("32 bits were kept")
    }

    pub(crate) fn salt(self) -> u32 {
        u32::try_from(self.0 >> 32).expect("32 bits are left")
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "image {}", self.number())
    }
}

/// Name of a pack: its writer and a serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackName {
    /// Random, for each claim of a store.
    pub writer: u128,
    pub index: u32,
}

impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:08x}", self.writer, self.index)
    }
}

/// Name of a journal extract: its writer and its origin in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtractName {
    /// Writer under whose claim it was stored, as in [`PackName`].
    pub writer: u128,
    /// Number of the segment.
    pub segment: u32,
    /// Byte offset in the segment.
    pub offset: u32,
}

impl fmt::Display for ExtractName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:010}-{:010}", self.writer, self.segment, self.offset)
    }
}

impl FromStr for ExtractName {
    type Err = NoPackName;

    fn from_str(name: &str) -> Result<Self, NoPackName> {
        let parse = || {
            let mut words = name.split('-');
            let writer = u128::from_str_radix(words.next()?, 16).ok()?;
            let (segment, offset) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Self { writer, segment, offset })
        };
        parse().filter(|parsed| parsed.to_string() == name).ok_or(NoPackName)
    }
}

/// A location in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackPlace {
    pub(crate) pack: PackName,
    pub(crate) offset_bytes: u32,
}

/// Error for text that is not a pack's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPackName;

impl FromStr for PackName {
    type Err = NoPackName;

    fn from_str(text: &str) -> Result<Self, NoPackName> {
        let (writer, index) = text.split_once('-').ok_or(NoPackName)?;
        let writer = u128::from_str_radix(writer, 16).map_err(|_| NoPackName)?;
        let index = u32::from_str_radix(index, 16).map_err(|_| NoPackName)?;
        let name = Self { writer, index };
        if name.to_string() == text { Ok(name) } else { Err(NoPackName) }
    }
}

/// Number of a chunk in its store. Numbers are never reused in a store, so all images that refer to
/// it mean the same chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkNumber(pub(crate) u64);

impl ChunkNumber {
    pub(crate) const END: u64 = 1 << (PAGE_NUMBER_BITS - PAGE_BITS);

    /// Returns the number of the page at `index` in the chunk.
    pub(crate) fn page(self, index: u16) -> PageNumber {
        debug_assert!(usize::from(index) < CHUNK_PAGES_MAX, "a chunk has no such page");
        PageNumber((self.0 << PAGE_BITS) | u64::from(index))
    }

    /// Returns the number as stored in files.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ChunkNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}", self.0)
    }
}

/// A page in a store: chunk number and index, in 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNumber(u64);

impl PageNumber {
    /// Converts a 48-bit page number. Returns `None` if it is larger.
    pub fn new(number: u64) -> Option<Self> {
        (number >> PAGE_NUMBER_BITS == 0).then_some(Self(number))
    }

    pub fn get(self) -> u64 {
        self.0
    }

    pub fn chunk(self) -> ChunkNumber {
        ChunkNumber(self.0 >> PAGE_BITS)
    }

    /// Returns the page's index in its chunk.
    pub fn index(self) -> usize {
        usize::try_from(self.0 % CHUNK_PAGES_MAX as u64).expect("a small number")
    }

    /// Returns the page `count` indices further, if that is within a chunk.
    pub(crate) fn after(self, count: u16) -> Option<Self> {
        let next = self.0.checked_add(u64::from(count))?;
        (next >> PAGE_BITS == self.0 >> PAGE_BITS).then_some(Self(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_found_by_its_name() {
        let pack = PackName { writer: 0xABCD << 90, index: 17 };
        assert_eq!(pack.to_string().parse(), Ok(pack));
    }

    #[test]
    fn other_files_are_no_packs() {
        for text in ["", "-", "1-2", "lost+found", "00000000000000000000000000000000-0000000G"] {
            assert_eq!(text.parse::<PackName>(), Err(NoPackName), "{text}");
        }
    }

    #[test]
    fn a_page_number_says_chunk_and_place() {
        let page = ChunkNumber(77).page(511);
        assert_eq!((page.chunk(), page.index()), (ChunkNumber(77), 511));
        assert_eq!(PageNumber::new(page.get()), Some(page));
        assert_eq!(page.after(1), None);
        assert_eq!(PageNumber::new(1 << 48), None);
    }

    #[test]
    fn an_image_id_fits_a_word() {
        let id = ImageId::new(u32::MAX, 9);
        assert_eq!(ImageId::from_word(id.word()), Some(id));
        assert_eq!((id.number(), id.salt()), (9, u32::MAX));
        assert_eq!(ImageId::from_word(0), None);
    }
}
