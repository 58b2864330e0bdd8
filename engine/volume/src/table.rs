//! The volume table: one record of 32 words for each volume, in the pool's root words.
//!
//! ```text
//! word 0      state: 0 free, 1 live, 2 being deleted; bit 8: blocks behind the end are being
//!             dropped; bit 9: which of the two names counts
//! word 1      id
//! word 2      size in bytes
//! word 3      shape, a byte each: sector (0 for 512, 1 for 4096), reduction, durability, capacity
//! word 4      root of the map
//! words 5-7   written blocks, fill blocks, blocks to be compressed: true after a clean end only
//! words 8-15, 16-23   names, padded with zeros
//! words 26, 27        the image that has what is not marked as unsaved, and the volume's id there
//! word 28     1: the journal and the image it starts from have all that is not marked
//! ```
//!
//! Record 0 is no volume: its word 0 is the next id, words 2 and 3 the id of the durable set, word
//! 4 the image that absent entries are in, word 5 whether the pool is being restored. Each change
//! commits by one store of word 0 or of the word changed.

use block_device::SectorSize;
use page_store::{PageStore, ROOT_WORD_COUNT};

use crate::counts::Counts;
use crate::spec::{CapacityClass, Durability, NAME_BYTES_MAX, Reduction, VolumeName, is_size};

const RECORD_WORDS: usize = 32;
pub(crate) const RECORD_COUNT: usize = ROOT_WORD_COUNT / RECORD_WORDS;

const STATE: usize = 0;
const ID: usize = 1;
const SIZE: usize = 2;
const SHAPE: usize = 3;
const ROOT: usize = 4;
const WRITTEN: usize = 5;
const FILLED: usize = 6;
const UNTRIED: usize = 7;
const NAMES: [usize; 2] = [8, 16];
const NAME_WORDS: usize = 8;
const BASE_IMAGE: usize = 26;
const BASE_ID: usize = 27;
const ANCHORED: usize = 28;

/// Words of record 0.
const SET_ID: [usize; 2] = [2, 3];
const ABSENT_IMAGE: usize = 4;
const RESTORING: usize = 5;

const FREE: u64 = 0;
const LIVE: u64 = 1;
const DELETING: u64 = 2;
const STATE_MASK: u64 = 0xFF;
const TRIMMING: u64 = 1 << 8;
const SECOND_NAME: u64 = 1 << 9;
/// The map is being filled from an image: after a kill the volume goes.
const FILLING: u64 = 1 << 10;

const _: () = assert!(NAME_BYTES_MAX < NAME_WORDS * 8);

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record(usize);

/// What a live record says.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: VolumeName,
    pub(crate) id: u64,
    pub(crate) size_bytes: u64,
    pub(crate) shape: Shape,
    pub(crate) written_blocks: u64,
    pub(crate) fill_blocks: u64,
    pub(crate) untried_blocks: u64,
    /// Blocks behind the end may still be mapped.
    pub(crate) is_trimming: bool,
    pub(crate) base: Option<ImageBase>,
    pub(crate) is_anchored: bool,
}

/// What kind of volume a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) sector: SectorSize,
    pub(crate) reduction: Reduction,
    pub(crate) durability: Durability,
    pub(crate) capacity: CapacityClass,
}

impl Shape {
    fn from_word(word: u64) -> Option<Self> {
        let byte = |index: u32| usize::try_from((word >> (8 * index)) & 0xFF).expect("a byte");
        let sector = match byte(0) {
            0 => SectorSize::Bytes512,
            _ => SectorSize::Bytes4096,
        };
        Some(Self {
            sector,
            reduction: *Reduction::ALL.get(byte(1))?,
            durability: *Durability::ALL.get(byte(2))?,
            capacity: *CapacityClass::ALL.get(byte(3))?,
        })
    }

    fn to_word(self) -> u64 {
        let sector = u64::from(self.sector == SectorSize::Bytes4096);
        let reduction = position(&Reduction::ALL, self.reduction);
        let durability = position(&Durability::ALL, self.durability);
        let capacity = position(&CapacityClass::ALL, self.capacity);
        sector | (reduction << 8) | (durability << 16) | (capacity << 24)
    }
}

