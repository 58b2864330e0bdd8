//! Opening of regions that contain a pool, and of other files.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use page_store::{OpenError, OpenErrorKind, PageStore, ROOT_WORD_COUNT, StoreOptions};
use region::{Region, RegionSpec};
use twox_hash::XxHash3_128;

const MIB: u64 = 1 << 20;

/// Offsets of the two superblocks.
const COPIES: [u64; 2] = [0, 4096];

/// Number of words of a superblock, and indexes of the checksums of all words before them.
const WORD_COUNT: usize = 16;
const CHECKSUMS: [usize; 2] = [11, 15];
const VERSION: usize = 1;
const LAYOUT: usize = 2;
const SEQUENCE: usize = 4;

struct PoolFile {
    folder: tempfile::TempDir,
    size_bytes: u64,
}

impl PoolFile {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        Self { folder, size_bytes: 4 * MIB }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("region")
    }

    fn open(&self) -> Result<PageStore, OpenError> {
        let spec = RegionSpec { path: self.path(), size_bytes: self.size_bytes };
        let region = Region::open(&spec).expect("the region opens");
        let options = StoreOptions { lane_count: 1, fresh_secret: [7; 32] };
        PageStore::open(region, options).map(|(store, _excess)| store)
    }

    /// Creates a file with a pool that was opened twice, so that both superblocks are written.
    fn with_pool() -> Self {
        let file = Self::new();
        for epoch in 1..3 {
            assert_eq!(file.open().expect("the pool opens").run_epoch(), epoch);
        }
        file
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.path());
        let file = file.expect("the file opens");
        file.set_len(self.size_bytes).expect("tmpfs has room");
        file.write_all_at(bytes, offset).expect("tmpfs has room");
    }

    /// Changes a word of both superblocks, and updates their checksums.
    fn change_word(&self, word: usize, change: impl Fn(u64) -> u64) {
        for copy in COPIES {
            let mut bytes = [0; WORD_COUNT * 8];
            let file = std::fs::File::open(self.path()).expect("the file opens");
            file.read_exact_at(&mut bytes, copy).expect("the superblock is there");
            let (words, _) = bytes.as_chunks_mut::<8>();
            words[word] = change(u64::from_le_bytes(words[word])).to_le_bytes();
            for checksum in CHECKSUMS {
                let sum = XxHash3_128::oneshot(&bytes[..checksum * 8]).to_le_bytes();
                bytes[checksum * 8..][..8].copy_from_slice(&sum[..8]);
            }
            self.put(copy, &bytes);
        }
    }

    /// Returns a word of the superblock that was written last.
    fn newest_word(&self, word: usize) -> u64 {
        let file = std::fs::File::open(self.path()).expect("the file opens");
        let word_of = |copy: u64, word: usize| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, copy + 8 * word as u64).expect("it is there");
            u64::from_le_bytes(bytes)
        };
        let newest = COPIES.into_iter().max_by_key(|&copy| word_of(copy, SEQUENCE));
        word_of(newest.expect("there are two"), word)
    }

    /// Checks that the pool is rejected, and the file unchanged.
    #[track_caller]
    fn check_refused(&self, kind: OpenErrorKind) {
        let before = std::fs::read(self.path()).expect("the file is there");
        let Err(error) = self.open() else { panic!("it is no pool for us") };
        assert_eq!(error.kind, kind);
        assert!(error.to_string().starts_with("cannot open the pool: "), "{error}");
        let after = std::fs::read(self.path()).expect("the file is there");
        assert!(before == after, "what is refused is not changed");
    }
}

#[test]
fn a_file_that_begins_with_something_else_is_foreign() {
    let file = PoolFile::new();
    file.put(0, b"#!/bin/sh\necho not a pool\n");
    file.check_refused(OpenErrorKind::Foreign);
}

#[test]
fn a_file_that_holds_something_else_after_zeros_is_foreign() {
    // Offsets at which partition tables, ext4 and ISO 9660 begin.
    for offset in [510, 1080, 32769, 200_000] {
        let file = PoolFile::new();
        file.put(offset, b"CD001");
        file.check_refused(OpenErrorKind::Foreign);
    }
}

