//! Tests that volumes can be created, changed and deleted, and that this survives the loss of
//! memory.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use block_device::BlockDevice;
use durable_set::{DurableErrorKind, SaveExtent};
use powercut::{Effect, Gate};
use support::{BLOCK, House, noise, read};
use volumes::{Durability, ShrinkPolicy, VolumeMirror, VolumeName, VolumeSpec};

const MIB: u64 = 1 << 20;

/// Time limit that only a hang exceeds.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

fn name(name: &str) -> VolumeName {
    name.parse().expect("a good name")
}

fn spec(volume: &str, durability: Durability) -> VolumeSpec {
    VolumeSpec { durability, ..VolumeSpec::new(name(volume), House::VOLUME_BYTES) }
}

fn names(house: &House) -> Vec<String> {
    house.engine.volumes().iter().map(|volume| volume.name()).collect()
}

fn shrink(house: &House, volume: &str) -> Result<(), DurableErrorKind> {
    let resized = house.set.resize_volume(volume, MIB, ShrinkPolicy::DropData);
    resized.map_err(|error| error.kind)
}

fn grow(house: &House, volume: &str) -> Result<(), DurableErrorKind> {
    let resized = house.set.resize_volume(volume, House::VOLUME_BYTES, ShrinkPolicy::KeepData);
    resized.map_err(|error| error.kind)
}

/// Makes changes on another thread, then opens a gate that holds up a write to the disk. Fails if
/// the changes wait for the write.
fn change_before(gate: &Gate, changes: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let changed = scope.spawn(changes);
        let deadline = Instant::now() + TIME_LIMIT;
        while !changed.is_finished() && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
        let is_changed = changed.is_finished();
        gate.open();
        assert!(is_changed, "it waits for the disk");
    });
}

#[test]
fn changes_of_volumes_outlive_memory() {
    let both = [Durability::Image, Durability::Journal];
    for [class, other_class] in [both, [both[1], both[0]]] {
        let mut house = House::new();
        for volume in ["deleted", "renamed", "cut", "forgotten", "kept", "other-class"] {
            let created = house.set.create_volume(spec(volume, class));
            created.expect("there is room").write(9 * MIB, &noise(1)).expect("there is room");
        }
        house.save();
        house.set.delete_volume("deleted").expect("the disk works");
        house.set.rename_volume("renamed", name("other")).expect("the disk works");
        shrink(&house, "cut").expect("the disk works");
        house.set.set_durability("forgotten", Durability::Ram).expect("the disk works");
        house.set.set_durability("other-class", other_class).expect("the disk works");
        house.lose_memory();
        assert_eq!(names(&house), ["cut", "kept", "other", "other-class"]);
        assert_eq!(house.volume("cut").geometry().size_bytes, MIB);
        assert_eq!(house.volume("other-class").durability(), other_class);
        grow(&house, "cut").expect("the disk works");
        house.lose_memory();
        let block = 9 * MIB / BLOCK;
        assert!(read(&house.volume("cut"), block) == Ok(vec![0; 4096]));
        for name in ["kept", "other", "other-class"] {
            assert!(read(&house.volume(name), block) == Ok(noise(1)), "{name}");
        }
    }
}

#[test]
fn the_last_volume_stays_deleted() {
    let mut house = House::new();
    house.set.create_volume(spec("one", Durability::Image)).expect("there is room");
    house.save();
    house.set.delete_volume("one").expect("the disk works");
    house.lose_memory();
    assert_eq!(names(&house), [""; 0]);
}

#[test]
fn deleted_and_renamed_snapshots_stay_so() {
    for class in [Durability::Image, Durability::Journal] {
        let mut house = House::new();
        let volume = house.set.create_volume(spec("one", class)).expect("there is room");
        for (seed, snapshot) in [(1, "gone"), (2, "early"), (3, "late")] {
            volume.write(0, &noise(seed)).expect("there is room");
            let made = house.set.create_snapshots(&["one"], &name(snapshot), 1);
            made.expect("there is room");
        }
        house.save();
        house.set.delete_snapshot("one", "gone").expect("the disk works");
        for (from, to) in [("early", "between"), ("late", "early"), ("between", "late")] {
            house.set.rename_snapshot("one", from, &name(to)).expect("the disk works");
        }
        let made = house.set.create_snapshots(&["one"], &name("in-no-image"), 2);
        made.expect("there is room");
        drop(volume);
        house.lose_memory();
        let found: Vec<_> = house.engine.snapshots().iter().map(|it| it.name()).collect();
        assert_eq!(found, ["one@early", "one@late"]);
        assert!(read(&house.volume("one@early"), 0) == Ok(noise(3)));
        assert!(read(&house.volume("one@late"), 0) == Ok(noise(2)));
    }
}

