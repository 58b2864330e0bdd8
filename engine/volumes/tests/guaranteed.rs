//! Volumes of class `guaranteed`, which a full pool does not affect.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, Zeroes};
use model::{Contents, ModelVolume, Random, Texture, check_same, for_each_seed};
use support::{Pool, check_sound_when_empty, check_sums, compress_idle, settle};
use volumes::{
    CapacityClass, Engine, Recovery, Reduction, ResizeErrorKind, ShrinkPolicy, Volume,
    VolumeErrorKind, VolumeSpec,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

fn thin(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec::new(name.parse().expect("a good name"), size_bytes)
}

fn guaranteed(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec { capacity: CapacityClass::Guaranteed, ..thin(name, size_bytes) }
}

fn noise(seed: u64) -> Vec<u8> {
    Contents::new(Texture::Noise, seed).bytes(4096)
}

/// Writes noise to a thin volume until memory is exhausted.
fn fill_up(volume: &dyn BlockDevice) -> u64 {
    let blocks = volume.geometry().size_bytes / BLOCK;
    (0..blocks).take_while(|&block| volume.write(block * BLOCK, &noise(block)).is_ok()).count()
        as u64
}

/// Contents that [`check_all_can_be_written`] writes, which no other block of the pool has.
fn unique(turn: u64, block: u64) -> Vec<u8> {
    noise((turn + 1) * 1_000_000 + block)
}

/// Writes every block of a volume, and reads it back.
#[track_caller]
fn check_all_can_be_written(volume: &dyn BlockDevice, turn: u64) {
    let blocks = volume.geometry().size_bytes / BLOCK;
    for block in 0..blocks {
        let written = volume.write(block * BLOCK, &unique(turn, block));
        written.expect("a guaranteed write never fails");
    }
    for block in 0..blocks {
        let mut found = [0; 4096];
        volume.read(block * BLOCK, &mut found).expect("it is there");
        assert!(found[..] == unique(turn, block), "block {block}");
    }
}

#[test]
fn a_guaranteed_volume_is_written_and_overwritten_whole_in_a_full_pool() {
    let pool = Pool::new(32 * MIB, 2);
    let engine = pool.open();
    let sure = engine.create_volume(guaranteed("sure", 12 * MIB)).expect("it fits");
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let filled = fill_up(&*any);
    assert!((2000..5000).contains(&filled), "{filled} blocks found memory");
    for turn in 0..3 {
        check_all_can_be_written(&*sure, turn);
        // Memory freed meanwhile is not taken from its claim.
        let _refilled = fill_up(&*any);
    }
    check_sums(&engine);
    drop((sure, any));
    check_sound_when_empty(&engine);
}

/// Goal: memory leaked by a kill is available to requests that need it before it is reclaimed.
#[test]
fn writes_after_a_kill_find_what_it_has_leaked() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let sure = engine.create_volume(guaranteed("sure", 9 * MIB)).expect("it fits");
    check_all_can_be_written(&*sure, 0);
    let frozen = engine.freeze(std::slice::from_ref(&sure)).expect("it needs no memory");
    // Only the frozen copy, which would be given up, has these pages then.
    sure.discard(ByteRange::new(0, 9 * MIB)).expect("the claim comes back");
    let killed = pool.as_after_a_kill();
    drop(frozen);
    let engine = killed.open();
    assert_eq!(engine.recovery(), Recovery::Sweeping, "a walk has to find it");
    check_all_can_be_written(&*engine.volume("sure").expect("it is there"), 1);
    check_sound_when_empty(&engine);
}

/// Memory leaked by a kill is also found for new thin data and for new guaranteed volumes.
#[test]
fn memory_that_a_kill_has_leaked_is_not_refused_while_it_is_looked_for() {
    let reuse_by: [fn(&Engine, u64); 2] = [
        |engine, filled| {
            let again = engine.create_volume(thin("again", 64 * MIB)).expect("it can be made");
            assert_eq!(fill_up(&*again), filled);
        },
        |engine, _| {
            let sure = engine.create_volume(guaranteed("sure", 9 * MIB)).expect("it fits");
            check_all_can_be_written(&*sure, 0);
        },
    ];
    for reuse in reuse_by {
        let pool = Pool::new(16 * MIB, 1);
        let engine = pool.open();
        let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
        let filled = fill_up(&*any);
        let frozen = engine.freeze(std::slice::from_ref(&any)).expect("it needs no memory");
        any.discard(ByteRange::new(0, 64 * MIB)).expect("its leaves are let go");
        let killed = pool.as_after_a_kill();
        drop(frozen);
        let engine = killed.open();
        assert_eq!(engine.recovery(), Recovery::Sweeping, "a walk has to find it");
        reuse(&engine, filled);
        check_sound_when_empty(&engine);
    }
}

