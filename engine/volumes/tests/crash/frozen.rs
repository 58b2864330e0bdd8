//! Frozen copies given up for a writer in a full pool, killed before each store.

use std::cell::Cell;
use std::sync::Arc;

use crate::support::{Ended, PoolFile, check_emptied, settle};
use block_device::BlockDevice;
use model::{Contents, Texture};
use region::CrashPoints;
use volumes::{CapacityClass, Engine, Volume, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

/// Number of overwrites, more than any reserve of the pool covers.
const OVERWRITES: u64 = 400;

/// Number of overwrites after the copies were given up.
const OVERWRITES_AFTER: u64 = 4;

fn noise(number: u64) -> Vec<u8> {
    Contents::new(Texture::Noise, number).bytes(4096)
}

fn is(volume: &Volume, at: u64, number: u64) -> bool {
    let mut found = [0; 4096];
    volume.read(at * BLOCK, &mut found).expect("it can be read");
    found[..] == noise(number)
}

/// Creates a volume in a full pool, and returns the number of its blocks.
fn furnish(engine: &Engine, capacity: CapacityClass, size_bytes: u64) -> u64 {
    let thin = VolumeSpec::new("filler".parse().expect("a good name"), 64 * MIB);
    let spec = VolumeSpec::new("v".parse().expect("a good name"), size_bytes);
    let volume = engine.create_volume(VolumeSpec { capacity, ..spec }).expect("it fits");
    let is_written = |&at: &u64| volume.write(at * BLOCK, &noise(at)).is_ok();
    let written = (0..size_bytes / BLOCK).take_while(is_written).count() as u64;
    let filler = engine.create_volume(thin).expect("a volume can be made");
    let _filled =
        (0..).take_while(|&n| filler.write(n * BLOCK, &noise(n + 50_000)).is_ok()).count();
    written
}

/// Overwrites blocks of a frozen volume until the copy is given up, and a few more.
fn act(engine: &Engine, done: &Cell<u64>) {
    let volume = engine.volume("v").expect("it is there");
    let frozen = engine.freeze(&[Arc::clone(&volume)]).expect("it claims nothing");
    let mut left = OVERWRITES_AFTER;
    for at in 0..OVERWRITES {
        volume.write(at * BLOCK, &noise(at + 10_000)).expect("overwrites never fail");
        done.set(at + 1);
        left -= u64::from(!frozen.is_whole());
        if left == 0 {
            break;
        }
    }
    assert!(!frozen.is_whole(), "the copy gave way");
    drop(frozen);
    settle(engine);
}

/// Kills the overwrites before each store, or with a stride, and checks the remaining state.
fn check(capacity: CapacityClass, size_bytes: u64, stride: usize) {
    let file = PoolFile::new(6 * MIB);
    let engine = file.open();
    let written = furnish(&engine, capacity, size_bytes);
    assert!(written > OVERWRITES, "{written} blocks found memory");
    settle(&engine);
    drop(engine);
    let base = file.save();
    for end in (0..).step_by(stride) {
        file.restore(&base);
        let points = CrashPoints::after(end);
        let done = Cell::new(0);
        let ended = file.run(|| act(&file.open_until(&points), &done));
        let engine = file.open();
        let volume = engine.volume("v").expect("it was there before");
        for at in 0..written {
            let is_old = is(&volume, at, at);
            let is_new = at < OVERWRITES && is(&volume, at, at + 10_000);
            let is_right = match at.cmp(&done.get()) {
                std::cmp::Ordering::Less => is_new,
                std::cmp::Ordering::Equal => is_old || is_new,
                std::cmp::Ordering::Greater => is_old,
            };
            assert!(is_right, "block {at} of {} done, ended before store {end}", done.get());
        }
        settle(&engine);
        assert_eq!(engine.damaged_entries(), 0, "ended before store {end}");
        for at in 0..written {
            volume.write(at * BLOCK, &noise(at + 20_000)).expect("overwrites never fail");
        }
        drop(volume);
        check_emptied(&engine);
        if ended == Ended::Completed {
            assert!(end > 200, "it takes some stores");
            return;
        }
    }
}

#[test]
fn a_copy_that_gives_way_to_overwrites_leaves_all_that_was_acknowledged() {
    check(CapacityClass::Thin, 3 * MIB, 5);
}

#[test]
fn a_copy_of_a_guaranteed_volume_gives_way_and_leaves_all_that_was_acknowledged() {
    check(CapacityClass::Guaranteed, 2 * MIB, 13);
}
