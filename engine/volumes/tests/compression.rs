//! Contents that are stored uncompressed at first, and compressed in the background.

mod support;

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, SectorSize};
use model::{Block, Contents, Random, Texture};
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{Engine, Reduction, Volume, VolumeSpec, Work};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

fn create(engine: &Engine, name: &str, reduction: Reduction) -> Arc<Volume> {
    let spec = VolumeSpec {
        sector: SectorSize::Bytes4096,
        reduction,
        ..VolumeSpec::new(name.parse().expect("a good name"), 64 * MIB)
    };
    engine.create_volume(spec).expect("a volume can be made")
}

/// Returns contents that shrink to a little more than half.
fn half_noise(seed: u64) -> Block {
    let mut block = [0; 4096];
    let mut random = Random::new(seed);
    for bytes in block[..2048].as_chunks_mut::<8>().0 {
        *bytes = random.number().to_le_bytes();
    }
    block
}

fn noise(seed: u64) -> Block {
    Contents::new(Texture::Noise, seed).block(0)
}

/// Writes `count` blocks from the start of a volume.
fn write(volume: &Volume, count: u64, contents: impl Fn(u64) -> Block) {
    for block in 0..count {
        volume.write(block * BLOCK, &contents(block)).expect("the write succeeds");
    }
}

#[track_caller]
fn check_holds(volume: &Volume, count: u64, contents: impl Fn(u64) -> Block) {
    for block in 0..count {
        let mut found = [0xEE; 4096];
        volume.read(block * BLOCK, &mut found).expect("the read succeeds");
        assert!(found == contents(block), "block {block}");
    }
}

#[test]
fn what_shrinks_is_stored_as_it_is_and_shrinks_in_the_background() {
    for reduction in [Reduction::Full, Reduction::Compress] {
        let pool = Pool::new(32 * MIB, 2);
        let engine = pool.open();
        let volume = create(&engine, "v", reduction);
        write(&volume, 2048, half_noise);
        let before = engine.usage();
        assert_eq!((before.page_bytes, before.pending_bytes), (8 * MIB, 8 * MIB));
        settle(&engine);
        let after = engine.usage();
        assert_eq!((after.page_count, after.pending_bytes), (2048, 0));
        assert!(after.page_bytes < 5 * MIB, "{reduction}: {after:?}");
        assert!(after.used_bytes < before.used_bytes - 2 * MIB, "slabs are free again: {after:?}");
        check_holds(&volume, 2048, half_noise);
        check_sums(&engine);
        check_sound_when_empty(&engine);
    }
}

#[test]
fn what_does_not_shrink_is_tried_once() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 64, noise);
    assert_eq!(engine.usage().pending_bytes, 64 * BLOCK);
    settle(&engine);
    let settled = engine.usage();
    assert_eq!((settled.pending_bytes, settled.page_bytes), (0, 64 * BLOCK));
    let copy = create(&engine, "copy", Reduction::Full);
    write(&copy, 64, noise);
    let shared = engine.usage();
    assert_eq!((shared.pending_bytes, shared.page_count), (0, 64), "what is known stays known");
    check_sound_when_empty(&engine);
}

#[test]
fn a_page_of_many_names_is_compressed_once_and_all_of_them_follow() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volumes = ["a", "b", "c"].map(|name| create(&engine, name, Reduction::Full));
    for volume in &volumes {
        write(volume, 700, |block| half_noise(block % 10));
    }
    assert_eq!(engine.usage().page_count, 10);
    settle(&engine);
    let usage = engine.usage();
    assert_eq!((usage.page_count, usage.pending_bytes), (10, 0));
    assert!(usage.page_bytes < 10 * 2500, "{usage:?}");
    for volume in &volumes {
        check_holds(volume, 700, |block| half_noise(block % 10));
    }
    write(&volumes[0], 1, |_| half_noise(9));
    assert_eq!(engine.usage().pending_bytes, 0, "writers find the compressed page");
    check_sound_when_empty(&engine);
}