#[test]
fn the_claim_comes_back_with_every_hole_and_pattern() {
    let pool = Pool::new(32 * MIB, 1);
    let engine = pool.open();
    let sure = engine.create_volume(guaranteed("sure", 12 * MIB)).expect("it fits");
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let claimed = || engine.usage().claimed_bytes;
    assert_eq!(claimed(), 12 * MIB);
    check_all_can_be_written(&*sure, 5);
    assert_eq!(claimed(), 0);
    let _full = fill_up(&*any);
    let range = ByteRange::new(0, 4 * MIB);
    sure.discard(range).expect("a discard always works");
    assert_eq!(claimed(), 4 * MIB);
    sure.write_zeroes(ByteRange::new(4 * MIB, MIB), Zeroes::KeepAllocated).expect("zeroes");
    sure.write(6 * MIB, &[7; 65536]).expect("a pattern is stored");
    assert_eq!(claimed(), 5 * MIB + 65536);
    let _refilled = fill_up(&*any);
    check_all_can_be_written(&*sure, 77);
    assert_eq!(claimed(), 0);
    drop((sure, any));
    check_sound_when_empty(&engine);
}

#[test]
fn what_does_not_fit_is_refused_with_figures() {
    let pool = Pool::new(32 * MIB, 1);
    let engine = pool.open();
    let error = engine.create_volume(guaranteed("a", 40 * MIB)).expect_err("it does not fit");
    assert_eq!(error.kind, VolumeErrorKind::NoSpace);
    let source = std::error::Error::source(&error).expect("the figures").to_string();
    assert!(source.contains("are available"), "{source}");
    assert!(engine.volume("a").is_err(), "nothing is left of it");
    engine.create_volume(guaranteed("a", 20 * MIB)).expect("it fits");
    let error = engine.create_volume(guaranteed("b", 20 * MIB)).expect_err("not beside the other");
    assert_eq!(error.kind, VolumeErrorKind::NoSpace);
    engine.delete_volume("a").expect("it is there");
    assert_eq!(engine.usage().claimed_bytes, 0);
    engine.create_volume(guaranteed("b", 20 * MIB)).expect("it fits now");
    check_sound_when_empty(&engine);
}

#[test]
fn a_claim_survives_every_end() {
    for is_clean in [true, false] {
        let pool = Pool::new(32 * MIB, 1);
        let engine = pool.open();
        let sure = engine.create_volume(guaranteed("sure", 12 * MIB)).expect("it fits");
        for block in 0..1000 {
            sure.write(block * BLOCK, &noise(block)).expect("it is guaranteed");
        }
        drop(sure);
        match is_clean {
            true => engine.close(),
            false => drop(engine),
        }
        let engine = pool.open();
        let sure = engine.volume("sure").expect("it is there");
        assert_eq!(sure.capacity_class(), CapacityClass::Guaranteed);
        assert_eq!(engine.usage().claimed_bytes, 12 * MIB - 1000 * BLOCK);
        let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
        let _full = fill_up(&*any);
        check_all_can_be_written(&*sure, 5);
        drop((sure, any));
        check_sound_when_empty(&engine);
    }
}

