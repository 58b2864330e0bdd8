//! Growing and shrinking of pools in use.

mod support;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind};
use model::{Contents, ModelVolume, Random, Texture, check_same, for_each_seed};
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{Engine, Reduction, ResizeErrorKind, ResizeProgress, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const CAPACITY_BYTES: u64 = 64 * MIB;

fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec::new(name.parse().expect("a good name"), size_bytes)
}

fn go_on(_: ResizeProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Writes noise to `count` blocks from `first` on.
fn fill(volume: &dyn BlockDevice, first: u64, count: u64) {
    for block in first..first + count {
        let contents = Contents::new(Texture::Noise, block).block(0);
        volume.write(block * BLOCK, &contents).expect("there is room");
    }
}

#[track_caller]
fn check_filled(volume: &dyn BlockDevice, first: u64, count: u64) {
    for block in first..first + count {
        let mut found = [0; 4096];
        volume.read(block * BLOCK, &mut found).expect("it is there");
        assert!(found == Contents::new(Texture::Noise, block).block(0), "block {block}");
    }
}

#[test]
fn a_pool_that_grows_has_room_for_more_and_takes_no_memory_before() {
    let pool = Pool::growable(8 * MIB, CAPACITY_BYTES, 2);
    let engine = pool.open();
    assert_eq!((engine.size_bytes(), engine.capacity_bytes()), (8 * MIB, CAPACITY_BYTES));
    assert!(pool.held_bytes() <= 8 * MIB);
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("it can be made");
    fill(&*volume, 0, 1024);
    let full = volume.write(32 * MIB, &Contents::new(Texture::Noise, 1).bytes(4 << 20));
    assert_eq!(full.expect_err("that is too much").kind, DeviceErrorKind::NoSpace);
    engine.set_size(32 * MIB, &mut go_on).expect("there is memory");
    assert!(pool.held_bytes() <= 32 * MIB);
    fill(&*volume, 1024, 4000);
    check_filled(&*volume, 0, 5024);
    assert_eq!(engine.usage().size_bytes, 32 * MIB);
    check_sums(&engine);
    drop(volume);
    check_sound_when_empty(&engine);
}

#[test]
fn a_pool_does_not_shrink_below_a_part_of_its_volume_table() {
    let pool = Pool::growable(32 * MIB, CAPACITY_BYTES, 2);
    drop(pool.open());
    pool.take_front_places();
    let engine = pool.open();
    // The first slab for the table is free at the beginning, the second is not.
    let first = engine.create_volume(spec("first", 32 * MIB)).expect("it can be made");
    fill(&*first, 0, 4000);
    for number in 1..512 {
        engine.create_volume(spec(&format!("v{number}"), MIB)).expect("it can be made");
    }
    let last = engine.create_volume(spec("last", MIB)).expect("it can be made");
    fill(&*last, 0, 3);
    drop(first);
    engine.delete_volume("first").expect("it is there");
    settle(&engine);
    let refused = engine.set_size(12 * MIB, &mut go_on).expect_err("the table lies further on");
    let ResizeErrorKind::Tables { needed_bytes } = refused.kind else { panic!("{refused}") };
    assert!((12 * MIB..32 * MIB).contains(&needed_bytes), "{refused}");
    assert_eq!(engine.usage().size_bytes, 32 * MIB);
    engine.set_size(needed_bytes, &mut go_on).expect("all of the table lies before that");
    check_filled(&*last, 0, 3);
    drop(last);
    let killed = pool.as_after_a_kill();
    drop(engine);
    for left in [pool, killed] {
        let engine = left.open();
        assert_eq!(engine.volumes().len(), 512);
        check_filled(&*engine.volume("last").expect("it is there"), 0, 3);
        check_sound_when_empty(&engine);
    }
}

#[test]
fn a_pool_that_shrinks_keeps_what_it_holds_and_gives_the_memory_back() {
    let pool = Pool::growable(48 * MIB, CAPACITY_BYTES, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 256 * MIB)).expect("it can be made");
    fill(&*volume, 0, 9000);
    // The remaining blocks lie scattered over all slabs.
    for block in (0..9000).filter(|block| block % 5 != 0) {
        volume.discard(ByteRange::new(block * BLOCK, BLOCK)).expect("a discard always works");
    }
    let mut told = Vec::new();
    let mut watch = |progress: ResizeProgress| {
        told.push(progress.left_bytes);
        ControlFlow::Continue(())
    };
    engine.set_size(16 * MIB, &mut watch).expect("it fits");
    assert!(told.is_sorted_by(|a, b| a >= b), "progress: {told:?}");
    assert!(pool.held_bytes() <= 16 * MIB, "{} are held", pool.held_bytes());
    (0..9000).step_by(5).for_each(|block| check_filled(&*volume, block, 1));
    assert_eq!(engine.usage().size_bytes, 16 * MIB);
    check_sums(&engine);
    drop(volume);
    engine.close();
    let engine = pool.open();
    assert_eq!(engine.size_bytes(), 16 * MIB, "the size is the pool's");
    let volume = engine.volume("v").expect("it is there");
    (0..9000).step_by(5).for_each(|block| check_filled(&*volume, block, 1));
    engine.set_size(48 * MIB, &mut go_on).expect("there is memory");
    fill(&*volume, 0, 9000);
    check_filled(&*volume, 0, 9000);
    drop(volume);
    check_sound_when_empty(&engine);
}

