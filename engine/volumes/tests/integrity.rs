//! Damaged memory: detected, reported, and healed from copies.

mod support;

use std::sync::{Arc, Mutex};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, Zeroes};
use support::Pool;
use volumes::{
    CapacityClass, CopyPlace, DamageReport, DamagedBlock, Engine, Healer, Reduction, Volume,
    VolumeSpec,
};

const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const MIB: u64 = 1 << 20;

fn noise(seed: u8) -> Vec<u8> {
    let mut random = model::Random::new(u64::from(seed));
    (0..BLOCK).map(|_| random.below(256).to_le_bytes()[0]).collect()
}

fn create(engine: &Engine, name: &str) -> Arc<Volume> {
    let spec = VolumeSpec::new(name.parse().expect("a good name"), 16 * MIB);
    engine.create_volume(spec).expect("there is room")
}

fn read(volume: &Volume, block: u64) -> Result<Vec<u8>, DeviceErrorKind> {
    let mut into = vec![0; 4096];
    volume.read(block * BLOCK, &mut into).map(|()| into).map_err(|error| error.kind)
}

/// Scrubs the pool's memory once. Returns the number of damaged pages.
fn scrub(engine: &Engine) -> u64 {
    let mut damaged = 0;
    loop {
        let scrubbed = engine.scrub();
        damaged += scrubbed.damaged_pages;
        if scrubbed.is_round {
            return damaged;
        }
    }
}

fn report(volume: &str, block: u64, is_healed: bool) -> DamageReport {
    let healed_from = is_healed.then_some(CopyPlace::Image);
    DamageReport { volume: volume.to_owned(), block, healed_from }
}

/// Healer with copies of blocks, by number.
#[derive(Debug, Default)]
struct Copies(Mutex<Vec<(u64, Vec<u8>)>>);

impl Healer for Copies {
    fn copy_of(&self, damaged: &DamagedBlock, place: CopyPlace, into: &mut [u8; 4096]) -> bool {
        let copies = self.0.lock().expect("no thread panics");
        let is_it = |known: u64| known == damaged.block && place == CopyPlace::Image;
        let copy = copies.iter().find(|(known, _)| is_it(*known));
        copy.inspect(|(_, bytes)| into.copy_from_slice(bytes)).is_some()
    }
}

#[test]
fn a_scrub_of_whole_memory_finds_nothing() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    for (name, reduction) in ["a", "b", "c", "d"].into_iter().zip(Reduction::ALL) {
        let volume = create(&engine, name);
        engine.set_reduction(name, reduction).expect("it is there");
        for block in 0..200 {
            volume.write(block * BLOCK, &noise(block.to_le_bytes()[0])).expect("there is room");
        }
    }
    assert_eq!(scrub(&engine), 0);
    assert_eq!(engine.take_damage_reports(), []);
}

#[test]
fn a_damaged_page_fails_in_all_blocks_that_have_it_until_they_are_overwritten() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (one, two) = (create(&engine, "one"), create(&engine, "two"));
    one.write(0, &[noise(1), noise(2), noise(1)].concat()).expect("there is room");
    two.write(7 * BLOCK, &noise(1)).expect("there is room");
    pool.flip_bit_in(&noise(1)[500..600]);
    assert_eq!(scrub(&engine), 1);
    let mut reports = engine.take_damage_reports();
    reports.sort_by_key(|report| (report.volume.clone(), report.block));
    assert_eq!(
        reports,
        [report("one", 0, false), report("one", 2, false), report("two", 7, false)]
    );
    assert_eq!(read(&one, 0), Err(DeviceErrorKind::Corrupt));
    assert_eq!(read(&two, 7), Err(DeviceErrorKind::Corrupt));
    assert!(read(&one, 1) == Ok(noise(2)));
    one.write(0, &noise(1)).expect("there is room");
    assert!(read(&one, 0) == Ok(noise(1)));
    assert_eq!(engine.withheld_bytes(), BLOCK);
    assert_eq!(scrub(&engine), 0, "no map has the page any more");
}

#[test]
fn a_damaged_page_is_healed_from_a_copy() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    engine.set_healer(Arc::new(Copies(Mutex::new(vec![(3, noise(1))]))));
    let volume = create(&engine, "one");
    volume.write(3 * BLOCK, &noise(1)).expect("there is room");
    pool.flip_bit_in(&noise(1)[500..600]);
    assert_eq!(scrub(&engine), 1);
    assert_eq!(engine.take_damage_reports(), [report("one", 3, true)]);
    assert!(read(&volume, 3) == Ok(noise(1)));
}

