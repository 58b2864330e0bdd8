//! Tests that flushes of volumes that are not mirrored do not wait for the image store, and that a
//! promotion never claims to have them.

mod support;

use std::sync::Arc;
use std::thread;

use block_device::BlockDevice;
use durable_set::{DurableError, DurableErrorKind, MirrorPolicy, Shipper};
use standby::LossPolicy;
use support::shipping::{LONG, NOW, SHORT, await_waiting, begin, flush_during, promote, ship};
use support::{Shared, Writer, noise, read, write};
use volumes::{Durability, Volume, VolumeMirror, VolumeName, VolumeSpec};

/// Creates a writer with a volume that stays mirrored, and one that does not.
fn begin_two(shared: &Shared) -> (Writer, Shipper, Arc<Volume>) {
    let (writer, shipper) = begin(shared, &["log", "scratch"]);
    let scratch = writer.volume("scratch");
    (writer, shipper, scratch)
}

fn name(name: &str) -> VolumeName {
    name.parse().expect("a good name")
}

/// Changes the setting of a volume. `work` is called while the change waits for the store.
fn set_during(
    writer: &Writer,
    name: &'static str,
    mirror: VolumeMirror,
    work: impl FnOnce(),
) -> Result<(), DurableError> {
    let set = Arc::clone(&writer.set);
    let change = thread::spawn(move || set.set_mirror(name, mirror));
    await_waiting(writer, 1);
    work();
    change.join().expect("no panic")
}

/// Excludes the volume `scratch` with the store's knowledge.
fn exclude(writer: &Writer, shipper: &mut Shipper) {
    let set = set_during(writer, "scratch", VolumeMirror::No, || ship(shipper));
    set.expect("the store has it");
}

/// Creates a volume `new` that is not mirrored, with the store's knowledge.
fn create_unmirrored(writer: &Writer, shipper: &mut Shipper) {
    let set = Arc::clone(&writer.set);
    let spec = VolumeSpec {
        durability: Durability::Journal,
        mirror: VolumeMirror::No,
        ..VolumeSpec::new(name("new"), 1 << 20)
    };
    let creation = thread::spawn(move || set.create_volume(spec));
    await_waiting(writer, 1);
    ship(shipper);
    creation.join().expect("no panic").expect("the store has it");
}

/// Checks that a flush waits for the store until `work` is done.
#[track_caller]
fn check_waits(writer: &Writer, volume: &Arc<Volume>, work: impl FnOnce()) {
    flush_during(writer, volume, work).expect("the store has it");
}

/// Writes a block and checks that its flush does not wait for the store.
#[track_caller]
fn check_alone(writer: &Writer, volume: &Arc<Volume>, block: u64) {
    write(volume, block, block);
    let before = writer.set.mirror().status().waiting;
    let flushed = Arc::clone(volume);
    let flush = thread::spawn(move || flushed.flush());
    while !flush.is_finished() {
        assert_eq!(writer.set.mirror().status().waiting, before, "a flush waits for the store");
        thread::yield_now();
    }
    flush.join().expect("no panic").expect("the journal has it");
}

#[test]
fn flushes_of_a_volume_that_is_not_mirrored_do_not_wait_and_a_promotion_names_it() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    let log = writer.volume("log");
    write(&log, 1, 1);
    check_waits(&writer, &log, || ship(&mut shipper));
    // The store gets nothing of this.
    check_alone(&writer, &scratch, 1);
    let standby = shared.standby();
    let promoted = promote(&standby, LossPolicy::Refuse).expect("nothing is missing");
    assert!(promoted.is_complete, "{promoted:?}");
    assert_eq!(promoted.unmirrored, ["scratch"]);
    let log = standby.engine().volume("log").expect("it is there");
    assert_eq!(log.mirror(), VolumeMirror::Yes);
    assert!(read(&log, 1) == Ok(noise(1)), "a mirrored flush is lost");
}

#[test]
fn flushes_wait_until_the_store_has_the_setting() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin_two(&shared);
    let set = set_during(&writer, "scratch", VolumeMirror::No, || {
        write(&scratch, 1, 1);
        check_waits(&writer, &scratch, || ship(&mut shipper));
    });
    set.expect("the store has it");
    let standby = shared.standby();
    assert_eq!(
        promote(&standby, LossPolicy::Refuse).expect("nothing is missing").unmirrored,
        ["scratch"]
    );
    let scratch = standby.engine().volume("scratch").expect("it is there");
    assert!(read(&scratch, 1) == Ok(noise(1)), "a mirrored flush is lost");
}

