//! Pools in files of tmpfs, and conditions that every pool must meet.

use std::os::unix::fs::FileExt;

use model::Random;
use region::{Region, RegionSpec};
use volumes::{Engine, EngineOptions};

/// Limit on steps, which no pool of these tests reaches.
const STEPS_MAX: usize = 1_000_000;

/// Number of words in front of the slabs of a small pool.
const TABLE_WORDS: usize = (384 << 10) / 8;

/// Limit on bytes of an empty pool that belong to nothing: the remainder of the division into
/// slabs.
const REST_BYTES_MAX: u64 = 256 << 10;

/// A folder with a pool's file, deleted at the end.
pub(crate) struct Pool {
    folder: tempfile::TempDir,
    pub(crate) size_bytes: u64,
    capacity_bytes: u64,
    pub(crate) lane_count: usize,
}

impl Pool {
    pub(crate) fn new(size_bytes: u64, lane_count: usize) -> Self {
        Self::growable(size_bytes, size_bytes, lane_count)
    }

    /// Settings of a pool that can grow.
    pub(crate) fn growable(size_bytes: u64, capacity_bytes: u64, lane_count: usize) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        Self { folder, size_bytes, capacity_bytes, lane_count }
    }

    /// Returns a pool in the state that a kill of this one would leave now.
    pub(crate) fn as_after_a_kill(&self) -> Self {
        let other = Self::new(self.size_bytes, self.lane_count);
        let file = |pool: &Self| pool.folder.path().join("region");
        std::fs::copy(file(self), file(&other)).expect("tmpfs has room");
        other
    }

    pub(crate) fn open(&self) -> Engine {
        let path = self.folder.path().join("region");
        let spec = RegionSpec { path, size_bytes: self.size_bytes };
        let region = Region::open_growable(&spec, self.capacity_bytes);
        let options = EngineOptions { lane_count: self.lane_count, fresh_secret: [7; 32] };
        Engine::open(region.expect("the region opens"), options).expect("the pool opens")
    }

    /// Marks all records in front of the slabs as neither free nor in use, so that volumes get
    /// their records in table slabs. The pool must exist.
    pub(crate) fn take_front_places(&self) {
        let path = self.folder.path().join("region");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file opens");
        for record in 1..1024 {
            file.write_all_at(&3_u64.to_le_bytes(), 8192 + record * 256).expect("tmpfs has room");
        }
    }

    /// Memory that the pool's file occupies.
    pub(crate) fn held_bytes(&self) -> u64 {
        let found = std::fs::metadata(self.folder.path().join("region"));
        std::os::unix::fs::MetadataExt::blocks(&found.expect("the file is there")) * 512
    }

    /// Changes some words past the superblocks, mostly ones that are not zero.
    pub(crate) fn damage_words(&self, random: &mut Random) {
        let path = self.folder.path().join("region");
        let bytes = std::fs::read(&path).expect("the file is there");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file opens");
        let (words, _) = bytes.as_chunks::<8>();
        let used: Vec<usize> = (1024..words.len()).filter(|&word| words[word] != [0; 8]).collect();
        let tables: Vec<usize> = used.iter().copied().filter(|&word| word < TABLE_WORDS).collect();
        for _ in 0..1 + random.below(8) {
            let word = match random.below(3) {
                0 => random.pick(&tables),
                1 => random.pick(&used),
                _ => 1024 + random.index(words.len() - 1024),
            };
            let old = u64::from_le_bytes(words[word]);
            let new = match random.below(4) {
                0 => old ^ (1 << random.below(64)),
                1 => old.wrapping_add(random.below(8)),
                2 => u64::from_le_bytes(words[random.pick(&used)]),
                _ => random.number(),
            };
            file.write_all_at(&new.to_le_bytes(), word as u64 * 8).expect("tmpfs has room");
        }
    }

    /// Flips a bit at the first occurrence of these bytes in the pool's file.
    pub(crate) fn flip_bit_in(&self, wanted: &[u8]) {
        let path = self.folder.path().join("region");
        let bytes = std::fs::read(&path).expect("the file is there");
        let at = bytes.windows(wanted.len()).position(|window| window == wanted);
        let at = at.expect("the bytes are stored somewhere");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file opens");
        file.write_all_at(&[wanted[0] ^ 4], at as u64).expect("tmpfs has room");
    }

    /// Returns the version in the superblock written last: its word 1, with the sequence in word 4.
    pub(crate) fn layout_version(&self) -> u64 {
        let file = std::fs::File::open(self.folder.path().join("region")).expect("it is there");
        let word = |offset: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, offset).expect("it is there");
            u64::from_le_bytes(bytes)
        };
        let newest = [0, 4096].into_iter().max_by_key(|copy| word(copy + 32));
        word(newest.expect("there are two") + 8)
    }

    /// Flips a bit `after` bytes from each occurrence of these bytes in the pool's file.
    pub(crate) fn flip_bit_after(&self, wanted: &[u8], after: usize) {
        let path = self.folder.path().join("region");
        let bytes = std::fs::read(&path).expect("the file is there");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file opens");
        for (at, _) in bytes.windows(wanted.len()).enumerate().filter(|(_, it)| *it == wanted) {
            let place = at + after;
            file.write_all_at(&[bytes[place] ^ 4], place as u64).expect("tmpfs has room");
        }
    }

    /// Flips a bit at each occurrence of these bytes in the pool's file. Returns their number.
    pub(crate) fn flip_bit_in_each(&self, wanted: &[u8]) -> usize {
        self.store_at_each(wanted, 0, &[wanted[0] ^ 4])
    }

    /// Overwrites the bytes in front of each copy of `marker` in the pool's file, which an encoding
    /// interprets.
    pub(crate) fn damage_around(&self, marker: &[u8]) {
        assert!(self.store_at_each(marker, 2, &[0xFF; 2]) > 0, "the marker is stored");
    }

    /// Stores `bytes` at an offset before each copy of `marker`. Returns the number of copies.
    fn store_at_each(&self, marker: &[u8], before: u64, stored: &[u8]) -> usize {
        let path = self.folder.path().join("region");
        let bytes = std::fs::read(&path).expect("the file is there");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file opens");
        let windows = bytes.windows(marker.len()).enumerate();
        let found: Vec<_> = windows.filter(|(_, bytes)| *bytes == marker).collect();
        for &(at, _) in &found {
            let at = u64::try_from(at).expect("a small file") - before;
            file.write_all_at(stored, at).expect("tmpfs has room");
        }
        found.len()
    }
}

