//! The volume table: one record of 32 words for each volume, in the pool's root words: 1,023
//! records in every pool, and 512 more in each table slab.
//!
//! ```text
//! word 0      state: 0 free, 1 live, 2 being deleted; bit 8: blocks past the end are being
//!             dropped; bit 9: which of the two names is valid
//! word 1      id
//! word 2      size in bytes
//! word 3      shape, a byte each: sector (0 for 512, 1 for 4096), reduction, durability, capacity,
//!             kind (0 volume, 1 snapshot, 2 a frozen copy of an earlier release, which the next
//!             opening deletes), mirrored flushes (0 yes, 1 no but the image store may not know it
//!             yet, 2 no)
//! word 4      root of the map
//! words 5-7   written blocks, fill blocks, blocks to be compressed: valid only after a clean end,
//!             but always for snapshots
//! words 8-15, 16-23   names, padded with zeros
//! words 24, 25        id of the volume that this is a copy of, and when it was made (Unix seconds)
//! words 26, 27        base image of all blocks that are not dirty towards images, and the volume's
//!             id there
//! word 28     1: the journal and the image it starts from contain all blocks that are not dirty
//! word 29     group of copies of which this is one: valid once the group is committed
//! word 30     root of a frozen copy, which is unrelated to the volume of the record and is
//!             removed by the next opening
//! word 31     record whose map, size and image this volume is to take over, if not 0
//! ```
//!
//! Record 0 describes no volume: its word 0 is the next id, word 1 the last committed group, words
//! 2 and 3 the id of the durable set, word 4 the image of absent entries, word 5 whether the pool
//! is being restored. Each change commits by one store of word 0 or of the changed word.

use std::ops::Range;

use block_device::SectorSize;
use page_store::{
    AddTableError, NodeRef, PageStore, Parent, ROOT_WORD_COUNT, TABLE_SLAB_WORDS, TABLE_SLABS_MAX,
};

use crate::error::PLACE_COUNT;
use crate::map::counts::Counts;
use crate::spec::{
    CapacityClass, Durability, NAME_BYTES_MAX, Reduction, VolumeMirror, VolumeName, is_size,
    place_of,
};
use crate::visits;

const RECORD_WORDS: usize = 32;

/// Number of records in a table slab.
const TABLE_SLAB_RECORDS: usize = TABLE_SLAB_WORDS / RECORD_WORDS;

const RECORD_COUNT: usize = ROOT_WORD_COUNT / RECORD_WORDS + TABLE_SLABS_MAX * TABLE_SLAB_RECORDS;
const _: () = assert!(RECORD_COUNT == PLACE_COUNT + 1, "record 0 is no volume");

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
const ORIGIN: usize = 24;
const CREATED: usize = 25;
const GROUP: usize = 29;
const FROZEN_ROOT: usize = 30;
const REVERTING: usize = 31;

/// Words of record 0.
const COMMITTED_GROUP: usize = 1;
const SET_ID: [usize; 2] = [2, 3];
const ABSENT_IMAGE: usize = 4;
const RESTORING: usize = 5;

const FREE: u64 = 0;
const LIVE: u64 = 1;
const DELETING: u64 = 2;
const STATE_MASK: u64 = 0xFF;
const TRIMMING: u64 = 1 << 8;
const SECOND_NAME: u64 = 1 << 9;
/// The map is being filled from an image: a kill deletes the volume.
const FILLING: u64 = 1 << 10;

const _: () = assert!(NAME_BYTES_MAX < NAME_WORDS * 8);

/// Index of a record in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record(usize);

/// Location of the root of a frozen copy: a word of a record whose volume is unrelated, or which is
/// free. Therefore as many copies can be frozen as there can be volumes, even when the table is
/// full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrozenPlace(usize);

impl FrozenPlace {
    pub(crate) fn all(store: &PageStore) -> impl Iterator<Item = Self> {
        all(store).map(|Record(number)| Self(number))
    }

    /// Index of the root word of the copy's map.
    pub(crate) fn root_word(self) -> usize {
        Record(self.0).word(FROZEN_ROOT)
    }
}

/// Removes the frozen copies of a run that was killed. Pages and nodes of only these copies count
/// as leaked.
pub(crate) fn forget_frozen(store: &PageStore) {
    for place in FrozenPlace::all(store).filter(|place| store.root_word(place.root_word()) != 0) {
        store.set_root(place.root_word(), None);
    }
}

