//! Idle data is compressed once more, and restored when it is read.

mod support;

use std::sync::{Arc, Mutex};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, SectorSize};
use model::{Block, Contents, Random, Texture};
use support::{Pool, check_sound_when_empty, check_sums, compress_idle, settle};
use volumes::{
    CapacityClass, CopyPlace, DamagedBlock, Durability, Engine, Healer, Reduction, StoredBytes,
    Volume, VolumeName, VolumeSpec,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

/// Number of blocks of a leaf.
const LEAF: u64 = 512;

fn create(engine: &Engine, name: &str, reduction: Reduction) -> Arc<Volume> {
    let spec = VolumeSpec {
        sector: SectorSize::Bytes4096,
        reduction,
        ..VolumeSpec::new(name.parse().expect("a good name"), 64 * MIB)
    };
    engine.create_volume(spec).expect("a volume can be made")
}

/// Returns contents that LZ4 compresses, and zstd much more: letters, few of which are frequent.
fn letters(seed: u64) -> Block {
    let mut random = Random::new(seed ^ 0x1D7E);
    let few = b"etaoin shrdlu etaoin etao eeee  tttaaa";
    std::array::from_fn(|index| match index % 16 {
        ..6 => b"volume"[index % 16],
        _ => few[random.index(few.len())],
    })
}

/// Returns contents of 64 equally frequent values: nothing repeats, but two bits of each byte can
/// be saved.
fn values(seed: u64) -> Block {
    let mut random = Random::new(seed);
    std::array::from_fn(|_| b'0' + u8::try_from(random.index(64)).expect("small"))
}

fn write(volume: &Volume, blocks: impl Iterator<Item = u64>, contents: impl Fn(u64) -> Block) {
    for block in blocks {
        volume.write(block * BLOCK, &contents(block)).expect("the write succeeds");
    }
}

fn read(volume: &Volume, block: u64) -> Result<Block, DeviceErrorKind> {
    let mut found = [0xEE; 4096];
    volume.read(block * BLOCK, &mut found).map(|()| found).map_err(|error| error.kind)
}

#[track_caller]
fn check_holds(
    volume: &Volume,
    blocks: impl Iterator<Item = u64>,
    contents: impl Fn(u64) -> Block,
) {
    for block in blocks {
        assert!(read(volume, block) == Ok(contents(block)), "block {block}");
    }
}

/// Creates a pool with a volume of `count` blocks of letters, all of them in LZ4.
fn furnished(pool: &Pool, count: u64) -> (Engine, Arc<Volume>) {
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 0..count, letters);
    settle(&engine);
    (engine, volume)
}

/// Lets a whole period pass without any use, and performs all work of the next.
fn idle(engine: &Engine) {
    engine.begin_idle_period();
    compress_idle(engine, usize::MAX);
    settle(engine);
}

fn idle_pages(engine: &Engine) -> u64 {
    engine.usage().idle_page_count
}

#[test]
fn what_is_not_used_for_a_period_takes_less_memory_and_reads_the_same() {
    let pool = Pool::new(32 * MIB, 2);
    let (engine, volume) = furnished(&pool, 1200);
    let before = engine.usage();
    compress_idle(&engine, usize::MAX);
    assert_eq!(idle_pages(&engine), 0, "it was written in the period that ends");
    compress_idle(&engine, usize::MAX);
    settle(&engine);
    let after = engine.usage();
    assert_eq!((after.idle_page_count, after.page_count), (1200, 1200));
    assert!(after.page_bytes < before.page_bytes * 9 / 10, "{before:?} and {after:?}");
    assert_eq!(after.idle_saved_bytes, before.page_bytes - after.page_bytes);
    check_sums(&engine);
    check_holds(&volume, 0..1200, letters);
    check_sound_when_empty(&engine);
}

