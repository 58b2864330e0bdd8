//! Frozen copies, which saves read, and which are given up for writers that find no memory.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use block_device::{BlockDevice, ByteRange, DeviceErrorKind};
use model::Random;
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{BlockView, CapacityClass, Engine, Frozen, Volume, VolumeErrorKind, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const LEAF: u64 = 512;

fn create_of(engine: &Engine, name: &str, size_bytes: u64, capacity: CapacityClass) -> Arc<Volume> {
    let spec = VolumeSpec::new(name.parse().expect("a good name"), size_bytes);
    engine.create_volume(VolumeSpec { capacity, ..spec }).expect("a volume can be made")
}

fn create(engine: &Engine, name: &str, size_bytes: u64) -> Arc<Volume> {
    create_of(engine, name, size_bytes, CapacityClass::Thin)
}

fn freeze(engine: &Engine, volume: &Arc<Volume>) -> Frozen {
    engine.freeze(&[Arc::clone(volume)]).expect("it claims nothing")
}

fn freeze_and_hold_on(engine: &Engine, volume: &Arc<Volume>) -> Frozen {
    engine.freeze_and_hold_on(&[Arc::clone(volume)]).expect("it claims nothing")
}

/// Returns a block of noise that depends on a number.
fn noise(number: u64) -> [u8; 4096] {
    model::Contents::new(model::Texture::Noise, number).block(0)
}

fn is(volume: &Volume, at: u64, number: u64) -> bool {
    let mut found = [0xEE; 4096];
    volume.read(at * BLOCK, &mut found).is_ok() && found == noise(number)
}

/// Writes noise until memory is exhausted. Returns the number of blocks.
fn fill_up(volume: &Volume) -> u64 {
    let blocks = volume.geometry().size_bytes / BLOCK;
    let filled = (0..blocks).take_while(|&at| volume.write(at * BLOCK, &noise(at)).is_ok());
    filled.count() as u64
}

/// Reads the contents of a copy, as a save does. Contents read from a copy that was not given up
/// must be those of the volume at its creation. Returns whether the copy was read completely.
fn read_through(frozen: &Frozen, held: &[u64]) -> bool {
    let copy = &frozen.volumes()[0];
    let mut views = [BlockView::Hole; 512];
    for (at, &number) in (0..).zip(held) {
        if at % LEAF == 0 {
            copy.map().view_leaf(at / LEAF, &mut views);
        }
        let is_right = is(copy, at, number);
        if !frozen.is_whole() {
            return false;
        }
        assert!(is_right, "block {at} of the copy");
    }
    true
}

#[test]
fn a_guaranteed_volume_is_frozen_in_a_pool_that_has_no_room_for_a_second_one() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let sure = create_of(&engine, "sure", 20 * MIB, CapacityClass::Guaranteed);
    let blocks = 20 * MIB / BLOCK;
    let any = create(&engine, "any", 64 * MIB);
    let _full = fill_up(&any);
    for turn in 0..4 {
        for at in 0..blocks {
            let written = sure.write(at * BLOCK, &noise(turn * blocks + at));
            written.expect("a guaranteed write never fails");
        }
        let frozen = freeze(&engine, &sure);
        let held: Vec<u64> = (turn * blocks..(turn + 1) * blocks).collect();
        assert!(read_through(&frozen, &held), "no writer wants its memory");
        if turn % 2 == 0 {
            drop(frozen);
        } else {
            // The overwrites take all free memory first.
            for at in 0..blocks {
                let written = sure.write(at * BLOCK, &noise(u64::MAX - at));
                written.expect("a guaranteed write never fails");
            }
            assert!(!frozen.is_whole(), "it held more than there was");
            let gone = frozen.volumes()[0].read(0, &mut [0; 4096]).expect_err("it gave way");
            assert_eq!(gone.kind, DeviceErrorKind::Gone);
        }
        let _refilled = fill_up(&any);
    }
    settle(&engine);
    assert_eq!(engine.usage().claimed_bytes, 0, "nothing is claimed beside what is there");
    check_sums(&engine);
    drop((sure, any));
    check_sound_when_empty(&engine);
}