#[test]
fn a_file_of_zeros_becomes_a_pool() {
    let file = PoolFile::new();
    file.put(0, &[0]);
    assert_eq!(file.open().expect("the pool opens").run_epoch(), 1);
}

#[test]
fn a_pool_of_a_later_release_is_refused_as_newer() {
    let file = PoolFile::with_pool();
    file.change_word(VERSION, |_| 5);
    file.check_refused(OpenErrorKind::Newer);
    let Err(error) = file.open() else { panic!("it was refused before") };
    assert!(error.to_string().contains("a newer release wrote it"), "{error}");
}

#[test]
fn a_pool_with_another_layout_is_refused() {
    let file = PoolFile::with_pool();
    file.change_word(LAYOUT, |layout| layout ^ 1);
    file.check_refused(OpenErrorKind::OtherLayout);
}

#[test]
fn a_pool_of_an_earlier_release_is_refused() {
    let file = PoolFile::with_pool();
    file.change_word(VERSION, |_| 0);
    file.check_refused(OpenErrorKind::OtherLayout);
}

#[test]
fn a_pool_whose_file_was_extended_or_cut_is_refused() {
    for size_bytes in [4 * MIB, 8 * MIB] {
        let mut file = PoolFile::new();
        file.size_bytes = 6 * MIB;
        drop(file.open().expect("the pool opens"));
        file.size_bytes = size_bytes;
        file.put(size_bytes - 1, &[0]);
        file.check_refused(OpenErrorKind::SizeDiffers);
    }
}

#[test]
fn a_pool_without_a_whole_superblock_is_damaged() {
    let file = PoolFile::with_pool();
    for copy in COPIES {
        file.put(copy + 40, &[0xFF]);
    }
    file.check_refused(OpenErrorKind::Damaged);
}

#[test]
fn one_whole_superblock_is_enough() {
    for copy in COPIES {
        let file = PoolFile::with_pool();
        let store = file.open().expect("the pool opens");
        store.set_root_word(ROOT_WORD_COUNT - 1, 77);
        drop(store);
        file.put(copy + 40, &[0xFF]);
        let store = file.open().expect("the pool opens");
        assert_eq!(store.root_word(ROOT_WORD_COUNT - 1), 77);
    }
}

/// Newest version that releases before the dense form read. They reject all others.
const VERSION_BEFORE_DENSE: u64 = 3;

const TABLE_SLABS: usize = 14;

#[test]
fn earlier_releases_refuse_a_pool_while_it_may_have_dense_pages() {
    let file = PoolFile::with_pool();
    assert!(file.newest_word(VERSION) <= VERSION_BEFORE_DENSE);
    let store = file.open().expect("the pool opens");
    store.begin_dense();
    assert!(file.newest_word(VERSION) > VERSION_BEFORE_DENSE);
    store.begin_dense();
    assert!(file.newest_word(VERSION) > VERSION_BEFORE_DENSE);
    drop(store);
    // No dense page was stored, which the next opening detects.
    drop(file.open().expect("the pool opens"));
    assert!(file.newest_word(VERSION) <= VERSION_BEFORE_DENSE);
}

#[test]
fn a_mark_that_this_release_does_not_know_is_of_a_newer_one() {
    let file = PoolFile::with_pool();
    for _ in 0..2 {
        file.open().expect("the pool opens").begin_dense();
        file.open().expect("the pool opens").begin_dense();
    }
    let store = file.open().expect("the pool opens");
    store.begin_dense();
    // Both superblocks have the version with flags.
    store.add_table().expect("there is memory");
    drop(store);
    file.change_word(TABLE_SLABS, |word| word | 1 << 40);
    file.check_refused(OpenErrorKind::Newer);
    file.change_word(TABLE_SLABS, |word| word & !(1 << 40));
    let store = file.open().expect("the pool opens");
    assert_eq!(store.missing_tables(), 0);
    assert_eq!(store.root_ranges().len(), 2, "the table slab is still known");
}
