//! Tests that volumes can be created, changed and deleted, and that this survives the loss of
//! memory.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use block_device::BlockDevice;
use durable_set::{DurableErrorKind, SaveExtent};
use powercut::{Effect, Gate};
use support::{BLOCK, Fixture, noise, read};
use volumes::{Durability, ShrinkPolicy, VolumeMirror, VolumeName, VolumeSpec};

const MIB: u64 = 1 << 20;

/// Time limit that only a hang exceeds.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

fn name(name: &str) -> VolumeName {
    name.parse().expect("a good name")
}

fn spec(volume: &str, durability: Durability) -> VolumeSpec {
    VolumeSpec { durability, ..VolumeSpec::new(name(volume), Fixture::VOLUME_BYTES) }
}

fn names(fixture: &Fixture) -> Vec<String> {
    fixture.engine.volumes().iter().map(|volume| volume.name()).collect()
}

fn shrink(fixture: &Fixture, volume: &str) -> Result<(), DurableErrorKind> {
    let resized = fixture.set.resize_volume(volume, MIB, ShrinkPolicy::DropData);
    resized.map_err(|error| error.kind)
}

fn grow(fixture: &Fixture, volume: &str) -> Result<(), DurableErrorKind> {
    let resized = fixture.set.resize_volume(volume, Fixture::VOLUME_BYTES, ShrinkPolicy::KeepData);
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
        let mut fixture = Fixture::new();
        for volume in ["deleted", "renamed", "cut", "forgotten", "kept", "other-class"] {
            let created = fixture.set.create_volume(spec(volume, class));
            created.expect("there is room").write(9 * MIB, &noise(1)).expect("there is room");
        }
        fixture.save();
        fixture.set.delete_volume("deleted").expect("the disk works");
        fixture.set.rename_volume("renamed", name("other")).expect("the disk works");
        shrink(&fixture, "cut").expect("the disk works");
        fixture.set.set_durability("forgotten", Durability::Ram).expect("the disk works");
        fixture.set.set_durability("other-class", other_class).expect("the disk works");
        fixture.lose_memory();
        assert_eq!(names(&fixture), ["cut", "kept", "other", "other-class"]);
        assert_eq!(fixture.volume("cut").geometry().size_bytes, MIB);
        assert_eq!(fixture.volume("other-class").durability(), other_class);
        grow(&fixture, "cut").expect("the disk works");
        fixture.lose_memory();
        let block = 9 * MIB / BLOCK;
        assert!(read(&fixture.volume("cut"), block) == Ok(vec![0; 4096]));
        for name in ["kept", "other", "other-class"] {
            assert!(read(&fixture.volume(name), block) == Ok(noise(1)), "{name}");
        }
    }
}

#[test]
fn the_last_volume_stays_deleted() {
    let mut fixture = Fixture::new();
    fixture.set.create_volume(spec("one", Durability::Image)).expect("there is room");
    fixture.save();
    fixture.set.delete_volume("one").expect("the disk works");
    fixture.lose_memory();
    assert_eq!(names(&fixture), [""; 0]);
}

#[test]
fn deleted_and_renamed_snapshots_stay_so() {
    for class in [Durability::Image, Durability::Journal] {
        let mut fixture = Fixture::new();
        let volume = fixture.set.create_volume(spec("one", class)).expect("there is room");
        for (seed, snapshot) in [(1, "gone"), (2, "early"), (3, "late")] {
            volume.write(0, &noise(seed)).expect("there is room");
            let made = fixture.set.create_snapshots(&["one"], &name(snapshot), 1);
            made.expect("there is room");
        }
        fixture.save();
        fixture.set.delete_snapshot("one", "gone").expect("the disk works");
        for (from, to) in [("early", "between"), ("late", "early"), ("between", "late")] {
            fixture.set.rename_snapshot("one", from, &name(to)).expect("the disk works");
        }
        let made = fixture.set.create_snapshots(&["one"], &name("in-no-image"), 2);
        made.expect("there is room");
        drop(volume);
        fixture.lose_memory();
        let found: Vec<_> = fixture.engine.snapshots().iter().map(|it| it.name()).collect();
        assert_eq!(found, ["one@early", "one@late"]);
        assert!(read(&fixture.volume("one@early"), 0) == Ok(noise(3)));
        assert!(read(&fixture.volume("one@late"), 0) == Ok(noise(2)));
    }
}