/// Fields of a live record.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: VolumeName,
    pub(crate) id: u64,
    pub(crate) size_bytes: u64,
    pub(crate) shape: Shape,
    pub(crate) written_blocks: u64,
    pub(crate) fill_blocks: u64,
    pub(crate) untried_blocks: u64,
    pub(crate) base: Option<ImageBase>,
    pub(crate) is_anchored: bool,
    pub(crate) origin: Option<Origin>,
}

/// Origin of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) volume_id: u64,
    pub(crate) created_unix_seconds: u64,
}

/// Time at which a new record becomes valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// Immediately.
    Now,
    /// After the map has been filled from an image.
    WhenFilled,
    /// When this group of copies is committed.
    WithGroup(u64),
}

/// Purpose of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Volume,
    Snapshot,
    /// Frozen copy for a reader, which ends with the process that created it.
    Frozen,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Volume, Self::Snapshot, Self::Frozen];
}

/// Participation of a volume in mirrored flushes, and what the image store knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MirrorState {
    Mirrored,
    /// Not to be mirrored, but the image store may have an earlier setting, or lack the volume. Its
    /// flushes are mirrored until then.
    Leaving,
    /// Not mirrored.
    Excluded,
}

impl MirrorState {
    pub(crate) const ALL: [Self; 3] = [Self::Mirrored, Self::Leaving, Self::Excluded];

    /// State of a volume that the image store does not know with this setting.
    pub(crate) fn begin(mirror: VolumeMirror) -> Self {
        match mirror {
            VolumeMirror::Yes => Self::Mirrored,
            VolumeMirror::No => Self::Leaving,
        }
    }

    pub(crate) fn setting(self) -> VolumeMirror {
        match self {
            Self::Mirrored => VolumeMirror::Yes,
            Self::Leaving | Self::Excluded => VolumeMirror::No,
        }
    }
}

/// Properties of the volume that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) sector: SectorSize,
    pub(crate) reduction: Reduction,
    pub(crate) durability: Durability,
    pub(crate) capacity: CapacityClass,
    pub(crate) kind: Kind,
    pub(crate) mirror: MirrorState,
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
            kind: *Kind::ALL.get(byte(4))?,
            mirror: *MirrorState::ALL.get(byte(5))?,
        })
    }

    fn to_word(self) -> u64 {
        let sector = u8::from(self.sector == SectorSize::Bytes4096);
        let reduction = place_of(&Reduction::ALL, self.reduction);
        let durability = place_of(&Durability::ALL, self.durability);
        let capacity = place_of(&CapacityClass::ALL, self.capacity);
        let kind = place_of(&Kind::ALL, self.kind);
        let mirror = place_of(&MirrorState::ALL, self.mirror);
        u64::from_le_bytes([sector, reduction, durability, capacity, kind, mirror, 0, 0])
    }
}

/// Image that contains all blocks that are not dirty towards images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageBase {
    /// Number of the image.
    pub image: u64,
    /// Id of the volume in that image.
    pub volume_id: u64,
}

/// Id that a pool, its journal and its images share.
pub type SetId = [u8; 16];

/// Returns the id of the durable set that the pool belongs to, if there is one.
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

/// Returns the number of the image of absent entries.
pub(crate) fn absent_image(store: &PageStore) -> Option<u64> {
    Some(store.root_word(ABSENT_IMAGE)).filter(|&image| image != 0)
}

/// Returns whether the pool is being restored from stable storage.
pub(crate) fn is_restoring(store: &PageStore) -> bool {
    store.root_word(RESTORING) == 1
}

pub(crate) fn set_restoring(store: &PageStore, is_restoring: bool) {
    store.set_root_word(RESTORING, u64::from(is_restoring));
}

pub(crate) fn set_absent_image(store: &PageStore, image: Option<u64>) {
    store.set_root_word(ABSENT_IMAGE, image.unwrap_or(0));
}

/// The ids of volumes begin below this, so that programs that keep numbers in 53 bits can represent
/// them.
const FIRST_ID_MAX: u64 = 1 << 51;

/// Upper bound on the number of ids that one pool allocates. An id this far above one of a lost
/// pool was never allocated by that pool.
const IDS_OF_A_POOL: u64 = 1 << 32;