#[test]
fn what_a_guaranteed_volume_loses_or_gets_back_is_still_claimed_for_it() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    engine.set_healer(Arc::new(Copies(Mutex::new(vec![(1, noise(2))]))));
    let name = "sure".parse().expect("a good name");
    let capacity = CapacityClass::Guaranteed;
    let spec = VolumeSpec { capacity, ..VolumeSpec::new(name, 8 * MIB) };
    let volume = engine.create_volume(spec).expect("it fits");
    volume.write(0, &[noise(1), noise(2)].concat()).expect("it is guaranteed");
    let claimed = || engine.usage().claimed_bytes;
    assert_eq!(claimed(), 8 * MIB - 2 * BLOCK);
    pool.flip_bit_in(&noise(1)[500..600]);
    pool.flip_bit_in(&noise(2)[500..600]);
    assert_eq!(scrub(&engine), 2);
    assert_eq!(claimed(), 8 * MIB - BLOCK, "one is lost, and one was healed");
    volume.write(0, &noise(1)).expect("it is guaranteed");
    assert_eq!(claimed(), 8 * MIB - 2 * BLOCK);
}

#[test]
fn an_old_copy_is_not_taken_for_the_right_one() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    engine.set_healer(Arc::new(Copies(Mutex::new(vec![(3, noise(9))]))));
    let volume = create(&engine, "one");
    volume.write(3 * BLOCK, &noise(1)).expect("there is room");
    pool.flip_bit_in(&noise(1)[500..600]);
    assert_eq!(scrub(&engine), 1);
    assert_eq!(engine.take_damage_reports(), [report("one", 3, false)]);
    assert_eq!(read(&volume, 3), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn a_reader_that_verifies_finds_damage_before_the_scrub() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    engine.set_healer(Arc::new(Copies(Mutex::new(vec![(1, noise(2))]))));
    let volume = create(&engine, "one");
    volume.write(0, &[noise(1), noise(2), noise(3)].concat()).expect("there is room");
    pool.flip_bit_in(&noise(1)[500..600]);
    pool.flip_bit_in(&noise(2)[500..600]);
    assert!(read(&volume, 0).is_ok(), "nothing looks");
    engine.set_verify_reads(true);
    assert_eq!(read(&volume, 0), Err(DeviceErrorKind::Corrupt));
    assert!(read(&volume, 1) == Ok(noise(2)), "there is a copy");
    assert!(read(&volume, 2) == Ok(noise(3)));
    let reports = [report("one", 0, false), report("one", 1, true)];
    assert_eq!(engine.take_damage_reports(), reports);
    let mut three = vec![0; 3 * 4096];
    let error = volume.read(0, &mut three).expect_err("the first is lost");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    let error = volume.write(512, &[1; 512]).expect_err("the rest is lost");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
}

/// Creates a pool with a block whose page is damaged, and copies of some blocks.
fn damaged(copies: Vec<(u64, Vec<u8>)>) -> (Pool, Engine, Arc<Volume>) {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    engine.set_healer(Arc::new(Copies(Mutex::new(copies))));
    let volume = create(&engine, "one");
    volume.write(3 * BLOCK, &noise(1)).expect("there is room");
    pool.flip_bit_in(&noise(1)[500..600]);
    (pool, engine, volume)
}

#[test]
fn a_part_of_a_damaged_block_is_changed_only_once_the_rest_is_mended() {
    let (_pool, engine, volume) = damaged(Vec::new());
    let error = volume.write(3 * BLOCK + 1024, &[7; 512]).expect_err("the rest is lost");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    assert_eq!(engine.take_damage_reports(), [report("one", 3, false)]);
    assert_eq!(read(&volume, 3), Err(DeviceErrorKind::Corrupt));

    let (_pool, _engine, volume) = damaged(Vec::new());
    let range = ByteRange::new(3 * BLOCK + 1024, 512);
    let error = volume.write_zeroes(range, Zeroes::KeepAllocated).expect_err("the rest is lost");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);

    let (_pool, engine, volume) = damaged(vec![(3, noise(1))]);
    volume.write(3 * BLOCK + 1024, &[7; 512]).expect("the rest is mended");
    assert_eq!(engine.take_damage_reports(), [report("one", 3, true)]);
    let mut expected = noise(1);
    expected[1024..1536].fill(7);
    assert!(read(&volume, 3) == Ok(expected));
}