fn position<T: PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().position(|known| *known == one).expect("all are listed") as u64
}

/// Where the contents of blocks are that are not marked as unsaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageBase {
    /// Number of the image.
    pub image: u64,
    /// Id that the volume has in it.
    pub volume_id: u64,
}

/// Identifies what belongs together: a pool, its journal and its images.
pub type SetId = [u8; 16];

/// The durable set that the pool belongs to; `None` before there is one.
pub(crate) fn set_id(store: &PageStore) -> Option<SetId> {
    let words = SET_ID.map(|word| store.root_word(word).to_le_bytes());
    let mut id = [0; 16];
    id.as_chunks_mut::<8>().0.copy_from_slice(&words);
    (id != [0; 16]).then_some(id)
}

pub(crate) fn set_set_id(store: &PageStore, id: SetId) {
    for (&word, bytes) in SET_ID.iter().zip(id.as_chunks::<8>().0) {
        store.set_root_word(word, u64::from_le_bytes(*bytes));
    }
}

/// The image that absent entries are in.
pub(crate) fn absent_image(store: &PageStore) -> Option<u64> {
    Some(store.root_word(ABSENT_IMAGE)).filter(|&image| image != 0)
}

/// Whether the pool is being filled with what stable storage has.
pub(crate) fn is_restoring(store: &PageStore) -> bool {
    store.root_word(RESTORING) == 1
}

pub(crate) fn set_restoring(store: &PageStore, is_restoring: bool) {
    store.set_root_word(RESTORING, u64::from(is_restoring));
}

pub(crate) fn set_absent_image(store: &PageStore, image: Option<u64>) {
    store.set_root_word(ABSENT_IMAGE, image.unwrap_or(0));
}

/// Ids are never given twice: the next one is stored before this one is used. A wish is for an id
/// that the volume had before its pool was lost.
pub(crate) fn take_id(store: &PageStore, wish: Option<u64>) -> u64 {
    let next = store.root_word(0).max(1);
    let id = wish.unwrap_or(next);
    store.set_root_word(0, next.max(id + 1));
    id
}

pub(crate) fn all() -> impl Iterator<Item = Record> {
    (1..RECORD_COUNT).map(Record)
}

impl Record {
    /// The word that names the root of the volume's map.
    pub(crate) fn root_word(self) -> usize {
        self.word(ROOT)
    }

    pub(crate) fn is_free(self, store: &PageStore) -> bool {
        self.get(store, STATE) & STATE_MASK == FREE
    }

    pub(crate) fn is_live(self, store: &PageStore) -> bool {
        self.get(store, STATE) & STATE_MASK == LIVE
    }

    pub(crate) fn is_being_deleted(self, store: &PageStore) -> bool {
        self.get(store, STATE) & STATE_MASK == DELETING
    }

    /// The volume in a live record; `None` for other records and for damaged ones.
    pub(crate) fn load(self, store: &PageStore) -> Option<Stored> {
        let state = self.get(store, STATE);
        if state & STATE_MASK != LIVE {
            return None;
        }
        let size_bytes = self.get(store, SIZE);
        let id = self.get(store, ID);
        if !is_size(size_bytes) || id == 0 {
            return None;
        }
        Some(Stored {
            name: self.load_name(store, state)?,
            id,
            size_bytes,
            shape: Shape::from_word(self.get(store, SHAPE))?,
            written_blocks: self.get(store, WRITTEN),
            fill_blocks: self.get(store, FILLED),
            untried_blocks: self.get(store, UNTRIED),
            is_trimming: state & TRIMMING != 0,
            base: self.base(store),
            is_anchored: self.get(store, ANCHORED) == 1,
        })
    }

    /// Fills a free record; the volume is there when this returns, or a kill deletes it as long as
    /// it is `filling`.
    pub(crate) fn create(self, store: &PageStore, volume: &Stored, is_filling: bool) {
        self.store_name(store, NAMES[0], &volume.name);
        self.set(store, ID, volume.id);
        self.set(store, SIZE, volume.size_bytes);
        self.set(store, ROOT, 0);
        self.set_shape(store, volume.shape);
        self.set_base(store, volume.base);
        self.set_anchored(store, volume.is_anchored);
        self.set(store, STATE, LIVE | if is_filling { FILLING } else { 0 });
    }