#[test]
fn contents_that_lz4_leaves_as_they_are_become_smaller_too() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 0..100, values);
    settle(&engine);
    assert_eq!(engine.usage().page_bytes, 100 * BLOCK);
    idle(&engine);
    assert!(engine.usage().page_bytes < 90 * BLOCK, "{:?}", engine.usage());
    check_holds(&volume, 0..100, values);
    settle(&engine);
    assert_eq!(engine.usage().page_bytes, 100 * BLOCK, "and stay as they are once they are read");
    check_sound_when_empty(&engine);
}

#[test]
fn a_leaf_that_is_used_stays_as_it_is() {
    let pool = Pool::new(32 * MIB, 2);
    let (engine, volume) = furnished(&pool, 3 * LEAF);
    for _ in 0..3 {
        engine.begin_idle_period();
        assert!(read(&volume, 5) == Ok(letters(5)));
        volume.write((2 * LEAF + 7) * BLOCK, &letters(1)).expect("there is room");
    }
    compress_idle(&engine, usize::MAX);
    assert_eq!(idle_pages(&engine), LEAF, "only the leaf in the middle is idle");
    // Also while the work continues.
    assert!(read(&volume, 5) == Ok(letters(5)));
    compress_idle(&engine, usize::MAX);
    assert_eq!(idle_pages(&engine), 2 * LEAF - 1, "but for the one with two names");
}

#[test]
fn a_page_that_is_read_is_brought_back_and_the_rest_of_its_leaf_stays() {
    let pool = Pool::new(32 * MIB, 2);
    let (engine, volume) = furnished(&pool, LEAF);
    let before = engine.usage().page_bytes;
    idle(&engine);
    let small = engine.usage().page_bytes;
    assert!(read(&volume, 9) == Ok(letters(9)));
    let mut several = vec![0; 3 * 4096];
    volume.read(20 * BLOCK, &mut several).expect("it is there");
    let (range, mut shown) = (ByteRange::new(40 * BLOCK, BLOCK), 0);
    let mut scratch = vec![0; 4096];
    let see = &mut |slices: &[std::io::IoSlice<'_>]| shown += slices.len();
    volume.read_in_place(range, &mut scratch, see).expect("it is there");
    assert_eq!(shown, 1);
    settle(&engine);
    assert_eq!(idle_pages(&engine), LEAF - 5);
    assert!(engine.usage().page_bytes > small);
    check_holds(&volume, 0..LEAF, letters);
    settle(&engine);
    let usage = engine.usage();
    assert_eq!((usage.idle_page_count, usage.page_bytes), (0, before), "all is as it was");
    idle(&engine);
    idle(&engine);
    assert_eq!(engine.usage().page_bytes, small, "and as it was again");
    check_sound_when_empty(&engine);
}

#[test]
fn a_page_of_several_names_stays_as_it_is() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 0..64, |block| letters(block % 32));
    settle(&engine);
    idle(&engine);
    assert_eq!(idle_pages(&engine), 0);
    assert_eq!(engine.usage().page_count, 32);
}

#[test]
fn a_page_that_has_lost_its_other_names_is_compressed_in_the_end() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, _volume) = furnished(&pool, 32);
    let copy = create(&engine, "copy", Reduction::Full);
    write(&copy, 0..32, letters);
    idle(&engine);
    assert_eq!(idle_pages(&engine), 0);
    drop(copy);
    engine.delete_volume("copy").expect("it is there");
    settle(&engine);
    for _ in 0..16 {
        compress_idle(&engine, usize::MAX);
    }
    assert_eq!(idle_pages(&engine), 32);
}

#[test]
fn contents_that_are_written_again_share_the_page() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, volume) = furnished(&pool, 100);
    idle(&engine);
    let copy = create(&engine, "copy", Reduction::Full);
    write(&copy, 0..100, letters);
    let usage = engine.usage();
    assert_eq!((usage.page_count, usage.pending_bytes, usage.idle_page_count), (100, 0, 100));
    check_holds(&copy, 0..100, letters);
    settle(&engine);
    check_holds(&volume, 0..100, letters);
    settle(&engine);
    let usage = engine.usage();
    assert_eq!((usage.page_count, usage.idle_page_count), (100, 0), "both have one page again");
    check_sound_when_empty(&engine);
}

