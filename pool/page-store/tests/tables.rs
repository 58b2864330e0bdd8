//! Table slabs: root words in slabs, their validity, and their damage.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use page_store::{
    AddTableError, PageStore, ROOT_WORD_COUNT, ResizeErrorKind, StoreOptions, TABLE_SLABS_MAX,
};
use region::{Region, RegionSpec};

const MIB: u64 = 1 << 20;
const SLAB_BYTES: u64 = 128 << 10;

/// Version in the two superblocks.
const VERSIONS: [u64; 2] = [8, 4096 + 8];

/// Offset of the slab table.
const SLAB_TABLE: u64 = 264 << 10;

struct PoolFile {
    folder: tempfile::TempDir,
    size_bytes: u64,
}

impl PoolFile {
    fn new(size_bytes: u64) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        Self { folder, size_bytes }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("region")
    }

    fn open(&self) -> PageStore {
        let spec = RegionSpec { path: self.path(), size_bytes: self.size_bytes };
        let region = Region::open(&spec).expect("the region opens");
        let options = StoreOptions { lane_count: 1, fresh_secret: [7; 32] };
        PageStore::open(region, options).expect("the pool opens").0
    }

    fn word(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        let file = std::fs::File::open(self.path()).expect("the file opens");
        file.read_exact_at(&mut bytes, offset).expect("it is there");
        u64::from_le_bytes(bytes)
    }

    fn put(&self, offset: u64, word: u64) {
        let file = OpenOptions::new().write(true).open(self.path()).expect("the file opens");
        file.write_all_at(&word.to_le_bytes(), offset).expect("tmpfs has room");
    }

    fn newest_version(&self) -> u64 {
        VERSIONS.map(|offset| self.word(offset)).into_iter().max().expect("there are two")
    }

    /// Returns the offsets of the table slab's word in the slab table and of its second name.
    fn names(&self) -> [u64; 2] {
        let find = |wanted: u64, from: u64| {
            let mut offsets = (from..self.size_bytes).step_by(8);
            offsets.find(|&at| self.word(at) == wanted).expect("it has the name")
        };
        let first = find(0xC3, SLAB_TABLE);
        [first, find(0x4D45_4D53_4CC3_0000, first)]
    }
}

#[test]
fn a_pool_without_table_slabs_stays_one_of_version_2() {
    let file = PoolFile::new(4 * MIB);
    drop(file.open());
    drop(file.open());
    assert_eq!(file.newest_version(), 2);
    let store = file.open();
    store.add_table().expect("there is memory");
    drop(store);
    assert_eq!(file.newest_version(), 3);
    drop(file.open());
    drop(file.open());
    assert_eq!(VERSIONS.map(|at| file.word(at)), [3, 3]);
}

#[test]
fn words_in_slabs_are_zeros_first_and_stay() {
    let file = PoolFile::new(4 * MIB);
    let store = file.open();
    let before = store.usage();
    let added = [store.add_table(), store.add_table()].map(|words| words.expect("there is memory"));
    assert_eq!(added[0].start, ROOT_WORD_COUNT, "the first free slab is taken");
    assert_eq!(added[1].start, added[0].end);
    for words in &added {
        assert!(words.clone().all(|word| store.root_word(word) == 0));
        store.set_root_word(words.start, 5);
        store.set_root_word(words.end - 1, 6);
    }
    let usage = store.usage();
    assert_eq!(usage.table_bytes, before.table_bytes + 2 * SLAB_BYTES);
    assert_eq!(usage.free_bytes, before.free_bytes - 2 * SLAB_BYTES);
    assert_eq!(usage.slack_bytes, before.slack_bytes);
    // A kill, then a clean end.
    drop(store);
    let store = file.open();
    store.close();
    drop(store);
    let store = file.open();
    assert_eq!(store.root_ranges()[1..], added);
    assert_eq!(store.missing_tables(), 0);
    assert_eq!(store.usage(), usage);
    for words in &added {
        assert_eq!((store.root_word(words.start), store.root_word(words.end - 1)), (5, 6));
    }
}

#[test]
fn a_table_slab_is_known_by_either_of_its_names() {
    let file = PoolFile::new(4 * MIB);
    let store = file.open();
    let words = store.add_table().expect("there is memory");
    store.set_root_word(words.start + 7, 9);
    drop(store);
    for name in file.names() {
        let whole = file.word(name);
        for bit in 0..64 {
            file.put(name, whole ^ 1 << bit);
            let store = file.open();
            assert_eq!((store.missing_tables(), store.root_word(words.start + 7)), (0, 9), "{bit}");
            drop(store);
            assert_eq!(file.word(name), whole, "it is mended: bit {bit}");
        }
        file.put(name, 0);
        assert_eq!(file.open().root_word(words.start + 7), 9);
    }
}

#[test]
fn a_table_slab_without_a_name_is_missed() {
    let file = PoolFile::new(4 * MIB);
    file.open().add_table().expect("there is memory");
    for name in file.names() {
        file.put(name, 0);
    }
    for _ in 0..2 {
        let store = file.open();
        assert_eq!((store.missing_tables(), store.root_ranges().len()), (1, 1));
    }
}

#[test]
fn a_pool_has_so_many_table_slabs_and_shrinks_as_far_as_the_last() {
    let file = PoolFile::new(16 * MIB);
    let store = file.open();
    let count = (0..40).map(|_| store.add_table()).take_while(Result::is_ok).count();
    assert_eq!(count, TABLE_SLABS_MAX);
    assert_eq!(store.add_table(), Err(AddTableError::TooMany));
    let refused = store.begin_shrinking(4 * MIB).expect_err("they need more");
    assert!(matches!(refused.kind, ResizeErrorKind::InUse { .. }), "{refused}");
    let leaving = store.begin_shrinking(8 * MIB).expect("they lie before that");
    store.end_shrinking(leaving).expect("nothing lies there");
    assert_eq!(store.root_ranges().len(), 1 + TABLE_SLABS_MAX);
}

#[test]
fn without_memory_no_table_slab_is_added() {
    let file = PoolFile::new(4 * MIB);
    let store = file.open();
    let refused = (0..TABLE_SLABS_MAX).find_map(|_| store.add_table().err());
    assert!(matches!(refused, Some(AddTableError::NoSpace(_))), "{refused:?}");
    assert!(store.usage().free_bytes > 0, "what is reserved for others is left");
    let before = store.root_ranges();
    drop(store);
    assert_eq!(file.open().root_ranges(), before);
}
