//! Snapshots while many threads write: each is of one instant over all volumes, and never changes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block_device::BlockDevice;
use model::{Block, Contents, Random, Texture, for_each_seed};
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{Engine, Volume, VolumeName, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

const WRITER_COUNT: u64 = 3;

/// Number of blocks that each writer writes cyclically.
const RING: u64 = 40;

/// Distance between the blocks of a writer: they lie in five leaves, beside those of others.
const STRIDE: u64 = 61;

/// Number of snapshots in one run, and number of those kept at a time.
const SNAPSHOT_COUNT: usize = 60;
const KEPT_MAX: usize = 5;

const NAMES: [&str; 2] = ["left", "right"];

/// State shared by the threads of one run.
struct Arena<'run> {
    engine: &'run Engine,
    volumes: [Arc<Volume>; 2],
    /// The last write that each writer has begun, and the last acknowledged.
    begun: [AtomicU64; 3],
    acknowledged: [AtomicU64; 3],
    is_over: AtomicBool,
}

/// A snapshot of both volumes, and the last write of each writer that it contains.
struct Kept {
    name: VolumeName,
    copies: [Arc<Volume>; 2],
    last: [u64; 3],
}

fn index(writer: u64) -> usize {
    usize::try_from(writer).expect("few writers")
}

/// Returns the volume and block of a write. Writes alternate between the volumes.
fn place(writer: u64, number: u64) -> (usize, u64) {
    let turn = number % RING;
    (usize::from(number % 2 == 1), turn * STRIDE + writer)
}

/// Returns the contents of a write, which identify the writer and the write. Some are compressible.
fn contents(writer: u64, number: u64) -> Block {
    let texture = [Texture::Noise, Texture::Text, Texture::FewTexts][index(number % 3)];
    let mut block = Contents::new(texture, number << 8 | writer).block(0);
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}

/// Returns the number of the write in a block of a writer, or 0 before the first.
fn number_in(volume: &Volume, writer: u64, block: u64) -> u64 {
    let mut found = [0xEE; 4096];
    volume.read(block * BLOCK, &mut found).expect("the read succeeds");
    let number = u64::from_le_bytes(*found.first_chunk().expect("a block is longer"));
    let expected = if number == 0 { [0; 4096] } else { contents(writer, number) };
    assert!(found == expected, "block {block} of {} is whole", volume.name());
    number
}

/// Returns the last write of a writer in two volumes, if they contain all of its writes up to that
/// one and none after it.
fn last_write(volumes: &[Arc<Volume>; 2], writer: u64) -> u64 {
    // The cycle has an even length, so each position is always in one volume.
    let found: Vec<u64> = (0..RING)
        .map(|turn| {
            let (volume, block) = place(writer, turn);
            number_in(&volumes[volume], writer, block)
        })
        .collect();
    let last = found.iter().copied().max().expect("a ring is not empty");
    for (turn, &number) in (0..).zip(&found) {
        let newest = (0..=last).rev().take(index(RING)).find(|number| number % RING == turn);
        let expected = newest.unwrap_or(0);
        assert_eq!(number, expected, "writer {writer}: the last is {last}, turn {turn}");
    }
    last
}