#[test]
fn a_page_of_several_names_does_not_fall_apart_as_they_are_read_one_after_the_other() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, volume) = furnished(&pool, 100);
    idle(&engine);
    let copy = create(&engine, "copy", Reduction::Full);
    write(&copy, 0..100, letters);
    assert_eq!(engine.usage().page_count, 100);
    idle(&engine);
    for reader in [&copy, &volume] {
        check_holds(reader, 0..100, letters);
        settle(&engine);
        idle(&engine);
        idle(&engine);
    }
    for _ in 0..16 {
        idle(&engine);
    }
    assert_eq!((engine.usage().page_count, idle_pages(&engine)), (100, 100));
    check_holds(&volume, 0..100, letters);
    check_holds(&copy, 0..100, letters);
    check_sound_when_empty(&engine);
}

#[test]
fn pages_of_small_slots_are_left_alone_unless_a_smaller_slot_will_do() {
    // Contents that LZ4 compresses below the smallest slot class.
    let sparse = |block: u64| {
        let mut contents = [0; 4096];
        contents[100..108].copy_from_slice(&(block + 77).to_le_bytes());
        contents
    };
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 0..100, sparse);
    settle(&engine);
    let before = engine.usage().page_bytes;
    idle(&engine);
    idle(&engine);
    let after = engine.usage();
    assert_eq!((after.idle_page_count, after.page_bytes), (0, before));
    check_holds(&volume, 0..100, sparse);
}

#[test]
fn readers_of_idle_data_do_not_keep_other_work_waiting() {
    let pool = Pool::new(32 * MIB, 2);
    let (engine, volume) = furnished(&pool, 2 * LEAF);
    idle(&engine);
    assert_eq!(idle_pages(&engine), 2 * LEAF);
    let other = create(&engine, "other", Reduction::Full);
    write(&other, 0..64, |block| letters(block + 5000));
    assert!(engine.usage().pending_bytes > 0);
    check_holds(&volume, 0..2 * LEAF, letters);
    for _ in 0..20 {
        engine.maintain();
    }
    assert_eq!(engine.usage().pending_bytes, 0, "compressed meanwhile");
    assert!(idle_pages(&engine) > LEAF, "there is more to bring back");
    settle(&engine);
    assert_eq!(idle_pages(&engine), 0);
}

#[test]
fn overwrites_and_discards_free_what_they_replace() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, volume) = furnished(&pool, 100);
    idle(&engine);
    write(&volume, 0..10, |block| letters(block + 1000));
    // A change of a part of a block keeps the rest.
    volume.write(10 * BLOCK + 512, &[7; 512]).expect("there is room");
    let mut part = letters(10);
    part[512..1024].fill(7);
    volume.discard(ByteRange::new(20 * BLOCK, 10 * BLOCK)).expect("it is there");
    settle(&engine);
    assert_eq!(idle_pages(&engine), 79);
    assert!(read(&volume, 10) == Ok(part));
    check_holds(&volume, 0..10, |block| letters(block + 1000));
    check_holds(&volume, 30..100, letters);
    check_sound_when_empty(&engine);
}

#[test]
fn other_reductions_and_claimed_memory_are_left_alone() {
    for reduction in [Reduction::Compress, Reduction::Dedup, Reduction::None] {
        let pool = Pool::new(16 * MIB, 1);
        let engine = pool.open();
        write(&create(&engine, "v", reduction), 0..64, letters);
        settle(&engine);
        idle(&engine);
        assert_eq!(idle_pages(&engine), 0, "{reduction}");
    }
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let spec = VolumeSpec {
        capacity: CapacityClass::Guaranteed,
        ..VolumeSpec::new("v".parse().expect("a good name"), 4 * MIB)
    };
    let volume = engine.create_volume(spec).expect("there is room");
    write(&volume, 0..64, letters);
    let name: VolumeName = "s".parse().expect("a good name");
    engine.create_snapshots(&["v"], &name, 1).expect("there is room");
    settle(&engine);
    idle(&engine);
    idle(&engine);
    assert_eq!(idle_pages(&engine), 0, "nor through a snapshot");
}

