//! Tests of failback: the pool of a former writer follows the store again, has exactly the contents
//! of the newest image, and fetches only what changed.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{BlockDevice, ByteRange};
use image::Unwatched;
use random::Random;
use standby::{StandbyErrorKind, Step};
use support::{BLOCK, Shared, Standby, VOLUME_BYTES, check_like, noise, read, save, write};
use volumes::{CapacityClass, Durability, Engine, ShrinkPolicy, VolumeSpec};

const BLOCKS: u64 = 1200;

/// Lets the standby of a writer take over and change twelve blocks.
fn take_over(shared: &Shared, standby: &mut Standby) -> u32 {
    standby.follower().promote(1 << 40, &mut |_| Ok(())).expect("the store answers");
    let (set, _) = shared.open_promoted(standby);
    let one = standby.engine().volume("one").expect("it is there");
    (30..42).for_each(|block| write(&one, block, 20_000 + block));
    save(&set).expect("the disk works")
}

#[test]
fn a_former_writer_fetches_only_what_changed_since_its_last_image() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    let one = writer.create("one", Durability::Journal);
    (0..BLOCKS).for_each(|block| write(&one, block, block));
    standby.follow_to(writer.save());
    drop(one);
    let newest = take_over(&shared, &mut standby);
    let former = shared.rejoin(writer);
    let fetched_bytes = former.follow_to(newest);
    assert!(fetched_bytes <= 16 * BLOCK, "{fetched_bytes} bytes of 12 blocks");
    check_like(&former, standby.engine());
}

#[test]
fn what_a_former_writer_wrote_after_its_last_image_is_discarded() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    let one = writer.create("one", Durability::Journal);
    (0..BLOCKS).for_each(|block| write(&one, block, block));
    writer.engine.set_capacity("one", CapacityClass::Guaranteed).expect("there is room");
    standby.follow_to(writer.save());
    (10..20).for_each(|block| write(&one, block, 10_000 + block));
    one.discard(ByteRange { start: 20 * BLOCK, length: 5 * BLOCK }).expect("it is there");
    one.write(25 * BLOCK, &[7; 4096]).expect("there is room");
    write(&one, BLOCKS + 600, 1);
    write(&writer.create("late", Durability::Image), 0, 1);
    write(&writer.create("scratch", Durability::Ram), 0, 1);
    writer.engine.create_snapshots(&["one"], &"late".parse().expect("a name"), 1).expect("room");
    drop(one);
    let newest = take_over(&shared, &mut standby);
    let former = shared.rejoin(writer);
    assert!(former.engine().is_restoring(), "it is a standby");
    let fetched_bytes = former.follow_to(newest);
    // Discarded blocks are in one chunk, which is read whole.
    assert!(fetched_bytes <= (512 + 16) * BLOCK, "{fetched_bytes} bytes of 28 blocks");
    check_like(&former, standby.engine());
    let one = former.engine().volume("one").expect("it is there");
    assert_eq!(one.capacity_class(), CapacityClass::Thin);
    former.follower().promote(1 << 41, &mut |_| Ok(())).expect("the store answers");
}

#[test]
fn a_pool_is_left_alone_unless_the_store_is_of_its_set_and_the_claims_are_approved() {
    let shared = Shared::new();
    let writer = shared.writer();
    write(&writer.create("one", Durability::Image), 0, 1);
    writer.save();
    write(&writer.volume("one"), 0, 2);
    let mut former = shared.rejoin_with(writer, &mut |claims| {
        assert!(claims.newest.is_some(), "the writer has claimed the store");
        false
    });
    assert!(!former.engine().is_restoring(), "it is still a writer's");
    assert!(read(&former.engine().volume("one").expect("it is there"), 0) == Ok(noise(2)));
    let other = Shared::new();
    other.writers.store(9, Ordering::Relaxed);
    let stranger = other.writer();
    write(&stranger.create("one", Durability::Image), 0, 3);
    stranger.save();
    former.store = Arc::new(support::Watched::new(other.images()));
    let refused = former.rejoin(&mut |_| true).expect_err("it is another pool's store");
    assert_eq!(refused.kind, StandbyErrorKind::OtherSet);
    former.store.is_empty.store(true, Ordering::Relaxed);
    let refused = former.rejoin(&mut |_| true).expect_err("there is no image");
    assert_eq!(refused.kind, StandbyErrorKind::NoImage);
    assert!(!former.engine().is_restoring(), "it is still a writer's");
    assert!(read(&former.engine().volume("one").expect("it is there"), 0) == Ok(noise(2)));
}