#[test]
fn a_class_can_be_changed_while_the_volume_is_used() {
    let pool = Pool::new(32 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(thin("v", 8 * MIB)).expect("it can be made");
    let twin = engine.create_volume(thin("twin", 8 * MIB)).expect("it can be made");
    let model = ModelVolume::new(8 * MIB, volume.geometry().sector);
    let mut random = Random::new(3);
    for block in (0..2048).filter(|block| block % 3 != 0) {
        let contents = Contents::random(&mut random).bytes(4096);
        volume.write(block * BLOCK, &contents).expect("there is room");
        twin.write(block * BLOCK, &contents).expect("there is room");
        model.write(block * BLOCK, &contents).expect("the model has memory");
    }
    settle(&engine);
    engine.set_capacity("v", CapacityClass::Guaranteed).expect("it fits");
    check_same(&*volume, &model);
    check_same(&*twin, &model);
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let _full = fill_up(&*any);
    check_all_can_be_written(&*volume, 9);
    check_same(&*twin, &model);
    let refused = engine.set_capacity("twin", CapacityClass::Guaranteed);
    assert_eq!(refused.expect_err("the pool is full").kind, VolumeErrorKind::NoSpace);
    assert_eq!(twin.capacity_class(), CapacityClass::Thin);
    engine.set_capacity("v", CapacityClass::Thin).expect("that always works");
    assert_eq!(engine.usage().claimed_bytes, 0);
    engine.delete_volume("any").expect("it is there");
    engine.set_capacity("twin", CapacityClass::Guaranteed).expect("it fits now");
    check_same(&*twin, &model);
    drop((volume, twin, any));
    settle(&engine);
    check_sums(&engine);
    check_sound_when_empty(&engine);
}

#[test]
fn a_snapshot_claims_what_it_shares_until_it_is_gone() {
    let pool = Pool::new(40 * MIB, 1);
    let engine = pool.open();
    let sure = engine.create_volume(guaranteed("sure", 8 * MIB)).expect("it fits");
    check_all_can_be_written(&*sure, 1);
    let snapshot = |name: &str| {
        engine.create_snapshots(&["sure"], &name.parse().expect("a good name"), 1).map(drop)
    };
    snapshot("one").expect("it fits");
    assert!(engine.usage().claimed_bytes >= 8 * MIB, "the pages are claimed again");
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let _full = fill_up(&*any);
    check_all_can_be_written(&*sure, 2);
    let clone = || engine.clone_volume("sure", "copy".parse().expect("a good name")).map(drop);
    for refused in [snapshot("two"), clone()] {
        let refused = refused.expect_err("its pages cannot be claimed again");
        assert_eq!(refused.kind, VolumeErrorKind::NoSpace);
    }
    let old = engine.snapshot("sure", "one").expect("it is there");
    for block in 0..2048 {
        let mut found = [0; 4096];
        old.read(block * BLOCK, &mut found).expect("it is there");
        assert!(found[..] == unique(1, block), "block {block} of the snapshot");
    }
    drop((old, any));
    engine.delete_snapshot("sure", "one").expect("it is there");
    engine.delete_volume("any").expect("it is there");
    settle(&engine);
    assert_eq!(engine.usage().claimed_bytes, 0, "nothing is claimed beside what is there");
    clone().expect("it fits");
    assert!(engine.usage().claimed_bytes >= 8 * MIB, "a clone shares them, too");
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let _full = fill_up(&*any);
    check_all_can_be_written(&*sure, 3);
    check_all_can_be_written(&*engine.volume("copy").expect("it is there"), 4);
    drop((sure, any));
    check_sound_when_empty(&engine);
}

/// Returns contents that are compressed once more when they are idle.
fn text(block: u64) -> Vec<u8> {
    let mut random = Random::new(block ^ 0x7E47);
    (0..4096).map(|_| b"etaoin shrdlu etaoin eee"[random.index(24)]).collect()
}

#[test]
fn a_volume_restored_from_an_idle_snapshot_is_overwritten_whole_in_a_full_pool() {
    let pool = Pool::new(40 * MIB, 1);
    let engine = pool.open();
    let sure = engine.create_volume(guaranteed("sure", 8 * MIB)).expect("it fits");
    for block in 0..2048 {
        sure.write(block * BLOCK, &text(block)).expect("a guaranteed write never fails");
    }
    let name = "s".parse().expect("a good name");
    engine.create_snapshots(&["sure"], &name, 1).expect("it fits");
    check_all_can_be_written(&*sure, 1);
    settle(&engine);
    for _ in 0..3 {
        compress_idle(&engine, usize::MAX);
    }
    assert_eq!(engine.usage().idle_page_count, 2048, "those of the snapshot");
    engine.restore_snapshot("sure", "s").expect("it fits");
    engine.delete_snapshot("sure", "s").expect("it is there");
    settle(&engine);
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let _full = fill_up(&*any);
    for block in 0..2048 {
        let mut found = [0; 4096];
        sure.read(block * BLOCK, &mut found).expect("it is there");
        assert!(found[..] == text(block), "block {block}");
    }
    settle(&engine);
    check_all_can_be_written(&*sure, 2);
    settle(&engine);
    assert_eq!(engine.usage().claimed_bytes, 0, "all of it is there");
    drop((sure, any));
    check_sound_when_empty(&engine);
}

#[test]
fn a_guaranteed_volume_grows_as_far_as_it_fits_and_shrinks() {
    let pool = Pool::new(32 * MIB, 1);
    let engine = pool.open();
    let sure = engine.create_volume(guaranteed("sure", 4 * MIB)).expect("it fits");
    check_all_can_be_written(&*sure, 1);
    engine.resize_volume("sure", 16 * MIB, ShrinkPolicy::KeepData).expect("it fits");
    assert_eq!(engine.usage().claimed_bytes, 12 * MIB);
    let error = engine.resize_volume("sure", 64 * MIB, ShrinkPolicy::KeepData);
    assert_eq!(error.expect_err("it does not fit").kind, VolumeErrorKind::NoSpace);
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let _full = fill_up(&*any);
    check_all_can_be_written(&*sure, 2);
    engine.resize_volume("sure", 6 * MIB, ShrinkPolicy::DropData).expect("data may be dropped");
    assert_eq!(engine.usage().claimed_bytes, 0);
    let _refilled = fill_up(&*any);
    check_all_can_be_written(&*sure, 3);
    drop((sure, any));
    check_sound_when_empty(&engine);
}

#[test]
fn a_pool_does_not_shrink_below_what_is_claimed() {
    let pool = Pool::growable(32 * MIB, 64 * MIB, 1);
    let engine = pool.open();
    let sure = engine.create_volume(guaranteed("sure", 16 * MIB)).expect("it fits");
    let go_on = &mut |_| ControlFlow::Continue(());
    let error = engine.set_size(16 * MIB, go_on).expect_err("more is claimed");
    let ResizeErrorKind::InUse { in_use_bytes } = error.kind else { panic!("{error}") };
    engine.set_size(in_use_bytes, go_on).expect("what the error names suffices");
    let any = engine.create_volume(thin("any", 64 * MIB)).expect("it can be made");
    let _full = fill_up(&*any);
    check_all_can_be_written(&*sure, 3);
    drop((sure, any));
    check_sound_when_empty(&engine);
}

/// Requests of a thin writer in a full pool. Writes may fail, discards always succeed.
fn crowd(volume: &Volume, seed: u64, is_over: &AtomicBool) {
    let mut random = Random::new(seed);
    while !is_over.load(Ordering::Relaxed) {
        let offset = random.below(volume.geometry().size_bytes / BLOCK - 64) * BLOCK;
        if random.one_in(6) {
            let range = ByteRange::new(offset, random.below(64) * BLOCK);
            volume.discard(range).expect("a discard always works");
        } else {
            let contents = Contents::random(&mut random).bytes(4096 * (1 + random.index(40)));
            if let Err(error) = volume.write(offset, &contents) {
                assert_eq!(error.kind, DeviceErrorKind::NoSpace, "{error}");
            }
        }
    }
}

/// Overwrites a volume at random, and returns its final contents.
fn rely(volume: &Volume, seed: u64, requests: u64) -> ModelVolume {
    let geometry = volume.geometry();
    let model = ModelVolume::new(geometry.size_bytes, geometry.sector);
    let mut random = Random::new(seed);
    for _ in 0..requests {
        let offset = random.below(geometry.size_bytes / BLOCK - 80) * BLOCK;
        if random.one_in(10) {
            let range = ByteRange::new(offset, random.below(64) * BLOCK);
            volume.discard(range).expect("a discard always works");
            model.discard(range).expect("the model discards");
            continue;
        }
        let length = 1 + random.index(80 * 4096);
        let contents = Contents::random(&mut random).bytes(length);
        let offset = offset + random.below(2) * 512;
        volume.write(offset, &contents).expect("a guaranteed write never fails");
        model.write(offset, &contents).expect("the model has memory");
    }
    model
}

/// Goal: nothing that others do makes a guaranteed write fail.
/// Method: thin writers keep the pool full of all kinds of contents and discard parts of them, with
/// maintenance beside them, while two volumes are overwritten that must never fail.
#[test]
fn guaranteed_writes_never_fail_beside_writers_that_keep_the_pool_full() {
    for_each_seed("cargo test -p volumes --test guaranteed", 4, |seed| {
        let pool = Pool::new(40 * MIB, 2 + usize::try_from(seed % 2).expect("small"));
        let engine = pool.open();
        let sure: Vec<Arc<Volume>> = ["a", "b"]
            .map(|name| engine.create_volume(guaranteed(name, 6 * MIB)).expect("it fits"))
            .into();
        let any: Vec<Arc<Volume>> = Reduction::ALL[..2]
            .iter()
            .map(|&reduction| VolumeSpec { reduction, ..thin(reduction.name(), 64 * MIB) })
            .map(|spec| engine.create_volume(spec).expect("it can be made"))
            .collect();
        let is_over = AtomicBool::new(false);
        let models = std::thread::scope(|scope| {
            let (engine, is_over): (&Engine, _) = (&engine, &is_over);
            let relying: Vec<_> = (0..)
                .zip(&sure)
                .map(|(nth, volume)| scope.spawn(move || rely(volume, seed * 10 + nth, 400)))
                .collect();
            for (nth, volume) in (0..).zip(&any) {
                scope.spawn(move || crowd(volume, seed * 10 + 5 + nth, is_over));
            }
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if !engine.maintain() {
                        std::thread::yield_now();
                    }
                }
            });
            let ended = relying.into_iter().map(|writer| writer.join());
            let models: Vec<_> = ended.collect();
            is_over.store(true, Ordering::Relaxed);
            models.into_iter().map(|model| model.expect("no write fails")).collect::<Vec<_>>()
        });
        for (volume, model) in sure.iter().zip(&models) {
            check_same(&**volume, model);
        }
        settle(&engine);
        check_sums(&engine);
        for volume in &sure {
            check_all_can_be_written(&**volume, seed);
        }
        assert_eq!(engine.usage().claimed_bytes, 0);
        drop((sure, any));
        check_sound_when_empty(&engine);
    });
}