#[test]
fn copies_of_a_volume_are_used_together() {
    let pool = Pool::new(32 * MIB, 2);
    let (engine, volume) = furnished(&pool, 2 * LEAF);
    let clone = engine.clone_volume("v", "clone".parse().expect("a good name"));
    let clone = clone.expect("there is room");
    idle(&engine);
    engine.begin_idle_period();
    assert!(read(&clone, 5) == Ok(letters(5)));
    idle(&engine);
    settle(&engine);
    assert_eq!(engine.usage().page_count, 2 * LEAF);
    check_holds(&volume, 0..2 * LEAF, letters);
    check_holds(&clone, 0..2 * LEAF, letters);
    write(&clone, 0..5, |block| letters(block + 7000));
    settle(&engine);
    idle(&engine);
    idle(&engine);
    check_holds(&volume, 0..2 * LEAF, letters);
    check_sound_when_empty(&engine);
}

#[test]
fn idle_pages_outlive_any_end_and_are_counted() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, volume) = furnished(&pool, 300);
    idle(&engine);
    let before = engine.usage();
    assert_eq!(before.idle_page_count, 300);
    drop(volume);
    engine.close();
    let engine = pool.open();
    let found = engine.usage();
    assert_eq!((found.idle_page_count, found.idle_saved_bytes), (300, before.idle_saved_bytes));
    drop(engine);
    let engine = pool.open();
    settle(&engine);
    let found = engine.usage();
    assert_eq!((found.idle_page_count, found.idle_saved_bytes), (300, before.idle_saved_bytes));
    check_holds(&engine.volume("v").expect("it is there"), 0..300, letters);
    check_sound_when_empty(&engine);
}

#[test]
fn a_pool_is_for_this_release_alone_while_it_has_idle_pages() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, volume) = furnished(&pool, 30);
    // The newest version that releases without idle pages support.
    let known = 3;
    assert!(pool.layout_version() <= known);
    idle(&engine);
    assert!(idle_pages(&engine) > 0 && pool.layout_version() > known);
    drop(volume);
    drop(engine);
    let engine = pool.open();
    assert!(pool.layout_version() > known);
    let volume = engine.volume("v").expect("it is there");
    check_holds(&volume, 0..30, letters);
    settle(&engine);
    assert_eq!(idle_pages(&engine), 0);
    drop(volume);
    engine.close();
    drop(pool.open());
    assert!(pool.layout_version() <= known);
}

#[test]
fn damaged_pages_are_not_compressed_as_if_they_were_intact() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 0..3, values);
    settle(&engine);
    pool.flip_bit_in(&values(1)[100..200]);
    idle(&engine);
    assert_eq!(idle_pages(&engine), 2);
    engine.set_verify_reads(true);
    assert_eq!(read(&volume, 1), Err(DeviceErrorKind::Corrupt));
    check_holds(&volume, [0, 2].into_iter(), values);
}

#[test]
fn sparse_slabs_of_idle_pages_are_emptied() {
    let pool = Pool::new(32 * MIB, 2);
    let (engine, volume) = furnished(&pool, 3000);
    idle(&engine);
    let full = engine.usage();
    for block in (0..3000).filter(|block| block % 8 != 0) {
        volume.discard(ByteRange::new(block * BLOCK, BLOCK)).expect("it is there");
    }
    for _ in 0..5 {
        settle(&engine);
    }
    let sparse = engine.usage();
    assert_eq!(sparse.idle_page_count, 375);
    assert!(sparse.used_bytes < full.used_bytes / 2, "{full:?} and {sparse:?}");
    assert!(sparse.idle_saved_bytes < full.idle_saved_bytes / 7);
    check_holds(&volume, (0..3000).step_by(8), letters);
    check_sound_when_empty(&engine);
}