#[test]
fn what_is_stored_again_for_a_guarantee_is_not_taken_for_right() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let (one, two) = (create(&engine, "one"), create(&engine, "two"));
    one.write(0, &noise(1)).expect("there is room");
    two.write(0, &noise(1)).expect("there is room");
    pool.flip_bit_in(&noise(1)[500..600]);
    engine.set_capacity("one", CapacityClass::Guaranteed).expect("it fits");
    assert_eq!(scrub(&engine), 1);
    assert_eq!(read(&one, 0), Err(DeviceErrorKind::Corrupt));
    assert_eq!(read(&two, 0), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn what_is_compressed_is_not_taken_for_right() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = create(&engine, "one");
    let mut contents = noise(1);
    contents[1024..].fill(0);
    volume.write(0, &contents).expect("there is room");
    pool.flip_bit_in(&contents[500..600]);
    while engine.maintain() {}
    assert_eq!(scrub(&engine), 1);
    assert_eq!(read(&volume, 0), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn a_page_that_one_reader_found_damaged_is_mended_in_all_other_places_too() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    engine.set_healer(Arc::new(Copies(Mutex::new(vec![(0, noise(1)), (5, noise(1))]))));
    let volume = create(&engine, "one");
    volume.write(0, &noise(1)).expect("there is room");
    volume.write(5 * BLOCK, &noise(1)).expect("there is room");
    pool.flip_bit_in(&noise(1)[500..600]);
    engine.set_verify_reads(true);
    assert!(read(&volume, 0) == Ok(noise(1)));
    engine.set_verify_reads(false);
    assert_eq!(scrub(&engine), 1);
    assert!(read(&volume, 5) == Ok(noise(1)));
    assert_eq!(engine.take_damage_reports(), [report("one", 0, true), report("one", 5, true)]);
    assert_eq!(scrub(&engine), 0);
}

#[test]
fn a_damaged_page_in_a_full_pool_is_healed() {
    let pool = Pool::new(8 * MIB, 2);
    let engine = pool.open();
    engine.set_healer(Arc::new(Copies(Mutex::new(vec![(3, noise(1))]))));
    let volume = create(&engine, "one");
    volume.write(3 * BLOCK, &noise(1)).expect("there is room");
    let mut random = model::Random::new(77);
    let mut unique =
        || -> Vec<u8> { (0..512).flat_map(|_| random.number().to_le_bytes()).collect() };
    let filler = create(&engine, "filler");
    let mut written = 0;
    while filler.write(written * BLOCK, &unique()).is_ok() {
        written += 1;
    }
    // Overwrites also take the memory reserved for them.
    let copy = "copy".parse().expect("a good name");
    engine.create_snapshots(&["filler"], &copy, 1).expect("it takes no memory yet");
    let overwritten =
        (0..written).take_while(|block| filler.write(block * BLOCK, &unique()).is_ok());
    assert!((overwritten.count() as u64) < written, "the pool is full");
    pool.flip_bit_in(&noise(1)[500..600]);
    assert_eq!(scrub(&engine), 1);
    assert_eq!(engine.take_damage_reports(), [report("one", 3, true)]);
    assert!(read(&volume, 3) == Ok(noise(1)));
}

/// Healer with one block's contents for any request.
#[derive(Debug)]
struct OneBlock(Vec<u8>);

impl Healer for OneBlock {
    fn copy_of(&self, _: &DamagedBlock, place: CopyPlace, into: &mut [u8; 4096]) -> bool {
        into.copy_from_slice(&self.0);
        place == CopyPlace::Image
    }
}

/// Creates a volume whose blocks are all equal, more of them than one page may be shared by. The
/// first page is damaged and was detected.
fn many_damaged(healer: Option<OneBlock>) -> (Pool, Engine, Arc<Volume>) {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    healer.into_iter().for_each(|healer| engine.set_healer(Arc::new(healer)));
    let name = "many".parse().expect("a good name");
    let volume = engine.create_volume(VolumeSpec::new(name, COPIES * BLOCK));
    let volume = volume.expect("there is room");
    let run = noise(1).repeat(1000);
    for first in (0..COPIES).step_by(1000) {
        volume.write(first * BLOCK, &run).expect("there is room");
    }
    assert_eq!(engine.usage().page_count, 2, "no count has room for all");
    pool.flip_bit_in(&noise(1)[500..600]);
    assert_eq!(scrub(&engine), 1, "the first of the two is damaged");
    (pool, engine, volume)
}

const COPIES: u64 = 66_000;

#[test]
fn a_damaged_page_is_healed_in_all_blocks_that_have_it_however_many() {
    let (_pool, engine, volume) = many_damaged(Some(OneBlock(noise(1))));
    assert_eq!(volume.map().lost_blocks(), 0);
    let healed = engine.take_damage_reports();
    assert!(!healed.is_empty() && healed.iter().all(|it| it.healed_from.is_some()), "{healed:?}");
    let (run, mut found) = (noise(1).repeat(1000), vec![0; 1000 * 4096]);
    for first in (0..COPIES).step_by(1000) {
        volume.read(first * BLOCK, &mut found).expect("it is healed");
        assert!(found == run, "from block {first} on");
    }
    assert_eq!(scrub(&engine), 0, "no block has the damaged page any more");
}

#[test]
fn a_damaged_page_without_a_copy_is_lost_in_all_blocks_that_have_it_however_many() {
    let (_pool, engine, volume) = many_damaged(None);
    let lost = volume.map().lost_blocks();
    let is_lost = |block: &u64| read(&volume, *block) == Err(DeviceErrorKind::Corrupt);
    assert_eq!((0..COPIES).filter(is_lost).count() as u64, lost);
    // Reference counts have 16 bits.
    assert!((60_000..1 << 16).contains(&lost), "{lost} blocks had it");
    assert!(read(&volume, COPIES - 1) == Ok(noise(1)), "the other page is whole");
    assert_eq!(scrub(&engine), 0, "no block has the damaged page any more");
}