#[test]
fn a_pool_without_volumes_follows_the_store_of_another_set_only() {
    let (shared, other) = (Shared::new(), Shared::new());
    let writer = shared.writer();
    writer.create("one", Durability::Image);
    writer.save();
    other.writers.store(9, Ordering::Relaxed);
    let stranger = other.writer();
    let mut pool = other.pool_of(stranger);
    pool.store = Arc::new(support::Watched::new(shared.images()));
    pool.start().expect("nothing is in it");
    assert!(pool.engine().is_restoring() && pool.engine().set_id().is_none());
    pool.kill();
    pool.start().expect("it is a standby");
    pool.follow();
    check_like(&pool, &writer.engine);

    // The writer of the images deletes its volumes.
    writer.engine.delete_volume("one").expect("it is there");
    let set_id = writer.engine.set_id();
    let mut pool = shared.pool_of(writer);
    for is_away in [false, true] {
        pool.store.is_away.store(is_away, Ordering::Relaxed);
        let refused = pool.start().expect_err("the images are of the pool's set").kind;
        let expected = if is_away { StandbyErrorKind::Store } else { StandbyErrorKind::OwnSet };
        assert_eq!(refused, expected);
        assert!(!pool.engine().is_restoring() && pool.engine().set_id() == set_id);
    }
}

/// Performs random changes of durable volumes and their snapshots.
fn change(engine: &Engine, random: &mut Random, count: u64) {
    for _ in 0..count {
        let volumes = engine.volumes();
        let number = random.below(1 << 30);
        let Some(volume) = volumes.get(random.index(volumes.len().max(1))) else {
            let name = format!("v{number}").parse().expect("a name");
            let durability = Durability::Image;
            let spec = VolumeSpec { durability, ..VolumeSpec::new(name, VOLUME_BYTES) };
            engine.create_volume(spec).expect("there is room");
            continue;
        };
        let blocks = volume.map().settled_size_bytes() / BLOCK;
        let block = random.below(blocks.min(1500));
        let length = BLOCK * (1 + random.below(4)).min(blocks - block);
        let range = ByteRange { start: block * BLOCK, length };
        let name = volume.name();
        match random.below(40) {
            0 if volumes.len() < 4 => {
                let durability = match random.below(3) {
                    0 => Durability::Journal,
                    1 => Durability::Image,
                    _ => Durability::Ram,
                };
                let name = format!("v{number}").parse().expect("a name");
                let spec = VolumeSpec { durability, ..VolumeSpec::new(name, VOLUME_BYTES) };
                engine.create_volume(spec).expect("there is room");
            }
            1 if volumes.len() > 2 => drop(engine.delete_volume(&name)),
            2 => {
                let size = BLOCK * 512 * (1 + random.below(VOLUME_BYTES / BLOCK / 512));
                engine.resize_volume(&name, size, ShrinkPolicy::DropData).expect("there is room");
            }
            3 | 4 if engine.snapshots_of(volume).len() < 3 => {
                let own = format!("s{number}").parse().expect("a name");
                engine.create_snapshots(&[&name], &own, number).expect("there is room");
            }
            5 => {
                if let Some(snapshot) = engine.snapshots_of(volume).first() {
                    engine.delete_snapshot(&name, &snapshot.snapshot_name()).expect("it is there");
                }
            }
            6 => drop(engine.rename_volume(&name, format!("r{number}").parse().expect("a name"))),
            7..12 => volume.discard(range).expect("it is there"),
            12..16 => {
                let bytes = vec![random.pick(&[0, 1, 2]); usize::try_from(length).expect("short")];
                volume.write(block * BLOCK, &bytes).expect("there is room");
            }
            // Some contents repeat, so that blocks return to what an image has.
            _ => write(volume, block, random.below(3000)),
        }
        while random.below(50) == 0 && engine.maintain() {}
    }
}

fn fail_back(seed: u64) {
    let mut random = Random::new(seed);
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    for _ in 0..1 + random.below(3) {
        change(&writer.engine, &mut random, 300);
        writer.save();
        if random.below(2) == 0 {
            standby.follow();
        }
    }
    change(&writer.engine, &mut random, 200);
    standby.follower().promote(1 << 40, &mut |_| Ok(())).expect("the store answers");
    let (set, _) = shared.open_promoted(&mut standby);
    assert!(set.stream(&Unwatched).expect("the store answers").is_done);
    // Two images, so that the pool may follow one of them before the other.
    let is_changed_between = random.below(2) == 0;
    change(standby.engine(), &mut random, 200);
    let mut newest = save(&set).expect("the disk works");
    let mut former = shared.rejoin(writer);
    for _ in 0..random.below(3) {
        // The store becomes unreachable during the step, and the standby may be killed then.
        *former.store.reads_left.lock().expect("no panic") = Some(random.below(12));
        let _cut = former.follower().follow(&Unwatched);
        *former.store.reads_left.lock().expect("no panic") = None;
        if random.below(2) == 0 {
            former.start().expect("it is a standby's pool");
        }
    }
    if is_changed_between {
        change(standby.engine(), &mut random, 100);
        newest = save(&set).expect("the disk works");
    }
    let step = former.follow();
    let is_there = match step {
        Step::Complete { image_number, .. } => image_number == newest,
        Step::Unchanged => !is_changed_between,
        _ => false,
    };
    assert!(is_there, "seed {seed}: {step:?}");
    check_like(&former, standby.engine());
}

#[test]
fn whatever_changed_on_both_sides_the_former_writer_has_the_newest_image() {
    (0..40).for_each(fail_back);
}