/// Images and the journal get the same bytes of idle pages as without idle compression.
#[test]
fn savers_see_idle_pages_as_they_were_before() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, volume) = furnished(&pool, 50);
    let wanted: Vec<u16> = (0..50).collect();
    let show = || {
        let mut shown = Vec::new();
        let damaged = volume.map().show_leaf(0, &wanted, &mut |index, bytes| {
            shown.push((index, matches!(bytes, StoredBytes::Raw(_)), bytes.as_stored().to_vec()));
        });
        assert!(damaged.is_empty());
        shown
    };
    let before = show();
    idle(&engine);
    assert_eq!(idle_pages(&engine), 50);
    assert!(show() == before);
    assert_eq!(idle_pages(&engine), 50, "they stay idle");
}

#[test]
fn the_journal_gets_idle_pages_and_settles_them() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let spec = VolumeSpec {
        durability: Durability::Journal,
        ..VolumeSpec::new("v".parse().expect("a good name"), 4 * MIB)
    };
    let volume = engine.create_volume(spec).expect("there is room");
    write(&volume, 0..20, letters);
    settle(&engine);
    idle(&engine);
    idle(&engine);
    assert_eq!(idle_pages(&engine), 20);
    let mut walk = volume.walk_unjournaled().expect("leaves are marked");
    while let Some(capture) = walk.capture(7) {
        for (block, contents) in capture.blocks() {
            let volumes::CapturedContents::Page(page) = contents else { panic!("a page") };
            assert!(page.bytes == StoredBytes::Raw(&letters(block)), "block {block}");
        }
        capture.settle(u64::MAX);
    }
    walk.end();
    assert!(volume.walk_unjournaled().is_none_or(|mut walk| walk.capture(1).is_none()));
    check_sound_when_empty(&engine);
}

/// Healer with copies of blocks, by number.
#[derive(Debug)]
struct Copies(Mutex<Vec<(u64, Block)>>);

impl Healer for Copies {
    fn copy_of(&self, damaged: &DamagedBlock, place: CopyPlace, into: &mut Block) -> bool {
        let copies = self.0.lock().expect("no thread panics");
        let is_it = |known: u64| known == damaged.block && place == CopyPlace::Image;
        let copy = copies.iter().find(|(known, _)| is_it(*known));
        copy.inspect(|(_, bytes)| *into = *bytes).is_some()
    }
}

/// First bytes of the dense form, which no other form has.
const FRAME: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

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

#[test]
fn damage_to_idle_pages_is_found_and_healed() {
    let pool = Pool::new(16 * MIB, 1);
    let (engine, volume) = furnished(&pool, 3);
    engine.set_healer(Arc::new(Copies(Mutex::new(vec![(1, letters(1))]))));
    idle(&engine);
    assert_eq!(scrub(&engine), 0);
    assert_eq!(pool.flip_bit_in_each(&FRAME), 3);
    assert_eq!(scrub(&engine), 3);
    assert_eq!(engine.take_damage_reports().len(), 3);
    assert!(read(&volume, 1) == Ok(letters(1)), "it was healed");
    assert_eq!(read(&volume, 0), Err(DeviceErrorKind::Corrupt));
    write(&volume, 0..3, letters);
    check_holds(&volume, 0..3, letters);
}

#[test]
fn a_damaged_idle_page_is_never_read_as_something_else() {
    // Position of the flipped bit, from the start of the frame.
    for at in [0, 5, 12, 40, 200, 700] {
        let pool = Pool::new(16 * MIB, 1);
        let (engine, volume) = furnished(&pool, 1);
        engine.set_verify_reads(true);
        idle(&engine);
        assert_eq!(idle_pages(&engine), 1);
        pool.flip_bit_after(&FRAME, at);
        assert_eq!(read(&volume, 0), Err(DeviceErrorKind::Corrupt), "a flip at {at}");
    }
}

#[test]
fn noise_is_not_made_smaller() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = create(&engine, "v", Reduction::Full);
    write(&volume, 0..64, |block| Contents::new(Texture::Noise, block).block(0));
    settle(&engine);
    idle(&engine);
    assert_eq!((idle_pages(&engine), engine.usage().page_bytes), (0, 64 * BLOCK));
}