/// Creates a journaled volume with a flushed block after its first MiB, in no image.
fn with_a_tail(house: &House) {
    let created = house.set.create_volume(spec("one", Durability::Journal));
    let volume = created.expect("there is room");
    volume.write(9 * MIB, &noise(1)).expect("there is room");
    volume.flush().expect("the disk works");
}

#[track_caller]
fn check_no_tail(house: &mut House) {
    house.lose_memory();
    assert_eq!(house.volume("one").geometry().size_bytes, House::VOLUME_BYTES);
    assert!(read(&house.volume("one"), 9 * MIB / BLOCK) == Ok(vec![0; 4096]));
}

#[test]
fn a_volume_that_was_cut_and_grows_again_shows_nothing_old() {
    let mut house = House::new();
    with_a_tail(&house);
    shrink(&house, "one").expect("the disk works");
    grow(&house, "one").expect("the disk works");
    check_no_tail(&mut house);
}

#[test]
fn the_same_when_the_process_dies_before_the_shrink_is_noted() {
    let mut house = House::new();
    with_a_tail(&house);
    house.engine.resize_volume("one", MIB, ShrinkPolicy::DropData).expect("it shrinks");
    house.kill();
    grow(&house, "one").expect("the disk works");
    check_no_tail(&mut house);
}

#[test]
fn the_same_when_the_journal_fails_in_between() {
    let mut house = House::new();
    with_a_tail(&house);
    house.refuse_writes(Effect::NoSpace);
    assert_eq!(shrink(&house, "one"), Err(DurableErrorKind::NotNoted));
    assert_eq!(grow(&house, "one"), Err(DurableErrorKind::Journal), "the shrink comes first");
    assert_eq!(house.volume("one").geometry().size_bytes, MIB);
    house.heal_disk();
    grow(&house, "one").expect("the disk works");
    check_no_tail(&mut house);
}

#[test]
fn while_the_journal_fails_nothing_is_made_deleted_or_cut() {
    for (class, effect) in [
        (Durability::Image, Effect::Io),
        (Durability::Image, Effect::NoSpace),
        (Durability::Journal, Effect::Io),
        (Durability::Journal, Effect::NoSpace),
    ] {
        let house = House::new();
        with_a_tail(&house);
        house.set.set_durability("one", class).expect("the disk works");
        house.set.create_snapshots(&["one"], &name("snap"), 1).expect("there is room");
        house.refuse_writes(effect);
        let set = &house.set;
        let refused = [
            set.create_volume(spec("two", class)).map(drop),
            set.clone_volume("one", name("two")).map(drop),
            set.delete_volume("one"),
            set.rename_volume("one", name("two")),
            set.set_durability("one", Durability::Ram),
            set.set_mirror("one", VolumeMirror::No),
            set.resize_volume("one", MIB, ShrinkPolicy::DropData),
            set.rename_snapshot("one", "snap", &name("other")),
            set.delete_snapshot("one", "snap"),
            set.restore_snapshot("one", "snap"),
        ];
        for refused in refused {
            let error = refused.expect_err("the disk fails");
            assert_eq!(error.kind, DurableErrorKind::Journal, "{error}");
        }
        let one = house.volume("one");
        assert_eq!((names(&house), one.durability()), (vec!["one".to_owned()], class));
        assert_eq!(one.geometry().size_bytes, House::VOLUME_BYTES);
        assert!(read(&one, 9 * MIB / BLOCK) == Ok(noise(1)));
        let snapshots: Vec<_> = house.engine.snapshots().iter().map(|it| it.name()).collect();
        assert_eq!(snapshots, ["one@snap"]);
        drop(one);
        set.create_volume(spec("memory", Durability::Ram)).expect("memory needs no disk");
        house.heal_disk();
        set.create_volume(spec("two", class)).expect("the disk works");
        set.delete_snapshot("one", "snap").expect("the disk works");
        set.delete_volume("one").expect("the disk works");
        assert_eq!(names(&house), ["memory", "two"]);
    }
}