    /// Whether a kill came while the map was being filled.
    pub(crate) fn is_filling(self, store: &PageStore) -> bool {
        self.is_live(store) && self.get(store, STATE) & FILLING != 0
    }

    pub(crate) fn end_filling(self, store: &PageStore) {
        self.set(store, STATE, self.get(store, STATE) & !FILLING);
    }

    pub(crate) fn set_shape(self, store: &PageStore, shape: Shape) {
        self.set(store, SHAPE, shape.to_word());
    }

    pub(crate) fn base(self, store: &PageStore) -> Option<ImageBase> {
        let image = self.get(store, BASE_IMAGE);
        let volume_id = self.get(store, BASE_ID);
        (image != 0).then_some(ImageBase { image, volume_id })
    }

    /// Sets the base. A kill in between leaves none.
    pub(crate) fn set_base(self, store: &PageStore, base: Option<ImageBase>) {
        self.set(store, BASE_IMAGE, 0);
        if let Some(base) = base {
            self.set(store, BASE_ID, base.volume_id);
            self.set(store, BASE_IMAGE, base.image);
        }
    }

    pub(crate) fn set_anchored(self, store: &PageStore, is_anchored: bool) {
        self.set(store, ANCHORED, u64::from(is_anchored));
    }

    pub(crate) fn set_size(self, store: &PageStore, size_bytes: u64) {
        self.set(store, SIZE, size_bytes);
    }

    pub(crate) fn set_counts(self, store: &PageStore, counts: &Counts) {
        self.set(store, WRITTEN, counts.written.sum());
        self.set(store, FILLED, counts.filled.sum());
        self.set(store, UNTRIED, counts.untried.sum());
    }

    /// Writes the name that does not count, then makes it count.
    pub(crate) fn rename(self, store: &PageStore, name: &VolumeName) {
        let state = self.get(store, STATE) ^ SECOND_NAME;
        self.store_name(store, name_words(state), name);
        self.set(store, STATE, state);
    }

    pub(crate) fn is_trimming(self, store: &PageStore) -> bool {
        self.get(store, STATE) & TRIMMING != 0
    }

    pub(crate) fn begin_trimming(self, store: &PageStore) {
        self.set(store, STATE, self.get(store, STATE) | TRIMMING);
    }

    pub(crate) fn end_trimming(self, store: &PageStore) {
        self.set(store, STATE, self.get(store, STATE) & !TRIMMING);
    }

    pub(crate) fn begin_deleting(self, store: &PageStore) {
        self.set(store, STATE, DELETING);
    }

    /// The map is gone, or its pages count as leaked.
    pub(crate) fn end_deleting(self, store: &PageStore) {
        self.set(store, ROOT, 0);
        self.set(store, STATE, FREE);
    }

    fn load_name(self, store: &PageStore, state: u64) -> Option<VolumeName> {
        let first = name_words(state);
        let bytes: Vec<u8> = (first..first + NAME_WORDS)
            .flat_map(|word| self.get(store, word).to_le_bytes())
            .take_while(|&byte| byte != 0)
            .collect();
        String::from_utf8(bytes).ok()?.parse().ok()
    }

    fn store_name(self, store: &PageStore, first: usize, name: &VolumeName) {
        let mut bytes = [0; NAME_WORDS * 8];
        bytes[..name.as_str().len()].copy_from_slice(name.as_str().as_bytes());
        for (word, bytes) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.set(store, first + word, u64::from_le_bytes(*bytes));
        }
    }

    fn word(self, word: usize) -> usize {
        self.0 * RECORD_WORDS + word
    }

    fn get(self, store: &PageStore, word: usize) -> u64 {
        store.root_word(self.word(word))
    }

    fn set(self, store: &PageStore, word: usize, value: u64) {
        store.set_root_word(self.word(word), value);
    }
}

fn name_words(state: u64) -> usize {
    NAMES[usize::from(state & SECOND_NAME != 0)]
}