/// Creates a journaled volume with a flushed block after its first MiB, in no image.
fn with_a_tail(fixture: &Fixture) {
    let created = fixture.set.create_volume(spec("one", Durability::Journal));
    let volume = created.expect("there is room");
    volume.write(9 * MIB, &noise(1)).expect("there is room");
    volume.flush().expect("the disk works");
}

#[track_caller]
fn check_no_tail(fixture: &mut Fixture) {
    fixture.lose_memory();
    assert_eq!(fixture.volume("one").geometry().size_bytes, Fixture::VOLUME_BYTES);
    assert!(read(&fixture.volume("one"), 9 * MIB / BLOCK) == Ok(vec![0; 4096]));
}

#[test]
fn a_volume_that_was_cut_and_grows_again_shows_nothing_old() {
    let mut fixture = Fixture::new();
    with_a_tail(&fixture);
    shrink(&fixture, "one").expect("the disk works");
    grow(&fixture, "one").expect("the disk works");
    check_no_tail(&mut fixture);
}

#[test]
fn the_same_when_the_process_dies_before_the_shrink_is_noted() {
    let mut fixture = Fixture::new();
    with_a_tail(&fixture);
    fixture.engine.resize_volume("one", MIB, ShrinkPolicy::DropData).expect("it shrinks");
    fixture.kill();
    grow(&fixture, "one").expect("the disk works");
    check_no_tail(&mut fixture);
}

#[test]
fn the_same_when_the_journal_fails_in_between() {
    let mut fixture = Fixture::new();
    with_a_tail(&fixture);
    fixture.refuse_writes(Effect::NoSpace);
    assert_eq!(shrink(&fixture, "one"), Err(DurableErrorKind::NotNoted));
    assert_eq!(grow(&fixture, "one"), Err(DurableErrorKind::Journal), "the shrink comes first");
    assert_eq!(fixture.volume("one").geometry().size_bytes, MIB);
    fixture.heal_disk();
    grow(&fixture, "one").expect("the disk works");
    check_no_tail(&mut fixture);
}

#[test]
fn while_the_journal_fails_nothing_is_made_deleted_or_cut() {
    for (class, effect) in [
        (Durability::Image, Effect::Io),
        (Durability::Image, Effect::NoSpace),
        (Durability::Journal, Effect::Io),
        (Durability::Journal, Effect::NoSpace),
    ] {
        let fixture = Fixture::new();
        with_a_tail(&fixture);
        fixture.set.set_durability("one", class).expect("the disk works");
        fixture.set.create_snapshots(&["one"], &name("snap"), 1).expect("there is room");
        fixture.refuse_writes(effect);
        let set = &fixture.set;
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
        let one = fixture.volume("one");
        assert_eq!((names(&fixture), one.durability()), (vec!["one".to_owned()], class));
        assert_eq!(one.geometry().size_bytes, Fixture::VOLUME_BYTES);
        assert!(read(&one, 9 * MIB / BLOCK) == Ok(noise(1)));
        let snapshots: Vec<_> = fixture.engine.snapshots().iter().map(|it| it.name()).collect();
        assert_eq!(snapshots, ["one@snap"]);
        drop(one);
        set.create_volume(spec("memory", Durability::Ram)).expect("memory needs no disk");
        fixture.heal_disk();
        set.create_volume(spec("two", class)).expect("the disk works");
        set.delete_snapshot("one", "snap").expect("the disk works");
        set.delete_volume("one").expect("the disk works");
        assert_eq!(names(&fixture), ["memory", "two"]);
    }
}