/// A snapshot claims the pages that the volume shares with it. Pages shared with a frozen copy must
/// not be mistaken for those.
#[test]
fn frozen_copies_take_nothing_of_what_was_claimed_for_a_snapshot() {
    let pool = Pool::new(48 * MIB, 2);
    let engine = pool.open();
    let sure = create_of(&engine, "sure", 12 * MIB, CapacityClass::Guaranteed);
    let any = create(&engine, "any", 128 * MIB);
    let blocks = 12 * MIB / BLOCK;
    let write = |from: u64, to: u64, seed: u64| {
        (from..to).for_each(|at| {
            let written = sure.write(at * BLOCK, &noise(seed + at));
            written.expect("a guaranteed write never fails");
        });
    };
    write(0, blocks, 1_000_000);
    let made = engine.create_snapshots(&["sure"], &"s".parse().expect("a name"), 1);
    drop(made.expect("it fits"));
    // From here on the volume shares only a part.
    write(0, blocks / 2, 2_000_000);
    for turn in 3..6 {
        let frozen = freeze(&engine, &sure);
        write(0, blocks / 2, turn * 1_000_000);
        let _filled = fill_up(&any);
        drop(frozen);
        let _refilled = fill_up(&any);
    }
    write(0, blocks, 9_000_000);
    let snapshot = engine.snapshot("sure", "s").expect("it is there");
    assert!((0..blocks).all(|at| is(&snapshot, at, 1_000_000 + at)), "the snapshot changed");
    drop((snapshot, any));
    engine.delete_snapshot("sure", "s").expect("it is there");
    engine.delete_volume("any").expect("it is there");
    settle(&engine);
    assert_eq!(engine.usage().claimed_bytes, 0, "nothing is claimed beside what is there");
    drop(sure);
    check_sound_when_empty(&engine);
}

/// Goal: no overwrite in a full pool fails because of a save.
/// Method: everything in a full pool is overwritten twice at random with incompressible contents,
/// while copies are made and read one after the other.
#[test]
fn everything_in_a_full_pool_is_overwritten_twice_while_copies_are_read() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "v", 64 * MIB);
    let filled = fill_up(&volume);
    assert!(filled > 6000, "{filled} blocks found memory");
    let usage = engine.usage();
    assert_eq!(usage.overwrite_lack_bytes(), 0, "all that is there has memory to itself");
    let mut held: Vec<u64> = (0..filled).collect();
    let (give, taken) = sync_channel::<(Frozen, Vec<u64>)>(0);
    let (given_up, read) = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut given_up, mut read) = (0, 0);
            for (frozen, held) in taken {
                let count = if read_through(&frozen, &held) { &mut read } else { &mut given_up };
                *count += 1;
            }
            (given_up, read)
        });
        let mut random = Random::new(7);
        for round in 0..2 * filled {
            if round % 64 == 0 {
                // Received only by a reader that has finished the previous one.
                let copy = (freeze(&engine, &volume), held.clone());
                if round % 128 == 0 {
                    give.send(copy).expect("the reader takes some");
                } else {
                    drop(give.try_send(copy));
                }
            }
            let at = (round * 33 + random.below(3)) % filled;
            let number = 1_000_000 + round;
            let written = volume.write(at * BLOCK, &noise(number));
            written.unwrap_or_else(|error| panic!("overwrite {round} of {filled}: {error}"));
            held[usize::try_from(at).expect("a small pool")] = number;
        }
        drop(give);
        reader.join().expect("what was read is right")
    });
    assert!(given_up + read > 100, "{given_up} copies were given up and {read} read");
    assert!((0..).zip(&held).all(|(at, &number)| is(&volume, at, number)), "the volume is right");
    settle(&engine);
    check_sums(&engine);
    drop(volume);
    check_sound_when_empty(&engine);
}