#[test]
fn a_setting_that_is_not_in_the_store_is_not_relied_on_after_a_restart_either() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, SHORT);
    let (writer, shipper, scratch) = begin_two(&shared);
    let refused = writer.set.set_mirror("scratch", VolumeMirror::No).expect_err("nobody ships");
    assert_eq!(refused.kind, DurableErrorKind::NotMirrored);
    assert_eq!(scratch.mirror(), VolumeMirror::No);
    writer.set.maintain().expect("the disk works");
    writer.set.maintain().expect("the disk works");
    drop((shipper, scratch));
    let writer = shared.restart(writer);
    let scratch = writer.volume("scratch");
    let mut shipper = Shipper::new(Arc::clone(&writer.set));
    write(&scratch, 1, 1);
    check_waits(&writer, &scratch, || {
        writer.save();
        ship(&mut shipper);
    });
    // Now the store has it. Maintenance notes what to wait for, and finds it there.
    writer.set.maintain().expect("the disk works");
    ship(&mut shipper);
    writer.set.maintain().expect("the disk works");
    check_alone(&writer, &scratch, 2);
    drop((shipper, scratch));
    let writer = shared.restart(writer);
    // The store knew it before the restart.
    check_alone(&writer, &writer.volume("scratch"), 3);
}

#[test]
fn a_volume_that_is_mirrored_again_loses_nothing_that_was_flushed_before() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    check_alone(&writer, &scratch, 1);
    let set = set_during(&writer, "scratch", VolumeMirror::Yes, || {
        write(&scratch, 2, 2);
        check_waits(&writer, &scratch, || ship(&mut shipper));
    });
    set.expect("the store has it");
    let standby = shared.standby();
    let promoted = promote(&standby, LossPolicy::Refuse).expect("nothing is missing");
    assert_eq!((promoted.is_complete, promoted.unmirrored), (true, Vec::new()));
    let scratch = standby.engine().volume("scratch").expect("it is there");
    for block in 1..=2 {
        assert!(read(&scratch, block) == Ok(noise(block)), "block {block}");
    }
}

#[test]
fn a_setting_that_the_store_lacks_is_not_relied_on_once_it_has_that_of_another_volume() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin_two(&shared);
    let log = writer.volume("log");
    let set = set_during(&writer, "scratch", VolumeMirror::No, || {
        // The journal, and so the store, has the table without it.
        writer.engine.set_mirror("log", VolumeMirror::No).expect("it is there");
        ship(&mut shipper);
    });
    set.expect("the store has it");
    assert!(writer.engine.has_leaving());
    for volume in [&log, &scratch] {
        write(volume, 1, 1);
        check_waits(&writer, volume, || ship(&mut shipper));
    }
    // Flushes have brought the table to the store. Maintenance notes it, and then finds it there.
    writer.set.maintain().expect("the disk works");
    ship(&mut shipper);
    writer.set.maintain().expect("the disk works");
    assert!(!writer.engine.has_leaving());
    check_alone(&writer, &log, 2);
    check_alone(&writer, &scratch, 2);
    let promoted = promote(&shared.standby(), LossPolicy::Refuse).expect("nothing is missing");
    assert_eq!(promoted.unmirrored, ["log", "scratch"]);
}

#[test]
fn a_clone_is_as_its_source_once_the_store_has_it() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, _) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    let set = Arc::clone(&writer.set);
    let cloning = thread::spawn(move || set.clone_volume("scratch", name("copy")));
    await_waiting(&writer, 1);
    // Flushes of a clone need an image that has it.
    writer.save();
    ship(&mut shipper);
    let copy = cloning.join().expect("no panic").expect("the store has it");
    assert_eq!(copy.mirror(), VolumeMirror::No);
    check_alone(&writer, &copy, 1);
    // One that the store has not seen is not relied on.
    writer.engine.clone_volume("copy", name("other")).expect("there is room");
    assert!(writer.engine.has_leaving());
}

#[test]
fn a_rollback_keeps_the_setting_of_the_volume() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    for volume in ["log", "scratch"] {
        writer.set.create_snapshots(&[volume], &name("early"), 1).expect("there is room");
    }
    set_during(&writer, "scratch", VolumeMirror::Yes, || ship(&mut shipper)).expect("it answers");
    set_during(&writer, "log", VolumeMirror::No, || ship(&mut shipper)).expect("it answers");
    for volume in ["log", "scratch"] {
        writer.engine.restore_snapshot(volume, "early").expect("it is there");
    }
    assert_eq!(scratch.mirror(), VolumeMirror::Yes);
    assert_eq!(writer.volume("log").mirror(), VolumeMirror::No);
    // What was rolled back needs an image before the journal has flushes of it.
    writer.save();
    ship(&mut shipper);
    write(&scratch, 1, 1);
    check_waits(&writer, &scratch, || ship(&mut shipper));
    check_alone(&writer, &writer.volume("log"), 1);
}