#[test]
fn duplicates_stay_shared_when_they_are_moved() {
    let pool = Pool::growable(24 * MIB, CAPACITY_BYTES, 1);
    let engine = pool.open();
    let names = ["a", "b", "c"];
    for name in names {
        let volume = engine.create_volume(spec(name, 64 * MIB)).expect("it can be made");
        fill(&*volume, 0, 2000);
    }
    let filler = engine.create_volume(spec("filler", 64 * MIB)).expect("it can be made");
    fill(&*filler, 4000, 1500);
    let pages_before = engine.usage().page_count;
    engine.delete_volume("filler").expect("it is there");
    engine.set_size(12 * MIB, &mut go_on).expect("it fits");
    assert_eq!(engine.usage().page_count, pages_before - 1500);
    for name in names {
        check_filled(&*engine.volume(name).expect("it is there"), 0, 2000);
    }
    check_sound_when_empty(&engine);
}

#[test]
fn what_does_not_fit_is_refused_with_what_is_in_use() {
    let pool = Pool::growable(32 * MIB, CAPACITY_BYTES, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("it can be made");
    fill(&*volume, 0, 4000);
    let error = engine.set_size(12 * MIB, &mut go_on).expect_err("16 MiB are in use");
    let ResizeErrorKind::InUse { in_use_bytes } = error.kind else { panic!("{error}") };
    assert!((16 * MIB..20 * MIB).contains(&in_use_bytes), "{error}");
    assert!(error.to_string().contains(&format!("{} MiB", in_use_bytes / MIB)), "{error}");
    assert_eq!(engine.size_bytes(), 32 * MIB);
    engine.set_size(in_use_bytes, &mut go_on).expect("what the error names suffices");
    check_filled(&*volume, 0, 4000);
    for (size_bytes, kind) in [
        (
            CAPACITY_BYTES + 2 * MIB,
            ResizeErrorKind::BeyondCapacity { capacity_bytes: CAPACITY_BYTES },
        ),
        (20 * MIB + 4096, ResizeErrorKind::Misaligned),
    ] {
        assert_eq!(engine.set_size(size_bytes, &mut go_on).expect_err("refused").kind, kind);
    }
    drop(volume);
    engine.delete_volume("v").expect("it is there");
    let error = engine.set_size(0, &mut go_on).expect_err("refused");
    let ResizeErrorKind::TooSmall { needed_bytes } = error.kind else { panic!("{error}") };
    engine.set_size(needed_bytes, &mut go_on).expect("what the error names suffices");
    check_sound_when_empty(&engine);
}

#[test]
fn a_shrink_that_is_called_off_leaves_the_pool_as_it_was() {
    let pool = Pool::growable(32 * MIB, CAPACITY_BYTES, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("it can be made");
    fill(&*volume, 0, 6000);
    volume.discard(ByteRange::new(0, 5000 * BLOCK)).expect("a discard always works");
    let error = engine.set_size(8 * MIB, &mut |_| ControlFlow::Break(())).expect_err("called off");
    assert_eq!(error.kind, ResizeErrorKind::Cancelled);
    settle(&engine);
    assert_eq!((engine.size_bytes(), engine.usage().size_bytes), (32 * MIB, 32 * MIB));
    fill(&*volume, 0, 5000);
    check_filled(&*volume, 0, 6000);
    check_sums(&engine);
    drop(volume);
    check_sound_when_empty(&engine);
}

#[test]
fn what_snapshots_and_clones_share_stays_shared_when_it_is_moved() {
    let pool = Pool::growable(40 * MIB, CAPACITY_BYTES, 2);
    let engine = pool.open();
    let filler = engine.create_volume(spec("filler", 256 * MIB)).expect("it can be made");
    fill(&*filler, 0, 4000);
    let volume = engine.create_volume(spec("v", 4096 * MIB)).expect("it can be made");
    for leaf in 0..200 {
        fill(&*volume, leaf * 5120, 8);
    }
    let snapshot = "s".parse().expect("a good name");
    engine.create_snapshots(&["v"], &snapshot, 1).expect("it can be made");
    let clone = engine.clone_volume("v", "c".parse().expect("a good name"));
    let clone = clone.expect("it can be made");
    fill(&*clone, 100, 8);
    volume.discard(ByteRange::new(0, 4 * BLOCK)).expect("a discard always works");
    settle(&engine);
    drop(filler);
    engine.delete_volume("filler").expect("it is there");
    settle(&engine);
    let before = engine.usage();
    engine.set_size(14 * MIB, &mut go_on).expect("it fits");
    settle(&engine);
    let after = engine.usage();
    assert_eq!((after.page_count, after.map_bytes), (before.page_count, before.map_bytes));
    let old = engine.snapshot("v", "s").expect("it is there");
    for leaf in 0..200 {
        check_filled(&*old, leaf * 5120, 8);
        check_filled(&*clone, leaf * 5120, 8);
        check_filled(&*volume, leaf * 5120 + 4, 4);
    }
    check_filled(&*clone, 100, 8);
    check_sums(&engine);
    drop((old, clone, volume));
    engine.delete_snapshot("v", "s").expect("it is there");
    check_sound_when_empty(&engine);
}

/// Overwrites, reads and discards blocks of a volume until it is stopped. Returns their final
/// contents.
fn use_volume(engine: &Engine, name: &str, seed: u64, is_over: &AtomicBool) -> ModelVolume {
    let volume = engine.volume(name).expect("it is there");
    let geometry = volume.geometry();
    let model = ModelVolume::new(geometry.size_bytes, geometry.sector);
    let mut random = Random::new(seed);
    while !is_over.load(Ordering::Relaxed) {
        let block = random.below(1200) + 512 * 7 * random.below(3);
        let offset = block * BLOCK;
        if random.one_in(4) {
            let range = ByteRange::new(offset, BLOCK * random.below(20));
            volume.discard(range).expect("a discard always works");
            model.discard(range).expect("the model discards");
            continue;
        }
        let contents = Contents::random(&mut random).bytes(4096 * (1 + random.index(4)));
        let blocks = block..block + contents.len() as u64 / BLOCK;
        let old: Vec<_> = blocks.clone().map(|block| model.block(block)).collect();
        model.write(offset, &contents).expect("the model has memory");
        if let Err(error) = volume.write(offset, &contents) {
            assert_eq!(error.kind, DeviceErrorKind::NoSpace, "block {block}");
            for (block, old) in blocks.zip(old) {
                let found = model::observe(&*volume, block);
                let is_either = found == old || found == model.block(block);
                assert!(is_either, "block {block} is neither old nor new");
                model.set_block(block, found);
            }
        }
        let mut found = [0; 4096];
        volume.read(offset, &mut found).expect("it is read");
        assert_eq!(model.block(block).unwrap_or([0; 4096]), found);
    }
    model
}

/// Goal: resizing under load loses nothing and ends.
/// Method: two writers with their own volumes and maintenance, while the size goes up and down; at
/// the end the volumes must equal the writers' models.
#[test]
fn writers_find_what_they_wrote_while_the_pool_grows_and_shrinks() {
    for_each_seed("cargo test -p volumes --test resize", 4, |seed| {
        let pool = Pool::growable(24 * MIB, CAPACITY_BYTES, 2);
        let engine = pool.open();
        let is_over = AtomicBool::new(false);
        let names = ["a", "b"];
        for (name, reduction) in names.into_iter().zip([Reduction::Full, Reduction::None]) {
            let spec = VolumeSpec { reduction, ..spec(name, 256 * MIB) };
            engine.create_volume(spec).expect("it can be made");
        }
        let models = std::thread::scope(|scope| {
            let (engine, is_over) = (&engine, &is_over);
            let writers: Vec<_> = (0..)
                .zip(names)
                .map(|(nth, name)| {
                    scope.spawn(move || use_volume(engine, name, seed * 10 + nth, is_over))
                })
                .collect();
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if !engine.maintain() {
                        std::thread::yield_now();
                    }
                }
            });
            let mut random = Random::new(seed + 77);
            let mut resized = 0;
            for _ in 0..24 {
                let size_bytes = (6 + 2 * random.below(16)) * MIB;
                match engine.set_size(size_bytes, &mut go_on) {
                    Ok(()) => resized += 1,
                    Err(error) => {
                        assert!(matches!(error.kind, ResizeErrorKind::InUse { .. }), "{error}");
                    }
                }
                assert_eq!(engine.damaged_entries(), 0);
            }
            assert!(resized > 8, "only {resized} of the sizes could be had");
            is_over.store(true, Ordering::Relaxed);
            let ended = writers.into_iter().map(|writer| writer.join().expect("the writer ends"));
            ended.collect::<Vec<_>>()
        });
        settle(&engine);
        check_sums(&engine);
        assert!(pool.held_bytes() <= engine.size_bytes());
        for (name, model) in names.into_iter().zip(&models) {
            check_same(&*engine.volume(name).expect("it is there"), model);
        }
        check_sound_when_empty(&engine);
    });
}