/// Ids above this are damaged, and are ignored by the allocation.
const ID_MAX: u64 = 1 << 62;

/// Allocates an id. Ids are never reused: the next id is stored before this one is used. Each pool
/// begins at another number, so that state that outlives a pool (a device, a client, a list on
/// disk) never finds its volume's id in the next pool. `wish` is the id that a volume had before
/// its pool was lost. Later ids are larger, as newer snapshots must have larger ids than older
/// ones.
pub(crate) fn take_id(store: &PageStore, wish: Option<u64>) -> u64 {
    match wish {
        Some(id) => {
            pass_id(store, id);
            id
        }
        None => {
            let next = next_id(store);
            store.set_root_word(0, next + 1);
            next
        }
    }
}

fn next_id(store: &PageStore) -> u64 {
    match store.root_word(0) {
        0 => (store.pool_number() % FIRST_ID_MAX).max(1),
        next => next,
    }
}

/// Raises the next id above an existing id and all others that its pool can have allocated.
pub(crate) fn pass_id(store: &PageStore, id: u64) {
    if (next_id(store)..ID_MAX).contains(&id) {
        store.set_root_word(0, id + IDS_OF_A_POOL);
    }
}

/// Returns the group of the next copies.
pub(crate) fn next_group(store: &PageStore) -> u64 {
    store.root_word(COMMITTED_GROUP) + 1
}

/// Commits a group: all its records become valid.
pub(crate) fn commit_group(store: &PageStore, group: u64) {
    store.set_root_word(COMMITTED_GROUP, group);
}

pub(crate) fn all(store: &PageStore) -> impl Iterator<Item = Record> {
    records_from(store, 0)
}

fn records_in(words: Range<usize>) -> impl Iterator<Item = Record> {
    (words.start / RECORD_WORDS..words.end / RECORD_WORDS).map(Record)
}

/// Adds the table slabs necessary for `wanted` free records, if there are `free` now.
pub(crate) fn make_room(
    store: &PageStore,
    free: usize,
    wanted: usize,
) -> Result<(), AddTableError> {
    let tables = wanted.saturating_sub(free).div_ceil(TABLE_SLAB_RECORDS);
    if store.root_ranges().len() - 1 + tables > TABLE_SLABS_MAX {
        return Err(AddTableError::TooMany);
    }
    (0..tables).try_for_each(|_| store.add_table().map(drop))
}

/// Records of the slabs of the table from this number of slabs on.
pub(crate) fn records_from(store: &PageStore, slab_count: usize) -> impl Iterator<Item = Record> {
    let ranges = store.root_ranges();
    ranges.into_iter().skip(slab_count).flat_map(records_in).filter(|record| record.0 != 0)
}

/// Number of parts of the table: the first records, and each slab.
pub(crate) fn slab_count(store: &PageStore) -> usize {
    store.root_ranges().len()
}

impl Record {
    /// Returns the record of a number from [`Record::number`].
    pub(crate) fn of_number(number: usize) -> Self {
        Self(number)
    }

    /// Number of the record in the table.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// Index of the root word of the volume's map.
    pub(crate) fn root_word(self) -> usize {
        self.word(ROOT)
    }

    /// Returns the root of the map.
    pub(crate) fn root(self, store: &PageStore) -> Option<NodeRef> {
        store.child(&store.pin(), Parent::Root(self.root_word()))
    }

    pub(crate) fn is_free(self, store: &PageStore) -> bool {
        self.get(store, STATE) & STATE_MASK == FREE
    }

    pub(crate) fn is_live(self, store: &PageStore) -> bool {
        self.get(store, STATE) & STATE_MASK == LIVE
    }

    /// Returns whether the record is a frozen copy of an earlier release.
    pub(crate) fn is_frozen(self, store: &PageStore) -> bool {
        let shape = Shape::from_word(self.get(store, SHAPE));
        self.is_live(store) && shape.is_some_and(|shape| shape.kind == Kind::Frozen)
    }

    pub(crate) fn is_being_deleted(self, store: &PageStore) -> bool {
        self.get(store, STATE) & STATE_MASK == DELETING
    }

