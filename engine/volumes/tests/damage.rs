//! Pools at the limits of their counters, and pools whose memory was damaged.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, SectorSize};
use model::{Contents, Random, Texture};
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{VolumeErrorKind, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: usize = block_device::BLOCK_BYTES;

fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new(name.parse().expect("a good name"), size_bytes)
    }
}

fn read(volume: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    volume.read(offset, &mut bytes).expect("the read succeeds");
    bytes
}

/// Goal: contents that more blocks share than one count can tell are kept once more, and a kill
/// does not confuse the counts.
#[test]
fn contents_may_be_shared_more_often_than_a_count_has_room_for() {
    const COPIES: usize = 70_000;
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let size_bytes = (COPIES * BLOCK) as u64;
    let volume = engine.create_volume(spec("v", size_bytes)).expect("a volume can be made");
    let block = Contents::new(Texture::Noise, 1).block(0);
    let run = block.repeat(1000);
    for copy in 0..COPIES / 1000 {
        volume.write((copy * run.len()) as u64, &run).expect("the write succeeds");
    }
    assert_eq!(engine.usage().page_count, 2);
    drop(volume);
    drop(engine);
    let engine = pool.open();
    settle(&engine);
    check_sums(&engine);
    assert_eq!(engine.usage().page_count, 2);
    let volume = engine.volume("v").expect("it is there");
    assert!(read(&*volume, size_bytes - BLOCK as u64, BLOCK) == block);
    // One less: there is room for another again, without a third page.
    volume.discard(ByteRange::new(0, BLOCK as u64)).expect("the discard succeeds");
    volume.write(0, &block).expect("the write succeeds");
    assert_eq!(engine.usage().page_count, 2);
    check_sound_when_empty(&engine);
}

#[test]
fn rewriting_the_same_contents_does_not_hide_them_from_the_dedup_index() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", MIB)).expect("a volume can be made");
    let contents = Contents::new(Texture::Noise, 1);
    for _ in 0..20 {
        volume.write(0, &contents.block(0)).expect("the write succeeds");
        volume.write(0, &contents.block(1)).expect("the write succeeds");
    }
    volume.write(8192, &contents.block(0)).expect("the write succeeds");
    volume.write(12288, &contents.block(0)).expect("the write succeeds");
    assert_eq!(engine.usage().page_count, 2, "one page for each of two contents");
}

#[test]
fn a_damaged_page_is_an_error_and_harms_no_other() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", MIB)).expect("a volume can be made");
    let marker = b"0123456789ABCDEFGHIJ";
    let mut block = b"shrinks well; ".repeat(BLOCK)[..BLOCK].to_vec();
    block[..marker.len()].copy_from_slice(marker);
    volume.write(0, &block).expect("the write succeeds");
    let other = Contents::new(Texture::Mixed, 4).bytes(16 * BLOCK);
    volume.write(8192, &other).expect("the write succeeds");
    settle(&engine);
    drop(volume);
    engine.close();
    pool.damage_around(marker);
    let engine = pool.open();
    let volume = engine.volume("v").expect("it is there");
    let error = volume.read(0, &mut [0; BLOCK]).expect_err("the page is damaged");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    let error = volume.write(1, &[1]).expect_err("a part cannot be changed");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    assert!(read(&*volume, 8192, other.len()) == other);
    volume.write(0, &block).expect("a whole block can be written");
    assert!(read(&*volume, 0, BLOCK) == block);
    assert!(engine.withheld_bytes() > 0, "the memory may be what is damaged");
    drop(volume);
    engine.close();
    check_sound_when_empty(&pool.open());
}

#[test]
fn a_full_volume_table_refuses_and_takes_again_after_a_delete() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let refused = (0..10_000).find_map(|nth| {
        engine.create_volume(spec(&format!("v{nth}"), MIB)).err().map(|error| (nth, error.kind))
    });
    let (count, kind) = refused.expect("the table has an end");
    assert_eq!(kind, VolumeErrorKind::TooManyVolumes);
    assert!(count >= 1000, "there is room for {count} volumes");
    engine.delete_volume("v7").expect("the volume is deleted");
    engine.create_volume(spec("again", MIB)).expect("there is room for one");
}

/// What stops the program when a damaged count is met: going on could give memory away twice.
const STOP: &str = "a reference count never falls below zero";

/// Goal: whatever a region says, the engine reads and stores only inside it, comes to an end, and
/// stops for nothing but a count that is too low.
/// Method: change some words of a pool in use, where tables and nodes lie too; then use it.
#[test]
fn damaged_words_anywhere_are_survived() {
    model::for_each_seed("cargo test -p volumes --test damage anywhere", 150, |seed| {
        let mut random = Random::new(seed);
        let pool = Pool::new(4 * MIB, 1);
        let engine = pool.open();
        for name in ["v", "w"] {
            let volume = engine.create_volume(spec(name, 8 * MIB)).expect("a volume can be made");
            let bytes = Contents::new(Texture::Mixed, 5).bytes(64 * BLOCK);
            volume.write(0, &bytes).expect("the write succeeds");
            volume.write(4 * MIB, &bytes).expect("the write succeeds");
        }
        match random.below(2) {
            0 => engine.close(),
            _ => drop(engine),
        }
        pool.damage_words(&mut random);
        let used = catch_unwind(AssertUnwindSafe(|| use_damaged(&pool, &mut random)));
        if let Err(payload) = used {
            let is_stop = payload.downcast_ref::<&str>() == Some(&STOP);
            assert!(is_stop, "stopped for something else");
        }
    });
}

/// Does a bit of everything. Any answer will do.
fn use_damaged(pool: &Pool, random: &mut Random) {
    let engine = pool.open();
    for step in 0..3 {
        for volume in engine.volumes() {
            let size_bytes = volume.geometry().size_bytes;
            let mut random_at = || random.below(size_bytes.clamp(1, 8 * MIB));
            for texture in Texture::ALL {
                let bytes = Contents::new(texture, step).bytes(3 * BLOCK);
                let _answer = volume.write(random_at(), &bytes);
                let _answer = volume.read(random_at(), &mut vec![0; 9 * BLOCK]);
                let _answer = volume.discard(ByteRange::new(random_at(), 9 * BLOCK as u64));
                let _answer = volume.extents(ByteRange::new(0, size_bytes), 50);
            }
            let _usage = volume.usage();
        }
        let _usage = engine.usage();
        let _worked = (0..step * 50).take_while(|_| engine.maintain()).count();
    }
    for volume in engine.volumes() {
        let _answer = engine.delete_volume(&volume.name());
    }
    engine.close();
    drop(pool.open());
}