/// Runs maintenance until no work is left.
pub(crate) fn settle(engine: &Engine) {
    let steps = (0..STEPS_MAX).take_while(|_| engine.maintain()).count();
    assert!(steps < STEPS_MAX, "maintenance does not end");
}

/// Begins an idle period, and performs some of its work.
pub(crate) fn compress_idle(engine: &Engine, steps: usize) {
    engine.begin_idle_period();
    let _worked = (0..steps).take_while(|_| engine.compress_idle()).count();
}

/// Checks that every byte of the pool is counted once.
#[track_caller]
pub(crate) fn check_sums(engine: &Engine) {
    let usage = engine.usage();
    let parts = [
        usage.page_bytes,
        usage.map_bytes,
        usage.index_bytes,
        usage.table_bytes,
        usage.slack_bytes,
    ];
    assert_eq!(usage.used_bytes, parts.iter().sum::<u64>(), "{usage:?}");
    assert_eq!(engine.damaged_entries(), 0, "no entry names what is not there");
}

/// Deletes all volumes, and checks that no memory is in use.
#[track_caller]
pub(crate) fn check_sound_when_empty(engine: &Engine) {
    settle(engine);
    check_sums(engine);
    for snapshot in engine.snapshots() {
        let (volume, name) = (snapshot.name(), snapshot.snapshot_name());
        let volume = volume.strip_suffix(&format!("@{name}")).expect("a full name");
        engine.delete_snapshot(volume, &name).expect("the snapshot is deleted");
    }
    for volume in engine.volumes() {
        engine.delete_volume(&volume.name()).expect("the volume is deleted");
    }
    settle(engine);
    check_sums(engine);
    let usage = engine.usage();
    assert_eq!((usage.page_count, usage.page_bytes, usage.map_bytes), (0, 0, 0), "{usage:?}");
    assert_eq!((usage.written_bytes, usage.fill_bytes), (0, 0), "{usage:?}");
    assert_eq!((usage.idle_page_count, usage.idle_saved_bytes), (0, 0), "{usage:?}");
    assert!(usage.slack_bytes < REST_BYTES_MAX, "no slab is lost: {usage:?}");
}