/// The same with several writers, and others that request the memory that they free.
#[test]
fn overwrites_of_several_writers_never_fail_beside_copies_and_new_data() {
    const WRITERS: u64 = 3;
    let pool = Pool::new(32 * MIB, 3);
    let engine = pool.open();
    let volume = create(&engine, "v", 64 * MIB);
    let other = create(&engine, "other", 64 * MIB);
    let filled = fill_up(&volume);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (volume, is_over, engine, other) = (&volume, &is_over, &engine, &other);
        let writers: Vec<_> = (0..WRITERS)
            .map(|nth| {
                scope.spawn(move || {
                    for round in 0..filled {
                        let at = (round * 33 % filled) / WRITERS * WRITERS + nth;
                        let written = volume
                            .write(at % filled * BLOCK, &noise((round + 10_000) * WRITERS + nth));
                        written.unwrap_or_else(|error| panic!("overwrite {round}: {error}"));
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            for next in (0..other.geometry().size_bytes / BLOCK).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // Mostly rejected, because the pool is full.
                drop(other.write(next * BLOCK, &noise(5_000_000 + next)));
                engine.maintain();
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let frozen = freeze(engine, volume);
                let copy = &frozen.volumes()[0];
                let _read = (0..filled)
                    .take_while(|&at| copy.read(at * BLOCK, &mut [0; 4096]).is_ok())
                    .count();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a writer failed");
    });
    settle(&engine);
    check_sums(&engine);
    drop((volume, other));
    check_sound_when_empty(&engine);
}

#[test]
fn new_data_leaves_overwrites_what_they_need() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "v", 64 * MIB);
    let other = create(&engine, "other", 64 * MIB);
    let filled = fill_up(&volume);
    let mut next = 0;
    for round in 0..4 * filled {
        // Takes the memory that the previous overwrite has freed, if permitted.
        while other.write(next * BLOCK, &noise(5_000_000 + next)).is_ok() {
            next += 1;
        }
        let at = round * 33 % filled;
        let written = volume.write(at * BLOCK, &noise(1_000_000 + round));
        written.unwrap_or_else(|error| panic!("overwrite {round} of {filled}: {error}"));
    }
}

#[test]
fn writers_wait_for_a_reader_of_copies_that_are_held_on_to() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "v", 64 * MIB);
    let filled = fill_up(&volume);
    let held: Vec<u64> = (0..filled).collect();
    let frozen = freeze_and_hold_on(&engine, &volume);
    let is_read = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for at in 0..filled {
                let written = volume.write(at * BLOCK, &noise(1_000_000 + at));
                written.expect("a copy is no reason for an overwrite to fail");
            }
            assert!(is_read.load(Ordering::Relaxed), "it was waited for");
        });
        assert!(read_through(&frozen, &held), "it is held on to");
        is_read.store(true, Ordering::Relaxed);
        drop(frozen);
        writer.join().expect("all is overwritten");
    });
    // No thread reads this copy.
    let frozen = freeze_and_hold_on(&engine, &volume);
    for at in 0..filled {
        volume.write(at * BLOCK, &noise(2_000_000 + at)).expect("it is given up in the end");
    }
    assert!(!frozen.is_whole());
    drop((frozen, volume));
    check_sound_when_empty(&engine);
}

#[test]
fn what_is_to_last_comes_before_frozen_copies() {
    let pool = Pool::new(48 * MIB, 2);
    let engine = pool.open();
    let sure = create_of(&engine, "sure", 12 * MIB, CapacityClass::Guaranteed);
    let fill = |seed: u64| {
        (0..12 * MIB / BLOCK).for_each(|at| {
            sure.write(at * BLOCK, &noise(seed + at)).expect("a guaranteed write never fails");
        });
    };
    fill(1);
    let frozen = freeze(&engine, &sure);
    fill(100_000);
    let _other = create_of(&engine, "other", 26 * MIB, CapacityClass::Guaranteed);
    assert!(!frozen.is_whole(), "it gave way to a volume");
    engine.delete_volume("other").expect("it is there");
    let frozen = freeze(&engine, &sure);
    fill(200_000);
    let any = create(&engine, "any", 12 * MIB);
    let _full = fill_up(&any);
    assert!(frozen.is_whole());
    let name = "s".parse().expect("a good name");
    engine.create_snapshots(&["sure"], &name, 1).expect("its pages can be claimed again");
    assert!(!frozen.is_whole(), "it gave way to a snapshot");
}

/// Overwrites may need memory that was never reserved. The amount is known in advance.
#[test]
fn what_overwrites_could_lack_is_said_before() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "v", 128 * MIB);
    let blocks = 30_000;
    (0..blocks).for_each(|at| volume.write(at * BLOCK, &noise(1)).expect("it takes one page"));
    settle(&engine);
    let usage = engine.usage();
    assert_eq!(usage.overwrite_need_bytes, (blocks - 1) * BLOCK);
    assert!(usage.overwrite_lack_bytes() > 80 * MIB, "{usage:?}");
    let room = usage.overwrite_room_bytes / BLOCK;
    for at in 0..room {
        let written = volume.write(at * BLOCK, &noise(100 + at));
        written.unwrap_or_else(|error| panic!("overwrite {at} of {room}: {error}"));
    }
    let failed = (room..blocks).find(|&at| volume.write(at * BLOCK, &noise(100 + at)).is_err());
    assert!(failed.is_some(), "there is no memory for all");
    let lack = engine.usage().overwrite_lack_bytes();
    assert!(lack > 80 * MIB, "it is still so: {lack}");
    // Blocks with unshared pages can still be overwritten.
    (0..room).for_each(|at| volume.write(at * BLOCK, &noise(at)).expect("it has a page"));
    volume.discard(ByteRange::new(0, 128 * MIB)).expect("a discard always works");
    assert_eq!(engine.usage().overwrite_lack_bytes(), 0);
    drop(volume);
    check_sound_when_empty(&engine);
}

