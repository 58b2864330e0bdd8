//! Tests of images of volumes in a full pool: saves yield to writers, and still complete.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use block_device::BlockDevice;
use durable_set::SaveExtent;
use support::{BLOCK, Fixture, long_noise, read};
use volumes::{Durability, Volume};

/// Number of blocks that are overwritten cyclically.
const BLOCKS: u64 = Fixture::VOLUME_BYTES / BLOCK / 2;

/// Returns contents that occur nowhere else in the pool.
fn contents(number: u64) -> Vec<u8> {
    long_noise(10_000_000 + number)
}

fn overwrite(volume: &Volume, number: u64) {
    let at = number % BLOCKS * BLOCK;
    volume.write(at, &contents(number)).expect("a save is no reason for an overwrite to fail");
}

/// Returns the number of the overwrite whose contents a block has after `count` overwrites.
fn number_of(block: u64, count: u64) -> u64 {
    let last = count - 1;
    last - (last + BLOCKS - block) % BLOCKS
}

/// Goal: while images are saved in a full pool, no overwrite fails, and each image is consistent as
/// of one instant. Method: one writer overwrites blocks in a known order, so the image must equal
/// the state after some number of overwrites.
#[test]
fn images_of_one_instant_are_saved_while_a_full_pool_is_overwritten() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("v", Durability::Image);
    (0..BLOCKS).for_each(|number| overwrite(&volume, number));
    fixture.fill_pool();
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(BLOCKS));
    let mut saved_from = 0;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                overwrite(&volume, count.load(Ordering::Relaxed));
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let saved: Vec<_> = (0..12)
            .map(|_| {
                saved_from = count.load(Ordering::Relaxed);
                fixture.try_to_save(SaveExtent::Durable)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("no overwrite fails");
        for saved in saved {
            saved.expect("a save ends, though writers come first");
        }
    });
    let written = count.load(Ordering::Relaxed);
    assert!(written > BLOCKS + 100, "there was something to give way to: {written}");
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("v");
    let found: Vec<Vec<u8>> =
        (0..BLOCKS).map(|at| read(&volume, at).expect("it is in the image")).collect();
    let is_of =
        |count: u64| (0..).zip(&found).all(|(at, found)| *found == contents(number_of(at, count)));
    // The block overwritten last shows the number of overwrites.
    let last = (saved_from..=written).rev().find(|&count| {
        let at = usize::try_from((count - 1) % BLOCKS).expect("a small volume");
        found[at] == contents(count - 1)
    });
    assert!(is_of(last.expect("the image is of that time")), "the image is of one instant");
}

/// The same for a volume that fits into the pool only once.
#[test]
fn a_guaranteed_volume_is_saved_and_flushed_without_room_for_a_second_one() {
    let mut fixture = Fixture::new();
    let volume: Arc<Volume> = fixture.create_guaranteed("sure", Durability::Journal);
    let blocks = Fixture::SURE_BYTES / BLOCK;
    fixture.fill_pool();
    for round in 0..6 {
        for at in 0..blocks {
            let written = volume.write(at * BLOCK, &long_noise(round * blocks + at));
            written.expect("a guaranteed write never fails");
            if at % 100 == 99 {
                fixture.flush_with_images(&volume);
            }
        }
        fixture.save();
        fixture.fill_pool();
    }
    fixture.flush_with_images(&volume);
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("sure");
    for at in 0..blocks {
        assert!(read(&volume, at) == Ok(long_noise(5 * blocks + at)), "block {at}");
    }
}