#[test]
fn the_setting_comes_with_images_and_with_a_change_of_the_class() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, _) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    let standby = shared.standby();
    standby.follow_to(writer.save());
    let of_standby = |name| standby.engine().volume(name).expect("it is there").mirror();
    let both = || (of_standby("scratch"), of_standby("log"));
    assert_eq!(both(), (VolumeMirror::No, VolumeMirror::Yes));
    set_during(&writer, "scratch", VolumeMirror::Yes, || ship(&mut shipper)).expect("it answers");
    set_during(&writer, "log", VolumeMirror::No, || ship(&mut shipper)).expect("it answers");
    standby.follow_to(writer.save());
    assert_eq!(both(), (VolumeMirror::Yes, VolumeMirror::No));
    // As class `ram` it is in no later image, so the store does not know it any more.
    writer.engine.set_durability("log", Durability::Ram).expect("it is there");
    writer.engine.set_durability("log", Durability::Journal).expect("it is there");
    assert!(writer.engine.has_leaving());
}

#[test]
fn a_pool_that_is_restored_has_the_setting_and_relies_on_it_once_the_store_has_it_again() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, _) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    writer.save();
    // The journal has later changes and a volume of its own.
    create_unmirrored(&writer, &mut shipper);
    set_during(&writer, "log", VolumeMirror::No, || ship(&mut shipper)).expect("it answers");
    set_during(&writer, "scratch", VolumeMirror::Yes, || ship(&mut shipper)).expect("it answers");
    drop((writer, shipper));
    for journal in ["journal", "journal-of-another"] {
        let (host, _set, _) = shared.open_anew(journal);
        let of = |name| host.engine().volume(name).expect("it is there").mirror();
        let all = ["new", "log", "scratch"].map(of);
        assert_eq!(all, [VolumeMirror::No, VolumeMirror::No, VolumeMirror::Yes], "{journal}");
        for volume in host.engine().volumes() {
            assert!(volume.map().is_mirrored(), "{journal}: {}", volume.name());
        }
    }
}

#[test]
fn a_volume_whose_creation_is_the_last_change_is_restored_with_its_setting() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, _) = begin_two(&shared);
    writer.save();
    create_unmirrored(&writer, &mut shipper);
    drop((writer, shipper));
    for journal in ["journal", "journal-of-another"] {
        let (host, _set, _) = shared.open_anew(journal);
        let new = host.engine().volume("new").expect("it is there");
        assert_eq!(new.mirror(), VolumeMirror::No, "{journal}");
    }
    let promoted = promote(&shared.standby(), LossPolicy::Refuse).expect("nothing is missing");
    assert_eq!(promoted.unmirrored, ["new"]);
}

#[test]
fn volumes_that_are_restored_have_the_setting_in_the_image() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, _) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    let number = writer.save();
    let set = Arc::clone(&writer.set);
    let names = [("scratch", "again"), ("log", "other")];
    let names = names.map(|(of, new)| (of.to_owned(), new.to_owned()));
    let restoring = thread::spawn(move || set.restore(number, &names));
    await_waiting(&writer, 1);
    ship(&mut shipper);
    let restored = restoring.join().expect("no panic").expect("the store has it");
    let settings: Vec<_> = restored.iter().map(|volume| volume.mirror()).collect();
    assert_eq!(settings, [VolumeMirror::No, VolumeMirror::Yes]);
    writer.save();
    check_alone(&writer, &restored[0], 1);
    drop((writer, shipper, restored));
    // The image is all that another host has.
    let (host, _set, _) = shared.open_anew("journal-of-another");
    for (name, mirror) in [("again", VolumeMirror::No), ("other", VolumeMirror::Yes)] {
        let volume = host.engine().volume(name).expect("it is there");
        assert_eq!((volume.mirror(), volume.map().is_mirrored()), (mirror, true), "{name}");
    }
}

#[test]
fn a_promotion_names_volumes_of_class_journal_only() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, _shipper, _) = begin_two(&shared);
    for (of, durability) in [("image", Durability::Image), ("journal", Durability::Journal)] {
        let new = VolumeSpec::new(name(of), 1 << 20);
        let spec = VolumeSpec { durability, mirror: VolumeMirror::No, ..new };
        writer.engine.create_volume(spec).expect("there is room");
    }
    writer.save();
    let promoted = promote(&shared.standby(), LossPolicy::Refuse).expect("nothing is missing");
    assert_eq!(promoted.unmirrored, ["journal"]);
}

#[test]
fn flushes_of_a_volume_that_is_not_mirrored_fail_once_the_store_was_taken_over() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin_two(&shared);
    exclude(&writer, &mut shipper);
    promote(&shared.standby(), LossPolicy::Refuse).expect("nothing is missing");
    // The writer does not know it yet.
    check_alone(&writer, &scratch, 1);
    shipper.ship(NOW).expect_err("another has claimed the store");
    scratch.flush().expect_err("another has claimed the store");
}