#[test]
fn what_could_not_be_noted_is_noted_when_the_set_is_tended() {
    let mut house = House::new();
    with_a_tail(&house);
    house.refuse_writes(Effect::Io);
    let error = house.set.delete_volume("one").expect_err("the disk fails");
    assert_eq!((error.kind, names(&house)), (DurableErrorKind::NotNoted, Vec::new()));
    house.set.maintain().expect_err("the disk fails");
    house.heal_disk();
    house.set.maintain().expect("the disk works");
    assert_eq!(house.set.journal().failure(), None);
    house.lose_memory();
    assert_eq!(names(&house), [""; 0]);
}

#[test]
fn volumes_in_memory_change_while_others_are_noted_on_a_disk_that_hangs() {
    let house = House::new();
    with_a_tail(&house);
    house.refuse_writes(Effect::Io);
    house.set.delete_volume("one").expect_err("the disk fails");
    house.heal_disk();
    let gate = house.hold_write();
    let set = &house.set;
    std::thread::scope(|scope| {
        let tended = scope.spawn(|| set.maintain());
        gate.wait_until_reached_by(1);
        change_before(&gate, || {
            for volume in ["memory", "deleted"] {
                set.create_volume(spec(volume, Durability::Ram)).expect("memory needs no disk");
            }
            set.rename_volume("memory", name("other")).expect("memory needs no disk");
            set.delete_volume("deleted").expect("memory needs no disk");
        });
        tended.join().expect("no panic").expect("the disk works");
    });
    assert_eq!((names(&house), set.journal().failure()), (vec!["other".to_owned()], None));
}

#[test]
fn changes_beside_a_flush_that_hangs_need_no_disk_or_are_refused() {
    let house = House::new();
    let one = house.create("one", Durability::Journal);
    one.write(0, &noise(1)).expect("there is room");
    let gate = house.hold_write();
    let set = &house.set;
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| one.flush());
        gate.wait_until_reached_by(1);
        let saved = scope.spawn(|| house.save());
        change_before(&gate, || {
            let refused = set.create_volume(spec("durable", Durability::Image));
            assert_eq!(refused.expect_err("the disk hangs").kind, DurableErrorKind::Journal);
            set.create_volume(spec("memory", Durability::Ram)).expect("memory needs no disk");
            set.rename_volume("memory", name("other")).expect("memory needs no disk");
        });
        flushed.join().expect("no panic").expect("the disk works");
        saved.join().expect("no panic");
    });
    assert_eq!(names(&house), ["one", "other"]);
    set.create_volume(spec("durable", Durability::Image)).expect("the disk works");
}

#[test]
fn the_journal_takes_little_room_without_volumes_of_its_class() {
    let house = House::new();
    house.set.create_volume(spec("memory", Durability::Ram)).expect("there is room");
    house.set.maintain().expect("the disk works");
    assert_eq!(house.set.journal().length_bytes(), 0);
    for volume in 0..20 {
        let volume = format!("volume-{volume}");
        house.set.create_volume(spec(&volume, Durability::Image)).expect("there is room");
    }
    house.set.maintain().expect("the disk works");
    house.save();
    house.set.delete_volume("volume-7").expect("the disk works");
    assert!(house.set.journal().status().file_bytes <= 512 << 10);
}

#[test]
fn images_are_saved_while_volumes_come_and_go() {
    const ROUNDS: u64 = 400;
    let house = House::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                house.set.create_volume(spec("one", Durability::Image)).expect("there is room");
                house.set.delete_volume("one").expect("the disk works");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            house.try_to_save(SaveExtent::Durable).expect("the disk works");
        }
    });
}

#[test]
fn a_start_knows_whether_the_newest_image_has_what_there_is() {
    let mut house = House::new();
    for volume in ["one", "two"] {
        house.set.create_volume(spec(volume, Durability::Image)).expect("there is room");
    }
    house.set.create_volume(spec("memory", Durability::Ram)).expect("there is room");
    house.set.create_snapshots(&["one"], &name("early"), 1).expect("there is room");
    assert!(!house.restart().newest_is_current, "there is no image");
    house.save();
    assert!(house.restart().newest_is_current);
    house.engine.delete_volume("two").expect("it is there");
    assert!(!house.restart().newest_is_current, "it was deleted just before the kill");
    house.save();
    house.engine.delete_snapshot("one", "early").expect("it is there");
    assert!(!house.restart().newest_is_current);
    house.save();
    assert!(house.restart().newest_is_current);
}