impl Arena<'_> {
    fn write(&self, writer: u64) {
        for number in 1.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let (volume, block) = place(writer, number);
            self.begun[index(writer)].store(number, Ordering::SeqCst);
            let written = self.volumes[volume].write(block * BLOCK, &contents(writer, number));
            written.expect("there is room");
            self.acknowledged[index(writer)].store(number, Ordering::SeqCst);
        }
    }

    fn maintain(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            if !self.engine.maintain() {
                std::thread::yield_now();
            }
            // Everything unused since the turn before last is idle.
            self.engine.begin_idle_period();
            self.engine.compress_idle();
            assert_eq!(self.engine.damaged_entries(), 0);
        }
    }

    /// Takes snapshots, checks them repeatedly, and deletes them in any order.
    fn take_snapshots(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut kept: Vec<Kept> = Vec::new();
        for count in 0..SNAPSHOT_COUNT {
            kept.push(self.take_snapshot(count));
            let which = random.index(kept.len());
            self.look_again(&kept[which]);
            if random.one_in(4) {
                self.try_clone(&kept[which]);
            }
            while kept.len() > KEPT_MAX {
                let gone = kept.swap_remove(random.index(kept.len()));
                self.look_again(&gone);
                self.delete(&gone);
            }
        }
        for left in &kept {
            self.look_again(left);
            self.delete(left);
        }
    }

    fn take_snapshot(&self, count: usize) -> Kept {
        let name: VolumeName = format!("s{count}").parse().expect("a good name");
        let before: Vec<u64> =
            self.acknowledged.iter().map(|one| one.load(Ordering::SeqCst)).collect();
        let copies = self.engine.create_snapshots(&NAMES, &name, 0).expect("it takes no memory");
        let after: Vec<u64> = self.begun.iter().map(|one| one.load(Ordering::SeqCst)).collect();
        let copies = <[_; 2]>::try_from(copies).expect("one of each volume");
        let last = [0, 1, 2].map(|writer| {
            let last = last_write(&copies, writer);
            let range = before[index(writer)]..=after[index(writer)];
            assert!(range.contains(&last), "writer {writer}: {last} is not in {range:?}");
            last
        });
        Kept { name, copies, last }
    }

    fn look_again(&self, kept: &Kept) {
        for writer in 0..WRITER_COUNT {
            assert_eq!(last_write(&kept.copies, writer), kept.last[index(writer)]);
        }
    }

    /// A clone of a snapshot changes independently.
    fn try_clone(&self, kept: &Kept) {
        let source = kept.copies[0].name();
        let name: VolumeName = "clone".parse().expect("a good name");
        let clone = self.engine.clone_volume(&source, name).expect("it takes no memory");
        for turn in (0..RING).step_by(6) {
            let (_, block) = place(0, turn);
            clone.write(block * BLOCK, &contents(0, 1 << 40)).expect("there is room");
            assert_eq!(number_in(&clone, 0, block), 1 << 40);
        }
        self.look_again(kept);
        self.engine.delete_volume("clone").expect("the clone is deleted");
    }

    fn delete(&self, kept: &Kept) {
        for name in NAMES {
            let deleted = self.engine.delete_snapshot(name, kept.name.as_str());
            deleted.expect("the snapshot is there");
        }
    }
}

fn run(seed: u64) {
    let pool = Pool::new(64 * MIB, 2);
    let engine = pool.open();
    let create = |name: &str| {
        let spec = VolumeSpec::new(name.parse().expect("a good name"), 64 * MIB);
        engine.create_volume(spec).expect("a volume can be made")
    };
    let arena = Arena {
        engine: &engine,
        volumes: NAMES.map(create),
        begun: Default::default(),
        acknowledged: Default::default(),
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let arena = &arena;
        for writer in 0..WRITER_COUNT {
            scope.spawn(move || arena.write(writer));
        }
        scope.spawn(|| arena.maintain());
        let taken = scope.spawn(|| arena.take_snapshots(seed)).join();
        arena.is_over.store(true, Ordering::Relaxed);
        taken.expect("each snapshot is of one instant");
    });
    for writer in 0..WRITER_COUNT {
        let acknowledged = arena.acknowledged[index(writer)].load(Ordering::SeqCst);
        assert_eq!(last_write(&arena.volumes, writer), acknowledged);
    }
    drop(arena);
    settle(&engine);
    check_sums(&engine);
    check_sound_when_empty(&engine);
}

/// Goal: a snapshot contains every write that was acknowledged before it; of two writes of one
/// thread never the later without the earlier, in either volume; and it never changes.
/// Method: writers number their writes and alternate between the volumes. The numbers in a snapshot
/// must be all up to one, and that one must fit the time. Later checks must find the same, while
/// maintenance compresses and moves pages and snapshots come and go.
#[test]
fn snapshots_are_of_one_instant_and_stay_so() {
    for_each_seed("cargo test -p volumes --test instants", 6, run);
}