#[test]
fn a_volume_without_compression_leaves_all_as_it_is() {
    for reduction in [Reduction::Dedup, Reduction::None] {
        let pool = Pool::new(16 * MIB, 1);
        let engine = pool.open();
        let volume = create(&engine, "v", reduction);
        write(&volume, 64, half_noise);
        settle(&engine);
        let usage = engine.usage();
        assert_eq!((usage.pending_bytes, usage.page_bytes), (0, 64 * BLOCK), "{reduction}");
    }
}

#[test]
fn equal_contents_of_volumes_with_and_without_compression_stay_one_page() {
    for [first, second] in
        [[Reduction::Full, Reduction::Dedup], [Reduction::Dedup, Reduction::Full]]
    {
        let pool = Pool::new(16 * MIB, 1);
        let engine = pool.open();
        for (name, reduction) in [("a", first), ("b", second)] {
            write(&create(&engine, name, reduction), 64, half_noise);
        }
        settle(&engine);
        let usage = engine.usage();
        assert_eq!((usage.pending_bytes, usage.page_count), (0, 64), "{first}, then {second}");
    }
}

#[test]
fn what_waits_to_be_compressed_still_does_after_any_end() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 600, half_noise);
    drop(volume);
    engine.close();
    let engine = pool.open();
    assert_eq!(engine.usage().pending_bytes, 600 * BLOCK);
    drop(engine); // As a kill: nothing is marked or lowered.
    let engine = pool.open();
    settle(&engine);
    let usage = engine.usage();
    assert_eq!((usage.page_count, usage.pending_bytes), (600, 0));
    assert!(usage.page_bytes < 600 * 2500, "{usage:?}");
    check_holds(&engine.volume("v").expect("it is there"), 600, half_noise);
    check_sound_when_empty(&engine);
}

#[test]
fn what_is_overwritten_or_discarded_meanwhile_is_not_compressed() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 600, half_noise);
    engine.maintain_only(Work::ButCompression);
    assert_eq!(engine.usage().pending_bytes, 600 * BLOCK);
    write(&volume, 300, |_| [7; 4096]);
    assert_eq!(engine.usage().pending_bytes, 300 * BLOCK);
    volume.discard(ByteRange::new(0, 64 * MIB)).expect("a discard always works");
    assert_eq!(engine.usage().pending_bytes, 0);
    check_sound_when_empty(&engine);
}

/// Without maintenance: writers compress when memory is short, and existing pages when it is
/// exhausted.
#[test]
fn a_pool_takes_more_of_what_shrinks_than_it_has_bytes() {
    for pool_mib in [16, 32] {
        let pool = Pool::new(pool_mib * MIB, 2);
        let engine = pool.open();
        let volume = create(&engine, "v", Reduction::Full);
        let written = (0..).find(|&block| {
            let result = volume.write(block * BLOCK, &half_noise(block));
            result.is_err_and(|error| {
                let is_end = error.kind == DeviceErrorKind::OutOfRange;
                assert!(is_end || error.kind == DeviceErrorKind::NoSpace, "{error}");
                true
            })
        });
        let written = written.expect("no pool is endless");
        let bytes = written * BLOCK;
        assert!(bytes > pool_mib * MIB * 3 / 2, "{bytes} bytes in {pool_mib} MiB");
        check_holds(&volume, written, half_noise);
        check_sound_when_empty(&engine);
    }
}

#[test]
fn nothing_is_pending_when_all_is_compressed_though_a_snapshot_shares_it() {
    let pool = Pool::new(32 << 20, 2);
    let engine = pool.open();
    let spec = VolumeSpec::new("v".parse().expect("a good name"), 16 << 20);
    let volume = engine.create_volume(spec).expect("there is room");
    for block in 0..600_u64 {
        let mut text = format!("text that shrinks {block} ").repeat(300).into_bytes();
        text.truncate(4096);
        volume.write(block * 4096, &text).expect("there is room");
    }
    let name = "s".parse().expect("a good name");
    engine.create_snapshots(&["v"], &name, 1).expect("there is room");
    settle(&engine);
    assert_eq!(engine.usage().pending_bytes, 0);
    assert!(engine.usage().page_bytes < 600 * 1000, "{:?}", engine.usage());
}