#[test]
fn what_could_not_be_noted_is_noted_when_the_set_is_tended() {
    let mut fixture = Fixture::new();
    with_a_tail(&fixture);
    fixture.refuse_writes(Effect::Io);
    let error = fixture.set.delete_volume("one").expect_err("the disk fails");
    assert_eq!((error.kind, names(&fixture)), (DurableErrorKind::NotNoted, Vec::new()));
    fixture.set.maintain().expect_err("the disk fails");
    fixture.heal_disk();
    fixture.set.maintain().expect("the disk works");
    assert_eq!(fixture.set.journal().failure(), None);
    fixture.lose_memory();
    assert_eq!(names(&fixture), [""; 0]);
}

#[test]
fn volumes_in_memory_change_while_others_are_noted_on_a_disk_that_hangs() {
    let fixture = Fixture::new();
    with_a_tail(&fixture);
    fixture.refuse_writes(Effect::Io);
    fixture.set.delete_volume("one").expect_err("the disk fails");
    fixture.heal_disk();
    let gate = fixture.hold_write();
    let set = &fixture.set;
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
    assert_eq!((names(&fixture), set.journal().failure()), (vec!["other".to_owned()], None));
}

#[test]
fn changes_beside_a_flush_that_hangs_need_no_disk_or_are_refused() {
    let fixture = Fixture::new();
    let one = fixture.create("one", Durability::Journal);
    one.write(0, &noise(1)).expect("there is room");
    let gate = fixture.hold_write();
    let set = &fixture.set;
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| one.flush());
        gate.wait_until_reached_by(1);
        let saved = scope.spawn(|| fixture.save());
        change_before(&gate, || {
            let refused = set.create_volume(spec("durable", Durability::Image));
            assert_eq!(refused.expect_err("the disk hangs").kind, DurableErrorKind::Journal);
            set.create_volume(spec("memory", Durability::Ram)).expect("memory needs no disk");
            set.rename_volume("memory", name("other")).expect("memory needs no disk");
        });
        flushed.join().expect("no panic").expect("the disk works");
        saved.join().expect("no panic");
    });
    assert_eq!(names(&fixture), ["one", "other"]);
    set.create_volume(spec("durable", Durability::Image)).expect("the disk works");
}

#[test]
fn the_journal_takes_little_room_without_volumes_of_its_class() {
    let fixture = Fixture::new();
    fixture.set.create_volume(spec("memory", Durability::Ram)).expect("there is room");
    fixture.set.maintain().expect("the disk works");
    assert_eq!(fixture.set.journal().length_bytes(), 0);
    for volume in 0..20 {
        let volume = format!("volume-{volume}");
        fixture.set.create_volume(spec(&volume, Durability::Image)).expect("there is room");
    }
    fixture.set.maintain().expect("the disk works");
    fixture.save();
    fixture.set.delete_volume("volume-7").expect("the disk works");
    assert!(fixture.set.journal().status().file_bytes <= 512 << 10);
}

#[test]
fn images_are_saved_while_volumes_come_and_go() {
    const ROUNDS: u64 = 400;
    let fixture = Fixture::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                fixture.set.create_volume(spec("one", Durability::Image)).expect("there is room");
                fixture.set.delete_volume("one").expect("the disk works");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            fixture.try_to_save(SaveExtent::Durable).expect("the disk works");
        }
    });
}

#[test]
fn a_start_knows_whether_the_newest_image_has_what_there_is() {
    let mut fixture = Fixture::new();
    for volume in ["one", "two"] {
        fixture.set.create_volume(spec(volume, Durability::Image)).expect("there is room");
    }
    fixture.set.create_volume(spec("memory", Durability::Ram)).expect("there is room");
    fixture.set.create_snapshots(&["one"], &name("early"), 1).expect("there is room");
    assert!(!fixture.restart().newest_is_current, "there is no image");
    fixture.save();
    assert!(fixture.restart().newest_is_current);
    fixture.engine.delete_volume("two").expect("it is there");
    assert!(!fixture.restart().newest_is_current, "it was deleted just before the kill");
    fixture.save();
    fixture.engine.delete_snapshot("one", "early").expect("it is there");
    assert!(!fixture.restart().newest_is_current);
    fixture.save();
    assert!(fixture.restart().newest_is_current);
}