#[test]
fn patterns_and_compressed_blocks_count_for_what_overwrites_could_lack() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "v", 128 * MIB);
    (0..100).for_each(|at| volume.write(at * BLOCK, &noise(at)).expect("there is room"));
    assert_eq!(engine.usage().overwrite_need_bytes, 0);
    volume.write(100 * BLOCK, &[7; 100 * 4096]).expect("there is room");
    assert_eq!(engine.usage().overwrite_need_bytes, 100 * BLOCK);
    let text = model::Contents::new(model::Texture::Text, 5).bytes(50 * 4096);
    volume.write(200 * BLOCK, &text).expect("there is room");
    settle(&engine);
    let need = engine.usage().overwrite_need_bytes;
    assert!(need > 120 * BLOCK && need <= 150 * BLOCK, "{need}");
    let made = engine.create_snapshots(&["v"], &"s".parse().expect("a name"), 1);
    drop(made.expect("it takes no memory"));
    let with_snapshot = engine.usage().overwrite_need_bytes;
    assert!(with_snapshot >= 250 * BLOCK, "no overwrite frees anything: {with_snapshot}");
    // As long as that much memory is free, all overwrites succeed.
    let other = create(&engine, "other", 64 * MIB);
    let has_more = |_: &u64| {
        let usage = engine.usage();
        usage.overwrite_room_bytes > usage.overwrite_need_bytes + BLOCK
    };
    for at in (0..).take_while(has_more) {
        other.write(at * BLOCK, &noise(5_000_000 + at)).expect("there is room");
    }
    assert_eq!(engine.usage().overwrite_lack_bytes(), 0);
    for at in 0..250 {
        let written = volume.write(at * BLOCK, &noise(10_000 + at));
        written.unwrap_or_else(|error| panic!("overwrite {at}: {error}"));
    }
}

/// Number of records of a table with one table slab.
const PLACES: u64 = 1023 + 512;

/// Creates this many snapshots of a volume, each with other contents.
fn fill_table(engine: &Engine, volume: &Arc<Volume>, count: u64) {
    for number in 0..count {
        let written = volume.write(number % 8 * BLOCK, &noise(number));
        written.expect("there is room");
        let name = format!("s{number}").parse().expect("a good name");
        engine.create_snapshots(&["db"], &name, 1).expect("there is a place");
    }
}

#[test]
fn all_that_is_listed_can_be_frozen_also_when_the_table_is_full() {
    let pool = Pool::new(64 * MIB, 2);
    let engine = pool.open();
    let empty = create(&engine, "empty", MIB);
    let volume = create(&engine, "db", 8 * MIB);
    fill_table(&engine, &volume, PLACES - 2);
    let all: Vec<_> = engine.volumes().into_iter().chain(engine.snapshots()).collect();
    let frozen = engine.freeze(&all).expect("the table is full of what lasts");
    let refused = engine.freeze(&all).expect_err("each place is taken");
    assert_eq!(refused.kind, VolumeErrorKind::TooManyVolumes);
    // Another volume takes over the record: frozen copies are independent of both.
    engine.delete_volume("empty").expect("it is there");
    drop(empty);
    let clone = engine.clone_volume("db@s5", "clone".parse().expect("a good name"));
    let clone = clone.expect("there is a place again");
    clone.write(5 * BLOCK, &noise(1_000_000)).expect("there is room");
    volume.write(5 * BLOCK, &noise(1_000_001)).expect("there is room");
    assert!(frozen.is_whole());
    for (source, copy) in all.iter().zip(frozen.volumes()) {
        assert_eq!((copy.name(), copy.origin_id()), (source.name(), Some(source.id())));
        if let Some(number) = source.name().strip_prefix("db@s") {
            let number = number.parse::<u64>().expect("a number");
            assert!(is(copy, number % 8, number), "{}", source.name());
        }
    }
    let killed = pool.as_after_a_kill();
    drop((all, volume, clone));
    engine.close();
    assert!(!frozen.is_whole(), "they go with the run");
    drop(frozen);
    for left in [pool, killed] {
        let engine = left.open();
        settle(&engine);
        let snapshot = engine.snapshot("db", "s7").expect("it is there");
        assert!(is(&snapshot, 7, 7) && is(&snapshot, 0, 0));
        assert!(is(&engine.volume("clone").expect("it is there"), 5, 1_000_000));
        let all: Vec<_> = engine.volumes().into_iter().chain(engine.snapshots()).collect();
        drop(engine.freeze(&all).expect("all places are free again"));
        drop((snapshot, all));
        check_sums(&engine);
        check_sound_when_empty(&engine);
    }
}