    /// Reads a live record. Returns `None` for other records and for damaged ones.
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
            base: self.base(store),
            is_anchored: self.get(store, ANCHORED) == 1,
            origin: self.origin(store),
        })
    }

    /// Fills a free record. Until it becomes valid, a kill deletes it.
    pub(crate) fn create(self, store: &PageStore, volume: &Stored, commit: Commit) {
        self.store_name(store, NAMES[0], &volume.name);
        self.set(store, ID, volume.id);
        self.set(store, SIZE, volume.size_bytes);
        self.set(store, ROOT, 0);
        self.set_shape(store, volume.shape);
        self.set_base(store, volume.base);
        self.set_anchored(store, volume.is_anchored);
        self.set(store, ORIGIN, volume.origin.map_or(0, |origin| origin.volume_id));
        self.set(store, CREATED, volume.origin.map_or(0, |origin| origin.created_unix_seconds));
        self.set(store, GROUP, if let Commit::WithGroup(group) = commit { group } else { 0 });
        self.set(store, REVERTING, 0);
        self.set(store, STATE, LIVE | if commit == Commit::WhenFilled { FILLING } else { 0 });
    }

    /// Returns whether a kill interrupted the creation of a group of copies.
    pub(crate) fn is_uncommitted(self, store: &PageStore) -> bool {
        self.is_live(store) && self.get(store, GROUP) > store.root_word(COMMITTED_GROUP)
    }

    fn origin(self, store: &PageStore) -> Option<Origin> {
        let volume_id = self.get(store, ORIGIN);
        let created_unix_seconds = self.get(store, CREATED);
        (volume_id != 0).then_some(Origin { volume_id, created_unix_seconds })
    }

    /// Starts the replacement of the volume's map, size and base by those of another record, to
    /// whose root a reference was added for this volume. The caller frees the old map. A kill does
    /// not undo the replacement: [`Record::end_reverting`] completes it.
    pub(crate) fn begin_reverting(self, store: &PageStore, to: Self) {
        self.set(store, REVERTING, to.0 as u64);
    }

    /// Completes a replacement that was started.
    pub(crate) fn end_reverting(self, store: &PageStore) {
        let to = self.get(store, REVERTING);
        if !self.is_live(store) || to == 0 {
            return;
        }
        let Some(to) = all(store).find(|record| record.0 as u64 == to) else { return };
        self.set_anchored(store, false);
        self.set_base(store, to.base(store));
        self.set(store, ROOT, to.get(store, ROOT));
        self.set(store, SIZE, to.get(store, SIZE));
        self.set(store, REVERTING, 0);
    }

    /// Returns whether a kill interrupted the filling of the map.
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
        // Read again: the base may be changing, and counts as none then.
        let is_stable = image != 0 && self.get(store, BASE_IMAGE) == image;
        is_stable.then_some(ImageBase { image, volume_id })
    }

    /// Sets the base. A kill in between leaves the volume without a base.
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

    pub(crate) fn size_bytes(self, store: &PageStore) -> u64 {
        self.get(store, SIZE)
    }

    pub(crate) fn set_size(self, store: &PageStore, size_bytes: u64) {
        self.set(store, SIZE, size_bytes);
    }

    pub(crate) fn set_counts(self, store: &PageStore, counts: &Counts) {
        self.set(store, WRITTEN, counts.written.sum());
        self.set(store, FILLED, counts.filled.sum());
        self.set(store, UNTRIED, counts.untried.sum());
    }

    /// Writes the name that is not valid, then makes it the valid one.
    pub(crate) fn rename(self, store: &PageStore, name: &VolumeName) {
        let state = self.get(store, STATE) ^ SECOND_NAME;
        self.store_name(store, name_words(state), name);
        self.set(store, STATE, state);
    }

    /// Returns whether blocks past the end may still be mapped.
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

    /// Frees the record. The map is freed already, or its pages count as leaked.
    pub(crate) fn end_deleting(self, store: &PageStore) {
        self.set(store, ROOT, 0);
        self.set(store, STATE, FREE);
    }

    /// Returns the valid name, without the volume's name for a snapshot. `None` if it is damaged.
    pub(crate) fn name(self, store: &PageStore) -> Option<VolumeName> {
        self.load_name(store, self.get(store, STATE))
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
        visits::note(1);
        store.root_word(self.word(word))
    }

    fn set(self, store: &PageStore, word: usize, value: u64) {
        store.set_root_word(self.word(word), value);
    }
}

fn name_words(state: u64) -> usize {
    NAMES[usize::from(state & SECOND_NAME != 0)]
}
